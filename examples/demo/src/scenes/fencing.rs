//! The name alone does not tell two lives of one worker apart; the attempt does.

use std::time::Duration;

use crate::check;
use crate::claiming::claim_known;
use crate::database;
use crate::error::DemoError;
use crate::ledger::Fate;
use crate::refusal::expect_refusal;
use crate::scenes::{SHORT_LEASE, outlive_the_lease};
use crate::stage::Stage;
use crate::worker::Worker;

pub fn play(stage: &mut Stage) -> Result<(), DemoError> {
    let say = stage.narrator;
    let id = stage.enqueue_due("parcel.labelled", r#"{"parcel": "RP-2", "label": "A6"}"#)?;
    let book = (say, &mut stage.ledger);
    let old = claim_known(&mut stage.worker_a, book, id, SHORT_LEASE, Duration::ZERO)?;
    say.say(&format!("worker-a claims a parcel (attempt {}) and is cut off.", old.attempt));
    outlive_the_lease();
    let mut reborn = Worker::start(&stage.server, stage.worker_a.name)?;
    let book = (say, &mut stage.ledger);
    let new = claim_known(&mut reborn, book, id, SHORT_LEASE, Duration::ZERO)?;
    check::equal("the second life's attempt", old.attempt + 1, new.attempt)?;
    say.say(&format!("A new process named worker-a claims it again (attempt {}).", new.attempt));
    say.say("Now the old process gets through. The name fits, so the attempt must tell:");
    say.sql(&format!("SELECT outbox_complete(id, 'worker-a', attempt => {});", old.attempt));
    let outcome = stage.worker_a.complete(id, Some(old.attempt));
    say.refusal(&expect_refusal("the first attempt's late completion", "55000", outcome)?);
    reborn.complete(id, Some(new.attempt))?;
    let shown = database::show(&mut stage.shop, id)?;
    check::equal("the status in the end", "completed", shown.status.as_str())?;
    check::equal("the attempts in the end", new.attempt, shown.attempts)?;
    stage.ledger.set(id, Fate::Completed);
    say.checked(&format!("refused; attempt {} completed it", new.attempt));
    Ok(())
}
