//! How figures are written.

use crate::statistics::Summary;

/// A ratio or a share, with two digits after the point.
pub fn ratio(value: f64) -> String {
    format!("{value:.2}")
}

/// Any other figure, with three digits that count.
pub fn amount(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => grouped(value.round() as i64),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The median, and the ends in brackets.
pub fn spread(summary: Summary) -> String {
    let Summary { median, least, most } = summary;
    if least == most {
        return amount(median);
    }
    format!("{} ({} … {})", amount(median), amount(least), amount(most))
}

fn grouped(value: i64) -> String {
    let digits = value.abs().to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(amount(1_234_567.8), "1,234,568");
        assert_eq!(amount(999.6), "1,000");
        assert_eq!(amount(99.94), "99.9");
        assert_eq!(amount(0.126), "0.13");
        assert_eq!(spread(Summary { median: 2.0, least: 1.0, most: 3.0 }), "2.00 (1.00 … 3.00)");
        assert_eq!(spread(Summary { median: 2.0, least: 2.0, most: 2.0 }), "2.00");
    }
}
