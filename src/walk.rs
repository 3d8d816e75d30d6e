//! A walk along the claim index within a budget of time, to see whether it holds anything to claim.
//!
//! A statement cannot be told to stop after some milliseconds: entries that are dead to everybody but a held
//! snapshot are passed by inside the scan, any number of them, before it returns a row. So the walk reads
//! the index itself, entry by entry. It only looks: nothing is locked, changed or handed out, and what it
//! finds is then claimed by the same statement as ever, under the caller's privileges.

use crate::datum::Text;
use crate::filter::Filter;
use crate::heads::Heads;
use crate::index_scan::IndexScan;
use crate::instant::Instant as Moment;
use crate::order::Order;
use crate::queue::Queue;
use crate::row::Column;
use crate::status::Status;
use pgrx::{Uuid, pg_sys};
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
    /// The first and the last event that can be claimed; in order, it may have to wait for one in flight.
    pub span: Option<(Order, Order)>,
    pub stopped: Stopped,
    /// How many events can be claimed.
    pub claimable: usize,
    /// How many entries were walked, in both indexes.
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

/// To ask whether an event is the head of its aggregate takes as long as to walk so many entries.
const ENTRIES_PER_HEAD: usize = 4;

/// The columns of the claim index; `key_of` reads entries by their places.
const COLUMNS: [Column; 3] = [Column::AvailableAt, Column::CreatedAt, Column::Id];

const LOCK: pg_sys::LOCKMODE = pg_sys::AccessShareLock as pg_sys::LOCKMODE;

impl Walk<'_> {
    /// Walks. None when table or index are not as this extension made them, and so cannot be read here.
    pub fn run(&self) -> Option<Findings> {
        // SAFETY: the table is opened, and locked, before anything is read from it; the lock is kept to the
        // transaction's end, as a statement keeps it. The snapshot is registered for as long as scans are open.
        unsafe {
            let table = pg_sys::table_open(self.queue.table(), LOCK);
            let snapshot = pg_sys::RegisterSnapshot(pg_sys::GetTransactionSnapshot());
            let findings = self.in_table(table, snapshot);
            pg_sys::UnregisterSnapshot(snapshot);
            pg_sys::table_close(table, pg_sys::NoLock as pg_sys::LOCKMODE);
            findings
        }
    }

    /// # Safety
    /// The table is open and locked, the snapshot registered.
    unsafe fn in_table(&self, table: pg_sys::Relation, snapshot: pg_sys::Snapshot) -> Option<Findings> {
        // SAFETY: as the caller vouches, and the columns are looked at first.
        let (mut events, mut heads) = unsafe {
            if Column::altered_in((*table).rd_att).is_some() {
                return None;
            }
            let events = IndexScan::open(table, self.queue.index, &COLUMNS, 1, snapshot)?;
            let ordered = self.filter.ordered.then(|| Heads::open(table, self.queue.heads, snapshot));
            (events, ordered.flatten())
        };
        let findings = self.along(&mut events, &mut heads);
        events.close();
        if let Some(heads) = heads {
            heads.close();
        }
        Some(findings)
    }

    fn along(&self, events: &mut IndexScan, heads: &mut Option<Heads>) -> Findings {
        let started = Instant::now();
        let mut findings = Findings { span: None, stopped: Stopped::AtTheEnd, claimable: 0, entries: 0 };
        events.keep_entries();
        let types = [pg_sys::TIMESTAMPTZOID, pg_sys::TIMESTAMPTZOID, pg_sys::UUIDOID];
        let mut start = events.compares(0, pg_sys::BTGreaterEqualStrategyNumber, &types);
        let from = [
            pg_sys::Datum::from(self.from.available_at.micros()),
            pg_sys::Datum::from(self.from.created_at.micros()),
            pg_sys::Datum::from(self.from.id.as_ptr()),
        ];
        events.start(&mut [start.with(&from)]);
        for walked in 1.. {
            let Some(order) = next(events).filter(|order| *order < self.to) else { break };
            findings.entries += 1;
            if findings.span.is_some_and(|(_, last)| order == last) {
                // Another version of the event that was found last: to stop here would be to find it again.
                continue;
            }
            if findings.claimable == self.wanted {
                findings.stopped = Stopped::Enough(order);
                break;
            }
            if walked % ENTRIES_PER_LOOK == 0 {
                pg_sys::check_for_interrupts!();
                if started.elapsed() >= self.budget {
                    findings.stopped = Stopped::OutOfTime(order);
                    break;
                }
            }
            if self.is_claimable(events, heads, &mut findings) {
                findings.span = Some((findings.span.map_or(order, |(first, _)| first), order));
                findings.claimable += 1;
            }
        }
        findings
    }

    /// Whether the entry's event is visible and admitted, and pending (in order: and the head of its aggregate) or
    /// with a lease that has expired.
    fn is_claimable(
        &self,
        events: &mut IndexScan,
        heads: &mut Option<Heads>,
        findings: &mut Findings,
    ) -> bool {
        if !events.fetch() {
            return false;
        }
        let status = events.value::<Text>(Column::Status).and_then(|text| Status::parse(text.bytes()));
        let waits = match status {
            Some(Status::Pending) => true,
            Some(Status::Processing) => {
                let since: Option<Moment> = events.value(Column::LockedAt);
                since.is_none_or(|since| since < self.expired_before)
            }
            _ => false,
        };
        if !waits || !self.admits(events) {
            return false;
        }
        match heads {
            Some(heads) if status == Some(Status::Pending) => {
                findings.entries += ENTRIES_PER_HEAD;
                heads.has(events)
            }
            _ => true,
        }
    }

    fn admits(&self, event: &IndexScan) -> bool {
        event.value::<Text>(Column::EventType).is_some_and(|event_type| {
            let tenant: Option<Uuid> = event.value(Column::TenantId);
            self.filter.admits(event_type.bytes(), tenant.as_ref())
        })
    }
}

/// The key of the next entry, whether its event is visible or not.
fn next(events: &mut IndexScan) -> Option<Order> {
    while events.next(pg_sys::ScanDirection::ForwardScanDirection) {
        let entry = events.entry();
        // SAFETY: an entry of the claim index, which the scan keeps. A user may have dropped a NOT NULL: an event
        // without a place in the queue is not claimed.
        unsafe {
            if u32::from((*entry).t_info) & pg_sys::INDEX_NULL_MASK == 0 {
                return Some(key_of(entry));
            }
        }
    }
    None
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
