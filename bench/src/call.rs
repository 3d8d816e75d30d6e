//! The command line and the environment.

use std::env;
use std::path::PathBuf;

use crate::failure::{Failure, Outcome};

pub const USAGE: &str = "outbox_bench [--quick] [--only ROW]… [--out DIRECTORY]

  --quick          a run of minutes rather than a quarter of an hour, with smaller tables
  --only ROW       only what the row needs (several may be given); prints, and writes no results
  --out DIRECTORY  where RESULTS.md and charts/ go
  --list           the rows, and what they measure

Environment: OUTBOX_DSN says which server (a libpq connection string); optional are OUTBOX_BENCH_PGMQ (pgmq's
SQL), OUTBOX_BENCH_PEERS (a folder with the peers of node), OUTBOX_BENCH_COMMIT (what is being measured).";

pub enum Call {
    Help,
    List,
    Run(Options),
}

#[derive(Debug)]
pub struct Options {
    pub quick: bool,
    pub only: Vec<String>,
    pub out: PathBuf,
    pub dsn: String,
}

pub fn read(arguments: impl Iterator<Item = String>) -> Outcome<Call> {
    let mut arguments = arguments.skip(1);
    let (mut quick, mut only, mut out) = (false, Vec::new(), PathBuf::from("bench"));
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| Failure::new(format!("{argument} wants a value")));
        match argument.as_str() {
            "--help" | "-h" => return Ok(Call::Help),
            "--list" => return Ok(Call::List),
            "--quick" => quick = true,
            "--only" => {
                only.extend(value()?.split([',', ' ']).filter(|row| !row.is_empty()).map(str::to_owned))
            }
            "--out" => out = value()?.into(),
            _ => return Err(Failure::new(format!("unknown argument {argument}; --help tells"))),
        }
    }
    Ok(Call::Run(Options { quick, only, out, dsn: variable("OUTBOX_DSN")? }))
}

fn variable(name: &str) -> Outcome<String> {
    env::var(name).map_err(|_| Failure::new(format!("{name} is not set; `make bench` sets it")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(arguments: &[&str]) -> Outcome<Call> {
        read(std::iter::once("outbox_bench").chain(arguments.iter().copied()).map(str::to_owned))
    }

    #[test]
    fn mistakes_are_told() {
        let message = |arguments| call(arguments).err().map(|failure| failure.to_string());
        assert_eq!(message(&["--what"]), Some("unknown argument --what; --help tells".into()));
        assert_eq!(message(&["--only"]), Some("--only wants a value".into()));
        assert!(matches!(call(&["--list"]), Ok(Call::List)));
    }
}
