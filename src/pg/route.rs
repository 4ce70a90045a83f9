//! Where the rows of one trigger go. A route is made once for a trigger and kept until one of the relations that it was
//! made from changes: the source, the written relation, the buffer.
//!
//! # Safety
//! Functions here that are not safe to call get relations and descriptors that are valid.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use pgrx::{pg_guard, pg_sys};

use crate::dvm::image;
use crate::error::Result;
use crate::model::{Oid, row_trigger, truncate_trigger};
use crate::pg::catalog_scan::{Scan, array_elements, attribute, row_by_oid_now};
use crate::pg::compat::descriptor_attribute;
use crate::pg::values::Kind;
use crate::pg::{names, side};

/// Where the rows of a trigger go, and what of them.
pub struct Route {
    /// None: nowhere. The trigger is not ours any more, or nothing consumes its rows.
    pub buffer: Option<pg_sys::Oid>,
    /// The header of its images.
    pub header: Vec<u8>,
    pub columns: Vec<Column>,
    /// Highest attribute number among the columns: a row need not be taken apart further.
    pub deformed: i32,
}

/// A captured column in the written relation.
pub struct Column {
    pub attnum: i16,
    pub kind: Kind,
}

/// More routes than this are forgotten all at once: a session that writes to tens of thousands of partitions.
const MAX_ROUTES: usize = 4096;

#[derive(Default)]
struct Routes {
    by_trigger: HashMap<u32, Rc<Route>>,
    /// Relation → triggers whose routes were made from it.
    by_relation: HashMap<u32, HashSet<u32>>,
}

thread_local! {
    static ROUTES: RefCell<Routes> = RefCell::default();
    /// Counts invalidations: what changes while a route is made makes it stale at once.
    static CHANGES: Cell<u64> = const { Cell::new(0) };
}

/// Registers the callback, from `_PG_init`.
pub fn register() {
    // SAFETY: a function of this library, which is never unloaded.
    unsafe { pg_sys::CacheRegisterRelcacheCallback(Some(on_relcache), pg_sys::Datum::null()) };
}

/// # Safety
/// Called by PostgreSQL. Must not read catalogs.
#[pg_guard]
unsafe extern "C-unwind" fn on_relcache(_arg: pg_sys::Datum, relid: pg_sys::Oid) {
    CHANGES.set(CHANGES.get().wrapping_add(1));
    // Never borrowed while anything is called that could come here.
    ROUTES.with_borrow_mut(|routes| {
        if relid == pg_sys::InvalidOid {
            *routes = Routes::default();
        } else if let Some(triggers) = routes.by_relation.remove(&relid.to_u32()) {
            for trigger in triggers {
                routes.by_trigger.remove(&trigger);
            }
        }
    });
}

/// The route of a trigger, if it is known.
pub fn known(trigger: pg_sys::Oid) -> Option<Rc<Route>> {
    ROUTES.with_borrow(|routes| routes.by_trigger.get(&trigger.to_u32()).cloned())
}

/// Makes the route of a trigger on `written` for the source that it names.
///
/// # Safety
/// See the module's doc.
pub unsafe fn find(
    trigger: pg_sys::Oid,
    source: Option<Oid>,
    written: pg_sys::Relation,
) -> Result<Rc<Route>> {
    let before = CHANGES.get();
    // SAFETY: per the contract.
    let (route, written) = unsafe { (make(trigger, source, written)?, (*written).rd_id.to_u32()) };
    let route = Rc::new(route);
    if CHANGES.get() == before {
        let relations = [Some(written), source, route.buffer.map(pg_sys::Oid::to_u32)];
        ROUTES.with_borrow_mut(|routes| {
            if routes.by_trigger.len() >= MAX_ROUTES {
                *routes = Routes::default();
            }
            routes.by_trigger.insert(trigger.to_u32(), route.clone());
            for relation in relations.into_iter().flatten() {
                routes.by_relation.entry(relation).or_default().insert(trigger.to_u32());
            }
        });
    }
    Ok(route)
}

impl Route {
    fn nowhere() -> Route {
        Route { buffer: None, header: Vec::new(), columns: Vec::new(), deformed: 0 }
    }
}

/// Partitions may number columns differently, so theirs are found by name, as PostgreSQL itself does.
unsafe fn make(trigger: pg_sys::Oid, source: Option<Oid>, written: pg_sys::Relation) -> Result<Route> {
    // SAFETY: relations are opened without a lock, for their descriptions, and closed: the writer's own lock is on the one
    // that is written, and an invalidation of the other makes the route stale.
    unsafe {
        let Some(source) = source else { return Ok(Route::nowhere()) };
        if !is_ours(trigger, source, (*written).rd_id.to_u32()) {
            return Ok(Route::nowhere());
        }
        let (Some(captured), Some(buffer)) = (captured(source), side::buffer(source)?) else {
            return Ok(Route::nowhere());
        };
        let root = pg_sys::RelationIdGetRelation(pg_sys::Oid::from(source));
        if root.is_null() {
            return Ok(Route::nowhere());
        }
        let (mut identities, mut columns) = (Vec::new(), Vec::new());
        for number in captured {
            let Some(attnum) = number_in(number, root, written) else { continue };
            let origin = descriptor_attribute((*written).rd_att, attnum as usize - 1);
            identities.push((number, (*origin).atttypid.to_u32()));
            let kind = Kind { by_value: (*origin).attbyval, length: (*origin).attlen };
            columns.push(Column { attnum, kind });
        }
        pg_sys::RelationClose(root);
        let deformed = columns.iter().map(|c| i32::from(c.attnum)).max().unwrap_or(0);
        Ok(Route { buffer: Some(buffer.into()), header: image::header(&identities), columns, deformed })
    }
}

/// The number in `written` of a column of `root`.
unsafe fn number_in(number: i16, root: pg_sys::Relation, written: pg_sys::Relation) -> Option<i16> {
    // SAFETY: per the contract; attributes below natts.
    unsafe {
        let existing = |rel: pg_sys::Relation, i: usize| {
            let attribute = descriptor_attribute((*rel).rd_att, i);
            (!(*attribute).attisdropped).then_some(attribute)
        };
        let index = usize::try_from(number - 1).ok().filter(|i| *i < (*(*root).rd_att).natts as usize)?;
        let wanted = existing(root, index)?;
        if (*root).rd_id == (*written).rd_id {
            return Some(number);
        }
        (0..(*(*written).rd_att).natts as usize).find_map(|i| {
            let found = existing(written, i)?;
            let same = std::ffi::CStr::from_ptr((*found).attname.data.as_ptr())
                == std::ffi::CStr::from_ptr((*wanted).attname.data.as_ptr());
            same.then_some(i as i16 + 1)
        })
    }
}

/// Did pgtrickle put this trigger there? On the source itself, or, for rows, as the clone that PostgreSQL made of the
/// source's own for a partition. Whoever may create a trigger on some table may not write into the buffer of another.
fn is_ours(trigger: pg_sys::Oid, source: Oid, written: Oid) -> bool {
    let Some(root) = root_of(trigger) else { return false };
    if root.table != written && root.table != source {
        return false;
    }
    let (row, truncate) = (row_trigger(source), truncate_trigger(source));
    if root.table == source {
        return (root.name == row || root.name == truncate) && is_below(written, source);
    }
    // TRUNCATE triggers are not cloned: each partition has its own. It carries no rows.
    root.name == truncate && is_below(written, source)
}

struct Root {
    table: Oid,
    name: String,
}

/// The trigger that this one was cloned from, or itself.
fn root_of(trigger: pg_sys::Oid) -> Option<Root> {
    let mut next = trigger;
    loop {
        // SAFETY: pg_trigger and its index on oid; a name is NUL-terminated.
        let (table, name, parent) = unsafe {
            row_by_oid_now(
                pg_sys::TriggerRelationId,
                pg_sys::TriggerOidIndexId,
                next,
                |row: &pg_sys::FormData_pg_trigger| {
                    let name = std::ffi::CStr::from_ptr(row.tgname.data.as_ptr());
                    (row.tgrelid.to_u32(), name.to_string_lossy().into_owned(), row.tgparentid)
                },
            )?
        };
        if parent == pg_sys::InvalidOid {
            return Some(Root { table, name });
        }
        next = parent;
    }
}

/// Is the relation the source itself, or in its partition tree?
fn is_below(relation: Oid, source: Oid) -> bool {
    unsafe extern "C-unwind" {
        fn get_partition_ancestors(relation: pg_sys::Oid) -> *mut pg_sys::List;
    }
    if relation == source {
        return true;
    }
    // SAFETY: only a partition has ancestors; the function takes any relation and returns a list of oids.
    unsafe {
        let ancestors = pg_sys::ffi::pg_guard_ffi_boundary(|| get_partition_ancestors(relation.into()));
        pg_sys::list_member_oid(ancestors, source.into())
    }
}

/// Attribute numbers that are captured of a source, as committed by now: the writer's snapshot may be older.
fn captured(source: Oid) -> Option<Vec<i16>> {
    let table = names::own_relation(c"pgt_captures")?;
    let index = names::own_relation(c"pgt_captures_pkey")?;
    // SAFETY: our table with columns (source oid, columns smallint[]) and its index on the first.
    unsafe {
        let scan = Scan::begin_now(table.into(), index, 1, source.into());
        let desc = scan.description();
        let found = scan.next().map(|tuple| match attribute(tuple, desc, 2) {
            Some(array) => {
                let array = pg_sys::pg_detoast_datum(array.cast_mut_ptr()).cast();
                array_elements(array, pg_sys::INT2OID, 2, true, b's' as std::ffi::c_char)
                    .into_iter()
                    .map(|number| number.value() as i16)
                    .collect()
            }
            None => Vec::new(),
        });
        scan.end();
        found
    }
}

/// Tells all writers of a source that what is captured of it has changed.
pub fn changed(source: Oid) {
    // SAFETY: queues an invalidation message; the caller has locked the source, so it exists.
    unsafe { pg_sys::CacheInvalidateRelcacheByRelid(source.into()) };
}
