//! Which stream tables an object concerns, asked for few objects at a time: a look into this backend's memory, or one into
//! an index. It assigns no transaction id, runs no statement, and leaves no lock behind.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use pgrx::FromDatum;
use pgrx::pg_sys;

use crate::error::{Error, Result};
use crate::model::Oid;
use crate::pg::cache;
use crate::pg::catalog_scan::{attribute, own_rows};

/// How something depends on an object: `kind` of `pgt_dependencies`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Source,
    View,
    Object,
    /// The object is a stream table itself.
    Itself,
    /// Not an object: a name that a suspended stream table misses, perhaps.
    Cure,
    /// Not an object: the number 0, for each suspended stream table.
    Suspended,
}

impl Kind {
    fn from_word(word: &str) -> Option<Kind> {
        Some(match word {
            "source" => Kind::Source,
            "view" => Kind::View,
            "object" => Kind::Object,
            "self" => Kind::Itself,
            "cure" => Kind::Cure,
            "suspended" => Kind::Suspended,
            _ => return None,
        })
    }
}

/// Who depends on an object, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependant {
    pub kind: Kind,
    /// Class of the object: numbers are unique in a class only.
    pub class: Oid,
    pub stream_table: Oid,
}

/// Objects remembered at most; all are forgotten when there are more.
const MAX_KNOWN: usize = 8192;

thread_local! {
    /// Version of the definitions that `KNOWN` is of.
    static VERSION: Cell<u64> = const { Cell::new(0) };
    static KNOWN: RefCell<HashMap<Oid, Rc<[Dependant]>>> = RefCell::new(HashMap::new());
}

/// Attribute numbers of `pgt_dependencies`.
const RELID: i16 = 1;
const KIND: i16 = 2;
const CLASS: i16 = 3;
const OBJECT: i16 = 4;

/// All that depends on objects with this number, whatever their class. An error where our table can't be read at once.
pub fn dependants(object: Oid) -> Result<Rc<[Dependant]>> {
    let version = cache::definitions_version();
    if VERSION.replace(version) != version {
        KNOWN.with_borrow_mut(HashMap::clear);
    }
    if let Some(known) = KNOWN.with_borrow(|known| known.get(&object).cloned()) {
        return Ok(known);
    }
    // SAFETY: the index begins with this column; a row is read before the next one is asked for.
    let rows = unsafe {
        own_rows(c"pgt_dependencies", c"pgt_dependencies_object", OBJECT, object, |tuple, desc| {
            read(tuple, desc)
        })?
    };
    let found: Rc<[Dependant]> = rows.into_iter().collect::<Result<_>>()?;
    // What was told meanwhile makes it stale at once: the next look clears it.
    KNOWN.with_borrow_mut(|known| {
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(object, found.clone());
    });
    Ok(found)
}

/// Is any stream table suspended?
pub fn any_suspended() -> Result<bool> {
    Ok(dependants(0)?.iter().any(|d| d.kind == Kind::Suspended))
}

/// # Safety
/// `tuple` is a row of `pgt_dependencies` of this description.
unsafe fn read(tuple: pg_sys::HeapTuple, desc: pg_sys::TupleDesc) -> Result<Dependant> {
    let bad = || Error::Internal("an unexpected row in pgt_dependencies".into());
    // SAFETY: per the contract; each attribute has the type that it is read as.
    unsafe {
        let get = |number| attribute(tuple, desc, number).ok_or_else(bad);
        let kind = String::from_datum(get(KIND)?, false).ok_or_else(bad)?;
        Ok(Dependant {
            kind: Kind::from_word(&kind).ok_or_else(bad)?,
            class: get(CLASS)?.value() as Oid,
            stream_table: get(RELID)?.value() as Oid,
        })
    }
}

/// What kind of relation it is, and its bare name, as they are now; none if it is gone.
pub fn kind_and_name(relation: Oid) -> Option<(char, String)> {
    let oid = pg_sys::Oid::from(relation);
    // SAFETY: syscache look-ups; the name is a copy with a NUL at its end.
    unsafe {
        let kind = pg_sys::get_rel_relkind(oid) as u8;
        if kind == 0 {
            return None;
        }
        let name = pg_sys::get_rel_name(oid);
        if name.is_null() {
            return None;
        }
        let text = std::ffi::CStr::from_ptr(name).to_string_lossy().into_owned();
        pg_sys::pfree(name.cast());
        Some((char::from(kind), text))
    }
}

/// Functions, procedures and aggregates with that bare name, in any schema.
pub fn routines_named(name: &str) -> Vec<Oid> {
    use pg_sys::SysCacheIdentifier::PROCNAMEARGSNSP;
    let Ok(name) = std::ffi::CString::new(name) else { return Vec::new() };
    // SAFETY: a list of the syscache by its first key, held while it is read; its members are tuples of pg_proc.
    unsafe {
        let (key, none) = (pg_sys::Datum::from(name.as_ptr()), pg_sys::Datum::null());
        let list = pg_sys::SearchSysCacheList(PROCNAMEARGSNSP as i32, 1, key, none, none);
        let members = (*list).members.as_slice((*list).n_members as usize);
        let found = members
            .iter()
            .map(|member| {
                let tuple = &raw mut (**member).tuple;
                (*pg_sys::heap_tuple_get_struct::<pg_sys::FormData_pg_proc>(tuple)).oid.to_u32()
            })
            .collect();
        pg_sys::ReleaseCatCacheList(list);
        found
    }
}
