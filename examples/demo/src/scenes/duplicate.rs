//! The same event enqueued twice is one event.

use uuid::Uuid;

use crate::check;
use crate::database::count;
use crate::error::DemoError;
use crate::ledger::Fate;
use crate::outbox::{self, NewEvent};
use crate::stage::Stage;

const FIRST: &str = r#"{"amount": 1, "currency": "EUR", "lines": [1, 100]}"#;
const AGAIN: &str = r#"{"lines":[1.0,1e2],"currency":"EUR","amount":1.00}"#;

/// A payment that this scene and the next enqueue under one key.
pub fn payment<'a>(id: Uuid, key: &'a str, payload: &'a str) -> NewEvent<'a> {
    NewEvent {
        tenant_id: None,
        aggregate_type: "payment",
        aggregate_id: id,
        event_type: "payment.captured",
        deduplication_key: Some(key),
        payload,
        available_at: None,
        headers: None,
    }
}

pub fn play(stage: &mut Stage) -> Result<(), DemoError> {
    let say = stage.narrator;
    let payment_id = Uuid::new_v4();
    let key = format!("capture/{payment_id}");
    say.say("A payment provider calls us back, gets no answer in time, and calls again.");
    say.say("Its second text says the same in other words; the deduplication key is the same:");
    say.sql(FIRST);
    say.sql(AGAIN);
    let before = count(&mut stage.shop, "outbox_event")?;
    let first = outbox::enqueue(&mut stage.shop, outbox::ENQUEUE, &payment(payment_id, &key, FIRST))?;
    let again = outbox::enqueue(&mut stage.shop, outbox::ENQUEUE, &payment(payment_id, &key, AGAIN))?;
    stage.ledger.enqueued(first, Fate::Due);
    check::equal("the id that the second call returns", first, again)?;
    let after = count(&mut stage.shop, "outbox_event")?;
    check::equal("events after both calls", before + 1, after)?;
    say.checked(&format!("both calls return {first}, and there is one event"));
    Ok(())
}
