//! Everything that can end the demo early.

use std::fmt;
use std::path::PathBuf;

use crate::refusal::Refusal;
use crate::settings::error_chain;

#[derive(Debug)]
pub enum DemoError {
    /// The call or the environment is wrong.
    Usage(String),
    /// The events file cannot be used; `line` counts from 1.
    EventsFile { file: PathBuf, line: Option<usize>, problem: String },
    /// The server refused an event of the file.
    EventRefused { file: PathBuf, line: usize, refusal: Box<Refusal> },
    /// The server could not be reached or an ordinary statement failed.
    Server(postgres::Error),
    /// A step did not come out as it is told.
    Off { what: String, expected: String, found: String },
    /// An error with the step that it happened in.
    InStep { number: usize, title: &'static str, error: Box<DemoError> },
}

impl DemoError {
    /// What is wrong with the input names its own place: the step would not help.
    pub fn in_step(self, number: usize, title: &'static str) -> Self {
        match self {
            Self::Server(_) | Self::Off { .. } => Self::InStep { number, title, error: Box::new(self) },
            other => other,
        }
    }

    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::EventsFile { .. } | Self::EventRefused { .. } => 2,
            Self::Server(_) | Self::Off { .. } => 1,
            Self::InStep { error, .. } => error.exit_status(),
        }
    }
}

impl From<postgres::Error> for DemoError {
    fn from(error: postgres::Error) -> Self {
        Self::Server(error)
    }
}

impl fmt::Display for DemoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(problem) => write!(f, "{problem}"),
            Self::EventsFile { file, line, problem } => match line {
                Some(line) => write!(f, "{}:{line}: {problem}", file.display()),
                None => write!(f, "{}: {problem}", file.display()),
            },
            Self::EventRefused { file, line, refusal } => write!(
                f,
                "{}:{line}: the server refused this event; none of the file was enqueued\n{refusal}",
                file.display()
            ),
            Self::Server(error) => match Refusal::of(error) {
                Some(refusal) => write!(f, "the server answered with an error\n{refusal}"),
                None => write!(f, "the server: {}", error_chain(error)),
            },
            Self::Off { what, expected, found } => {
                write!(f, "{what}\nexpected: {expected}\nfound:    {found}")
            }
            Self::InStep { number, title, error } => write!(f, "step {number}, {title}: {error}"),
        }
    }
}

impl std::error::Error for DemoError {}
