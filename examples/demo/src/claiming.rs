//! Claims of one known event.
//!
//! The user's file may hold events that fall due while the story is told. A
//! worker that meets one delivers it, as any worker would, and looks again.

use std::thread::sleep;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::check;
use crate::error::DemoError;
use crate::ledger::{Fate, Ledger};
use crate::narrate::{Narrator, counted};
use crate::outbox::{Claim, Claimed};
use crate::worker::Worker;

/// Longer than any claim may take to find an event that is due.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// Claims `id`, which is due or will be within `wait`.
pub fn claim_known(
    worker: &mut Worker,
    (narrator, ledger): (Narrator, &mut Ledger),
    id: Uuid,
    wanted: Claim,
    wait: Duration,
) -> Result<Claimed, DemoError> {
    let deadline = Instant::now() + wait + PATIENCE;
    loop {
        match claim_one(worker, narrator, ledger, wanted)? {
            Some(event) if event.id == id => return Ok(event),
            Some(other) => return Err(wrong_event(worker, id, &other)),
            None if Instant::now() > deadline => {
                return Err(check::off("the claim", format!("event {id}"), "no event"));
            }
            None => sleep(PAUSE),
        }
    }
}

/// Claims until nothing is due: no event but scheduled ones may turn up.
pub fn claim_nothing(
    worker: &mut Worker,
    (narrator, ledger): (Narrator, &mut Ledger),
    wanted: Claim,
) -> Result<(), DemoError> {
    match claim_one(worker, narrator, ledger, wanted)? {
        None => Ok(()),
        Some(event) => Err(check::off("the claim", "no event", format!("event {}", event.id))),
    }
}

/// The next event that is none of the file's late ones; those are delivered on the way.
fn claim_one(
    worker: &mut Worker,
    narrator: Narrator,
    ledger: &mut Ledger,
    wanted: Claim,
) -> Result<Option<Claimed>, DemoError> {
    let mut late = 0;
    let event = loop {
        let batch = worker.claim(wanted)?;
        check::holds("the size of a batch of one", "1 at most", batch.len(), batch.len() <= 1)?;
        match batch.into_iter().next() {
            Some(event) if ledger.is_scheduled(event.id) => {
                worker.complete(event.id, Some(event.attempt))?;
                ledger.set(event.id, Fate::Completed);
                late += 1;
            }
            other => break other,
        }
    };
    if late > 0 {
        let late = counted(late, "scheduled event");
        narrator.say(&format!("({} delivers {late} of the file that fell due meanwhile)", worker.name));
    }
    Ok(event)
}

fn wrong_event(worker: &Worker, id: Uuid, found: &Claimed) -> DemoError {
    check::off(
        &format!("the event that {} claims", worker.name),
        format!("event {id}"),
        format!("event {} ({})", found.id, found.event_type),
    )
}
