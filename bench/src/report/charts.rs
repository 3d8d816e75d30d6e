//! Charts, as SVG.

mod bars;
mod legend;
mod lines;

use std::path::Path;

use plotters::prelude::*;
use serde::Deserialize;

use super::Section;
use crate::failure::{Doing, Failure, Outcome};
use crate::samples::Point;

/// A file in `workloads/charts/`: its name is the name by which experiments send points.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Chart {
    title: String,
    x: String,
    y: String,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    /// Lines on ordinary axes.
    Lines,
    /// Lines; what they cost is on a logarithmic axis, since it spans orders of magnitude.
    LogCost,
    /// Lines, with both axes logarithmic.
    LogBoth,
    /// A group of bars for each payload size.
    Bars,
}

pub struct Drawn {
    pub name: String,
    pub title: String,
}

/// A series, and its points.
type Curve<'a> = (&'a str, &'a [Point]);
type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawing = Result<(), Box<dyn std::error::Error>>;

const SIZE: (u32, u32) = (960, 440);
/// What the legend takes of the width.
const LEGEND: u32 = 200;

/// Draws each chart that has points.
pub fn draw(descriptions: &Path, sections: &[Section], folder: &Path) -> Outcome<Vec<Drawn>> {
    let mut names: Vec<_> =
        sections.iter().flat_map(|section| section.findings.curves.keys()).map(|(chart, _)| chart).collect();
    names.sort();
    names.dedup();
    let mut drawn = Vec::new();
    for name in names {
        let chart = describe(&descriptions.join(format!("{name}.toml")))?;
        let file = folder.join(format!("{name}.svg"));
        one(&chart, &curves(sections, name), &file)
            .map_err(|error| Failure::new(format!("drawing {}: {error}", file.display())))?;
        drawn.push(Drawn { name: name.clone(), title: chart.title });
    }
    Ok(drawn)
}

fn describe(file: &Path) -> Outcome<Chart> {
    let text = std::fs::read_to_string(file).doing(|| format!("reading {}", file.display()))?;
    toml::from_str(&text).doing(|| format!("reading {}", file.display()))
}

fn curves<'a>(sections: &'a [Section], name: &str) -> Vec<Curve<'a>> {
    let all = sections.iter().flat_map(|section| &section.findings.curves);
    let mut curves: Vec<_> = all
        .filter(|((chart, _), _)| chart == name)
        .map(|((_, series), points)| (series.as_str(), points.as_slice()))
        .collect();
    // Ours first.
    curves.sort_by_key(|(series, _)| (!series.starts_with("outbox_ext"), *series));
    curves
}

fn one(chart: &Chart, curves: &[Curve], file: &Path) -> Drawing {
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(&chart.title, ("sans-serif", 18))?;
    let (plot, legend) = root.split_horizontally(SIZE.0 - LEGEND);
    match chart.kind {
        Kind::Bars => bars::draw(chart, curves, &plot)?,
        _ => lines::draw(chart, curves, &plot)?,
    }
    legend::draw(curves, &legend)?;
    root.present()?;
    Ok(())
}

/// A system has the same colour in every chart.
fn colour(series: &str) -> RGBColor {
    const COLOURS: [(&str, RGBColor); 7] = [
        ("outbox_ext (xid", RGBColor(90, 170, 240)),
        ("outbox_ext", RGBColor(0, 90, 181)),
        ("textbook", RGBColor(220, 50, 32)),
        ("PL/pgSQL", RGBColor(130, 130, 130)),
        ("pgmq", RGBColor(26, 133, 50)),
        ("PgQ", RGBColor(212, 145, 0)),
        ("", BLACK),
    ];
    COLOURS.iter().find(|(start, _)| series.starts_with(start)).map_or(BLACK, |(_, colour)| *colour)
}

/// Short numbers for axes.
fn count(value: f64) -> String {
    match value.abs() {
        size if size >= 1e6 => format!("{}M", trimmed(value / 1e6)),
        size if size >= 1e3 => format!("{}k", trimmed(value / 1e3)),
        _ => trimmed(value),
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_short_numbers() {
        assert_eq!(count(0.0), "0");
        assert_eq!(count(1_500.0), "1.5k");
        assert_eq!(count(5_000_000.0), "5M");
        assert_eq!(count(0.25), "0.25");
    }
}
