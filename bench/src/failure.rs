//! What went wrong, and while doing what.

use std::error::Error;
use std::fmt;

pub type Outcome<T> = Result<T, Failure>;

#[derive(Debug)]
pub struct Failure {
    doing: String,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    pub fn new(what: impl Into<String>) -> Self {
        Self { doing: what.into(), cause: None }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.doing)?;
        // The client says no more than "db error" itself; what the server said is its source.
        let mut cause = self.cause.as_deref().map(|cause| cause as &dyn Error);
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl Error for Failure {}

impl From<postgres::Error> for Failure {
    fn from(error: postgres::Error) -> Self {
        Self { doing: "the server".into(), cause: Some(Box::new(error)) }
    }
}

/// Says what was being done when an error came.
pub trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Outcome<T>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> Doing<T> for Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Outcome<T> {
        self.map_err(|error| Failure { doing: what(), cause: Some(error.into()) })
    }
}
