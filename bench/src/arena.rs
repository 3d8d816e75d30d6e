//! Arenas: a database for one system in one experiment, gone when it ends. What one system leaves behind
//! (dead rows, a held snapshot) is no burden to another.

use std::sync::Arc;

use postgres::Client;

use crate::failure::{Doing, Failure, Outcome};
use crate::server::{Commit, Server};
use crate::system::{System, Worker};

/// What a fill makes; each is a file of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fill {
    Waiting,
    History,
    Leased,
    Scheduled,
    /// Waiting, and not for the workers of this system.
    Others,
    /// Of so many aggregates.
    Aggregates,
    /// Of so many aggregates, whose first events are leased.
    Blocked,
}

impl Fill {
    fn file(self) -> &'static str {
        match self {
            Self::Waiting => "fill.sql",
            Self::History => "history.sql",
            Self::Leased => "leased.sql",
            Self::Scheduled => "scheduled.sql",
            Self::Others => "others.sql",
            Self::Aggregates => "aggregates.sql",
            Self::Blocked => "blocked.sql",
        }
    }
}

pub struct Arena {
    pub system: Arc<System>,
    server: Arc<Server>,
    database: String,
    commit: Commit,
    /// For fills, maintenance and looking.
    pub control: Client,
}

impl Arena {
    pub fn open(
        server: &Arc<Server>,
        system: &Arc<System>,
        template: &str,
        number: u32,
        commit: Commit,
    ) -> Outcome<Self> {
        let database = format!("arena_{number}_{}", system.name);
        server.create_database(&database, template)?;
        // Fills are not what is measured, so nothing in them waits, for the disk or for triggers.
        let control = [("synchronous_commit", "off"), ("session_replication_role", "replica")];
        let control = server.connect(&database, &control)?;
        Ok(Self { system: Arc::clone(system), server: Arc::clone(server), database, commit, control })
    }

    /// A session as the system's users would have it.
    pub fn connect(&self) -> Outcome<Client> {
        let mut settings = vec![("synchronous_commit", self.commit.as_str())];
        settings.extend(self.system.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        self.server.connect(&self.database, &settings)
    }

    pub fn worker(&self, name: &str, batch: i32) -> Outcome<Box<dyn Worker>> {
        self.system.worker(self.connect()?, name, batch)
    }

    /// Adds events in bulk. A system with ticks gets one after each `batch`.
    pub fn fill(&mut self, kind: Fill, events: u64, payload: &str, batch: i32) -> Outcome<()> {
        let sql = self.system.sql(kind.file())?;
        let tick = self.system.optional_sql("tick.sql")?;
        let chunk = if tick.is_some() { batch as u64 } else { MOST_IN_A_FILL };
        let doing = || format!("filling {}", self.system.title);
        let statement = self.control.prepare(&sql).doing(doing)?;
        let mut left = events;
        while left > 0 {
            let now = left.min(chunk);
            self.control.execute(&statement, &[&(now as i64), &payload]).doing(doing)?;
            if let Some(tick) = &tick {
                self.control.batch_execute(tick).doing(doing)?;
            }
            left -= now;
        }
        Ok(())
    }

    /// Adds events of so many aggregates, in one statement.
    pub fn fill_aggregates(
        &mut self,
        kind: Fill,
        events: u64,
        payload: &str,
        aggregates: u64,
    ) -> Outcome<()> {
        let sql = self.system.sql(kind.file())?;
        let added = self.control.execute(&sql, &[&(events as i64), &payload, &(aggregates as i64)]);
        added.doing(|| format!("filling {}", self.system.title))?;
        Ok(())
    }

    /// Deletes all events, where the system can.
    pub fn empty(&mut self) -> Outcome<()> {
        self.maintain("empty.sql")
    }

    /// The system's maintenance, as its documentation wants it.
    pub fn vacuum(&mut self) -> Outcome<()> {
        self.maintain("vacuum.sql")
    }

    pub fn tick(&mut self) -> Outcome<()> {
        self.maintain("tick.sql")
    }

    /// Statement by statement: VACUUM will not run among others.
    fn maintain(&mut self, file: &str) -> Outcome<()> {
        let sql = self.system.optional_sql(file)?.unwrap_or_default();
        for statement in sql.split(";\n").filter(|statement| !statement.trim().is_empty()) {
            self.control
                .batch_execute(statement)
                .doing(|| format!("{statement:?} of {}", self.system.title))?;
        }
        Ok(())
    }
}

/// A transaction that adds millions of rows at once would keep checkpoints and vacuum waiting.
const MOST_IN_A_FILL: u64 = 100_000;

/// Does the same in the arenas of all at once: filling is a wait for both cores and the disk, not a measurement.
pub fn side_by_side<T: Send>(all: &mut [T], work: impl Fn(&mut T) -> Outcome<()> + Sync) -> Outcome<()> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = all.iter_mut().map(|one| scope.spawn(move || work(one))).collect();
        for thread in threads {
            thread.join().map_err(|_| Failure::new("a fill panicked"))??;
        }
        Ok(())
    })
}

impl Drop for Arena {
    fn drop(&mut self) {
        // The whole server goes when the bench ends, so what cannot be dropped now is no loss. Emptied first, since
        // dropping a database makes a checkpoint, which would write all that is in memory.
        let _ = self.empty();
        let _ = self.server.drop_database(&self.database);
    }
}
