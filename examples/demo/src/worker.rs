//! A worker: a name and a session of its own.

use postgres::{Client, Config, Statement};
use uuid::Uuid;

use crate::database;
use crate::error::DemoError;
use crate::outbox::{self, Claim, Claimed, Failure};

pub struct Worker {
    pub name: &'static str,
    client: Client,
    claim: Statement,
    complete: Statement,
}

impl Worker {
    pub fn start(server: &Config, name: &'static str) -> Result<Self, DemoError> {
        let mut client = database::connect(server)?;
        let claim = client.prepare(outbox::CLAIM)?;
        let complete = client.prepare(outbox::COMPLETE)?;
        Ok(Self { name, client, claim, complete })
    }

    pub fn claim(&mut self, wanted: Claim) -> Result<Vec<Claimed>, postgres::Error> {
        outbox::claim(&mut self.client, &self.claim, self.name, wanted)
    }

    pub fn complete(&mut self, id: Uuid, attempt: Option<i32>) -> Result<(), postgres::Error> {
        outbox::complete(&mut self.client, &self.complete, id, self.name, attempt)
    }

    /// Completes a batch in one transaction.
    pub fn complete_all(&mut self, batch: &[Claimed]) -> Result<(), postgres::Error> {
        let mut transaction = self.client.transaction()?;
        for event in batch {
            outbox::complete(&mut transaction, &self.complete, event.id, self.name, Some(event.attempt))?;
        }
        transaction.commit()
    }

    pub fn fail(&mut self, id: Uuid, failure: &Failure<'_>) -> Result<String, postgres::Error> {
        outbox::fail(&mut self.client, id, self.name, failure)
    }
}
