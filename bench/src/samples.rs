//! What the runs measured: one figure a run, by contestant, measure and payload.

use std::collections::BTreeMap;

use serde::Deserialize;

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Microseconds an event.
    Time,
    /// Bytes of WAL an event.
    Wal,
    /// Milliseconds a call.
    Latency,
    /// Milliseconds of a backend's first call.
    First,
    /// Events a second.
    Throughput,
    /// Share of updates.
    Hot,
    /// Bytes.
    Size,
}

impl Measure {
    pub fn unit(self) -> &'static str {
        match self {
            Self::Time => "µs/event",
            Self::Wal => "WAL bytes/event",
            Self::Latency => "ms",
            Self::First => "ms, first call",
            Self::Throughput => "events/s",
            Self::Hot => "HOT share",
            Self::Size => "bytes",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub series: String,
    pub measure: Measure,
    pub payload: usize,
}

/// A point of a chart's curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    pub x: f64,
    pub y: f64,
}

/// Everything that one experiment found out.
#[derive(Debug, Default)]
pub struct Findings {
    pub samples: BTreeMap<Key, Vec<f64>>,
    /// By chart and series.
    pub curves: BTreeMap<(String, String), Vec<Point>>,
    /// What a reader has to know: what was left out, and what was stopped early.
    pub notes: Vec<String>,
}

impl Findings {
    pub fn add(&mut self, series: &str, measure: Measure, payload: usize, figure: f64) {
        let key = Key { series: series.to_owned(), measure, payload };
        self.samples.entry(key).or_default().push(figure);
    }

    pub fn point(&mut self, chart: &str, series: &str, x: f64, y: f64) {
        self.curves.entry((chart.to_owned(), series.to_owned())).or_default().push(Point { x, y });
    }

    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    pub fn figures(&self, series: &str, measure: Measure, payload: usize) -> &[f64] {
        let key = Key { series: series.to_owned(), measure, payload };
        self.samples.get(&key).map_or(&[], Vec::as_slice)
    }

    /// The payload sizes that were measured, the smallest first.
    pub fn payloads(&self) -> Vec<usize> {
        let mut payloads: Vec<_> = self.samples.keys().map(|key| key.payload).collect();
        payloads.sort_unstable();
        payloads.dedup();
        payloads
    }
}
