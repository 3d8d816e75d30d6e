//! A call by a trigger, and the rows in its hands.

use crate::encoding;
use crate::plans::Value;
use pgrx::callconv::{BoxRet, FcInfo};
use pgrx::datum::Datum;
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};
use pgrx::{FromDatum, Uuid, pg_sys};
use std::ffi::{CStr, c_int};

/// What happened to the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Insert,
    Update,
    Delete,
    Truncate,
}

/// A call by a trigger.
#[derive(Clone, Copy)]
pub struct TriggerCall<'a> {
    data: &'a pg_sys::TriggerData,
}

impl<'a> TriggerCall<'a> {
    /// None when the function was called in any other way.
    pub fn of(call: pg_sys::FunctionCallInfo) -> Option<Self> {
        // SAFETY: PostgreSQL calls a function with its fcinfo; a context that is TriggerData says so in its
        // tag, and lives as long as the call.
        unsafe {
            let context = (*call).context;
            let is_trigger = !context.is_null() && (*context).type_ == pg_sys::NodeTag::T_TriggerData;
            is_trigger.then(|| Self { data: &*context.cast::<pg_sys::TriggerData>() })
        }
    }

    pub fn is_before_row(&self) -> bool {
        self.timing() == pg_sys::TRIGGER_EVENT_ROW | pg_sys::TRIGGER_EVENT_BEFORE
    }

    pub fn is_after_row(&self) -> bool {
        self.timing() == pg_sys::TRIGGER_EVENT_ROW | pg_sys::TRIGGER_EVENT_AFTER
    }

    fn timing(&self) -> u32 {
        self.data.tg_event & (pg_sys::TRIGGER_EVENT_ROW | pg_sys::TRIGGER_EVENT_TIMINGMASK)
    }

    pub fn operation(&self) -> Operation {
        match self.data.tg_event & pg_sys::TRIGGER_EVENT_OPMASK {
            pg_sys::TRIGGER_EVENT_INSERT => Operation::Insert,
            pg_sys::TRIGGER_EVENT_UPDATE => Operation::Update,
            pg_sys::TRIGGER_EVENT_DELETE => Operation::Delete,
            _ => Operation::Truncate,
        }
    }

    /// The row before an UPDATE or DELETE, in a row trigger.
    pub fn old_row(&self) -> Option<TableRow> {
        match self.operation() {
            Operation::Update | Operation::Delete => Some(self.row(self.data.tg_trigtuple)),
            Operation::Insert | Operation::Truncate => None,
        }
    }

    /// The row after an INSERT or UPDATE, in a row trigger.
    pub fn new_row(&self) -> Option<TableRow> {
        match self.operation() {
            Operation::Insert => Some(self.row(self.data.tg_trigtuple)),
            Operation::Update => Some(self.row(self.data.tg_newtuple)),
            Operation::Delete | Operation::Truncate => None,
        }
    }

    /// The columns of the table.
    pub fn shape(&self) -> pg_sys::TupleDesc {
        // SAFETY: the relation is open for as long as the trigger runs.
        unsafe { (*self.data.tg_relation).rd_att }
    }

    /// The arguments that CREATE TRIGGER gave.
    pub fn arguments(&self) -> Vec<&'a CStr> {
        // SAFETY: tgargs holds that many C strings, which live as long as the call.
        unsafe {
            let trigger = &*self.data.tg_trigger;
            let count = usize::try_from(trigger.tgnargs).unwrap_or_default();
            (0..count).map(|index| CStr::from_ptr(*trigger.tgargs.add(index))).collect()
        }
    }

    /// The names of the trigger and of its table.
    pub fn names(&self) -> (&'a CStr, &'a CStr) {
        // SAFETY: both are C strings that live as long as the call.
        unsafe {
            let table = &raw const (*(*self.data.tg_relation).rd_rel).relname.data;
            (CStr::from_ptr((*self.data.tg_trigger).tgname), CStr::from_ptr(table.cast()))
        }
    }

    fn row(&self, tuple: pg_sys::HeapTuple) -> TableRow {
        TableRow { tuple, shape: self.shape() }
    }
}

/// A row of the trigger's table; lives as long as the call.
#[derive(Clone, Copy)]
pub struct TableRow {
    pub tuple: pg_sys::HeapTuple,
    shape: pg_sys::TupleDesc,
}

/// A column of the trigger's table.
#[derive(Clone, Copy)]
pub struct TableColumn {
    number: c_int,
    declared: pg_sys::Oid,
}

impl TableColumn {
    /// Its type, or the type beneath it when it is a domain.
    pub fn base_type(self) -> pg_sys::Oid {
        // SAFETY: a catalog look-up.
        unsafe { pg_sys::getBaseType(self.declared) }
    }

    pub fn is_uuid(self) -> bool {
        self.base_type() == pg_sys::UUIDOID
    }

    /// Whether its values are rows.
    pub fn is_composite(self) -> bool {
        // SAFETY: a catalog look-up.
        unsafe { pg_sys::type_is_rowtype(self.declared) }
    }

    /// Its type, for a message.
    pub fn type_name(self) -> String {
        // SAFETY: returns a C string.
        let name = unsafe { CStr::from_ptr(pg_sys::format_type_be(self.declared)) };
        encoding::for_message(name.to_bytes())
    }
}

impl TableRow {
    /// The column of that name, as the catalog has it; the system's own columns are none.
    pub fn column(&self, name: &CStr) -> Option<TableColumn> {
        // SAFETY: the shape of an open relation, a C string, and a number that the first call returned.
        unsafe {
            let number = pg_sys::SPI_fnumber(self.shape, name.as_ptr());
            let declared = pg_sys::SPI_gettypeid(self.shape, number);
            (number > 0).then_some(TableColumn { number, declared })
        }
    }

    /// The column's value.
    pub fn value(&self, column: TableColumn) -> Value {
        let mut is_null = false;
        // SAFETY: the tuple has this shape, which has the column.
        let value = unsafe { pg_sys::SPI_getbinval(self.tuple, self.shape, column.number, &mut is_null) };
        (!is_null).then_some(value)
    }

    /// The column's value, if it is a uuid.
    pub fn uuid(&self, column: TableColumn) -> Option<Uuid> {
        let value = self.value(column).filter(|_| column.is_uuid())?;
        // SAFETY: the value of a column of this type.
        unsafe { Uuid::from_datum(value, false) }
    }

    /// The row as a value of its table's row type, in the current memory context.
    pub fn record(&self) -> pg_sys::Datum {
        // SAFETY: the shape is the tuple's own, and carries the oid of the row type.
        unsafe { pg_sys::heap_copy_tuple_as_datum(self.tuple, self.shape) }
    }

    /// All values, and which of them are null.
    pub fn values(&self) -> (Vec<pg_sys::Datum>, Vec<bool>) {
        // SAFETY: the shape is the tuple's own, and both vectors have room for all its columns.
        unsafe {
            let columns = usize::try_from((*self.shape).natts).unwrap_or_default();
            let mut values = vec![pg_sys::Datum::null(); columns];
            let mut nulls = vec![true; columns];
            pg_sys::heap_deform_tuple(self.tuple, self.shape, values.as_mut_ptr(), nulls.as_mut_ptr());
            (values, nulls)
        }
    }
}

/// A tuple as a trigger returns it.
pub struct Tuple(pub pg_sys::HeapTuple);

impl Tuple {
    /// What an AFTER trigger returns: nobody looks at it.
    pub fn none() -> Self {
        Self(std::ptr::null_mut())
    }
}

// SAFETY: a trigger function returns a pointer to the tuple.
unsafe impl BoxRet for Tuple {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> Datum<'fcx> {
        // SAFETY: the tuple is in the call's memory context, and PostgreSQL takes it from there.
        unsafe { fcinfo.return_raw_datum(pg_sys::Datum::from(self.0)) }
    }
}

// SAFETY: `box_into` returns what a function that RETURNS trigger returns.
unsafe impl SqlTranslatable for Tuple {
    const TYPE_IDENT: &'static str = "outbox_ext::trigger::Tuple";
    const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> =
        Err(ArgumentError::NotValidAsArgument("trigger"));
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> =
        Ok(ReturnsRef::One(SqlMappingRef::literal("trigger")));
}
