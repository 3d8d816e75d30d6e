//! Grants by duty: what a role needs that produces, works or operates, and no more.
//!
//! The functions run with their caller's rights, so a role needs rights on the table as well as EXECUTE, by
//! column where that keeps something from it: a producer reads no payload, a worker changes none.

use crate::argument;
use crate::array;
use crate::datum::Text;
use crate::error::{ErrorReport, OutboxError};
use crate::plans::{Session, Statement};
use pgrx::IntoDatum;
use pgrx::pg_sys::{self, OIDOID, TEXTARRAYOID, TEXTOID};
use pgrx::prelude::*;
use std::ffi::CStr;

/// Grants a role what it needs for a duty: `producer`, `worker` or `operator`. Granting again adds what a
/// later version of the extension has brought.
///
/// # Errors
/// `22004` an argument is NULL; `22023` an unknown duty; `42704` no such role; `42501` the caller may not
/// grant all of it.
#[pg_extern(sql = "
CREATE FUNCTION outbox_grant(grantee regrole, duty text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', '@FUNCTION_NAME@';
")]
fn outbox_grant(
    grantee: Option<pg_sys::Oid>,
    duty: Option<Text<'_>>,
    call: pg_sys::FunctionCallInfo,
) -> Result<(), ErrorReport> {
    let grantee = argument::required("grantee", grantee)?;
    let duty = Duty::named(&argument::required("duty", duty)?)?;
    Ok(grant(&Session::open(call)?, grantee, duty)?)
}

/// What is granted for a duty. What is not installed (yet, or any more) is left out.
struct Duty {
    name: &'static str,
    functions: &'static [&'static str],
    rights: &'static [Right],
}

/// A privilege on a table or view.
struct Right {
    relation: &'static str,
    privilege: &'static str,
    /// None for all of them, with those that are to come.
    columns: &'static [&'static str],
}

const fn on_events(privilege: &'static str, columns: &'static [&'static str]) -> Right {
    Right { relation: "outbox_event", privilege, columns }
}

/// The columns in which the life of an event is kept, from its first claim to its end or its replay.
const LIFE: &[&str] = &[
    "status",
    "attempt_count",
    "forgiven_attempts",
    "available_at",
    "locked_at",
    "locked_by",
    "last_error_code",
    "completed_at",
    "dead_at",
    "updated_at",
    "claimed_in_order",
];

static DUTIES: [Duty; 3] = [
    Duty {
        name: "producer",
        functions: &[
            "outbox_enqueue",
            "outbox_enqueue_batch",
            "outbox_capture",
            "outbox_aggregate_id",
            "outbox_payload_hash",
        ],
        rights: &[
            on_events(
                "INSERT",
                &[
                    "id",
                    "tenant_id",
                    "aggregate_type",
                    "aggregate_id",
                    "event_type",
                    "deduplication_key",
                    "payload",
                    "headers",
                    "payload_hash",
                    "available_at",
                    "created_at",
                    "updated_at",
                ],
            ),
            // To find the event that has a key already.
            on_events(
                "SELECT",
                &[
                    "id",
                    "tenant_id",
                    "aggregate_type",
                    "aggregate_id",
                    "event_type",
                    "deduplication_key",
                    "payload_hash",
                ],
            ),
        ],
    },
    Duty {
        name: "worker",
        functions: &[
            "outbox_claim_batch",
            "outbox_complete",
            "outbox_complete_batch",
            "outbox_fail",
            "outbox_fail_batch",
            "outbox_extend_batch",
            "outbox_release_batch",
        ],
        rights: &[
            on_events("SELECT", &[]),
            on_events("UPDATE", LIFE),
            // With outbox.delete_completed, completing deletes.
            on_events("DELETE", &[]),
        ],
    },
    Duty {
        name: "operator",
        functions: &["outbox_replay", "outbox_purge"],
        rights: &[
            on_events("SELECT", &[]),
            on_events("UPDATE", LIFE),
            on_events("DELETE", &[]),
            Right { relation: "outbox_stats", privilege: "SELECT", columns: &[] },
        ],
    },
];

impl Duty {
    fn named(name: &Text) -> Result<&'static Self, OutboxError> {
        match DUTIES.iter().find(|duty| duty.name.as_bytes() == name.bytes()) {
            Some(duty) => Ok(duty),
            None => argument::invalid("duty", "unknown", "Pass producer, worker or operator."),
        }
    }

    /// Relation, privilege and column of each right; a whole relation has no column.
    fn rights(&self) -> impl Iterator<Item = (&'static str, &'static str, Option<&'static str>)> {
        self.rights.iter().flat_map(|right| {
            let whole = right.columns.is_empty().then_some(None);
            let columns = whole.into_iter().chain(right.columns.iter().copied().map(Some));
            columns.map(|column| (right.relation, right.privilege, column))
        })
    }
}

fn grant(session: &Session, grantee: pg_sys::Oid, duty: &Duty) -> Result<(), OutboxError> {
    let role = role(grantee)?;
    let texts = |values: &mut dyn Iterator<Item = Option<&'static str>>| {
        Some(array::of(TEXTOID, values.map(|value| value.and_then(IntoDatum::into_datum))))
    };
    let grants = session.run(
        &GRANTS,
        [
            Some(session.schema().into()),
            Some(grantee.into()),
            Some(Text::of(role.to_bytes()).datum()),
            texts(&mut duty.functions.iter().copied().map(Some)),
            texts(&mut duty.rights().map(|(relation, ..)| Some(relation))),
            texts(&mut duty.rights().map(|(_, privilege, _)| Some(privilege))),
            texts(&mut duty.rights().map(|(.., column)| column)),
        ],
    )?;
    // All or none, and before the first: to a caller who has a right, but not that of granting it, PostgreSQL says
    // no more than a warning.
    if let Some(withheld) = grants.iter().find(|row| row.get(2) != Some(true)) {
        let target = withheld.get::<Text>(3).map(|target| crate::encoding::for_message(target.bytes()));
        return Err(OutboxError::NotGrantable { target: target.unwrap_or_default() });
    }
    grants
        .iter()
        .filter_map(|row| row.get::<Text>(1))
        .try_for_each(|command| session.command(command.bytes()))
}

/// The name of a role, quoted where it must be.
fn role(role: pg_sys::Oid) -> Result<&'static CStr, OutboxError> {
    // SAFETY: returns a copy of the name, or null when there is no such role; quoting returns the same
    // string or a copy, both of which live as long as the session.
    unsafe {
        let name = pg_sys::GetUserNameFromId(role, true);
        if name.is_null() {
            return Err(OutboxError::NoSuchRole { role: role.to_u32() });
        }
        Ok(CStr::from_ptr(pg_sys::quote_identifier(name)))
    }
}

/// The commands, whether the caller may grant all that each says, and what each is about.
///
/// Of the schema, USAGE is granted unless the role has it and the caller cannot grant it: everybody has it on
/// the schema public.
static GRANTS: Statement = Statement {
    sql: "WITH wanted AS (
              SELECT relation.oid::pg_catalog.regclass AS relation, privilege, attname,
                     CASE WHEN attname IS NULL THEN
                         pg_catalog.has_table_privilege(relation.oid, grantable)
                     ELSE
                         pg_catalog.has_column_privilege(relation.oid, attnum, grantable)
                     END AS is_grantable
              FROM ROWS FROM (pg_catalog.unnest($5), pg_catalog.unnest($6), pg_catalog.unnest($7))
                       AS listed (relname, privilege, column_name)
              JOIN pg_catalog.pg_class AS relation ON relation.relnamespace OPERATOR(pg_catalog.=) $1
                   AND relation.relname::pg_catalog.text OPERATOR(pg_catalog.=) listed.relname
              LEFT JOIN pg_catalog.pg_attribute AS attribute
                   ON attribute.attrelid OPERATOR(pg_catalog.=) relation.oid AND NOT attribute.attisdropped
                   AND attribute.attname::pg_catalog.text OPERATOR(pg_catalog.=) listed.column_name
              CROSS JOIN LATERAL pg_catalog.concat(privilege, ' WITH GRANT OPTION') AS grantable
              WHERE (column_name IS NULL OR attname IS NOT NULL)
                AND EXISTS (SELECT FROM pg_catalog.pg_depend AS member
                            WHERE member.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass
                              AND member.objid OPERATOR(pg_catalog.=) relation.oid
                              AND member.deptype OPERATOR(pg_catalog.=) 'e')
          ), granted (command, is_grantable, target) AS (
              SELECT pg_catalog.format('USAGE ON SCHEMA %I', nspname),
                     pg_catalog.has_schema_privilege(oid, 'USAGE WITH GRANT OPTION'),
                     pg_catalog.concat('schema ', nspname)
              FROM pg_catalog.pg_namespace
              WHERE oid OPERATOR(pg_catalog.=) $1
                AND (pg_catalog.has_schema_privilege(oid, 'USAGE WITH GRANT OPTION')
                     OR NOT pg_catalog.has_schema_privilege($2, oid, 'USAGE'))
              UNION ALL
              SELECT pg_catalog.concat('EXECUTE ON FUNCTION ', oid::pg_catalog.regprocedure),
                     pg_catalog.has_function_privilege(oid, 'EXECUTE WITH GRANT OPTION'),
                     pg_catalog.concat('function ', proname)
              FROM pg_catalog.pg_proc
              WHERE pronamespace OPERATOR(pg_catalog.=) $1
                AND proname::pg_catalog.text OPERATOR(pg_catalog.=) ANY ($4)
                AND EXISTS (SELECT FROM pg_catalog.pg_depend AS member
                            WHERE member.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass
                              AND member.objid OPERATOR(pg_catalog.=) pg_proc.oid
                              AND member.deptype OPERATOR(pg_catalog.=) 'e')
              UNION ALL
              SELECT pg_catalog.concat(
                         privilege,
                         ' (' OPERATOR(pg_catalog.||) pg_catalog.string_agg(pg_catalog.quote_ident(attname), ', ')
                             OPERATOR(pg_catalog.||) ')',
                         ' ON TABLE ', relation
                     ),
                     pg_catalog.bool_and(is_grantable), pg_catalog.concat(privilege, ' on ', relation)
              FROM wanted GROUP BY relation, privilege
          )
          SELECT pg_catalog.format('GRANT %s TO %s', command, $3), is_grantable, target FROM granted",
    parameters: &[OIDOID, OIDOID, TEXTOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID],
    seeks: false,
};
