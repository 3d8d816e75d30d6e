//! Two workers drain the outbox side by side.

use std::collections::{HashMap, HashSet};
use std::sync::Barrier;
use std::thread::{self, ScopedJoinHandle};

use postgres::Client;
use uuid::Uuid;

use crate::check;
use crate::database::{self, count};
use crate::error::DemoError;
use crate::ledger::{Fate, Ledger};
use crate::narrate::{Narrator, counted, grouped};
use crate::outbox::{Claim, Claimed};
use crate::progress::Progress;
use crate::stage::Stage;
use crate::worker::Worker;

/// What one worker handed to the outside world.
#[derive(Default)]
struct Delivered {
    ids: Vec<Uuid>,
    batches: usize,
    bytes: usize,
}

impl Delivered {
    /// Where a real worker would call a service or publish to a broker.
    fn hand_over(&mut self, batch: &[Claimed]) {
        self.batches += 1;
        for event in batch {
            self.ids.push(event.id);
            self.bytes += event.payload.len();
        }
    }
}

pub fn play(stage: &mut Stage) -> Result<(), DemoError> {
    let say = stage.narrator;
    let started = database::clock(&mut stage.shop)?;
    note_scheduled(&mut stage.shop, &mut stage.ledger, &started)?;
    let due = stage.ledger.count(Fate::Due);
    let later = stage.ledger.count(Fate::Scheduled);
    let wanted = batches_for(due);
    say.say(&tally(due, later));
    say.say("Two workers, each in a session of its own, repeat until nothing is left:");
    say.sql(&format!("SELECT * FROM outbox_claim_batch('worker-a', {});", wanted.batch_size));
    say.sql("SELECT outbox_complete(id, 'worker-a', attempt);   -- for each, after its delivery");
    let (a, b) = drain(say, &mut stage.worker_a, &mut stage.worker_b, wanted)?;
    for (name, delivered) in [("worker-a", &a), ("worker-b", &b)] {
        say.figure(name, describe(delivered));
    }
    check_both_worked(&a, &b)?;
    check_deliveries(&mut stage.ledger, &a, &b)?;
    say.checked("no event went to both, and each went out exactly once");
    check_completed(stage)
}

fn tally(due: usize, later: usize) -> String {
    match later {
        0 => format!("{} due.", counted(due, "event")),
        _ => format!("{} due, {} scheduled for later.", counted(due, "event"), grouped(later)),
    }
}

/// Small batches, so that both have work; larger ones for a large file.
fn batches_for(due: usize) -> Claim {
    Claim { batch_size: i32::try_from((due / 20).clamp(1, 100)).unwrap_or(1), ..Claim::ONE }
}

fn describe(delivered: &Delivered) -> String {
    format!(
        "{} in {}, {} bytes of payload",
        counted(delivered.ids.len(), "event"),
        counted(delivered.batches, "claim"),
        grouped(delivered.bytes)
    )
}

/// Events of the file that are not due yet are not for this scene.
fn note_scheduled(shop: &mut Client, ledger: &mut Ledger, now: &str) -> Result<(), DemoError> {
    let rows =
        shop.query("SELECT id FROM outbox_event WHERE available_at > $1::text::timestamptz", &[&now])?;
    for row in rows {
        ledger.set(row.try_get(0)?, Fate::Scheduled);
    }
    Ok(())
}

fn drain(
    say: Narrator,
    a: &mut Worker,
    b: &mut Worker,
    wanted: Claim,
) -> Result<(Delivered, Delivered), DemoError> {
    let both_hold_a_batch = Barrier::new(2);
    thread::scope(|scope| {
        let a = scope.spawn(|| work(say, a, wanted, &both_hold_a_batch));
        let b = scope.spawn(|| work(say, b, wanted, &both_hold_a_batch));
        let (a, b) = (joined(a), joined(b));
        Ok((a?, b?))
    })
}

fn joined(worker: ScopedJoinHandle<'_, Result<Delivered, DemoError>>) -> Result<Delivered, DemoError> {
    worker
        .join()
        .unwrap_or_else(|_| Err(check::off("a worker's thread", "it ends by itself", "it broke off")))
}

/// One worker's whole life: claim, deliver, complete, until nothing is due.
fn work(
    say: Narrator,
    worker: &mut Worker,
    wanted: Claim,
    both_hold_a_batch: &Barrier,
) -> Result<Delivered, DemoError> {
    let mut delivered = Delivered::default();
    let mut progress = Progress::new(say);
    // Each waits with its first batch in hand for the other's, come what may:
    // so the claims overlap in time, and a failed one leaves nobody waiting.
    let first = worker.claim(wanted);
    both_hold_a_batch.wait();
    let mut batch = first?;
    while !batch.is_empty() {
        check_batch_size(&batch, wanted)?;
        delivered.hand_over(&batch);
        worker.complete_all(&batch)?;
        progress.tick(|| format!("{}: {} so far", worker.name, counted(delivered.ids.len(), "event")));
        batch = worker.claim(wanted)?;
    }
    Ok(delivered)
}

fn check_batch_size(batch: &[Claimed], wanted: Claim) -> Result<(), DemoError> {
    let within = usize::try_from(wanted.batch_size).is_ok_and(|size| batch.len() <= size);
    check::holds("the size of a batch", "no more than was asked for", batch.len(), within)
}

fn check_both_worked(a: &Delivered, b: &Delivered) -> Result<(), DemoError> {
    let found = (a.ids.len(), b.ids.len());
    check::holds("events a worker", "some for both", found, found.0 > 0 && found.1 > 0)
}

/// Every event that was due went out once; a scheduled one may have fallen due meanwhile.
fn check_deliveries(ledger: &mut Ledger, a: &Delivered, b: &Delivered) -> Result<(), DemoError> {
    let mut times: HashMap<Uuid, usize> = HashMap::new();
    for id in a.ids.iter().chain(&b.ids) {
        *times.entry(*id).or_default() += 1;
    }
    for (id, times) in &times {
        check::equal(&format!("deliveries of event {id}"), 1, *times)?;
        let known = matches!(ledger.fate(*id), Some(Fate::Due | Fate::Scheduled));
        check::holds("a delivered event", "one that was enqueued and not settled", id, known)?;
    }
    let delivered: HashSet<Uuid> = times.into_keys().collect();
    if let Some(id) = ledger.of_fate(Fate::Due).find(|id| !delivered.contains(id)) {
        return Err(check::off(&format!("deliveries of event {id}"), "1", "0"));
    }
    for id in delivered {
        ledger.set(id, Fate::Completed);
    }
    Ok(())
}

fn check_completed(stage: &mut Stage) -> Result<(), DemoError> {
    let expected = stage.ledger.count(Fate::Completed);
    let found = count(&mut stage.shop, "outbox_event WHERE status = 'completed' AND attempt_count = 1")?;
    let found = usize::try_from(found).unwrap_or(0);
    check::equal("completed events with one attempt", expected, found)?;
    stage
        .narrator
        .checked(&format!("the table says so too: {} completed at the first attempt", grouped(found)));
    Ok(())
}
