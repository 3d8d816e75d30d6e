//! A system under test: a directory of SQL files, and a few words about it in `system.toml`.

mod claims;
mod ticks;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use postgres::Client;
use serde::Deserialize;

use crate::failure::{Doing, Failure, Outcome};
use crate::server::Server;

/// Takes batches of events and settles them.
pub trait Worker: Send {
    /// Takes a batch, payloads and all; how many events there were.
    fn claim(&mut self) -> Outcome<u64>;
    /// Settles what was taken last.
    fn complete(&mut self) -> Outcome<()>;
    /// Its session.
    fn session(&mut self) -> &mut Client;

    /// Moves a batch through; how many events it had.
    fn step(&mut self) -> Outcome<u64> {
        let taken = self.claim()?;
        if taken > 0 {
            self.complete()?;
        }
        Ok(taken)
    }

    /// Moves so many events through, which must be there.
    fn drain(&mut self, events: u64) -> Outcome<()> {
        let mut left = events;
        while left > 0 {
            match self.step()? {
                0 => return Err(Failure::new(format!("{left} of {events} events were not found"))),
                taken => left = left.saturating_sub(taken),
            }
        }
        Ok(())
    }
}

/// What a claim returns first, and what completing takes.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Handle {
    Uuid,
    Bigint,
    /// The number of a whole batch.
    Batch,
}

/// `system.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    title: String,
    about: String,
    /// Another system, whose files this one uses where it has none of its own.
    like: Option<String>,
    handle: Option<Handle>,
    /// Completing takes the attempts beside the handles.
    attempts: Option<bool>,
    /// The files that make it, where they are not those of the system that it is like, or `schema.sql`.
    schema: Option<Vec<String>>,
    /// An extension that the server must have to offer.
    extension: Option<String>,
    /// A variable of the environment that names a file with more of the schema.
    script: Option<String>,
    /// Settings of its sessions; without them, those of the system that it is like.
    settings: Option<BTreeMap<String, String>>,
}

pub struct System {
    pub name: String,
    pub title: String,
    pub about: String,
    pub settings: BTreeMap<String, String>,
    handle: Handle,
    attempts: bool,
    schema: Vec<PathBuf>,
    extension: Option<String>,
    script: Option<String>,
    folders: Vec<PathBuf>,
}

impl System {
    pub fn load(systems: &Path, name: &str) -> Outcome<Self> {
        let folder = systems.join(name);
        let description = describe(&folder)?;
        let model = description.like.as_ref().map(|like| Self::load(systems, like)).transpose()?;
        let model = model.as_ref();
        let handle = description.handle.or(model.map(|model| model.handle));
        let settings = description.settings.or(model.map(|model| model.settings.clone()));
        let schema: Vec<_> = description.schema.iter().flatten().map(|file| folder.join(file)).collect();
        let mut folders = vec![folder];
        folders.extend(model.iter().flat_map(|model| model.folders.iter().cloned()));
        Ok(Self {
            name: name.to_owned(),
            title: description.title,
            about: description.about,
            settings: settings.unwrap_or_default(),
            handle: handle.ok_or_else(|| Failure::new(format!("system {name} has no handle")))?,
            attempts: description.attempts.or(model.map(|model| model.attempts)).unwrap_or(false),
            schema: match model {
                _ if !schema.is_empty() => schema,
                Some(model) => model.schema.clone(),
                None => vec![folders[0].join("schema.sql")],
            },
            extension: description.extension,
            script: description.script,
            folders,
        })
    }

    /// Why it cannot be measured here, if it cannot.
    pub fn missing(&self, server: &Server) -> Outcome<Option<String>> {
        if let Some(extension) = &self.extension {
            let query =
                format!("SELECT count(*)::text FROM pg_available_extensions WHERE name = '{extension}'");
            if server.ask(&query)? == "0" {
                return Ok(Some(format!("the server has no extension {extension}")));
            }
        }
        if let Some(variable) = &self.script
            && std::env::var_os(variable).is_none()
        {
            return Ok(Some(format!("{variable} does not say where its SQL is")));
        }
        Ok(None)
    }

    /// Its version, where it says one.
    pub fn version(&self, server: &Server) -> Outcome<Option<String>> {
        if let Some(extension) = &self.extension {
            let query =
                format!("SELECT default_version FROM pg_available_extensions WHERE name = '{extension}'");
            return server.ask(&query).map(Some);
        }
        let script = self.script()?;
        let first = script.as_deref().and_then(|script| script.lines().next());
        Ok(first.and_then(|line| line.strip_prefix("-- version: ")).map(str::to_owned))
    }

    /// Makes its tables and functions.
    pub fn install(&self, client: &mut Client) -> Outcome<()> {
        if let Some(script) = self.script()? {
            client.batch_execute(&script).doing(|| format!("installing {}", self.title))?;
        }
        for file in &self.schema {
            client.batch_execute(&read(file)?).doing(|| format!("running {}", file.display()))?;
        }
        Ok(())
    }

    fn script(&self) -> Outcome<Option<String>> {
        let file = self.script.as_ref().and_then(std::env::var_os);
        file.map(|file| read(Path::new(&file))).transpose()
    }

    /// The SQL of one of its files.
    pub fn sql(&self, file: &str) -> Outcome<String> {
        let sql = self.optional_sql(file)?;
        sql.ok_or_else(|| Failure::new(format!("system {} has no file {file}", self.name)))
    }

    pub fn optional_sql(&self, file: &str) -> Outcome<Option<String>> {
        let path = self.folders.iter().map(|folder| folder.join(file)).find(|path| path.exists());
        path.map(|path| read(&path)).transpose()
    }

    /// A worker in a session of its own.
    pub fn worker(&self, client: Client, name: &str, batch: i32) -> Outcome<Box<dyn Worker>> {
        Ok(match self.handle {
            Handle::Uuid => Box::new(claims::ClaimWorker::<uuid::Uuid>::new(self, client, name, batch)?),
            Handle::Bigint => Box::new(claims::ClaimWorker::<i64>::new(self, client, name, batch)?),
            Handle::Batch => Box::new(ticks::TickWorker::new(self, client)?),
        })
    }
}

fn describe(folder: &Path) -> Outcome<Description> {
    let file = folder.join("system.toml");
    toml::from_str(&read(&file)?).doing(|| format!("reading {}", file.display()))
}

fn read(file: &Path) -> Outcome<String> {
    std::fs::read_to_string(file).doing(|| format!("reading {}", file.display()))
}
