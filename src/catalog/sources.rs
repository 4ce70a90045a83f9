//! `pgtrickle.pgt_sources`: the shape of each source that its users were judged by.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use crate::catalog::{self, tables::SOURCES};
use crate::error::Result;
use crate::model::Oid;
use crate::pg::spi::{self, Arg, Mode};
use crate::pg::{own_rows, side};
use crate::snapshot::shape::TableShape;

/// What is known of a source.
pub struct Known {
    pub fingerprint: String,
    /// It is captured, and its buffer exists.
    pub has_buffer: bool,
}

/// What is known of these sources.
pub fn known(sources: &[Oid]) -> Result<BTreeMap<Oid, Known>> {
    spi::run(
        "SELECT s.source, s.fingerprint, EXISTS (SELECT FROM pgtrickle.pgt_captures c WHERE c.source = s.source) \
         FROM pgtrickle.pgt_sources s WHERE s.source = ANY ($1)",
        &[Arg::Oids(sources)],
        Mode::Fresh,
    )?
    .into_iter()
    .map(|mut row| {
        let source = row.parse(0)?;
        let has_buffer = row.bool(2)? && side::buffer(source)?.is_some();
        Ok((source, Known { fingerprint: row.text(1)?, has_buffer }))
    })
    .collect()
}

/// The recorded fingerprint.
pub fn fingerprint(source: Oid) -> Result<Option<String>> {
    let rows = spi::run(
        "SELECT fingerprint FROM pgtrickle.pgt_sources WHERE source = $1",
        &[Arg::Oid(source)],
        Mode::Fresh,
    )?;
    rows.first().map(|mut row| row.text(0)).transpose()
}

/// The recorded shape.
pub fn shape(source: Oid) -> Result<Option<TableShape>> {
    let rows = spi::run(
        "SELECT shape FROM pgtrickle.pgt_sources WHERE source = $1",
        &[Arg::Oid(source)],
        Mode::Fresh,
    )?;
    rows.first().map(|mut row| TableShape::from_json(&row.text(0)?)).transpose()
}

/// Records the shape.
pub fn record(source: Oid, shape: &TableShape) -> Result<()> {
    let values = [("source", "$1"), ("fingerprint", "$2"), ("shape", "$3")];
    own_rows::put(
        &SOURCES,
        &SOURCES.upsert(&values, "t.source = $1")?,
        &[Arg::Oid(source), Arg::Text(&shape.fingerprint()?), Arg::Text(&shape.to_json()?)],
        Mode::Fresh,
    )?;
    Ok(())
}

/// Forgets a table that is no source any more.
pub fn delete(source: Oid) -> Result<()> {
    catalog::delete(&SOURCES, "t.source = $1", &[Arg::Oid(source)], Mode::Fresh).map(|_| ())
}
