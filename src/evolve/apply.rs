//! Carrying out verdicts on the users of one source.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use crate::catalog::snapshots::Circumstance;
use crate::catalog::stream_tables::{self, StreamTable};
use crate::catalog::tasks::{Task, TaskKind};
use crate::catalog::{dependencies, sources};
use crate::cdc;
use crate::drift::account::{Moment, Why};
use crate::drift::{Usage, diff_retyped, judge, mark_created};
use crate::error::{Error, Result};
use crate::evolve::suspend;
use crate::evolve::tasks::{self, now_or_later};
use crate::lifecycle::bind::require_privileges;
use crate::model::{Oid, Reason, Status, Verdict};
use crate::pg::guc::{SchemaSnapshots, schema_snapshots};
use crate::pg::objects::Change;
use crate::pg::query::{Analysis, analyse, parse, print_tree};
use crate::pg::secctx::{Restriction, as_user};
use crate::pg::snapshot::Side;
use crate::pg::{cache, subxact};
use crate::snapshot::shape::TableShape;
use crate::snapshot::{capture, shape_now};

/// What is known of the command beyond the two shapes.
pub struct Known<'a> {
    /// Columns named in ALTER COLUMN TYPE.
    pub retyped: &'a BTreeSet<String>,
    /// Relations that the command created.
    pub created: &'a BTreeSet<Oid>,
}

/// Class oid of relations.
pub fn relation_class() -> Oid {
    pgrx::pg_sys::RelationRelationId.to_u32()
}

/// Judges every user of a source that looks different now, and acts.
pub fn source_changed(before: &TableShape, after: &TableShape, known: Option<&Known>) -> Result<()> {
    judge_users(before, after, known, None)
}

/// A change of a source that no event told of is judged before its shape is recorded anew, for all users but the one
/// that is being bound to the source as it is.
pub fn judge_missed(source: Oid, bound: Oid) -> Result<()> {
    if let (Some(recorded), Some(now)) = (sources::shape(source)?, shape_now(source)?)
        && recorded.fingerprint()? != now.fingerprint()?
    {
        judge_users(&recorded, &now, None, Some(bound))?;
    }
    Ok(())
}

fn judge_users(
    before: &TableShape,
    after: &TableShape,
    known: Option<&Known>,
    except: Option<Oid>,
) -> Result<()> {
    let none = BTreeSet::new();
    let mut changes = match known {
        Some(known) => diff_retyped(before, after, known.retyped),
        None => crate::drift::diff(before, after),
    };
    mark_created(&mut changes, known.map_or(&none, |k| k.created));
    if changes.is_empty() {
        return Ok(());
    }
    for table in stream_tables::users_of(relation_class(), after.oid)? {
        let used = dependencies::source_columns(table.relid)?;
        let Some(columns) = used.get(&after.oid).filter(|_| Some(table.relid) != except) else { continue };
        let usage = Usage {
            source: after.display_name(),
            columns: columns.iter().copied().filter(|c| *c > 0).collect(),
            whole_row: columns.contains(&0),
            only: !dependencies::reads_children(table.relid, after.oid)?,
            relies_on_primary_key: false,
            capture: table.differential,
            unwitnessed: known.is_none(),
        };
        match judge(&changes, &usage) {
            Verdict::Nothing => {}
            Verdict::InPlace => reprint_soon(&table),
            Verdict::Reinitialize { detail } => reinitialize_soon(&table, &detail),
            Verdict::Suspend { reason, detail } => suspend::suspend_soon(&table, reason, &detail),
        }
    }
    Ok(())
}

fn task_of(table: &StreamTable, kind: TaskKind, detail: Option<&str>) -> Task {
    Task { kind, relid: table.relid, reason: None, detail: detail.map(str::to_string) }
}

/// `reprint` inside somebody's command: now if that needs no waiting, or later.
pub fn reprint_soon(table: &StreamTable) {
    now_or_later(&task_of(table, TaskKind::Reprint, None), || match stream_tables::find(table.relid)? {
        // As it is now: the command may have marked it already.
        Some(now) => reprint(&now),
        None => Ok(()),
    });
}

/// A function or the like that a query uses, itself or through a view, has another name: the text may not show it, but plans
/// have it, and they are made again for a new version.
pub fn replan_soon(table: &StreamTable) {
    now_or_later(&task_of(table, TaskKind::Reprint, None), || replan(table.relid));
}

/// `replan_soon`, now.
pub fn replan(relid: Oid) -> Result<()> {
    let table = stream_tables::claim_present(relid)?;
    cache::definitions_changed()?;
    reprint(&table)
}

/// The stream table itself has another name, schema or owner: followed now if that needs no waiting, or later.
pub fn rename_soon(table: &StreamTable) {
    now_or_later(&task_of(table, TaskKind::Reprint, None), || {
        let mut table = table.clone();
        if stream_tables::set_text(&table, &table.query)? {
            table.version += 1;
            cache::definitions_changed()?;
        }
        suspend::refresh_hint(&table)
    });
}

/// `reinitialize` inside somebody's command: now if that needs no waiting, or before the next refresh.
pub fn reinitialize_soon(table: &StreamTable, why: &str) {
    now_or_later(&task_of(table, TaskKind::Reinitialize, Some(why)), || reinitialize(table, why));
}

/// A function, operator, type or collation that the query depends on is not what it was: with another function in it the
/// query still says what is meant, what its values mean under another type nobody knows.
pub fn object_changed(table: &StreamTable, change: Change, name: &str, how: &str) {
    if change == Change::Shape {
        let detail = format!("{name}, which its query uses, was {how}.");
        return suspend::suspend_soon(table, Reason::Unclassified, &detail);
    }
    match subxact::look(|| analyse_as_owner(table)) {
        Ok(analysis) => {
            let why = format!("{name} was changed");
            now_or_later(&task_of(table, TaskKind::Reinitialize, Some(&why)), || {
                reinitialize(table, &why)?;
                if table.status == Status::Suspended {
                    return Ok(());
                }
                dependencies::replace_objects(table.relid, &analysis.uses)
            });
        }
        // What can't be looked at now without waiting is looked at before the next refresh.
        Err(caught) if tasks::is_contention(&caught) => rebind_later(table, &format!("{name} was changed")),
        Err(caught) => suspend::suspend_soon(table, Reason::ObjectChanged, &format!("{}.", caught.message)),
    }
}

/// A view that the query goes through says something else.
pub fn view_replaced(table: &StreamTable) {
    match subxact::look(|| analyse_as_owner(table)) {
        Ok(_) => rebind_later(table, "a view that its query uses was replaced"),
        Err(caught) if tasks::is_contention(&caught) => {
            rebind_later(table, "a view that its query uses was replaced");
        }
        Err(caught) => suspend::suspend_soon(table, Reason::ObjectChanged, &format!("{}.", caught.message)),
    }
}

/// Everything that is derived from the query is to be made anew, before the next refresh: that locks sources.
pub fn rebind_later(table: &StreamTable, why: &str) {
    reinitialize_soon(table, why);
    tasks::later(&task_of(table, TaskKind::Rebind, Some(why)));
}

/// What the query of a suspended stream table needs may be there again: it is resolved before this command commits, or by
/// the worker.
pub fn resume_later(table: &StreamTable) {
    tasks::later(&task_of(table, TaskKind::Resume, None));
}

/// Prints the query anew: a name in it changed, nothing else. Where something that it uses is gone, the old text stays:
/// that is what is resolved again when it returns.
pub fn reprint(table: &StreamTable) -> Result<()> {
    let printed = subxact::look(|| {
        let text = print_tree(&table.tree)?;
        as_user(table.owner, Restriction::UserCode, || parse(&text))?;
        Ok(text)
    });
    let query = match printed {
        Ok(query) => query,
        // It can't be told now; the old text need not be what still holds.
        Err(caught) if tasks::is_contention(&caught) => {
            return Err(Error::LockNotAvailable { what: table.display() });
        }
        Err(_) => table.query.clone(),
    };
    let mut table = table.clone();
    if stream_tables::set_text(&table, &query)? {
        table.version += 1;
        cache::definitions_changed()?;
    }
    table.query = query;
    suspend::refresh_hint(&table)
}

/// The picture of the stored query with its owner's rights.
pub fn analyse_as_owner(table: &StreamTable) -> Result<Analysis> {
    let analysis = as_user(table.owner, Restriction::UserCode, || analyse(&table.tree))?;
    require_privileges(table.mode, &analysis, table.owner)?;
    Ok(analysis)
}

/// Marks for computing anew.
pub fn reinitialize(table: &StreamTable, why: &str) -> Result<()> {
    if table.status == Status::Suspended {
        return Ok(());
    }
    stream_tables::set_reinitialize(table.relid, why)?;
    cache::definitions_changed()
}

/// Creates what capture of a source lacks, and records the shape with it.
pub fn sync_capture(source: Oid) -> Result<()> {
    let complete = cdc::sync(source)?;
    if !complete || !dependencies::is_source(source)? {
        // Without a record of it, the next refresh that may capture it makes what is missing and starts from the table.
        return sources::delete(source);
    }
    if let Some(shape) = shape_now(source)? {
        let recorded = sources::fingerprint(source)?;
        if recorded.as_deref() != Some(shape.fingerprint()?.as_str()) {
            sources::record(source, &shape)?;
        }
    }
    Ok(())
}

/// Remembers a source's shape as what its users were judged by, and records it as evidence where that is wanted.
pub fn record(shape: &TableShape, why: Why, moment: Moment, by: &Circumstance) -> Result<()> {
    sources::record(shape.oid, shape)?;
    if schema_snapshots() != SchemaSnapshots::off {
        capture::record(shape, Side::After, why, moment, by);
    }
    Ok(())
}

/// Who found a change that no event told of. Who made it is not known.
pub fn unknown_author() -> Circumstance {
    Circumstance { statement: None, ..capture::circumstance(None, false) }
}

/// A source is gone.
pub fn source_dropped(source: Oid, name: &str) -> Result<()> {
    for table in stream_tables::users_of(relation_class(), source)? {
        let detail = format!("{name} was dropped.");
        suspend::suspend_soon(&table, Reason::SourceDropped, &detail);
    }
    Ok(())
}
