//! The backend's cursors, one for each way that it goes along a queue, kept for as long as the backend lives.

use crate::clock;
use crate::cursor::{Cost, Cursor};
use crate::filter::Filter;
use crate::instant::Instant;
use crate::order::Order;
use crate::plans::Session;
use crate::status::Status;
use crate::succession;
use pgrx::pg_sys::{self, SysCacheIdentifier};
use std::cell::RefCell;
use std::ffi::c_void;

/// What a cursor is for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    table: pg_sys::Oid,
    /// The file that holds the table: TRUNCATE and VACUUM FULL make a new one.
    file: pg_sys::Oid,
    way: Way,
}

/// What goes along the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// Claims with a lock_timeout (in microseconds) and a filter. A sweep is judged by the timeout of the claim
    /// that makes it: were cursors shared, a longer one could make every sweep that a shorter one needs.
    Claim { lock_timeout: i128, filter: Filter },
    /// Purges of the events with a status, in the order in which they ended.
    Purge(Status),
}

/// The queue that a call goes along.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    key: Key,
    pub index: pg_sys::Oid,
    /// The index that tells the head of an aggregate.
    pub heads: pg_sys::Oid,
}

/// More cursors than this are not kept: the one that was made first goes.
const KEPT: usize = 64;

thread_local! {
    static CURSORS: RefCell<Vec<(Key, Cursor)>> = const { RefCell::new(Vec::new()) };
}

impl Queue {
    /// The queue of the extension that is being called. None where the cursor is off: under row-level
    /// security, since what is visible may change with a setting; and from REPEATABLE READ on, since an old
    /// snapshot sees no new events.
    pub fn of(session: &Session, way: Way) -> Option<Self> {
        let (table, index) = (session.table(), session.index(c"outbox_event_claim_idx"));
        let missing = table == pg_sys::InvalidOid || index == pg_sys::InvalidOid;
        let off = missing || has_old_snapshot() || is_hidden(table);
        // Looked up by claims that ask for heads only.
        let heads = match &way {
            Way::Claim { filter, .. } if filter.ordered => session.index(c"outbox_event_aggregate_idx"),
            _ => pg_sys::InvalidOid,
        };
        (!off).then(|| Self { key: Key { table, file: file_of(table), way }, index, heads })
    }

    pub fn table(&self) -> pg_sys::Oid {
        self.key.table
    }

    /// Begins to go along at a moment: from where, and whether a sweep is due.
    pub fn begin(&self, now: Instant) -> (Order, bool) {
        self.cursor(now, |cursor| {
            cursor.begin(now);
            (cursor.position(), cursor.sweep_is_due(clock::steady()))
        })
    }

    /// Records a scan from there on, as `Cursor::scanned` does; whether a sweep would be cheap now.
    pub fn scanned(&self, now: Instant, last: Option<Order>, full: bool, cost: Cost) -> bool {
        self.cursor(now, |cursor| {
            cursor.scanned(last, full, cost, clock::steady());
            cursor.sweep_is_cheap()
        })
    }

    /// Reads or changes the queue's cursor.
    pub fn cursor<T>(&self, now: Instant, change: impl FnOnce(&mut Cursor) -> T) -> T {
        CURSORS.with_borrow_mut(|cursors| {
            let place = cursors.iter().position(|(key, _)| *key == self.key).unwrap_or_else(|| {
                if cursors.len() == KEPT {
                    cursors.remove(0);
                }
                cursors.push((self.key.clone(), Cursor::new(now, clock::steady())));
                cursors.len() - 1
            });
            change(&mut cursors[place].1)
        })
    }
}

/// Whether the transaction looks at one snapshot from its start to its end.
pub fn has_old_snapshot() -> bool {
    // SAFETY: a plain variable of this backend's one thread.
    unsafe { pg_sys::XactIsoLevel >= pg_sys::XACT_REPEATABLE_READ as i32 }
}

/// Whether row-level security is in force for the caller.
pub fn is_hidden(table: pg_sys::Oid) -> bool {
    // SAFETY: a catalog look-up; a table that is gone has no row-level security.
    let state = unsafe { pg_sys::check_enable_rls(table, pg_sys::InvalidOid, true) };
    state == pg_sys::CheckEnableRlsResult::RLS_ENABLED as i32
}

/// The file that holds the table.
fn file_of(table: pg_sys::Oid) -> pg_sys::Oid {
    // SAFETY: the cached catalog row is read while it is pinned, then released.
    unsafe {
        let row = pg_sys::SearchSysCache1(SysCacheIdentifier::RELOID as i32, pg_sys::Datum::from(table));
        if row.is_null() {
            return pg_sys::InvalidOid;
        }
        let file = (*pg_sys::heap_tuple_get_struct::<pg_sys::FormData_pg_class>(row)).relfilenode;
        pg_sys::ReleaseSysCache(row);
        file
    }
}

/// Has the cursors follow the ends of transactions; called once, when the library is loaded.
pub fn register() {
    // SAFETY: the callbacks live as long as the library, which is never unloaded.
    unsafe {
        pg_sys::RegisterXactCallback(Some(transaction_ended), std::ptr::null_mut());
        pg_sys::RegisterSubXactCallback(Some(subtransaction_ended), std::ptr::null_mut());
    }
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn transaction_ended(event: pg_sys::XactEvent::Type, _argument: *mut c_void) {
    use pg_sys::XactEvent::*;
    // A prepared transaction is left to another session to commit, or to roll back.
    let aborted = matches!(event, XACT_EVENT_ABORT | XACT_EVENT_PREPARE);
    if !aborted && event != XACT_EVENT_COMMIT {
        return;
    }
    for_each(|cursor| {
        if aborted {
            cursor.aborted();
        }
        cursor.ended();
    });
    if aborted {
        succession::forget();
    }
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn subtransaction_ended(
    event: pg_sys::SubXactEvent::Type,
    _child: pg_sys::SubTransactionId,
    _parent: pg_sys::SubTransactionId,
    _argument: *mut c_void,
) {
    if event == pg_sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB {
        for_each(Cursor::aborted);
        succession::forget();
    }
}

fn for_each(change: impl Fn(&mut Cursor)) {
    CURSORS.with_borrow_mut(|cursors| cursors.iter_mut().for_each(|(_, cursor)| change(cursor)));
}
