//! Checks: what a step shows must be what it says.

use std::fmt::Debug;

use crate::error::DemoError;

pub fn equal<T: PartialEq + Debug>(what: &str, expected: T, found: T) -> Result<(), DemoError> {
    if expected == found {
        return Ok(());
    }
    Err(off(what, format!("{expected:?}"), format!("{found:?}")))
}

pub fn holds(what: &str, expected: &str, found: impl Debug, holds: bool) -> Result<(), DemoError> {
    if holds {
        return Ok(());
    }
    Err(off(what, expected.to_owned(), format!("{found:?}")))
}

pub fn off(what: &str, expected: impl Into<String>, found: impl Into<String>) -> DemoError {
    DemoError::Off { what: what.to_owned(), expected: expected.into(), found: found.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_check_says_what_was_expected_and_what_was_found() {
        let error = equal("the number of rows", 1, 2).expect_err("1 is not 2");
        assert_eq!(error.to_string(), "the number of rows\nexpected: 1\nfound:    2");
        assert_eq!(error.exit_status(), 1);
    }
}
