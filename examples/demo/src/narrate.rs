//! How the story looks on the terminal.
//!
//! Output that nobody reads any more (`make demo | head`) is not an error: the
//! checks go on and the exit status tells how they ended.

use std::env;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use crate::refusal::Refusal;

const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "31";
const GREEN: &str = "32";
const CYAN: &str = "36";

#[derive(Clone, Copy)]
pub struct Narrator {
    colour: bool,
}

impl Narrator {
    pub fn new() -> Self {
        Self { colour: wants_colour(io::stdout().is_terminal()) }
    }

    pub fn title(self, text: &str) {
        self.line(&self.painted(BOLD, text));
        self.line(&self.painted(BOLD, &"=".repeat(text.chars().count())));
    }

    pub fn gap(self) {
        self.line("");
    }

    pub fn heading(self, number: usize, title: &str) {
        self.gap();
        self.line(&self.painted(BOLD, &format!("{number:2}. {title}")));
    }

    pub fn plain(self, text: &str) {
        for line in text.lines() {
            self.line(&printable(line));
        }
    }

    /// A sentence of the story.
    pub fn say(self, text: &str) {
        for line in text.lines() {
            self.line(&format!("    {}", printable(line)));
        }
    }

    /// A statement that is run, as one could type it.
    pub fn sql(self, text: &str) {
        for line in text.lines() {
            self.line(&format!("      {}", self.painted(CYAN, &printable(line))));
        }
    }

    /// Something that was checked and is so.
    pub fn checked(self, text: &str) {
        self.line(&format!("    {} {}", self.painted(GREEN, "✓"), printable(text)));
    }

    /// A word on how far a long step has come.
    pub fn progress(self, text: &str) {
        self.line(&self.painted(DIM, &format!("      … {}", printable(text))));
    }

    /// A row of figures under a step.
    pub fn figure(self, label: &str, value: impl Display) {
        self.line(&format!("      {label:<12} {value}"));
    }

    /// An error of the server that the step wanted to see.
    pub fn refusal(self, refusal: &Refusal) {
        for line in refusal.to_string().lines() {
            self.line(&format!("      {}", self.painted(RED, &printable(line))));
        }
    }

    fn painted(self, code: &str, text: &str) -> String {
        paint(self.colour, code, text)
    }

    fn line(self, text: &str) {
        let _ = writeln!(io::stdout(), "{text}");
    }
}

/// The error that ends the program, on stderr.
pub fn complain(text: &str) {
    let colour = wants_colour(io::stderr().is_terminal());
    let mut lines = text.lines();
    let first = printable(lines.next().unwrap_or_default());
    let mut stderr = io::stderr();
    let _ = writeln!(stderr, "\n{} {first}", paint(colour, RED, "✗"));
    for line in lines {
        let _ = writeln!(stderr, "    {}", printable(line));
    }
}

/// 1234567 as 1,234,567.
pub fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// "1 event", "2 events".
pub fn counted(number: usize, one: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {one}{plural}", grouped(number))
}

/// "0.4 s", "1.5 min", "24.0 h".
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{s:.1} s"),
        s if s < 5400.0 => format!("{:.1} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

fn wants_colour(terminal: bool) -> bool {
    terminal && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn paint(colour: bool, code: &str, text: &str) -> String {
    if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Text of a file or a server may hold control characters; a terminal must not obey them.
fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(1234567), "1,234,567");
        assert_eq!(counted(1, "event"), "1 event");
        assert_eq!(counted(2000, "event"), "2,000 events");
    }

    #[test]
    fn durations_are_told_in_a_unit_that_fits() {
        assert_eq!(duration(0.44), "0.4 s");
        assert_eq!(duration(120.0), "2.0 min");
        assert_eq!(duration(86_400.0), "24.0 h");
    }

    #[test]
    fn control_characters_are_shown_and_not_obeyed() {
        assert_eq!(printable("a\x1b[31mb\u{9b}c"), "a\\u{1b}[31mb\\u{9b}c");
        assert_eq!(printable("Größe 寸法 📓"), "Größe 寸法 📓");
    }
}
