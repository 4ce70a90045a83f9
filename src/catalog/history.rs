//! `pgtrickle.pgt_refresh_history`.
#![forbid(unsafe_code)]

use std::time::Duration;

use crate::catalog::stream_tables::StreamTable;
use crate::error::Result;
use crate::model::Outcome;
use crate::pg::spi::{self, Arg, Mode};

/// A refresh that changed something, `took` long until now.
pub fn completed(table: &StreamTable, took: Duration, outcome: Outcome, detail: Option<&str>) -> Result<()> {
    let micros = i64::try_from(took.as_micros()).unwrap_or(i64::MAX);
    spi::run(
        "INSERT INTO pgtrickle.pgt_refresh_history (relid, stream_table_name, started_at, finished_at, action, status, \
         detail, rows_inserted, rows_updated, rows_deleted) \
         VALUES ($1, $2, pg_catalog.clock_timestamp() - $3 * interval '1 microsecond', pg_catalog.clock_timestamp(), $4, 'completed', $5, $6, $7, $8)",
        &[
            Arg::Oid(table.relid),
            Arg::Text(&table.display()),
            Arg::Int(micros),
            Arg::Text(outcome.action.word()),
            Arg::OptText(detail),
            Arg::Int(outcome.inserted),
            Arg::Int(outcome.updated),
            Arg::Int(outcome.deleted),
        ],
        Mode::InSnapshot,
    )?;
    Ok(())
}

/// Words of an event that is no completed refresh.
pub struct Event<'a> {
    /// failed, suspended or resumed.
    pub status: &'a str,
    pub reason: &'a str,
    pub detail: &'a str,
    pub hint: &'a str,
}

/// A failure, suspension or resumption.
pub fn event(table: &StreamTable, event: &Event) -> Result<()> {
    spi::run(
        "INSERT INTO pgtrickle.pgt_refresh_history (relid, stream_table_name, started_at, finished_at, status, reason, \
         detail, hint) VALUES ($1, $2, pg_catalog.clock_timestamp(), pg_catalog.clock_timestamp(), $3, $4, $5, $6)",
        &[
            Arg::Oid(table.relid),
            Arg::Text(&table.display()),
            Arg::Text(event.status),
            Arg::Text(event.reason),
            Arg::Text(event.detail),
            Arg::Text(event.hint),
        ],
        Mode::Fresh,
    )?;
    Ok(())
}

/// Removes rows older than the newest `keep` of each stream table, but never a suspension's or a failure's newest.
pub fn prune(keep: i64) -> Result<()> {
    spi::run(
        "DELETE FROM pgtrickle.pgt_refresh_history h USING (\
           SELECT id, pg_catalog.row_number() OVER (PARTITION BY relid, status ORDER BY id DESC) AS n \
           FROM pgtrickle.pgt_refresh_history) o \
         WHERE o.id = h.id AND o.n > $1",
        &[Arg::Int(keep)],
        Mode::Fresh,
    )?;
    Ok(())
}
