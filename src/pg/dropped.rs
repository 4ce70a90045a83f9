//! What the running command has dropped, as PostgreSQL collected it for `sql_drop`: one call of its function, without a
//! statement around it, since every DROP of a database pays for it.

use pgrx::FromDatum;
use pgrx::pg_sys;

use crate::error::{Error, Result};
use crate::model::Oid;

/// Number of `pg_event_trigger_dropped_objects()`, which never changes.
const FUNCTION: u32 = 3566;

/// One row of `pg_event_trigger_dropped_objects()`.
pub struct DroppedObject {
    pub class: Oid,
    pub object: Oid,
    /// Number of the column that went, and not the object.
    pub column: Option<i32>,
    /// The command named it.
    pub original: bool,
    pub is_temporary: bool,
    /// `table`, `table column`, `function`, …
    pub kind: String,
    pub schema: Option<String>,
    pub identity: String,
    /// The name of the column, for one.
    pub column_name: Option<String>,
}

/// All that the command has dropped so far. Only in a `sql_drop` event trigger.
pub fn dropped_objects() -> Result<Vec<DroppedObject>> {
    let mut found = Vec::new();
    // SAFETY: the call has what a function that returns a set in a tuplestore needs: its number, by which it finds its
    // result type, and where to put it. Store and slot are its result and live in the current context until they are ended.
    unsafe {
        let context = pg_sys::CreateStandaloneExprContext();
        let mut function = pg_sys::FmgrInfo {
            fn_oid: FUNCTION.into(),
            fn_mcxt: (*context).ecxt_per_query_memory,
            ..Default::default()
        };
        let mut set = pg_sys::ReturnSetInfo {
            type_: pg_sys::NodeTag::T_ReturnSetInfo,
            econtext: context,
            allowedModes: pg_sys::SetFunctionReturnMode::SFRM_Materialize as i32,
            ..Default::default()
        };
        let mut call = pg_sys::FunctionCallInfoBaseData {
            flinfo: &raw mut function,
            resultinfo: (&raw mut set).cast(),
            ..Default::default()
        };
        pg_sys::pg_event_trigger_dropped_objects(&raw mut call);
        let slot = pg_sys::MakeSingleTupleTableSlot(set.setDesc, &raw const pg_sys::TTSOpsMinimalTuple);
        while pg_sys::tuplestore_gettupleslot(set.setResult, true, false, slot) {
            found.push(read(slot)?);
        }
        pg_sys::ExecDropSingleTupleTableSlot(slot);
        pg_sys::tuplestore_end(set.setResult);
        pg_sys::FreeExprContext(context, true);
    }
    Ok(found)
}

/// # Safety
/// `slot` holds a row of `pg_event_trigger_dropped_objects()`, whose columns are the same from 15 to 18.
unsafe fn read(slot: *mut pg_sys::TupleTableSlot) -> Result<DroppedObject> {
    const COLUMNS: i32 = 12;
    // SAFETY: per the contract; each column has the type that it is read as.
    unsafe {
        pg_sys::slot_getsomeattrs_int(slot, COLUMNS);
        let column = Column(slot);
        let number: i32 = column.read(2)?;
        let names: Option<Vec<Option<String>>> = if number > 0 { column.opt(10) } else { None };
        Ok(DroppedObject {
            class: column.read::<pg_sys::Oid>(0)?.to_u32(),
            object: column.read::<pg_sys::Oid>(1)?.to_u32(),
            column: (number > 0).then_some(number),
            original: column.read(3)?,
            is_temporary: column.read(5)?,
            kind: column.read(6)?,
            schema: column.opt(7),
            identity: column.read(9)?,
            column_name: names.and_then(|names| names.into_iter().next_back().flatten()),
        })
    }
}

/// The row in a slot, whose columns are deformed.
struct Column(*mut pg_sys::TupleTableSlot);

impl Column {
    /// # Safety
    /// Column `n`, counted from 0, is deformed and of type `T`.
    unsafe fn opt<T: FromDatum>(&self, n: usize) -> Option<T> {
        // SAFETY: per the contract.
        unsafe { T::from_datum(*(*self.0).tts_values.add(n), *(*self.0).tts_isnull.add(n)) }
    }

    /// # Safety
    /// As for `opt`.
    unsafe fn read<T: FromDatum>(&self, n: usize) -> Result<T> {
        // SAFETY: per the contract.
        unsafe { self.opt(n) }
            .ok_or_else(|| Error::Internal("a NULL in pg_event_trigger_dropped_objects()".into()))
    }
}
