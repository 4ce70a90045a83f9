//! DDL as it happens: which watched objects changed, and what follows. Never an error to the user, except for DDL on
//! what is pgtrickle's own.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::catalog::snapshots::{self, Circumstance, Why};
use crate::catalog::{dependencies, stream_tables};
use crate::cdc;
use crate::error::{Error, Result};
use crate::evolve::apply::{self, Known};
use crate::evolve::{cure, suspend};
use crate::lifecycle;
use crate::model::{Oid, Reason};
use crate::pg::cache::{self, Watch};
use crate::pg::event::{self, Command};
use crate::pg::guc::{SchemaSnapshots, schema_snapshots};
use crate::pg::secctx::as_extension;
use crate::pg::snapshot::{Side, statement_start};
use crate::pg::spi::{self, Mode};
use crate::pg::{binary_upgrade, report, subxact};
use crate::snapshot::read_shapes;
use crate::snapshot::shape::TableShape;
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
        protect(&watch, &dirty, start)?;
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

/// Columns of a stream table are its query's: DDL that changes them is refused.
fn protect(watch: &Rc<Watch>, dirty: &[Oid], start: Option<u32>) -> Result<()> {
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
        let name = sqltext::literal(&after.display_name());
        if columns(before) != columns(after) {
            return Err(Error::ProtectedObject {
                what: format!("the columns of stream table {} are those of its query", after.display_name()),
                hint: format!(
                    "Change the query: SELECT pgtrickle.alter_stream_table_query({name}, 'new query');"
                ),
            });
        }
        if let Some(what) = stream_tables::trigger_fault(*oid)? {
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
    let after = read_shapes(&oids, Side::After)?;
    let created = if command.tag == "CREATE TABLE" { created_relations()? } else { BTreeSet::new() };
    for (oid, after) in &after {
        let recorded = crate::catalog::sources::fingerprint(*oid)?;
        if recorded.as_deref() == Some(after.fingerprint()?.as_str()) {
            continue;
        }
        let recorded = match recorded {
            Some(_) => crate::catalog::sources::shape(*oid)?,
            None => None,
        };
        let before = before.get(oid);
        // Events that were missed before this command: its own "before" is later than what was judged last. A command
        // in several transactions has no "before" of its own.
        if let Some(recorded) = &recorded {
            let until = before.unwrap_or(after);
            if recorded.fingerprint()? != until.fingerprint()? {
                apply::source_changed(recorded, until, None)?;
            }
        }
        if let Some(before) = before {
            let known = Known { retyped: &command.retyped, created: &created };
            apply::source_changed(before, after, Some(&known))?;
        }
        apply::record(after, Why::Change, &command.tag)?;
        // Partitions that are new need their own TRUNCATE trigger.
        apply::sync_capture(*oid)?;
    }
    Ok(())
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

/// One dropped object.
struct Dropped {
    class: Oid,
    object: Oid,
    is_table: bool,
    name: String,
}

/// Just after objects were dropped; for a snapshot of the command's start they are still there.
pub fn on_sql_drop(command: &Command) -> Result<()> {
    if cache::in_maintenance() || binary_upgrade() {
        return Ok(());
    }
    let start = statement_start();
    let outcome = subxact::run(|| {
        as_extension(|| {
            if !cache::installed()? {
                return Ok(());
            }
            cache::maintenance(|| {
                let dropped = dropped_objects()?;
                if dropped.is_empty() {
                    return Ok(());
                }
                let watch = cache::watch(dependencies::load_watch)?;
                if let Err(caught) = subxact::run(|| record_dropped(command, &watch, &dropped, start)) {
                    report::degraded("pgtrickle: the shape of a dropped table was not recorded", &caught);
                }
                follow_drop(&watch, &dropped)
            })
        })
    });
    if let Err(caught) = outcome {
        report::degraded("pgtrickle: a drop was not followed", &caught);
    }
    Ok(())
}

fn dropped_objects() -> Result<Vec<Dropped>> {
    spi::run(
        "SELECT classid, objid, object_type = 'table', object_identity \
         FROM pg_catalog.pg_event_trigger_dropped_objects() \
         WHERE objsubid = 0 AND NOT is_temporary AND object_type NOT IN ('index', 'trigger', 'table constraint', \
           'default value', 'toast table', 'rule', 'policy') \
         AND schema_name IS DISTINCT FROM 'pg_toast' AND schema_name IS DISTINCT FROM 'pgtrickle_internal'",
        &[],
        Mode::Fresh,
    )?
    .into_iter()
    .map(|mut row| {
        Ok(Dropped { class: row.parse(0)?, object: row.parse(1)?, is_table: row.bool(2)?, name: row.text(3)? })
    })
    .collect()
}

fn record_dropped(
    command: &Command,
    watch: &Rc<Watch>,
    dropped: &[Dropped],
    start: Option<u32>,
) -> Result<()> {
    let setting = schema_snapshots();
    let Some(start) = start.filter(|_| setting != SchemaSnapshots::off) else { return Ok(()) };
    let tables: Vec<Oid> = dropped
        .iter()
        .filter(|d| d.is_table)
        .map(|d| d.object)
        .filter(|o| setting == SchemaSnapshots::all || watch.sources.contains_key(o))
        .collect();
    let by = Circumstance {
        actor: event::session_actor(),
        command_tag: command.tag.clone(),
        statement: event::statement_text(),
    };
    for shape in read_shapes(&tables, Side::Before(start))?.values() {
        snapshots::insert(shape, Why::Drop, &by)?;
    }
    Ok(())
}

fn follow_drop(watch: &Rc<Watch>, dropped: &[Dropped]) -> Result<()> {
    let relation = apply::relation_class();
    for d in dropped.iter().filter(|d| d.class == relation && watch.stream_tables.contains(&d.object)) {
        lifecycle::forget(d.object)?;
    }
    for d in dropped {
        if d.class == relation
            && watch.sources.contains_key(&d.object)
            && !watch.stream_tables.contains(&d.object)
        {
            apply::source_dropped(d.object, &d.name)?;
            cdc::drop_unused_buffer(d.object)?;
            crate::catalog::sources::delete(d.object)?;
        } else if (d.class == relation && watch.views.contains(&d.object))
            || watch.objects.contains(&(d.class, d.object))
        {
            for table in stream_tables::users_of(d.class, d.object)? {
                let detail = format!("{}, which its query uses, was dropped.", d.name);
                suspend::suspend(&table, Reason::ObjectChanged, &detail)?;
            }
        }
    }
    Ok(())
}
