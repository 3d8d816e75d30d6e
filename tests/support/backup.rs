//! pg_dump and pg_restore.

use crate::database::Database;
use crate::server::{program, succeed};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// A dump in a file, which is removed with it.
pub struct Backup(PathBuf);

impl Backup {
    /// Dumps a database in one of pg_dump's formats.
    pub fn of(database: &Database, format: &str) -> Self {
        let file = std::env::temp_dir().join(format!("outbox-{}.dump", Uuid::new_v4().simple()));
        let backup = Self(file);
        succeed(program("pg_dump").args(["-F", format, "-d", &database.dsn(), "-f"]).arg(&backup.0));
        backup
    }

    /// Restores a dump in the custom format; any error ends it.
    pub fn restore_into(&self, database: &Database) {
        succeed(program("pg_restore").args(["-e", "-d", &database.dsn()]).arg(&self.0));
    }

    pub fn file(&self) -> &Path {
        &self.0
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
