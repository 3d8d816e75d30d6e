//! Every error that outbox_ext raises: SQLSTATE, message, DETAIL and HINT in one place.
//!
//! A message names the parameter or the event, DETAIL says what was found, HINT what to do. None carries a
//! payload, a key or anything of another tenant's row.

pub use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgSqlErrorCode, Uuid};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutboxError {
    /// 22004
    MissingArgument { parameter: &'static str },
    /// 22004
    NullElement { parameter: &'static str },
    /// 22023, for a parameter or a column
    InvalidArgument { parameter: &'static str, found: String, rule: &'static str },
    /// 54000
    PayloadTooLarge { size: usize, limit: usize },
    /// 22023, for an element of an array of events
    InvalidElement { fault: &'static str, rule: &'static str },
    /// Any of these, in an element of an array; elements count from 1.
    InElement { element: usize, error: Box<OutboxError> },
    /// 23505
    KeyConflict { holder: HeldBy, differs: Differs },
    /// 42501
    KeyHidden,
    /// 40001
    KeyLost,
    /// 09000
    InsertSuppressed,
    /// 42704
    NoSuchRole { role: u32 },
    /// 42501
    NotGrantable { target: String },
    /// P0002
    NoSuchEvent { event: Uuid },
    /// 55000
    LeaseLost { event: Uuid, found: Found },
    /// 39P01
    NotATrigger { function: &'static str, expected: &'static str, hint: &'static str },
    /// Several, each at its variant.
    Uncaptured { trigger: String, table: String, reason: Uncaptured },
    /// 39P01
    AlteredTable { column: &'static str },
    /// 55000: the library is newer than the extension's objects in the database
    OldCatalog,
    /// 40001
    ClaimLost,
    /// 53200
    OutOfMemory,
    /// XX001
    DamagedPayload,
    /// XX000: PostgreSQL's programming interface answered in a way it never should.
    Internal { what: &'static str, code: i32 },
}

/// What has a deduplication key already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldBy {
    Event(Uuid),
    /// An earlier element of the same array.
    Element(usize),
}

/// In what the holder of a deduplication key differs from the event that wanted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Differs {
    Payload,
    Aggregate,
    Both,
}

impl Differs {
    /// In nothing, if both are the same.
    pub fn in_any(same_payload: bool, same_aggregate: bool) -> Option<Self> {
        match (same_payload, same_aggregate) {
            (true, true) => None,
            (false, true) => Some(Self::Payload),
            (true, false) => Some(Self::Aggregate),
            (false, false) => Some(Self::Both),
        }
    }
}

/// Why a capture trigger makes no event of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Uncaptured {
    /// 22023
    Arguments { found: String },
    /// 42703
    NoSuchColumn { column: String },
    /// 22004
    NullId { column: String },
    /// 22023
    EmptyId { column: String },
    /// 42804
    CompositeId { column: String, kind: String },
    /// 42804
    TenantIsNoUuid { column: String, kind: String },
    /// 42501
    Forbidden,
}

/// What a worker that settles without a lease finds instead of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    NeverClaimed,
    Pending {
        attempt: i32,
    },
    LeasedTo {
        worker: String,
        attempt: i32,
    },
    OtherAttempt {
        attempt: i32,
        passed: i32,
    },
    Completed,
    Dead,
    /// The lease fits when it is looked at, and yet the statement changed nothing.
    Unchanged,
}

impl OutboxError {
    /// The error, of an element of an array.
    pub fn in_element(self, element: usize) -> Self {
        Self::InElement { element, error: Box::new(self) }
    }

    pub fn sqlstate(&self) -> PgSqlErrorCode {
        use PgSqlErrorCode::*;
        match self {
            Self::MissingArgument { .. } | Self::NullElement { .. } => ERRCODE_NULL_VALUE_NOT_ALLOWED,
            Self::PayloadTooLarge { .. } => ERRCODE_PROGRAM_LIMIT_EXCEEDED,
            Self::InvalidArgument { .. } | Self::InvalidElement { .. } => ERRCODE_INVALID_PARAMETER_VALUE,
            Self::InElement { error, .. } => error.sqlstate(),
            Self::KeyConflict { .. } => ERRCODE_UNIQUE_VIOLATION,
            Self::KeyHidden | Self::NotGrantable { .. } => ERRCODE_INSUFFICIENT_PRIVILEGE,
            Self::NoSuchRole { .. } => ERRCODE_UNDEFINED_OBJECT,
            Self::KeyLost | Self::ClaimLost => ERRCODE_T_R_SERIALIZATION_FAILURE,
            Self::InsertSuppressed => ERRCODE_TRIGGERED_ACTION_EXCEPTION,
            Self::NoSuchEvent { .. } => ERRCODE_NO_DATA_FOUND,
            Self::LeaseLost { .. } | Self::OldCatalog => ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            Self::Uncaptured { reason, .. } => reason.sqlstate(),
            Self::NotATrigger { .. } | Self::AlteredTable { .. } => ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED,
            Self::OutOfMemory => ERRCODE_OUT_OF_MEMORY,
            Self::DamagedPayload => ERRCODE_DATA_CORRUPTED,
            Self::Internal { .. } => ERRCODE_INTERNAL_ERROR,
        }
    }

    fn message(&self) -> String {
        match self {
            Self::MissingArgument { parameter } => format!("{parameter} must not be null"),
            Self::NullElement { parameter } => format!("{parameter} must not contain null"),
            Self::InvalidArgument { parameter, .. } => format!("invalid value for {parameter}"),
            Self::PayloadTooLarge { .. } => "payload is larger than outbox.max_payload_bytes allows".into(),
            Self::InvalidElement { fault, .. } => format!("an element of events {fault}"),
            Self::InElement { error, .. } => error.message(),
            Self::KeyConflict { differs, .. } => {
                let what = match differs {
                    Differs::Payload => "another payload",
                    Differs::Aggregate => "another aggregate",
                    Differs::Both => "another payload and another aggregate",
                };
                format!("deduplication_key was used before with {what}")
            }
            Self::KeyHidden => {
                "deduplication_key is held by an event that row-level security hides from you".into()
            }
            Self::KeyLost => "deduplication_key was taken and given up by concurrent transactions".into(),
            Self::InsertSuppressed => {
                "the event was not stored: a trigger on outbox_event suppressed it".into()
            }
            Self::NoSuchRole { .. } => "grantee is no role".into(),
            Self::NotGrantable { .. } => "no right to grant all that the duty needs".into(),
            Self::NoSuchEvent { event } => format!("event {event} does not exist"),
            Self::LeaseLost { event, .. } => format!("the lease on event {event} is not held"),
            Self::NotATrigger { function, expected, .. } => {
                format!("{function} was not called by {expected}")
            }
            Self::Uncaptured { trigger, table, reason } => reason.message(trigger, table),
            Self::AlteredTable { column } => {
                format!(
                    "outbox_event_guard cannot guard this table: it has no column {column} of the right type"
                )
            }
            Self::OldCatalog => "outbox_ext was updated on the server, but not in this database".into(),
            Self::ClaimLost => "another session claimed an event of the same aggregate at this moment".into(),
            Self::OutOfMemory => "out of memory for the hash of the payload".into(),
            Self::DamagedPayload => "payload is damaged: its stored form is no jsonb".into(),
            Self::Internal { what, code } => format!("unexpected result {code} of {what}"),
        }
    }

    fn detail(&self) -> Option<String> {
        Some(match self {
            Self::InvalidArgument { parameter, found, .. } => format!("{parameter} is {found}."),
            Self::PayloadTooLarge { size, limit } => {
                format!("payload has {size} bytes, the limit is {limit} bytes.")
            }
            Self::KeyConflict { holder, .. } => format!("The key is held by {holder}."),
            Self::InElement { element, error } => error.detail_in(*element),
            Self::NoSuchRole { role } => format!("There is no role with the oid {role}."),
            Self::NotGrantable { target } => format!("You may not grant, or not all of it: {target}."),
            Self::LeaseLost { found, .. } => found.to_string(),
            Self::Uncaptured { trigger, table, reason } => reason.detail(trigger, table),
            Self::NoSuchEvent { .. } => {
                "No event with this id is visible: it was never committed, was deleted after it finished, \
                 or row-level security hides it."
                    .into()
            }
            Self::ClaimLost => {
                "An earlier event came back or came late, and was claimable beside a later one.".into()
            }
            _ => return None,
        })
    }

    fn detail_in(&self, element: usize) -> String {
        match self {
            Self::MissingArgument { parameter } => {
                format!("{parameter} of element {element} is null or missing.")
            }
            Self::InvalidArgument { parameter, found, .. } => {
                format!("{parameter} of element {element} is {found}.")
            }
            Self::KeyConflict { holder, .. } => format!("The key of element {element} is held by {holder}."),
            _ => match self.detail() {
                Some(detail) => format!("{detail} It is element {element} of the array."),
                None => format!("It is element {element} of the array."),
            },
        }
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::MissingArgument { parameter } => format!("Pass a value for {parameter}."),
            Self::NullElement { parameter } => format!("Leave the nulls out of {parameter}."),
            Self::PayloadTooLarge { .. } => {
                "Store the bulk elsewhere and pass a reference to it, or have a superuser raise outbox.max_payload_bytes."
                    .into()
            }
            Self::InvalidArgument { rule, .. } | Self::InvalidElement { rule, .. } => (*rule).into(),
            Self::InElement { error, .. } => return error.hint(),
            Self::KeyConflict { .. } => {
                "Use one key for one event: repeat a call with the same payload and aggregate, or choose another key."
                    .into()
            }
            Self::KeyHidden => "Choose another key, or enqueue as a role that may see the event.".into(),
            Self::KeyLost => "Retry the transaction.".into(),
            Self::InsertSuppressed => {
                "Look for a BEFORE INSERT trigger that returns NULL for this event, or changes its tenant, type or \
                 deduplication key (or for a rule)."
                    .into()
            }
            Self::NoSuchRole { .. } => "Pass the name of a role, or its oid.".into(),
            Self::NotGrantable { .. } => {
                "Call outbox_grant as the owner of the extension, or have its grants made with grant option.".into()
            }
            Self::NoSuchEvent { .. } => "Pass an id that outbox_claim_batch returned.".into(),
            Self::LeaseLost { found, .. } => found.hint().into(),
            Self::NotATrigger { hint, .. } => (*hint).into(),
            Self::Uncaptured { reason, .. } => reason.hint().into(),
            Self::AlteredTable { .. } => {
                "Leave outbox_event's columns and their types as the extension made them.".into()
            }
            Self::OldCatalog => "Run ALTER EXTENSION outbox_ext UPDATE.".into(),
            Self::ClaimLost => "Retry the transaction.".into(),
            Self::OutOfMemory => "Split the payload, or give the server more memory.".into(),
            Self::DamagedPayload => "Restore the row from a backup.".into(),
            Self::Internal { .. } => "This is a bug in outbox_ext: please report it.".into(),
        })
    }
}

impl std::fmt::Display for HeldBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Event(id) => write!(f, "event {id}"),
            Self::Element(element) => write!(f, "element {element}"),
        }
    }
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NeverClaimed => write!(f, "The event was never claimed."),
            Self::Pending { attempt } => {
                write!(f, "The event is pending again: its attempt {attempt} has ended.")
            }
            Self::LeasedTo { worker, attempt } => {
                write!(f, "The event is leased to worker \"{worker}\" (attempt {attempt}).")
            }
            Self::OtherAttempt { attempt, passed } => {
                write!(f, "The event is at attempt {attempt}, not at attempt {passed}.")
            }
            Self::Completed => write!(f, "The event is already completed."),
            Self::Dead => write!(f, "The event is dead."),
            Self::Unchanged => write!(
                f,
                "The lease is held now, but the event was left as it was: another session of the same worker \
                 changed it meanwhile, or a trigger or a row-level security policy of outbox_event held the \
                 change back."
            ),
        }
    }
}

impl Found {
    fn hint(&self) -> &'static str {
        match self {
            Self::NeverClaimed => "Claim the event with outbox_claim_batch before settling it.",
            Self::Completed => "Nothing is left to do: an earlier call completed it.",
            Self::Dead => "It was given up: look at last_error_code.",
            Self::Unchanged => {
                "Look for a BEFORE UPDATE or DELETE trigger that returns NULL for this event, or try again."
            }
            Self::Pending { .. } | Self::LeasedTo { .. } | Self::OtherAttempt { .. } => {
                "Drop this attempt's result: the event will be, or is being, delivered again. \
                 A longer lock_timeout keeps a slow worker's lease."
            }
        }
    }
}

impl Uncaptured {
    fn sqlstate(&self) -> PgSqlErrorCode {
        match self {
            Self::Arguments { .. } | Self::EmptyId { .. } => PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            Self::NoSuchColumn { .. } => PgSqlErrorCode::ERRCODE_UNDEFINED_COLUMN,
            Self::NullId { .. } => PgSqlErrorCode::ERRCODE_NULL_VALUE_NOT_ALLOWED,
            Self::CompositeId { .. } | Self::TenantIsNoUuid { .. } => {
                PgSqlErrorCode::ERRCODE_DATATYPE_MISMATCH
            }
            Self::Forbidden => PgSqlErrorCode::ERRCODE_INSUFFICIENT_PRIVILEGE,
        }
    }

    fn message(&self, trigger: &str, table: &str) -> String {
        match self {
            Self::Arguments { .. } => {
                format!("trigger \"{trigger}\" on table \"{table}\" has invalid arguments for outbox_capture")
            }
            Self::NoSuchColumn { column } => {
                format!("column \"{column}\" of table \"{table}\" does not exist")
            }
            Self::NullId { column } => {
                format!("column \"{column}\" of table \"{table}\" is null, and identifies no aggregate")
            }
            Self::EmptyId { column } => {
                format!("column \"{column}\" of table \"{table}\" is empty, and identifies no aggregate")
            }
            Self::CompositeId { column, .. } => {
                format!("column \"{column}\" of table \"{table}\" cannot identify an aggregate")
            }
            Self::TenantIsNoUuid { column, .. } => {
                format!("column \"{column}\" of table \"{table}\" cannot identify a tenant")
            }
            Self::Forbidden => "permission denied for table outbox_event".into(),
        }
    }

    fn detail(&self, trigger: &str, table: &str) -> String {
        match self {
            Self::Arguments { found } => found.clone(),
            Self::NoSuchColumn { .. } => format!("Trigger \"{trigger}\" names it in its arguments."),
            Self::NullId { .. } | Self::EmptyId { .. } => {
                format!("Trigger \"{trigger}\" takes the aggregate id from it.")
            }
            Self::CompositeId { kind, .. } => format!("It has the composite type {kind}."),
            Self::TenantIsNoUuid { kind, .. } => format!("It has the type {kind}; a tenant is a uuid."),
            Self::Forbidden => {
                format!(
                    "Trigger \"{trigger}\" on table \"{table}\" adds events with the rights of the role that changes \
                     the row."
                )
            }
        }
    }

    fn hint(&self) -> &'static str {
        match self {
            Self::Arguments { .. } => {
                "Create the trigger with EXECUTE FUNCTION outbox_capture('order', 'id'), \
                 or outbox_capture('order', 'id', 'tenant=tenant_id')."
            }
            Self::NoSuchColumn { .. } => {
                "Name a column as the table has it, in upper and lower case and without quotes; \
                 after a column was renamed, create the trigger anew."
            }
            Self::NullId { .. } | Self::EmptyId { .. } => {
                "Make the column NOT NULL, or leave such rows out with a WHEN clause of the trigger."
            }
            Self::CompositeId { .. } => {
                "Name a column of a plain type, such as uuid, bigint or text; \
                 where several columns make the key, a generated column that joins them."
            }
            Self::TenantIsNoUuid { .. } => "Name a column of type uuid, or leave tenant= out.",
            Self::Forbidden => {
                "Grant the role INSERT on the columns of outbox_event that events are made of, or capture with \
                 a SECURITY DEFINER function of your own."
            }
        }
    }
}

impl From<OutboxError> for ErrorReport {
    #[track_caller]
    fn from(error: OutboxError) -> Self {
        let mut report = ErrorReport::new(error.sqlstate(), error.message(), "outbox_ext");
        if let Some(detail) = error.detail() {
            report = report.set_detail(detail);
        }
        if let Some(hint) = error.hint() {
            report = report.set_hint(hint);
        }
        report
    }
}
