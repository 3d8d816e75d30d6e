//! A key that was used for one thing cannot be used for another.

use uuid::Uuid;

use crate::check;
use crate::database::count;
use crate::error::DemoError;
use crate::ledger::Fate;
use crate::outbox;
use crate::refusal::expect_refusal;
use crate::scenes::duplicate::payment;
use crate::stage::Stage;

pub fn play(stage: &mut Stage) -> Result<(), DemoError> {
    let say = stage.narrator;
    let payment_id = Uuid::new_v4();
    let key = format!("capture/{payment_id}");
    let honest = payment(payment_id, &key, r#"{"amount": 20.00, "currency": "EUR"}"#);
    let other = payment(payment_id, &key, r#"{"amount": 2000, "currency": "EUR"}"#);
    say.say("A payment of 20.00 is enqueued, then one of 2000 under the same key.");
    let first = outbox::enqueue(&mut stage.shop, outbox::ENQUEUE, &honest)?;
    stage.ledger.enqueued(first, Fate::Due);
    let before = count(&mut stage.shop, "outbox_event")?;
    let outcome = outbox::enqueue(&mut stage.shop, outbox::ENQUEUE, &other);
    let refusal = expect_refusal("the second payment under one key", "23505", outcome)?;
    say.refusal(&refusal);
    let after = count(&mut stage.shop, "outbox_event")?;
    check::equal("events after the conflict", before, after)?;
    say.checked("SQLSTATE 23505, as for any unique key; nothing was written");
    Ok(())
}
