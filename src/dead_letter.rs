//! Dead letters: events that were given up stay in the table, and an operator brings them back.

use crate::argument;
use crate::array;
use crate::clock;
use crate::datum::Text;
use crate::error::{ErrorReport, OutboxError};
use crate::plans::{Session, Statement, Value, moment, uuid};
use pgrx::pg_sys::{self, INT8OID, TEXTOID, TIDARRAYOID, TIMESTAMPTZOID, UUIDARRAYOID, UUIDOID};
use pgrx::prelude::*;
use pgrx::{Array, Uuid};

/// Brings dead events back to pending, due now and with a fresh budget of attempts: `forgiven_attempts` becomes
/// `attempt_count`. Their history stays, `last_error_code` included. Returns how many they were.
///
/// * `event_ids`, `event_type`, `tenant_id`: only these; NULL means any. Ids of events that are not dead, or not
///   there, are passed over.
/// * `max_events`: at most so many, those that died first; 1 or more.
///
/// Events that another transaction has locked are passed over, so that two operators share the work.
///
/// # Errors
/// `22004` max_events, or an element of event_ids, is NULL; `22023` an argument out of range; `40001` under
/// REPEATABLE READ, when an event was changed since the snapshot.
#[pg_extern(volatile, parallel_unsafe)]
fn outbox_replay(
    event_ids: default!(Option<Array<'_, Uuid>>, "NULL"),
    event_type: default!(Option<Text<'_>>, "NULL"),
    tenant_id: default!(Option<Uuid>, "NULL"),
    max_events: default!(Option<i32>, 1000),
    call: pg_sys::FunctionCallInfo,
) -> Result<i64, ErrorReport> {
    let wanted = Wanted {
        ids: event_ids.map(|ids| argument::elements("event_ids", Some(&ids))).transpose()?,
        event_type: event_type.map(|name| argument::name("event_type", Some(name))).transpose()?,
        tenant: argument::tenant("tenant_id", tenant_id)?,
        most: argument::at_least_one("max_events", max_events)?,
    };
    let session = Session::open(call)?;
    session.lock_table();
    Ok(wanted.replay(&session)?)
}

/// Which dead events, and how many at most.
struct Wanted<'a> {
    ids: Option<Vec<Uuid>>,
    event_type: Option<Text<'a>>,
    tenant: Option<Uuid>,
    most: i32,
}

impl Wanted<'_> {
    fn replay(&self, session: &Session) -> Result<i64, OutboxError> {
        let now = clock::now();
        let Some(found) = self.find(session)? else { return Ok(0) };
        let replayed = session.run(&REPLAY, [Some(found), Some(moment(now))])?;
        Ok(replayed.count() as i64)
    }

    /// Locks them; their positions as a `tid[]`, if there are any.
    fn find(&self, session: &Session) -> Result<Value, OutboxError> {
        let statement = match (&self.ids, &self.event_type, &self.tenant) {
            (Some(_), ..) => &FIND_BY_ID,
            (None, Some(_), Some(_)) => &FIND_BY_TYPE_AND_TENANT,
            (None, Some(_), None) => &FIND_BY_TYPE,
            (None, None, Some(_)) => &FIND_BY_TENANT,
            (None, None, None) => &FIND,
        };
        let ids = self.ids.as_ref().map(|ids| array::of(UUIDOID, ids.iter().map(|id| Some(uuid(id)))));
        let found = session.run(
            statement,
            [
                Some(pg_sys::Datum::from(i64::from(self.most))),
                self.event_type.map(|name| name.datum()),
                self.tenant.as_ref().map(uuid),
                ids,
            ],
        )?;
        Ok(found.first().and_then(|row| row.value(1)))
    }
}

macro_rules! find {
    ($dead:literal, $filter:literal) => {
        Statement {
            sql: concat!(
                "SELECT pg_catalog.array_agg(found.ctid)
                 FROM (SELECT ctid FROM ONLY {schema}.outbox_event WHERE ",
                $dead,
                " AND status::pg_catalog.text OPERATOR(pg_catalog.=) 'dead'",
                $filter,
                " ORDER BY dead_at, id LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED) AS found"
            ),
            parameters: &[INT8OID, TEXTOID, UUIDOID, UUIDARRAYOID],
            seeks: true,
        }
    };
}

// A statement for each set of filters, since `$2 IS NULL OR …` is no condition that an index can take: these
// go along the index of the dead, whose entries have all that they ask for.
static FIND: Statement = find!("dead_at IS NOT NULL", "");
static FIND_BY_TYPE: Statement =
    find!("dead_at IS NOT NULL", " AND event_type::pg_catalog.text OPERATOR(pg_catalog.=) $2");
static FIND_BY_TENANT: Statement = find!("dead_at IS NOT NULL", " AND tenant_id OPERATOR(pg_catalog.=) $3");
static FIND_BY_TYPE_AND_TENANT: Statement = find!(
    "dead_at IS NOT NULL",
    " AND event_type::pg_catalog.text OPERATOR(pg_catalog.=) $2 AND tenant_id OPERATOR(pg_catalog.=) $3"
);
// By the primary key: without `dead_at IS NOT NULL` the index of the dead is out of the question. What is sorted
// is no more than the ids that were passed.
static FIND_BY_ID: Statement = find!(
    "id OPERATOR(pg_catalog.=) ANY ($4)",
    " AND ($2 IS NULL OR event_type::pg_catalog.text OPERATOR(pg_catalog.=) $2)
      AND ($3 IS NULL OR tenant_id OPERATOR(pg_catalog.=) $3)"
);

// The rows are locked, so nobody can have moved them since they were found.
static REPLAY: Statement = Statement {
    sql: "UPDATE ONLY {schema}.outbox_event
          SET status = 'pending', dead_at = NULL, forgiven_attempts = attempt_count, available_at = $2,
              updated_at = $2
          WHERE ctid OPERATOR(pg_catalog.=) ANY ($1)",
    parameters: &[TIDARRAYOID, TIMESTAMPTZOID],
    seeks: true,
};
