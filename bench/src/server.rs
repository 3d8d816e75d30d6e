//! The private server: connections, databases, and what it says of itself.

use std::fmt::Write;

use postgres::{Client, Config, NoTls};

use crate::failure::{Doing, Outcome};

/// How a session commits. With `off` it does not wait for the disk; nothing else changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Commit {
    On,
    Off,
}

impl Commit {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

pub struct Server {
    config: Config,
}

impl Server {
    pub fn new(dsn: &str) -> Outcome<Self> {
        let config = dsn.parse().doing(|| format!("reading OUTBOX_DSN {dsn:?}"))?;
        Ok(Self { config })
    }

    /// A session in a database, with settings of its own.
    pub fn connect(&self, database: &str, settings: &[(&str, &str)]) -> Outcome<Client> {
        let mut options = String::new();
        for (name, value) in settings {
            // Writing to a String cannot fail.
            let _ = write!(options, "-c {name}={value} ");
        }
        let mut config = self.config.clone();
        config.dbname(database).options(&options).application_name("outbox_bench");
        config.connect(NoTls).doing(|| format!("connecting to database {database}"))
    }

    /// Drops and makes a database.
    pub fn create_database(&self, database: &str, template: &str) -> Outcome<()> {
        self.drop_database(database)?;
        self.administer(&format!("CREATE DATABASE {database} TEMPLATE {template}"))
    }

    pub fn drop_database(&self, database: &str) -> Outcome<()> {
        self.administer(&format!("DROP DATABASE IF EXISTS {database} WITH (FORCE)"))
    }

    fn administer(&self, command: &str) -> Outcome<()> {
        let mut client = self.connect("postgres", &[])?;
        client.batch_execute(command).doing(|| command.to_owned())
    }

    /// What a client that is no libpq needs to connect: socket directory, port, user.
    pub fn address(&self) -> Option<(String, u16, String)> {
        let host = match self.config.get_hosts().first()? {
            postgres::config::Host::Tcp(name) => name.clone(),
            postgres::config::Host::Unix(path) => path.display().to_string(),
        };
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        Some((host, port, self.config.get_user().unwrap_or("postgres").to_owned()))
    }

    /// One line of text that a query returns.
    pub fn ask(&self, query: &str) -> Outcome<String> {
        let row = self.connect("postgres", &[])?.query_one(query, &[]).doing(|| query.to_owned())?;
        Ok(row.try_get(0)?)
    }
}
