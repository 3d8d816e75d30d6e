//! Retention: completed events are deleted in bites, with a snapshot held meanwhile and without.

use std::time::Instant;

use serde::Deserialize;

use super::holder::Holder;
use crate::arena::{Arena, Fill, side_by_side};
use crate::bench::{Bench, RUNS};
use crate::failure::{Doing, Failure, Outcome};
use crate::payload;
use crate::samples::{Findings, Measure};
use crate::server::Commit;
use crate::workload::Sized;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Purge {
    pub system: String,
    synchronous_commit: Commit,
    payload: usize,
    /// How many are completed when a session begins to delete.
    completed: Sized,
    bite: Sized,
    /// Files in `workloads/purges/`: each deletes up to `$1` events and returns how many.
    ways: Vec<String>,
}

/// A session deletes so many bites, one after the other.
const BITES: u64 = 10;

/// What deletes, and its database.
struct Way<'p> {
    name: &'p str,
    sql: String,
    arena: Arena,
    missing: u64,
}

impl Purge {
    pub fn run(&self, bench: &Bench, findings: &mut Findings) -> Outcome<()> {
        let mut ways = Vec::new();
        for name in &self.ways {
            if let Some(arena) = bench.arena(&self.system, self.synchronous_commit, findings)? {
                let missing = self.completed.of(bench.quick);
                ways.push(Way { name, sql: bench.sql("purges", name)?, arena, missing });
            }
        }
        for run in 1..=RUNS {
            for holder in [None, Some(Holder::Snapshot)] {
                bench.progress.at(&format!("filling for run {run}"));
                side_by_side(&mut ways, |way| self.refill(way))?;
                for way in &mut ways {
                    bench.progress.at(&format!("{}{}: run {run}", way.name, suffix(holder)));
                    self.session(bench, way, holder, findings)?;
                }
                ways.rotate_left(1);
            }
        }
        Ok(())
    }

    fn refill(&self, way: &mut Way) -> Outcome<()> {
        way.arena.fill(Fill::History, way.missing, &payload::json(self.payload, 1), 1)?;
        way.missing = 0;
        way.arena.vacuum()
    }

    fn session(
        &self,
        bench: &Bench,
        way: &mut Way,
        holder: Option<Holder>,
        findings: &mut Findings,
    ) -> Outcome<()> {
        let held = holder.map(|holder| holder.begin(way.arena.connect()?)).transpose()?;
        let (mut client, size) = (way.arena.connect()?, self.bite.of(bench.quick));
        let statement = client.prepare(&way.sql).doing(|| format!("preparing {}", way.name))?;
        let series = format!("{}{}", way.name, suffix(holder));
        // One event, by which the session makes its plans.
        client.query_one(&statement, &[&1_i32]).doing(|| "deleting".into())?;
        way.missing += 1;
        let mut spent = 0.0;
        for bite in 1..=BITES {
            let began = Instant::now();
            let row = client.query_one(&statement, &[&(size as i32)]).doing(|| "deleting".into())?;
            let micros = began.elapsed().as_secs_f64() * 1e6 / size as f64;
            let deleted: i64 = row.try_get(0)?;
            if deleted != size as i64 {
                return Err(Failure::new(format!("{series}: a bite of {size} deleted {deleted} events")));
            }
            way.missing += size;
            spent += micros;
            if bite == 1 || bite == BITES {
                findings.add(&format!("{series}: bite {bite}"), Measure::Time, self.payload, micros);
            }
        }
        findings.add(&series, Measure::Time, self.payload, spent / BITES as f64);
        drop(held);
        Ok(())
    }
}

fn suffix(holder: Option<Holder>) -> String {
    holder.map_or_else(String::new, |holder| format!(", {}", holder.name()))
}
