//! The trigger on `outbox_event` that makes every row sound, whoever writes it: our own functions, a plain
//! INSERT, COPY, a restore or an UPDATE by hand. It fills in the payload hash that a writer leaves out, and
//! wakes workers when an event becomes claimable.
//!
//! It has no WHEN clause: PostgreSQL parses that again for every statement, which costs more than this.

use crate::argument;
use crate::clock;
use crate::datum::{Payload, Text};
use crate::error::{ErrorReport, OutboxError};
use crate::instant::Instant;
use crate::payload_hash;
use crate::plans::moment;
use crate::row::{Column, GuardCall, TupleValues};
use crate::soundness::{self, Life, Unsound};
use crate::status::Status;
use crate::trigger::Tuple;
use crate::wake_up;
use pgrx::prelude::*;
use pgrx::{IntoDatum, Uuid, pg_sys};

/// Makes rows of `outbox_event` sound before they are stored.
///
/// # Errors
/// `22023` a value that no event can have; `54000` the payload is larger than `outbox.max_payload_bytes`
/// allows; `39P01` not called by a trigger.
#[pg_extern(sql = "
CREATE FUNCTION outbox_event_guard() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
")]
fn outbox_event_guard(call: pg_sys::FunctionCallInfo) -> Result<Tuple, ErrorReport> {
    let trigger = GuardCall::of(call)?;
    let mut row = trigger.new_row();
    let old = trigger.old_row();
    check_values(&row, old.as_ref())?;
    fill_payload_hash(&mut row, old.as_ref())?;
    settle_life(&mut row, old.as_ref())?;
    Ok(trigger.store(row))
}

/// Refuses values that no event can have, whatever its status.
fn check_values(row: &TupleValues, old: Option<&TupleValues>) -> Result<(), OutboxError> {
    // What an UPDATE leaves as it was is not its fault: a row that was written past this trigger must not
    // keep claims, which update it, from ever succeeding.
    let unchanged = |column| old.is_some_and(|old| old.same(row, column));
    if !unchanged(Column::TenantId) {
        argument::tenant("tenant_id", row.get::<Uuid>(Column::TenantId))?;
    }
    for (name, column) in [
        ("available_at", Column::AvailableAt),
        ("locked_at", Column::LockedAt),
        ("completed_at", Column::CompletedAt),
        ("dead_at", Column::DeadAt),
        ("created_at", Column::CreatedAt),
        ("updated_at", Column::UpdatedAt),
    ] {
        if !unchanged(column) {
            argument::finite(name, row.get::<Instant>(column))?;
        }
    }
    if !unchanged(Column::Headers) {
        argument::object("headers", row.get::<Payload>(Column::Headers))?;
    }
    Ok(())
}

/// The hash of a payload that came without one, or that was changed. One that is given with an INSERT is
/// taken as it is, if it looks like one.
fn fill_payload_hash(row: &mut TupleValues, old: Option<&TupleValues>) -> Result<(), OutboxError> {
    let unchanged =
        old.is_some_and(|old| old.same(row, Column::Payload) && old.same(row, Column::PayloadHash));
    if unchanged {
        return Ok(());
    }
    let given = row.get::<Text>(Column::PayloadHash);
    match (old, given) {
        (None, Some(hash)) if payload_hash::is_hash(hash.bytes()) => Ok(()),
        (None, Some(_)) => argument::invalid(
            "payload_hash",
            "not a text of 64 lower-case hexadecimal digits",
            "Leave payload_hash out, or give outbox_payload_hash(payload).",
        ),
        _ => {
            if let Some(payload) = row.get::<Payload>(Column::Payload) {
                row.set(Column::PayloadHash, payload_hash::of(&payload)?.into_datum());
            }
            Ok(())
        }
    }
}

fn settle_life<'a>(row: &mut TupleValues<'a>, old: Option<&TupleValues<'a>>) -> Result<(), OutboxError> {
    // Where a column that must not be null is null, PostgreSQL's own constraint says so.
    let Some(given) = life(row) else { return Ok(()) };
    let (before, now) = (old.and_then(life), clock::now());
    let mut sound = given;
    soundness::settle(before.as_ref(), &mut sound, now).map_err(|Unsound { column, found, rule }| {
        OutboxError::InvalidArgument { parameter: column, found, rule }
    })?;
    if sound != given {
        store_life(row, &sound);
    }
    if sound.is_ready(now) && !before.is_some_and(|before| before.is_ready(now)) {
        wake_up::workers();
    }
    Ok(())
}

fn life<'a>(row: &TupleValues<'a>) -> Option<Life<'a>> {
    Some(Life {
        status: Status::parse(row.get::<Text>(Column::Status)?.bytes())?,
        attempt_count: row.get(Column::AttemptCount)?,
        forgiven_attempts: row.get(Column::ForgivenAttempts)?,
        available_at: row.get(Column::AvailableAt)?,
        locked_at: row.get(Column::LockedAt),
        locked_by: row.get::<Text<'a>>(Column::LockedBy).map(|worker| worker.bytes()),
        completed_at: row.get(Column::CompletedAt),
        dead_at: row.get(Column::DeadAt),
        claimed_in_order: row.get(Column::ClaimedInOrder),
    })
}

/// Stores what `soundness::settle` may have changed.
fn store_life(row: &mut TupleValues, life: &Life) {
    row.set(Column::AttemptCount, life.attempt_count.into_datum());
    row.set(Column::ForgivenAttempts, life.forgiven_attempts.into_datum());
    row.set(Column::AvailableAt, Some(moment(life.available_at)));
    row.set(Column::LockedAt, life.locked_at.map(moment));
    if life.locked_by.is_none() {
        row.set(Column::LockedBy, None);
    }
    row.set(Column::CompletedAt, life.completed_at.map(moment));
    row.set(Column::DeadAt, life.dead_at.map(moment));
    if life.claimed_in_order.is_none() && row.get::<bool>(Column::ClaimedInOrder).is_some() {
        row.set(Column::ClaimedInOrder, None);
    }
}
