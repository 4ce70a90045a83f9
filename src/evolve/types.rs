//! Types and collations of the stream tables' own columns. Whoever drops one should not have to know of the stream table:
//! with CASCADE its column goes and nothing else, and one that is suspended lets go of a type that nothing else needs.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};

use crate::catalog::history::{self, Event};
use crate::catalog::stream_tables::{self, StreamTable};
use crate::error::{Error, Result};
use crate::evolve::apply::relation_class;
use crate::evolve::drops::Dropped;
use crate::evolve::query::indexes_on;
use crate::evolve::suspend;
use crate::lifecycle::bind;
use crate::model::{Oid, Reason, Status};
use crate::pg::cache;
use crate::pg::concern::{Dependant, Kind, any_suspended};
use crate::pg::drop_command::Object;
use crate::pg::lock::{LockMode, lock_relation};
use crate::pg::secctx::{Restriction, as_extension, as_user, current_user};
use crate::pg::spi::{self, Arg, Mode};
use crate::pg::{binary_upgrade, report, subxact};
use crate::sqltext;

/// Objects that a sentence names at most.
const NAMED: usize = 3;

/// Suspends the stream tables of which a cascade has just dropped columns. Inside the event `sql_drop`. A column that the
/// command itself names is refused later.
pub fn columns_dropped(dropped: &[(&Dropped, Vec<Dependant>)], tag: &str) -> Result<()> {
    let mut lost: BTreeMap<Oid, Vec<String>> = BTreeMap::new();
    for (column, by) in dropped {
        if let (Some(name), true) = (&column.column, by.iter().any(|d| d.kind == Kind::Itself)) {
            lost.entry(column.object).or_default().push(name.clone());
        }
    }
    if lost.is_empty() {
        return Ok(());
    }
    let cause = originals()?;
    for (relid, columns) in lost {
        let Some(table) = stream_tables::find(relid)? else { continue };
        let detail = format!("{tag} dropped {cause}, and with it {} of the stream table.", listed(&columns));
        suspend::suspend_soon(&table, Reason::OutputColumnDropped, &detail);
    }
    Ok(())
}

/// What the command named, in words.
fn originals() -> Result<String> {
    let rows = spi::run(
        "SELECT object_type || ' ' || object_identity FROM pg_catalog.pg_event_trigger_dropped_objects() \
         WHERE original AND object_type NOT IN ('index', 'trigger', 'rule', 'policy', 'default value')",
        &[],
        Mode::Fresh,
    )?;
    let mut named = rows.into_iter().map(|mut row| row.text(0)).collect::<Result<Vec<_>>>()?;
    if named.len() > NAMED {
        let more = named.len() - NAMED;
        named.truncate(NAMED);
        named.push(format!("{more} more"));
    }
    Ok(named.join(", "))
}

/// `column a`, `columns a, b`.
fn listed(columns: &[String]) -> String {
    let names: Vec<String> = columns.iter().map(|c| sqltext::display_ident(c)).collect();
    format!("column{} {}", if names.len() == 1 { "" } else { "s" }, names.join(", "))
}

/// Before a DROP of types, collations or extensions without CASCADE. Never an error to the user: where nothing can be done,
/// PostgreSQL says by itself what depends on them. `named` finds what the command names.
pub fn on_drop_start(named: impl FnOnce() -> Result<Vec<Object>>) -> Result<()> {
    if cache::in_maintenance() || binary_upgrade() || !cache::installed() {
        return Ok(());
    }
    // Where it can't be told, nothing is done.
    if !any_suspended().unwrap_or(false) {
        return Ok(());
    }
    let user = current_user();
    // A name that can't be looked up is the command's error.
    let Ok(objects) = subxact::run(named) else { return Ok(()) };
    if objects.is_empty() {
        return Ok(());
    }
    let outcome = subxact::run(|| as_extension(|| cache::maintenance(|| let_go(user, &objects))));
    if let Err(caught) = outcome {
        report::degraded("pgtrickle: a suspended stream table could not let go of what is dropped", &caught);
    }
    Ok(())
}

/// A column of a suspended stream table.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Holder {
    relid: Oid,
    attnum: i16,
    name: String,
    type_name: String,
}

/// Turns columns of suspended stream tables that have one of these types or collations into text, if they are all that
/// stands in the way of the drop.
fn let_go(user: Oid, objects: &[Object]) -> Result<()> {
    let (classes, oids): (Vec<Oid>, Vec<Oid>) = objects.iter().copied().unzip();
    if !may_drop(user, &classes, &oids)? {
        return Ok(());
    }
    let relations: BTreeSet<Oid> = holders(&classes, &oids)?.iter().map(|h| h.relid).collect();
    for relid in &relations {
        // Waits for nobody whom the command would not wait for: before it says what depends on a type, it locks each of
        // them in this mode.
        lock_relation(*relid, LockMode::AccessExclusive);
    }
    let mut columns: BTreeMap<Oid, Vec<Holder>> = BTreeMap::new();
    for holder in holders(&classes, &oids)?.into_iter().filter(|h| relations.contains(&h.relid)) {
        columns.entry(holder.relid).or_default().push(holder);
    }
    for (relid, columns) in columns {
        if let Some(table) = stream_tables::find(relid)?.filter(|t| t.status == Status::Suspended) {
            keep_as_text(&table, &columns)?;
        }
    }
    Ok(())
}

fn may_drop(user: Oid, classes: &[Oid], oids: &[Oid]) -> Result<bool> {
    let args = [Arg::Oids(classes), Arg::Oids(oids), Arg::Oid(user)];
    let rows = spi::run(include_str!("../../sql/queries/may_drop.sql"), &args, Mode::Fresh)?;
    rows.first().map_or(Ok(false), |mut row| row.bool(0))
}

/// Columns that stand in the way; none where something else does as well, since the drop fails whatever is done.
fn holders(classes: &[Oid], oids: &[Oid]) -> Result<Vec<Holder>> {
    let args = [Arg::Oids(classes), Arg::Oids(oids), Arg::Oid(relation_class())];
    let mut found = Vec::new();
    for mut row in spi::run(include_str!("../../sql/queries/drop_blockers.sql"), &args, Mode::Fresh)? {
        let Some(relid) = row.opt(0) else { return Ok(Vec::new()) };
        let relid = relid.parse().map_err(|_| Error::Internal(format!("unexpected oid {relid}")))?;
        found.push(Holder { relid, attnum: row.parse(1)?, name: row.text(2)?, type_name: row.text(3)? });
    }
    Ok(found)
}

/// The values as they are printed. Not by a cast, which may be the user's; and with the rights of the stream table's owner,
/// since constraints of the owner's are checked.
fn keep_as_text(table: &StreamTable, columns: &[Holder]) -> Result<()> {
    bind::drop_row_index(table)?;
    let steps: Vec<String> = columns
        .iter()
        .map(|c| {
            let name = sqltext::ident(&c.name);
            format!(
                "ALTER COLUMN {name} TYPE pg_catalog.text COLLATE pg_catalog.\"default\" \
                 USING CASE WHEN pg_catalog.num_nulls({name}) = 0 THEN pg_catalog.format('%s', {name}) END"
            )
        })
        .collect();
    let run = |sql: &str| {
        as_user(table.owner, Restriction::UserCode, || spi::run_once(sql, &[], Mode::Fresh).map(|_| ()))
    };
    let sql = format!("ALTER TABLE {} {}", table.quoted(), steps.join(", "));
    // Indexes that fit text are kept; those that don't are in the way and go.
    if subxact::run(|| run(&sql)).is_err() {
        for column in columns {
            for index in indexes_on(table.relid, column.attnum)? {
                run(&format!("DROP INDEX {index}"))?;
            }
        }
        run(&sql)?;
    }
    tell(table, columns)
}

fn tell(table: &StreamTable, columns: &[Holder]) -> Result<()> {
    let types: Vec<String> =
        columns.iter().map(|c| format!("{} ({})", sqltext::display_ident(&c.name), c.type_name)).collect();
    let plural = if types.len() == 1 { "" } else { "s" };
    let what = format!("Column{plural} {} became text, since the type is dropped.", types.join(", "));
    stream_tables::add_detail(table.relid, &what)?;
    let hint = table.hint.clone().unwrap_or_default();
    let detail = format!("KEPT_AS_TEXT: {what}");
    history::event(
        table,
        &Event { status: "suspended", reason: "SCHEMA_INCOMPATIBLE", detail: &detail, hint: &hint },
    )?;
    report::notice(
        &format!("suspended stream table {} keeps as text what has the dropped type", table.display()),
        &format!("reason={detail}"),
        &hint,
    );
    cache::definitions_changed()
}
