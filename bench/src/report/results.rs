//! RESULTS.md.

use std::fmt::Write;

use super::charts::Drawn;
use super::{Report, Section, figure, table};
use crate::bench::RUNS;
use crate::failure::Outcome;
use crate::payload;
use crate::statistics;

pub fn markdown(report: &Report, charts: &[Drawn]) -> Outcome<String> {
    let mut text = String::from("# Results\n\n");
    introduce(&mut text, report)?;
    let _ = writeln!(text, "\n{}", table::lines(&report.sections));
    let missed = table::missed(&report.sections);
    if !missed.is_empty() {
        let _ = writeln!(text, "Targets that were missed, and why:\n\n{missed}");
    }
    for chart in charts {
        let _ = writeln!(text, "![{}](charts/{}.svg)\n", chart.title, chart.name);
    }
    let _ = writeln!(
        text,
        "## Workload by workload\n\nFigures are the median of the runs, with the least and the most in brackets.\n"
    );
    for section in &report.sections {
        describe(&mut text, section);
    }
    contestants(&mut text, report)?;
    Ok(text)
}

// Writing to a String cannot fail, so what `write!` returns is of no interest here.

fn introduce(text: &mut String, report: &Report) -> Outcome<()> {
    let (mode, command) = if report.bench.quick {
        (
            " This was a quick run, with smaller tables: its targets are those of a full one.",
            "QUICK=1 make bench",
        )
    } else {
        ("", "make bench")
    };
    let minutes = report.bench.progress.elapsed().as_secs_f64() / 60.0;
    let _ = writeln!(
        text,
        "Written by `{command}` in {minutes:.1} minutes.{mode} A figure is that of outbox_ext over the other's, \
         in the same run; below 1 outbox_ext needs less. Unless its workload says otherwise it is the median \
         of {RUNS} alternating runs. A figure in bold misses its target.\n"
    );
    for (what, value) in &report.machine.facts {
        let _ = writeln!(text, "- {what}: {value}");
    }
    let mut versions = Vec::new();
    for system in report.bench.used() {
        if let Some(version) = system.version(&report.bench.server)? {
            versions.push(format!("{} {version}", system.title));
        }
    }
    versions.extend(crate::experiments::products::versions());
    if !versions.is_empty() {
        let _ = writeln!(text, "- Peers: {}", versions.join(", "));
    }
    let _ = writeln!(
        text,
        "- Payloads are fetched to the client in every claim; sizes are those of the JSON text."
    );
    Ok(())
}

fn describe(text: &mut String, section: &Section) {
    let _ = writeln!(text, "### {}\n\n{}\n", section.workload.title, section.workload.about.trim());
    if let Some(failure) = &section.failure {
        let _ = writeln!(text, "**Failed:** {failure}\n");
    }
    for note in &section.findings.notes {
        let _ = writeln!(text, "- {note}");
    }
    if !section.findings.notes.is_empty() {
        text.push('\n');
    }
    figures(text, section);
}

fn figures(text: &mut String, section: &Section) {
    let sizes = section.findings.payloads();
    if sizes.is_empty() {
        return;
    }
    let _ = write!(text, "| | |");
    sizes.iter().for_each(|&size| text.push_str(&format!(" {} |", payload::label(size))));
    let _ = write!(text, "\n|---|---|{}\n", "---|".repeat(sizes.len()));
    let mut rows: Vec<_> = section.findings.samples.keys().map(|key| (&key.series, key.measure)).collect();
    rows.dedup();
    for (series, measure) in rows {
        let _ = write!(text, "| {series} | {} |", measure.unit());
        for &size in &sizes {
            let summary = statistics::summary(section.findings.figures(series, measure, size));
            let _ = write!(text, " {} |", summary.map_or_else(|| "–".into(), figure::spread));
        }
        text.push('\n');
    }
    text.push('\n');
}

fn contestants(text: &mut String, report: &Report) -> Outcome<()> {
    let _ = writeln!(text, "## Contestants\n");
    for system in report.bench.used() {
        let _ =
            writeln!(text, "- **{}** (`workloads/systems/{}`): {}", system.title, system.name, system.about);
    }
    Ok(())
}
