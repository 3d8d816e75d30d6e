//! An error that the server reported: what a client can show of it.

use std::fmt;

use crate::error::DemoError;

#[derive(Debug, Clone)]
pub struct Refusal {
    pub sqlstate: String,
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
}

impl Refusal {
    /// None when the error is not the server's but the connection's.
    pub fn of(error: &postgres::Error) -> Option<Self> {
        let error = error.as_db_error()?;
        Some(Self {
            sqlstate: error.code().code().to_owned(),
            message: error.message().to_owned(),
            detail: error.detail().map(str::to_owned),
            hint: error.hint().map(str::to_owned),
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ERROR {}: {}", self.sqlstate, self.message)?;
        if let Some(detail) = &self.detail {
            write!(f, "\nDETAIL: {detail}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\nHINT: {hint}")?;
        }
        Ok(())
    }
}

/// The refusal that a step is there to show: this SQLSTATE, with a DETAIL and a HINT.
pub fn expect_refusal<T>(
    what: &str,
    sqlstate: &str,
    outcome: Result<T, postgres::Error>,
) -> Result<Refusal, DemoError> {
    let off = |found: String| DemoError::Off {
        what: what.to_owned(),
        expected: format!("SQLSTATE {sqlstate} with DETAIL and HINT"),
        found,
    };
    let error = match outcome {
        Ok(_) => return Err(off("no error".to_owned())),
        Err(error) => error,
    };
    let Some(refusal) = Refusal::of(&error) else {
        return Err(error.into());
    };
    if refusal.sqlstate != sqlstate || refusal.detail.is_none() || refusal.hint.is_none() {
        return Err(off(refusal.to_string()));
    }
    Ok(refusal)
}
