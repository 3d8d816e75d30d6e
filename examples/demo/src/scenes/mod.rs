//! The scenes, one a file. Each shows one thing and checks it.

pub mod closing;
pub mod conflict;
pub mod dead;
pub mod duplicate;
pub mod fencing;
pub mod file;
pub mod lost_lease;
pub mod order;
pub mod retry;
pub mod rollback;
pub mod workers;

use std::thread::sleep;
use std::time::Duration;

use crate::outbox::Claim;

/// A lease that the story can wait out.
const SHORT_LEASE: Claim = Claim { batch_size: 1, lease: "50 milliseconds", max_attempts: None };

/// Sleeps until every lease of `SHORT_LEASE` has expired.
fn outlive_the_lease() {
    sleep(Duration::from_millis(100));
}
