//! Charts, as SVG.

use std::path::Path;

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use serde::Deserialize;

use super::Section;
use crate::failure::{Doing, Failure, Outcome};
use crate::payload;
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

type Curve<'a> = (&'a str, &'a [Point]);
type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

const SIZE: (u32, u32) = (860, 440);

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
    // Ours first, in the first colour of every chart.
    curves.sort_by_key(|(series, _)| (!series.starts_with("outbox_ext"), *series));
    curves
}

type Drawing = Result<(), Box<dyn std::error::Error>>;

fn one(chart: &Chart, curves: &[Curve], file: &Path) -> Drawing {
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (x, y) = (extent(curves, |point| point.x), extent(curves, |point| point.y));
    let (ordinary, ordinary_cost) = (0.0..x.1 * 1.02, 0.0..y.1 * 1.3);
    match chart.kind {
        Kind::Bars => bars(chart, curves, &root)?,
        Kind::Lines => lines(chart, curves, &root, ordinary, ordinary_cost)?,
        Kind::LogCost => lines(chart, curves, &root, ordinary, decades(y).log_scale())?,
        Kind::LogBoth => lines(chart, curves, &root, decades(x).log_scale(), decades(y).log_scale())?,
    }
    root.present()?;
    Ok(())
}

/// Whole powers of ten around a range.
fn decades((least, most): (f64, f64)) -> std::ops::Range<f64> {
    10f64.powf(least.max(1.0).log10().floor())..10f64.powf(most.max(10.0).log10().ceil())
}

fn extent(curves: &[Curve], of: impl Fn(&Point) -> f64) -> (f64, f64) {
    let values = || curves.iter().flat_map(|(_, points)| *points).map(&of);
    (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max))
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

fn lines<X, Y>(chart: &Chart, curves: &[Curve], root: &Area, x: X, y: Y) -> Drawing
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut context = ChartBuilder::on(root)
        .caption(&chart.title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(70)
        .build_cartesian_2d(x, y)?;
    context
        .configure_mesh()
        .x_desc(&chart.x)
        .y_desc(&chart.y)
        .x_label_formatter(&|value| count(*value))
        .y_label_formatter(&|value| count(*value))
        .light_line_style(WHITE)
        .draw()?;
    for (series, points) in curves {
        let style = colour(series).stroke_width(2);
        let places = points.iter().map(|point| (point.x, point.y));
        context
            .draw_series(LineSeries::new(places.clone(), style))?
            .label(*series)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        if points.len() <= 12 {
            context.draw_series(places.map(|place| Circle::new(place, 3, colour(series).filled())))?;
        }
    }
    context
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(200, 200, 200))
        .draw()?;
    Ok(())
}

/// A group for each x, side by side, since what is compared is the height within a group. The groups' scales
/// differ by far, so each is a small chart of its own.
fn bars(chart: &Chart, curves: &[Curve], root: &Area) -> Drawing {
    let area = root.titled(&chart.title, ("sans-serif", 18))?;
    let mut groups: Vec<_> = curves.iter().flat_map(|(_, points)| *points).map(|point| point.x).collect();
    groups.sort_by(f64::total_cmp);
    groups.dedup();
    for (panel, &x) in area.split_evenly((1, groups.len())).iter().zip(&groups) {
        group(chart, curves, panel, x)?;
    }
    Ok(())
}

fn group(chart: &Chart, curves: &[Curve], panel: &Area, x: f64) -> Drawing {
    let height = |points: &[Point]| points.iter().find(|point| point.x == x).map(|point| point.y);
    let heights: Vec<_> =
        curves.iter().filter_map(|(series, points)| Some((*series, height(points)?))).collect();
    let most = heights.iter().map(|(_, height)| *height).fold(0.0, f64::max);
    let mut context = ChartBuilder::on(panel)
        .margin(10)
        .x_label_area_size(24)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..heights.len() as f64, 0.0..most * 1.45)?;
    context
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .x_desc(format!("{} {}", payload::label(x as usize), chart.x))
        .y_desc(&chart.y)
        .y_label_formatter(&|value| count(*value))
        .light_line_style(WHITE)
        .draw()?;
    for (place, (series, height)) in heights.into_iter().enumerate() {
        let (left, right) = (place as f64 + 0.1, place as f64 + 0.9);
        let style = colour(series).filled();
        context
            .draw_series(std::iter::once(Rectangle::new([(left, 0.0), (right, height)], style)))?
            .label(series)
            .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 8, y + 4)], style));
    }
    context
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .label_font(("sans-serif", 11))
        .draw()?;
    Ok(())
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
