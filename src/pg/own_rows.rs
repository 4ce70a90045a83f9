//! Writing the tables of pgtrickle's own. They are materialized views: no publication has them and no statement writes
//! them, and yet they are logged, vacuumed, copied and upgraded like tables. Whole rows come from a SELECT, as
//! `sqltext::rows` makes it, or from a restored dump.

use std::ffi::CStr;

use pgrx::pg_sys;

use crate::error::{Error, Result};
use crate::pg::compat::{self, descriptor_attribute};
use crate::pg::spi::{self, Arg, Mode, c_string};
use crate::pg::{names, snapshot};
use crate::sqltext::rows::Table;

/// So often a statement looks anew for a row that others were faster to change.
const TRIES: u32 = 10;

/// Writes the rows of `sql`: those without a place are new, others take the place of the row there. How many there were.
pub fn put(table: &Table, sql: &str, args: &[Arg], mode: Mode) -> Result<u64> {
    run(table, sql, args, mode, Action::Put)
}

/// Deletes the rows whose places `sql` returns. How many there were.
pub fn delete(table: &Table, sql: &str, args: &[Arg], mode: Mode) -> Result<u64> {
    run(table, sql, args, mode, Action::Delete)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Put,
    Delete,
}

/// What became of one statement.
enum Outcome {
    Done(u64),
    /// A row is not any more what the statement saw, and nothing has been written yet.
    LookAgain,
}

fn run(table: &Table, sql: &str, args: &[Arg], mode: Mode, action: Action) -> Result<u64> {
    // SAFETY: refuses as it would an UPDATE.
    unsafe {
        pg_sys::PreventCommandIfReadOnly(c"UPDATE".as_ptr());
        pg_sys::PreventCommandIfParallelMode(c"UPDATE".as_ptr());
    }
    let writer = Writer::open(&c_string(table.name)?)?;
    let mut mode = mode;
    for _ in 0..TRIES {
        match spi::run_into(sql, args, mode, |found| writer.take(found, table, action))? {
            Outcome::Done(rows) => {
                writer.close();
                return Ok(rows);
            }
            Outcome::LookAgain if snapshot::is_fixed() => break,
            // The snapshot that `mode` reads through may be too old to ever see the row.
            Outcome::LookAgain => mode = Mode::Fresh,
        }
    }
    Err(Error::ConcurrentChange { what: writer.shown() })
}

/// A table that is being written. An error leaves what it has open to the abort of the (sub)transaction.
struct Writer {
    rel: pg_sys::Relation,
    command: pg_sys::CommandId,
}

impl Writer {
    fn open(name: &CStr) -> Result<Writer> {
        let shown = || format!("pgtrickle.{}", name.to_string_lossy());
        let oid = names::own_relation(name).ok_or_else(|| Error::OwnTableMissing { name: shown() })?;
        // SAFETY: it may be gone by now; then there is no relation.
        unsafe {
            let rel = pg_sys::try_table_open(oid.into(), pg_sys::RowExclusiveLock as i32);
            if rel.is_null() {
                return Err(Error::OwnTableMissing { name: shown() });
            }
            if (*(*rel).rd_rel).relkind as u8 != pg_sys::RELKIND_MATVIEW
                || (*(*rel).rd_rel).relam != pg_sys::HEAP_TABLE_AM_OID
            {
                return Err(Error::OwnTableChanged { name: shown() });
            }
            Ok(Writer { rel, command: pg_sys::GetCurrentCommandId(true) })
        }
    }

    fn shown(&self) -> String {
        // SAFETY: an open relation's name is NUL-terminated.
        let name = unsafe { CStr::from_ptr((*(*self.rel).rd_rel).relname.data.as_ptr()) };
        format!("pgtrickle.{}", name.to_string_lossy())
    }

    /// Closes the table, and lets the next statement see what was written.
    fn close(self) {
        // SAFETY: opened by `open`; the lock is kept.
        unsafe {
            pg_sys::table_close(self.rel, pg_sys::NoLock as i32);
            pg_sys::CommandCounterIncrement();
        }
    }

    /// Does what the rows of a statement say; SPI is connected.
    fn take(&self, found: *mut pg_sys::SPITupleTable, table: &Table, action: Action) -> Result<Outcome> {
        // SAFETY: SPI's tuple table and its description live until SPI is finished; a statement of another kind than
        // SELECT has none.
        unsafe {
            if found.is_null() {
                return Err(Error::Internal("a statement without rows to write".into()));
            }
            let source = (*found).tupdesc;
            self.check(table, source, action)?;
            let rows = Rows::begin(self)?;
            let mut done = 0;
            for i in 0..(*found).numvals as usize {
                let (values, nulls) = parts(*(*found).vals.add(i), source);
                let place = (!nulls[0]).then(|| *values[0].cast_mut_ptr::<pg_sys::ItemPointerData>());
                let written = match (action, place) {
                    (Action::Delete, Some(place)) => rows.delete(place)?,
                    (Action::Delete, None) => Err(Error::Internal("a row without a place".into()))?,
                    (Action::Put, place) => {
                        self.obey(table, &values, &nulls)?;
                        rows.put(place, &values[1..], &nulls[1..])?
                    }
                };
                match written {
                    Written::Yes => done += 1,
                    Written::Gone if action == Action::Delete => {}
                    Written::Gone | Written::Changed if done == 0 => {
                        rows.end();
                        return Ok(Outcome::LookAgain);
                    }
                    Written::Gone | Written::Changed => {
                        return Err(Error::ConcurrentChange { what: self.shown() });
                    }
                }
            }
            rows.end();
            Ok(Outcome::Done(done))
        }
    }

    /// A place and then the columns of the table, by name and type; somebody may have renamed one.
    ///
    /// # Safety
    /// `source` is valid.
    unsafe fn check(&self, table: &Table, source: pg_sys::TupleDesc, action: Action) -> Result<()> {
        // SAFETY: per the contract; attributes below natts.
        unsafe {
            let first = (*source).natts > 0 && (*descriptor_attribute(source, 0)).atttypid == pg_sys::TIDOID;
            let own = (*self.rel).rd_att;
            let width = if action == Action::Delete { 0 } else { (*own).natts as usize };
            let rule = action == Action::Put && table.rule.is_some();
            let wide_enough = (*source).natts as usize == 1 + width + usize::from(rule);
            let same = first
                && wide_enough
                && (0..width).all(|i| {
                    is_same(descriptor_attribute(own, i), descriptor_attribute(source, i + 1), true)
                });
            if same && (action == Action::Delete || width == table.columns.len()) {
                return Ok(());
            }
        }
        Err(Error::OwnTableChanged { name: self.shown() })
    }

    /// The rules that a table's constraints would be.
    fn obey(&self, table: &Table, values: &[pg_sys::Datum], nulls: &[bool]) -> Result<()> {
        let missing = table.columns.iter().zip(&nulls[1..]).find(|(column, null)| **null && !column.nullable);
        if let Some((column, _)) = missing {
            return Err(Error::Internal(format!("{}.{} would be NULL", self.shown(), column.name)));
        }
        if table.rule.is_some() && values.last().is_some_and(|kept| kept.value() as u8 == 0) {
            return Err(Error::Internal(format!("a row of {} would break its rule", self.shown())));
        }
        Ok(())
    }
}

/// Are two columns of the same type, and of the same name if that is to count?
///
/// # Safety
/// Both are valid.
unsafe fn is_same(
    a: *mut pg_sys::FormData_pg_attribute,
    b: *mut pg_sys::FormData_pg_attribute,
    by_name: bool,
) -> bool {
    // SAFETY: per the contract; names are NUL-terminated.
    unsafe {
        (*a).atttypid == (*b).atttypid
            && (!by_name
                || CStr::from_ptr((*a).attname.data.as_ptr()) == CStr::from_ptr((*b).attname.data.as_ptr()))
    }
}

/// The values of a row and which of them are NULL.
///
/// # Safety
/// `tuple` is a valid row of this description; the values are valid as long as it is.
unsafe fn parts(tuple: pg_sys::HeapTuple, desc: pg_sys::TupleDesc) -> (Vec<pg_sys::Datum>, Vec<bool>) {
    // SAFETY: per the contract; there is room for each attribute.
    unsafe {
        let width = (*desc).natts as usize;
        let (mut values, mut nulls) = (vec![pg_sys::Datum::null(); width], vec![true; width]);
        pg_sys::heap_deform_tuple(tuple, desc, values.as_mut_ptr(), nulls.as_mut_ptr());
        (values, nulls)
    }
}

/// What became of one row.
enum Written {
    Yes,
    /// Somebody else has deleted it, and committed.
    Gone,
    /// Somebody else has changed it, and committed.
    Changed,
}

/// Rows being written: heap and indexes. Another transaction that is at the same row is waited for as long as lock_timeout
/// allows, which in event triggers is not at all.
struct Rows<'a> {
    writer: &'a Writer,
    indexes: pg_sys::CatalogIndexState,
    executor: *mut pg_sys::EState,
    slot: *mut pg_sys::TupleTableSlot,
    pushed_snapshot: bool,
}

impl<'a> Rows<'a> {
    fn begin(writer: &'a Writer) -> Result<Self> {
        // SAFETY: the table is open and of heap; all of this is ended by `end`, or by the abort of the (sub)transaction.
        // Values stored out of line can be looked at only with a snapshot.
        unsafe {
            let pushed_snapshot = !pg_sys::ActiveSnapshotSet();
            if pushed_snapshot {
                pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
            }
            let indexes = pg_sys::CatalogOpenIndexes(writer.rel);
            let executor = pg_sys::CreateExecutorState();
            let slot =
                pg_sys::MakeSingleTupleTableSlot((*writer.rel).rd_att, &raw const pg_sys::TTSOpsHeapTuple);
            Ok(Rows { writer, indexes, executor, slot, pushed_snapshot })
        }
    }

    fn end(self) {
        // SAFETY: made by `begin`.
        unsafe {
            pg_sys::ExecDropSingleTupleTableSlot(self.slot);
            pg_sys::FreeExecutorState(self.executor);
            pg_sys::CatalogCloseIndexes(self.indexes);
            if self.pushed_snapshot {
                pg_sys::PopActiveSnapshot();
            }
        }
    }

    /// Writes a row at a place, or a new one. More values than columns do not matter.
    ///
    /// # Safety
    /// Values and flags are of the table's columns.
    unsafe fn put(
        &self,
        place: Option<pg_sys::ItemPointerData>,
        values: &[pg_sys::Datum],
        nulls: &[bool],
    ) -> Result<Written> {
        let rel = self.writer.rel;
        // SAFETY: per the contract; the tuple is a copy of its own.
        unsafe {
            let tuple =
                pg_sys::heap_form_tuple((*rel).rd_att, values.as_ptr().cast_mut(), nulls.as_ptr().cast_mut());
            let (written, index) = match place {
                None => {
                    // What is of no table that can be published needs no decoding either.
                    let options = pg_sys::HEAP_INSERT_NO_LOGICAL as i32;
                    pg_sys::heap_insert(rel, tuple, self.writer.command, options, std::ptr::null_mut());
                    (Written::Yes, compat::Indexing::All)
                }
                Some(mut place) => {
                    let (result, index) = compat::update_row(rel, &mut place, tuple, self.writer.command);
                    (self.judge(result)?, index)
                }
            };
            if matches!(written, Written::Yes) {
                self.index(tuple, index)?;
            }
            pg_sys::heap_freetuple(tuple);
            Ok(written)
        }
    }

    /// Adds the index entries of a row that was just written. A possible duplicate is an error at once: to know better it
    /// would have to wait for whoever wrote the other one.
    ///
    /// # Safety
    /// `tuple` is a row of the table, with its place in it.
    unsafe fn index(&self, tuple: pg_sys::HeapTuple, what: compat::Indexing) -> Result<()> {
        if what == compat::Indexing::None {
            return Ok(());
        }
        // SAFETY: per the contract; indexes, slot and executor state are those of the table.
        let duplicates = unsafe {
            pg_sys::ExecStoreHeapTuple(tuple, self.slot, false);
            (*self.slot).tts_tableOid = (*self.writer.rel).rd_id;
            let duplicates = compat::insert_index_entries(self.indexes, self.slot, self.executor, what);
            let clear = (*(*self.slot).tts_ops).clear;
            if let Some(clear) = clear {
                pg_sys::ffi::pg_guard_ffi_boundary(|| clear(self.slot));
            }
            !duplicates.is_null()
        };
        if duplicates {
            let what = format!("a key of {}, which another row has or just had", self.writer.shown());
            return Err(Error::LockNotAvailable { what });
        }
        Ok(())
    }

    /// Deletes the row at a place.
    ///
    /// # Safety
    /// The place is one of this table.
    unsafe fn delete(&self, mut place: pg_sys::ItemPointerData) -> Result<Written> {
        let mut failure = pg_sys::TM_FailureData::default();
        // SAFETY: per the contract; a wait that takes too long is an error.
        let result = unsafe {
            pg_sys::heap_delete(
                self.writer.rel,
                &mut place,
                self.writer.command,
                std::ptr::null_mut(),
                true,
                &mut failure,
                false,
            )
        };
        self.judge(result)
    }

    fn judge(&self, result: pg_sys::TM_Result::Type) -> Result<Written> {
        match result {
            pg_sys::TM_Result::TM_Ok => Ok(Written::Yes),
            pg_sys::TM_Result::TM_Deleted => Ok(Written::Gone),
            pg_sys::TM_Result::TM_Updated => Ok(Written::Changed),
            pg_sys::TM_Result::TM_BeingModified | pg_sys::TM_Result::TM_WouldBlock => Err(self.busy()),
            other => Err(Error::Internal(format!("writing to {} ended with {other}", self.writer.shown()))),
        }
    }

    fn busy(&self) -> Error {
        Error::LockNotAvailable { what: format!("a row of {}", self.writer.shown()) }
    }
}

/// The query of each of these tables, and of buffers: its own rows. A REFRESH by somebody, who may refresh all materialized views of a
/// database every night, so rewrites it as VACUUM FULL does, and takes nothing away.
///
/// # Safety
/// `fcinfo` comes from PostgreSQL's function manager: of a strict function (cstring, cstring) that returns a set of records.
pub unsafe fn own_rows(fcinfo: pg_sys::FunctionCallInfo) -> Result<()> {
    // SAFETY: per the contract. REFRESH has locked out all writers by now, and its own snapshot may be older than their last
    // rows: the latest one is registered for the scan.
    unsafe {
        let schema: &CStr = pgrx::pg_getarg(fcinfo, 0).ok_or_else(not_for_you)?;
        let name: &CStr = pgrx::pg_getarg(fcinfo, 1).ok_or_else(not_for_you)?;
        pg_sys::InitMaterializedSRF(fcinfo, pg_sys::MAT_SRF_USE_EXPECTED_DESC);
        let result = (*fcinfo).resultinfo.cast::<pg_sys::ReturnSetInfo>();
        let schema = pg_sys::get_namespace_oid(schema.as_ptr(), true);
        let oid = pg_sys::get_relname_relid(name.as_ptr(), schema);
        // Not there: the command that makes it asks, before there is anything in it.
        if oid == pg_sys::InvalidOid {
            return Ok(());
        }
        let rel = pg_sys::try_table_open(oid, pg_sys::AccessShareLock as i32);
        if rel.is_null() {
            return Ok(());
        }
        let asked = (*result).setDesc;
        let desc = (*rel).rd_att;
        let fits = (*(*rel).rd_rel).relkind as u8 == pg_sys::RELKIND_MATVIEW
            && (*(*rel).rd_rel).relowner == pg_sys::GetUserId()
            && (*desc).natts == (*asked).natts
            && (0..(*desc).natts as usize)
                .all(|i| is_same(descriptor_attribute(desc, i), descriptor_attribute(asked, i), false));
        if !fits {
            return Err(not_for_you());
        }
        let snapshot = pg_sys::RegisterSnapshot(pg_sys::GetLatestSnapshot());
        let scan = pg_sys::table_beginscan(rel, snapshot, 0, std::ptr::null_mut());
        loop {
            let tuple = pg_sys::heap_getnext(scan, pg_sys::ScanDirection::ForwardScanDirection);
            if tuple.is_null() {
                break;
            }
            pg_sys::tuplestore_puttuple((*result).setResult, tuple);
        }
        pg_sys::table_endscan(scan);
        pg_sys::UnregisterSnapshot(snapshot);
        pg_sys::table_close(rel, pg_sys::NoLock as i32);
        Ok(())
    }
}

fn not_for_you() -> Error {
    Error::ProtectedObject {
        what: "this function is the query of pgtrickle's own tables".into(),
        hint: "Read the table itself.".into(),
    }
}

/// Ends the name of the table that a dump has in the place of one of ours, whose rows pg_dump would not read.
const DUMPED_AS: &str = "_dump";

/// The body of the trigger on such a table: a restored row goes where it belongs, and none stays.
///
/// # Safety
/// `fcinfo` comes from PostgreSQL's function manager.
pub unsafe fn restore(fcinfo: pg_sys::FunctionCallInfo) -> Result<()> {
    // SAFETY: checked to be a call as a BEFORE INSERT ROW trigger of a table in our schema, where nobody else may create any.
    unsafe {
        let data = trigger_data(fcinfo).ok_or_else(|| Error::ProtectedObject {
            what: "this function can only be called as a trigger of pgtrickle's own".into(),
            hint: "Leave it to pg_restore.".into(),
        })?;
        let rel = (*data).tg_relation;
        let name = CStr::from_ptr((*(*rel).rd_rel).relname.data.as_ptr()).to_string_lossy();
        let target =
            name.strip_suffix(DUMPED_AS).ok_or_else(|| Error::Internal(format!("restore into {name}")))?;
        let desc = (*rel).rd_att;
        let (values, nulls) = parts((*data).tg_trigtuple, desc);
        let missing = (0..nulls.len()).any(|i| nulls[i] && (*descriptor_attribute(desc, i)).attnotnull);
        let writer = Writer::open(&c_string(target)?)?;
        let own = (*writer.rel).rd_att;
        let same = (*own).natts == (*desc).natts
            && (0..nulls.len())
                .all(|i| is_same(descriptor_attribute(own, i), descriptor_attribute(desc, i), true));
        if missing || !same {
            return Err(Error::Internal(format!("a restored row does not fit into {}", writer.shown())));
        }
        let rows = Rows::begin(&writer)?;
        rows.put(None, &values, &nulls).map_err(|e| match e {
            Error::LockNotAvailable { .. } => Error::ProtectedObject {
                what: format!("a row of this key is in {} already", writer.shown()),
                hint: "Restore into a database without rows of its own there.".into(),
            },
            other => other,
        })?;
        rows.end();
        writer.close();
        Ok(())
    }
}

/// The data of a call as BEFORE INSERT ROW trigger of a table in our schema.
///
/// # Safety
/// `fcinfo` comes from PostgreSQL's function manager.
unsafe fn trigger_data(fcinfo: pg_sys::FunctionCallInfo) -> Option<*mut pg_sys::TriggerData> {
    // SAFETY: the context node is checked before the cast.
    unsafe {
        let context = (*fcinfo).context;
        if context.is_null() || (*context).type_ != pg_sys::NodeTag::T_TriggerData {
            return None;
        }
        let data = context.cast::<pg_sys::TriggerData>();
        let wanted = pg_sys::TRIGGER_EVENT_INSERT | pg_sys::TRIGGER_EVENT_ROW | pg_sys::TRIGGER_EVENT_BEFORE;
        let mask =
            pg_sys::TRIGGER_EVENT_OPMASK | pg_sys::TRIGGER_EVENT_ROW | pg_sys::TRIGGER_EVENT_TIMINGMASK;
        let schema = (*(*(*data).tg_relation).rd_rel).relnamespace;
        let ours = pg_sys::get_namespace_oid(c"pgtrickle".as_ptr(), true) == schema;
        (ours && (*data).tg_event & mask == wanted).then_some(data)
    }
}
