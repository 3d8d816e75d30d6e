//! The events of the file, enqueued in one transaction.

use std::collections::HashSet;

use uuid::Uuid;

use crate::check;
use crate::database::count;
use crate::error::DemoError;
use crate::events::{Event, EventsFile};
use crate::ledger::Fate;
use crate::narrate::{Narrator, counted, grouped};
use crate::numbers::longest_number;
use crate::outbox::{self, NewEvent};
use crate::progress::Progress;
use crate::refusal::Refusal;
use crate::stage::Stage;

/// Events compared in one statement, by number and by size.
const COMPARE_EVENTS: usize = 1000;
const COMPARE_BYTES: usize = 4_000_000;

const DIFFERENT: &str = "\
SELECT sent.id
  FROM unnest($1::uuid[], $2::text[]) AS sent (id, payload)
  LEFT JOIN outbox_event e ON e.id = sent.id
 WHERE (e.payload = sent.payload::jsonb) IS NOT TRUE
 LIMIT 1";

pub fn play(stage: &mut Stage) -> Result<(), DemoError> {
    let say = stage.narrator;
    let before = count(&mut stage.shop, "outbox_event")?;
    say.say("One transaction, one prepared statement, one call of outbox_enqueue a line.");
    let ids = enqueue_all(stage)?;
    let distinct: HashSet<Uuid> = ids.iter().copied().collect();
    let new = distinct.iter().filter(|id| stage.ledger.enqueued(**id, Fate::Due)).count();
    let found = usize::try_from(count(&mut stage.shop, "outbox_event")? - before).unwrap_or(0);
    check::equal("new events in the table", new, found)?;
    say.checked(&format!("{} enqueued", counted(new, "event")));
    if ids.len() > new {
        say.checked(&format!(
            "{} only said again what an earlier line had said, and got its id",
            counted(ids.len() - new, "line")
        ));
    }
    compare_payloads(stage, &ids)?;
    show_longest_number(stage, &ids)
}

/// The id of each event, in the order of the file. All of them are written, or none.
fn enqueue_all(stage: &mut Stage) -> Result<Vec<Uuid>, DemoError> {
    let mut progress = Progress::new(stage.narrator);
    let mut transaction = stage.shop.transaction()?;
    let statement = transaction.prepare(outbox::ENQUEUE)?;
    let mut ids = Vec::with_capacity(stage.file.events.len());
    for event in &stage.file.events {
        let outcome = outbox::enqueue(&mut transaction, &statement, &new_event(event));
        ids.push(outcome.map_err(|error| refused(&stage.file, event, error))?);
        progress.tick(|| format!("{} enqueued", counted(ids.len(), "event")));
    }
    transaction.commit()?;
    Ok(ids)
}

fn new_event(event: &Event) -> NewEvent<'_> {
    NewEvent {
        tenant_id: event.tenant_id,
        aggregate_type: &event.aggregate_type,
        aggregate_id: event.aggregate_id,
        event_type: &event.event_type,
        deduplication_key: event.deduplication_key.as_deref(),
        payload: &event.payload,
        available_at: event.available_at.as_deref(),
        headers: event.headers.as_deref(),
    }
}

fn refused(file: &EventsFile, event: &Event, error: postgres::Error) -> DemoError {
    match Refusal::of(&error) {
        Some(refusal) => {
            DemoError::EventRefused { file: file.path.clone(), line: event.line, refusal: Box::new(refusal) }
        }
        None => error.into(),
    }
}

/// Every payload in the table equals its line, as the server compares jsonb.
fn compare_payloads(stage: &mut Stage, ids: &[Uuid]) -> Result<(), DemoError> {
    let events = &stage.file.events;
    let (mut batch_ids, mut batch_texts, mut bytes) = (Vec::new(), Vec::new(), 0);
    for (event, id) in events.iter().zip(ids) {
        batch_ids.push(*id);
        batch_texts.push(event.payload.as_str());
        bytes += event.payload.len();
        if batch_ids.len() == COMPARE_EVENTS || bytes > COMPARE_BYTES {
            compare_batch(&mut stage.shop, &batch_ids, &batch_texts)?;
            (batch_ids, batch_texts, bytes) = (Vec::new(), Vec::new(), 0);
        }
    }
    compare_batch(&mut stage.shop, &batch_ids, &batch_texts)?;
    let total: usize = events.iter().map(|e| e.payload.len()).sum();
    stage
        .narrator
        .checked(&format!("every payload in the table equals its line ({} bytes in all)", grouped(total)));
    Ok(())
}

fn compare_batch(shop: &mut postgres::Client, ids: &[Uuid], texts: &[&str]) -> Result<(), DemoError> {
    match shop.query_opt(DIFFERENT, &[&ids, &texts])? {
        None => Ok(()),
        Some(row) => {
            let id: Uuid = row.try_get(0)?;
            Err(check::off(
                &format!("the payload of event {id}"),
                "what its line in the file says",
                "something else",
            ))
        }
    }
}

/// A number that a program which computes in f64 would have rounded.
fn show_longest_number(stage: &mut Stage, ids: &[Uuid]) -> Result<(), DemoError> {
    let events = stage.file.events.iter().zip(ids);
    let longest = events
        .filter_map(|(event, id)| Some((event.line, *id, longest_number(&event.payload)?)))
        .max_by_key(|(_, _, number)| number.len());
    let Some((line, id, number)) = longest else {
        return Ok(());
    };
    let row = stage.shop.query_one(
        "SELECT position($2 IN payload::text) > 0 FROM outbox_event WHERE id = $1",
        &[&id, &number],
    )?;
    let what = format!("the number {number} of line {line} in the event's payload");
    check::equal(&what, true, row.try_get(0)?)?;
    show_digits(stage.narrator, line, number);
    Ok(())
}

fn show_digits(say: Narrator, line: usize, number: &str) {
    const LONGEST: usize = 60;
    if number.len() <= LONGEST {
        say.checked(&format!("numbers keep every digit: {number} in line {line}"));
    } else {
        say.checked(&format!(
            "numbers keep every digit: all {} of one in line {line}",
            number.chars().filter(char::is_ascii_digit).count()
        ));
    }
}
