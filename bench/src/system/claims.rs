//! Workers of systems that hand out events one by one: a claim returns handles, and completing takes them.

use postgres::types::{FromSqlOwned, ToSql};
use postgres::{Client, Statement};

use super::{System, Worker};
use crate::failure::{Doing, Failure, Outcome};

pub struct ClaimWorker<H> {
    client: Client,
    claim: Statement,
    complete: Statement,
    name: String,
    batch: i32,
    handles: Vec<H>,
    attempts: Option<Vec<i32>>,
}

impl<H: FromSqlOwned + ToSql + Sync + Send> ClaimWorker<H> {
    pub fn new(system: &System, mut client: Client, name: &str, batch: i32) -> Outcome<Self> {
        let mut prepare = |file| {
            let sql = system.sql(file)?;
            client.prepare(&sql).doing(|| format!("preparing {file} of {}", system.name))
        };
        let (claim, complete) = (prepare("claim.sql")?, prepare("complete.sql")?);
        let attempts = system.attempts.then(Vec::new);
        Ok(Self { client, claim, complete, name: name.into(), batch, handles: Vec::new(), attempts })
    }
}

impl<H: FromSqlOwned + ToSql + Sync + Send> Worker for ClaimWorker<H> {
    fn claim(&mut self) -> Outcome<u64> {
        let rows = self.client.query(&self.claim, &[&self.name, &self.batch]).doing(|| "claiming".into())?;
        self.handles = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        if let Some(attempts) = &mut self.attempts {
            *attempts = rows.iter().map(|row| row.try_get(1)).collect::<Result<_, _>>()?;
        }
        Ok(rows.len() as u64)
    }

    fn complete(&mut self) -> Outcome<()> {
        let mut parameters: Vec<&(dyn ToSql + Sync)> = vec![&self.handles, &self.name];
        if let Some(attempts) = &self.attempts {
            parameters.push(attempts);
        }
        let row = self.client.query_one(&self.complete, &parameters).doing(|| "completing".into())?;
        let (completed, taken) = (row.try_get::<_, i64>(0)?, self.handles.len() as i64);
        if completed == taken {
            Ok(())
        } else {
            Err(Failure::new(format!("{completed} of {taken} events could be completed")))
        }
    }

    fn session(&mut self) -> &mut Client {
        &mut self.client
    }
}
