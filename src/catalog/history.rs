//! `pgtrickle.pgt_refresh_history`.
#![forbid(unsafe_code)]

use std::time::Duration;

use crate::catalog::stream_tables::StreamTable;
use crate::catalog::{self, tables::REFRESH_HISTORY};
use crate::error::Result;
use crate::model::{Oid, Outcome};
use crate::pg::guc::Retention;
use crate::pg::spi::{self, Arg, Mode};

/// A refresh that changed something, `took` long until now. `reason`: why it was not what was planned.
pub fn completed(
    table: &StreamTable,
    took: Duration,
    outcome: Outcome,
    reason: Option<&str>,
    detail: Option<&str>,
) -> Result<()> {
    let micros = i64::try_from(took.as_micros()).unwrap_or(i64::MAX);
    catalog::insert(
        &REFRESH_HISTORY,
        &[
            ("relid", "$1"),
            ("stream_table_name", "$2"),
            ("started_at", "pg_catalog.clock_timestamp() - $3 * interval '1 microsecond'"),
            ("finished_at", "pg_catalog.clock_timestamp()"),
            ("action", "$4"),
            ("status", "'completed'"),
            ("reason", "$5"),
            ("detail", "$6"),
            ("rows_inserted", "$7"),
            ("rows_updated", "$8"),
            ("rows_deleted", "$9"),
        ],
        &[
            Arg::Oid(table.relid),
            Arg::Text(&table.display()),
            Arg::Int(micros),
            Arg::Text(outcome.action.word()),
            Arg::OptText(reason),
            Arg::OptText(detail),
            Arg::Int(outcome.inserted),
            Arg::Int(outcome.updated),
            Arg::Int(outcome.deleted),
        ],
        Mode::InSnapshot,
    )
}

/// How long computing the contents took the last time, if that is known.
pub fn last_computed(relid: Oid) -> Result<Option<Duration>> {
    let rows = spi::run(
        "SELECT GREATEST(pg_catalog.date_part('epoch', finished_at - started_at), 0) FROM pgtrickle.pgt_refresh_history \
         WHERE relid = $1 AND action IN ('full', 'reinitialize') AND finished_at IS NOT NULL ORDER BY id DESC LIMIT 1",
        &[Arg::Oid(relid)],
        Mode::Read,
    )?;
    let seconds: Option<f64> = rows.first().map(|mut row| row.parse(0)).transpose()?;
    Ok(seconds.map(Duration::from_secs_f64))
}

/// Words of an event that is no completed refresh.
pub struct Event<'a> {
    /// failed, suspended or resumed.
    pub status: &'a str,
    pub reason: &'a str,
    pub detail: &'a str,
    pub hint: &'a str,
}

/// A failure, suspension or resumption. The owner alone sees detail and hint: they may quote rows.
pub fn event(table: &StreamTable, event: &Event) -> Result<()> {
    catalog::insert(
        &REFRESH_HISTORY,
        &[
            ("relid", "$1"),
            ("stream_table_name", "$2"),
            ("started_at", "pg_catalog.clock_timestamp()"),
            ("finished_at", "pg_catalog.clock_timestamp()"),
            ("status", "$3"),
            ("reason", "$4"),
            ("detail", "$5"),
            ("hint", "$6"),
        ],
        &[
            Arg::Oid(table.relid),
            Arg::Text(&table.display()),
            Arg::Text(event.status),
            Arg::Text(event.reason),
            Arg::Text(event.detail),
            Arg::Text(event.hint),
        ],
        Mode::Fresh,
    )
}

/// As `prune`, of one stream table alone.
pub fn prune_of(relid: Oid, policy: &Retention, batch: i64) -> Result<()> {
    catalog::delete(
        &REFRESH_HISTORY,
        concat!("t.id IN (", include_str!("../../sql/queries/retain_history_of.sql"), ")"),
        &[
            Arg::Int(policy.history_keep_last.into()),
            Arg::Int(policy.history_max_age.into()),
            Arg::Int(batch),
            Arg::Oid(relid),
        ],
        Mode::Fresh,
    )
    .map(|_| ())
}

/// Removes what the policy does not keep, the oldest first and at most `batch` rows; returns how many.
pub fn prune(policy: &Retention, batch: i64) -> Result<i64> {
    let gone = catalog::delete(
        &REFRESH_HISTORY,
        concat!("t.id IN (", include_str!("../../sql/queries/retain_history.sql"), ")"),
        &[
            Arg::Int(policy.history_keep_last.into()),
            Arg::Int(policy.history_max_age.into()),
            Arg::Int(batch),
        ],
        Mode::Fresh,
    )?;
    Ok(catalog::count(gone))
}
