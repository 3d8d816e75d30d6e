//! Says what is going on, on standard error.

use std::cell::Cell;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

pub struct Progress {
    began: Instant,
    terminal: bool,
    open_line: Cell<bool>,
    said: Cell<Duration>,
}

/// Where there is no terminal, and each word stays, one is said so often.
const SILENCE: Duration = Duration::from_secs(10);

impl Progress {
    pub fn new() -> Self {
        Self {
            began: Instant::now(),
            terminal: std::io::stderr().is_terminal(),
            open_line: Cell::new(false),
            said: Cell::default(),
        }
    }

    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// A line that stays.
    pub fn say(&self, what: &str) {
        self.end_line();
        self.said.set(self.elapsed());
        eprintln!("{} {what}", self.clock());
    }

    /// What is being done at this moment: on a terminal the next one writes over it.
    pub fn at(&self, what: &str) {
        if self.terminal {
            eprint!("\r\x1b[K{}   {what}", self.clock());
            // A progress line that cannot be shown is not worth an error.
            let _ = std::io::stderr().flush();
            self.open_line.set(true);
        } else if self.elapsed() - self.said.get() >= SILENCE {
            self.say(&format!("  {what}"));
        }
    }

    fn end_line(&self) {
        if self.open_line.replace(false) {
            eprint!("\r\x1b[K");
        }
    }

    fn clock(&self) -> String {
        let seconds = self.elapsed().as_secs();
        format!("{:2}:{:02}", seconds / 60, seconds % 60)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end_line();
    }
}
