//! `pgtrickle.pgt_captures`: the columns of each source that its triggers capture. The write path reads it by index.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use crate::catalog::{self, tables::CAPTURES};
use crate::error::{Error, Result};
use crate::model::Oid;
use crate::pg::own_rows;
use crate::pg::spi::{self, Arg, Mode};

/// The columns that are captured; None when nothing is.
pub fn columns(source: Oid) -> Result<Option<BTreeSet<i16>>> {
    let rows = spi::run(
        "SELECT columns FROM pgtrickle.pgt_captures WHERE source = $1",
        &[Arg::Oid(source)],
        Mode::Fresh,
    )?;
    let Some(mut row) = rows.first() else { return Ok(None) };
    let columns = spi::text_array(&row.text(0)?)?
        .iter()
        .map(|c| c.parse().map_err(|_| Error::Internal(format!("not an attribute number: {c}"))))
        .collect::<Result<_>>()?;
    Ok(Some(columns))
}

/// All sources that are captured.
pub fn sources() -> Result<Vec<Oid>> {
    spi::run("SELECT source FROM pgtrickle.pgt_captures", &[], Mode::Fresh)?
        .into_iter()
        .map(|mut row| row.parse(0))
        .collect()
}

/// Records them.
pub fn record(source: Oid, columns: &BTreeSet<i16>) -> Result<()> {
    let list: Vec<i16> = columns.iter().copied().collect();
    let sql = CAPTURES.upsert(&[("source", "$1"), ("columns", "$2")], "t.source = $1")?;
    own_rows::put(&CAPTURES, &sql, &[Arg::Oid(source), Arg::Ints(&list)], Mode::Fresh)?;
    Ok(())
}

/// Nothing is captured any more.
pub fn forget(source: Oid) -> Result<()> {
    catalog::delete(&CAPTURES, "t.source = $1", &[Arg::Oid(source)], Mode::Fresh).map(|_| ())
}

/// All sources of which something is captured.
pub fn all() -> Result<Vec<Oid>> {
    spi::run("SELECT source FROM pgtrickle.pgt_captures ORDER BY source", &[], Mode::Fresh)?
        .into_iter()
        .map(|mut row| row.parse(0))
        .collect()
}
