//! Tasks: what a command could not do without waiting for somebody, and doing it later. By the worker, one short transaction
//! each; before anything is done with the stream table that it is about; and by whoever calls next, before his commit.
#![forbid(unsafe_code)]

use std::cell::Cell;

use crate::catalog::stream_tables::{self, StreamTable};
use crate::catalog::tasks::{self, Task, TaskKind};
use crate::catalog::{dependencies, sources};
use crate::cdc;
use crate::error::{Error, Result};
use crate::evolve::{apply, cure, suspend};
use crate::lifecycle;
use crate::model::{Oid, Reason, Status};
use crate::pg::lock::{self, LockMode, Ours, try_lock_ours, without_waiting};
use crate::pg::secctx::as_extension;
use crate::pg::snapshot::with_transaction_snapshot;
use crate::pg::subxact::{self, Caught};
use crate::pg::{cache, commit, report, worker};
use crate::refresh;
use crate::snapshot::shape_now;

/// Most tasks that are tried in one go.
const BATCH: i64 = 100;

/// Does something now, in a subtransaction and without waiting, or leaves it as a task. An error that is no lock is told.
pub fn now_or_later(task: &Task, f: impl FnOnce() -> Result<()>) {
    let done = subxact::run(|| without_waiting(|| cache::maintenance(f)));
    let Err(caught) = done else { return };
    if !is_contention(&caught) {
        report::degraded(&format!("pgtrickle: {}", what(task)), &caught);
    }
    later(task);
    if task.kind == TaskKind::Suspend {
        tell_suspension(task);
    }
}

/// Leaves a task. If even that can't be had, the session is told; what the sources look like is compared before each refresh.
pub fn later(task: &Task) {
    if let Err(caught) = subxact::run(|| without_waiting(|| cache::maintenance(|| tasks::add(task)))) {
        report::degraded(&format!("pgtrickle: {}", what(task)), &caught);
    }
}

/// In one clause, for messages.
fn what(task: &Task) -> &'static str {
    match task.kind {
        TaskKind::Suspend => "a stream table was not suspended",
        TaskKind::Reinitialize | TaskKind::Rebind => "a stream table was not marked for computing anew",
        TaskKind::Reprint => "a name was not followed",
        TaskKind::Resume => "a suspended stream table was not resumed",
        TaskKind::Forget => "a dropped stream table was not forgotten",
        TaskKind::Check => "a changed source was not followed",
        TaskKind::Capture => "capture that nobody needs was not removed",
    }
}

fn tell_suspension(task: &Task) {
    let known = subxact::run(|| without_waiting(|| stream_tables::find(task.relid)));
    let Ok(Some(table)) = known else { return };
    report::warning(
        &format!("stream table {} will be suspended before its next refresh", table.display()),
        &format!(
            "reason={}: SCHEMA_INCOMPATIBLE: {}",
            task.reason.as_deref().unwrap_or(Reason::Unclassified.word()),
            task.detail.as_deref().unwrap_or("its sources changed.")
        ),
        "Somebody is at it just now. SELECT * FROM pgtrickle.health_check() shows what is left to do.",
    );
}

/// A lock or row that somebody holds, or has changed since this transaction's snapshot was taken.
pub fn is_contention(caught: &Caught) -> bool {
    ["55P03", "40001", "40P01"].contains(&caught.sqlstate().as_str())
}

/// Carries out what is due, and sends alerts: for a worker, outside of any transaction. True: something is left.
pub fn run_due() -> bool {
    thread_local! {
        /// Where the last round ended: a task that can't be done must not keep the others from their turn.
        static LAST: Cell<i64> = const { Cell::new(0) };
    }
    let found = worker::transaction("looking for tasks", || {
        as_extension(|| {
            let mut due = tasks::after(LAST.get(), BATCH)?;
            if due.is_empty() && LAST.get() > 0 {
                due = tasks::after(0, BATCH)?;
            }
            tasks::send_alerts()?;
            Ok(due)
        })
    });
    let due = match found {
        Ok(due) => due,
        Err(message) => {
            report::log(&format!("pgtrickle worker: {message}"));
            return true;
        }
    };
    LAST.set(due.last().copied().unwrap_or(0));
    let mut left = false;
    for id in due {
        let outcome = worker::transaction("carrying out a task", || as_extension(|| Ok(attempt(id))));
        left |= outcome.unwrap_or(false);
    }
    left
}

/// What is wanted before a transaction commits, where no worker is there to do it. Waits for nothing, and survives its errors.
pub fn before_commit() {
    if crate::pg::preloaded() {
        return;
    }
    let done = subxact::run(|| {
        with_transaction_snapshot(|| {
            as_extension(|| {
                let mut last = 0;
                // What is carried out can leave more to do.
                for _ in 0..3 {
                    let due = tasks::after(last, BATCH)?;
                    let Some(newest) = due.last() else { break };
                    last = *newest;
                    for id in due {
                        attempt_unless(id, |task| task.kind == TaskKind::Rebind);
                    }
                }
                Ok(())
            })
        })
    });
    let sent =
        subxact::run(|| with_transaction_snapshot(|| as_extension(|| without_waiting(tasks::send_alerts))));
    let kept = subxact::run(|| {
        with_transaction_snapshot(|| {
            as_extension(|| {
                refresh::upkeep::before_commit();
                Ok(())
            })
        })
    });
    if let Err(caught) = done.and(kept).and(sent.map(|_| ())) {
        report::degraded("pgtrickle: what was left to do was not done", &caught);
    }
}

/// One task if it can be done at once. True: it is left.
fn attempt(id: i64) -> bool {
    attempt_unless(id, |_| false)
}

fn attempt_unless(id: i64, skip: impl FnOnce(&Task) -> bool) -> bool {
    let outcome = subxact::run(|| {
        without_waiting(|| {
            cache::maintenance(|| {
                let Some(task) = tasks::take(id, false)? else { return Ok(false) };
                if skip(&task) {
                    return Ok(true);
                }
                if task.kind.is_of_stream_table() && !try_lock_ours(Ours::StreamTable(task.relid))? {
                    return Ok(true);
                }
                run(&task)?;
                tasks::done(id)?;
                Ok(false)
            })
        })
    });
    match outcome {
        Ok(left) => left,
        Err(caught) if is_contention(&caught) => true,
        Err(caught) => {
            let noted = subxact::run(|| without_waiting(|| tasks::failed(id, &caught.message)));
            if noted.is_err() {
                report::log(&format!("pgtrickle: task {id} failed: {}", caught.message));
            }
            true
        }
    }
}

/// Carries out what is left for one stream table, before anything else is done with it: by its own refresh or another call,
/// which holds our lock on it. What is left for others is tried before the commit.
pub fn run_for(relid: Oid) -> Result<()> {
    let due = tasks::of_stream_table(relid)?;
    if !due.is_empty() {
        // Each reads the row as the one before has left it: nobody else is to change it in between.
        stream_tables::claim_present(relid)?;
    }
    for id in due {
        // One before it may have made it void.
        let Some(task) = tasks::take(id, true)? else { continue };
        run(&task)?;
        tasks::done(id)?;
    }
    commit::want();
    Ok(())
}

fn run(task: &Task) -> Result<()> {
    match task.kind {
        TaskKind::Check => return check(task.relid),
        TaskKind::Capture => return release_capture(task.relid),
        TaskKind::Forget => return lifecycle::forget(task.relid),
        _ => {}
    }
    let Some(table) = stream_tables::find(task.relid)? else { return Ok(()) };
    let detail = task.detail.as_deref().unwrap_or("its sources changed.");
    match task.kind {
        TaskKind::Suspend => {
            let reason = task.reason.as_deref().and_then(Reason::from_word).unwrap_or(Reason::Unclassified);
            suspend::suspend(&table, reason, detail)
        }
        TaskKind::Reinitialize => apply::reinitialize(&table, detail),
        TaskKind::Reprint => apply::replan(table.relid),
        TaskKind::Rebind => rebind(&table, detail),
        TaskKind::Resume => resume(&table),
        TaskKind::Forget | TaskKind::Check | TaskKind::Capture => Ok(()),
    }
}

/// A view that its query goes through is another one.
fn rebind(table: &StreamTable, why: &str) -> Result<()> {
    if table.status == Status::Suspended {
        return Ok(());
    }
    let outcome = subxact::run(|| cure::derive(&stream_tables::claim_present(table.relid)?));
    match outcome {
        Ok(()) => Ok(()),
        Err(caught) if is_contention(&caught) => Err(Error::LockNotAvailable { what: table.display() }),
        Err(caught) => suspend::suspend(table, Reason::ObjectChanged, &format!("{why}: {}.", caught.message)),
    }
}

fn resume(table: &StreamTable) -> Result<()> {
    if table.status != Status::Suspended {
        return Ok(());
    }
    match subxact::run(|| suspend::resolve_and_resume(table)) {
        Ok(()) => {
            report::notice(
                &format!("stream table {} is active again", table.display()),
                "reason=CURED: what its query needs is there again; contents are computed anew at the next refresh.",
                "",
            );
            Ok(())
        }
        Err(caught) if is_contention(&caught) => Err(Error::LockNotAvailable { what: table.display() }),
        Err(caught) => {
            report::debug(&format!("stream table {} stays suspended: {}", table.display(), caught.message));
            Ok(())
        }
    }
}

/// A source of which a change was not followed.
fn check(source: Oid) -> Result<()> {
    let (Some(recorded), Some(now)) = (sources::shape(source)?, shape_now(source)?) else { return Ok(()) };
    if recorded.fingerprint()? != now.fingerprint()? {
        apply::source_changed(&recorded, &now, None)?;
        sources::record(source, &now)?;
        apply::sync_capture(source)?;
    }
    Ok(())
}

/// A source that fewer stream tables read than before: a buffer that nobody reads goes, and if none is left at all the
/// triggers as well.
fn release_capture(source: Oid) -> Result<()> {
    if dependencies::captured_columns(source)?.is_some() {
        return Ok(());
    }
    if dependencies::is_source(source)? {
        return cdc::drop_unused_buffer(source);
    }
    // All that DROP TRIGGER locks, so that nobody queues behind it.
    lock::lock_tree(source, LockMode::AccessExclusive)?;
    apply::sync_capture(source)
}
