//! Types as SQL text that means the same under any search_path.

use std::ffi::CStr;

use pgrx::pg_sys;

use crate::error::{Error, Result};
use crate::model::Oid;
use crate::sqltext;

/// A type with its modifier and, where it is not the type's own, its collation: what stands in a list of columns.
pub fn column_type(type_oid: Oid, typmod: i32, collation: Oid) -> Result<String> {
    let missing = |what| Error::Internal(format!("{what} of a column does not exist"));
    // SAFETY: syscache look-ups; results are copied at once.
    unsafe {
        let flags = pg_sys::FORMAT_TYPE_TYPEMOD_GIVEN
            | pg_sys::FORMAT_TYPE_FORCE_QUALIFY
            | pg_sys::FORMAT_TYPE_INVALID_AS_NULL;
        let text = pg_sys::format_type_extended(type_oid.into(), typmod, flags as u16);
        if text.is_null() {
            return Err(missing("the type"));
        }
        let mut sql = CStr::from_ptr(text).to_string_lossy().into_owned();
        pg_sys::pfree(text.cast());
        if collation != 0 && collation != pg_sys::get_typcollation(type_oid.into()).to_u32() {
            let (schema, name) = collation_name(collation).ok_or_else(|| missing("the collation"))?;
            sql.push_str(" COLLATE ");
            sql.push_str(&sqltext::qualified(&schema, &name));
        }
        Ok(sql)
    }
}

fn collation_name(collation: Oid) -> Option<(String, String)> {
    // SAFETY: the row is released after its names are copied.
    unsafe {
        let key = pg_sys::Datum::from(pg_sys::Oid::from(collation));
        let tuple = pg_sys::SearchSysCache1(pg_sys::SysCacheIdentifier::COLLOID as i32, key);
        if tuple.is_null() {
            return None;
        }
        let row: &pg_sys::FormData_pg_collation = crate::pg::catalog_scan::fixed_part(tuple);
        let name = CStr::from_ptr(row.collname.data.as_ptr()).to_string_lossy().into_owned();
        let namespace = row.collnamespace;
        pg_sys::ReleaseSysCache(tuple);
        let schema = pg_sys::get_namespace_name(namespace);
        (!schema.is_null()).then(|| (CStr::from_ptr(schema).to_string_lossy().into_owned(), name))
    }
}
