//! The closing count, checked event by event against the demo's own book.

use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;

use crate::error::DemoError;
use crate::narrate::grouped;
use crate::stage::Stage;

pub const WORTH_TRYING: [&str; 4] = [
    "SELECT event_type, status, count(*) FROM outbox_event GROUP BY 1, 2 ORDER BY 1, 2;",
    "SELECT event_type, attempt_count, last_error_code, dead_at FROM outbox_event WHERE status = 'dead';",
    "INSERT INTO orders (customer, total) VALUES ('me', 9.99);",
    "SELECT id, event_type, payload FROM outbox_claim_batch('me', 10);",
];

pub fn play(stage: &mut Stage) -> Result<(), DemoError> {
    let mut table: HashMap<Uuid, String> = HashMap::new();
    for row in stage.shop.query("SELECT id, status::text FROM outbox_event", &[])? {
        table.insert(row.try_get(0)?, row.try_get(1)?);
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for status in table.values() {
        *counts.entry(status).or_default() += 1;
    }
    for (status, count) in &counts {
        stage.narrator.figure(status, format!("{:>9}", grouped(*count)));
    }
    stage.ledger.compare(&table)?;
    stage.narrator.checked(&format!(
        "all {} ended as this story says; none is missing, none is left in a lease",
        grouped(table.len())
    ));
    Ok(())
}
