//! The statements behind the functions: prepared once per backend, kept, and planned so that the plan holds
//! for every size the table can take.
//!
//! * Every statement names the extension's schema, which is the one that the called function's own oid has
//!   at this call. Kept plans are keyed by it: after a rename with a decoy schema under the old name, a
//!   plan keyed otherwise reads the decoy.
//! * Plans are generic. Those that look rows up are planned with sequential scans, bitmaps, sorts, hash and
//!   merge joins off, also when autovacuum has just analysed an empty table: such a plan would be kept, and
//!   read the whole table once it has filled. The plan is settled before the statement runs, so that a user's triggers,
//!   which run inside it, are planned as their owner likes.
//!
//! Names, operators and casts are qualified, since the caller's search_path is in force; a simple CASE looks
//! for an operator there too. What a statement returns is cast to the type that it is read as: a column's
//! type may have been altered.
//!
//! SPI (rather than the executor beneath it) keeps privileges, row-level security, triggers and
//! replication as they are for any other statement.

use crate::error::OutboxError;
use crate::instant::Instant;
use crate::pinned::Pinned;
use pgrx::{Uuid, pg_sys};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int};

/// A statement to be prepared; a `static`, since its address is its key.
pub struct Statement {
    /// The SQL; `{schema}` stands for the extension's schema.
    pub sql: &'static str,
    pub parameters: &'static [pg_sys::Oid],
    /// It looks rows up, so its plan must go through indexes.
    pub seeks: bool,
}

/// A value for a parameter; `None` is NULL.
pub type Value = Option<pg_sys::Datum>;

/// The datum of a uuid that outlives the statement.
pub fn uuid(uuid: &Uuid) -> pg_sys::Datum {
    pg_sys::Datum::from(uuid.as_bytes().as_ptr())
}

/// The datum of a moment.
pub fn moment(moment: Instant) -> pg_sys::Datum {
    pg_sys::Datum::from(moment.micros())
}

/// The statements that were prepared for the extension's schema.
struct Kept {
    schema: pg_sys::Oid,
    name: CString,
    plans: HashMap<*const Statement, pg_sys::SPIPlanPtr>,
}

thread_local! {
    /// Plans are never freed: they may be running (a trigger of the user's may call us), there are few,
    /// and a destructor at process exit would come after PostgreSQL has gone.
    static KEPT: RefCell<Option<Kept>> = const { RefCell::new(None) };
}

/// The column that came last: statements that name it do not work in a database whose extension is older. The
/// others do, so that producers go on.
const LAST_COLUMN: &str = "claimed_in_order";

/// An open SPI connection, in which statements run.
pub struct Session {
    schema: pg_sys::Oid,
}

impl Session {
    /// Opens one for the schema of the function that is being called.
    pub fn open(call: pg_sys::FunctionCallInfo) -> Result<Self, OutboxError> {
        // SAFETY: PostgreSQL calls a function with its fcinfo, and its flinfo holds the function's oid.
        let schema = unsafe { pg_sys::get_func_namespace((*(*call).flinfo).fn_oid) };
        KEPT.with_borrow_mut(|kept| keep_for(schema, kept))?;
        // SAFETY: paired with SPI_finish in drop; after an error PostgreSQL closes it with the transaction.
        succeeded("SPI_connect", unsafe { pg_sys::SPI_connect() })?;
        Ok(Self { schema })
    }

    /// The extension's schema.
    pub fn schema(&self) -> pg_sys::Oid {
        self.schema
    }

    /// The table of events.
    pub fn table(&self) -> pg_sys::Oid {
        // SAFETY: a catalog look-up by name.
        unsafe { pg_sys::get_relname_relid(c"outbox_event".as_ptr(), self.schema) }
    }

    /// Whether the caller's role may insert events: into the table, or into some of its columns.
    pub fn may_insert(&self) -> bool {
        let (table, mode) = (self.table(), pg_sys::ACL_INSERT as pg_sys::AclMode);
        // SAFETY: catalog look-ups.
        unsafe {
            let role = pg_sys::GetUserId();
            let any = pg_sys::AclMaskHow::ACLMASK_ANY;
            pg_sys::pg_class_aclcheck(table, role, mode) == pg_sys::AclResult::ACLCHECK_OK
                || pg_sys::pg_attribute_aclcheck_all(table, role, mode, any) == pg_sys::AclResult::ACLCHECK_OK
        }
    }

    /// Waits for the lock that writing takes, so that a clock read afterwards is not as old as the wait.
    pub fn lock_table(&self) {
        let table = self.table();
        if table != pg_sys::InvalidOid {
            // SAFETY: the lock is released with the transaction.
            unsafe { pg_sys::LockRelationOid(table, pg_sys::RowExclusiveLock as pg_sys::LOCKMODE) };
        }
    }

    /// The index of that name, if it is there.
    pub fn index(&self, name: &CStr) -> pg_sys::Oid {
        // SAFETY: catalog look-ups by name and by oid.
        unsafe {
            let found = pg_sys::get_relname_relid(name.as_ptr(), self.schema);
            let is_index = pg_sys::get_rel_relkind(found) == pg_sys::RELKIND_INDEX as c_char;
            if is_index { found } else { pg_sys::InvalidOid }
        }
    }

    /// Whether the table was made by an earlier version of the extension: it lacks the column that came last.
    fn is_older(&self) -> bool {
        let table = self.table();
        // SAFETY: a catalog look-up by name.
        table != pg_sys::InvalidOid && unsafe { pg_sys::get_attnum(table, c"claimed_in_order".as_ptr()) } == 0
    }

    /// Runs a statement, and returns the rows it touched and the tuples it returned.
    pub fn run<const N: usize>(
        &self,
        statement: &'static Statement,
        values: [Value; N],
    ) -> Result<Rows<'_>, OutboxError> {
        debug_assert_eq!(statement.parameters.len(), N);
        let plan = self.plan(statement)?;
        let mut datums = values.map(|value| value.unwrap_or(pg_sys::Datum::null()));
        let nulls = values.map(|value| if value.is_some() { b' ' } else { b'n' } as c_char);
        if statement.seeks {
            settle_plan(plan);
        }
        let _generic = generic_plans();
        // SAFETY: the plan is kept; values and nulls have its number of parameters, and outlive the call.
        succeeded("SPI_execute_plan", unsafe {
            pg_sys::SPI_execute_plan(plan, datums.as_mut_ptr(), nulls.as_ptr(), false, 0)
        })?;
        // SAFETY: set by the statement that has just run.
        Ok(unsafe { Rows { table: pg_sys::SPI_tuptable, touched: pg_sys::SPI_processed, session: self } })
    }

    /// Runs a command whose text, in the database's encoding, was made for this call.
    pub fn command(&self, sql: &[u8]) -> Result<(), OutboxError> {
        let sql = CString::new(sql).map_err(|_| OutboxError::Internal { what: "command text", code: 0 })?;
        // SAFETY: a C string that outlives the call.
        succeeded("SPI_execute", unsafe { pg_sys::SPI_execute(sql.as_ptr(), false, 0) })
    }

    fn plan(&self, statement: &'static Statement) -> Result<pg_sys::SPIPlanPtr, OutboxError> {
        let known = KEPT.with_borrow(|kept| Some(*kept.as_ref()?.plans.get(&std::ptr::from_ref(statement))?));
        if let Some(plan) = known {
            return Ok(plan);
        }
        if statement.sql.contains(LAST_COLUMN) && self.is_older() {
            return Err(OutboxError::OldCatalog);
        }
        let schema = KEPT.with_borrow(|kept| kept.as_ref().map(|kept| kept.name.clone())).unwrap_or_default();
        let plan = prepare(statement, &schema)?;
        KEPT.with_borrow_mut(|kept| {
            // A statement may have been prepared under a name that has changed since: then it is not kept.
            if let Some(kept) = kept.as_mut().filter(|kept| kept.name == schema) {
                kept.plans.insert(statement, plan);
            }
        });
        Ok(plan)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // When an error unwinds, inner connections may still be open: PostgreSQL closes them all.
        if !std::thread::panicking() {
            // SAFETY: closes the connection that `open` opened.
            unsafe { pg_sys::SPI_finish() };
        }
    }
}

/// Starts anew when the schema, or its name, is not the one the kept plans were made for.
fn keep_for(schema: pg_sys::Oid, kept: &mut Option<Kept>) -> Result<(), OutboxError> {
    // SAFETY: returns a copy of the name, or null when there is no such schema.
    let name = unsafe { pg_sys::get_namespace_name(schema) };
    if name.is_null() {
        return Err(OutboxError::Internal { what: "get_namespace_name", code: 0 });
    }
    // SAFETY: a C string that we own.
    let current = unsafe { CStr::from_ptr(name) };
    if !kept.as_ref().is_some_and(|kept| kept.schema == schema && kept.name.as_c_str() == current) {
        *kept = Some(Kept { schema, name: current.to_owned(), plans: HashMap::new() });
    }
    // SAFETY: `current` is not used any more.
    unsafe { pg_sys::pfree(name.cast()) };
    Ok(())
}

fn prepare(statement: &Statement, schema: &CStr) -> Result<pg_sys::SPIPlanPtr, OutboxError> {
    // SAFETY: returns the same string or a quoted copy, both C strings.
    let quoted = unsafe { CStr::from_ptr(pg_sys::quote_identifier(schema.as_ptr())) };
    let around: Vec<_> = statement.sql.split("{schema}").map(str::as_bytes).collect();
    let sql = CString::new(around.join(quoted.to_bytes()))
        .map_err(|_| OutboxError::Internal { what: "statement text", code: 0 })?;
    let mut types = statement.parameters.to_vec();
    // SAFETY: a C string and as many parameter types as are said; the plan is kept before it is used.
    unsafe {
        let plan = pg_sys::SPI_prepare_cursor(
            sql.as_ptr(),
            types.len() as c_int,
            types.as_mut_ptr(),
            pg_sys::CURSOR_OPT_GENERIC_PLAN as c_int,
        );
        if plan.is_null() {
            return Err(OutboxError::Internal { what: "SPI_prepare_cursor", code: pg_sys::SPI_result });
        }
        succeeded("SPI_keepplan", pg_sys::SPI_keepplan(plan))?;
        Ok(plan)
    }
}

/// Has the statement planned, if its plan is not valid any more, with only index paths to choose from.
fn settle_plan(plan: pg_sys::SPIPlanPtr) {
    let _seeking = PlannerSettings::seeking();
    // SAFETY: the plan is kept; the reference that is taken to it is given back at once. The lock that it
    // takes on the table stays, so that no invalidation is processed before the statement runs.
    unsafe {
        let cached = pg_sys::SPI_plan_get_cached_plan(plan);
        if !cached.is_null() {
            pg_sys::ReleaseCachedPlan(cached, pg_sys::CurrentResourceOwner);
        }
    }
}

/// The planner's settings as they were, put back on drop (also when planning fails).
struct PlannerSettings {
    seqscan: bool,
    bitmapscan: bool,
    sort: bool,
    hashjoin: bool,
    mergejoin: bool,
    nestloop: bool,
    indexscan: bool,
    tidscan: bool,
    jit: bool,
}

impl PlannerSettings {
    fn seeking() -> Self {
        // SAFETY: plain variables of this backend's one thread.
        unsafe {
            let before = Self {
                seqscan: pg_sys::enable_seqscan,
                bitmapscan: pg_sys::enable_bitmapscan,
                sort: pg_sys::enable_sort,
                hashjoin: pg_sys::enable_hashjoin,
                mergejoin: pg_sys::enable_mergejoin,
                nestloop: pg_sys::enable_nestloop,
                indexscan: pg_sys::enable_indexscan,
                tidscan: pg_sys::enable_tidscan,
                jit: pg_sys::jit_enabled,
            };
            pg_sys::enable_seqscan = false;
            pg_sys::enable_bitmapscan = false;
            pg_sys::enable_sort = false;
            pg_sys::enable_hashjoin = false;
            pg_sys::enable_mergejoin = false;
            pg_sys::enable_nestloop = true;
            pg_sys::enable_indexscan = true;
            pg_sys::enable_tidscan = true;
            // Whether to compile is decided by estimated cost, which grows with the table; what is read does not.
            pg_sys::jit_enabled = false;
            before
        }
    }
}

impl Drop for PlannerSettings {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe {
            pg_sys::enable_seqscan = self.seqscan;
            pg_sys::enable_bitmapscan = self.bitmapscan;
            pg_sys::enable_sort = self.sort;
            pg_sys::enable_hashjoin = self.hashjoin;
            pg_sys::enable_mergejoin = self.mergejoin;
            pg_sys::enable_nestloop = self.nestloop;
            pg_sys::enable_indexscan = self.indexscan;
            pg_sys::enable_tidscan = self.tidscan;
            pg_sys::jit_enabled = self.jit;
        }
    }
}

/// Holds back `plan_cache_mode = force_custom_plan`, which outranks a statement's own wish and would plan
/// it anew, with the session's settings, at each call. As a function's SET clause does, since a user's
/// triggers run meanwhile and may set it too.
fn generic_plans() -> Option<Pinned> {
    let forced_custom = pg_sys::PlanCacheMode::PLAN_CACHE_MODE_FORCE_CUSTOM_PLAN as c_int;
    // SAFETY: a variable of this backend's one thread.
    let forced = unsafe { pg_sys::plan_cache_mode } == forced_custom;
    forced.then(|| Pinned::at(&[(c"plan_cache_mode", c"auto")]))
}

fn succeeded(what: &'static str, code: c_int) -> Result<(), OutboxError> {
    if code < 0 { Err(OutboxError::Internal { what, code }) } else { Ok(()) }
}

/// What a statement returned; lives as long as the session.
pub struct Rows<'s> {
    table: *mut pg_sys::SPITupleTable,
    touched: u64,
    session: &'s Session,
}

impl<'s> Rows<'s> {
    /// How many rows the statement returned or touched.
    pub fn count(&self) -> u64 {
        self.touched
    }

    /// The returned rows.
    pub fn iter(&self) -> impl Iterator<Item = Row<'s>> + use<'_, 's> {
        let count = if self.table.is_null() { 0 } else { self.touched as usize };
        (0..count).map(|index| {
            // SAFETY: the table holds `touched` tuples, and is freed with the session only.
            let (tuple, shape) = unsafe { (*(*self.table).vals.add(index), (*self.table).tupdesc) };
            Row { tuple, shape, session: self.session }
        })
    }

    /// The first returned row.
    pub fn first(&self) -> Option<Row<'s>> {
        self.iter().next()
    }
}

/// A returned row.
#[derive(Clone, Copy)]
pub struct Row<'s> {
    tuple: pg_sys::HeapTuple,
    shape: pg_sys::TupleDesc,
    #[allow(dead_code, reason = "holds the session open for as long as the row is used")]
    session: &'s Session,
}

impl Row<'_> {
    /// The column's value (columns count from 1); lives as long as the session.
    pub fn value(&self, column: c_int) -> Value {
        let mut is_null = false;
        // SAFETY: the tuple has the shape it was returned with; a column that is not there comes back null.
        let datum = unsafe { pg_sys::SPI_getbinval(self.tuple, self.shape, column, &mut is_null) };
        (!is_null).then_some(datum)
    }

    /// The column's value as a Rust type that reads the column's SQL type.
    pub fn get<T: pgrx::FromDatum>(&self, column: c_int) -> Option<T> {
        // SAFETY: the statements beside their readers name the columns and their types.
        self.value(column).and_then(|datum| unsafe { T::from_datum(datum, false) })
    }
}
