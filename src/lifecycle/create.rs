//! `create_stream_table()`.
#![forbid(unsafe_code)]

use crate::catalog::dependencies;
use crate::catalog::stream_tables::{self, Definition};
use crate::error::{Error, Result};
use crate::lifecycle::bind::{bind, require_privileges};
use crate::lifecycle::blame::{refreshing, run_as_caller};
use crate::lifecycle::refuse_row_types;
use crate::model::{Oid, RefreshMode};
use crate::pg::query::{Parsed, analyse, parse};
use crate::pg::secctx::{PINNED, as_extension, current_user, with_settings};
use crate::pg::spi::{self, Arg, Mode};
use crate::pg::{cache, foreign, names, report};
use crate::refresh::{create_guard, refresh};
use crate::sqltext;

/// Output columns beyond this leave no room for bookkeeping columns in generated statements.
const MAX_COLUMNS: usize = 1500;

/// Arguments of `create_stream_table()`.
pub struct Request<'a> {
    pub name: &'a str,
    pub query: &'a str,
    /// Interval as text; None: only by hand.
    pub schedule: Option<&'a str>,
    pub mode: RefreshMode,
    pub initialize: bool,
}

/// Creates, fills, and returns the table's oid. Runs as the caller but for our own bookkeeping.
pub fn create(request: &Request) -> Result<Oid> {
    let (schema, name) = resolve_name(request.name)?;
    let parsed = run_as_caller(|| parse(request.query))?;
    if parsed.columns.len() > MAX_COLUMNS {
        return Err(Error::TooManyColumns { columns: parsed.columns.len(), limit: MAX_COLUMNS });
    }
    let analysis = run_as_caller(|| with_settings(PINNED, || analyse(&parsed.tree)))?;
    refuse_row_types(&parsed, &analysis)?;
    require_privileges(request.mode, &analysis, current_user())?;
    let relid = cache::maintenance(|| create_table(&schema, &name, &parsed))?;
    as_extension(|| {
        cache::maintenance(|| {
            let columns: Vec<i16> = (1..=parsed.columns.len() as i16).collect();
            let definition = Definition {
                parsed: &parsed,
                analysis: &analysis,
                columns: &columns,
                differential: false,
                full_reasons: &[],
            };
            stream_tables::insert(relid, &schema, &name, &definition, request.schedule, request.mode)?;
            bind(relid, &parsed, &analysis, &columns, request.mode)?;
            create_guard(&schema, &name)
        })
    })?;
    if request.initialize {
        refreshing(|| refresh(relid, false))?;
    }
    tell_schedule(request);
    tell_opaque(relid)?;
    Ok(relid)
}

/// What a function's text reads is not known to PostgreSQL: a change of it is not noticed.
pub fn tell_opaque(relid: Oid) -> Result<()> {
    let functions = as_extension(|| dependencies::opaque_functions(relid))?;
    if let Some(first) = functions.first() {
        let what = match functions.len() {
            1 => format!("what function {first} reads and calls is not known"),
            n => format!("what function {first} and {} more read and call is not known", n - 1),
        };
        report::notice(
            &what,
            &format!("reason=OPAQUE_FUNCTION: the body is text: {}.", functions.join(", ")),
            "A change of another function or a table that it names is not noticed. Write the body as RETURN or BEGIN ATOMIC, or call refresh_stream_table() with mode => 'full' after such a change.",
        );
    }
    Ok(())
}

fn tell_schedule(request: &Request) {
    if !crate::pg::preloaded() && request.schedule.is_some() {
        report::notice(
            "pgtrickle is not preloaded, so nothing refreshes this stream table by schedule",
            "reason=NOT_PRELOADED: shared_preload_libraries does not contain pgtrickle.",
            "Add pgtrickle to shared_preload_libraries and restart, or refresh by hand with pgtrickle.refresh_stream_table().",
        );
    }
}

/// The schema and name that the caller means, in the caller's search_path.
fn resolve_name(name: &str) -> Result<(String, String)> {
    let bad = |value: &str, hint: &str| Error::BadArgument {
        argument: "name",
        value: value.to_string(),
        hint: hint.into(),
    };
    let mut parts = names::split(name).map_err(|_| {
        bad(&sqltext::literal(name), "Write it as in SQL: name, schema.name, \"Quoted Name\".")
    })?;
    let (schema, table) = match (parts.pop(), parts.pop(), parts.pop()) {
        (Some(table), Some(schema), None) => (schema, table),
        (Some(table), None, None) => (current_schema()?, table),
        _ => return Err(bad(&sqltext::literal(name), "Write name or schema.name.")),
    };
    if table.len() > 63 || schema.len() > 63 {
        return Err(bad(&sqltext::literal(name), "Identifiers have at most 63 bytes."));
    }
    let reserved = ["pg_catalog", "information_schema", "pg_toast", "pgtrickle", crate::cdc::INTERNAL_SCHEMA];
    if reserved.contains(&schema.as_str()) || schema.starts_with("pg_temp") || schema.starts_with("pg_toast")
    {
        return Err(Error::ReservedSchema { schema: sqltext::ident(&schema) });
    }
    if relation_named(&schema, &table)?.is_some() {
        return Err(Error::NameTaken { name: sqltext::display(&schema, &table) });
    }
    Ok((schema, table))
}

fn current_schema() -> Result<String> {
    names::creation_schema().ok_or_else(|| Error::BadArgument {
        argument: "name",
        value: "no schema to create in".into(),
        hint: "Name the schema: schema.name, or set search_path.".into(),
    })
}

/// The empty table with the query's columns, made by the caller, who needs CREATE on the schema and SELECT on what the
/// query reads: WITH NO DATA alone would not ask.
fn create_table(schema: &str, name: &str, parsed: &Parsed) -> Result<Oid> {
    let table = sqltext::qualified(schema, name);
    run_as_caller(|| {
        foreign::with_context(&format!("creation of stream table {table}"), || {
            with_settings(PINNED, || {
                spi::run_once(&format!("SELECT FROM ({}) q LIMIT 0", parsed.text), &[], Mode::Fresh)?;
                let sql = format!("CREATE TABLE {table} AS {} WITH NO DATA", parsed.text);
                spi::run_once(&sql, &[], Mode::Fresh)?;
                // Without a key of its own it could not be refreshed once somebody publishes all tables.
                spi::run_once(&format!("ALTER TABLE {table} REPLICA IDENTITY FULL"), &[], Mode::Fresh)
            })
        })
    })?;
    relation_named(schema, name)?.ok_or_else(|| Error::Internal("the created table can't be found".into()))
}

fn relation_named(schema: &str, name: &str) -> Result<Option<Oid>> {
    let rows = spi::run(
        "SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = $1 AND c.relname = $2",
        &[Arg::Text(schema), Arg::Text(name)],
        Mode::Fresh,
    )?;
    rows.first().map(|mut row| row.parse(0)).transpose()
}
