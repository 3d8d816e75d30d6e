//! outbox_ext beside the textbook SQL, a PL/pgSQL twin and real peers, in one run on a private server.
//!
//! `make bench` runs it. What is measured is said by the files in `workloads/`; exit status 0 when everything
//! could be measured (whether or not a target was met), 1 when something failed, 2 for a wrong call.

mod arena;
mod bench;
mod call;
mod experiments;
mod failure;
mod machine;
mod meter;
mod payload;
mod progress;
mod report;
mod samples;
mod server;
mod statistics;
mod system;
mod workload;

use std::path::Path;
use std::process::ExitCode;

use crate::bench::Bench;
use crate::call::{Call, Options};
use crate::failure::Outcome;
use crate::report::Section;
use crate::samples::Findings;
use crate::workload::Workload;

/// Where the workloads lie when the bench is run from the project's root.
const WORKLOADS: &str = "bench/workloads";

fn main() -> ExitCode {
    let call = match call::read(std::env::args()) {
        Ok(call) => call,
        Err(failure) => return complain(&failure, 2),
    };
    let result = match call {
        Call::Help => {
            println!("{}", call::USAGE);
            return ExitCode::SUCCESS;
        }
        Call::List => list(),
        Call::Run(options) => run(&options),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(failure) => complain(&failure, 1),
    }
}

fn complain(failure: &failure::Failure, status: u8) -> ExitCode {
    eprintln!("outbox_bench: {failure}");
    ExitCode::from(status)
}

fn list() -> Outcome<bool> {
    for workload in workload::load(Path::new(WORKLOADS))? {
        for line in workload.lines {
            println!("{:24} {}", line.name, line.work);
        }
    }
    Ok(true)
}

/// Whether everything could be measured.
fn run(options: &Options) -> Outcome<bool> {
    let folder = Path::new(WORKLOADS);
    let workloads = workload::select(workload::load(folder)?, &options.only)?;
    let bench = Bench::open(&options.dsn, folder, options.quick)?;
    let machine = machine::look(&bench.server)?;
    let count = workloads.len();
    let mut sections = Vec::new();
    for (number, workload) in workloads.into_iter().enumerate() {
        bench.progress.say(&format!("{}/{count}  {}", number + 1, workload.title));
        sections.push(section(&bench, workload));
    }
    let report = report::Report { machine, sections, bench: &bench };
    report.print();
    if options.only.is_empty() {
        report.write(&options.out)?;
    }
    Ok(report.sections.iter().all(|section| section.failure.is_none()))
}

/// An experiment that fails costs its own lines only.
fn section(bench: &Bench, workload: Workload) -> Section {
    let mut findings = Findings::default();
    let began = bench.progress.elapsed();
    let failure = workload.experiment.run(bench, &mut findings).err().map(|failure| failure.to_string());
    if let Some(failure) = &failure {
        bench.progress.say(&format!("FAILED: {failure}"));
    }
    Section { workload, findings, failure, took: bench.progress.elapsed() - began }
}
