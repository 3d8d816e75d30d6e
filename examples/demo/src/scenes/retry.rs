//! A failure puts the event back with a time for its retry.

use std::time::Duration;

use crate::check;
use crate::claiming::claim_known;
use crate::database::{self, Shown};
use crate::error::DemoError;
use crate::ledger::Fate;
use crate::narrate::{Narrator, duration};
use crate::outbox::{Claim, Failure};
use crate::stage::Stage;

/// The first default backoff is about a second; longer than this nobody would wait here.
const LONGEST_BACKOFF: f64 = 60.0;
const DAY: f64 = 86_400.0;

pub fn play(stage: &mut Stage) -> Result<(), DemoError> {
    retry_after_the_default_backoff(stage)?;
    retry_tomorrow(stage)
}

fn retry_after_the_default_backoff(stage: &mut Stage) -> Result<(), DemoError> {
    let say = stage.narrator;
    let id = stage.enqueue_due("parcel.handed_over", r#"{"parcel": "RP-3", "carrier": "見本便"}"#)?;
    let book = (say, &mut stage.ledger);
    let first = claim_known(&mut stage.worker_a, book, id, Claim::ONE, Duration::ZERO)?;
    say.say("The carrier's service answers 503. worker-a reports it and leaves the time to us:");
    say.sql("SELECT outbox_fail(id, 'worker-a', 'http_503');");
    let failure = Failure { error_code: "http_503", max_attempts: None, retry_in: None };
    let status = stage.worker_a.fail(id, &failure)?;
    check::equal("the status that outbox_fail returns", "pending", status.as_str())?;
    let shown = database::show(&mut stage.shop, id)?;
    check_waiting(&shown, "http_503", 0.0..=LONGEST_BACKOFF)?;
    describe(say, &shown);
    let wait = Duration::try_from_secs_f64(shown.due_in).unwrap_or_default();
    let book = (say, &mut stage.ledger);
    let second = claim_known(&mut stage.worker_b, book, id, Claim::ONE, wait)?;
    check::equal("the attempt after the failure", first.attempt + 1, second.attempt)?;
    stage.worker_b.complete(id, Some(second.attempt))?;
    stage.ledger.set(id, Fate::Completed);
    say.checked(&format!(
        "once it was due, worker-b claimed it (attempt {}) and completed it",
        second.attempt
    ));
    Ok(())
}

fn retry_tomorrow(stage: &mut Stage) -> Result<(), DemoError> {
    let say = stage.narrator;
    let id = stage.enqueue_due("parcel.customs_declared", r#"{"parcel": "RP-4", "office": "closed"}"#)?;
    let book = (say, &mut stage.ledger);
    claim_known(&mut stage.worker_a, book, id, Claim::ONE, Duration::ZERO)?;
    say.say("The customs office is closed until tomorrow. A worker that knows the time gives it:");
    say.sql("SELECT outbox_fail(id, 'worker-a', 'office_closed', next_attempt => now() + '1 day');");
    let failure = Failure { error_code: "office_closed", max_attempts: None, retry_in: Some("1 day") };
    let status = stage.worker_a.fail(id, &failure)?;
    check::equal("the status that outbox_fail returns", "pending", status.as_str())?;
    let shown = database::show(&mut stage.shop, id)?;
    check_waiting(&shown, "office_closed", DAY - 7200.0..=DAY + 7200.0)?;
    describe(say, &shown);
    stage.ledger.set(id, Fate::Scheduled);
    say.checked("it stays in the table as pending until then");
    Ok(())
}

fn check_waiting(
    shown: &Shown,
    error_code: &str,
    due_in: std::ops::RangeInclusive<f64>,
) -> Result<(), DemoError> {
    check::equal("the status in the table", "pending", shown.status.as_str())?;
    check::equal("last_error_code", Some(error_code), shown.error_code.as_deref())?;
    let expected = format!("{} to {}", due_in.start(), due_in.end());
    check::holds("seconds until the retry", &expected, shown.due_in, due_in.contains(&shown.due_in))
}

fn describe(say: Narrator, shown: &Shown) {
    say.figure("status", &shown.status);
    say.figure("error", shown.error_code.as_deref().unwrap_or("none"));
    let wait = duration(shown.due_in);
    say.figure("retry at", format!("{} (in {wait})", shown.available_at));
}
