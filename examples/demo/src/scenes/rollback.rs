//! What the business takes back was never announced.

use crate::check;
use crate::database::count;
use crate::error::DemoError;
use crate::stage::Stage;

pub fn play(stage: &mut Stage) -> Result<(), DemoError> {
    let say = stage.narrator;
    say.sql("BEGIN; INSERT INTO orders (customer, total) VALUES ('Doña Inés', 75.00); ROLLBACK;");
    let events_before = count(&mut stage.shop, "outbox_event")?;
    let mut transaction = stage.shop.transaction()?;
    transaction.batch_execute("INSERT INTO orders (customer, total) VALUES ('Doña Inés', 75.00)")?;
    let inside = count(&mut transaction, "outbox_event")?;
    check::equal("events seen inside the transaction", events_before + 1, inside)?;
    transaction.rollback()?;
    check::equal("orders after the rollback", 1, count(&mut stage.shop, "orders")?)?;
    let events_after = count(&mut stage.shop, "outbox_event")?;
    check::equal("events after the rollback", events_before, events_after)?;
    say.checked("the event was there inside the transaction, and went with the order");
    Ok(())
}
