//! `pgtrickle.pgt_captures`: the columns of each source that its triggers capture. The write path reads it by index.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use crate::error::{Error, Result};
use crate::model::Oid;
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

/// Records them.
pub fn record(source: Oid, columns: &BTreeSet<i16>) -> Result<()> {
    let list: Vec<i16> = columns.iter().copied().collect();
    spi::run(
        "INSERT INTO pgtrickle.pgt_captures (source, columns) VALUES ($1, $2) \
         ON CONFLICT (source) DO UPDATE SET columns = excluded.columns",
        &[Arg::Oid(source), Arg::Ints(&list)],
        Mode::Fresh,
    )?;
    Ok(())
}

/// Nothing is captured any more.
pub fn forget(source: Oid) -> Result<()> {
    spi::run("DELETE FROM pgtrickle.pgt_captures WHERE source = $1", &[Arg::Oid(source)], Mode::Fresh)?;
    Ok(())
}
