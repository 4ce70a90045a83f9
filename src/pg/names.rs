//! Names as users type them.

use std::ffi::CStr;

use pgrx::PgList;
use pgrx::pg_sys;

use crate::error::{Error, Result};
use crate::model::Oid;
use crate::pg::catalog_scan::row_by_oid_now;
use crate::pg::spi::{self, Arg, Mode, text_array};
use crate::pg::subxact;

/// Schemas in which the current user's unqualified names are looked up, in order. Not by SQL, whose own names would be
/// looked up there as well.
pub fn search_path() -> Vec<String> {
    schemas(true)
}

/// The schema in which the current user's unqualified names are created.
pub fn creation_schema() -> Option<String> {
    schemas(false).into_iter().next()
}

/// Existing schemas of the path; with those that are searched without being named, or without.
fn schemas(implicit: bool) -> Vec<String> {
    // SAFETY: a list of oids; names come from the syscache, null for a schema that is just being dropped.
    unsafe {
        let path = PgList::<pg_sys::Oid>::from_pg(pg_sys::fetch_search_path(implicit));
        path.iter_oid()
            .filter_map(|schema| {
                let name = pg_sys::get_namespace_name(schema);
                (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
            })
            .collect()
    }
}

/// Oid of a relation of pgtrickle's own schema, if it exists.
pub fn own_relation(name: &CStr) -> Option<Oid> {
    // SAFETY: syscache look-ups by NUL-terminated names.
    let oid = unsafe {
        let schema = pg_sys::get_namespace_oid(c"pgtrickle".as_ptr(), true);
        pg_sys::get_relname_relid(name.as_ptr(), schema)
    };
    (oid != pg_sys::InvalidOid).then(|| oid.to_u32())
}

/// `schema.name` of a relation as people read it; its number if it is gone.
pub fn shown(relation: Oid) -> String {
    let oid = pg_sys::Oid::from(relation);
    // SAFETY: syscache look-ups; null when there is none.
    unsafe {
        let name = pg_sys::get_rel_name(oid);
        let schema = pg_sys::get_namespace_name(pg_sys::get_rel_namespace(oid));
        if name.is_null() || schema.is_null() {
            return format!("relation {relation}");
        }
        let text =
            |text: *mut std::ffi::c_char| std::ffi::CStr::from_ptr(text).to_string_lossy().into_owned();
        crate::sqltext::display(&text(schema), &text(name))
    }
}

/// Owner of an extension, if it is there.
pub fn extension_owner(name: &std::ffi::CStr) -> Option<Oid> {
    // SAFETY: look-ups in pg_extension through the latest snapshot; the index is the one on its oid.
    unsafe {
        let oid = pg_sys::get_extension_oid(name.as_ptr(), true);
        if oid == pg_sys::InvalidOid {
            return None;
        }
        let (catalog, index) = (pg_sys::ExtensionRelationId, pg_sys::ExtensionOidIndexId);
        row_by_oid_now(catalog, index, oid, |row: &pg_sys::FormData_pg_extension| row.extowner.to_u32())
    }
}

/// May the current user drop the extension, if it is there?
pub fn may_drop_extension(name: &std::ffi::CStr) -> bool {
    // SAFETY: a look-up of memberships.
    extension_owner(name)
        .is_some_and(|owner| unsafe { pg_sys::has_privs_of_role(pg_sys::GetUserId(), owner.into()) })
}

/// The parts of a qualified name: `shop."Orders"` has two.
pub fn split(name: &str) -> Result<Vec<String>> {
    let parts = subxact::run(|| {
        let rows =
            spi::run("SELECT pg_catalog.parse_ident($1)::pg_catalog.text", &[Arg::Text(name)], Mode::Fresh)?;
        match rows.first() {
            Some(mut row) => text_array(&row.text(0)?),
            None => Ok(Vec::new()),
        }
    });
    parts.map_err(|_| Error::BadArgument {
        argument: "relation",
        value: crate::sqltext::literal(name),
        hint: "Pass the name of a table, with or without its schema.".into(),
    })
}
