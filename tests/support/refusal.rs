//! An error as a client sees it.

use std::fmt::Debug;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub sqlstate: String,
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
}

impl Refusal {
    /// The error that a call must end with.
    pub fn expect<T: Debug>(result: Result<T, postgres::Error>, what: &str) -> Self {
        match result {
            Ok(value) => panic!("{what} must be refused, and returned {value:?}"),
            Err(error) => Self::read(&error),
        }
    }

    fn read(error: &postgres::Error) -> Self {
        let error = error.as_db_error().unwrap_or_else(|| panic!("no error of the server: {error:?}"));
        Self {
            sqlstate: error.code().code().to_owned(),
            message: error.message().to_owned(),
            detail: error.detail().map(str::to_owned),
            hint: error.hint().map(str::to_owned),
        }
    }

    /// Whether any part of it contains the text.
    pub fn mentions(&self, text: &str) -> bool {
        [Some(&self.message), self.detail.as_ref(), self.hint.as_ref()]
            .into_iter()
            .flatten()
            .any(|part| part.contains(text))
    }

    /// Its DETAIL; it must have one, and a HINT.
    pub fn explained(&self) -> &str {
        assert!(self.hint.is_some(), "no HINT: {self:?}");
        self.detail.as_deref().unwrap_or_else(|| panic!("no DETAIL: {self:?}"))
    }
}
