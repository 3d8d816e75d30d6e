//! outbox_ext: a transactional outbox for PostgreSQL.
//!
//! A business transaction writes its rows and its events in one commit; workers claim events in batches,
//! hand them on, and settle each one. The surface is SQL: see README.md, and docs/design.md for why it is
//! built the way it is.

mod aggregate;
mod aggregate_id;
mod argument;
mod array;
mod backoff;
mod capture;
mod claim;
mod clock;
mod complete;
mod cursor;
mod datum;
mod dead_letter;
mod encoding;
mod enqueue;
mod enqueue_batch;
mod error;
mod event_id;
mod event_object;
mod extend;
mod fail;
mod filter;
mod grant;
mod guard;
mod heads;
mod holder;
mod index_scan;
mod instant;
mod lease;
mod literal;
mod order;
mod payload_hash;
mod pinned;
mod plans;
mod queue;
mod release;
mod result_set;
mod retention;
mod row;
mod schema;
mod settings;
mod soundness;
mod status;
mod succession;
mod text_form;
mod trigger;
mod wake_up;
mod walk;

#[cfg(any(test, feature = "pg_test"))]
#[path = "../pg_test/mod.rs"]
pub mod pg_test;

pgrx::pg_module_magic!(name, version);

/// Called by PostgreSQL when it loads the library.
#[pgrx::pg_guard]
extern "C-unwind" fn _PG_init() {
    settings::register();
    queue::register();
}
