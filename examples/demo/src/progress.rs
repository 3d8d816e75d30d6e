//! A word now and then while a long step runs.

use std::time::{Duration, Instant};

use crate::narrate::Narrator;

const EVERY: Duration = Duration::from_secs(5);

pub struct Progress {
    narrator: Narrator,
    last: Instant,
}

impl Progress {
    pub fn new(narrator: Narrator) -> Self {
        Self { narrator, last: Instant::now() }
    }

    pub fn tick(&mut self, text: impl FnOnce() -> String) {
        if self.last.elapsed() >= EVERY {
            self.last = Instant::now();
            self.narrator.progress(&text());
        }
    }
}
