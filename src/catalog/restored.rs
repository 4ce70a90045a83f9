//! Tables that dumps go through in the place of ours: what is restored into one goes on by its trigger, so it is empty, unless
//! somebody restored with triggers disabled.
#![forbid(unsafe_code)]

use crate::catalog::tables::{HASH_KEYS, SCHEMA_SNAPSHOTS};
use crate::error::Result;
use crate::pg::own_rows;
use crate::pg::spi::{self, Mode};
use crate::sqltext::rows::Table;

/// Takes rows that were left there to where they belong.
pub fn adopt() -> Result<()> {
    [&SCHEMA_SNAPSHOTS, &HASH_KEYS].into_iter().try_for_each(adopt_into)
}

fn adopt_into(table: &Table) -> Result<()> {
    let left = format!("pgtrickle.{}_dump", table.name);
    if spi::run(&format!("SELECT FROM {left} LIMIT 1"), &[], Mode::Fresh)?.first().is_none() {
        return Ok(());
    }
    // What this sees is all that it takes away: nobody else restores meanwhile, or does so again.
    let lock = format!("LOCK TABLE {left} IN SHARE ROW EXCLUSIVE MODE NOWAIT");
    spi::run_once(&lock, &[], Mode::Fresh)?;
    let rows = format!("SELECT NULL::pg_catalog.tid AS place, d.* FROM {left} d");
    own_rows::put(table, &rows, &[], Mode::Fresh)?;
    spi::run(&format!("DELETE FROM {left}"), &[], Mode::Fresh)?;
    Ok(())
}
