//! What an ordered claim may do, seen from the model. Which events it takes when there are more than it may is
//! left to it; so what it did is judged, event by event.

use super::model::{Claim, Event, Moment, Outbox, Status};
use pgrx::Uuid;

/// A claim, and the table before and after it.
pub struct OrderedClaim<'a> {
    pub claim: &'a Claim,
    pub now: Moment,
    pub handed_out: &'a [Uuid],
    pub before: &'a Outbox,
    pub after: &'a Outbox,
}

/// What has become of an event.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Untouched,
    /// Another session, or a claim with another filter, is to find it.
    Moved,
    Taken,
    Buried,
    /// It is an earlier one's turn.
    GivenBack,
}

impl OrderedClaim<'_> {
    pub fn judge(&self) -> Result<(), String> {
        if self.handed_out.len() > self.claim.batch_size {
            return Err(format!("{} events were handed out", self.handed_out.len()));
        }
        if self.before.events.len() != self.after.events.len() {
            return Err("events came or went".into());
        }
        let mut taken = Vec::new();
        for (before, after) in self.before.events.iter().zip(&self.after.events) {
            let fate =
                self.fate(before, after).ok_or_else(|| format!("{before:?} must not become {after:?}"))?;
            if fate == Fate::Taken {
                // A pending event that was moved first stood where it was moved to.
                let found = if before.status == Status::Pending { after } else { before };
                taken.push((found.order(), after.id));
            } else if self.handed_out.len() < self.claim.batch_size && self.is_due(before, &fate) {
                return Err(format!("{before:?} was passed over"));
            }
        }
        taken.sort_unstable_by_key(|(order, _)| *order);
        let expected: Vec<_> = taken.into_iter().map(|(_, id)| id).collect();
        if expected == self.handed_out { Ok(()) } else { Err(format!("not {expected:?}")) }
    }

    fn fate(&self, before: &Event, after: &Event) -> Option<Fate> {
        let becomes = |fate, change: &dyn Fn(&mut Event)| {
            let mut expected = before.clone();
            expected.updated_at = self.now;
            change(&mut expected);
            (expected == *after).then_some(fate)
        };
        if before == after {
            return (!self.handed_out.contains(&after.id)).then_some(Fate::Untouched);
        }
        let (now, worker) = (self.now, self.claim.worker.as_str());
        let given_back = |event: &mut Event| {
            event.end_lease(Status::Pending);
            event.last_error_code = Some("lease_expired".into());
        };
        let lease = |event: &mut Event| {
            event.lease_to(now, worker);
            event.claimed_in_order = Some(true);
        };
        let may_have = self.claim.may_have(now, before);
        let spent = self.claim.is_spent(now, before);
        let has_turn = self.after.has_turn(after);
        let overtaken = before.status == Status::Processing && !self.before.is_first(before);
        let mut fate = None;
        if may_have && spent {
            fate = fate.or(becomes(Fate::Buried, &|event| event.bury(now)));
        }
        if may_have && !spent && overtaken {
            fate = fate.or(becomes(Fate::GivenBack, &given_back));
        }
        if may_have && !spent && has_turn {
            fate = fate
                .or(becomes(Fate::Taken, &|event| {
                    if event.status == Status::Processing {
                        event.available_at = now;
                    }
                    lease(event);
                }))
                .or(becomes(Fate::Taken, &|event| {
                    event.available_at = now;
                    lease(event);
                }));
            if overtaken {
                fate = fate.or(becomes(Fate::Taken, &|event| {
                    given_back(event);
                    lease(event);
                }));
            }
        }
        if before.status == Status::Pending && before.available_at <= now && has_turn {
            fate = fate.or(becomes(Fate::Moved, &|event| event.available_at = now));
        }
        fate
    }

    /// Whether a claim that has room must not leave an event so.
    fn is_due(&self, before: &Event, fate: &Fate) -> bool {
        let (claim, now) = (self.claim, self.now);
        // What was leased without order waits beside one in flight, also if that was taken just now.
        let alone = before.claimed_in_order == Some(true)
            || self.before.is_alone(before) && self.after.is_alone(before);
        if !claim.may_have(now, before) || !alone {
            return false;
        }
        let expected = match () {
            () if claim.is_spent(now, before) => Fate::Buried,
            () if self.before.is_first(before) => Fate::Taken,
            () if before.status == Status::Processing => Fate::GivenBack,
            () => return false,
        };
        *fate != expected
    }
}
