//! Single statements in a loop inside the server, where no round trip hides what they cost.

use postgres::Client;
use serde::Deserialize;

use crate::arena::Arena;
use crate::bench::{Bench, RUNS};
use crate::failure::{Doing, Outcome};
use crate::payload;
use crate::samples::{Findings, Measure};
use crate::server::Commit;
use crate::workload::{self, Case};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerLoop {
    pub system: String,
    synchronous_commit: Commit,
    /// Files in `workloads/loops/`.
    loops: Vec<String>,
    cases: Vec<Case>,
}

/// Different payloads, so that none of them is the one that is always in the cache.
const PAYLOADS: u64 = 64;

impl ServerLoop {
    pub fn run(&self, bench: &Bench, findings: &mut Findings) -> Outcome<()> {
        let Some(mut arena) = bench.arena(&self.system, self.synchronous_commit, findings)? else {
            return Ok(());
        };
        let scripts = self.scripts(bench)?;
        let mut client = arena.connect()?;
        for case in workload::measured(&self.cases, bench.quick) {
            store_payloads(&mut client, case.payload)?;
            for run in 0..=RUNS {
                for (name, script) in &scripts {
                    bench.progress.at(&format!("{name}, {}: run {run}", payload::label(case.payload)));
                    let seconds = time(&mut arena, &mut client, script, case.events(bench.quick))?;
                    // The first run warms up.
                    if run > 0 {
                        let micros = seconds * 1e6 / case.events(bench.quick) as f64;
                        findings.add(name, Measure::Time, case.payload, micros);
                    }
                }
            }
        }
        Ok(())
    }

    fn scripts(&self, bench: &Bench) -> Outcome<Vec<(String, String)>> {
        self.loops.iter().map(|name| Ok((name.clone(), bench.sql("loops", name)?))).collect()
    }
}

fn store_payloads(client: &mut Client, bytes: usize) -> Outcome<()> {
    client
        .batch_execute("DROP TABLE IF EXISTS bench_payload; CREATE TEMP TABLE bench_payload (payload jsonb)")
        .doing(|| "making the payloads' table".into())?;
    for seed in 0..PAYLOADS {
        client
            .execute("INSERT INTO bench_payload VALUES ($1::text::jsonb)", &[&payload::json(bytes, seed)])
            .doing(|| "storing a payload".into())?;
    }
    Ok(())
}

/// The script takes its own time: what it prepares before its loop is no part of it.
fn time(arena: &mut Arena, client: &mut Client, script: &str, events: u64) -> Outcome<f64> {
    arena.empty()?;
    client
        .batch_execute(&script.replace("{events}", &events.to_string()))
        .doing(|| "running a loop".into())?;
    let row = client
        .query_one("SELECT current_setting('bench.seconds')::float8", &[])
        .doing(|| "reading the time of a loop".into())?;
    Ok(row.try_get(0)?)
}
