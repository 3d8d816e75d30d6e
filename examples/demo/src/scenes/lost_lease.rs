//! A worker that comes back after its lease was taken over.

use std::time::Duration;

use crate::check;
use crate::claiming::claim_known;
use crate::database;
use crate::error::DemoError;
use crate::ledger::Fate;
use crate::refusal::expect_refusal;
use crate::scenes::{SHORT_LEASE, outlive_the_lease};
use crate::stage::Stage;

pub fn play(stage: &mut Stage) -> Result<(), DemoError> {
    let say = stage.narrator;
    let id = stage.enqueue_due("parcel.packed", r#"{"parcel": "RP-1", "weight_kg": 2.40}"#)?;
    let book = (say, &mut stage.ledger);
    let first = claim_known(&mut stage.worker_a, book, id, SHORT_LEASE, Duration::ZERO)?;
    say.say(&format!(
        "worker-a claims a parcel (attempt {}) and hangs. Leases are 50 milliseconds here.",
        first.attempt
    ));
    outlive_the_lease();
    let book = (say, &mut stage.ledger);
    let second = claim_known(&mut stage.worker_b, book, id, SHORT_LEASE, Duration::ZERO)?;
    check::equal("the attempt that worker-b holds", first.attempt + 1, second.attempt)?;
    say.say(&format!("The lease runs out, worker-b takes the parcel over (attempt {}).", second.attempt));
    say.say("worker-a wakes up and wants to complete it as if nothing had happened:");
    say.sql("SELECT outbox_complete(id, 'worker-a');");
    let outcome = stage.worker_a.complete(id, None);
    say.refusal(&expect_refusal("worker-a's late completion", "55000", outcome)?);
    let shown = database::show(&mut stage.shop, id)?;
    check::equal("the status after the refusal", "processing", shown.status.as_str())?;
    stage.worker_b.complete(id, None)?;
    let shown = database::show(&mut stage.shop, id)?;
    check::equal("the status in the end", "completed", shown.status.as_str())?;
    stage.ledger.set(id, Fate::Completed);
    say.checked("refused, and nothing changed; worker-b completed it");
    Ok(())
}
