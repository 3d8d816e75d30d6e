//! What the tests in this folder share: a server, databases of their own, sessions, and a few ways to look at
//! what happened.

pub mod backup;
pub mod choice;
pub mod cluster;
pub mod crowd;
pub mod database;
pub mod json;
pub mod outbox;
pub mod plan;
pub mod refusal;
pub mod server;
pub mod sql;
pub mod story;
pub mod waiting;

pub use database::Database;
pub use outbox::{Event, Outbox};
pub use postgres::Client;
pub use sql::Sql;
pub use uuid::Uuid;
