//! Tests that run inside one backend, in one transaction that is rolled back; by topic.

mod smoke;

/// Called once when the framework starts.
pub fn setup(_options: Vec<&str>) {}

/// Lines for the test server's postgresql.conf.
#[must_use]
pub fn postgresql_conf_options() -> Vec<&'static str> {
    vec![]
}
