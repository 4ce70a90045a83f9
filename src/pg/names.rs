//! Names as users type them.

use pgrx::pg_sys;

use crate::error::{Error, Result};
use crate::model::Oid;
use crate::pg::spi::{self, Arg, Mode, text_array};
use crate::pg::subxact;

/// Schemas in which the current user's unqualified names are looked up, in order.
pub fn search_path() -> Result<Vec<String>> {
    let rows = spi::run("SELECT pg_catalog.current_schemas(true)::pg_catalog.text", &[], Mode::Fresh)?;
    match rows.first() {
        Some(mut row) => text_array(&row.text(0)?),
        None => Ok(Vec::new()),
    }
}

/// Oid of a relation of pgtrickle's own schema, if it exists.
pub fn own_relation(name: &std::ffi::CStr) -> Option<Oid> {
    // SAFETY: syscache look-ups by NUL-terminated names.
    let oid = unsafe {
        let schema = pg_sys::get_namespace_oid(c"pgtrickle".as_ptr(), true);
        pg_sys::get_relname_relid(name.as_ptr(), schema)
    };
    (oid != pg_sys::InvalidOid).then(|| oid.to_u32())
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
