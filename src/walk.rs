//! A walk along the claim index within a budget of time, to see whether it holds anything to claim.
//!
//! A statement cannot be told to stop after some milliseconds: entries that are dead to everybody but a held
//! snapshot are passed by inside the scan, any number of them, before it returns a row. So the walk reads
//! the index itself, entry by entry. It only looks: nothing is locked, changed or handed out, and what it
//! finds is then claimed by the same statement as ever, under the caller's privileges.

use crate::datum::Text;
use crate::filter::Filter;
use crate::instant::Instant as Moment;
use crate::order::Order;
use crate::queue::Queue;
use crate::row::Column;
use crate::status::Status;
use pgrx::{FromDatum, pg_sys};
use std::ffi::c_int;
use std::time::{Duration, Instant};

/// What to walk, and what to look for.
pub struct Walk<'q> {
    pub queue: &'q Queue,
    pub filter: &'q Filter,
    pub from: Order,
    pub to: Order,
    /// Events that are due by now, pending or with a lease taken before this.
    pub expired_before: Moment,
    /// Stop when so many are found, or so much time is spent.
    pub wanted: usize,
    pub budget: Duration,
}

/// What was found.
#[derive(Debug)]
pub struct Findings {
    /// The first and the last event that can be claimed; in order, some of them may wait for an earlier one.
    pub span: Option<(Order, Order)>,
    pub stopped: Stopped,
    /// How many events can be claimed.
    pub claimable: usize,
    /// How many entries were walked.
    pub entries: usize,
}

/// Where the walk stopped, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    AtTheEnd,
    Enough(Order),
    OutOfTime(Order),
}

/// The clock is looked at once in so many entries.
const ENTRIES_PER_LOOK: usize = 32;

impl Walk<'_> {
    /// Walks. None when table or index are not as this extension made them, and so cannot be read here.
    pub fn run(&self) -> Option<Findings> {
        let mut scan = Scan::open(self)?;
        let findings = self.along(&mut scan);
        scan.close();
        Some(findings)
    }

    fn along(&self, scan: &mut Scan) -> Findings {
        let started = Instant::now();
        let mut findings = Findings { span: None, stopped: Stopped::AtTheEnd, claimable: 0, entries: 0 };
        while let Some(order) = scan.next().filter(|order| *order < self.to) {
            findings.entries += 1;
            if findings.claimable == self.wanted {
                findings.stopped = Stopped::Enough(order);
                break;
            }
            if findings.entries.is_multiple_of(ENTRIES_PER_LOOK) && started.elapsed() >= self.budget {
                findings.stopped = Stopped::OutOfTime(order);
                break;
            }
            if scan.is_claimable(self.filter, self.expired_before) {
                findings.span = Some((findings.span.map_or(order, |(first, _)| first), order));
                findings.claimable += 1;
            }
        }
        findings
    }
}

/// An open scan of the claim index. Not closed on drop: when an error unwinds, PostgreSQL closes it.
struct Scan {
    table: pg_sys::Relation,
    index: pg_sys::Relation,
    snapshot: pg_sys::Snapshot,
    scan: pg_sys::IndexScanDesc,
    slot: *mut pg_sys::TupleTableSlot,
    /// The key that the scan starts at, which the scan only points to.
    _start: Box<StartKey>,
}

const LOCK: pg_sys::LOCKMODE = pg_sys::AccessShareLock as pg_sys::LOCKMODE;

impl Scan {
    fn open(walk: &Walk) -> Option<Self> {
        // SAFETY: the relations are opened, and locked, before anything is read from them, and the scan is
        // made as nodeIndexscan.c makes one. The snapshot is registered for as long as the scan is open.
        unsafe {
            let table = pg_sys::table_open(walk.queue.table(), LOCK);
            let index = pg_sys::index_open(walk.queue.index, LOCK);
            if !is_claim_index(index, walk.queue.table()) || Column::altered_in((*table).rd_att).is_some() {
                pg_sys::index_close(index, LOCK);
                pg_sys::table_close(table, LOCK);
                return None;
            }
            let snapshot = pg_sys::RegisterSnapshot(pg_sys::GetTransactionSnapshot());
            #[cfg(feature = "pg18")]
            let scan = pg_sys::index_beginscan(table, index, snapshot, std::ptr::null_mut(), 1, 0);
            #[cfg(not(feature = "pg18"))]
            let scan = pg_sys::index_beginscan(table, index, snapshot, 1, 0);
            // The entries' keys are wanted, also of events that nobody can see any more.
            (*scan).xs_want_itup = true;
            let mut start = StartKey::new(index, walk.from);
            pg_sys::index_rescan(scan, start.header(), 1, std::ptr::null_mut(), 0);
            let slot = pg_sys::table_slot_create(table, std::ptr::null_mut());
            Some(Self { table, index, snapshot, scan, slot, _start: start })
        }
    }

    /// The key of the next entry, whether its event is visible or not.
    fn next(&mut self) -> Option<Order> {
        loop {
            // SAFETY: the scan is open, and keeps the entry until the next one is asked for.
            unsafe {
                let tid = pg_sys::index_getnext_tid(self.scan, pg_sys::ScanDirection::ForwardScanDirection);
                if tid.is_null() {
                    return None;
                }
                let entry = (*self.scan).xs_itup;
                // A user may have dropped a NOT NULL: an event without a place in the queue is not claimed.
                if u32::from((*entry).t_info) & pg_sys::INDEX_NULL_MASK == 0 {
                    return Some(key_of(entry));
                }
            }
        }
    }

    /// Whether the entry's event is visible and admitted, and pending or with a lease taken before a moment.
    fn is_claimable(&mut self, filter: &Filter, expired_before: Moment) -> bool {
        // SAFETY: the slot belongs to the table, whose columns src/row.rs numbers; it is filled up to the last
        // of those that are asked for here.
        unsafe {
            if !pg_sys::index_fetch_heap(self.scan, self.slot) {
                return false;
            }
            pg_sys::slot_getsomeattrs_int(self.slot, Column::LockedAt as c_int);
        }
        let waits = match self.text(Column::Status).and_then(|text| Status::parse(text.bytes())) {
            Some(Status::Pending) => true,
            Some(Status::Processing) => {
                let since: Option<Moment> = self.value(Column::LockedAt);
                since.is_none_or(|since| since < expired_before)
            }
            _ => false,
        };
        waits
            && self.text(Column::EventType).is_some_and(|event_type| {
                filter.admits(event_type.bytes(), self.value(Column::TenantId).as_ref())
            })
    }

    fn text(&self, column: Column) -> Option<Text<'_>> {
        self.value(column)
    }

    /// A column of the row that the slot holds.
    fn value<T: FromDatum>(&self, column: Column) -> Option<T> {
        let at = column as usize - 1;
        // SAFETY: `is_claimable` has filled the slot up to here; the type is the column's, which `open` checks.
        unsafe { T::from_datum(*(*self.slot).tts_values.add(at), *(*self.slot).tts_isnull.add(at)) }
    }

    fn close(self) {
        // SAFETY: what `open` opened, in the opposite order. The locks are kept to the transaction's end, as
        // a statement keeps them.
        unsafe {
            pg_sys::index_endscan(self.scan);
            pg_sys::ExecDropSingleTupleTableSlot(self.slot);
            pg_sys::UnregisterSnapshot(self.snapshot);
            pg_sys::index_close(self.index, pg_sys::NoLock as pg_sys::LOCKMODE);
            pg_sys::table_close(self.table, pg_sys::NoLock as pg_sys::LOCKMODE);
        }
    }
}

/// The columns of the claim index; `key_of` reads entries by their places.
const KEY_COLUMNS: [i16; 3] = [Column::AvailableAt as i16, Column::CreatedAt as i16, Column::Id as i16];

/// Whether the index has the shape that is read here, ascending and over unfinished rows: a user may have put
/// another in its place.
///
/// # Safety
/// The index is open.
unsafe fn is_claim_index(index: pg_sys::Relation, table: pg_sys::Oid) -> bool {
    // SAFETY: an open index has both catalog rows, and as many key columns as it says.
    unsafe {
        let shape = (*index).rd_index;
        (*shape).indrelid == table
            && (*shape).indisvalid
            && (*shape).indnatts == 3
            && (*shape).indkey.values.as_slice(3) == KEY_COLUMNS
            && (*(*index).rd_rel).relam == pg_sys::BTREE_AM_OID
            && (0..3).all(|column| *(*index).rd_indoption.add(column) == 0)
            && columns_of_predicate(index) == [Column::CompletedAt as i32, Column::DeadAt as i32]
    }
}

/// The columns that the index's predicate speaks of, in ascending order.
///
/// # Safety
/// The index is open.
unsafe fn columns_of_predicate(index: pg_sys::Relation) -> Vec<i32> {
    // A set of columns holds their numbers above this one, since there are negative ones.
    let offset = pg_sys::FirstLowInvalidHeapAttributeNumber;
    // SAFETY: the predicate is a copy, and the set is one too; both live in the call's memory context.
    unsafe {
        let mut columns = std::ptr::null_mut();
        pg_sys::pull_varattnos(pg_sys::RelationGetIndexPredicate(index).cast(), 1, &mut columns);
        let mut numbers = Vec::new();
        let mut member = pg_sys::bms_next_member(columns, -1);
        while member >= 0 {
            numbers.push(member + offset);
            member = pg_sys::bms_next_member(columns, member);
        }
        numbers
    }
}

/// The key of an entry none of whose columns is null, so that they lie behind the entry's header of eight bytes
/// one after the other, eight, eight and sixteen bytes long.
///
/// # Safety
/// The entry is one of the claim index.
unsafe fn key_of(entry: pg_sys::IndexTuple) -> Order {
    // SAFETY: entries are aligned to eight bytes.
    unsafe {
        let key = entry.cast::<u8>().add(8);
        Order {
            available_at: Moment::from_micros(key.cast::<i64>().read()),
            created_at: Moment::from_micros(key.add(8).cast::<i64>().read()),
            id: key.add(16).cast::<[u8; 16]>().read(),
        }
    }
}

/// The condition `(available_at, created_at, id) >= from`, as a scan takes it.
struct StartKey {
    from: Order,
    members: [pg_sys::ScanKeyData; 3],
    header: pg_sys::ScanKeyData,
}

impl StartKey {
    /// # Safety
    /// The index is the claim index, and open.
    unsafe fn new(index: pg_sys::Relation, from: Order) -> Box<Self> {
        let mut key = Box::new(Self { from, members: Default::default(), header: Default::default() });
        let values = [
            pg_sys::Datum::from(key.from.available_at.micros()),
            pg_sys::Datum::from(key.from.created_at.micros()),
            pg_sys::Datum::from(key.from.id.as_ptr()),
        ];
        let types = [pg_sys::TIMESTAMPTZOID, pg_sys::TIMESTAMPTZOID, pg_sys::UUIDOID];
        for (at, (value, of)) in values.into_iter().zip(types).enumerate() {
            let last = if at == 2 { pg_sys::SK_ROW_END } else { 0 };
            // SAFETY: the index has three key columns of these types.
            unsafe { fill_member(&mut key.members[at], index, at, of, pg_sys::SK_ROW_MEMBER | last, value) };
        }
        key.header.sk_flags = pg_sys::SK_ROW_HEADER as c_int;
        key.header.sk_attno = 1;
        key.header.sk_strategy = pg_sys::BTGreaterEqualStrategyNumber as pg_sys::StrategyNumber;
        key.header.sk_argument = pg_sys::Datum::from(key.members.as_mut_ptr());
        key
    }

    fn header(&mut self) -> *mut pg_sys::ScanKeyData {
        &mut self.header
    }
}

/// # Safety
/// The index is open and has a column `at` (from 0) of the type.
unsafe fn fill_member(
    key: &mut pg_sys::ScanKeyData,
    index: pg_sys::Relation,
    at: usize,
    of: pg_sys::Oid,
    flags: u32,
    value: pg_sys::Datum,
) {
    const BTREE_ORDER_PROC: i16 = 1;
    // SAFETY: the operator family of an index column knows how its type is ordered.
    unsafe {
        let family = *(*index).rd_opfamily.add(at);
        let compare = pg_sys::get_opfamily_proc(family, of, of, BTREE_ORDER_PROC);
        pg_sys::ScanKeyEntryInitialize(
            key,
            flags as c_int,
            at as pg_sys::AttrNumber + 1,
            pg_sys::BTGreaterEqualStrategyNumber as pg_sys::StrategyNumber,
            of,
            pg_sys::InvalidOid,
            compare,
            value,
        );
    }
}
