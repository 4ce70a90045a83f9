//! Functions, operators, types, collations and views that a query depends on: what they are made of, and digests of them by
//! which a change is told. What is only called differently is the same.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Result};
use crate::model::Oid;
use crate::pg::snapshot::{Side, with_side};
use crate::pg::spi::{self, Arg, Mode};

/// Class and oid.
pub type Object = (Oid, Oid);

/// The objects and all that they are made of, as far as PostgreSQL knows it.
pub fn with_parts(objects: &BTreeSet<Object>) -> Result<BTreeSet<Object>> {
    if objects.is_empty() {
        return Ok(BTreeSet::new());
    }
    let (classes, oids) = arrays(objects);
    spi::run(
        include_str!("../../sql/queries/depended_on.sql"),
        &[Arg::Oids(&classes), Arg::Oids(&oids)],
        Mode::Fresh,
    )?
    .into_iter()
    .map(|mut row| Ok((row.parse(0)?, row.parse(1)?)))
    .collect()
}

/// Digests of those of the objects that are there.
pub fn fingerprints(objects: &BTreeSet<Object>) -> Result<BTreeMap<Object, String>> {
    read(objects, Mode::Fresh)
}

/// The same for one side of a command.
pub fn fingerprints_at(objects: &BTreeSet<Object>, side: Side) -> Result<BTreeMap<Object, String>> {
    with_side(side, || read(objects, Mode::Read))
}

fn read(objects: &BTreeSet<Object>, mode: Mode) -> Result<BTreeMap<Object, String>> {
    if objects.is_empty() {
        return Ok(BTreeMap::new());
    }
    let (classes, oids) = arrays(objects);
    spi::run(
        include_str!("../../sql/queries/fingerprints.sql"),
        &[Arg::Oids(&classes), Arg::Oids(&oids)],
        mode,
    )?
    .into_iter()
    .map(|mut row| Ok(((row.parse(0)?, row.parse(1)?), row.text(2)?)))
    .collect()
}

fn arrays(objects: &BTreeSet<Object>) -> (Vec<Oid>, Vec<Oid>) {
    objects.iter().copied().unzip()
}

/// What another digest of an object means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Values are computed in another way; a query that names it still says what it said.
    Meaning,
    /// Values are of another make. What a query makes of them nobody can tell.
    Shape,
}

/// The change between two digests of an object.
pub fn change((class, _): Object, before: &str, after: &str) -> Result<Change> {
    if class == pgrx::pg_sys::TypeRelationId.to_u32() {
        return Ok(Change::Shape);
    }
    let is_composite = |digest: &str| digest.starts_with('{');
    if class != pgrx::pg_sys::RelationRelationId.to_u32() || !is_composite(before) || !is_composite(after) {
        return Ok(Change::Meaning);
    }
    let (before, after) = (attributes(before)?, attributes(after)?);
    let kept = |(number, a): (&String, &Attribute)| {
        after.get(number).is_some_and(|b| (a.0, a.1, a.2) == (b.0, b.1, b.2))
    };
    Ok(if before.iter().all(kept) { Change::Meaning } else { Change::Shape })
}

/// Type, modifier, collation and name.
type Attribute = (i64, i64, i64, String);

fn attributes(digest: &str) -> Result<BTreeMap<String, Attribute>> {
    serde_json::from_str(digest).map_err(|e| Error::Internal(format!("unexpected digest of a type: {e}")))
}

/// What an object is called, for people.
pub fn identity((class, object): Object) -> Result<String> {
    let rows = spi::run(
        "SELECT COALESCE((pg_catalog.pg_identify_object($1, $2, 0)).identity, $3)",
        &[Arg::Oid(class), Arg::Oid(object), Arg::Text(&format!("object {object}"))],
        Mode::Fresh,
    )?;
    rows.first().map_or_else(|| Ok(format!("object {object}")), |mut row| row.text(0))
}
