//! Random sequences of operations and clock jumps, on the extension and on the model: after every step,
//! every visible column agrees.

use super::model::{
    Claim, Event, Failed, Failure, Moment, NewEvent, Outbox, Purge, Refusal, Replay, Settlement, Status,
};
use super::model_order::OrderedClaim;
use crate::clock::test_clock;
use crate::instant::Instant;
use pgrx::prelude::*;
use pgrx::{Spi, Uuid};
use proptest::prelude::*;

const SECOND: Moment = 1_000_000;
const START: Moment = 800_000_000 * SECOND;
const MAX_ATTEMPTS: i32 = 3;
const BACKOFF_BASE: Moment = 2 * SECOND;
const BACKOFF_MAX: Moment = 5 * SECOND;

/// The payloads: each with two spellings that are equal as jsonb.
const PAYLOADS: [[&str; 2]; 3] =
    [[r#"{"a": 1, "bb": [1.50]}"#, r#"{"bb":[1.5],"a":1.0}"#], ["1e2", "100.00"], ["null", " null "]];

#[derive(Debug, Clone)]
enum Step {
    Enqueue(Wanted),
    EnqueueBatch(Vec<Wanted>),
    Claim { worker: u8, batch_size: usize, lock_timeout: Moment, max_attempts: Option<i32>, only: Only },
    Complete { at: usize, worker: u8, attempt: Attempt },
    Fail { at: usize, worker: u8, attempt: Attempt, max_attempts: Option<i32>, due_in: Option<Moment> },
    Batch { held: Vec<(usize, Attempt)>, worker: u8, act: Act },
    DeleteCompleted(bool),
    Replay { event_type: Option<u8>, tenant: Option<u8>, most: usize },
    Purge { older_than: Moment, most: usize, statuses: &'static [Status] },
    Jump { by: Moment },
}

/// An event to enqueue, with one spelling of its payload.
#[derive(Debug, Clone)]
struct Wanted {
    new: NewEvent,
    spelling: usize,
    due_in: Option<Moment>,
}

/// What a claim is for.
#[derive(Debug, Clone, Copy)]
struct Only {
    event_type: Option<u8>,
    tenant: Option<u8>,
    ordered: bool,
}

/// What is done with a batch.
#[derive(Debug, Clone, Copy)]
enum Act {
    Complete,
    Fail { max_attempts: Option<i32>, due_in: Option<Moment> },
    Extend,
    Release { due_in: Option<Moment> },
}

const ENDS: [&[Status]; 4] = [
    &[Status::Completed],
    &[Status::Dead],
    &[Status::Completed, Status::Dead],
    &[Status::Dead, Status::Completed],
];

/// Which attempt a worker says that it holds.
#[derive(Debug, Clone, Copy)]
enum Attempt {
    Unsaid,
    Current,
    Earlier,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let attempt = || prop_oneof![Just(Attempt::Unsaid), Just(Attempt::Current), Just(Attempt::Earlier)];
    let due_in = || proptest::option::of((-5 * SECOND)..30 * SECOND);
    let limit = || proptest::option::of(0..4);
    let new = (
        proptest::option::of(0..2_u8),
        0..2_u8,
        0..2_u8,
        proptest::option::weighted(0.6, 0..3_u8),
        0..PAYLOADS.len() as u8,
    )
        .prop_map(|(tenant, event_type, aggregate, key, payload)| NewEvent {
            tenant,
            event_type,
            aggregate,
            key,
            payload,
            available_at: None,
        });
    let wanted =
        (new, 0..2_usize, due_in()).prop_map(|(new, spelling, due_in)| Wanted { new, spelling, due_in });
    let some = || proptest::option::weighted(0.3, 0..2_u8);
    let only = (some(), some(), any::<bool>()).prop_map(|(event_type, tenant, ordered)| Only {
        event_type,
        tenant,
        ordered,
    });
    let act = prop_oneof![
        3 => Just(Act::Complete),
        2 => (limit(), due_in()).prop_map(|(max_attempts, due_in)| Act::Fail { max_attempts, due_in }),
        1 => Just(Act::Extend),
        1 => due_in().prop_map(|due_in| Act::Release { due_in }),
    ];
    let step = prop_oneof![
        4 => wanted.clone().prop_map(Step::Enqueue),
        1 => proptest::collection::vec(wanted, 0..5).prop_map(Step::EnqueueBatch),
        6 => (0..2_u8, 1..5_usize, 1..20_i64, limit(), only).prop_map(
            |(worker, batch_size, seconds, max_attempts, only)| Step::Claim {
                worker,
                batch_size,
                lock_timeout: seconds * SECOND,
                max_attempts,
                only
            }
        ),
        2 => (0..40_usize, 0..2_u8, attempt())
            .prop_map(|(at, worker, attempt)| Step::Complete { at, worker, attempt }),
        3 => (0..40_usize, 0..2_u8, attempt(), limit(), due_in()).prop_map(
            |(at, worker, attempt, max_attempts, due_in)| Step::Fail {
                at,
                worker,
                attempt,
                max_attempts,
                due_in
            }
        ),
        4 => (proptest::collection::vec((0..20_usize, attempt()), 0..6), 0..2_u8, act)
            .prop_map(|(held, worker, act)| Step::Batch { held, worker, act }),
        1 => any::<bool>().prop_map(Step::DeleteCompleted),
        1 => (proptest::option::of(0..2_u8), proptest::option::of(0..2_u8), 1..4_usize)
            .prop_map(|(event_type, tenant, most)| Step::Replay { event_type, tenant, most }),
        1 => (0..20_i64, 1..4_usize, 0..ENDS.len()).prop_map(|(seconds, most, ends)| Step::Purge {
            older_than: seconds * SECOND,
            most,
            statuses: ENDS[ends]
        }),
        2 => (-10 * SECOND..25 * SECOND).prop_map(|by| Step::Jump { by }),
    ];
    proptest::collection::vec(step, 1..60)
}

/// The arguments of an event, by name, in SQL.
fn arguments_of(new: &NewEvent, spelling: usize) -> [(&'static str, String); 7] {
    [
        ("tenant_id", new.tenant.map_or("NULL".into(), |tenant| quoted_uuid("aaaa", tenant))),
        ("aggregate_type", "'order'".into()),
        ("aggregate_id", quoted_uuid("bbbb", new.aggregate)),
        ("event_type", format!("'type{}'", new.event_type)),
        ("deduplication_key", new.key.map_or("NULL".into(), |key| format!("'key{key}'"))),
        ("payload", format!("'{}'::jsonb", PAYLOADS[usize::from(new.payload)][spelling])),
        ("available_at", new.available_at.map_or("NULL".into(), timestamp)),
    ]
}

/// Both sides, and the clock they share.
struct Pair {
    model: Outbox,
    now: Moment,
}

impl Pair {
    fn new() -> Self {
        run("TRUNCATE outbox_event");
        run("SET LOCAL outbox.delete_completed = off");
        let pair = Self { model: Outbox::default(), now: START };
        pair.set_clock();
        pair
    }

    fn set_clock(&self) {
        test_clock::freeze(Some(Instant::from_micros(self.now)));
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        let may_move = matches!(
            step,
            Step::Claim { .. } | Step::Complete { .. } | Step::Fail { .. } | Step::Batch { .. }
        );
        match step {
            Step::Jump { by } => {
                self.now += by;
                self.set_clock();
            }
            Step::Enqueue(wanted) => self.enqueue(&wanted)?,
            Step::EnqueueBatch(batch) => self.enqueue_batch(&batch)?,
            Step::Claim { worker, batch_size, lock_timeout, max_attempts, only } => {
                self.claim(worker, batch_size, lock_timeout, max_attempts, only)?
            }
            Step::Batch { held, worker, act } => self.batch(&held, worker, act)?,
            Step::DeleteCompleted(on) => {
                run(&format!("SET LOCAL outbox.delete_completed = {on}"));
                self.model.delete_completed = on;
            }
            Step::Complete { at, worker, attempt } => {
                let settlement = self.settlement(at, worker, attempt);
                let sql = format!("outbox_complete({})", arguments(&settlement, ""));
                prop_assert_eq!(
                    attempted(&sql).map(drop),
                    refused(self.model.complete(self.now, &settlement))
                );
            }
            Step::Fail { at, worker, attempt, max_attempts, due_in } => {
                let settlement = self.settlement(at, worker, attempt);
                self.fail(&settlement, max_attempts, due_in.map(|due_in| self.now + due_in))?;
            }
            Step::Replay { event_type, tenant, most } => self.replay(&Replay { event_type, tenant, most })?,
            Step::Purge { older_than, most, statuses } => {
                self.purge(&Purge { older_than, most, statuses: statuses.to_vec() })?
            }
        }
        let stored = stored();
        if may_move {
            self.adopt_moves(&stored);
        }
        prop_assert_eq!(stored.len(), self.model.events.len());
        for (found, expected) in stored.iter().zip(&self.model.events) {
            prop_assert_eq!(found, expected);
        }
        Ok(())
    }

    /// A session that settles without claiming in order moves events whose turn has come, for others to find.
    /// When it does is its own affair.
    fn adopt_moves(&mut self, stored: &[Event]) {
        for (at, found) in stored.iter().enumerate() {
            let Some(known) = self.model.events.get(at) else { return };
            let waits = known.status == Status::Pending && known.available_at <= self.now;
            let moved = Event { available_at: self.now, updated_at: self.now, ..known.clone() };
            if known != found && moved == *found && waits && self.model.has_turn(known) {
                self.model.events[at] = moved;
            }
        }
    }

    fn replay(&mut self, replay: &Replay) -> Result<(), TestCaseError> {
        let found = attempted(&format!(
            "outbox_replay(NULL, {}, {}, {})",
            replay.event_type.map_or("NULL".into(), |event_type| format!("'type{event_type}'")),
            replay.tenant.map_or("NULL".into(), |tenant| quoted_uuid("aaaa", tenant)),
            replay.most
        ));
        prop_assert_eq!(found, Ok(self.model.replay(self.now, replay).to_string()));
        Ok(())
    }

    fn purge(&mut self, purge: &Purge) -> Result<(), TestCaseError> {
        // What the last purge has passed over is found again once it is time.
        test_clock::skip(std::time::Duration::from_secs(60));
        let statuses: Vec<_> = purge.statuses.iter().map(|status| format!("{status:?}")).collect();
        let found = attempted(&format!(
            "outbox_purge('{} microseconds', {}, lower('{{{}}}')::text[])",
            purge.older_than,
            purge.most,
            statuses.join(",")
        ));
        prop_assert_eq!(found, Ok(self.model.purge(self.now, purge).to_string()));
        Ok(())
    }

    fn enqueue(&mut self, wanted: &Wanted) -> Result<(), TestCaseError> {
        let new = self.new_event(wanted);
        let named = arguments_of(&new, wanted.spelling).map(|(name, value)| format!("{name} => {value}"));
        let found = attempted(&format!("outbox_enqueue({})", named.join(", ")));
        // The id is the extension's to choose, but must be a new one where the model adds an event.
        let id = found.as_ref().map_or(Uuid::from_bytes([0; 16]), |id| uuid(id));
        prop_assert_eq!(
            found.as_ref().map(|id| uuid(id)).map_err(Clone::clone),
            refused(self.model.enqueue(self.now, id, new))
        );
        Ok(())
    }

    fn enqueue_batch(&mut self, batch: &[Wanted]) -> Result<(), TestCaseError> {
        let objects: Vec<String> = batch
            .iter()
            .map(|wanted| {
                let members = arguments_of(&self.new_event(wanted), wanted.spelling)
                    .map(|(name, value)| format!("'{name}', {value}"));
                format!("jsonb_build_object({})", members.join(", "))
            })
            .collect();
        let answers = "coalesce(string_agg(concat(id, ' ', deduplicated), ',' ORDER BY ordinal), '')";
        let list = format!("jsonb_build_array({})", objects.join(", "));
        let found = attempted(&format!("(SELECT {answers} FROM outbox_enqueue_batch({list}))"));
        let found = found.map(|answers| {
            let answers = answers.split_terminator(',').filter_map(|answer| answer.split_once(' '));
            answers.map(|(id, deduplicated)| (uuid(id), deduplicated == "t")).collect::<Vec<_>>()
        });
        let chosen =
            found.iter().flatten().map(|(id, _)| *id).chain(std::iter::repeat(Uuid::from_bytes([0; 16])));
        let events: Vec<_> = chosen.zip(batch.iter().map(|wanted| self.new_event(wanted))).collect();
        prop_assert_eq!(found, refused(self.model.enqueue_batch(self.now, events)));
        Ok(())
    }

    fn new_event(&self, wanted: &Wanted) -> NewEvent {
        NewEvent { available_at: wanted.due_in.map(|due_in| self.now + due_in), ..wanted.new.clone() }
    }

    fn claim(
        &mut self,
        worker: u8,
        batch_size: usize,
        lock_timeout: Moment,
        max_attempts: Option<i32>,
        only: Only,
    ) -> Result<(), TestCaseError> {
        let claim = Claim {
            worker: name(worker),
            batch_size,
            lock_timeout,
            max_attempts: max_attempts.unwrap_or(MAX_ATTEMPTS),
            event_type: only.event_type,
            tenant: only.tenant,
        };
        // What the scan cursor has passed over is found again once a sweep is due.
        test_clock::skip(std::time::Duration::from_secs(60));
        let handed_out = ids(&format!(
            "SELECT id FROM outbox_claim_batch('{}', {batch_size}, '{lock_timeout} microseconds', {}, {}, {}, {})",
            claim.worker,
            number(max_attempts),
            only.event_type.map_or("NULL".into(), |event_type| format!("'{{type{event_type}}}'")),
            only.tenant.map_or("NULL".into(), |tenant| quoted_uuid("aaaa", tenant)),
            only.ordered
        ))?;
        if !only.ordered {
            prop_assert_eq!(handed_out, self.model.claim(self.now, &claim));
            return Ok(());
        }
        let after = Outbox { events: stored(), ..self.model.clone() };
        let done = OrderedClaim {
            claim: &claim,
            now: self.now,
            handed_out: &handed_out,
            before: &self.model,
            after: &after,
        };
        prop_assert_eq!(done.judge(), Ok(()));
        self.model = after;
        Ok(())
    }

    /// A batch: what is not held is left alone, and does not come back.
    fn batch(&mut self, held: &[(usize, Attempt)], worker: u8, act: Act) -> Result<(), TestCaseError> {
        let settlements: Vec<_> =
            held.iter().map(|(at, attempt)| self.settlement(*at, worker, *attempt)).collect();
        let list =
            |one: &dyn Fn(&Settlement) -> String| settlements.iter().map(one).collect::<Vec<_>>().join(",");
        let events = format!("'{{{}}}'", list(&|settlement| settlement.event.to_string()));
        let attempts = format!("'{{{}}}'", list(&|settlement| number(settlement.attempt)));
        let worker = format!("'{}'", name(worker));
        let due =
            |due_in: Option<Moment>| due_in.map_or("NULL".into(), |due_in| timestamp(self.now + due_in));
        let (call, expected) = match act {
            Act::Complete => {
                let expected = self.settled(&settlements, |model, now, one| model.complete(now, one).is_ok());
                (format!("outbox_complete_batch({events}, {worker}, {attempts})"), expected)
            }
            Act::Extend => {
                let expected = self.settled(&settlements, |model, now, one| model.extend(now, one).is_ok());
                (format!("outbox_extend_batch({events}, {worker}, {attempts})"), expected)
            }
            Act::Release { due_in } => {
                let call = format!("outbox_release_batch({events}, {worker}, {}, {attempts})", due(due_in));
                let expected = self.settled(&settlements, |model, now, one| {
                    model.release(now, one, now + due_in.unwrap_or(0)).is_ok()
                });
                (call, expected)
            }
            Act::Fail { max_attempts, due_in } => {
                let failure = self.failure(max_attempts, due_in.map(|due_in| self.now + due_in));
                let call = format!(
                    "outbox_fail_batch({events}, {worker}, '{}', {}, {}, {attempts})",
                    failure.error_code,
                    number(max_attempts),
                    due(due_in)
                );
                return self.fail_batch(&call, &settlements, &failure);
            }
        };
        let mut found = ids(&format!("SELECT {call}"))?;
        found.sort_unstable_by_key(|id| *id.as_bytes());
        prop_assert_eq!(found, expected);
        Ok(())
    }

    /// The events that one of the settlements settles in the model, in the order of their ids.
    fn settled(
        &mut self,
        settlements: &[Settlement],
        settle: impl Fn(&mut Outbox, Moment, &Settlement) -> bool,
    ) -> Vec<Uuid> {
        let mut settled: Vec<Uuid> = Vec::new();
        for one in settlements {
            if !settled.contains(&one.event) && settle(&mut self.model, self.now, one) {
                settled.push(one.event);
            }
        }
        settled.sort_unstable_by_key(|id| *id.as_bytes());
        settled
    }

    fn fail_batch(
        &mut self,
        call: &str,
        settlements: &[Settlement],
        failure: &Failure,
    ) -> Result<(), TestCaseError> {
        let mut found = ids(&format!("SELECT id FROM {call}"))?;
        found.sort_unstable_by_key(|id| *id.as_bytes());
        let mut expected: Vec<Uuid> = Vec::new();
        for one in settlements {
            if expected.contains(&one.event) {
                continue;
            }
            if let Ok(failed) = self.model.fail(self.now, one, failure) {
                expected.push(one.event);
                self.adopt_draw(one.event, &failed)?;
            }
        }
        expected.sort_unstable_by_key(|id| *id.as_bytes());
        prop_assert_eq!(found, expected);
        Ok(())
    }

    fn failure(&self, max_attempts: Option<i32>, next_attempt: Option<Moment>) -> Failure {
        Failure {
            error_code: format!("http_{}", self.now % 100),
            max_attempts: max_attempts.unwrap_or(MAX_ATTEMPTS),
            next_attempt,
            backoff_base: BACKOFF_BASE,
            backoff_max: BACKOFF_MAX,
        }
    }

    /// Takes over when a failed event is due again, which was drawn within bounds.
    fn adopt_draw(&mut self, event: Uuid, failed: &Failed) -> Result<(), TestCaseError> {
        if let Failed::Pending { from, to } = *failed {
            let drawn = stored().into_iter().find(|found| found.id == event);
            let drawn = drawn.map(|event| event.available_at).unwrap_or_default();
            prop_assert!((from..=to).contains(&drawn), "{} is not in {}..={}", drawn, from, to);
            let known = self.model.events.iter_mut().find(|known| known.id == event);
            known.into_iter().for_each(|event| event.available_at = drawn);
        }
        Ok(())
    }

    fn fail(
        &mut self,
        settlement: &Settlement,
        max_attempts: Option<i32>,
        next_attempt: Option<Moment>,
    ) -> Result<(), TestCaseError> {
        let failure = self.failure(max_attempts, next_attempt);
        let middle = format!(
            ", '{}', {}, {}",
            failure.error_code,
            number(max_attempts),
            next_attempt.map_or("NULL".into(), timestamp)
        );
        let found = attempted(&format!("outbox_fail({})", arguments(settlement, &middle)));
        match self.model.fail(self.now, settlement, &failure) {
            Err(refusal) => prop_assert_eq!(found, Err(refusal.sqlstate().to_owned())),
            Ok(Failed::Dead) => prop_assert_eq!(found.as_deref(), Ok("dead")),
            Ok(failed) => {
                prop_assert_eq!(found.as_deref(), Ok("pending"));
                self.adopt_draw(settlement.event, &failed)?;
            }
        }
        Ok(())
    }

    /// A settlement of the event at a place in the queue, or of one that does not exist.
    fn settlement(&self, at: usize, worker: u8, attempt: Attempt) -> Settlement {
        let event = self.model.events.get(at);
        let current = event.map_or(1, |event| event.attempt_count);
        Settlement {
            event: event.map_or(Uuid::from_bytes([7; 16]), |event| event.id),
            worker: name(worker),
            attempt: match attempt {
                Attempt::Unsaid => None,
                Attempt::Current => Some(current),
                Attempt::Earlier => Some(current - 1),
            },
        }
    }
}

fn refused<T>(outcome: Result<T, Refusal>) -> Result<T, String> {
    outcome.map_err(|refusal| refusal.sqlstate().to_owned())
}

fn arguments(settlement: &Settlement, middle: &str) -> String {
    let Settlement { event, worker, attempt } = settlement;
    format!("'{event}', '{worker}'{middle}, attempt => {}", number(*attempt))
}

fn name(worker: u8) -> String {
    format!("worker{worker}")
}

fn number(value: Option<i32>) -> String {
    value.map_or("NULL".into(), |value| value.to_string())
}

fn quoted_uuid(prefix: &str, last: u8) -> String {
    format!("'{prefix}0000-0000-0000-0000-00000000000{last}'")
}

fn uuid(text: &str) -> Uuid {
    let bytes = hex::decode(text.replace('-', "")).unwrap();
    Uuid::from_slice(&bytes).unwrap()
}

fn timestamp(moment: Moment) -> String {
    format!("'2000-01-01 00:00:00+00'::timestamptz + '{moment} microseconds'::interval")
}

fn run(sql: &str) {
    Spi::run(sql).unwrap();
}

/// Calls a function in a subtransaction: its result as text, or the SQLSTATE of its refusal.
fn attempted(call: &str) -> Result<String, String> {
    let outcome = Spi::get_one_with_args::<String>("SELECT attempted($1)", &[call.into()]).unwrap().unwrap();
    match outcome.split_at(1) {
        ("+", result) => Ok(result.to_owned()),
        (_, sqlstate) => Err(sqlstate.to_owned()),
    }
}

/// The ids that a query returns, in their order; it must not be refused.
fn ids(query: &str) -> Result<Vec<Uuid>, TestCaseError> {
    let list = "coalesce(string_agg(found.id::text, ','), '')";
    let found = attempted(&format!("(SELECT {list} FROM ({query}) AS found (id))"));
    let ids = found.map_err(|sqlstate| TestCaseError::fail(format!("{query}: {sqlstate}")))?;
    Ok(ids.split_terminator(',').map(uuid).collect())
}

/// The table, as the model sees it.
fn stored() -> Vec<Event> {
    const MOMENT: &str = "(extract(epoch FROM $ - '2000-01-01 00:00:00+00'::timestamptz) * 1000000)::bigint";
    let moment = |column: &str| MOMENT.replace('$', column);
    let columns =
        ["available_at", "locked_at", "completed_at", "dead_at", "created_at", "updated_at"].map(moment);
    let sql = format!(
        "SELECT id, right(tenant_id::text, 1), right(event_type, 1), right(aggregate_id::text, 1),
                right(deduplication_key, 1), payload::text, status::text, attempt_count, forgiven_attempts,
                locked_by, last_error_code, {}, claimed_in_order
         FROM outbox_event
         WHERE payload_hash = outbox_payload_hash(payload) ORDER BY id",
        columns.join(", ")
    );
    Spi::connect(|client| {
        let rows = client.select(&sql, None, &[]).unwrap();
        rows.map(|row| event(&row)).collect()
    })
}

fn event(row: &pgrx::spi::SpiHeapTupleData) -> Event {
    let text = |column: usize| row.get::<String>(column).unwrap();
    let digit = |column: usize| text(column).map(|text| text.parse::<u8>().unwrap());
    let count = |column: usize| row.get::<i32>(column).unwrap().unwrap();
    let moment = |column: usize| row.get::<i64>(column).unwrap();
    let payload = text(6).unwrap();
    let spells = |spelling: &&[&str; 2]| {
        Spi::get_one::<bool>(&format!("SELECT '{payload}'::jsonb = '{}'::jsonb", spelling[0]))
            .unwrap()
            .unwrap()
    };
    Event {
        id: row.get::<Uuid>(1).unwrap().unwrap(),
        new: NewEvent {
            tenant: digit(2),
            event_type: digit(3).unwrap(),
            aggregate: digit(4).unwrap(),
            key: digit(5),
            payload: PAYLOADS.iter().position(|p| spells(&p)).unwrap() as u8,
            available_at: None,
        },
        status: match text(7).unwrap().as_str() {
            "pending" => Status::Pending,
            "processing" => Status::Processing,
            "completed" => Status::Completed,
            "dead" => Status::Dead,
            other => panic!("unknown status {other}"),
        },
        attempt_count: count(8),
        forgiven_attempts: count(9),
        locked_by: text(10),
        last_error_code: text(11),
        available_at: moment(12).unwrap(),
        locked_at: moment(13),
        completed_at: moment(14),
        dead_at: moment(15),
        created_at: moment(16).unwrap(),
        updated_at: moment(17).unwrap(),
        claimed_in_order: row.get::<bool>(18).unwrap(),
    }
}

#[pg_schema]
mod tests {
    use super::*;
    use proptest::test_runner::{Config, TestRunner};

    #[pg_test]
    fn the_extension_and_the_model_agree_after_every_step() {
        run("CREATE FUNCTION attempted(call text) RETURNS text LANGUAGE plpgsql AS $$
             DECLARE result text;
             BEGIN
                 EXECUTE 'SELECT ' || call INTO result;
                 RETURN '+' || coalesce(result, '');
             EXCEPTION WHEN OTHERS THEN
                 RETURN '-' || SQLSTATE;
             END $$");
        run(&format!("SET LOCAL outbox.max_attempts = {MAX_ATTEMPTS}"));
        run(&format!("SET LOCAL outbox.backoff_base = '{}s'", BACKOFF_BASE / SECOND));
        run(&format!("SET LOCAL outbox.backoff_max = '{}s'", BACKOFF_MAX / SECOND));
        let mut runner =
            TestRunner::new(Config { cases: 300, failure_persistence: None, ..Config::default() });
        let outcome = runner.run(&steps(), |steps| {
            let mut pair = Pair::new();
            steps.into_iter().try_for_each(|step| pair.step(step))
        });
        test_clock::freeze(None);
        outcome.unwrap();
    }
}
