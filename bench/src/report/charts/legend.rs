//! The legend, beside the chart, where no curve runs through it.

use plotters::prelude::*;

use super::{Area, Curve, Drawing, colour};

const LINE: i32 = 22;

pub fn draw(curves: &[Curve], area: &Area) -> Drawing {
    for (index, (series, _)) in curves.iter().enumerate() {
        let top = 24 + index as i32 * LINE;
        area.draw(&Rectangle::new([(0, top), (14, top + 10)], colour(series).filled()))?;
        area.draw(&Text::new((*series).to_owned(), (22, top - 2), ("sans-serif", 13)))?;
    }
    Ok(())
}
