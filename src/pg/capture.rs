//! The write path: row trigger into the buffer, TRUNCATE mark, and the guard on stream tables. No SPI, no plan: the
//! buffer row is formed and inserted as a heap tuple.
//!
//! # Safety
//! Functions here that are not safe to call take nodes, descriptors or call data of PostgreSQL that are valid and of the
//! type that their names say; those that walk trees get the context that their caller passes along with them.

use std::cell::RefCell;
use std::collections::HashMap;

use pgrx::pg_sys;

use crate::error::{Error, Result};
use crate::model::{INTERNAL_SCHEMA, buffer_name, row_trigger, truncate_trigger};
use crate::pg::cache;
use crate::pg::spi::{self, Arg, Mode, c_string};

/// Where a source's changes go, for writes that arrive through one relation (the source or a partition of it).
struct Route {
    generation: u64,
    buffer: pg_sys::Oid,
    /// Number of columns of the buffer.
    width: usize,
    /// Highest attribute number among the columns: a row need not be taken apart further.
    deformed: i32,
    /// (index in the buffer row, attribute number in the written relation, by value, length) per captured column.
    columns: Vec<Column>,
}

struct Column {
    target: usize,
    attnum: i16,
    by_value: bool,
    length: i16,
}

/// Fixed columns of a buffer: xid, epoch, w.
const FIXED: usize = 3;

thread_local! {
    /// (source, written relation) → route.
    static ROUTES: RefCell<HashMap<(u32, u32), Route>> = RefCell::new(HashMap::new());
}

/// The body of the row trigger. Arguments of the trigger: the source's oid.
///
/// # Safety
/// `fcinfo` comes from PostgreSQL's function manager.
pub unsafe fn capture(fcinfo: pg_sys::FunctionCallInfo) -> Result<()> {
    // SAFETY: checked to be a trigger call; the data structure is valid for the call.
    unsafe {
        let data = trigger_data(fcinfo)?;
        let event = (*data).tg_event & pg_sys::TRIGGER_EVENT_OPMASK;
        let Some(source) = source_argument(data) else { return Ok(()) };
        if event == pg_sys::TRIGGER_EVENT_TRUNCATE {
            return mark_truncate(source, (*data).tg_relation);
        }
        ROUTES.with_borrow_mut(|routes| {
            let relation = (*data).tg_relation;
            let key = (source, (*relation).rd_id.to_u32());
            let generation = cache::generation();
            if routes.get(&key).is_none_or(|r| r.generation != generation) {
                match find_route(source, relation)? {
                    Some(route) => routes.insert(key, route),
                    // No buffer: nothing consumes this trigger's rows. Every refresh checks that its buffers exist.
                    None => return Ok(()),
                };
            }
            let Some(route) = routes.get(&key) else { return Ok(()) };
            let old = (*data).tg_trigslot;
            if event == pg_sys::TRIGGER_EVENT_INSERT {
                return write(route, &[(old, 1)]);
            }
            if event == pg_sys::TRIGGER_EVENT_DELETE {
                return write(route, &[(old, -1)]);
            }
            let new = (*data).tg_newslot;
            if unchanged(route, old, new) { Ok(()) } else { write(route, &[(old, -1), (new, 1)]) }
        })
    }
}

unsafe fn trigger_data(fcinfo: pg_sys::FunctionCallInfo) -> Result<*mut pg_sys::TriggerData> {
    // SAFETY: the context node is checked before the cast.
    unsafe {
        let context = (*fcinfo).context;
        if context.is_null() || (*context).type_ != pg_sys::NodeTag::T_TriggerData {
            return Err(Error::ProtectedObject {
                what: "this function can only be called as a trigger".into(),
                hint: "It is attached by pgtrickle.create_stream_table().".into(),
            });
        }
        Ok(context.cast())
    }
}

/// The source of a capture trigger. None: a trigger that pgtrickle did not make, or one that a restore brought back with
/// another database's oid in it. It captures nothing; every refresh checks that its sources' own triggers are there.
unsafe fn source_argument(data: *mut pg_sys::TriggerData) -> Option<u32> {
    // SAFETY: trigger data of a trigger call; tgargs has tgnargs NUL-terminated strings.
    unsafe {
        let trigger = (*data).tg_trigger;
        let event = (*data).tg_event;
        let is = |mask: u32, wanted: u32| event & mask == wanted;
        let for_row = is(pg_sys::TRIGGER_EVENT_ROW, pg_sys::TRIGGER_EVENT_ROW);
        let truncate = is(pg_sys::TRIGGER_EVENT_OPMASK, pg_sys::TRIGGER_EVENT_TRUNCATE);
        let after = is(pg_sys::TRIGGER_EVENT_TIMINGMASK, pg_sys::TRIGGER_EVENT_AFTER);
        if (*trigger).tgnargs != 1 || !after || for_row == truncate {
            return None;
        }
        let source = std::ffi::CStr::from_ptr(*(*trigger).tgargs).to_str().ok()?.parse().ok()?;
        let name = std::ffi::CStr::from_ptr((*trigger).tgname).to_str().ok()?;
        let ours = if truncate { truncate_trigger(source) } else { row_trigger(source) };
        (name == ours).then_some(source)
    }
}

/// Is the relation the source itself, or in its partition tree? Only the source's own rows go into its buffer: whoever
/// may create a trigger on some table may not write into the buffer of another.
fn belongs_to(relation: u32, source: u32) -> Result<bool> {
    if relation == source {
        return Ok(true);
    }
    let rows = spi::run(
        "SELECT FROM pg_catalog.pg_partition_ancestors($1) WHERE relid = $2",
        &[Arg::Oid(relation), Arg::Oid(source)],
        Mode::Fresh,
    )?;
    Ok(rows.first().is_some())
}

/// Builds the route from the descriptors of buffer and written relation. Partitions may number columns differently, so
/// theirs are found by name, as PostgreSQL itself does.
unsafe fn find_route(source: u32, relation: pg_sys::Relation) -> Result<Option<Route>> {
    // Before anything is opened: what is invalidated meanwhile makes the route stale at once.
    let generation = cache::generation();
    // SAFETY: relations are opened and closed here; descriptors are read while open.
    unsafe {
        let buffer = buffer_oid(source)?;
        if buffer == pg_sys::InvalidOid || !belongs_to((*relation).rd_id.to_u32(), source)? {
            return Ok(None);
        }
        let rel = pg_sys::table_open(buffer, pg_sys::RowExclusiveLock as i32);
        let parent = if (*relation).rd_id.to_u32() == source {
            None
        } else {
            Some(pg_sys::table_open(pg_sys::Oid::from(source), pg_sys::AccessShareLock as i32))
        };
        let buffer_desc = (*rel).rd_att;
        let written = (*relation).rd_att;
        let mut columns = Vec::new();
        for target in FIXED..(*buffer_desc).natts as usize {
            let attribute = attribute(buffer_desc, target);
            if (*attribute).attisdropped {
                continue;
            }
            let name = name_of(attribute);
            let Some(attnum) = name.strip_prefix('c').and_then(|n| n.parse::<i16>().ok()) else { continue };
            let found = match parent {
                None => attribute_number(written, attnum),
                Some(parent) => attribute_number((*parent).rd_att, attnum).and_then(|n| {
                    let wanted = name_of(self::attribute((*parent).rd_att, n as usize - 1));
                    (0..(*written).natts as usize).find_map(|i| {
                        let a = self::attribute(written, i);
                        (!(*a).attisdropped && name_of(a) == wanted).then_some(i as i16 + 1)
                    })
                }),
            };
            let Some(attnum) = found else { continue };
            let origin = self::attribute(written, attnum as usize - 1);
            // A column of another type now: its users are suspended, and their values must not be mixed in.
            if (*origin).atttypid == (*attribute).atttypid {
                columns.push(Column {
                    target,
                    attnum,
                    by_value: (*attribute).attbyval,
                    length: (*attribute).attlen,
                });
            }
        }
        let width = (*buffer_desc).natts as usize;
        if let Some(parent) = parent {
            pg_sys::table_close(parent, pg_sys::AccessShareLock as i32);
        }
        pg_sys::table_close(rel, pg_sys::NoLock as i32);
        let deformed = columns.iter().map(|c| i32::from(c.attnum)).max().unwrap_or(0);
        Ok(Some(Route { generation, buffer, width, deformed, columns }))
    }
}

unsafe fn attribute(desc: pg_sys::TupleDesc, index: usize) -> *mut pg_sys::FormData_pg_attribute {
    // SAFETY: `index` is below natts.
    unsafe { crate::pg::compat::descriptor_attribute(desc, index) }
}

unsafe fn name_of(attribute: *mut pg_sys::FormData_pg_attribute) -> String {
    // SAFETY: a NameData is NUL-terminated.
    unsafe { std::ffi::CStr::from_ptr((*attribute).attname.data.as_ptr()).to_string_lossy().into_owned() }
}

/// `attnum` if the descriptor has that column, not dropped.
unsafe fn attribute_number(desc: pg_sys::TupleDesc, attnum: i16) -> Option<i16> {
    // SAFETY: the range is checked first.
    unsafe {
        let known = attnum >= 1 && i32::from(attnum) <= (*desc).natts;
        (known && !(*attribute(desc, attnum as usize - 1)).attisdropped).then_some(attnum)
    }
}

fn buffer_oid(source: u32) -> Result<pg_sys::Oid> {
    let schema = c_string(INTERNAL_SCHEMA)?;
    let name = c_string(&buffer_name(source))?;
    // SAFETY: syscache look-ups by name.
    unsafe {
        let schema = pg_sys::get_namespace_oid(schema.as_ptr(), true);
        Ok(if schema == pg_sys::InvalidOid {
            schema
        } else {
            pg_sys::get_relname_relid(name.as_ptr(), schema)
        })
    }
}

/// Is every captured column of both rows the same, bit for bit? Differing toast pointers count as a change.
unsafe fn unchanged(
    route: &Route,
    old: *mut pg_sys::TupleTableSlot,
    new: *mut pg_sys::TupleTableSlot,
) -> bool {
    // SAFETY: both slots hold rows of the relation that the route was made for.
    unsafe {
        for slot in [old, new] {
            if i32::from((*slot).tts_nvalid) < route.deformed {
                pg_sys::slot_getsomeattrs_int(slot, route.deformed);
            }
        }
        route.columns.iter().all(|c| {
            let i = c.attnum as usize - 1;
            let (old_null, new_null) = (*(*old).tts_isnull.add(i), *(*new).tts_isnull.add(i));
            if old_null || new_null {
                return old_null && new_null;
            }
            same_image(*(*old).tts_values.add(i), *(*new).tts_values.add(i), c)
        })
    }
}

/// Are two values of a column the same bytes?
unsafe fn same_image(a: pg_sys::Datum, b: pg_sys::Datum, column: &Column) -> bool {
    if column.by_value || a == b {
        return a == b;
    }
    // SAFETY: both point to values of the column's length kind: fixed, varlena (-1) or C string (-2).
    unsafe {
        let (a, b) = (a.cast_mut_ptr::<u8>(), b.cast_mut_ptr::<u8>());
        let size = |p: *mut u8| match column.length {
            -1 => pgrx::varsize_any(p.cast()),
            -2 => std::ffi::CStr::from_ptr(p.cast()).to_bytes().len(),
            n => n as usize,
        };
        let (left, right) = (size(a), size(b));
        left == right && std::slice::from_raw_parts(a, left) == std::slice::from_raw_parts(b, right)
    }
}

/// Functions of the write path as they are. pgrx guards each of its bindings by itself, which costs as much as some of
/// them do; here one guard is around all.
mod unguarded {
    use pgrx::pg_sys;

    unsafe extern "C-unwind" {
        pub fn table_open(relation: pg_sys::Oid, lockmode: pg_sys::LOCKMODE) -> pg_sys::Relation;
        pub fn table_close(relation: pg_sys::Relation, lockmode: pg_sys::LOCKMODE);
        pub fn GetTopFullTransactionId() -> pg_sys::FullTransactionId;
        pub fn GetCurrentCommandId(used: bool) -> pg_sys::CommandId;
        pub fn slot_getsomeattrs_int(slot: *mut pg_sys::TupleTableSlot, attnum: i32);
        pub fn heap_form_tuple(
            desc: pg_sys::TupleDesc,
            values: *mut pg_sys::Datum,
            nulls: *mut bool,
        ) -> pg_sys::HeapTuple;
        pub fn heap_insert(
            relation: pg_sys::Relation,
            tuple: pg_sys::HeapTuple,
            command: pg_sys::CommandId,
            options: i32,
            state: *mut pg_sys::BulkInsertStateData,
        );
        pub fn heap_freetuple(tuple: pg_sys::HeapTuple);
    }
}

/// Inserts one buffer row per (row, weight).
unsafe fn write(route: &Route, rows: &[(*mut pg_sys::TupleTableSlot, i32)]) -> Result<()> {
    let mut values = [pg_sys::Datum::null(); 32];
    let mut nulls = [true; 32];
    let mut more_values;
    let mut more_nulls;
    let (values, nulls): (&mut [pg_sys::Datum], &mut [bool]) = if route.width <= 32 {
        (&mut values[..route.width], &mut nulls[..route.width])
    } else {
        more_values = vec![pg_sys::Datum::null(); route.width];
        more_nulls = vec![true; route.width];
        (&mut more_values, &mut more_nulls)
    };
    nulls[..FIXED].fill(false);
    values[1] = pg_sys::Datum::from(cache::epoch());
    // SAFETY: an error jumps out of the closure to the guard, so nothing in it needs dropping: it has only borrows and
    // plain values. Values point into the slots, which outlive the insert; heap_insert copies them, fetching what is
    // stored out of line elsewhere.
    unsafe {
        pg_sys::ffi::pg_guard_ffi_boundary(|| {
            let rel = unguarded::table_open(route.buffer, pg_sys::RowExclusiveLock as i32);
            values[0] = pg_sys::Datum::from(unguarded::GetTopFullTransactionId().value);
            let command = unguarded::GetCurrentCommandId(true);
            for (slot, weight) in rows {
                values[2] = pg_sys::Datum::from(*weight);
                if i32::from((**slot).tts_nvalid) < route.deformed {
                    unguarded::slot_getsomeattrs_int(*slot, route.deformed);
                }
                for c in &route.columns {
                    let i = c.attnum as usize - 1;
                    values[c.target] = *(**slot).tts_values.add(i);
                    nulls[c.target] = *(**slot).tts_isnull.add(i);
                }
                let tuple =
                    unguarded::heap_form_tuple((*rel).rd_att, values.as_mut_ptr(), nulls.as_mut_ptr());
                unguarded::heap_insert(rel, tuple, command, 0, std::ptr::null_mut());
                unguarded::heap_freetuple(tuple);
            }
            unguarded::table_close(rel, pg_sys::NoLock as i32);
        });
    }
    Ok(())
}

/// A mark of weight 0: rows left without row events, so contents must be read anew.
unsafe fn mark_truncate(source: u32, relation: pg_sys::Relation) -> Result<()> {
    // SAFETY: forms a row of NULLs but for the fixed columns; the relation is open while it is used.
    unsafe {
        let Some(route) = find_route(source, relation)? else { return Ok(()) };
        let rel = pg_sys::table_open(route.buffer, pg_sys::RowExclusiveLock as i32);
        let mut values = vec![pg_sys::Datum::null(); route.width];
        let mut nulls = vec![true; route.width];
        nulls[..FIXED].fill(false);
        values[0] = pg_sys::Datum::from(pg_sys::GetTopFullTransactionId().value);
        values[1] = pg_sys::Datum::from(cache::epoch());
        values[2] = pg_sys::Datum::from(0i32);
        let tuple = pg_sys::heap_form_tuple((*rel).rd_att, values.as_mut_ptr(), nulls.as_mut_ptr());
        pg_sys::heap_insert(rel, tuple, pg_sys::GetCurrentCommandId(true), 0, std::ptr::null_mut());
        pg_sys::heap_freetuple(tuple);
        pg_sys::table_close(rel, pg_sys::NoLock as i32);
        Ok(())
    }
}

/// The body of the guard on stream tables and state: statements of others are refused.
///
/// # Safety
/// `fcinfo` comes from PostgreSQL's function manager.
pub unsafe fn guard(fcinfo: pg_sys::FunctionCallInfo) -> Result<()> {
    // SAFETY: checked to be a trigger call.
    unsafe {
        let data = trigger_data(fcinfo)?;
        let relation = (*data).tg_relation;
        let internal = c_string(INTERNAL_SCHEMA)?;
        let internal = pg_sys::get_namespace_oid(internal.as_ptr(), true);
        let ours = if (*(*relation).rd_rel).relnamespace == internal {
            cache::in_maintenance()
        } else {
            cache::maintains((*relation).rd_id.to_u32())
        };
        if ours {
            return Ok(());
        }
        let name = std::ffi::CStr::from_ptr((*(*relation).rd_rel).relname.data.as_ptr());
        let schema = pg_sys::get_namespace_name((*(*relation).rd_rel).relnamespace);
        let schema = std::ffi::CStr::from_ptr(schema);
        Err(Error::DirectWrite {
            name: crate::sqltext::display(&schema.to_string_lossy(), &name.to_string_lossy()),
        })
    }
}
