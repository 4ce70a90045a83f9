//! Suspension, loud, and its end.
#![forbid(unsafe_code)]

use crate::catalog::dependencies;
use crate::catalog::history::{self, Event};
use crate::catalog::stream_tables::{self, StreamTable};
use crate::catalog::tasks::{self, Task, TaskKind};
use crate::error::{Error, Result};
use crate::evolve::apply::relation_class;
use crate::evolve::tasks::{is_contention, now_or_later};
use crate::model::{Oid, Reason, Status};
use crate::monitor::alert;
use crate::pg::query::{parse, print_tree, without_changed_columns};
use crate::pg::secctx::{Restriction, as_user};
use crate::pg::snapshot::Side;
use crate::pg::{cache, report, subxact};
use crate::snapshot::read_shapes;
use crate::sqltext;

/// Suspends `table` and everything above it. Idempotent: what is suspended keeps its first reason, except that a
/// suspension from below gives way to one of its own.
pub fn suspend(table: &StreamTable, reason: Reason, detail: &str) -> Result<()> {
    if try_suspend(table, reason, detail)? {
        return Ok(());
    }
    // Somebody has changed it meanwhile: as it is now, and so that nobody can change it again.
    try_suspend(&stream_tables::claim_present(table.relid)?, reason, detail).map(|_| ())
}

/// False: the row is not any more what was read, and nothing has been done.
fn try_suspend(table: &StreamTable, reason: Reason, detail: &str) -> Result<bool> {
    let own_reason = table.reason.as_deref() != Some(Reason::UpstreamSuspended.word());
    if table.status == Status::Suspended && (own_reason || reason == Reason::UpstreamSuspended) {
        return refresh_hint(table).map(|()| true);
    }
    let hint = hint(table, reason)?;
    let word = reason.word();
    let by_hand = reason == Reason::Manual;
    let shown = if by_hand { detail.to_string() } else { format!("SCHEMA_INCOMPATIBLE: {detail}") };
    if !stream_tables::set_suspended(table, word, &shown, &hint)? {
        return Ok(false);
    }
    let reason_in_history = if by_hand { word } else { "SCHEMA_INCOMPATIBLE" };
    let told = format!("{word}: {detail}");
    history::event(
        table,
        &Event { status: "suspended", reason: reason_in_history, detail: &told, hint: &hint },
    )?;
    alert::send(&alert::Alert {
        event: "suspended",
        stream_table: &table.display(),
        reason: word,
        detail,
        hint: &hint,
    })?;
    cache::definitions_changed()?;
    if !by_hand {
        report::warning(
            &format!("stream table {} is suspended", table.display()),
            &format!("reason={word}: SCHEMA_INCOMPATIBLE: {detail}"),
            &hint,
        );
    }
    dependencies::mark_suspended(table.relid)?;
    if reason.is_curable() {
        dependencies::await_names(table.relid, &table.query)?;
    }
    release_buffers(table.relid)?;
    for above in stream_tables::users_of(relation_class(), table.relid)? {
        let detail = format!("stream table {} below it is suspended.", table.display());
        suspend(&above, Reason::UpstreamSuspended, &detail)?;
    }
    Ok(true)
}

/// Buffers that nobody reads any more are left to be dropped: writers of other sources have nothing to do with this command.
fn release_buffers(relid: Oid) -> Result<()> {
    for source in dependencies::source_columns(relid)?.into_keys() {
        release(source)?;
    }
    Ok(())
}

/// Leaves capture of a source to be taken away as far as nobody needs it.
pub fn release(source: Oid) -> Result<()> {
    if dependencies::captured_columns(source)?.is_none() {
        tasks::add(&Task { kind: TaskKind::Capture, relid: source, reason: None, detail: None })?;
    }
    Ok(())
}

/// `suspend` inside somebody's command: now if that needs no waiting, or before the next refresh.
pub fn suspend_soon(table: &StreamTable, reason: Reason, detail: &str) {
    let task = Task {
        kind: TaskKind::Suspend,
        relid: table.relid,
        reason: Some(reason.word().into()),
        detail: Some(detail.into()),
    };
    now_or_later(&task, || suspend(table, reason, detail));
}

/// The next call to type. A query in it was analysed with the owner's rights just now, so it runs.
fn hint(table: &StreamTable, reason: Reason) -> Result<String> {
    let name = sqltext::regclass_literal(&table.display());
    let resume = format!("SELECT pgtrickle.resume_stream_table({name});");
    Ok(match reason {
        Reason::Manual | Reason::RefreshFailing => format!("Resume it with {resume}"),
        Reason::UpstreamSuspended => "It resumes by itself when the one below does.".into(),
        Reason::SourceDropped | Reason::SourceRecreated => format!(
            "Recreate the table with the columns that the query uses and call {resume} or drop it with SELECT pgtrickle.drop_stream_table({name});"
        ),
        _ => match runnable_query(table)? {
            Some((query, note)) => format!(
                "SELECT pgtrickle.alter_stream_table_query({name}, {});{note}",
                sqltext::dollar_quoted(&query)
            ),
            None => format!(
                "Call SELECT pgtrickle.alter_stream_table_query({name}, 'a query that fits the changed sources'); or undo the change and call {resume}"
            ),
        },
    })
}

/// The stored query if it still runs, else the one without the columns that are gone, if that does; with a remark.
fn runnable_query(table: &StreamTable) -> Result<Option<(String, &'static str)>> {
    let runs =
        |query: &str| subxact::look(|| as_user(table.owner, Restriction::UserCode, || parse(query))).is_ok();
    // Printing a column that is gone gives a text that can't run, or worse, one that can.
    if !misses_columns(table.relid)? {
        let printed = subxact::look(|| print_tree(&table.tree)).unwrap_or_else(|_| table.query.clone());
        if runs(&printed) {
            return Ok(Some((printed, "")));
        }
    }
    let without = subxact::look(|| without_changed_columns(&table.tree)).ok();
    Ok(without
        .filter(|query| runs(query))
        .map(|query| (query, " -- The query without what is gone: check that it still says what you mean.")))
}

/// Has a source lost a column that is used?
fn misses_columns(relid: Oid) -> Result<bool> {
    let used = dependencies::source_columns(relid)?;
    let shapes = read_shapes(&used.keys().copied().collect::<Vec<_>>(), Side::After)?;
    Ok(used.iter().any(|(source, columns)| {
        shapes.get(source).is_some_and(|shape| columns.iter().any(|c| *c > 0 && shape.column(*c).is_none()))
    }))
}

/// Names in the hint of a suspended stream table follow renames.
pub fn refresh_hint(table: &StreamTable) -> Result<()> {
    let reason = table.reason.as_deref().and_then(Reason::from_word);
    match reason.filter(|_| table.status == Status::Suspended) {
        Some(reason) => stream_tables::set_hint(table, &hint(table, reason)?),
        None => Ok(()),
    }
}

/// `suspend_stream_table()`.
pub fn suspend_by_hand(table: &StreamTable) -> Result<()> {
    suspend(table, Reason::Manual, "suspended by hand.")
}

/// A stream table below is dropped.
pub fn suspend_for_drop(table: &StreamTable, below: Oid) -> Result<()> {
    let name = stream_tables::find(below)?.map_or_else(|| format!("relation {below}"), |t| t.display());
    suspend(table, Reason::SourceDropped, &format!("stream table {name} was dropped."))
}

/// The scheduler's last resort.
pub fn suspend_failing(table: &StreamTable, detail: &str) -> Result<()> {
    suspend(table, Reason::RefreshFailing, detail)
}

/// `resume_stream_table()`: ends the suspension if the query still fits; contents are computed anew at the next refresh.
pub fn resume(table: &StreamTable) -> Result<()> {
    if table.status != Status::Suspended {
        return Ok(());
    }
    if table.reason.as_deref() == Some(Reason::UpstreamSuspended.word()) && !below_active(table.relid)? {
        return Err(crate::refresh::suspended(table));
    }
    resolve_and_resume(table)
}

/// Resolves the query again, and ends the suspension here and above. Nothing is kept of an attempt that fails: the
/// caller's (sub)transaction ends with it.
pub fn resolve_and_resume(table: &StreamTable) -> Result<()> {
    // First, since capture is made for stream tables that are not suspended.
    stream_tables::set_resumed(table)?;
    super::cure::rebind(table)?;
    let detail = "contents are computed anew at the next refresh.";
    history::event(
        table,
        &Event { status: "resumed", reason: table.reason.as_deref().unwrap_or("RESUMED"), detail, hint: "" },
    )?;
    alert::send(&alert::Alert {
        event: "resumed",
        stream_table: &table.display(),
        reason: table.reason.as_deref().unwrap_or("RESUMED"),
        detail,
        hint: "",
    })?;
    cache::definitions_changed()?;
    resume_above(table.relid)
}

/// Resumes stream tables that were suspended only because of one below, now that all below are active.
pub fn resume_above(relid: Oid) -> Result<()> {
    for above in stream_tables::users_of(relation_class(), relid)? {
        let waiting = above.reason.as_deref() == Some(Reason::UpstreamSuspended.word());
        if above.status == Status::Suspended && waiting && below_active(above.relid)? {
            match subxact::run(|| resolve_and_resume(&above)) {
                Ok(()) => {}
                // Somebody is at it: it is looked at again when he is done.
                Err(caught) if is_contention(&caught) => super::apply::resume_later(&above),
                Err(caught) => {
                    report::degraded(&format!("stream table {} stays suspended", above.display()), &caught);
                }
            }
        }
    }
    Ok(())
}

fn below_active(relid: Oid) -> Result<bool> {
    for source in dependencies::source_columns(relid)?.into_keys() {
        if stream_tables::find(source)?.is_some_and(|t| t.status == Status::Suspended) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The stream table, or the error that it is none.
pub fn require(relid: Oid, name: &str) -> Result<StreamTable> {
    stream_tables::find(relid)?.ok_or_else(|| Error::NotAStreamTable { name: name.to_string() })
}
