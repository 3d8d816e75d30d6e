//! Bars: a group for each x, side by side, since what is compared is the height within a group. The groups'
//! scales differ by far, so each is a small chart of its own.

use plotters::prelude::*;

use super::{Area, Chart, Curve, Drawing, colour, count};
use crate::payload;
use crate::samples::Point;

pub fn draw(chart: &Chart, curves: &[Curve], area: &Area) -> Drawing {
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
        .build_cartesian_2d(0.0..heights.len() as f64, 0.0..most * 1.05)?;
    context
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .x_desc(format!("{} {}", payload::label(x as usize), chart.x))
        .y_desc(&chart.y)
        .y_label_formatter(&|value| count(*value))
        .light_line_style(WHITE)
        .draw()?;
    context.draw_series(heights.into_iter().enumerate().map(|(place, (series, height))| {
        let (left, right) = (place as f64 + 0.1, place as f64 + 0.9);
        Rectangle::new([(left, 0.0), (right, height)], colour(series).filled())
    }))?;
    Ok(())
}
