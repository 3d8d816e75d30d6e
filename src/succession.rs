//! Succession: when an event that was claimed in order is settled for good, it is the turn of the next of its
//! aggregate.
//!
//! Ordered claims pass over events that wait for an earlier one, and their cursors move on. So whoever settles
//! the earlier one has to see to its successor:
//!
//! * The session keeps in mind where in its aggregate each event stood that it settled, and looks there at its
//!   next ordered claim. Nothing is written for it: most workers claim where they settle.
//! * A session that goes on settling without such a claim, and one whose claim is not for the successor (a
//!   filter), moves it to `available_at = now`, ahead of the cursors of all others.
//! * What is left, as when a session settles and ends, is found by a sweep.
//!
//! A successor is the next unfinished event from the settled one on, which the index by aggregate finds in one
//! step, however many of the aggregate are finished or wait. That nothing comes before it (after a replay or a
//! late commit) is asked each time too; but under a long row of finished events, whose entries have to be passed,
//! only now and then.

use crate::aggregate::{earlier, in_flight};
use crate::array;
use crate::clock;
use crate::datum::Text;
use crate::error::OutboxError;
use crate::filter::{Filter, admitted};
use crate::instant::Instant;
use crate::plans::{Row, Rows, Session, Statement, Value, moment};
use crate::queue;
use pgrx::pg_sys::{
    self, BOOLARRAYOID, BOOLOID, INT8OID, TEXTARRAYOID, TEXTOID, TIDARRAYOID, TIDOID, TIMESTAMPTZARRAYOID,
    TIMESTAMPTZOID, UUIDARRAYOID, UUIDOID,
};
use pgrx::{IntoDatum, Uuid};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::Duration;

/// What a statement that settles `event` returns of it, for `advance`: its id, and its place in its aggregate
/// when it was claimed in order.
macro_rules! settled {
    () => {
        " RETURNING event.id::pg_catalog.uuid, event.claimed_in_order::pg_catalog.bool,
                    event.aggregate_type::pg_catalog.text, event.aggregate_id::pg_catalog.uuid,
                    event.created_at::pg_catalog.timestamptz"
    };
}
pub(crate) use settled;

/// Which aggregate: its type, in the database's encoding, and its id.
type Aggregate = (Vec<u8>, [u8; 16]);

/// What this session knows of an aggregate that it settles in order.
#[derive(Debug, Clone, Copy)]
struct Chain {
    /// Where the event stood that was settled last.
    created_at: Instant,
    id: [u8; 16],
    /// How many were settled one after the other.
    length: usize,
    /// When it was last asked whether something comes before; on a clock that never steps back.
    asked: Duration,
    /// Since when its successor waits to be looked for; none once it was.
    waits: Option<Duration>,
}

/// Chains of fewer events have few entries to pass: what comes before is asked each time. Under longer ones it is
/// asked again after this pause.
const SHORT: usize = 500;
const PAUSE: Duration = Duration::from_millis(200);

/// When this session has made no ordered claim for so long, successors that wait for one are moved, for others to
/// find.
const PATIENCE: Duration = Duration::from_millis(50);

/// More aggregates than this are not kept in mind.
const KEPT: usize = 10_000;

thread_local! {
    static CHAINS: RefCell<HashMap<Aggregate, Chain>> = RefCell::new(HashMap::new());
    /// When this session last made an ordered claim.
    static CLAIMED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The transaction, or a part of it, has aborted: what it settled may not be settled.
pub fn forget() {
    CHAINS.with_borrow_mut(HashMap::clear);
}

/// Sees to the successors of settled events, which `settled!` has returned.
pub fn advance(session: &Session, settled: &Rows, now: Instant) -> Result<(), OutboxError> {
    let mut in_order = settled.iter().filter(|row| row.get(2) == Some(true)).peekable();
    // Under an old snapshot a claim sees no successor that was not there before, and keeps no cursor either.
    if in_order.peek().is_none() || queue::has_old_snapshot() {
        return Ok(());
    }
    let at = clock::steady();
    if at.saturating_sub(CLAIMED.get()) >= PATIENCE {
        let forsaken = waiting(usize::MAX, |waits| at.saturating_sub(waits) >= PATIENCE);
        let found = find(session, forsaken, &Filter::all_in_order(), usize::MAX, now)?;
        move_to(session, &found, now)?;
    }
    CHAINS.with_borrow_mut(|chains| {
        for row in in_order {
            let Some((aggregate, created_at, id)) = place(&row) else { continue };
            let chain = chains.entry(aggregate).or_insert(Chain {
                created_at,
                id,
                length: 0,
                asked: at,
                waits: None,
            });
            *chain = Chain { created_at, id, length: chain.length + 1, waits: Some(at), ..*chain };
        }
        if chains.len() > KEPT {
            chains.retain(|_, chain| chain.waits.is_some());
        }
    });
    Ok(())
}

fn place(row: &Row) -> Option<(Aggregate, Instant, [u8; 16])> {
    let aggregate = (row.get::<Text>(3)?.bytes().to_vec(), *row.get::<Uuid>(4)?.as_bytes());
    Some((aggregate, row.get(5)?, *row.get::<Uuid>(1)?.as_bytes()))
}

/// So many chains are looked at for each successor that is wanted, and some more: most may have none.
const LOOKS: usize = 4;

/// Finds and locks up to so many successors that a claim with this filter may take. Rows are as those of the
/// claim's scan.
pub fn successors<'s>(
    session: &'s Session,
    filter: &Filter,
    most: usize,
    now: Instant,
) -> Result<Vec<Row<'s>>, OutboxError> {
    CLAIMED.set(clock::steady());
    if most == 0 {
        return Ok(Vec::new());
    }
    let found = find(session, waiting(most.saturating_mul(LOOKS), |_| true), filter, most, now)?;
    let (admitted, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|row| row.get(8) == Some(true));
    move_to(session, &others, now)?;
    Ok(admitted)
}

/// Up to so many chains whose successors wait to be looked for, the longest waiting first.
fn waiting(most: usize, chosen: impl Fn(Duration) -> bool) -> Vec<(Aggregate, Chain)> {
    CHAINS.with_borrow(|chains| {
        let waits = chains.iter().filter(|(_, chain)| chain.waits.is_some_and(&chosen));
        let mut waiting: Vec<_> = waits.map(|(aggregate, chain)| (aggregate.clone(), *chain)).collect();
        waiting.sort_unstable_by_key(|(_, chain)| (chain.waits, chain.created_at, chain.id));
        waiting.truncate(most);
        waiting
    })
}

/// Finds and locks up to so many successors of chains whose turn it is, and that the filter may admit or not.
fn find<'s>(
    session: &'s Session,
    mut chains: Vec<(Aggregate, Chain)>,
    filter: &Filter,
    most: usize,
    now: Instant,
) -> Result<Vec<Row<'s>>, OutboxError> {
    if chains.is_empty() {
        return Ok(Vec::new());
    }
    let at = clock::steady();
    let ask: Vec<_> = chains
        .iter()
        .map(|(_, chain)| chain.length < SHORT || at.saturating_sub(chain.asked) >= PAUSE)
        .collect();
    let types = chains.iter().map(|((aggregate_type, _), _)| aggregate_type.as_slice().into_datum());
    let ids = chains.iter().map(|((_, id), _)| Some(pg_sys::Datum::from(id.as_ptr())));
    let created = chains.iter().map(|(_, chain)| Some(moment(chain.created_at)));
    let settled = chains.iter().map(|(_, chain)| Some(pg_sys::Datum::from(chain.id.as_ptr())));
    let [event_types, tenant] = filter.values();
    let rows = session.run(
        &SUCCESSORS,
        [
            Some(array::of(TEXTOID, types)),
            Some(array::of(UUIDOID, ids)),
            Some(array::of(TIMESTAMPTZOID, created)),
            Some(array::of(UUIDOID, settled)),
            Some(array::of(BOOLOID, ask.iter().map(|ask| ask.into_datum()))),
            Some(moment(now)),
            event_types,
            tenant,
            Some(pg_sys::Datum::from(i64::try_from(most).unwrap_or(i64::MAX))),
        ],
    )?;
    let found: Vec<_> = rows.iter().collect();
    if found.len() == most {
        // What comes after the last was not looked at.
        chains.truncate(found.iter().filter_map(place_of).max().map_or(0, |last| last + 1));
    }
    remember(chains, &ask, &found, at);
    Ok(found)
}

/// Of the chains that were looked at, keeps those that go on.
fn remember(chains: Vec<(Aggregate, Chain)>, asked: &[bool], found: &[Row], at: Duration) {
    let mut goes_on = vec![false; chains.len()];
    for row in found {
        if let Some(goes_on) = place_of(row).and_then(|place| goes_on.get_mut(place)) {
            *goes_on = true;
        }
    }
    CHAINS.with_borrow_mut(|kept| {
        for (((aggregate, chain), asked), goes_on) in chains.into_iter().zip(asked).zip(goes_on) {
            if goes_on {
                let asked = if *asked { at } else { chain.asked };
                kept.insert(aggregate, Chain { asked, waits: None, ..chain });
            } else {
                kept.remove(&aggregate);
            }
        }
    });
}

/// Which of the chains a row is the successor of.
fn place_of(row: &Row) -> Option<usize> {
    usize::try_from(row.get::<i64>(9)? - 1).ok()
}

fn move_to(session: &Session, found: &[Row], now: Instant) -> Result<(), OutboxError> {
    if !found.is_empty() {
        let positions: Vec<Value> = found.iter().map(|row| row.value(1)).collect();
        session.run(&MOVE, [Some(array::of(TIDOID, positions)), Some(moment(now))])?;
    }
    Ok(())
}

// A successor that somebody else holds is left to them: settling must not wait. One that is due later is ahead
// of the cursors already.
static SUCCESSORS: Statement = Statement {
    sql: concat!(
        "SELECT event.ctid, event.available_at::pg_catalog.timestamptz,
                event.created_at::pg_catalog.timestamptz, event.id::pg_catalog.uuid,
                event.status::pg_catalog.text,
                event.attempt_count::pg_catalog.int8
                    OPERATOR(pg_catalog.-) event.forgiven_attempts::pg_catalog.int8,
                false, ",
        admitted!("$7", "$8"),
        ", settled.place
         FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2), pg_catalog.unnest($3),
                         pg_catalog.unnest($4), pg_catalog.unnest($5))
             WITH ORDINALITY AS settled (aggregate_type, aggregate_id, created_at, id, asks, place)
         CROSS JOIN LATERAL (
             SELECT next.ctid
             FROM ONLY {schema}.outbox_event AS next
             WHERE next.completed_at IS NULL AND next.dead_at IS NULL
               AND next.aggregate_id OPERATOR(pg_catalog.=) settled.aggregate_id
               AND next.aggregate_type::pg_catalog.text OPERATOR(pg_catalog.=) settled.aggregate_type
               AND (next.created_at, next.id) OPERATOR(pg_catalog.>) (settled.created_at, settled.id)
             ORDER BY next.created_at, next.id
             LIMIT 1
         ) AS successor
         JOIN ONLY {schema}.outbox_event AS event ON event.ctid OPERATOR(pg_catalog.=) successor.ctid
         WHERE event.status::pg_catalog.text OPERATOR(pg_catalog.=) 'pending'
           AND event.available_at OPERATOR(pg_catalog.<=) $6
           AND (NOT settled.asks OR ",
        earlier!(),
        " IS NULL) AND ",
        in_flight!(),
        " IS NULL
         LIMIT $9
         FOR NO KEY UPDATE OF event SKIP LOCKED"
    ),
    parameters: &[
        TEXTARRAYOID,
        UUIDARRAYOID,
        TIMESTAMPTZARRAYOID,
        UUIDARRAYOID,
        BOOLARRAYOID,
        TIMESTAMPTZOID,
        TEXTARRAYOID,
        UUIDOID,
        INT8OID,
    ],
    seeks: true,
};

static MOVE: Statement = Statement {
    sql: "UPDATE ONLY {schema}.outbox_event
          SET available_at = $2, updated_at = $2
          WHERE ctid OPERATOR(pg_catalog.=) ANY ($1)",
    parameters: &[TIDARRAYOID, TIMESTAMPTZOID],
    seeks: true,
};
