//! `pgtrickle.pgt_capture_failures`: snapshots that could not be taken.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::pg::lock::{LockMode, try_lock_own};
use crate::pg::spi::{self, Arg, Mode};

/// Notes those of one command.
pub fn note(what: &str, sqlstate: &str, number: i64, relations: &str, actor: &str) -> Result<()> {
    try_lock_own(c"pgt_capture_failures", LockMode::RowExclusive)?;
    spi::run(
        "INSERT INTO pgtrickle.pgt_capture_failures (what, sqlstate, number, relations, actor) \
         VALUES ($1, $2, $3, $4, $5)",
        &[Arg::Text(what), Arg::Text(sqlstate), Arg::Int(number), Arg::Text(relations), Arg::Text(actor)],
        Mode::Fresh,
    )?;
    Ok(())
}

/// Counts those that can't be noted, for good: a sequence takes no part in a rollback.
pub fn count(number: i64) -> Result<()> {
    spi::run(
        "SELECT pg_catalog.nextval('pgtrickle.pgt_uncounted_failures') FROM pg_catalog.generate_series(1, $1)",
        &[Arg::Int(number)],
        Mode::Fresh,
    )?;
    Ok(())
}

/// Notes that stay by themselves; older ones become one together.
const KEEP: i64 = 1_000;

/// Keeps the notes few. How many failures there were stays true.
pub fn prune() -> Result<()> {
    let sql = include_str!("../../sql/queries/retain_failures.sql");
    spi::run_once(sql, &[Arg::Int(KEEP)], Mode::Fresh).map(|_| ())
}

/// Forgets all of them; how many there were.
pub fn forget() -> Result<i64> {
    let counted = spi::run(
        "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM pgtrickle.pgt_uncounted_failures",
        &[],
        Mode::Fresh,
    )?;
    let counted: i64 = counted.first().map_or(Ok(0), |mut row| row.parse(0))?;
    spi::run("SELECT pg_catalog.setval('pgtrickle.pgt_uncounted_failures', 1, false)", &[], Mode::Fresh)?;
    let noted = spi::run(
        "WITH gone AS (DELETE FROM pgtrickle.pgt_capture_failures RETURNING number) \
         SELECT COALESCE(pg_catalog.sum(number), 0)::bigint FROM gone",
        &[],
        Mode::Fresh,
    )?;
    let noted: i64 = noted.first().map_or(Ok(0), |mut row| row.parse(0))?;
    Ok(counted + noted)
}

/// What `health_check()` says of them, one row (status, detail); tables are named to whoever may see the evidence.
pub fn health(may_see: bool) -> Result<(String, String)> {
    let rows =
        spi::run(include_str!("../../sql/queries/capture_failures.sql"), &[Arg::Bool(may_see)], Mode::Fresh)?;
    match rows.first() {
        Some(mut row) => Ok((row.text(0)?, row.text(1)?)),
        None => Err(Error::Internal("no row about capture failures".into())),
    }
}
