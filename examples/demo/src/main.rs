//! The story of an outbox, told on a real server.
//!
//!     outbox_demo [EVENTS_FILE]
//!
//! `OUTBOX_DSN` says which server to use (a libpq connection string without a
//! database name), `OUTBOX_PSQL` how to start psql on it and `OUTBOX_STOP` how
//! to stop it; the last two are only printed. The database `outbox_demo` on
//! that server is dropped and made afresh.
//!
//! Every step checks what it shows. Exit status: 0 when the story came out as
//! told, 1 when a step was off, 2 when the call or the events file was.

mod check;
mod claiming;
mod database;
mod error;
mod events;
mod ledger;
mod narrate;
mod numbers;
mod outbox;
mod progress;
mod refusal;
mod scenes;
mod settings;
mod stage;
mod story;
mod worker;

use std::process::ExitCode;

use crate::error::DemoError;
use crate::narrate::Narrator;
use crate::settings::{Call, Settings};

fn main() -> ExitCode {
    match run(Narrator::new()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            narrate::complain(&error.to_string());
            ExitCode::from(error.exit_status())
        }
    }
}

fn run(narrator: Narrator) -> Result<(), DemoError> {
    match settings::read_call(std::env::args_os())? {
        Call::Help => narrator.plain(settings::USAGE),
        Call::Tell { events } => {
            // The file first: one that cannot be used must not cost anybody a database.
            let events = events::read_file(&events)?;
            story::tell(narrator, &Settings::from_env()?, events)?;
        }
    }
    Ok(())
}
