//! The demo's database, made afresh for each telling, and what it is asked.

use postgres::{Client, Config, GenericClient, NoTls};
use uuid::Uuid;

use crate::error::DemoError;

pub const NAME: &str = "outbox_demo";

/// The locale is one that every server has, so that any text can be stored anywhere.
const CREATE: &str = "CREATE DATABASE outbox_demo TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'";

pub fn create(server: &Config) -> Result<(), DemoError> {
    let mut config = server.clone();
    let mut client = config.dbname("postgres").connect(NoTls)?;
    client.batch_execute("DROP DATABASE IF EXISTS outbox_demo WITH (FORCE)")?;
    client.batch_execute(CREATE)?;
    Ok(())
}

pub fn connect(server: &Config) -> Result<Client, DemoError> {
    let mut config = server.clone();
    Ok(config.dbname(NAME).connect(NoTls)?)
}

/// "PostgreSQL 15.8 with outbox_ext 0.1.0".
pub fn versions(client: &mut Client) -> Result<String, DemoError> {
    let row = client.query_one(
        "SELECT split_part(current_setting('server_version'), ' ', 1), extversion
           FROM pg_extension WHERE extname = 'outbox_ext'",
        &[],
    )?;
    let (server, extension): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    Ok(format!("PostgreSQL {server} with outbox_ext {extension}"))
}

pub fn count(client: &mut impl GenericClient, table: &str) -> Result<i64, DemoError> {
    let row = client.query_one(&format!("SELECT count(*) FROM {table}"), &[])?;
    Ok(row.try_get(0)?)
}

/// The server's clock, as text that it reads back exactly.
pub fn clock(client: &mut Client) -> Result<String, DemoError> {
    Ok(client.query_one("SELECT clock_timestamp()::text", &[])?.try_get(0)?)
}

/// An event as the table shows it.
#[derive(Debug)]
pub struct Shown {
    pub status: String,
    pub attempts: i32,
    pub error_code: Option<String>,
    pub available_at: String,
    /// Seconds from `updated_at` to `available_at`.
    pub due_in: f64,
}

pub fn show(client: &mut Client, id: Uuid) -> Result<Shown, DemoError> {
    let row = client.query_one(
        "SELECT status::text, attempt_count, last_error_code::text,
                to_char(available_at, 'YYYY-MM-DD HH24:MI:SS.MS TZ'),
                extract(epoch FROM available_at - updated_at)::float8
           FROM outbox_event WHERE id = $1",
        &[&id],
    )?;
    Ok(Shown {
        status: row.try_get(0)?,
        attempts: row.try_get(1)?,
        error_code: row.try_get(2)?,
        available_at: row.try_get(3)?,
        due_in: row.try_get(4)?,
    })
}
