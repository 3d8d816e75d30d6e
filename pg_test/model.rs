//! The reference model: the semantics of the service that this extension carries over, as a small state
//! machine without a database. Where it departs from that service on purpose, docs/design.md lists it.

use pgrx::Uuid;

/// Microseconds since 2000-01-01 UTC.
pub type Moment = i64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Pending,
    Processing,
    Completed,
    Dead,
}

/// What a producer passes. Payloads are compared as jsonb; the model knows them by number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    pub tenant: Option<u8>,
    pub event_type: u8,
    pub aggregate: u8,
    pub key: Option<u8>,
    pub payload: u8,
    pub available_at: Option<Moment>,
}

/// Every column that an event's life changes, and those that the model needs to decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub id: Uuid,
    pub new: NewEvent,
    pub status: Status,
    pub attempt_count: i32,
    pub forgiven_attempts: i32,
    pub available_at: Moment,
    pub locked_at: Option<Moment>,
    pub locked_by: Option<String>,
    pub last_error_code: Option<String>,
    pub completed_at: Option<Moment>,
    pub dead_at: Option<Moment>,
    pub created_at: Moment,
    pub updated_at: Moment,
    /// Whether its last claim was an ordered one; none while it is pending.
    pub claimed_in_order: Option<bool>,
}

/// SQLSTATEs of the refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    KeyConflict,
    NoSuchEvent,
    LeaseLost,
}

impl Refusal {
    pub fn sqlstate(self) -> &'static str {
        match self {
            Self::KeyConflict => "23505",
            Self::NoSuchEvent => "P0002",
            Self::LeaseLost => "55000",
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Outbox {
    /// In the order of their ids, which is the order in which they were enqueued.
    pub events: Vec<Event>,
    /// Completing deletes.
    pub delete_completed: bool,
}

pub struct Claim {
    pub worker: String,
    pub batch_size: usize,
    pub lock_timeout: Moment,
    pub max_attempts: i32,
    pub event_type: Option<u8>,
    pub tenant: Option<u8>,
}

impl Claim {
    fn admits(&self, event: &Event) -> bool {
        self.event_type.is_none_or(|event_type| event.new.event_type == event_type)
            && self.tenant.is_none_or(|tenant| event.new.tenant == Some(tenant))
    }

    pub fn has_expired(&self, now: Moment, event: &Event) -> bool {
        event.status == Status::Processing
            && event.locked_at.is_some_and(|since| since < now - self.lock_timeout)
    }

    /// Whether its lease has expired too often.
    pub fn is_spent(&self, now: Moment, event: &Event) -> bool {
        self.has_expired(now, event) && event.counted_attempts() >= self.max_attempts
    }

    /// Whether it may be claimed but for the order.
    pub fn may_have(&self, now: Moment, event: &Event) -> bool {
        self.admits(event)
            && event.available_at <= now
            && (event.status == Status::Pending || self.has_expired(now, event))
    }
}

pub struct Settlement {
    pub event: Uuid,
    pub worker: String,
    pub attempt: Option<i32>,
}

pub struct Failure {
    pub error_code: String,
    pub max_attempts: i32,
    pub next_attempt: Option<Moment>,
    /// Ceilings of the backoff.
    pub backoff_base: Moment,
    pub backoff_max: Moment,
}

pub struct Replay {
    pub event_type: Option<u8>,
    pub tenant: Option<u8>,
    pub most: usize,
}

pub struct Purge {
    pub older_than: Moment,
    pub most: usize,
    /// Completed, dead or both.
    pub statuses: Vec<Status>,
}

/// Where a failed event has gone.
#[derive(Debug, PartialEq, Eq)]
pub enum Failed {
    Dead,
    /// Due again between these moments: both the same, unless the backoff was drawn.
    Pending {
        from: Moment,
        to: Moment,
    },
}

impl Outbox {
    /// The id that enqueueing answers with; `id` is the new event's, if there is to be one.
    pub fn enqueue(&mut self, now: Moment, id: Uuid, new: NewEvent) -> Result<Uuid, Refusal> {
        if let Some(holder) = self.holder(&new) {
            let same = holder.new.payload == new.payload && holder.new.aggregate == new.aggregate;
            return if same { Ok(holder.id) } else { Err(Refusal::KeyConflict) };
        }
        self.events.push(Event {
            id,
            status: Status::Pending,
            attempt_count: 0,
            forgiven_attempts: 0,
            available_at: new.available_at.unwrap_or(now),
            locked_at: None,
            locked_by: None,
            last_error_code: None,
            completed_at: None,
            dead_at: None,
            created_at: now,
            updated_at: now,
            claimed_in_order: None,
            new: NewEvent { available_at: None, ..new },
        });
        Ok(id)
    }

    /// The answers of a batch, each with whether it is an earlier event's; all events are added, or none.
    pub fn enqueue_batch(
        &mut self,
        now: Moment,
        batch: impl IntoIterator<Item = (Uuid, NewEvent)>,
    ) -> Result<Vec<(Uuid, bool)>, Refusal> {
        let mut after = self.clone();
        let mut answers = Vec::new();
        for (id, new) in batch {
            let before = after.events.len();
            let answer = after.enqueue(now, id, new)?;
            answers.push((answer, after.events.len() == before));
        }
        *self = after;
        Ok(answers)
    }

    fn holder(&self, new: &NewEvent) -> Option<&Event> {
        let key = (new.tenant, new.event_type, new.key?);
        self.events.iter().find(|event| {
            event.new.key.is_some_and(|other| key == (event.new.tenant, event.new.event_type, other))
        })
    }

    /// The ids handed out, in order, by a claim that is not an ordered one.
    pub fn claim(&mut self, now: Moment, claim: &Claim) -> Vec<Uuid> {
        let mut taken = Vec::new();
        for at in self.claimable(now, claim) {
            if taken.len() == claim.batch_size {
                break;
            }
            let event = &mut self.events[at];
            if claim.is_spent(now, event) {
                event.bury(now);
                continue;
            }
            if event.status == Status::Processing {
                event.available_at = now;
            }
            event.lease_to(now, &claim.worker);
            taken.push(event.id);
        }
        taken
    }

    fn claimable(&self, now: Moment, claim: &Claim) -> Vec<usize> {
        let mut claimable: Vec<usize> =
            (0..self.events.len()).filter(|&at| claim.may_have(now, &self.events[at])).collect();
        claimable.sort_by_key(|&at| self.events[at].order());
        claimable
    }

    fn of_aggregate(&self, event: &Event) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(|other| other.new.aggregate == event.new.aggregate && other.id != event.id)
    }

    /// Whether no unfinished event of its aggregate comes before it.
    pub fn is_first(&self, event: &Event) -> bool {
        !self.of_aggregate(event).any(|other| other.is_unfinished() && other.place() < event.place())
    }

    /// Whether no other event of its aggregate is in flight by an ordered claim.
    pub fn is_alone(&self, event: &Event) -> bool {
        !self.of_aggregate(event).any(|other| other.is_unfinished() && other.claimed_in_order == Some(true))
    }

    /// Whether it is the event's turn in its aggregate.
    pub fn has_turn(&self, event: &Event) -> bool {
        self.is_first(event) && self.is_alone(event)
    }

    pub fn complete(&mut self, now: Moment, settlement: &Settlement) -> Result<(), Refusal> {
        let event = self.leased(settlement)?;
        event.end_lease(Status::Completed);
        event.completed_at = Some(now);
        event.last_error_code = None;
        event.updated_at = now;
        if self.delete_completed {
            self.events.retain(|event| event.id != settlement.event);
        }
        Ok(())
    }

    /// The lease starts anew. An event in processing is due, also when the clock has stepped back.
    pub fn extend(&mut self, now: Moment, settlement: &Settlement) -> Result<(), Refusal> {
        let event = self.leased(settlement)?;
        event.locked_at = Some(now);
        event.available_at = event.available_at.min(now);
        event.updated_at = now;
        Ok(())
    }

    /// Pending again at a moment, and the attempt forgiven.
    pub fn release(&mut self, now: Moment, settlement: &Settlement, at: Moment) -> Result<(), Refusal> {
        let event = self.leased(settlement)?;
        event.end_lease(Status::Pending);
        event.available_at = at;
        event.forgiven_attempts = (event.forgiven_attempts + 1).min(event.attempt_count);
        event.updated_at = now;
        Ok(())
    }

    /// A pending event's `available_at` is left to be drawn: see [`Failed::Pending`].
    pub fn fail(
        &mut self,
        now: Moment,
        settlement: &Settlement,
        failure: &Failure,
    ) -> Result<Failed, Refusal> {
        let event = self.leased(settlement)?;
        let attempts = event.counted_attempts();
        event.last_error_code = Some(failure.error_code.clone());
        event.updated_at = now;
        if attempts >= failure.max_attempts {
            event.end_lease(Status::Dead);
            event.dead_at = Some(now);
            return Ok(Failed::Dead);
        }
        event.end_lease(Status::Pending);
        Ok(match failure.next_attempt {
            Some(at) => Failed::Pending { from: at, to: at },
            None => {
                let doubled = failure.backoff_base << (attempts - 1).clamp(0, 30);
                Failed::Pending { from: now, to: now + doubled.min(failure.backoff_max) }
            }
        })
    }

    /// How many dead events came back.
    pub fn replay(&mut self, now: Moment, replay: &Replay) -> usize {
        let wanted = |event: &Event| {
            replay.event_type.is_none_or(|event_type| event.new.event_type == event_type)
                && replay.tenant.is_none_or(|tenant| event.new.tenant == Some(tenant))
        };
        let dead = self.ended(|event| event.dead_at.filter(|_| wanted(event)));
        let replayed = &dead[..dead.len().min(replay.most)];
        for event in self.events.iter_mut().filter(|event| replayed.contains(&event.id)) {
            event.status = Status::Pending;
            event.dead_at = None;
            event.claimed_in_order = None;
            event.forgiven_attempts = event.attempt_count;
            event.available_at = now;
            event.updated_at = now;
        }
        replayed.len()
    }

    /// How many ended events were deleted.
    pub fn purge(&mut self, now: Moment, purge: &Purge) -> usize {
        let by = now - purge.older_than;
        let mut deleted = Vec::new();
        for status in &purge.statuses {
            deleted.extend(self.ended(|event| {
                let ended = if *status == Status::Dead { event.dead_at } else { event.completed_at };
                ended.filter(|at| *at <= by)
            }));
        }
        deleted.truncate(purge.most);
        self.events.retain(|event| !deleted.contains(&event.id));
        deleted.len()
    }

    /// The events that have ended at some moment, the first first.
    fn ended(&self, at: impl Fn(&Event) -> Option<Moment>) -> Vec<Uuid> {
        let mut ended: Vec<_> =
            self.events.iter().filter_map(|event| Some((at(event)?, *event.id.as_bytes()))).collect();
        ended.sort_unstable();
        ended.into_iter().map(|(_, id)| Uuid::from_bytes(id)).collect()
    }

    fn leased(&mut self, settlement: &Settlement) -> Result<&mut Event, Refusal> {
        let event =
            self.events.iter_mut().find(|event| event.id == settlement.event).ok_or(Refusal::NoSuchEvent)?;
        let held = event.status == Status::Processing
            && event.locked_by.as_ref() == Some(&settlement.worker)
            && settlement.attempt.is_none_or(|attempt| attempt == event.attempt_count);
        if held { Ok(event) } else { Err(Refusal::LeaseLost) }
    }
}

impl Event {
    /// The place in the queue.
    pub fn order(&self) -> (Moment, Moment, [u8; 16]) {
        (self.available_at, self.created_at, *self.id.as_bytes())
    }

    /// The place in the aggregate.
    pub fn place(&self) -> (Moment, [u8; 16]) {
        (self.created_at, *self.id.as_bytes())
    }

    pub fn is_unfinished(&self) -> bool {
        matches!(self.status, Status::Pending | Status::Processing)
    }

    fn counted_attempts(&self) -> i32 {
        self.attempt_count - self.forgiven_attempts
    }

    pub fn lease_to(&mut self, now: Moment, worker: &str) {
        self.status = Status::Processing;
        self.attempt_count += 1;
        self.locked_at = Some(now);
        self.locked_by = Some(worker.to_owned());
        self.updated_at = now;
        self.claimed_in_order = None;
    }

    /// Its lease has expired too often.
    pub fn bury(&mut self, now: Moment) {
        self.end_lease(Status::Dead);
        self.dead_at = Some(now);
        self.last_error_code = Some("lease_expired".into());
        self.updated_at = now;
    }

    pub fn end_lease(&mut self, status: Status) {
        self.status = status;
        self.locked_at = None;
        self.locked_by = None;
        if status == Status::Pending {
            self.claimed_in_order = None;
        }
    }
}
