//! The machine and the server: what a figure is worth nothing without.

use std::fs;

use crate::failure::Outcome;
use crate::server::Server;

pub struct Machine {
    /// What and its value, in the order of the report.
    pub facts: Vec<(&'static str, String)>,
}

/// Settings that decide what a commit costs, and what else a run depends on.
const SETTINGS: &[&str] = &[
    "fsync",
    "full_page_writes",
    "wal_level",
    "wal_compression",
    "shared_buffers",
    "max_wal_size",
    "checkpoint_timeout",
    "autovacuum",
    "autovacuum_naptime",
    "jit",
];

pub fn look(server: &Server) -> Outcome<Machine> {
    let mut facts = vec![
        ("Date", server.ask("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') || ' UTC'")?),
        ("Processor", format!("{} × {}", processors(), field("/proc/cpuinfo", "model name"))),
        ("Memory", memory()),
        ("System", system()),
        ("Load before the run", load()),
        ("PostgreSQL", server.ask("SHOW server_version")?),
        ("outbox_ext", outbox_ext(server)?),
    ];
    facts.push(("Settings", settings(server)?));
    Ok(Machine { facts })
}

fn outbox_ext(server: &Server) -> Outcome<String> {
    let query = "SELECT coalesce(max(default_version), 'none')
                 FROM pg_available_extensions WHERE name = 'outbox_ext'";
    let version = server.ask(query)?;
    Ok(match std::env::var("OUTBOX_BENCH_COMMIT") {
        Ok(commit) => format!("{version}, commit {commit}"),
        Err(_) => version,
    })
}

fn settings(server: &Server) -> Outcome<String> {
    let mut list = Vec::new();
    for name in SETTINGS {
        list.push(format!("{name} = {}", server.ask(&format!("SHOW {name}"))?));
    }
    Ok(list.join(", "))
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The value of the first line `name : value` in a file of /proc.
fn field(file: &str, name: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_once(':'))
        .map_or_else(|| "unknown".into(), |(_, value)| value.trim().into())
}

fn memory() -> String {
    let kilobytes = field("/proc/meminfo", "MemTotal").trim_end_matches(" kB").parse::<u64>();
    kilobytes.map_or_else(|_| "unknown".into(), |kilobytes| format!("{} GiB", (kilobytes + (1 << 19)) >> 20))
}

fn system() -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{}, Linux {}", name.unwrap_or("unknown").trim_matches('"'), kernel.trim())
}

fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}
