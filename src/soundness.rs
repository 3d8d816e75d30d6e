//! What a sound event looks like, and how a row that was written by hand becomes one.
//!
//! The status decides: each has the columns that it needs and the columns that it must not have.
//!
//! | status | locked_at, locked_by | completed_at | dead_at |
//! |---|---|---|---|
//! | pending | null | null | null |
//! | processing | set | null | null |
//! | completed | null | set | null |
//! | dead | null | null | set |
//!
//! When a hand changes the status, what is left over from the old one is cleared and what the new one needs
//! is filled in where that can be known. What is contradictory on purpose (a value given in the same
//! statement that the status must not have) is an error, so that no row is ever stuck and none is silently
//! something else than was meant.

use crate::instant::Instant;
use crate::status::Status;

/// The columns of an event's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life<'a> {
    pub status: Status,
    pub attempt_count: i32,
    pub forgiven_attempts: i32,
    pub available_at: Instant,
    pub locked_at: Option<Instant>,
    pub locked_by: Option<&'a [u8]>,
    pub completed_at: Option<Instant>,
    pub dead_at: Option<Instant>,
    /// Whether its last claim was an ordered one; null while it is pending.
    pub claimed_in_order: Option<bool>,
}

impl Life<'_> {
    /// Whether a worker may claim it at once, without a lease that has to expire first.
    pub fn is_ready(&self, now: Instant) -> bool {
        self.status == Status::Pending && self.available_at <= now
    }
}

/// A row that cannot be made sound: which column, what it holds, and the rule that it breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsound {
    pub column: &'static str,
    pub found: String,
    pub rule: &'static str,
}

/// The most attempts that a hand can give an event: far above what any event lives to see, and as far below
/// what an `integer` can hold, so that claims can go on counting.
const MOST_ATTEMPTS: i32 = 1_000_000_000;

/// Makes a row sound, or says why it cannot be. `old` is the row before an UPDATE, none for an INSERT.
pub fn settle<'a>(old: Option<&Life<'_>>, new: &mut Life<'a>, now: Instant) -> Result<(), Unsound> {
    counts(old, new)?;
    let leftovers = Leftovers { old, status: new.status };
    match new.status {
        Status::Pending => {
            leftovers.clear_lease(new)?;
            leftovers.clear_completed(new)?;
            leftovers.clear_dead(new)?;
            new.claimed_in_order = None;
            forgive_after_the_end(old, new);
        }
        Status::Processing => {
            leftovers.clear_completed(new)?;
            leftovers.clear_dead(new)?;
            lease(old, new, now)?;
        }
        Status::Completed => {
            leftovers.clear_lease(new)?;
            leftovers.clear_dead(new)?;
            new.completed_at.get_or_insert(now);
        }
        Status::Dead => {
            leftovers.clear_lease(new)?;
            leftovers.clear_completed(new)?;
            new.dead_at.get_or_insert(now);
        }
    }
    Ok(())
}

fn counts(old: Option<&Life>, new: &Life) -> Result<(), Unsound> {
    let unsound = |column, count: i32, rule| Err(Unsound { column, found: count.to_string(), rule });
    // Claims go on counting from wherever a row that was written past the guard stands.
    let counted_on = old.is_some_and(|old| {
        (old.attempt_count..=old.attempt_count.saturating_add(1)).contains(&new.attempt_count)
    });
    if !(0..=MOST_ATTEMPTS).contains(&new.attempt_count) && !counted_on {
        return unsound("attempt_count", new.attempt_count, "Attempts are counted from 0 to 1000000000.");
    }
    if old.is_some_and(|old| new.attempt_count < old.attempt_count) {
        return unsound(
            "attempt_count",
            new.attempt_count,
            "attempt_count never decreases, since it fences late workers off. \
             For a fresh budget set forgiven_attempts = attempt_count.",
        );
    }
    let untouched = counted_on && old.is_some_and(|old| new.forgiven_attempts == old.forgiven_attempts);
    if !(0..=new.attempt_count).contains(&new.forgiven_attempts) && !untouched {
        return unsound(
            "forgiven_attempts",
            new.forgiven_attempts,
            "From 0 to attempt_count attempts can be forgiven.",
        );
    }
    Ok(())
}

/// An event that a hand brings back from its end gets a fresh budget, unless the hand set one.
fn forgive_after_the_end(old: Option<&Life>, new: &mut Life) {
    if let Some(old) = old
        && matches!(old.status, Status::Completed | Status::Dead)
        && new.forgiven_attempts == old.forgiven_attempts
    {
        new.forgiven_attempts = new.attempt_count;
    }
}

/// A lease has an owner and a start that is not in the future (it would never expire), belongs to an
/// attempt of its own, and to an event that is due (claims look at no other).
fn lease(old: Option<&Life>, new: &mut Life, now: Instant) -> Result<(), Unsound> {
    let missing = |column| Unsound {
        column,
        found: "null".into(),
        rule: "An event in processing has a lease: set locked_at and locked_by, or leave it pending.",
    };
    let owner = new.locked_by.ok_or(missing("locked_by"))?;
    let since = new.locked_at.ok_or(missing("locked_at"))?;
    if !(1..=crate::argument::NAME_BYTES).contains(&owner.len()) {
        let found = format!("{} bytes long", owner.len());
        return Err(Unsound { column: "locked_by", found, rule: "Workers' names have 1 to 255 bytes." });
    }
    new.locked_at = Some(since.min(now));
    new.available_at = new.available_at.min(now);
    let earlier = old.filter(|old| old.status == Status::Processing && old.locked_by == new.locked_by);
    let before = old.map_or(0, |old| old.attempt_count);
    if earlier.is_none() && new.attempt_count == before {
        new.attempt_count = new.attempt_count.saturating_add(1);
    }
    Ok(())
}

/// Columns that the new status must not have: cleared when they are left over from the row's earlier
/// state, refused when they were given together with the status.
struct Leftovers<'o, 'r> {
    old: Option<&'o Life<'r>>,
    status: Status,
}

impl Leftovers<'_, '_> {
    fn clear_lease(&self, new: &mut Life) -> Result<(), Unsound> {
        self.clear("locked_at", &mut new.locked_at, self.old.and_then(|old| old.locked_at))?;
        let old = self.old.and_then(|old| old.locked_by);
        if new.locked_by.is_some() && new.locked_by != old {
            return self.refuse("locked_by");
        }
        new.locked_by = None;
        Ok(())
    }

    fn clear_completed(&self, new: &mut Life) -> Result<(), Unsound> {
        self.clear("completed_at", &mut new.completed_at, self.old.and_then(|old| old.completed_at))
    }

    fn clear_dead(&self, new: &mut Life) -> Result<(), Unsound> {
        self.clear("dead_at", &mut new.dead_at, self.old.and_then(|old| old.dead_at))
    }

    fn clear(
        &self,
        column: &'static str,
        new: &mut Option<Instant>,
        old: Option<Instant>,
    ) -> Result<(), Unsound> {
        if new.is_some() && *new != old {
            return self.refuse(column);
        }
        *new = None;
        Ok(())
    }

    fn refuse(&self, column: &'static str) -> Result<(), Unsound> {
        Err(Unsound {
            column,
            found: format!("set, but status is {}", self.status.as_str()),
            rule: "Change status as well: pending has no lease and no end, processing a lease, \
                   completed completed_at, dead dead_at.",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_micros(1_000_000);
    const EARLIER: Instant = Instant::from_micros(400_000);
    const LATER: Instant = Instant::from_micros(9_000_000);

    fn pending() -> Life<'static> {
        Life {
            status: Status::Pending,
            attempt_count: 3,
            forgiven_attempts: 0,
            available_at: EARLIER,
            locked_at: None,
            locked_by: None,
            completed_at: None,
            dead_at: None,
            claimed_in_order: None,
        }
    }

    fn processing() -> Life<'static> {
        Life { status: Status::Processing, locked_at: Some(EARLIER), locked_by: Some(b"w"), ..pending() }
    }

    fn completed() -> Life<'static> {
        Life { status: Status::Completed, completed_at: Some(EARLIER), ..pending() }
    }

    fn dead() -> Life<'static> {
        Life { status: Status::Dead, dead_at: Some(EARLIER), ..pending() }
    }

    fn settled<'a>(old: Option<&Life>, mut new: Life<'a>) -> Result<Life<'a>, &'static str> {
        settle(old, &mut new, NOW).map_err(|unsound| unsound.column)?;
        Ok(new)
    }

    #[test]
    fn sound_rows_stay_as_they_are() {
        for life in [pending(), processing(), completed(), dead()] {
            assert_eq!(settled(None, life), Ok(life));
            assert_eq!(settled(Some(&life), life), Ok(life));
        }
    }

    #[test]
    fn a_new_status_clears_what_the_old_one_left() {
        for old in [pending(), processing(), completed(), dead()] {
            let brought_back = settled(Some(&old), Life { status: Status::Pending, ..old }).unwrap();
            let forgiven = if matches!(old.status, Status::Completed | Status::Dead) { 3 } else { 0 };
            assert_eq!(brought_back, Life { forgiven_attempts: forgiven, ..pending() });

            let ended = settled(Some(&old), Life { status: Status::Completed, ..old }).unwrap();
            let at = if old.status == Status::Completed { EARLIER } else { NOW };
            assert_eq!(ended, Life { completed_at: Some(at), ..completed() });

            let buried = settled(Some(&old), Life { status: Status::Dead, ..old }).unwrap();
            let at = if old.status == Status::Dead { EARLIER } else { NOW };
            assert_eq!(buried, Life { dead_at: Some(at), ..dead() });
        }
    }

    #[test]
    fn a_pending_event_is_claimed_by_nobody_in_any_order() {
        let in_order = Life { claimed_in_order: Some(true), ..processing() };
        assert_eq!(settled(Some(&processing()), in_order), Ok(in_order));
        let ended = Life { claimed_in_order: Some(true), ..completed() };
        assert_eq!(settled(Some(&in_order), Life { locked_at: None, locked_by: None, ..ended }), Ok(ended));
        let back = Life { status: Status::Pending, ..in_order };
        assert_eq!(settled(Some(&in_order), back).unwrap().claimed_in_order, None);
    }

    #[test]
    fn what_contradicts_the_status_is_refused() {
        for life in [pending(), completed(), dead()] {
            assert_eq!(settled(None, Life { locked_at: Some(EARLIER), ..life }), Err("locked_at"));
            assert_eq!(settled(Some(&life), Life { locked_by: Some(b"w"), ..life }), Err("locked_by"));
        }
        for life in [pending(), processing(), dead()] {
            assert_eq!(settled(Some(&life), Life { completed_at: Some(NOW), ..life }), Err("completed_at"));
        }
        for life in [pending(), processing(), completed()] {
            assert_eq!(settled(Some(&life), Life { dead_at: Some(NOW), ..life }), Err("dead_at"));
        }
    }

    #[test]
    fn processing_needs_a_lease_that_can_expire() {
        assert_eq!(settled(None, Life { locked_at: None, ..processing() }), Err("locked_at"));
        assert_eq!(settled(None, Life { locked_by: None, ..processing() }), Err("locked_by"));
        assert_eq!(settled(None, Life { locked_by: Some(b""), ..processing() }), Err("locked_by"));
        let future = Life { locked_at: Some(LATER), available_at: LATER, ..processing() };
        assert_eq!(
            settled(None, future),
            Ok(Life { locked_at: Some(NOW), available_at: NOW, ..processing() })
        );
    }

    #[test]
    fn a_lease_taken_by_hand_is_an_attempt_of_its_own() {
        let taken = settled(Some(&pending()), processing()).unwrap();
        assert_eq!(taken.attempt_count, 4);
        let other = settled(Some(&processing()), Life { locked_by: Some(b"x"), ..processing() }).unwrap();
        assert_eq!(other.attempt_count, 4);
        let extended = settled(Some(&processing()), Life { locked_at: Some(NOW), ..processing() }).unwrap();
        assert_eq!(extended.attempt_count, 3);
        let fresh = settled(None, Life { attempt_count: 0, ..processing() }).unwrap();
        assert_eq!(fresh.attempt_count, 1);
    }

    #[test]
    fn attempts_never_decrease_and_stay_in_range() {
        let fewer = Life { attempt_count: 2, ..pending() };
        assert_eq!(settled(Some(&pending()), fewer), Err("attempt_count"));
        assert_eq!(settled(None, fewer), Ok(fewer));
        for attempt_count in [-1, MOST_ATTEMPTS + 1, i32::MAX] {
            assert_eq!(settled(None, Life { attempt_count, ..pending() }), Err("attempt_count"));
        }
        let most = Life { attempt_count: MOST_ATTEMPTS, ..processing() };
        let claimed = Life { attempt_count: MOST_ATTEMPTS + 1, ..most };
        assert_eq!(settled(Some(&most), claimed), Ok(claimed));
        assert_eq!(
            settled(Some(&most), Life { attempt_count: MOST_ATTEMPTS + 2, ..most }),
            Err("attempt_count")
        );
        for forgiven_attempts in [-1, 4] {
            assert_eq!(settled(None, Life { forgiven_attempts, ..pending() }), Err("forgiven_attempts"));
        }
    }
}
