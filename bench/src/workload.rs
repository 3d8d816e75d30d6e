//! The workloads: files in `workloads/`, each an experiment and the lines of the table that it fills.

use std::path::Path;

use serde::Deserialize;

use crate::experiments::Experiment;
use crate::failure::{Doing, Failure, Outcome};
use crate::samples::{Findings, Measure};
use crate::statistics::{self, Summary};

#[derive(Debug, Deserialize)]
pub struct Workload {
    pub title: String,
    /// How it is measured.
    pub about: String,
    #[serde(flatten)]
    pub experiment: Experiment,
    #[serde(rename = "line")]
    pub lines: Vec<Line>,
}

/// A line of the table: one contestant's figures, as they are or over another's.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    pub name: String,
    pub work: String,
    pub measure: Measure,
    pub of: String,
    pub to: Option<String>,
    pub at_most: Option<f64>,
    pub at_least: Option<f64>,
    /// Why the target may be missed, as far as that is known.
    pub reason: Option<String>,
}

impl Line {
    /// The figure for one payload size: the median of the runs, with the ends.
    pub fn value(&self, findings: &Findings, payload: usize) -> Option<Summary> {
        let of = findings.figures(&self.of, self.measure, payload);
        match &self.to {
            Some(to) => {
                statistics::summary(&statistics::ratios(of, findings.figures(to, self.measure, payload)))
            }
            None => statistics::summary(of),
        }
    }

    pub fn unit(&self) -> &'static str {
        match (&self.to, self.measure) {
            (Some(_), _) | (None, Measure::Hot) => "",
            (None, measure) => measure.unit(),
        }
    }

    /// Judged as it is shown: a figure that reads 1.10 meets a target of 1.10.
    pub fn met(&self, value: f64) -> bool {
        let value = (value * 100.0).round() / 100.0;
        self.at_most.is_none_or(|most| value <= most) && self.at_least.is_none_or(|least| value >= least)
    }

    pub fn has_target(&self) -> bool {
        self.at_most.is_some() || self.at_least.is_some()
    }
}

/// A number that depends on whether the run is a quick one.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sized {
    full: u64,
    quick: u64,
}

impl Sized {
    pub fn of(self, quick: bool) -> u64 {
        if quick { self.quick } else { self.full }
    }
}

/// A payload size, and how many events of it; none leaves the size out.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub payload: usize,
    pub full: u64,
    pub quick: u64,
}

impl Case {
    pub fn events(self, quick: bool) -> u64 {
        if quick { self.quick } else { self.full }
    }
}

/// The cases that have events.
pub fn measured(cases: &[Case], quick: bool) -> impl Iterator<Item = Case> {
    cases.iter().copied().filter(move |case| case.events(quick) > 0)
}

/// All workloads, in the order of their files' names.
pub fn load(folder: &Path) -> Outcome<Vec<Workload>> {
    let entries = std::fs::read_dir(folder).doing(|| format!("reading {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.doing(|| format!("reading {}", folder.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    files.sort();
    files.iter().map(|file| read(file)).collect()
}

fn read(file: &Path) -> Outcome<Workload> {
    let text = std::fs::read_to_string(file).doing(|| format!("reading {}", file.display()))?;
    toml::from_str(&text).doing(|| format!("reading {}", file.display()))
}

/// Those that the named lines need; all, if none is named.
pub fn select(workloads: Vec<Workload>, names: &[String]) -> Outcome<Vec<Workload>> {
    let known: Vec<_> =
        workloads.iter().flat_map(|workload| &workload.lines).map(|line| &line.name).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        return Err(Failure::new(format!("there is no row {unknown}; --list tells")));
    }
    let wanted = |workload: &Workload| {
        names.is_empty() || workload.lines.iter().any(|line| names.contains(&line.name))
    };
    Ok(workloads.into_iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(at_most: Option<f64>, at_least: Option<f64>) -> Line {
        Line {
            name: "x".into(),
            work: "x".into(),
            measure: Measure::Time,
            of: "a".into(),
            to: Some("b".into()),
            at_most,
            at_least,
            reason: None,
        }
    }

    #[test]
    fn a_line_is_the_median_of_the_runs_ratios() {
        let mut findings = Findings::default();
        for (a, b) in [(10.0, 10.0), (30.0, 10.0), (20.0, 10.0)] {
            findings.add("a", Measure::Time, 300, a);
            findings.add("b", Measure::Time, 300, b);
        }
        let line = line(Some(1.0), None);
        assert_eq!(line.value(&findings, 300), Some(Summary { median: 2.0, least: 1.0, most: 3.0 }));
        assert_eq!(line.value(&findings, 2000), None);
    }

    #[test]
    fn targets_are_judged_as_shown() {
        assert!(line(Some(1.1), None).met(1.1049));
        assert!(!line(Some(1.1), None).met(1.106));
        assert!(line(None, Some(0.9)).met(0.95));
        assert!(!line(None, Some(0.9)).met(0.89));
        assert!(line(None, None).met(99.0));
    }

    #[test]
    fn the_files_can_be_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads");
        let workloads = load(&folder).unwrap();
        let mut names: Vec<_> =
            workloads.iter().flat_map(|workload| &workload.lines).map(|line| &line.name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count, "a name is used twice");
        for workload in &workloads {
            for system in workload.experiment.systems() {
                crate::system::System::load(&folder.join("systems"), system).unwrap();
            }
        }
    }
}
