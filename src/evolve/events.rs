//! DDL as it happens: which watched objects changed, and what follows. Never an error to the user, except for DDL on
//! what is pgtrickle's own.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::catalog::snapshots::Circumstance;
use crate::catalog::{dependencies, stream_tables};
use crate::drift::account::{Moment, Why};
use crate::error::{Error, Result};
use crate::evolve::apply::{self, Known};
use crate::evolve::{cure, suspend};
use crate::lifecycle;
use crate::model::{Oid, Reason};
use crate::pg::cache::{self, Watch};
use crate::pg::event::Command;
use crate::pg::guc::{SchemaSnapshots, schema_snapshots};
use crate::pg::secctx::as_extension;
use crate::pg::snapshot::{Side, statement_start, with_side};
use crate::pg::spi::{self, Mode};
use crate::pg::{binary_upgrade, report, subxact};
use crate::snapshot::capture;
use crate::snapshot::shape::TableShape;
use crate::snapshot::{read_shapes, shape_now};
use crate::sqltext;

/// Commands on objects other than relations that a query may use.
const OBJECT_TAGS: &[&str] = &[
    "FUNCTION",
    "PROCEDURE",
    "ROUTINE",
    "AGGREGATE",
    "OPERATOR",
    "TYPE",
    "DOMAIN",
    "CAST",
    "COLLATION",
    "VIEW",
];

/// After any DDL command.
pub fn on_ddl_end(command: &Command) -> Result<()> {
    if cache::in_maintenance() || binary_upgrade() {
        return Ok(());
    }
    let start = statement_start();
    if nothing_to_do(command) {
        return Ok(());
    }
    let mut refused = None;
    let outcome = subxact::run(|| {
        judge_command(command, start).inspect_err(|error| {
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

fn judge_command(command: &Command, start: Option<u32>) -> Result<()> {
    as_extension(|| {
        if !cache::installed()? {
            return Ok(());
        }
        let watch = cache::watch(dependencies::load_watch)?;
        let mut dirty = cache::take_dirty(&watch);
        if command.tag == "ALTER SCHEMA" {
            // Names of all tables in it, without a change in any of their rows.
            dirty = watch.sources.keys().chain(&watch.views).chain(&watch.stream_tables).copied().collect();
        }
        protect(command, &watch, &dirty, start)?;
        cache::maintenance(|| follow(command, &watch, &dirty, start))
    })
}

/// The common case, decided without touching a catalog.
fn nothing_to_do(command: &Command) -> bool {
    let Some(watch) = cache::fresh_watch() else { return false };
    if watch.curable || command.tag == "ALTER SCHEMA" {
        return false;
    }
    if !watch.objects.is_empty() && OBJECT_TAGS.iter().any(|t| command.tag.contains(t)) {
        return false;
    }
    !cache::any_dirty(&watch)
}

/// Runs one part of the work; its error becomes a WARNING and leaves the other parts alone. What was concerned is
/// checked by the safety net before its next refresh.
fn guarded(what: &str, f: impl FnOnce() -> Result<()>) {
    if let Err(caught) = subxact::run(|| cache::maintenance(f)) {
        report::degraded(&format!("pgtrickle: {what}"), &caught);
    }
}

/// Columns of a stream table are its query's: DDL that changes them is refused. No DROP names a column: one that went with a
/// type was told of when it went, and one that became text to let go of a type is our doing.
fn protect(command: &Command, watch: &Rc<Watch>, dirty: &[Oid], start: Option<u32>) -> Result<()> {
    let touched: Vec<Oid> = dirty.iter().copied().filter(|o| watch.stream_tables.contains(o)).collect();
    let Some(start) = start.filter(|_| !touched.is_empty()) else { return Ok(()) };
    let before = read_shapes(&touched, Side::Before(start))?;
    let after = read_shapes(&touched, Side::After)?;
    for (oid, after) in &after {
        let columns = |s: &TableShape| {
            s.columns
                .iter()
                .map(|c| (c.attnum, c.name.clone(), c.type_oid, c.typmod, c.generated.clone()))
                .collect::<Vec<_>>()
        };
        let Some(before) = before.get(oid) else { continue };
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
        let fault = stream_tables::trigger_fault(*oid, Mode::Fresh)?;
        let before_it = with_side(Side::Before(start), || stream_tables::trigger_fault(*oid, Mode::Read))?;
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
fn follow(command: &Command, watch: &Rc<Watch>, dirty: &[Oid], start: Option<u32>) -> Result<()> {
    let candidates = if watch.curable { cure::candidates()? } else { Vec::new() };
    let sources: BTreeSet<Oid> =
        dirty.iter().filter_map(|o| watch.sources.get(o)).flatten().copied().collect();
    if !watch.objects.is_empty() && OBJECT_TAGS.iter().any(|t| command.tag.contains(t)) {
        guarded("a changed function or type was not followed", || follow_objects(command, watch));
    }
    guarded("a changed source was not followed", || follow_sources(command, &sources, start));
    for view in dirty.iter().filter(|o| watch.views.contains(o)) {
        guarded("a changed view was not followed", || follow_view(*view, &command.tag));
    }
    for table in dirty.iter().filter(|o| watch.stream_tables.contains(o)) {
        guarded("a changed stream table was not followed", || follow_stream_table(*table));
    }
    cure::attempt(&candidates, &command.tag, &sources)
}

fn follow_sources(command: &Command, sources: &BTreeSet<Oid>, start: Option<u32>) -> Result<()> {
    let oids: Vec<Oid> = sources.iter().copied().collect();
    let before = match start {
        Some(start) => read_shapes(&oids, Side::Before(start))?,
        None => Default::default(),
    };
    let created = if command.tag == "CREATE TABLE" { created_relations()? } else { BTreeSet::new() };
    let known = Known { retyped: &command.retyped, created: &created };
    // One for all: what takes too long for one source is not tried again for the next.
    let by = capture::circumstance(Some(&command.tag), false);
    for (oid, after) in &read_shapes(&oids, Side::After)? {
        let recorded = crate::catalog::sources::fingerprint(*oid)?;
        if recorded.as_deref() != Some(after.fingerprint()?.as_str()) {
            let missed = if recorded.is_some() { crate::catalog::sources::shape(*oid)? } else { None };
            let source = Changed { missed: missed.as_ref(), before: before.get(oid), after, start };
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
    guarded("a changed source was not followed", || {
        judge_source(source, known)?;
        crate::catalog::sources::record(source.after.oid, source.after)?;
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
fn follow_view(view: Oid, tag: &str) -> Result<()> {
    for table in stream_tables::users_of(apply::relation_class(), view)? {
        if tag == "CREATE VIEW" {
            match subxact::run(|| apply::analyse_as_owner(&table)) {
                Ok(analysis) => {
                    let columns = table.columns.clone();
                    let parsed = crate::pg::query::Parsed {
                        text: crate::pg::query::print_tree(&table.tree)?,
                        tree: table.tree.clone(),
                        columns: analysis.columns.clone(),
                    };
                    lifecycle::bind::bind(table.relid, &parsed, &analysis, &columns, table.mode)?;
                }
                Err(caught) => {
                    suspend::suspend(&table, Reason::ObjectChanged, &format!("{}.", caught.message))?
                }
            }
        } else {
            apply::reprint(&table)?;
        }
    }
    Ok(())
}

/// Renamed, moved or given to another owner.
fn follow_stream_table(relid: Oid) -> Result<()> {
    let Some(table) = stream_tables::find(relid)? else { return Ok(()) };
    stream_tables::set_text(relid, &table.schema, &table.name, &table.query)?;
    suspend::refresh_hint(&table)?;
    cache::definitions_changed()
}

/// Functions, operators, types that a query uses.
fn follow_objects(command: &Command, watch: &Rc<Watch>) -> Result<()> {
    let rows = spi::run(
        "SELECT classid, objid, coalesce(object_identity, '') FROM pg_catalog.pg_event_trigger_ddl_commands()",
        &[],
        Mode::Fresh,
    )?;
    for mut row in rows {
        let (class, object) = (row.parse(0)?, row.parse(1)?);
        if !watch.objects.contains(&(class, object)) {
            continue;
        }
        let name = row.text(2)?;
        for table in stream_tables::users_of(class, object)? {
            if command.tag.contains("FUNCTION") {
                // The same oid with another body: what it makes of the rows may differ, the rows don't.
                match subxact::run(|| apply::analyse_as_owner(&table)) {
                    Ok(_) => apply::reinitialize(&table, &format!("function {name} was changed"))?,
                    Err(caught) => {
                        suspend::suspend(&table, Reason::ObjectChanged, &format!("{}.", caught.message))?
                    }
                }
                apply::reprint(&table)?;
            } else {
                let detail = format!("{name}, which its query uses, was changed by {}.", command.tag);
                suspend::suspend(&table, Reason::Unclassified, &detail)?;
            }
        }
    }
    Ok(())
}
