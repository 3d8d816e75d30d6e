//! Payloads too large for their row lie in a table of their own, and moving an event should not touch them.

use serde::Deserialize;

use crate::arena::{Arena, Fill};
use crate::bench::Bench;
use crate::failure::{Doing, Outcome};
use crate::meter;
use crate::payload;
use crate::samples::{Findings, Measure};
use crate::server::Commit;
use crate::workload::Case;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Toast {
    pub system: String,
    synchronous_commit: Commit,
    batch: i32,
    case: Case,
}

impl Toast {
    pub fn run(&self, bench: &Bench, findings: &mut Findings) -> Outcome<()> {
        let Some(mut arena) = bench.arena(&self.system, self.synchronous_commit, findings)? else {
            return Ok(());
        };
        let (bytes, events) = (self.case.payload, self.case.events(bench.quick));
        let mut worker = arena.worker("worker", self.batch)?;
        bench.progress.at("filling");
        arena.fill(Fill::Waiting, events, &payload::noise(bytes), self.batch)?;
        findings.add("before", Measure::Size, bytes, size(&mut arena)?);
        bench.progress.at("claiming and completing");
        let spent = meter::measure(&mut arena.control, || worker.drain(events))?;
        findings.add("after", Measure::Size, bytes, size(&mut arena)?);
        findings.add("after", Measure::Wal, bytes, spent.wal_an_event(events));
        findings.add("after", Measure::Time, bytes, spent.micros_an_event(events));
        Ok(())
    }
}

fn size(arena: &mut Arena) -> Outcome<f64> {
    let query = "SELECT pg_total_relation_size(reltoastrelid)::float8 FROM pg_class
                 WHERE oid = 'outbox_event'::regclass";
    Ok(arena.control.query_one(query, &[]).doing(|| "asking for the TOAST's size".into())?.try_get(0)?)
}
