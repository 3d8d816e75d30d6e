//! What every experiment needs: the server, the systems, and how long things may take.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::arena::Arena;
use crate::failure::{Doing, Outcome};
use crate::progress::Progress;
use crate::samples::Findings;
use crate::server::{Commit, Server};
use crate::system::System;

/// How often each contestant runs; the table shows medians.
pub const RUNS: usize = 5;

pub struct Bench {
    pub server: Arc<Server>,
    pub quick: bool,
    pub progress: Progress,
    /// The folder of the workloads.
    pub folder: PathBuf,
    systems: RefCell<BTreeMap<String, Prepared>>,
    arenas: Cell<u32>,
}

/// A system with a database that has it installed, to be copied for each experiment.
#[derive(Clone)]
struct Prepared {
    system: Arc<System>,
    missing: Option<String>,
}

impl Prepared {
    fn template(&self) -> String {
        format!("template_{}", self.system.name)
    }
}

impl Bench {
    pub fn open(dsn: &str, folder: &Path, quick: bool) -> Outcome<Self> {
        Ok(Self {
            server: Arc::new(Server::new(dsn)?),
            quick,
            progress: Progress::new(),
            folder: folder.to_owned(),
            systems: RefCell::default(),
            arenas: Cell::new(0),
        })
    }

    /// A fresh database of a system; none, and a note, if the system cannot be measured here.
    pub fn arena(&self, name: &str, commit: Commit, findings: &mut Findings) -> Outcome<Option<Arena>> {
        let prepared = self.prepared(name)?;
        if let Some(missing) = &prepared.missing {
            findings.note(format!("{} was left out: {missing}.", prepared.system.title));
            return Ok(None);
        }
        self.arenas.set(self.arenas.get() + 1);
        let number = self.arenas.get();
        Arena::open(&self.server, &prepared.system, &prepared.template(), number, commit).map(Some)
    }

    /// One for each system that can be measured.
    pub fn arenas(&self, names: &[String], commit: Commit, findings: &mut Findings) -> Outcome<Vec<Arena>> {
        let mut arenas = Vec::new();
        for name in names {
            arenas.extend(self.arena(name, commit, findings)?);
        }
        Ok(arenas)
    }

    /// The systems that were used.
    pub fn used(&self) -> Vec<Arc<System>> {
        let systems = self.systems.borrow();
        systems.values().filter(|used| used.missing.is_none()).map(|used| Arc::clone(&used.system)).collect()
    }

    /// The text of a file `NAME.sql` in a folder of the workloads.
    pub fn sql(&self, folder: &str, name: &str) -> Outcome<String> {
        let file = self.folder.join(folder).join(format!("{name}.sql"));
        std::fs::read_to_string(&file).doing(|| format!("reading {}", file.display()))
    }

    fn prepared(&self, name: &str) -> Outcome<Prepared> {
        if let Some(prepared) = self.systems.borrow().get(name) {
            return Ok(prepared.clone());
        }
        let prepared = self.prepare(name)?;
        self.systems.borrow_mut().insert(name.to_owned(), prepared.clone());
        Ok(prepared)
    }

    fn prepare(&self, name: &str) -> Outcome<Prepared> {
        let system = System::load(&self.folder.join("systems"), name)?;
        let missing = system.missing(&self.server)?;
        let prepared = Prepared { system: Arc::new(system), missing };
        if prepared.missing.is_some() {
            return Ok(prepared);
        }
        let template = prepared.template();
        self.server.create_database(&template, "template1")?;
        let mut client = self.server.connect(&template, &[])?;
        prepared.system.install(&mut client)?;
        Ok(prepared)
    }
}
