//! A relation as the active snapshot shows it: its row in `pg_class`, its indexes and its constraints. Most tables have
//! nothing else that a statement would have to be run for.

use std::ffi::CStr;

use pgrx::FromDatum;
use pgrx::pg_sys;

use crate::error::{Error, Result};
use crate::model::Oid;
use crate::pg::catalog_scan::{Scan, any_row, array_elements, attribute, fixed_part, row_by_oid};
use crate::pg::columns::{self, Names, name};
use crate::snapshot::hash::definition;
use crate::snapshot::shape::{ConstraintShape, IndexShape, SHAPE_VERSION, TableShape, Text};

/// Catalogs and indexes that pgrx has no names for; their numbers never change.
const CONSTRAINTS: pg_sys::Oid = oid(2606);
const CONSTRAINTS_BY_RELATION: u32 = 2665;
const INHERITS: pg_sys::Oid = oid(2611);
const INHERITS_BY_CHILD: u32 = 2680;
const POLICIES: pg_sys::Oid = oid(3256);
const POLICIES_BY_RELATION: u32 = 3258;

const fn oid(number: u32) -> pg_sys::Oid {
    pg_sys::Oid::from_u32(number)
}

/// A shape without what its flags announce.
pub struct Relation {
    pub shape: TableShape,
    /// Some column has a default or is generated: its expressions are to be read.
    pub has_expressions: bool,
    /// It has triggers, policies, parents, partitions or children.
    pub has_surroundings: bool,
}

/// The relation with this oid, if the active snapshot shows one.
pub fn read(relation: Oid, names: &mut Names) -> Result<Option<Relation>> {
    // SAFETY: pg_class and its index on oid; the row is a copy.
    let found = unsafe {
        row_by_oid(pg_sys::RelationRelationId, pg_sys::ClassOidIndexId, relation.into(), |row| {
            *(row as *const pg_sys::FormData_pg_class)
        })
    };
    let Some(row) = found else { return Ok(None) };
    let (columns, has_expressions) = columns::read(relation, names)?;
    let letter = |value: std::ffi::c_char| char::from(value as u8);
    let shape = TableShape {
        version: SHAPE_VERSION,
        oid: relation,
        schema: names.of_schema(row.relnamespace)?.into(),
        name: name(&row.relname)?.into(),
        kind: letter(row.relkind),
        persistence: letter(row.relpersistence),
        owner: role_name(row.relowner)?,
        row_estimate: (row.reltuples >= 0.0).then(|| f64::from(row.reltuples).round_ties_even() as i64),
        filenode: row.relfilenode.to_u32(),
        columns,
        indexes: if row.relhasindex { indexes(relation)? } else { Vec::new() },
        constraints: constraints(relation, names)?,
        replica_identity: letter(row.relreplident),
        row_security: row.relrowsecurity,
        force_row_security: row.relforcerowsecurity,
        policies: Vec::new(),
        partitioning: None,
        is_partition: row.relispartition,
        parents: Vec::new(),
        members: Vec::new(),
        capture: Vec::new(),
    };
    let has_surroundings = shape.kind == 'p'
        || row.relhastriggers
        || row.relhassubclass
        // SAFETY: catalogs with their indexes, which begin with these columns.
        || unsafe {
            any_row(INHERITS, INHERITS_BY_CHILD, c"inhrelid", relation)
                || any_row(POLICIES, POLICIES_BY_RELATION, c"polrelid", relation)
        };
    Ok(Some(Relation { shape, has_expressions, has_surroundings }))
}

/// A missing one is an error, not a table without an owner.
fn role_name(role: pg_sys::Oid) -> Result<String> {
    let (catalog, index) = (pg_sys::AuthIdRelationId, pg_sys::AuthIdOidIndexId);
    // SAFETY: pg_authid and its index on oid.
    let found =
        unsafe { row_by_oid(catalog, index, role, |row: &pg_sys::FormData_pg_authid| name(&row.rolname)) };
    match found {
        Some(name) => Ok(name?.into()),
        None => Err(Error::Internal(format!("role {}, an owner, does not exist", role.to_u32()))),
    }
}

fn indexes(relation: Oid) -> Result<Vec<IndexShape>> {
    let mut found = Vec::new();
    // SAFETY: pg_index and its index on indrelid; a row is used before the next one is asked for; indkey is a vector of
    // int2, which is laid out as an array.
    unsafe {
        let scan = Scan::begin(
            pg_sys::IndexRelationId,
            pg_sys::IndexIndrelidIndexId,
            pg_sys::Anum_pg_index_indrelid as i16,
            relation.into(),
        );
        let desc = scan.description();
        while let Some(tuple) = scan.next() {
            let row: &pg_sys::FormData_pg_index = fixed_part(tuple);
            let is_set = |number: u32| attribute(tuple, desc, number as i16).is_some();
            let (name, method) = name_and_method(row.indexrelid)?;
            found.push(IndexShape {
                oid: row.indexrelid.to_u32(),
                name,
                attnums: smallints(attribute(tuple, desc, pg_sys::Anum_pg_index_indkey as i16)),
                key_count: row.indnkeyatts,
                unique: row.indisunique,
                primary: row.indisprimary,
                valid: row.indisvalid,
                replica_identity: row.indisreplident,
                expressions: is_set(pg_sys::Anum_pg_index_indexprs),
                partial: is_set(pg_sys::Anum_pg_index_indpred),
                definition: index_definition(tuple, desc, method).into(),
            });
        }
        scan.end();
    }
    found.sort_by_key(|index| index.oid);
    Ok(found)
}

/// Access method, operator classes, collations, order, expressions and WHERE clause.
///
/// # Safety
/// `tuple` is a row of pg_index of this description.
unsafe fn index_definition(tuple: pg_sys::HeapTuple, desc: pg_sys::TupleDesc, method: Oid) -> String {
    // SAFETY: per the contract; each attribute has the type that it is read as.
    unsafe {
        let get = |number: u32| attribute(tuple, desc, number as i16);
        let oids = |number: u32| numbers(get(number), pg_sys::OIDOID, 4, b'i');
        definition(&[
            Some(method.to_string()),
            oids(pg_sys::Anum_pg_index_indclass),
            oids(pg_sys::Anum_pg_index_indcollation),
            numbers(get(pg_sys::Anum_pg_index_indoption), pg_sys::INT2OID, 2, b's'),
            nodes(get(pg_sys::Anum_pg_index_indexprs)),
            nodes(get(pg_sys::Anum_pg_index_indpred)),
        ])
    }
}

/// Numbers of an array or vector, as text.
///
/// # Safety
/// The datum is an array or vector of this type, whose values are numbers of this length.
unsafe fn numbers(
    array: Option<pg_sys::Datum>,
    kind: pg_sys::Oid,
    length: i32,
    alignment: u8,
) -> Option<String> {
    // SAFETY: per the contract.
    let values = unsafe {
        let array = pg_sys::pg_detoast_datum(array?.cast_mut_ptr()).cast();
        array_elements(array, kind, length, true, alignment as std::ffi::c_char)
    };
    Some(values.iter().map(|value| value.value().to_string()).collect::<Vec<_>>().join(","))
}

/// A stored expression as PostgreSQL keeps it.
///
/// # Safety
/// The datum is a pg_node_tree.
unsafe fn nodes(tree: Option<pg_sys::Datum>) -> Option<String> {
    // SAFETY: per the contract; it is stored as a text is.
    unsafe { String::from_datum(tree?, false) }
}

/// Of an index: its own name, and the oid of its access method.
fn name_and_method(index: pg_sys::Oid) -> Result<(Text, Oid)> {
    let (catalog, by_oid) = (pg_sys::RelationRelationId, pg_sys::ClassOidIndexId);
    // SAFETY: pg_class and its index on oid.
    let found = unsafe {
        row_by_oid(catalog, by_oid, index, |row: &pg_sys::FormData_pg_class| {
            Ok((name(&row.relname)?, row.relam.to_u32()))
        })
    };
    found.ok_or_else(|| Error::Internal(format!("index {} does not exist", index.to_u32())))?
}

/// Without NOT NULL constraints, which are rows of their own since PostgreSQL 18: the columns say it.
fn constraints(relation: Oid, names: &mut Names) -> Result<Vec<ConstraintShape>> {
    let mut found = Vec::new();
    // SAFETY: pg_constraint and its index that begins with conrelid; attributes are looked up by name, since they have
    // other numbers in 18, and have the types that their names stand for.
    unsafe {
        let number = |name: &CStr| pg_sys::get_attnum(CONSTRAINTS, name.as_ptr());
        let scan = Scan::begin(CONSTRAINTS, CONSTRAINTS_BY_RELATION, number(c"conrelid"), relation.into());
        let desc = scan.description();
        while let Some(tuple) = scan.next() {
            let get = |name: &CStr| {
                let missing = || Error::Internal("a constraint lacks an attribute".into());
                attribute(tuple, desc, number(name)).ok_or_else(missing)
            };
            let kind = char::from(get(c"contype")?.value() as u8);
            if kind == 'n' {
                continue;
            }
            found.push(ConstraintShape {
                oid: get(c"oid")?.value() as u32,
                name: name(&*get(c"conname")?.cast_mut_ptr::<pg_sys::NameData>())?,
                kind,
                attnums: smallints(attribute(tuple, desc, number(c"conkey"))),
                validated: get(c"convalidated")?.value() as u8 != 0,
                definition: constraint_definition(
                    &|name: &CStr| attribute(tuple, desc, number(name)),
                    names,
                )?
                .into(),
            });
        }
        scan.end();
    }
    found.sort_by_key(|constraint| constraint.oid);
    Ok(found)
}

/// Condition, referenced table and columns, actions, deferrability; the referenced table by name, since it may have been
/// made anew.
///
/// # Safety
/// `get` gives the attributes of a row of pg_constraint.
unsafe fn constraint_definition(
    get: &impl Fn(&CStr) -> Option<pg_sys::Datum>,
    names: &mut Names,
) -> Result<String> {
    let byte = |name: &CStr| get(name).map(|value| (value.value() as u8).to_string());
    let referenced = get(c"confrelid").map(|value| pg_sys::Oid::from(value.value() as u32));
    let referenced = match referenced.filter(|oid| *oid != pg_sys::InvalidOid) {
        Some(oid) => Some(qualified_name(oid, names)?),
        None => None,
    };
    // SAFETY: per the contract.
    let definition = unsafe {
        definition(&[
            nodes(get(c"conbin")),
            referenced,
            numbers(get(c"confkey"), pg_sys::INT2OID, 2, b's'),
            numbers(get(c"conexclop"), pg_sys::OIDOID, 4, b'i'),
            byte(c"confupdtype"),
            byte(c"confdeltype"),
            byte(c"confmatchtype"),
            byte(c"condeferrable"),
            byte(c"condeferred"),
        ])
    };
    Ok(definition)
}

/// `schema.name` of a relation, unquoted; its number where it is gone, as the referenced table of a foreign key may be.
fn qualified_name(relation: pg_sys::Oid, names: &mut Names) -> Result<String> {
    let (catalog, by_oid) = (pg_sys::RelationRelationId, pg_sys::ClassOidIndexId);
    // SAFETY: pg_class and its index on oid.
    let found = unsafe {
        row_by_oid(catalog, by_oid, relation, |row: &pg_sys::FormData_pg_class| {
            Ok::<_, Error>((name(&row.relname)?, row.relnamespace))
        })
    };
    match found {
        Some(found) => {
            let (name, schema) = found?;
            Ok(format!("{}.{name}", names.of_schema(schema)?))
        }
        None => Ok(relation.to_u32().to_string()),
    }
}

/// # Safety
/// The datum is an array or vector of int2.
unsafe fn smallints(array: Option<pg_sys::Datum>) -> Vec<i16> {
    let Some(array) = array else { return Vec::new() };
    // SAFETY: per the contract.
    unsafe {
        let array = pg_sys::pg_detoast_datum(array.cast_mut_ptr()).cast();
        array_elements(array, pg_sys::INT2OID, 2, true, b's' as std::ffi::c_char)
            .into_iter()
            .filter_map(|datum| i16::from_datum(datum, false))
            .collect()
    }
}
