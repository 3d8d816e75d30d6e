//! What the caller gives: one argument and three environment variables.

use std::env::{self, VarError};
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use postgres::Config;

use crate::database;
use crate::error::DemoError;

pub const USAGE: &str = "\
usage: outbox_demo [EVENTS_FILE]

EVENTS_FILE holds one JSON object per line, its keys named as the parameters of
outbox_enqueue; examples/events.jsonl when left out.

environment:
  OUTBOX_DSN    connection string without a database name (required)
  OUTBOX_PSQL   how to start psql on that server (printed at the end)
  OUTBOX_STOP   how to stop that server (printed at the end)
  NO_COLOR      no colour when it is set";

const DEFAULT_EVENTS: &str = "examples/events.jsonl";

pub enum Call {
    Help,
    Tell { events: PathBuf },
}

pub fn read_call(args: impl Iterator<Item = OsString>) -> Result<Call, DemoError> {
    let args: Vec<OsString> = args.skip(1).collect();
    match args.as_slice() {
        [] => Ok(Call::Tell { events: PathBuf::from(DEFAULT_EVENTS) }),
        [flag] if flag == "--help" || flag == "-h" => Ok(Call::Help),
        [file] => Ok(Call::Tell { events: PathBuf::from(file) }),
        more => Err(DemoError::Usage(format!(
            "one events file at most, but {} arguments were given\n\n{USAGE}",
            more.len()
        ))),
    }
}

pub struct Settings {
    pub server: Config,
    pub psql: String,
    pub stop: Option<String>,
}

impl Settings {
    pub fn from_env() -> Result<Self, DemoError> {
        Ok(Self {
            server: server_config()?,
            psql: variable("OUTBOX_PSQL")?.unwrap_or_else(|| "psql".to_owned()),
            stop: variable("OUTBOX_STOP")?,
        })
    }

    /// The command that opens the demo's database.
    pub fn psql_command(&self) -> String {
        format!("{} {}", self.psql, database::NAME)
    }
}

fn server_config() -> Result<Config, DemoError> {
    let dsn = variable("OUTBOX_DSN")?.ok_or_else(|| {
        DemoError::Usage(
            "OUTBOX_DSN is not set: it says which server to use, such as \
             'host=localhost user=postgres' (`make demo` sets it)"
                .to_owned(),
        )
    })?;
    let mut config = Config::from_str(&dsn)
        .map_err(|e| DemoError::Usage(format!("OUTBOX_DSN is no connection string: {}", error_chain(&e))))?;
    config.application_name(database::NAME);
    Ok(config)
}

fn variable(name: &str) -> Result<Option<String>, DemoError> {
    match env::var(name) {
        Ok(value) if value.trim().is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(DemoError::Usage(format!("{name} is not valid UTF-8"))),
    }
}

/// An error and what caused it, in one line.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn call(args: &[&str]) -> Result<Call, DemoError> {
        read_call(args.iter().map(OsString::from))
    }

    #[test]
    fn the_events_file_has_a_default() {
        assert!(
            matches!(call(&["outbox_demo"]), Ok(Call::Tell { events }) if events == Path::new(DEFAULT_EVENTS))
        );
        assert!(
            matches!(call(&["outbox_demo", "mine.jsonl"]), Ok(Call::Tell { events }) if events == Path::new("mine.jsonl"))
        );
    }

    #[test]
    fn help_is_no_file_and_two_files_are_one_too_many() {
        assert!(matches!(call(&["outbox_demo", "--help"]), Ok(Call::Help)));
        assert!(matches!(call(&["outbox_demo", "a", "b"]), Err(DemoError::Usage(_))));
    }
}
