//! A scan of one of `outbox_event`'s own indexes below SPI, entry by entry. It only looks: nothing is locked or
//! changed.

use crate::row::Column;
use pgrx::{FromDatum, pg_sys};
use std::ffi::c_int;

/// An open scan. Not closed on drop: when an error unwinds, PostgreSQL closes it.
pub struct IndexScan {
    index: pg_sys::Relation,
    scan: pg_sys::IndexScanDesc,
    slot: *mut pg_sys::TupleTableSlot,
}

const LOCK: pg_sys::LOCKMODE = pg_sys::AccessShareLock as pg_sys::LOCKMODE;

impl IndexScan {
    /// Opens a scan with so many keys; none where the index is not as this extension made it, ascending by these
    /// columns and over unfinished rows: a user may have put another in its place.
    ///
    /// # Safety
    /// The table is open and locked, and stays so for as long as the scan, as the snapshot stays registered. Its
    /// columns are as `Column::altered_in` wants them.
    pub unsafe fn open(
        table: pg_sys::Relation,
        index: pg_sys::Oid,
        columns: &[Column],
        keys: c_int,
        snapshot: pg_sys::Snapshot,
    ) -> Option<Self> {
        // SAFETY: the scan is made as nodeIndexscan.c makes one, of an index that is open, and locked.
        unsafe {
            let index = pg_sys::index_open(index, LOCK);
            if !has_shape(index, (*table).rd_id, columns) {
                pg_sys::index_close(index, LOCK);
                return None;
            }
            #[cfg(feature = "pg18")]
            let scan = pg_sys::index_beginscan(table, index, snapshot, std::ptr::null_mut(), keys, 0);
            #[cfg(not(feature = "pg18"))]
            let scan = pg_sys::index_beginscan(table, index, snapshot, keys, 0);
            let slot = pg_sys::table_slot_create(table, std::ptr::null_mut());
            Some(Self { index, scan, slot })
        }
    }

    /// Has the scan keep each entry, also those of events that nobody can see any more.
    pub fn keep_entries(&mut self) {
        // SAFETY: the scan is open.
        unsafe { (*self.scan).xs_want_itup = true };
    }

    /// Starts over with other keys, which the scan copies; what they point to must outlive it.
    pub fn start(&mut self, keys: &mut [pg_sys::ScanKeyData]) {
        // SAFETY: the scan is open, and was opened for so many keys.
        unsafe {
            pg_sys::index_rescan(self.scan, keys.as_mut_ptr(), keys.len() as c_int, std::ptr::null_mut(), 0)
        };
    }

    /// Goes to the next entry, whether its event is visible or not; false when there is none.
    pub fn next(&mut self, direction: pg_sys::ScanDirection::Type) -> bool {
        // SAFETY: the scan is open.
        unsafe { !pg_sys::index_getnext_tid(self.scan, direction).is_null() }
    }

    /// The entry, which is kept until the next one is asked for.
    pub fn entry(&self) -> pg_sys::IndexTuple {
        // SAFETY: the scan is open and was told to keep entries.
        unsafe { (*self.scan).xs_itup }
    }

    /// Whether the entry's event is visible.
    pub fn fetch(&mut self) -> bool {
        // SAFETY: the slot belongs to the table of the scan, which stands at an entry.
        unsafe { pg_sys::index_fetch_heap(self.scan, self.slot) }
    }

    /// A column of the event that was fetched last, as PostgreSQL holds it; `None` for NULL.
    pub fn datum(&self, column: Column) -> Option<pg_sys::Datum> {
        let at = column as usize - 1;
        // SAFETY: the slot holds a row of the table, which has the column, and keeps it until the next one.
        unsafe {
            if (*self.slot).tts_nvalid <= at as pg_sys::AttrNumber {
                pg_sys::slot_getsomeattrs_int(self.slot, column as c_int);
            }
            (!*(*self.slot).tts_isnull.add(at)).then(|| *(*self.slot).tts_values.add(at))
        }
    }

    /// The same as a Rust type that reads the column's SQL type.
    pub fn value<T: FromDatum>(&self, column: Column) -> Option<T> {
        // SAFETY: callers name the column with its type in sql/table.sql, which `open` wants it to have.
        self.datum(column).and_then(|datum| unsafe { T::from_datum(datum, false) })
    }

    /// A condition on one of the index's columns (from 0).
    pub fn equals(&self, at: usize, of: pg_sys::Oid) -> pg_sys::ScanKeyData {
        let mut key = pg_sys::ScanKeyData::default();
        // SAFETY: the index is open and has the column, whose operator family knows the type's equality.
        unsafe {
            let family = *(*self.index).rd_opfamily.add(at);
            let equal = pg_sys::BTEqualStrategyNumber;
            let operator = pg_sys::get_opfamily_member(family, of, of, equal as i16);
            pg_sys::ScanKeyEntryInitialize(
                &mut key,
                0,
                at as pg_sys::AttrNumber + 1,
                equal as pg_sys::StrategyNumber,
                of,
                *(*self.index).rd_indcollation.add(at),
                pg_sys::get_opcode(operator),
                pg_sys::Datum::null(),
            );
        }
        key
    }

    /// A comparison of several of the index's columns, from one (from 0) on, with as many values, of these types.
    pub fn compares(&self, from: usize, strategy: u32, types: &[pg_sys::Oid]) -> RowKey {
        const BTREE_ORDER_PROC: i16 = 1;
        let mut members = vec![pg_sys::ScanKeyData::default(); types.len()];
        for (member, &of) in types.iter().enumerate() {
            let last = if member + 1 == types.len() { pg_sys::SK_ROW_END } else { 0 };
            let at = from + member;
            // SAFETY: the index is open and has the columns, whose operator families know how types are ordered.
            unsafe {
                let family = *(*self.index).rd_opfamily.add(at);
                pg_sys::ScanKeyEntryInitialize(
                    &mut members[member],
                    (pg_sys::SK_ROW_MEMBER | last) as c_int,
                    at as pg_sys::AttrNumber + 1,
                    strategy as pg_sys::StrategyNumber,
                    of,
                    pg_sys::InvalidOid,
                    pg_sys::get_opfamily_proc(family, of, of, BTREE_ORDER_PROC),
                    pg_sys::Datum::null(),
                );
            }
        }
        RowKey { members, from, strategy }
    }

    pub fn close(self) {
        // SAFETY: what `open` opened, in the opposite order. The lock is kept to the transaction's end, as a
        // statement keeps it.
        unsafe {
            pg_sys::index_endscan(self.scan);
            pg_sys::ExecDropSingleTupleTableSlot(self.slot);
            pg_sys::index_close(self.index, pg_sys::NoLock as pg_sys::LOCKMODE);
        }
    }
}

/// A row comparison such as `(a, b) >= (x, y)`, as a scan takes it: a header that points to its members.
pub struct RowKey {
    members: Vec<pg_sys::ScanKeyData>,
    from: usize,
    strategy: u32,
}

impl RowKey {
    /// The key with these values, one for each member. It points to this, and to what the values point to.
    pub fn with(&mut self, values: &[pg_sys::Datum]) -> pg_sys::ScanKeyData {
        for (member, value) in self.members.iter_mut().zip(values) {
            member.sk_argument = *value;
        }
        pg_sys::ScanKeyData {
            sk_flags: pg_sys::SK_ROW_HEADER as c_int,
            sk_attno: self.from as pg_sys::AttrNumber + 1,
            sk_strategy: self.strategy as pg_sys::StrategyNumber,
            sk_argument: pg_sys::Datum::from(self.members.as_mut_ptr()),
            ..Default::default()
        }
    }
}

/// # Safety
/// The index is open.
unsafe fn has_shape(index: pg_sys::Relation, table: pg_sys::Oid, columns: &[Column]) -> bool {
    // SAFETY: an open index has both catalog rows, and as many key columns as it says.
    unsafe {
        let shape = (*index).rd_index;
        let numbers = columns.iter().map(|&column| column as i16);
        (*shape).indrelid == table
            && (*shape).indisvalid
            && (*shape).indnatts as usize == columns.len()
            && (*shape).indkey.values.as_slice(columns.len()).iter().copied().eq(numbers)
            && (*(*index).rd_rel).relam == pg_sys::BTREE_AM_OID
            && (0..columns.len()).all(|column| *(*index).rd_indoption.add(column) == 0)
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
