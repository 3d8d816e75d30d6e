//! Somebody who keeps a transaction open, so that nothing that dies can be cleaned away.

use postgres::Client;
use serde::Deserialize;

use crate::failure::{Doing, Outcome};

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Holder {
    /// A REPEATABLE READ snapshot.
    Snapshot,
    /// A transaction that has written.
    Xid,
}

impl Holder {
    pub fn name(self) -> &'static str {
        match self {
            Self::Snapshot => "snapshot",
            Self::Xid => "xid",
        }
    }

    /// Held for as long as the session lives.
    pub fn begin(self, mut session: Client) -> Outcome<Client> {
        let sql = match self {
            Self::Snapshot => "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class",
            Self::Xid => "BEGIN; SELECT pg_current_xact_id()",
        };
        session.batch_execute(sql).doing(|| "opening the transaction that is held".into())?;
        Ok(session)
    }
}
