//! The experiments. What each one compares, with which sizes, is said by the workloads.

mod ahead;
mod bulk;
mod clients;
mod drain;
mod held;
mod holder;
pub mod products;
mod purge;
mod server_loop;
mod size;
mod steady;
mod toast;
mod turns;
mod workers;

use serde::Deserialize;

use crate::bench::Bench;
use crate::failure::Outcome;
use crate::samples::Findings;

#[derive(Debug, Deserialize)]
#[serde(tag = "experiment", content = "setup", rename_all = "kebab-case")]
pub enum Experiment {
    ServerLoop(server_loop::ServerLoop),
    Clients(clients::Clients),
    Drain(drain::Drain),
    Steady(steady::Steady),
    Size(size::Size),
    Held(held::Held),
    Ahead(ahead::Ahead),
    Workers(workers::Workers),
    Toast(toast::Toast),
    Products(products::Products),
    Bulk(bulk::Bulk),
    Turns(turns::Turns),
    Purge(purge::Purge),
}

impl Experiment {
    pub fn run(&self, bench: &Bench, findings: &mut Findings) -> Outcome<()> {
        match self {
            Self::ServerLoop(setup) => setup.run(bench, findings),
            Self::Clients(setup) => setup.run(bench, findings),
            Self::Drain(setup) => setup.run(bench, findings),
            Self::Steady(setup) => setup.run(bench, findings),
            Self::Size(setup) => setup.run(bench, findings),
            Self::Held(setup) => setup.run(bench, findings),
            Self::Ahead(setup) => setup.run(bench, findings),
            Self::Workers(setup) => setup.run(bench, findings),
            Self::Toast(setup) => setup.run(bench, findings),
            Self::Products(setup) => setup.run(bench, findings),
            Self::Bulk(setup) => setup.run(bench, findings),
            Self::Turns(setup) => setup.run(bench, findings),
            Self::Purge(setup) => setup.run(bench, findings),
        }
    }

    /// The systems that it names.
    #[cfg(test)]
    pub fn systems(&self) -> Vec<&str> {
        match self {
            Self::ServerLoop(setup) => vec![&setup.system],
            Self::Clients(setup) => vec![&setup.system],
            Self::Drain(setup) => setup.contestants.iter().map(String::as_str).collect(),
            Self::Steady(setup) => setup.contestants.iter().map(String::as_str).collect(),
            Self::Size(setup) => setup.contestants.iter().map(String::as_str).collect(),
            Self::Held(setup) => setup.flows.iter().map(|flow| flow.system.as_str()).collect(),
            Self::Ahead(setup) => setup.contestants.iter().map(String::as_str).collect(),
            Self::Workers(setup) => setup.contestants.iter().map(String::as_str).collect(),
            Self::Toast(setup) => vec![&setup.system],
            Self::Products(setup) => vec![&setup.system],
            Self::Bulk(setup) => vec![&setup.system],
            Self::Turns(setup) => setup.systems(),
            Self::Purge(setup) => vec![&setup.system],
        }
    }
}
