//! The report: one table on standard output, RESULTS.md, and the charts.

mod charts;
mod figure;
mod results;
mod table;

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::bench::Bench;
use crate::failure::{Doing, Outcome};
use crate::machine::Machine;
use crate::samples::Findings;
use crate::workload::Workload;

/// One workload, and what came of it.
pub struct Section {
    pub workload: Workload,
    pub findings: Findings,
    pub failure: Option<String>,
    pub took: Duration,
}

pub struct Report<'b> {
    pub machine: Machine,
    pub sections: Vec<Section>,
    pub bench: &'b Bench,
}

impl Report<'_> {
    pub fn print(&self) {
        println!("\n{}", table::lines(&self.sections));
        if self.bench.quick {
            println!("A quick run: its tables are smaller than the rows say, and it proves less.");
        }
        for section in &self.sections {
            section.findings.notes.iter().for_each(|note| println!("{note}"));
        }
        println!();
        for section in &self.sections {
            println!("{:6.1} s  {}", section.took.as_secs_f64(), section.workload.title);
        }
        println!("{:6.1} s  in all", self.bench.progress.elapsed().as_secs_f64());
    }

    pub fn write(&self, folder: &Path) -> Outcome<()> {
        let charts = folder.join("charts");
        fs::create_dir_all(&charts).doing(|| format!("making {}", charts.display()))?;
        let drawn = charts::draw(&self.bench.folder.join("charts"), &self.sections, &charts)?;
        let file = folder.join("RESULTS.md");
        fs::write(&file, results::markdown(self, &drawn)?).doing(|| format!("writing {}", file.display()))?;
        self.bench.progress.say(&format!("{} is written", file.display()));
        Ok(())
    }
}
