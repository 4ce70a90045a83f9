//! `alter_stream_table_query()`: another query for the same table, in one transaction.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use super::kept;
use crate::catalog::dependencies;
use crate::catalog::history::{self, Event};
use crate::catalog::snapshots::Circumstance;
use crate::catalog::stream_tables::{self, StreamTable};
use crate::drift::account::{Moment, Why};
use crate::error::{Error, Result};
use crate::evolve::apply::{self, Known};
use crate::evolve::suspend::resume_above;
use crate::lifecycle::{bind, refreshing, refuse_row_types, run_as_caller};
use crate::model::{Oid, Outcome, Status};
use crate::pg::lock::{LockMode, Ours, lock_ours, lock_relation};
use crate::pg::query::{Analysis, OutputColumn, Parsed, analyse, parse};
use crate::pg::secctx::{PINNED, Restriction, as_extension, as_user, with_settings};
use crate::pg::spi::{self, Arg, Mode};
use crate::pg::{cache, subxact};
use crate::refresh::refresh;
use crate::snapshot::{capture, shape_now};
use crate::sqltext;

/// One column that the stream table has.
struct Have {
    attnum: i16,
    name: String,
    type_oid: Oid,
    typmod: i32,
    collation: Oid,
}

/// Replaces the query: same oid, columns as the query says, refilled.
pub fn alter_query(table: &StreamTable, query: &str) -> Result<Outcome> {
    let owner = table.owner;
    let parsed = run_as_caller(|| as_user(owner, Restriction::UserCode, || parse(query)))?;
    let analysis = run_as_caller(|| {
        with_settings(PINNED, || {
            as_user(owner, Restriction::UserCode, || {
                let analysis = analyse(&parsed.tree)?;
                spi::run_once(&format!("SELECT FROM ({}) q LIMIT 0", parsed.text), &[], Mode::Fresh)?;
                Ok(analysis)
            })
        })
    })?;
    check_names(&parsed)?;
    refuse_row_types(&parsed, &analysis)?;
    run_as_caller(|| {
        as_extension(|| {
            bind::refuse_cycle(table.relid, &table.display(), &analysis)?;
            cache::maintenance(|| replace(table, &parsed, &analysis))
        })
    })?;
    let outcome = refreshing(|| refresh(table.relid, false))?;
    as_extension(|| cache::maintenance(|| resume_above(table.relid)))?;
    Ok(outcome)
}

fn check_names(parsed: &Parsed) -> Result<()> {
    let mut seen = BTreeSet::new();
    match parsed.columns.iter().find(|c| !seen.insert(c.name.as_str())) {
        Some(twice) => Err(Error::Refused {
            reason: "DUPLICATE_COLUMN",
            what: format!("column {} is specified more than once", sqltext::ident(&twice.name)),
            hint: "Give each output column a name of its own with AS.".into(),
        }),
        None => Ok(()),
    }
}

fn replace(table: &StreamTable, parsed: &Parsed, analysis: &Analysis) -> Result<()> {
    let old: BTreeSet<Oid> = dependencies::source_columns(table.relid)?.into_keys().collect();
    for source in old.union(&analysis.sources()) {
        lock_relation(*source, LockMode::AccessShare);
    }
    lock_ours(Ours::StreamTable(table.relid), true)?;
    let read = table;
    let table = &stream_tables::claim_present(read.relid)?;
    if table.owner != read.owner {
        // Whoever asks may not be the one who may, and the query was analysed with another one's rights.
        return Err(Error::ConcurrentChange { what: format!("the owner of {}", table.display()) });
    }
    bind::require_privileges(table.mode, analysis, table.owner)?;
    let have = columns(table.relid)?;
    let steps = column_steps(&have, &parsed.columns)?;
    let reshaped = !steps.is_empty() || !out_of_order(&have, &parsed.columns).is_empty();
    lock_relation(table.relid, if reshaped { LockMode::AccessExclusive } else { LockMode::RowExclusive });
    let before = shape_now(table.relid)?;
    if reshaped {
        bind::drop_row_index(table)?;
        // Emptied first, so that no conversion of old values is needed; readers wait for the commit anyway.
        // As the owner, with whose rights his triggers and constraints may run.
        as_user(table.owner, Restriction::UserCode, || {
            spi::run_once(&format!("TRUNCATE {}", table.quoted()), &[], Mode::Fresh)
        })?;
        reshape(table, &have, &parsed.columns, steps)?;
    }
    let now = columns(table.relid)?;
    let positions = parsed
        .columns
        .iter()
        .map(|c| {
            now.iter().find(|h| h.name == c.name).map(|h| h.attnum).ok_or_else(|| {
                Error::Internal(format!("column {} is missing after the change", sqltext::ident(&c.name)))
            })
        })
        .collect::<Result<Vec<_>>>()?;
    if table.status == Status::Suspended {
        stream_tables::set_resumed(table)?;
    }
    bind::bind(table.relid, parsed, analysis, &positions, table.mode)?;
    if table.status == Status::Suspended {
        let reason = table.reason.as_deref().unwrap_or("RESUMED");
        let event = Event { status: "resumed", reason, detail: "its query was replaced.", hint: "" };
        history::event(table, &event)?;
    }
    follow_above(before, table.relid)
}

/// Columns as the query says, in its order. A column that has to move is made anew at the end, with its comment and
/// indexes; where something of the user's depends on it, it stays in its place.
fn reshape(table: &StreamTable, have: &[Have], want: &[OutputColumn], steps: Vec<ColumnStep>) -> Result<()> {
    let moved = out_of_order(have, want);
    let in_order = subxact::run(|| {
        let kept = kept::Kept::of(table, &moved)?;
        for name in &moved {
            ColumnStep::Drop { name: name.clone() }.run(table)?;
        }
        let rest: Vec<Have> = columns(table.relid)?;
        for step in column_steps(&rest, want)? {
            step.run(table)?;
        }
        kept.restore()
    });
    if in_order.is_err() {
        for step in steps {
            step.run(table)?;
        }
    }
    Ok(())
}

/// Names of present columns that can't stay where they are if the table's order is to be that of the query.
fn out_of_order(have: &[Have], want: &[OutputColumn]) -> Vec<String> {
    let mut last = 0;
    let mut appending = false;
    let mut moved = Vec::new();
    for column in want {
        match have.iter().find(|h| h.name == column.name) {
            Some(h) if !appending && h.attnum > last => last = h.attnum,
            Some(h) => {
                appending = true;
                moved.push(h.name.clone());
            }
            None => appending = true,
        }
    }
    moved
}

/// Stream tables that read this one see its columns change as those of any source.
fn follow_above(before: Option<crate::snapshot::shape::TableShape>, relid: Oid) -> Result<()> {
    if !dependencies::is_source(relid)? {
        return Ok(());
    }
    let (retyped, created) = (BTreeSet::new(), BTreeSet::new());
    if let (Some(before), Some(after)) = (before, shape_now(relid)?) {
        apply::source_changed(&before, &after, Some(&Known { retyped: &retyped, created: &created }))?;
        let made_from = Some(before.content_digest()?);
        let by = capture::circumstance(Some("ALTER STREAM TABLE QUERY"), true);
        let by = Circumstance { made_from, ..by };
        apply::record(&after, Why::Change, Moment::After, &by)?;
    }
    Ok(())
}

fn columns(relid: Oid) -> Result<Vec<Have>> {
    spi::run(
        "SELECT attnum, attname, atttypid, atttypmod, attcollation FROM pg_catalog.pg_attribute \
         WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        &[Arg::Oid(relid)],
        Mode::Fresh,
    )?
    .into_iter()
    .map(|mut row| {
        Ok(Have {
            attnum: row.parse(0)?,
            name: row.text(1)?,
            type_oid: row.parse(2)?,
            typmod: row.parse(3)?,
            collation: row.parse(4)?,
        })
    })
    .collect()
}

enum ColumnStep {
    Add { name: String, type_sql: String },
    Drop { name: String },
    Retype { name: String, type_sql: String, attnum: i16 },
}

/// What turns the present columns into those of the query. Additions first: a table may not lose its last column.
fn column_steps(have: &[Have], want: &[OutputColumn]) -> Result<Vec<ColumnStep>> {
    let mut steps = Vec::new();
    for column in want {
        let type_sql = || Ok::<_, Error>(format!("{}{}", column.type_sql, collate(column.collation)?));
        match have.iter().find(|h| h.name == column.name) {
            None => steps.push(ColumnStep::Add { name: column.name.clone(), type_sql: type_sql()? }),
            Some(h)
                if (h.type_oid, h.typmod, h.collation)
                    == (column.type_oid, column.typmod, column.collation) => {}
            Some(h) => steps.push(ColumnStep::Retype {
                name: column.name.clone(),
                type_sql: type_sql()?,
                attnum: h.attnum,
            }),
        }
    }
    for h in have.iter().filter(|h| want.iter().all(|c| c.name != h.name)) {
        steps.push(ColumnStep::Drop { name: h.name.clone() });
    }
    Ok(steps)
}

fn collate(collation: Oid) -> Result<String> {
    if collation == 0 {
        return Ok(String::new());
    }
    let rows = spi::run(
        "SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.collname) \
         FROM pg_catalog.pg_collation c JOIN pg_catalog.pg_namespace n ON n.oid = c.collnamespace WHERE c.oid = $1",
        &[Arg::Oid(collation)],
        Mode::Fresh,
    )?;
    match rows.first() {
        Some(mut row) => Ok(format!(" COLLATE {}", row.text(0)?)),
        None => Err(Error::Internal(format!("collation {collation} does not exist"))),
    }
}

impl ColumnStep {
    fn run(&self, table: &StreamTable) -> Result<()> {
        // As the owner: constraints that are checked anew may call what he likes.
        let alter = |what: String| {
            as_user(table.owner, Restriction::UserCode, || {
                spi::run_once(&format!("ALTER TABLE {} {what}", table.quoted()), &[], Mode::Fresh)
            })
        };
        match self {
            ColumnStep::Add { name, type_sql } => {
                alter(format!("ADD COLUMN {} {type_sql}", sqltext::ident(name)))?;
            }
            ColumnStep::Drop { name } => {
                alter(format!("DROP COLUMN {}", sqltext::ident(name)))?;
            }
            ColumnStep::Retype { name, type_sql, attnum } => {
                let name = sqltext::ident(name);
                let plain = type_sql.split(" COLLATE ").next().unwrap_or(type_sql);
                let sql = format!("ALTER COLUMN {name} TYPE {type_sql} USING NULL::{plain}");
                // Indexes that fit the new type are kept; those that don't are in the way and go.
                if subxact::run(|| alter(sql.clone())).is_err() {
                    for index in indexes_on(table.relid, *attnum)? {
                        spi::run_once(&format!("DROP INDEX {index}"), &[], Mode::Fresh)?;
                    }
                    alter(sql)?;
                }
            }
        }
        Ok(())
    }
}

/// Indexes that depend on a column.
pub(super) fn indexes_on(relid: Oid, attnum: i16) -> Result<Vec<String>> {
    spi::run(
        "SELECT DISTINCT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) \
         FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_class c ON c.oid = d.objid AND c.relkind = 'i' \
         JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.refclassid = 'pg_catalog.pg_class'::regclass \
         AND d.refobjid = $1 AND d.refobjsubid = $2",
        &[Arg::Oid(relid), Arg::Int(attnum.into())],
        Mode::Fresh,
    )?
    .into_iter()
    .map(|mut row| row.text(0))
    .collect()
}
