//! A database of a test's own, so that tests can run side by side; dropped when the test ends, however it ends.

use crate::server;
use crate::sql::Sql;
use postgres::error::DbError;
use postgres::{Client, Config, NoTls};
use std::sync::Mutex;
use uuid::Uuid;

pub struct Database {
    name: String,
    roles: Mutex<Vec<String>>,
}

impl Database {
    /// One with the extension in schema `public`.
    pub fn with_extension() -> Self {
        let database = Self::bare();
        database.session().run("CREATE EXTENSION outbox_ext");
        database
    }

    /// One with the extension in a schema of that name.
    pub fn with_extension_in(schema: &str) -> Self {
        let database = Self::bare();
        let schema = quoted(schema);
        database.session().run(&format!("CREATE SCHEMA {schema}"));
        database.session().run(&format!("CREATE EXTENSION outbox_ext SCHEMA {schema}"));
        database
    }

    /// One without the extension.
    pub fn bare() -> Self {
        Self::create("")
    }

    /// One in another encoding, with the extension.
    pub fn with_encoding(encoding: &str) -> Self {
        let database = Self::create(&format!("TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'"));
        database.session().run("CREATE EXTENSION outbox_ext");
        database
    }

    /// One without the extension whose owner is a role of its own, which is no superuser.
    pub fn owned_by_a_role() -> (Self, String) {
        let database = Self::bare();
        let owner = database.role("owner");
        server::administrator().run(&format!("ALTER DATABASE {} OWNER TO {owner}", database.name));
        (database, owner)
    }

    fn create(options: &str) -> Self {
        let name = format!("outbox_test_{}", Uuid::new_v4().simple());
        server::administrator().run(&format!("CREATE DATABASE {name} {options}"));
        Self { name, roles: Mutex::default() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// A new session of the superuser.
    pub fn session(&self) -> Client {
        connect(&mut self.config())
    }

    /// A new session of a role.
    pub fn session_as(&self, role: &str) -> Client {
        connect(self.config().user(role))
    }

    /// A new session that hands its notices to a function.
    pub fn session_with_notices(&self, notice: impl Fn(DbError) + Send + Sync + 'static) -> Client {
        connect(self.config().notice_callback(notice))
    }

    /// A new role without any rights, which is dropped with the database.
    pub fn role(&self, name: &str) -> String {
        let role = format!("{}_{name}", self.name);
        server::administrator().run(&format!("CREATE ROLE {role} LOGIN"));
        self.roles.lock().expect("no panic").push(role.clone());
        role
    }

    /// The connection string for libpq's programs.
    pub fn dsn(&self) -> String {
        format!("{} dbname={}", server::dsn(), self.name)
    }

    fn config(&self) -> Config {
        let mut config = server::config();
        // No limit that a test could notice: a call that would wait for ever fails instead.
        config.dbname(&self.name).options("-c statement_timeout=120s");
        config
    }

    /// A database with a prepared transaction cannot be dropped.
    fn roll_back_prepared(&self) -> Result<(), postgres::Error> {
        let mut session = self.config().connect(NoTls)?;
        for row in
            session.query("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()", &[])?
        {
            session.batch_execute(&format!("ROLLBACK PREPARED '{}'", row.get::<_, String>(0)))?;
        }
        Ok(())
    }

    fn remove(&self) -> Result<(), postgres::Error> {
        self.roll_back_prepared()?;
        let mut administrator = server::config().dbname("postgres").connect(NoTls)?;
        administrator.batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name))?;
        for role in self.roles.lock().iter().flat_map(|roles| roles.iter()) {
            administrator.batch_execute(&format!("DROP ROLE {role}"))?;
        }
        Ok(())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Not a panic: the test may be panicking already, and that is what one wants to read.
        if let Err(error) = self.remove() {
            eprintln!("the database {} was not dropped: {error:?}", self.name);
        }
    }
}

/// The name as an SQL identifier.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn connect(config: &mut Config) -> Client {
    config.connect(NoTls).expect("the database of the test answers")
}
