//! Two ways to die: a failure too many, and a lease that ran out too often.

use std::time::Duration;

use uuid::Uuid;

use crate::check;
use crate::claiming::{claim_known, claim_nothing};
use crate::database;
use crate::error::DemoError;
use crate::ledger::Fate;
use crate::outbox::{Claim, Failure};
use crate::scenes::{SHORT_LEASE, outlive_the_lease};
use crate::stage::Stage;

pub fn play(stage: &mut Stage) -> Result<(), DemoError> {
    fail_for_good(stage)?;
    kill_its_worker(stage)
}

fn fail_for_good(stage: &mut Stage) -> Result<(), DemoError> {
    let say = stage.narrator;
    let id = stage.enqueue_due("parcel.addressed", r#"{"parcel": "RP-5", "street": null}"#)?;
    let book = (say, &mut stage.ledger);
    claim_known(&mut stage.worker_a, book, id, Claim::ONE, Duration::ZERO)?;
    say.say("A parcel without an address: one attempt is enough to know.");
    say.sql("SELECT outbox_fail(id, 'worker-a', 'no_address', max_attempts => 1);");
    let failure = Failure { error_code: "no_address", max_attempts: Some(1), retry_in: None };
    let status = stage.worker_a.fail(id, &failure)?;
    check::equal("the status that outbox_fail returns", "dead", status.as_str())?;
    check_dead(stage, id, "no_address")
}

/// Such a payload never reaches `outbox_fail`; the claim itself must put an end to it.
fn kill_its_worker(stage: &mut Stage) -> Result<(), DemoError> {
    let say = stage.narrator;
    let id = stage.enqueue_due("parcel.rendered", r#"{"parcel": "RP-6", "label": "\u2620"}"#)?;
    let book = (say, &mut stage.ledger);
    claim_known(&mut stage.worker_a, book, id, SHORT_LEASE, Duration::ZERO)?;
    say.say("A label that kills the worker which renders it: nobody is left to report the failure.");
    say.say("The lease runs out, and the next claim that allows one attempt buries the event:");
    say.sql("SELECT * FROM outbox_claim_batch('worker-b', 1, '50 milliseconds', max_attempts => 1);");
    outlive_the_lease();
    let book = (say, &mut stage.ledger);
    let wanted = Claim { max_attempts: Some(1), ..SHORT_LEASE };
    claim_nothing(&mut stage.worker_b, book, wanted)?;
    check_dead(stage, id, "lease_expired")
}

fn check_dead(stage: &mut Stage, id: Uuid, error_code: &str) -> Result<(), DemoError> {
    let shown = database::show(&mut stage.shop, id)?;
    check::equal("the status in the table", "dead", shown.status.as_str())?;
    check::equal("last_error_code", Some(error_code), shown.error_code.as_deref())?;
    stage.ledger.set(id, Fate::Dead);
    stage.narrator.checked(&format!(
        "dead after attempt {}, last_error_code {error_code}; it stays for people to look at",
        shown.attempts
    ));
    Ok(())
}
