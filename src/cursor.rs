//! The scan cursor: where a backend's claims start, and when they look behind themselves.
//!
//! Under a held snapshot the entries of finished events cannot be removed from the claim index, and a scan
//! from its start walks them all, again at each claim. A backend that remembers where its last scan found
//! live work, and starts there, does not. The cursor is a hint: what it passes over is found by a **sweep**
//! from the start, in slices, so that nothing is passed over for longer than the time between sweeps.
//!
//! This is the arithmetic alone: no PostgreSQL, and time is handed in.

use crate::instant::Instant;
use crate::order::Order;
use std::time::Duration;

/// The cursor stays this far behind the clock (in microseconds): events whose transactions commit in the
/// order of their clock readings but for this much are not passed over.
const LAG: i128 = 50_000;

/// A sweep that walks fewer entries than this, which takes about a millisecond, follows at once when a claim
/// comes back short. Entries are counted, since on a busy machine any measured time can come out long.
const CHEAP: usize = 2_000;

/// Sweeps are at least this far apart otherwise, and far enough to take a twentieth of the time.
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_PER_COST: u32 = 20;

/// The slices of a sweep that is under way take this share of the time at the most, but never less than a glance.
const SHARE: u32 = 10;
const GLANCE: Duration = Duration::from_micros(200);

/// One backend's place in one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// Claims start here; `Order::FIRST` until a scan has been.
    position: Order,
    /// The position to go back to when the transaction aborts, once a claim has moved it.
    before_transaction: Option<Order>,
    /// The latest reading of the wall clock.
    clock: Instant,
    sweep: Sweep,
    /// Whose turn it was, at the last claim that takes from elsewhere than the queue too.
    turn: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sweep {
    /// Where the sweep that is under way goes on.
    resume: Option<Order>,
    /// What that sweep has cost so far, and when its last slice ended.
    spent: Cost,
    sliced: Duration,
    /// What the last whole sweep cost, and when it ended, on a clock that never steps back.
    cost: Cost,
    ended: Duration,
}

/// What a sweep, or a slice of one, costs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    pub entries: usize,
    pub time: Duration,
}

impl Sweep {
    fn ended(at: Duration, cost: Cost) -> Self {
        Self { resume: None, spent: Cost::default(), sliced: at, cost, ended: at }
    }
}

impl Cursor {
    /// A cursor that has seen nothing; `at` is the steady clock.
    pub fn new(now: Instant, at: Duration) -> Self {
        let sweep = Sweep::ended(at, Cost::default());
        Self { position: Order::FIRST, before_transaction: None, clock: now, sweep, turn: 0 }
    }

    /// Begins a claim. When the wall clock has stepped back, new events sort before the position: the cursor
    /// starts over.
    pub fn begin(&mut self, now: Instant) {
        if now < self.clock {
            self.position = Order::FIRST;
            self.before_transaction = None;
            self.sweep.resume = None;
        }
        self.clock = now;
    }

    /// Whether it is the turn of what a claim takes from elsewhere than the queue: three times out of four.
    pub fn takes_turns(&mut self) -> bool {
        self.turn = (self.turn + 1) % 4;
        self.turn != 0
    }

    /// Where the claim's scan starts.
    pub fn position(&self) -> Order {
        self.position
    }

    /// Records a scan from the position on: `last` is the last event found, `full` whether the scan ended
    /// because it had found enough. `cost` is what it took to walk, where that was told apart from taking.
    pub fn scanned(&mut self, last: Option<Order>, full: bool, cost: Cost, at: Duration) {
        if self.position == Order::FIRST {
            // It started where sweeps start, so it was one.
            self.sweep = Sweep::ended(at, cost);
        }
        let reached = if full { last } else { Some(Order::start_of(self.clock)) };
        let held_back = Order::start_of(self.clock.plus(-LAG));
        let position = reached.unwrap_or(self.position).min(held_back).max(self.position);
        if position != self.position {
            self.before_transaction.get_or_insert(self.position);
            self.position = position;
        }
    }

    /// Whether a claim sweeps before it scans: one is under way, or it is time for the next.
    pub fn sweep_is_due(&self, at: Duration) -> bool {
        let pause = PAUSE.max(self.sweep.cost.time * PAUSE_PER_COST);
        self.has_passed() && (self.sweep.resume.is_some() || at.saturating_sub(self.sweep.ended) >= pause)
    }

    /// Whether a claim that came back short sweeps at once.
    pub fn sweep_is_cheap(&self) -> bool {
        self.has_passed() && self.sweep.resume.is_none() && self.sweep.cost.entries < CHEAP
    }

    /// Where the next slice of a sweep starts; it ends at the position.
    pub fn sweep_from(&self) -> Order {
        self.sweep.resume.unwrap_or(Order::FIRST)
    }

    /// How long the next slice may take: the first of a sweep as long as any, the others their share of the time
    /// that has passed, so that a busy worker is hardly slowed.
    pub fn slice(&self, longest: Duration, at: Duration) -> Duration {
        match self.sweep.resume {
            None => longest,
            Some(_) => (at.saturating_sub(self.sweep.sliced) / SHARE).max(GLANCE).min(longest),
        }
    }

    /// Records a slice: it stopped at `stopped` for lack of time or of room, or else reached the position.
    pub fn swept(&mut self, stopped: Option<Order>, cost: Cost, at: Duration) {
        self.sweep.spent.entries += cost.entries;
        self.sweep.spent.time += cost.time;
        self.sweep.resume = stopped;
        self.sweep.sliced = at;
        if stopped.is_none() {
            self.sweep = Sweep::ended(at, self.sweep.spent);
        }
    }

    /// The transaction, or a part of it, has aborted, or is left to others to end: what its claims took may
    /// become pending again behind the position.
    pub fn aborted(&mut self) {
        if let Some(before) = self.before_transaction {
            self.position = before;
        }
    }

    /// The transaction has ended.
    pub fn ended(&mut self) {
        self.before_transaction = None;
    }

    /// Whether there is anything behind the position.
    fn has_passed(&self) -> bool {
        self.position != Order::FIRST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const NO_TIME: Duration = Duration::ZERO;

    fn taking(time: Duration) -> Cost {
        Cost { entries: 1, time }
    }

    fn at(seconds: i64) -> Instant {
        Instant::from_micros(seconds * 1_000_000)
    }

    fn event(seconds: i64, id: u8) -> Order {
        Order { available_at: at(seconds), created_at: at(seconds), id: [id; 16] }
    }

    /// A cursor at second 100 that has scanned everything, and swept once at the given cost.
    fn swept_once(cost: Cost) -> Cursor {
        let mut cursor = Cursor::new(at(100), NO_TIME);
        cursor.scanned(None, false, Cost::default(), NO_TIME);
        cursor.ended();
        cursor.swept(None, cost, NO_TIME);
        cursor
    }

    #[test]
    fn a_full_scan_moves_to_the_last_event_found() {
        let mut cursor = Cursor::new(at(100), NO_TIME);
        assert_eq!(cursor.position(), Order::FIRST);
        cursor.scanned(Some(event(10, 3)), true, Cost::default(), NO_TIME);
        assert_eq!(cursor.position(), event(10, 3));
    }

    #[test]
    fn a_short_scan_moves_to_the_clock_but_for_the_lag() {
        let cursor = swept_once(taking(MS));
        assert_eq!(cursor.position(), Order::start_of(at(100).plus(-LAG)));
    }

    #[test]
    fn events_within_the_lag_are_never_passed() {
        let mut cursor = Cursor::new(at(100), NO_TIME);
        cursor.scanned(Some(event(100, 1)), true, Cost::default(), NO_TIME);
        assert_eq!(cursor.position(), Order::start_of(at(100).plus(-LAG)));
    }

    #[test]
    fn the_position_never_goes_back_by_itself() {
        let mut cursor = swept_once(taking(MS));
        let before = cursor.position();
        cursor.scanned(Some(event(50, 1)), true, Cost::default(), NO_TIME);
        assert_eq!(cursor.position(), before);
    }

    #[test]
    fn an_abort_goes_back_to_where_the_transaction_began() {
        let mut cursor = Cursor::new(at(100), NO_TIME);
        cursor.scanned(Some(event(10, 1)), true, Cost::default(), NO_TIME);
        cursor.ended();
        cursor.scanned(Some(event(20, 1)), true, Cost::default(), NO_TIME);
        cursor.scanned(Some(event(30, 1)), true, Cost::default(), NO_TIME);
        cursor.aborted();
        assert_eq!(cursor.position(), event(10, 1));
        // A savepoint that is rolled back does not end the transaction: its later claims may abort too.
        cursor.scanned(Some(event(40, 1)), true, Cost::default(), NO_TIME);
        cursor.aborted();
        cursor.ended();
        assert_eq!(cursor.position(), event(10, 1));
    }

    #[test]
    fn a_commit_keeps_the_position() {
        let mut cursor = Cursor::new(at(100), NO_TIME);
        cursor.scanned(Some(event(10, 1)), true, Cost::default(), NO_TIME);
        cursor.ended();
        cursor.aborted();
        assert_eq!(cursor.position(), event(10, 1));
    }

    #[test]
    fn a_clock_that_steps_back_starts_over() {
        let mut cursor = swept_once(taking(MS));
        cursor.begin(at(99));
        assert_eq!(cursor.position(), Order::FIRST);
    }

    #[test]
    fn sweeps_keep_their_distance_in_time_and_in_cost() {
        for (cost, due) in [(NO_TIME, 200), (MS, 200), (10 * MS, 200), (11 * MS, 220), (500 * MS, 10_000)] {
            let cursor = swept_once(taking(cost));
            assert!(!cursor.sweep_is_due((due - 1) * MS), "{cost:?}");
            assert!(cursor.sweep_is_due(due * MS), "{cost:?}");
        }
    }

    #[test]
    fn a_sweep_that_is_under_way_goes_on_at_each_claim() {
        let mut cursor = swept_once(taking(10 * MS));
        assert_eq!(cursor.sweep_from(), Order::FIRST);
        cursor.swept(Some(event(5, 1)), taking(3 * MS), 200 * MS);
        assert!(cursor.sweep_is_due(200 * MS));
        assert_eq!(cursor.sweep_from(), event(5, 1));
        cursor.swept(None, taking(4 * MS), 210 * MS);
        assert_eq!(cursor.sweep_from(), Order::FIRST);
        assert!(!cursor.sweep_is_due(409 * MS));
        assert!(cursor.sweep_is_due(410 * MS));
    }

    #[test]
    fn slices_take_their_share_of_the_time() {
        let mut cursor = swept_once(taking(10 * MS));
        assert_eq!(cursor.slice(2 * MS, 300 * MS), 2 * MS);
        cursor.swept(Some(event(5, 1)), taking(2 * MS), 300 * MS);
        for (passed, slice) in [(NO_TIME, GLANCE), (MS / 2, GLANCE), (10 * MS, MS), (60_000 * MS, 2 * MS)] {
            assert_eq!(cursor.slice(2 * MS, 300 * MS + passed), slice, "{passed:?}");
        }
    }

    #[test]
    fn what_the_first_scan_cost_does_not_put_off_the_first_sweep() {
        let mut cursor = Cursor::new(at(100), NO_TIME);
        cursor.scanned(Some(event(10, 1)), true, Cost::default(), 5_000 * MS);
        assert!(!cursor.sweep_is_due(5_199 * MS));
        assert!(cursor.sweep_is_due(5_200 * MS));
    }

    #[test]
    fn only_a_cheap_sweep_follows_at_once() {
        let cheap = |entries| swept_once(Cost { entries, time: MS }).sweep_is_cheap();
        assert!(cheap(CHEAP - 1));
        assert!(!cheap(CHEAP));
        assert!(!Cursor::new(at(100), NO_TIME).sweep_is_cheap());
    }
}
