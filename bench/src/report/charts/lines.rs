//! Curves.

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use super::{Area, Chart, Curve, Drawing, Kind, colour, count};
use crate::samples::Point;

pub fn draw(chart: &Chart, curves: &[Curve], area: &Area) -> Drawing {
    let (x, y) = (extent(curves, |point| point.x), extent(curves, |point| point.y));
    match chart.kind {
        Kind::LogBoth => on_axes(chart, curves, area, decades(x).log_scale(), decades(y).log_scale()),
        Kind::LogCost => on_axes(chart, curves, area, 0.0..x.1 * 1.02, decades(y).log_scale()),
        _ => on_axes(chart, curves, area, 0.0..x.1 * 1.02, 0.0..y.1 * 1.2),
    }
}

/// Whole powers of ten around a range.
fn decades((least, most): (f64, f64)) -> std::ops::Range<f64> {
    10f64.powf(least.max(1.0).log10().floor())..10f64.powf(most.max(10.0).log10().ceil())
}

fn extent(curves: &[Curve], of: impl Fn(&Point) -> f64) -> (f64, f64) {
    let values = || curves.iter().flat_map(|(_, points)| *points).map(&of);
    (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max))
}

fn on_axes<X, Y>(chart: &Chart, curves: &[Curve], area: &Area, x: X, y: Y) -> Drawing
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut context = ChartBuilder::on(area)
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
        let places = points.iter().map(|point| (point.x, point.y));
        context.draw_series(LineSeries::new(places.clone(), colour(series).stroke_width(2)))?;
        // Dots where they do not run into each other; and a curve of one point is no line.
        if points.len() <= 12 {
            context.draw_series(places.map(|place| Circle::new(place, 3, colour(series).filled())))?;
        }
    }
    Ok(())
}
