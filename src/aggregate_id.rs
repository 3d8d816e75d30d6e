//! Ids for aggregates whose keys are no uuid: name-based UUIDs of version 5 (RFC 9562, 5.5), the same for the
//! same aggregate in every release and every language. Specified in docs/aggregate-id.md.

use crate::argument;
use crate::datum::Text;
use crate::encoding;
use crate::error::{ErrorReport, OutboxError};
use pgrx::prelude::*;
use uuid::{Uuid, uuid};

/// The namespace of all aggregate types. It never changes.
const NAMESPACE: Uuid = uuid!("efb0ff9c-fe83-4280-8ff4-176536c5c1b3");

/// The id of the aggregate of a type that has a key.
///
/// * `aggregate_type`: 1 to 255 bytes; `key`: any text that is not empty.
///
/// # Errors
/// `22004` an argument is NULL; `22023` an argument out of range; `22021` a text that is none in the
/// database's encoding.
#[pg_extern(immutable, parallel_safe)]
fn outbox_aggregate_id(
    aggregate_type: Option<Text<'_>>,
    key: Option<Text<'_>>,
) -> Result<pgrx::Uuid, ErrorReport> {
    let aggregate_type = argument::name("aggregate_type", aggregate_type)?;
    let key = argument::required("key", key)?;
    Ok(of(&aggregate_type, &key)?)
}

/// The id of the aggregate of a type, of 1 to 255 bytes, that has a key. 22023 for an empty key.
pub fn of(aggregate_type: &Text, key: &Text) -> Result<pgrx::Uuid, OutboxError> {
    if key.bytes().is_empty() {
        return argument::invalid("key", "empty", "Pass the key as a text of 1 byte or more.");
    }
    // A type is a namespace of its own, so that no type and key run into one another.
    let keys = Uuid::new_v5(&NAMESPACE, &encoding::to_utf8(aggregate_type.bytes()));
    let id = Uuid::new_v5(&keys, &encoding::to_utf8(key.bytes()));
    Ok(pgrx::Uuid::from_bytes(id.into_bytes()))
}
