//! Workers of systems that hand out what came between two ticks, and settle it as a whole.

use postgres::{Client, Statement};

use super::{System, Worker};
use crate::failure::{Doing, Outcome};

pub struct TickWorker {
    client: Client,
    next: Statement,
    claim: Statement,
    complete: Statement,
    batch: Option<i64>,
}

impl TickWorker {
    pub fn new(system: &System, mut client: Client) -> Outcome<Self> {
        let mut prepare = |file| {
            let sql = system.sql(file)?;
            client.prepare(&sql).doing(|| format!("preparing {file} of {}", system.name))
        };
        let (next, claim, complete) = (prepare("next.sql")?, prepare("claim.sql")?, prepare("complete.sql")?);
        Ok(Self { client, next, claim, complete, batch: None })
    }
}

impl Worker for TickWorker {
    /// Batches in which nothing came are settled on the way.
    fn claim(&mut self) -> Outcome<u64> {
        loop {
            let row = self.client.query_one(&self.next, &[]).doing(|| "asking for a batch".into())?;
            self.batch = row.try_get(0)?;
            let Some(batch) = self.batch else { return Ok(0) };
            let rows = self.client.query(&self.claim, &[&batch]).doing(|| "reading a batch".into())?;
            if !rows.is_empty() {
                return Ok(rows.len() as u64);
            }
            self.complete()?;
        }
    }

    fn complete(&mut self) -> Outcome<()> {
        if let Some(batch) = self.batch.take() {
            self.client.query_one(&self.complete, &[&batch]).doing(|| "finishing a batch".into())?;
        }
        Ok(())
    }

    fn session(&mut self) -> &mut Client {
        &mut self.client
    }
}
