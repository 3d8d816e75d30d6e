//! Tests that run inside one backend, in one transaction that is rolled back; by topic.

mod aggregate_id;
mod array;
mod backoff;
mod capture;
mod claim;
mod cursor;
mod dead_letter;
mod dedup;
mod enqueue;
mod enqueue_batch;
mod filter;
mod grant;
mod guard;
mod model;
mod model_agreement;
mod model_order;
mod ordered;
mod payload_hash;
mod payload_limit;
mod retention;
mod settings;
mod settle;
mod settle_batch;
mod stats;
mod support;
mod surface;

/// Called once when the framework starts.
pub fn setup(_options: Vec<&str>) {}

/// Lines for the test server's postgresql.conf.
#[must_use]
pub fn postgresql_conf_options() -> Vec<&'static str> {
    // Tests compare moments as text.
    vec!["timezone = 'UTC'"]
}
