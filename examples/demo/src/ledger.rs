//! The demo's own book of what was enqueued and how each event should end.
//!
//! The server's table is checked against it: an event that is missing, or that
//! ended otherwise, is found.

use std::collections::HashMap;

use uuid::Uuid;

use crate::check;
use crate::error::DemoError;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Enqueued and to be delivered now.
    Due,
    /// Enqueued for a later time.
    Scheduled,
    Completed,
    Dead,
}

impl Fate {
    pub fn status(self) -> &'static str {
        match self {
            Self::Due | Self::Scheduled => "pending",
            Self::Completed => "completed",
            Self::Dead => "dead",
        }
    }
}

#[derive(Default)]
pub struct Ledger {
    fates: HashMap<Uuid, Fate>,
}

impl Ledger {
    /// Notes an event that was enqueued; false when it was known before.
    pub fn enqueued(&mut self, id: Uuid, fate: Fate) -> bool {
        let known = self.fates.contains_key(&id);
        if !known {
            self.fates.insert(id, fate);
        }
        !known
    }

    pub fn set(&mut self, id: Uuid, fate: Fate) {
        self.fates.insert(id, fate);
    }

    pub fn fate(&self, id: Uuid) -> Option<Fate> {
        self.fates.get(&id).copied()
    }

    pub fn is_scheduled(&self, id: Uuid) -> bool {
        self.fate(id) == Some(Fate::Scheduled)
    }

    pub fn count(&self, fate: Fate) -> usize {
        self.fates.values().filter(|f| **f == fate).count()
    }

    pub fn of_fate(&self, fate: Fate) -> impl Iterator<Item = Uuid> + '_ {
        self.fates.iter().filter(move |(_, f)| **f == fate).map(|(id, _)| *id)
    }

    /// Compares the table, given as (id, status), with the book.
    pub fn compare(&self, table: &HashMap<Uuid, String>) -> Result<(), DemoError> {
        for (id, fate) in &self.fates {
            let found = table.get(id).map_or("no such event", String::as_str);
            check::equal(&format!("the status of event {id}"), fate.status(), found)?;
        }
        match table.keys().find(|id| !self.fates.contains_key(id)) {
            None => Ok(()),
            Some(id) => Err(check::off(
                "the events in the table",
                "only those that were enqueued here",
                format!("event {id} as well"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_must_hold_what_the_book_holds() {
        let (first, second) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut ledger = Ledger::default();
        assert!(ledger.enqueued(first, Fate::Due));
        assert!(!ledger.enqueued(first, Fate::Scheduled));
        let mut table = HashMap::from([(first, "pending".to_owned())]);
        assert!(ledger.compare(&table).is_ok());
        ledger.set(first, Fate::Completed);
        assert!(ledger.compare(&table).is_err());
        table.insert(first, "completed".to_owned());
        table.insert(second, "pending".to_owned());
        assert!(ledger.compare(&table).is_err());
        table.remove(&second);
        table.remove(&first);
        assert!(ledger.compare(&table).is_err());
    }
}
