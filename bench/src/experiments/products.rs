//! Peers whose client is the product: each is a script for node that moves events with its own client, and
//! ours is one more of them.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::bench::{Bench, RUNS};
use crate::failure::{Doing, Failure, Outcome};
use crate::payload;
use crate::samples::{Findings, Measure};
use crate::server::Commit;
use crate::workload::{self, Case};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Products {
    /// The system that the first script works on.
    pub system: String,
    synchronous_commit: Commit,
    /// Scripts in `peers/`, with how many events they take at once.
    scripts: Vec<Script>,
    cases: Vec<Case>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    name: String,
    batch: u32,
}

/// What a script is told.
#[derive(Serialize)]
struct Task<'a> {
    host: &'a str,
    port: u16,
    user: &'a str,
    database: &'a str,
    options: &'a str,
    events: u64,
    batch: u32,
    payload: &'a str,
}

/// What a script answers.
#[derive(Deserialize)]
struct Answer {
    seconds: f64,
    events: u64,
}

impl Products {
    pub fn run(&self, bench: &Bench, findings: &mut Findings) -> Outcome<()> {
        let Some(folder) = std::env::var_os("OUTBOX_BENCH_PEERS").map(PathBuf::from) else {
            findings.note("graphile-worker and pg-boss were left out: node or their packages are missing.");
            return Ok(());
        };
        for script in &self.scripts {
            self.prepare(bench, script)?;
        }
        for case in workload::measured(&self.cases, bench.quick) {
            let text = payload::json(case.payload, 1);
            for run in 1..=RUNS {
                for script in &self.scripts {
                    bench.progress.at(&format!(
                        "{}, {}: run {run}",
                        script.name,
                        payload::label(case.payload)
                    ));
                    let micros = self.once(bench, &folder, script, case.events(bench.quick), &text)?;
                    findings.add(&script.name, Measure::Time, case.payload, micros);
                }
            }
        }
        self.scripts.iter().try_for_each(|script| bench.server.drop_database(&database(script)))
    }

    fn prepare(&self, bench: &Bench, script: &Script) -> Outcome<()> {
        bench.server.create_database(&database(script), "template1")?;
        if script.name == self.system {
            let mut client = bench.server.connect(&database(script), &[])?;
            crate::system::System::load(&bench.folder.join("systems"), &self.system)?.install(&mut client)?;
        }
        Ok(())
    }

    fn once(&self, bench: &Bench, folder: &Path, script: &Script, events: u64, text: &str) -> Outcome<f64> {
        let mut client = bench.server.connect(&database(script), &[])?;
        client.batch_execute("VACUUM (ANALYZE)").doing(|| format!("vacuuming for {}", script.name))?;
        let address = bench.server.address();
        let (host, port, user) = address.ok_or_else(|| Failure::new("OUTBOX_DSN names no host"))?;
        let task = Task {
            host: &host,
            port,
            user: &user,
            database: &database(script),
            options: &format!("-c synchronous_commit={}", self.synchronous_commit.as_str()),
            events,
            batch: script.batch,
            payload: text,
        };
        let answer = ask(&folder.join(format!("{}.mjs", script.name)), &task)?;
        if answer.events != events {
            return Err(Failure::new(format!("{} moved {} of {events} events", script.name, answer.events)));
        }
        Ok(answer.seconds * 1e6 / events as f64)
    }
}

fn database(script: &Script) -> String {
    format!("product_{}", script.name)
}

fn ask(script: &Path, task: &Task) -> Outcome<Answer> {
    let task = serde_json::to_string(task).doing(|| "writing a task".into())?;
    let output = Command::new("node")
        .arg(script)
        .arg(task)
        .output()
        .doing(|| format!("running node {}", script.display()))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::new(format!("{}: {}", script.display(), message.trim())));
    }
    serde_json::from_slice(&output.stdout).doing(|| format!("reading what {} answered", script.display()))
}

/// The versions of the scripts' packages and of node; none where they are not used.
pub fn versions() -> Vec<String> {
    let Some(folder) = std::env::var_os("OUTBOX_BENCH_PEERS").map(PathBuf::from) else { return Vec::new() };
    let mut versions = packages(&folder.join("package.json")).unwrap_or_default();
    if let Ok(output) = Command::new("node").arg("--version").output() {
        versions.push(format!("node {}", String::from_utf8_lossy(&output.stdout).trim()));
    }
    versions
}

fn packages(file: &Path) -> Option<Vec<String>> {
    let manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    let packages = manifest.get("dependencies")?.as_object()?;
    Some(
        packages
            .iter()
            .map(|(name, version)| format!("{name} {}", version.as_str().unwrap_or("?")))
            .collect(),
    )
}
