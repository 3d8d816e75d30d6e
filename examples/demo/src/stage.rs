//! What every scene may use.

use postgres::{Client, Config};
use uuid::Uuid;

use crate::database;
use crate::error::DemoError;
use crate::events::EventsFile;
use crate::ledger::{Fate, Ledger};
use crate::narrate::Narrator;
use crate::outbox::{self, NewEvent};
use crate::worker::Worker;

pub struct Stage {
    pub narrator: Narrator,
    pub server: Config,
    pub file: EventsFile,
    pub ledger: Ledger,
    /// The business's session.
    pub shop: Client,
    pub worker_a: Worker,
    pub worker_b: Worker,
}

impl Stage {
    /// Makes the database and the extension, and lets everybody connect.
    pub fn set(narrator: Narrator, server: &Config, file: EventsFile) -> Result<Self, DemoError> {
        database::create(server)?;
        let mut shop = database::connect(server)?;
        shop.batch_execute("CREATE EXTENSION outbox_ext")?;
        Ok(Self {
            narrator,
            server: server.clone(),
            file,
            ledger: Ledger::default(),
            worker_a: Worker::start(server, "worker-a")?,
            worker_b: Worker::start(server, "worker-b")?,
            shop,
        })
    }

    /// Enqueues an event that a scene is about, due at once.
    pub fn enqueue_due(&mut self, event_type: &str, payload: &str) -> Result<Uuid, DemoError> {
        let event = NewEvent {
            tenant_id: None,
            aggregate_type: "parcel",
            aggregate_id: Uuid::new_v4(),
            event_type,
            deduplication_key: None,
            payload,
            available_at: None,
            headers: None,
        };
        let id = outbox::enqueue(&mut self.shop, outbox::ENQUEUE, &event)?;
        self.ledger.enqueued(id, Fate::Due);
        Ok(id)
    }
}
