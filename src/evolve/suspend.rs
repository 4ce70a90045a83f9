//! Suspension, loud, and its end.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use crate::catalog::dependencies;
use crate::catalog::history::{self, Event};
use crate::catalog::stream_tables::{self, StreamTable};
use crate::cdc;
use crate::error::{Error, Result};
use crate::evolve::apply::relation_class;
use crate::model::{Oid, Reason, Status};
use crate::monitor::alert;
use crate::pg::query::{parse, without_columns};
use crate::pg::secctx::{Restriction, as_user};
use crate::pg::{cache, report, subxact};
use crate::sqltext;

/// Columns that a query can't use any more.
pub struct Gone {
    pub relation: Oid,
    pub columns: BTreeSet<i16>,
}

/// Suspends `table` and everything above it. Idempotent: what is suspended keeps its first reason, except that a
/// suspension from below gives way to one of its own.
pub fn suspend(table: &StreamTable, reason: Reason, detail: &str, gone: Option<&Gone>) -> Result<()> {
    let own_reason = table.reason.as_deref() != Some(Reason::UpstreamSuspended.word());
    if table.status == Status::Suspended && (own_reason || reason == Reason::UpstreamSuspended) {
        return Ok(());
    }
    let hint = hint(table, reason, gone)?;
    let word = reason.word();
    let by_hand = reason == Reason::Manual;
    let shown = if by_hand { detail.to_string() } else { format!("SCHEMA_INCOMPATIBLE: {detail}") };
    stream_tables::set_suspended(table.relid, word, &shown, &hint)?;
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
    release_buffers(table.relid)?;
    for above in stream_tables::users_of(relation_class(), table.relid)? {
        let detail = format!("stream table {} below it is suspended.", table.display());
        suspend(&above, Reason::UpstreamSuspended, &detail, None)?;
    }
    Ok(())
}

fn release_buffers(relid: Oid) -> Result<()> {
    for source in dependencies::source_columns(relid)?.into_keys() {
        cdc::drop_unused_buffer(source)?;
    }
    Ok(())
}

/// The next call to type. A query in it was analysed with the owner's rights just now, so it runs.
fn hint(table: &StreamTable, reason: Reason, gone: Option<&Gone>) -> Result<String> {
    let name = sqltext::literal(&table.display());
    let resume = format!("SELECT pgtrickle.resume_stream_table({name});");
    Ok(match reason {
        Reason::Manual | Reason::RefreshFailing => format!("Resume it with {resume}"),
        Reason::UpstreamSuspended => "It resumes by itself when the one below does.".into(),
        Reason::SourceDropped | Reason::SourceRecreated => format!(
            "Recreate the table with the columns that the query uses and call {resume} or drop it with SELECT pgtrickle.drop_stream_table({name});"
        ),
        _ => match runnable_query(table, gone)? {
            Some(query) => format!(
                "SELECT pgtrickle.alter_stream_table_query({name}, {});",
                sqltext::dollar_quoted(&query)
            ),
            None => format!(
                "Call SELECT pgtrickle.alter_stream_table_query({name}, 'a query that fits the changed sources'); or undo the change and call {resume}"
            ),
        },
    })
}

/// The stored query if it still runs, else the one without what is gone, if that does.
fn runnable_query(table: &StreamTable, gone: Option<&Gone>) -> Result<Option<String>> {
    let mut candidates = vec![table.query.clone()];
    if let Some(gone) = gone.filter(|g| !g.columns.is_empty())
        && let Ok(text) = subxact::run(|| without_columns(&table.tree, gone.relation, &gone.columns))
    {
        candidates.insert(0, text);
    }
    Ok(candidates
        .into_iter()
        .find(|query| subxact::run(|| as_user(table.owner, Restriction::UserCode, || parse(query))).is_ok()))
}

/// `suspend_stream_table()`.
pub fn suspend_by_hand(table: &StreamTable) -> Result<()> {
    suspend(table, Reason::Manual, "suspended by hand.", None)
}

/// A stream table below is dropped.
pub fn suspend_for_drop(table: &StreamTable, below: Oid) -> Result<()> {
    let name = stream_tables::find(below)?.map_or_else(|| format!("relation {below}"), |t| t.display());
    suspend(table, Reason::SourceDropped, &format!("stream table {name} was dropped."), None)
}

/// The scheduler's last resort.
pub fn suspend_failing(table: &StreamTable, detail: &str) -> Result<()> {
    suspend(table, Reason::RefreshFailing, detail, None)
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
    stream_tables::set_resumed(table.relid)?;
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
            let outcome = subxact::run(|| resolve_and_resume(&above));
            if let Err(caught) = outcome {
                report::degraded(&format!("stream table {} stays suspended", above.display()), &caught);
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
