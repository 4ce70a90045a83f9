//! Columns of a relation as the active snapshot shows them, from `pg_attribute` and the names of what its rows refer to. As
//! one statement this was the dearest part of reading a shape.

use std::collections::HashMap;
use std::ffi::CStr;

use pgrx::pg_sys;

use crate::error::{Error, Result};
use crate::model::Oid;
use crate::pg::catalog_scan::{Scan, fixed_part, row_by_oid};
use crate::snapshot::shape::{ColumnShape, Text};

/// Names of types, collations and schemas, each looked up once; for as long as one snapshot is active.
#[derive(Default)]
pub struct Names {
    types: HashMap<pg_sys::Oid, (Text, char)>,
    collations: HashMap<pg_sys::Oid, Text>,
    schemas: HashMap<pg_sys::Oid, Text>,
}

/// The columns that exist, by attnum, without their expressions; and whether any has one.
pub fn read(relation: Oid, names: &mut Names) -> Result<(Vec<ColumnShape>, bool)> {
    let (mut columns, mut has_expressions) = (Vec::new(), false);
    // SAFETY: pg_attribute and its index on (attrelid, attnum); a row is used before the next one is asked for.
    unsafe {
        let (catalog, index) = (pg_sys::AttributeRelationId, pg_sys::AttributeRelidNumIndexId);
        let scan = Scan::begin(catalog, index, 1, relation.into());
        while let Some(tuple) = scan.next() {
            let row: &pg_sys::FormData_pg_attribute = fixed_part(tuple);
            if row.attnum > 0 && !row.attisdropped {
                has_expressions |= row.atthasdef;
                columns.push(column(row, stored(tuple), names)?);
            }
        }
        scan.end();
    }
    columns.sort_by_key(|c| c.attnum);
    Ok((columns, has_expressions))
}

#[allow(clippy::useless_conversion)] // attndims is an int16 since PostgreSQL 17
fn column(row: &pg_sys::FormData_pg_attribute, stored: Text, names: &mut Names) -> Result<ColumnShape> {
    let (type_name, type_kind) = names.of_type(row.atttypid)?;
    let collation = row.attcollation;
    let collation_name =
        if collation == pg_sys::InvalidOid { None } else { Some(names.of_collation(collation)?) };
    Ok(ColumnShape {
        attnum: row.attnum,
        name: name(&row.attname)?,
        type_oid: row.atttypid.to_u32(),
        type_name,
        type_kind,
        typmod: row.atttypmod,
        dims: row.attndims.into(),
        collation_oid: collation.to_u32(),
        collation_name,
        not_null: row.attnotnull,
        expression: None,
        missing: row.atthasmissing,
        identity: flag(row.attidentity),
        generated: flag(row.attgenerated),
        stored,
    })
}

/// Which version of the row this is: xmin and ctid, as SQL prints them.
///
/// # Safety
/// `tuple` is a valid row.
unsafe fn stored(tuple: pg_sys::HeapTuple) -> Text {
    // SAFETY: per the contract; a row of a catalog has a transaction id there.
    unsafe {
        let xmin = (*(*tuple).t_data).t_choice.t_heap.t_xmin;
        let (block, offset) = pgrx::itemptr::item_pointer_get_both((*tuple).t_self);
        compact_str::format_compact!("{}({block},{offset})", u32::from(xmin))
    }
}

fn flag(value: std::ffi::c_char) -> Text {
    match value as u8 {
        0 => Text::default(),
        letter => Text::from(char::from(letter).encode_utf8(&mut [0; 4]) as &str),
    }
}

pub(super) fn name(data: &pg_sys::NameData) -> Result<Text> {
    // SAFETY: a name is NUL-terminated within its length.
    let text = unsafe { CStr::from_ptr(data.data.as_ptr()) };
    text.to_str().map(Text::from).map_err(|_| {
        Error::Internal("a name is not valid UTF-8; pgtrickle needs server encoding UTF8".into())
    })
}

impl Names {
    /// `schema.name` and kind of a type. A missing one is an error, not a column less.
    fn of_type(&mut self, oid: pg_sys::Oid) -> Result<(Text, char)> {
        if let Some(known) = self.types.get(&oid) {
            return Ok(known.clone());
        }
        // SAFETY: pg_type and its index on oid.
        let found = unsafe {
            row_by_oid(
                pg_sys::TypeRelationId,
                pg_sys::TypeOidIndexId,
                oid,
                |row: &pg_sys::FormData_pg_type| {
                    Ok::<_, Error>((name(&row.typname)?, row.typnamespace, char::from(row.typtype as u8)))
                },
            )
        };
        let (typname, schema, kind) = found.ok_or_else(|| missing("type", oid))??;
        let full = (compact_str::format_compact!("{}.{typname}", self.of_schema(schema)?), kind);
        self.types.insert(oid, full.clone());
        Ok(full)
    }

    fn of_collation(&mut self, oid: pg_sys::Oid) -> Result<Text> {
        if let Some(known) = self.collations.get(&oid) {
            return Ok(known.clone());
        }
        let (catalog, index) = (pg_sys::CollationRelationId, pg_sys::CollationOidIndexId);
        // SAFETY: pg_collation and its index on oid.
        let found = unsafe {
            row_by_oid(catalog, index, oid, |row: &pg_sys::FormData_pg_collation| {
                Ok::<_, Error>((name(&row.collname)?, row.collnamespace))
            })
        };
        let (collname, schema) = found.ok_or_else(|| missing("collation", oid))??;
        let full = compact_str::format_compact!("{}.{collname}", self.of_schema(schema)?);
        self.collations.insert(oid, full.clone());
        Ok(full)
    }

    pub(super) fn of_schema(&mut self, oid: pg_sys::Oid) -> Result<Text> {
        if let Some(known) = self.schemas.get(&oid) {
            return Ok(known.clone());
        }
        let (catalog, index) = (pg_sys::NamespaceRelationId, pg_sys::NamespaceOidIndexId);
        // SAFETY: pg_namespace and its index on oid.
        let found = unsafe {
            row_by_oid(catalog, index, oid, |row: &pg_sys::FormData_pg_namespace| name(&row.nspname))
        };
        let found = found.ok_or_else(|| missing("schema", oid))??;
        self.schemas.insert(oid, found.clone());
        Ok(found)
    }
}

fn missing(what: &str, oid: pg_sys::Oid) -> Error {
    Error::Internal(format!("{what} {} of a column does not exist", oid.to_u32()))
}
