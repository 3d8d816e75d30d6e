//! The server under test, as `make test` announces it in the environment, and its programs.

use postgres::{Client, Config, NoTls};
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

/// How to reach the server, as its superuser; without a database.
pub fn config() -> Config {
    dsn().parse().expect("OUTBOX_DSN is a libpq connection string")
}

/// The same as the text that libpq's programs take.
pub fn dsn() -> String {
    setting("OUTBOX_DSN")
}

/// A session outside the tests' databases, to make and drop them.
pub fn administrator() -> Client {
    config().dbname("postgres").connect(NoTls).expect("the server under test answers")
}

/// One of the server's own programs, such as pg_dump; it speaks English whatever the caller's locale.
pub fn program(name: &str) -> Command {
    let mut command = Command::new(program_path(name));
    command.env("LC_ALL", "C");
    command
}

/// One of the server's own programs, run as the user that servers run as: PostgreSQL refuses to run as root.
pub fn program_of_server(name: &str) -> Command {
    as_server_user(program_path(name))
}

/// Any program, run as the user that servers run as, with an environment that says nothing of ours.
pub fn as_server_user(program: impl AsRef<OsStr>) -> Command {
    let mut command = if running_as_root() {
        let mut command = Command::new("runuser");
        command.args(["-u", &setting("OUTBOX_PG_RUNAS"), "--"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LANG", "C.UTF-8").current_dir("/");
    command
}

/// What the command printed; it must succeed.
pub fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} does not run: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed with {}: {errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn program_path(name: &str) -> PathBuf {
    PathBuf::from(setting("OUTBOX_PG_BIN")).join(name)
}

fn running_as_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

fn setting(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: these tests need a server of their own, which `make test` starts")
    })
}
