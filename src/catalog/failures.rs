//! `pgtrickle.pgt_capture_failures`: snapshots that could not be taken.
#![forbid(unsafe_code)]

use crate::catalog::{self, tables::CAPTURE_FAILURES};
use crate::error::{Error, Result};
use crate::pg::lock::{LockMode, try_lock_own};
use crate::pg::snapshot::with_transaction_snapshot;
use crate::pg::spi::{self, Arg, Mode};

/// Notes those of one command.
pub fn note(what: &str, sqlstate: &str, number: i64, relations: &str, actor: &str) -> Result<()> {
    try_lock_own(c"pgt_capture_failures", LockMode::RowExclusive)?;
    catalog::insert(
        &CAPTURE_FAILURES,
        &[("what", "$1"), ("sqlstate", "$2"), ("number", "$3"), ("relations", "$4"), ("actor", "$5")],
        &[Arg::Text(what), Arg::Text(sqlstate), Arg::Int(number), Arg::Text(relations), Arg::Text(actor)],
        Mode::Fresh,
    )
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
    const OLD: &str = include_str!("../../sql/queries/retain_failures.sql");
    // Counted and deleted through one snapshot.
    with_transaction_snapshot(|| {
        let sum = format!(
            "SELECT pg_catalog.max(t.failed_at), (pg_catalog.array_agg(t.sqlstate ORDER BY t.failed_at DESC))[1], \
             pg_catalog.sum(t.number)::bigint FROM pgtrickle.pgt_capture_failures t WHERE t.ctid IN ({OLD}) \
             HAVING pg_catalog.count(*) > 0"
        );
        let Some(mut row) = spi::run(&sum, &[Arg::Int(KEEP)], Mode::InSnapshot)?.first() else {
            return Ok(());
        };
        let (last, sqlstate, number) = (row.text(0)?, row.text(1)?, row.parse(2)?);
        catalog::delete(
            &CAPTURE_FAILURES,
            &format!("t.ctid IN ({OLD})"),
            &[Arg::Int(KEEP)],
            Mode::InSnapshot,
        )?;
        catalog::insert(
            &CAPTURE_FAILURES,
            &[
                ("failed_at", "$1"),
                ("what", "'older failures together'"),
                ("sqlstate", "$2"),
                ("number", "$3"),
                ("relations", "''"),
                ("actor", "''"),
            ],
            &[Arg::Text(&last), Arg::Text(&sqlstate), Arg::Int(number)],
            Mode::InSnapshot,
        )
    })
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
    // Counted and deleted through one snapshot.
    let noted = with_transaction_snapshot(|| {
        let noted = spi::run(
            "SELECT COALESCE(pg_catalog.sum(number), 0)::bigint FROM pgtrickle.pgt_capture_failures",
            &[],
            Mode::InSnapshot,
        )?;
        catalog::delete(&CAPTURE_FAILURES, "true", &[], Mode::InSnapshot)?;
        noted.first().map_or(Ok(0), |mut row| row.parse::<i64>(0))
    })?;
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
