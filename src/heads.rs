//! Whether an event that a walk meets is the head of its aggregate: the first unfinished one, by (created_at, id).

use crate::index_scan::{IndexScan, RowKey};
use crate::row::Column;
use pgrx::pg_sys;

/// The index by aggregate, open beside the walk.
pub struct Heads {
    scan: IndexScan,
    aggregate_id: pg_sys::ScanKeyData,
    aggregate_type: pg_sys::ScanKeyData,
    before: RowKey,
}

impl Heads {
    /// None where the index is not there, or not as this extension made it: then a walk cannot tell.
    ///
    /// # Safety
    /// As for `IndexScan::open`.
    pub unsafe fn open(
        table: pg_sys::Relation,
        index: pg_sys::Oid,
        snapshot: pg_sys::Snapshot,
    ) -> Option<Self> {
        use Column::{AggregateId, AggregateType, CreatedAt, Id};
        if index == pg_sys::InvalidOid {
            return None;
        }
        // SAFETY: as the caller vouches.
        let scan = unsafe {
            IndexScan::open(table, index, &[AggregateId, AggregateType, CreatedAt, Id], 3, snapshot)?
        };
        Some(Self {
            aggregate_id: scan.equals(0, pg_sys::UUIDOID),
            aggregate_type: scan.equals(1, pg_sys::TEXTOID),
            before: scan.compares(
                2,
                pg_sys::BTLessStrategyNumber,
                &[pg_sys::TIMESTAMPTZOID, pg_sys::UUIDOID],
            ),
            scan,
        })
    }

    /// Whether nothing unfinished of its aggregate comes before the event that a walk has fetched.
    pub fn has(&mut self, event: &IndexScan) -> bool {
        let columns = [Column::AggregateId, Column::AggregateType, Column::CreatedAt, Column::Id];
        let [Some(id), Some(of), Some(created_at), Some(event)] = columns.map(|column| event.datum(column))
        else {
            return true;
        };
        self.aggregate_id.sk_argument = id;
        self.aggregate_type.sk_argument = of;
        let before = self.before.with(&[created_at, event]);
        self.scan.start(&mut [self.aggregate_id, self.aggregate_type, before]);
        // Backwards from the event: the entry just before it answers, unless it is that of a finished one.
        while self.scan.next(pg_sys::ScanDirection::BackwardScanDirection) {
            if self.scan.fetch() {
                return false;
            }
        }
        true
    }

    pub fn close(self) {
        self.scan.close();
    }
}
