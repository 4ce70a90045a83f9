//! `pgtrickle.pgt_tasks`: what a command could not do without waiting for somebody, and `pgtrickle.pgt_alerts`: what is to be
//! notified. Adding to either waits for nobody.
#![forbid(unsafe_code)]

use crate::catalog::{self, tables::ALERTS, tables::TASKS};
use crate::error::{Error, Result};
use crate::model::Oid;
use crate::pg::commit;
use crate::pg::lock::{Ours, lock_ours, try_lock_ours};
use crate::pg::own_rows;
use crate::pg::spi::{self, Arg, Mode};

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskKind {
    /// Suspend a stream table.
    Suspend,
    /// Mark it for computing anew.
    Reinitialize,
    /// Print its query and name again.
    Reprint,
    /// Derive everything from its query again: a view that it goes through is another one.
    Rebind,
    /// Resolve its query again: what was missing may be back.
    Resume,
    /// Remove what was kept for a stream table that is gone.
    Forget,
    /// Compare a source with what its users were judged by.
    Check,
    /// Take away what capture of a source has and nobody needs.
    Capture,
}

const KINDS: [(TaskKind, &str); 8] = [
    (TaskKind::Suspend, "suspend"),
    (TaskKind::Reinitialize, "reinitialize"),
    (TaskKind::Reprint, "reprint"),
    (TaskKind::Rebind, "rebind"),
    (TaskKind::Resume, "resume"),
    (TaskKind::Forget, "forget"),
    (TaskKind::Check, "check"),
    (TaskKind::Capture, "capture"),
];

impl TaskKind {
    /// Stable word, as stored.
    pub fn word(self) -> &'static str {
        KINDS.iter().find(|(kind, _)| *kind == self).map_or("", |(_, word)| word)
    }

    /// Is it about a stream table that is still there?
    pub fn is_of_stream_table(self) -> bool {
        !matches!(self, TaskKind::Forget | TaskKind::Check | TaskKind::Capture)
    }
}

/// One of them.
#[derive(Debug, Clone)]
pub struct Task {
    pub kind: TaskKind,
    /// A stream table, or a source.
    pub relid: Oid,
    pub reason: Option<String>,
    pub detail: Option<String>,
}

/// Leaves a task, once: the same one twice is one. It is looked at before this transaction commits.
pub fn add(task: &Task) -> Result<()> {
    let sql = TASKS.insert_from(
        &[("kind", "$1"), ("relid", "$2"), ("reason", "$3"), ("detail", "$4")],
        "WHERE NOT EXISTS (SELECT FROM pgtrickle.pgt_tasks t WHERE t.kind = $1 AND t.relid = $2 \
           AND t.reason IS NOT DISTINCT FROM $3 AND t.detail IS NOT DISTINCT FROM $4 \
           AND t.xmin = pg_catalog.pg_current_xact_id()::pg_catalog.xid)",
    )?;
    own_rows::put(
        &TASKS,
        &sql,
        &[
            Arg::Text(task.kind.word()),
            Arg::Oid(task.relid),
            Arg::OptText(task.reason.as_deref()),
            Arg::OptText(task.detail.as_deref()),
        ],
        Mode::Fresh,
    )?;
    commit::want();
    Ok(())
}

/// Numbers of the tasks after this one, oldest first.
pub fn after(id: i64, limit: i64) -> Result<Vec<i64>> {
    ids(
        "SELECT id FROM pgtrickle.pgt_tasks WHERE id > $1 ORDER BY id LIMIT $2",
        &[Arg::Int(id), Arg::Int(limit)],
    )
}

/// Numbers of the tasks of one stream table, oldest first.
pub fn of_stream_table(relid: Oid) -> Result<Vec<i64>> {
    let sql = "SELECT id FROM pgtrickle.pgt_tasks WHERE relid = $1 AND kind NOT IN ('forget', 'check', 'capture') ORDER BY id";
    ids(sql, &[Arg::Oid(relid)])
}

fn ids(sql: &str, args: &[Arg]) -> Result<Vec<i64>> {
    spi::run(sql, args, Mode::Fresh)?.into_iter().map(|mut row| row.parse(0)).collect()
}

/// The task, for whoever gets it first, until the end of the transaction; none if it is done, or, unless that is waited for,
/// somebody else is at it.
pub fn take(id: i64, wait: bool) -> Result<Option<Task>> {
    if wait {
        lock_ours(Ours::Task(id), true)?;
    } else if !try_lock_ours(Ours::Task(id))? {
        return Ok(None);
    }
    let rows = spi::run(
        "SELECT kind, relid, reason, detail FROM pgtrickle.pgt_tasks WHERE id = $1",
        &[Arg::Int(id)],
        Mode::Fresh,
    )?;
    let Some(mut row) = rows.first() else { return Ok(None) };
    let word = row.text(0)?;
    let Some((kind, _)) = KINDS.iter().find(|(_, w)| *w == word) else {
        return Err(Error::Internal(format!("unexpected kind {word:?} in pgt_tasks")));
    };
    Ok(Some(Task { kind: *kind, relid: row.parse(1)?, reason: row.opt(2), detail: row.opt(3) }))
}

/// It is done.
pub fn done(id: i64) -> Result<()> {
    catalog::delete(&TASKS, "t.id = $1", &[Arg::Int(id)], Mode::Fresh).map(|_| ())
}

/// It failed, and not for a lock; it is tried again.
pub fn failed(id: i64, message: &str) -> Result<()> {
    catalog::update(
        &TASKS,
        &[("failure", "$2")],
        "t.id = $1 AND t.failure IS DISTINCT FROM $2",
        &[Arg::Int(id), Arg::Text(message)],
        Mode::Fresh,
    )
}

/// What was to be done for this stream table is not to be done any more: its query is another one, or it is gone.
pub fn forget(relid: Oid) -> Result<()> {
    let its = "t.relid = $1 AND t.kind NOT IN ('forget', 'check', 'capture')";
    catalog::delete(&TASKS, its, &[Arg::Oid(relid)], Mode::Fresh).map(|_| ())
}

/// Leaves a notification.
pub fn add_alert(payload: &str) -> Result<()> {
    catalog::insert(&ALERTS, &[("payload", "$1")], &[Arg::Text(payload)], Mode::Fresh)?;
    commit::want();
    Ok(())
}

/// Sends what is to be notified, when this transaction commits, unless somebody else is about to. How many that are.
pub fn send_alerts() -> Result<usize> {
    let waiting = "SELECT id, payload FROM pgtrickle.pgt_alerts ORDER BY id LIMIT 1000";
    if spi::run(waiting, &[], Mode::Fresh)?.first().is_none() || !try_lock_ours(Ours::Alerts)? {
        return Ok(0);
    }
    let mut sent = Vec::new();
    for mut row in spi::run(waiting, &[], Mode::Fresh)? {
        sent.push(row.parse::<i64>(0)?);
        let payload = row.text(1)?;
        let notify = "SELECT pg_catalog.pg_notify('pg_trickle_alert', $1)";
        spi::run(notify, &[Arg::Text(&payload)], Mode::Fresh)?;
    }
    catalog::delete(&ALERTS, "t.id = ANY ($1)", &[Arg::BigInts(&sent)], Mode::Fresh)?;
    Ok(sent.len())
}
