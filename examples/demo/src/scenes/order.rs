//! A trigger on a business table enqueues in the business transaction.

use uuid::Uuid;

use crate::check;
use crate::database::{self, count};
use crate::error::DemoError;
use crate::ledger::Fate;
use crate::stage::Stage;

const ORDERS: &str = "\
CREATE TABLE orders (
    id       uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    customer text NOT NULL,
    total    numeric(12, 2) NOT NULL
)";

const TRIGGER: &str = "\
CREATE FUNCTION enqueue_order_placed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM outbox_enqueue(
        aggregate_type    => 'order',
        aggregate_id      => NEW.id,
        event_type        => 'order.placed',
        deduplication_key => 'order.placed/' || NEW.id,
        payload           => to_jsonb(NEW));
    RETURN NULL;
END $$;
CREATE TRIGGER enqueue_order_placed AFTER INSERT ON orders
    FOR EACH ROW EXECUTE FUNCTION enqueue_order_placed()";

const INSERT: &str = "INSERT INTO orders (customer, total) VALUES ('Café Olé', 129.90)";

/// The order and its event, with the transaction that wrote each.
const TOGETHER: &str = "\
SELECT e.id, e.status::text, e.payload ->> 'total', o.xmin::text, e.xmin::text
  FROM orders o JOIN outbox_event e ON e.aggregate_id = o.id";

pub fn play(stage: &mut Stage) -> Result<(), DemoError> {
    let say = stage.narrator;
    say.say("A shop has a table of orders. A trigger on it enqueues an event for each new one:");
    say.sql(TRIGGER);
    stage.shop.batch_execute(ORDERS)?;
    stage.shop.batch_execute(TRIGGER)?;
    say.say("Somebody orders:");
    say.sql(INSERT);
    insert_and_watch(stage)?;
    let id = check_the_pair(stage)?;
    stage.ledger.enqueued(id, Fate::Due);
    Ok(())
}

/// Nobody sees the order or the event before the commit, and everybody sees both after it.
fn insert_and_watch(stage: &mut Stage) -> Result<(), DemoError> {
    let mut neighbour = database::connect(&stage.server)?;
    let mut transaction = stage.shop.transaction()?;
    transaction.batch_execute(INSERT)?;
    let before = (count(&mut neighbour, "orders")?, count(&mut neighbour, "outbox_event")?);
    check::equal("orders and events seen by others before the commit", (0, 0), before)?;
    stage.narrator.checked("before the commit another session sees no order and no event");
    transaction.commit()?;
    let after = (count(&mut neighbour, "orders")?, count(&mut neighbour, "outbox_event")?);
    check::equal("orders and events seen by others after the commit", (1, 1), after)?;
    stage.narrator.checked("after the commit it sees one order and one event");
    Ok(())
}

fn check_the_pair(stage: &mut Stage) -> Result<Uuid, DemoError> {
    let row = stage.shop.query_one(TOGETHER, &[])?;
    let (id, status, total): (Uuid, String, String) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let (order_xid, event_xid): (String, String) = (row.try_get(3)?, row.try_get(4)?);
    check::equal("the new event's status", "pending", status.as_str())?;
    check::equal("the total in the event's payload", "129.90", total.as_str())?;
    check::equal("the transaction that wrote the event", &order_xid, &event_xid)?;
    stage.narrator.checked(&format!("transaction {order_xid} wrote both; event {id} is pending"));
    Ok(id)
}
