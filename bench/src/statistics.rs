//! Medians, and what lies around them.

/// The middle of some figures, and the ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

/// None when there are no figures.
pub fn summary(figures: &[f64]) -> Option<Summary> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (least, most) = (*sorted.first()?, *sorted.last()?);
    let middle = sorted.len() / 2;
    let median =
        if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
    Some(Summary { median, least, most })
}

/// Run by run: what changes on the machine from minute to minute touches both sides of a run, and cancels.
pub fn ratios(of: &[f64], to: &[f64]) -> Vec<f64> {
    of.iter().zip(to).map(|(of, to)| of / to).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(summary(&[]), None);
        assert_eq!(summary(&[3.0, 1.0, 2.0]), Some(Summary { median: 2.0, least: 1.0, most: 3.0 }));
        assert_eq!(summary(&[4.0, 1.0]), Some(Summary { median: 2.5, least: 1.0, most: 4.0 }));
    }

    #[test]
    fn ratios_are_of_one_run() {
        assert_eq!(ratios(&[2.0, 9.0], &[1.0, 3.0, 5.0]), [2.0, 3.0]);
    }
}
