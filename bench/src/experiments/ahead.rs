//! Claims with many events ahead that cannot be claimed: leased to others, or due another day.

use std::time::Instant;

use serde::Deserialize;

use crate::arena::{Arena, Fill, side_by_side};
use crate::bench::Bench;
use crate::failure::{Failure, Outcome};
use crate::payload;
use crate::samples::{Findings, Measure};
use crate::server::Commit;
use crate::workload::Sized;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ahead {
    pub contestants: Vec<String>,
    synchronous_commit: Commit,
    payload: usize,
    fill: Fill,
    /// How many there are of those.
    ahead: Sized,
    /// How many wait to be claimed, for each claim.
    waiting: u64,
    claims: u64,
}

/// The size of the claims.
const BATCH: i32 = 10;

impl Ahead {
    pub fn run(&self, bench: &Bench, findings: &mut Findings) -> Outcome<()> {
        let text = payload::json(self.payload, 1);
        let mut arenas = bench.arenas(&self.contestants, self.synchronous_commit, findings)?;
        let ahead = self.ahead.of(bench.quick);
        bench.progress.at("filling");
        side_by_side(&mut arenas, |arena| {
            arena.fill(self.fill, ahead, &text, BATCH)?;
            arena.vacuum()
        })?;
        for mut arena in arenas {
            bench.progress.at(&format!("{}: claiming", arena.system.title));
            self.claims(&mut arena, &text, findings)?;
        }
        Ok(())
    }

    fn claims(&self, arena: &mut Arena, text: &str, findings: &mut Findings) -> Outcome<()> {
        let mut worker = arena.worker("worker", BATCH)?;
        for claim in 0..=self.claims {
            arena.fill(Fill::Waiting, self.waiting, text, BATCH)?;
            let began = Instant::now();
            let found = worker.claim()?;
            let milliseconds = began.elapsed().as_secs_f64() * 1e3;
            if found != self.waiting {
                return Err(Failure::new(format!("a claim found {found} events, not {}", self.waiting)));
            }
            let measure = if claim == 0 { Measure::First } else { Measure::Latency };
            findings.add(&arena.system.name, measure, self.payload, milliseconds);
        }
        Ok(())
    }
}
