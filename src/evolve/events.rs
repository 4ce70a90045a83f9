//! DDL as it happens: which watched objects changed, and what follows. Never an error to the user, except for DDL on
//! what is pgtrickle's own.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};

use crate::catalog::snapshots::Circumstance;
use crate::catalog::tasks::{Task, TaskKind};
use crate::catalog::{sources, stream_tables};
use crate::drift::account::{Moment, Why};
use crate::error::{Error, Result};
use crate::evolve::apply::{self, Known};
use crate::evolve::cure;
use crate::evolve::tasks::now_or_later;
use crate::evolve::touched::{self, Concern};
use crate::model::Oid;
use crate::pg::cache;
use crate::pg::event::Command;
use crate::pg::guc::{SchemaSnapshots, schema_snapshots};
use crate::pg::lock::without_waiting;
use crate::pg::objects::{self, Change, Object};
use crate::pg::secctx::as_extension;
use crate::pg::snapshot::{Side, statement_start, with_one_present, with_side};
use crate::pg::spi::{self, Mode};
use crate::pg::{binary_upgrade, report, subxact};
use crate::snapshot::capture;
use crate::snapshot::shape::TableShape;
use crate::snapshot::{read_shapes, shape_now};
use crate::sqltext;

/// After any DDL command.
pub fn on_ddl_end(command: &Command) -> Result<()> {
    if cache::in_maintenance() || binary_upgrade() {
        return Ok(());
    }
    let start = statement_start();
    let concern = match touched::by_command(command, start) {
        Ok(concern) if concern.is_empty() => return Ok(()),
        Ok(concern) => concern,
        Err(error) => {
            report::degraded("pgtrickle: a schema change was not followed", &error.into());
            return Ok(());
        }
    };
    let mut refused = None;
    let outcome = subxact::run(|| {
        judge_command(command, &concern, start).inspect_err(|error| {
            if matches!(error, Error::ProtectedObject { .. }) {
                refused = Some(error.clone());
            }
        })
    });
    match (refused, outcome) {
        (Some(error), _) => Err(error),
        (None, Err(caught)) => {
            report::degraded("pgtrickle: a schema change was not followed", &caught);
            Ok(())
        }
        (None, Ok(())) => Ok(()),
    }
}

fn judge_command(command: &Command, concern: &Concern, start: Option<u32>) -> Result<()> {
    as_extension(|| {
        without_waiting(|| {
            let changed = with_one_present(|| {
                let changed = Changes::read(concern, start)?;
                protect(command, &changed)?;
                Ok(changed)
            })?;
            cache::maintenance(|| follow(command, concern, &changed))
        })
    })
}

/// What the command did to relations: they as they were before it and as they are now. What others have changed meanwhile
/// is the same on both sides.
#[derive(Default)]
struct Changes {
    start: Option<u32>,
    sources: Vec<(Option<TableShape>, TableShape)>,
    stream_tables: Vec<(TableShape, TableShape)>,
    /// View, and whether its definition is another one: if not, its name or those of its columns.
    views: Vec<(Oid, bool)>,
    /// Functions, types and the like that are not what they were.
    redefined: BTreeMap<Object, Change>,
}

impl Changes {
    /// Of a command in several transactions only sources are looked at, as they are now.
    fn read(concern: &Concern, start: Option<u32>) -> Result<Changes> {
        let mut changes = Changes { start, ..Changes::default() };
        let all: BTreeSet<Oid> =
            concern.sources.iter().chain(&concern.stream_tables).chain(&concern.views).copied().collect();
        let all: Vec<Oid> = all.into_iter().collect();
        let mut before = match start {
            Some(start) => read_shapes(&all, Side::Before(start))?,
            None => Default::default(),
        };
        let mut after = read_shapes(&all, Side::After)?;
        changes.redefined = redefined(concern, start)?;
        for view in concern.views.iter().filter(|_| start.is_some()) {
            let redefined = changes.redefined.contains_key(&(apply::relation_class(), *view));
            if redefined || renamed(before.get(view), after.get(view)) {
                changes.views.push((*view, redefined));
            }
        }
        for oid in all {
            let (before, Some(after)) = (before.remove(&oid), after.remove(&oid)) else { continue };
            // All of them: triggers and rules on a stream table are no part of its shape.
            if let (Some(before), true) = (&before, concern.stream_tables.contains(&oid)) {
                changes.stream_tables.push((before.clone(), after.clone()));
            }
            let differs = before.as_ref().is_none_or(|before| !before.is_same(&after));
            if differs && concern.sources.contains(&oid) {
                changes.sources.push((before, after));
            }
        }
        Ok(changes)
    }
}

/// Views and other objects that the command made something else. Of a command in several transactions none is.
fn redefined(concern: &Concern, start: Option<u32>) -> Result<BTreeMap<Object, Change>> {
    let Some(start) = start else { return Ok(BTreeMap::new()) };
    let views = concern.views.iter().map(|view| (apply::relation_class(), *view));
    let all: BTreeSet<Object> =
        concern.objects.iter().map(|(class, object, _)| (*class, *object)).chain(views).collect();
    let before = objects::fingerprints_at(&all, Side::Before(start))?;
    let after = objects::fingerprints_at(&all, Side::After)?;
    let mut changed = BTreeMap::new();
    for (object, before) in before {
        if let Some(after) = after.get(&object).filter(|after| **after != before) {
            changed.insert(object, objects::change(object, &before, after)?);
        }
    }
    Ok(changed)
}

/// Is anything of it called differently?
fn renamed(before: Option<&TableShape>, after: Option<&TableShape>) -> bool {
    let names = |shape: &TableShape| {
        let columns: Vec<_> = shape.columns.iter().map(|c| (c.attnum, c.name.clone())).collect();
        (shape.schema.clone(), shape.name.clone(), columns)
    };
    before.map(names) != after.map(names)
}

/// Runs one part of the work; its error becomes a WARNING and leaves the other parts alone.
fn guarded(what: &str, f: impl FnOnce() -> Result<()>) {
    if let Err(caught) = subxact::run(|| cache::maintenance(f)) {
        report::degraded(&format!("pgtrickle: {what}"), &caught);
    }
}

/// Columns of a stream table are its query's: DDL that changes them is refused. No DROP names a column: one that went with a
/// type was told of when it went, and one that became text to let go of a type is our doing.
fn protect(command: &Command, changed: &Changes) -> Result<()> {
    let Some(start) = changed.start else { return Ok(()) };
    for (before, after) in &changed.stream_tables {
        let columns = |s: &TableShape| {
            s.columns
                .iter()
                .map(|c| (c.attnum, c.name.clone(), c.type_oid, c.typmod, c.generated.clone()))
                .collect::<Vec<_>>()
        };
        let name = sqltext::regclass_literal(&after.display_name());
        if !command.tag.starts_with("DROP ") && columns(before) != columns(after) {
            return Err(Error::ProtectedObject {
                what: format!("the columns of stream table {} are those of its query", after.display_name()),
                hint: format!(
                    "Change the query: SELECT pgtrickle.alter_stream_table_query({name}, 'new query');"
                ),
            });
        }
        // One that was there before is not this command's doing, which may be an event trigger's amid our own commands.
        let fault = with_side(Side::After, || stream_tables::trigger_fault(after.oid, Mode::Read))?;
        let before_it =
            with_side(Side::Before(start), || stream_tables::trigger_fault(after.oid, Mode::Read))?;
        if let Some(what) = fault.filter(|_| before_it.is_none()) {
            return Err(Error::ProtectedObject {
                what: format!(
                    "{what} of stream table {} would let its contents differ from its query",
                    after.display_name()
                ),
                hint: "Triggers of your own are welcome as AFTER triggers.".into(),
            });
        }
        if before.persistence != after.persistence || before.parents != after.parents {
            return Err(Error::ProtectedObject {
                what: format!(
                    "stream table {} can't become unlogged, a partition or a child",
                    after.display_name()
                ),
                hint: format!("Drop it with SELECT pgtrickle.drop_stream_table({name}); and create another."),
            });
        }
    }
    Ok(())
}

/// Judges all that changed.
fn follow(command: &Command, concern: &Concern, changed: &Changes) -> Result<()> {
    // Before what follows can suspend more.
    let candidates = cure::candidates(concern, changed.sources.iter().map(|(_, after)| after.oid))?;
    for (class, object, name) in &concern.objects {
        guarded("a changed function or type was not followed", || {
            let object = (*class, *object);
            for table in stream_tables::users_of(object.0, object.1)? {
                if let Some(change) = changed.redefined.get(&object) {
                    let how = format!("changed by {}", command.tag);
                    apply::object_changed(&table, *change, name, &how);
                }
                apply::replan_soon(&table);
            }
            Ok(())
        });
    }
    if !changed.sources.is_empty() {
        guarded("a changed source was not followed", || follow_sources(command, changed));
    }
    for (view, redefined) in &changed.views {
        guarded("a changed view was not followed", || follow_view(*view, *redefined));
    }
    for (_, after) in changed.stream_tables.iter().filter(|(before, after)| !before.is_same(after)) {
        guarded("a changed stream table was not followed", || follow_stream_table(after.oid));
    }
    cure::attempt(&candidates);
    Ok(())
}

fn follow_sources(command: &Command, changed: &Changes) -> Result<()> {
    let created = if command.tag == "CREATE TABLE" { created_relations()? } else { BTreeSet::new() };
    let known = Known { retyped: &command.retyped, created: &created };
    // One for all: what takes too long for one source is not tried again for the next.
    let by = capture::circumstance(Some(&command.tag), false);
    for (before, after) in &changed.sources {
        let recorded = sources::fingerprint(after.oid)?;
        if recorded.as_deref() != Some(after.fingerprint()?.as_str()) {
            let missed = if recorded.is_some() { sources::shape(after.oid)? } else { None };
            let source =
                Changed { missed: missed.as_ref(), before: before.as_ref(), after, start: changed.start };
            follow_source(&source, &known, &by)?;
        }
    }
    Ok(())
}

/// One source that a command changed.
struct Changed<'a> {
    /// As its users were judged by it last.
    missed: Option<&'a TableShape>,
    before: Option<&'a TableShape>,
    after: &'a TableShape,
    start: Option<u32>,
}

/// Records what one command did to one source, judges it, and makes capture fit. The evidence stays if judging fails.
fn follow_source(source: &Changed, known: &Known, by: &Circumstance) -> Result<()> {
    let recording = schema_snapshots() != SchemaSnapshots::off;
    if let (Some(before), Some(start), true) = (source.before, source.start, recording) {
        capture::record(before, Side::Before(start), Why::Change, Moment::Before, by);
    }
    let mut settled = None;
    let check = Task { kind: TaskKind::Check, relid: source.after.oid, reason: None, detail: None };
    now_or_later(&check, || {
        judge_source(source, known)?;
        sources::record(source.after.oid, source.after)?;
        apply::sync_capture(source.after.oid)?;
        // A partition that is new got its own TRUNCATE trigger: with it, it is what the next command finds. What else is
        // repaired is not the command's doing.
        settled = if known.created.is_empty() { None } else { shape_now(source.after.oid)? };
        Ok(())
    });
    if recording {
        let made_from = source.before.map(TableShape::content_digest).transpose()?;
        let by = Circumstance { retyped: Some(known.retyped.clone()), made_from, ..by.clone() };
        let after = settled.as_ref().unwrap_or(source.after);
        capture::record(after, Side::After, Why::Change, Moment::After, &by);
    }
    Ok(())
}

fn judge_source(source: &Changed, known: &Known) -> Result<()> {
    if let Some(missed) = source.missed {
        // Events that were missed before this command: its own "before" is later than what was judged last. A command in
        // several transactions has no "before" of its own.
        let until = source.before.unwrap_or(source.after);
        if missed.fingerprint()? != until.fingerprint()? {
            apply::source_changed(missed, until, None)?;
        }
    }
    match source.before {
        Some(before) => apply::source_changed(before, source.after, Some(known)),
        None => Ok(()),
    }
}

fn created_relations() -> Result<BTreeSet<Oid>> {
    spi::run(
        "SELECT objid FROM pg_catalog.pg_event_trigger_ddl_commands() WHERE command_tag = 'CREATE TABLE'",
        &[],
        Mode::Fresh,
    )?
    .into_iter()
    .map(|mut row| row.parse(0))
    .collect()
}

/// A view that queries go through: its definition, or just its name.
fn follow_view(view: Oid, redefined: bool) -> Result<()> {
    for table in stream_tables::users_of(apply::relation_class(), view)? {
        if !redefined {
            apply::reprint_soon(&table);
            continue;
        }
        apply::view_replaced(&table);
    }
    Ok(())
}

/// Renamed, moved or given to another owner.
fn follow_stream_table(relid: Oid) -> Result<()> {
    if let Some(table) = stream_tables::find(relid)? {
        apply::rename_soon(&table);
    }
    Ok(())
}
