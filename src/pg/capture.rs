//! The write path: row trigger into the buffer, and the TRUNCATE mark. No SPI, no plan: the row's image is formed and
//! inserted as a heap tuple. It raises nothing of our own, and waits for nothing but the buffer itself.
//!
//! # Safety
//! Functions here that are not safe to call take nodes, descriptors or call data of PostgreSQL that are valid and of the
//! type that their names say; those that walk trees get the context that their caller passes along with them.

use pgrx::pg_sys;

use crate::dvm::image;
use crate::error::{Error, Result};
use crate::model::{row_trigger, truncate_trigger};
use crate::pg::cache;
use crate::pg::route::{self, Column, Route};
use crate::pg::side::kind;
use crate::pg::values::put;

/// The body of the trigger. Arguments of the trigger: the source's oid.
///
/// # Safety
/// `fcinfo` comes from PostgreSQL's function manager.
pub unsafe fn capture(fcinfo: pg_sys::FunctionCallInfo) -> Result<()> {
    // SAFETY: checked to be a trigger call; the data structure is valid for the call.
    unsafe {
        let data = trigger_data(fcinfo)?;
        let trigger = (*(*data).tg_trigger).tgoid;
        let event = (*data).tg_event & pg_sys::TRIGGER_EVENT_OPMASK;
        let route = match route::known(trigger) {
            Some(route) => route,
            None => route::find(trigger, source_argument(data), (*data).tg_relation)?,
        };
        let Some(buffer) = route.buffer else { return Ok(()) };
        if event == pg_sys::TRIGGER_EVENT_TRUNCATE {
            // A mark: rows left without row events, so contents must be read anew.
            return write(buffer, kind::MARK, &[]);
        }
        let old = (*data).tg_trigslot;
        if event == pg_sys::TRIGGER_EVENT_INSERT {
            return write(buffer, kind::INSERTED, &encode(&route, old));
        }
        if event == pg_sys::TRIGGER_EVENT_DELETE {
            return write(buffer, kind::DELETED, &encode(&route, old));
        }
        let new = (*data).tg_newslot;
        if unchanged(&route, old, new) {
            return Ok(());
        }
        // One row for both: rows of a buffer are most of what an update pays.
        write(buffer, kind::UPDATED, &image::pair(&encode(&route, old), &encode(&route, new)))
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

/// The captured columns of a row as an image.
unsafe fn encode(route: &Route, slot: *mut pg_sys::TupleTableSlot) -> Vec<u8> {
    let mut out = Vec::with_capacity(route.header.len() + 16 * route.columns.len());
    out.extend_from_slice(&route.header);
    // SAFETY: the slot holds a row of the relation that the route was made for, with its types.
    unsafe {
        fetch(route, slot);
        for c in &route.columns {
            let i = c.attnum as usize - 1;
            if *(*slot).tts_isnull.add(i) {
                image::put_null(&mut out);
            } else {
                put(*(*slot).tts_values.add(i), &c.kind, &mut out);
            }
        }
    }
    out
}

/// Takes the row apart as far as it is needed.
unsafe fn fetch(route: &Route, slot: *mut pg_sys::TupleTableSlot) {
    // SAFETY: a slot with a row of the route's relation.
    unsafe {
        if i32::from((*slot).tts_nvalid) < route.deformed {
            pg_sys::slot_getsomeattrs_int(slot, route.deformed);
        }
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
        fetch(route, old);
        fetch(route, new);
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
    if column.kind.by_value || a == b {
        return a == b;
    }
    // SAFETY: both point to values of the column's length kind: fixed, varlena (-1) or C string (-2).
    unsafe {
        let (a, b) = (a.cast_mut_ptr::<u8>(), b.cast_mut_ptr::<u8>());
        let size = |p: *mut u8| match column.kind.length {
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
        pub fn try_table_open(relation: pg_sys::Oid, lockmode: pg_sys::LOCKMODE) -> pg_sys::Relation;
        pub fn table_close(relation: pg_sys::Relation, lockmode: pg_sys::LOCKMODE);
        pub fn GetTopFullTransactionId() -> pg_sys::FullTransactionId;
        pub fn GetCurrentCommandId(used: bool) -> pg_sys::CommandId;
        pub fn palloc(size: usize) -> *mut std::ffi::c_void;
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
        pub fn pfree(pointer: *mut std::ffi::c_void);
    }
}

/// A longer image is not kept, since a field of a row ends at 1 GB; contents are read anew instead.
const LONGEST: usize = 256 << 20;

/// Inserts a buffer row. A buffer that is gone meanwhile takes none: nobody consumes it, and every refresh checks that its
/// buffers exist.
unsafe fn write(buffer: pg_sys::Oid, kind: i32, image: &[u8]) -> Result<()> {
    let epoch = cache::epoch();
    let (kind, image): (i32, &[u8]) = if image.len() > LONGEST { (kind::MARK, &[]) } else { (kind, image) };
    // SAFETY: an error jumps out of the closure to the guard, so nothing in it needs dropping: it has only borrows and
    // plain values. The relation has the columns of a buffer, which the route was made with; heap_insert copies the values.
    unsafe {
        pg_sys::ffi::pg_guard_ffi_boundary(|| {
            let rel = unguarded::try_table_open(buffer, pg_sys::RowExclusiveLock as i32);
            if rel.is_null() {
                return;
            }
            let xid = unguarded::GetTopFullTransactionId().value;
            let command = unguarded::GetCurrentCommandId(true);
            let size = image.len() + 4;
            let bytes = unguarded::palloc(size).cast::<u8>();
            pgrx::varlena::set_varsize_4b(bytes.cast(), size as i32);
            std::ptr::copy_nonoverlapping(image.as_ptr(), bytes.add(4), image.len());
            let mut values = [
                pg_sys::Datum::from(xid),
                pg_sys::Datum::from(epoch),
                pg_sys::Datum::from(kind),
                pg_sys::Datum::from(bytes),
            ];
            let mut nulls = [false; 4];
            let tuple = unguarded::heap_form_tuple((*rel).rd_att, values.as_mut_ptr(), nulls.as_mut_ptr());
            let options = pg_sys::HEAP_INSERT_NO_LOGICAL as i32;
            unguarded::heap_insert(rel, tuple, command, options, std::ptr::null_mut());
            unguarded::heap_freetuple(tuple);
            unguarded::pfree(bytes.cast());
            unguarded::table_close(rel, pg_sys::NoLock as i32);
        });
    }
    Ok(())
}

/// The body of the guard on stream tables: statements of others are refused.
///
/// # Safety
/// `fcinfo` comes from PostgreSQL's function manager.
pub unsafe fn guard(fcinfo: pg_sys::FunctionCallInfo) -> Result<()> {
    // SAFETY: checked to be a trigger call.
    unsafe {
        let data = trigger_data(fcinfo)?;
        let relation = (*data).tg_relation;
        if cache::maintains((*relation).rd_id.to_u32()) {
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
