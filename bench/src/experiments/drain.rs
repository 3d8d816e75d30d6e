//! A backlog that is worked off: claim and complete, batch by batch, by one worker.

use serde::Deserialize;

use crate::arena::{Arena, Fill};
use crate::bench::{Bench, RUNS};
use crate::failure::Outcome;
use crate::meter::{self, Spent};
use crate::payload;
use crate::samples::{Findings, Measure};
use crate::server::Commit;
use crate::system::Worker;
use crate::workload::{self, Case};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drain {
    pub contestants: Vec<String>,
    synchronous_commit: Commit,
    batch: i32,
    cases: Vec<Case>,
}

struct Contestant {
    arena: Arena,
    worker: Box<dyn Worker>,
}

impl Drain {
    pub fn run(&self, bench: &Bench, findings: &mut Findings) -> Outcome<()> {
        let mut contestants = Vec::new();
        for arena in bench.arenas(&self.contestants, self.synchronous_commit, findings)? {
            let worker = arena.worker("worker", self.batch)?;
            contestants.push(Contestant { arena, worker });
        }
        for case in workload::measured(&self.cases, bench.quick) {
            self.case(bench, case, &mut contestants, findings)?;
        }
        Ok(())
    }

    fn case(
        &self,
        bench: &Bench,
        case: Case,
        contestants: &mut [Contestant],
        findings: &mut Findings,
    ) -> Outcome<()> {
        let (text, events) = (payload::json(case.payload, 1), case.events(bench.quick));
        for run in 1..=RUNS {
            for contestant in &mut *contestants {
                let title = &contestant.arena.system.title;
                bench.progress.at(&format!("{title}, {}: run {run}", payload::label(case.payload)));
                let spent = self.once(contestant, &text, events)?;
                let name = &contestant.arena.system.name;
                findings.add(name, Measure::Time, case.payload, spent.micros_an_event(events));
                findings.add(name, Measure::Wal, case.payload, spent.wal_an_event(events));
            }
            // Nobody is always the one who comes after the slowest.
            contestants.rotate_left(1);
        }
        Ok(())
    }

    fn once(&self, contestant: &mut Contestant, text: &str, events: u64) -> Outcome<Spent> {
        let Contestant { arena, worker } = contestant;
        arena.empty()?;
        // Emptying a table makes its plans stale, and planning is no part of the work.
        let warm_up = self.batch as u64;
        arena.fill(Fill::Waiting, warm_up, text, self.batch)?;
        worker.drain(warm_up)?;
        arena.fill(Fill::Waiting, events, text, self.batch)?;
        arena.vacuum()?;
        meter::measure(&mut arena.control, || worker.drain(events))
    }
}
