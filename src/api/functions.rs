//! Functions for users.

use std::time::Instant;

use pgrx::datum::Interval;
use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::catalog::stream_tables::{self, StreamTable};
use crate::error::Error;
use crate::evolve;
use crate::lifecycle::{self, Request};
use crate::model::{Oid, RefreshMode, Status};
use crate::monitor;
use crate::pg::foreign::boundary;
use crate::pg::secctx::{as_extension, current_user, has_rights_of, may_read};
use crate::pg::spi::{self, Arg, Mode};
use crate::refresh;

pub(super) fn given<T>(value: Option<T>, argument: &'static str) -> Result<T, Error> {
    value.ok_or_else(|| Error::BadArgument {
        argument,
        value: "NULL".into(),
        hint: format!("Pass a value for {argument}."),
    })
}

fn mode_of(word: &str) -> Result<RefreshMode, Error> {
    RefreshMode::from_word(word).ok_or_else(|| Error::BadArgument {
        argument: "refresh_mode",
        value: crate::sqltext::literal(word),
        hint: "Use auto, differential or full.".into(),
    })
}

/// The interval as text, which must be positive.
fn schedule_of(schedule: Option<Interval>) -> Result<Option<String>, Error> {
    let Some(schedule) = schedule else { return Ok(None) };
    if schedule.as_micros() <= 0 {
        return Err(Error::BadArgument {
            argument: "schedule",
            value: "an interval that is not positive".into(),
            hint: "Use a positive interval such as '10 seconds', or NULL to refresh only by hand.".into(),
        });
    }
    Ok(Some(interval_text(&schedule)))
}

/// An interval as PostgreSQL reads it.
pub(super) fn interval_text(interval: &Interval) -> String {
    format!("{} months {} days {} microseconds", interval.months(), interval.days(), interval.micros())
}

/// The stream table, which the caller must own: as PostgreSQL asks of REFRESH MATERIALIZED VIEW.
fn owned(relation: Option<pg_sys::Oid>) -> Result<StreamTable, Error> {
    let relid: Oid = given(relation, "stream_table")?.to_u32();
    let user = current_user();
    as_extension(|| {
        let rows = spi::run(
            "SELECT pg_catalog.format('%I.%I', n.nspname, c.relname), pg_catalog.pg_has_role($2, c.relowner, 'USAGE') \
             FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1",
            &[Arg::Oid(relid), Arg::Oid(user)],
            Mode::Fresh,
        )?;
        let Some(mut row) = rows.first() else {
            return Err(Error::NotAStreamTable { name: format!("relation {relid}") });
        };
        let name = row.text(0)?;
        let table = evolve::require(relid, &name)?;
        if row.bool(1)? {
            return Ok(table);
        }
        Err(Error::Privilege {
            what: format!("must be owner of stream table {name}"),
            hint: "Ask its owner, or become a member of the owning role.".into(),
        })
    })
}

/// Creates a stream table.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle.create_stream_table(name text, query text, schedule interval DEFAULT '10 seconds',
  refresh_mode text DEFAULT 'auto', initialize boolean DEFAULT true) RETURNS regclass
LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
COMMENT ON FUNCTION pgtrickle.create_stream_table IS
  'Creates a table that is kept equal to a query. The caller owns it. Names in the query are resolved in the caller''s search_path.';
"#)]
fn create_stream_table(
    name: Option<&str>,
    query: Option<&str>,
    schedule: Option<Interval>,
    refresh_mode: Option<&str>,
    initialize: Option<bool>,
) -> Result<pg_sys::Oid, ErrorReport> {
    boundary(|| {
        let schedule = schedule_of(schedule)?;
        let request = Request {
            name: given(name, "name")?,
            query: given(query, "query")?,
            schedule: schedule.as_deref(),
            mode: mode_of(given(refresh_mode, "refresh_mode")?)?,
            initialize: given(initialize, "initialize")?,
        };
        Ok(pg_sys::Oid::from(lifecycle::create(&request)?))
    })
}

/// Brings a stream table, and those that it reads, up to date.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle.refresh_stream_table(stream_table regclass, mode text DEFAULT 'auto')
RETURNS TABLE (action text, rows_inserted bigint, rows_updated bigint, rows_deleted bigint, duration interval)
LANGUAGE c ROWS 1 SET search_path = pg_catalog, pg_temp AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
#[allow(clippy::type_complexity)] // the row type of a table function
fn refresh_stream_table(
    stream_table: Option<pg_sys::Oid>,
    mode: Option<&str>,
) -> Result<
    TableIterator<
        'static,
        (
            name!(action, String),
            name!(rows_inserted, i64),
            name!(rows_updated, i64),
            name!(rows_deleted, i64),
            name!(duration, Interval),
        ),
    >,
    ErrorReport,
> {
    boundary(|| {
        let started = Instant::now();
        let table = owned(stream_table)?;
        let mode = mode_of(given(mode, "mode")?)?;
        if mode == RefreshMode::Differential && !table.differential {
            let construct = table.full_reasons.join("; ");
            return Err(Error::NotDifferential { construct });
        }
        let outcome = lifecycle::refreshing(|| refresh::refresh(table.relid, mode == RefreshMode::Full))?;
        let took = Interval::from_micros(i64::try_from(started.elapsed().as_micros()).unwrap_or(i64::MAX));
        let row =
            (outcome.action.word().to_string(), outcome.inserted, outcome.updated, outcome.deleted, took);
        Ok(TableIterator::once(row))
    })
}

/// Drops a stream table.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle.drop_stream_table(stream_table regclass, cascade boolean DEFAULT false) RETURNS void
LANGUAGE c SET search_path = pg_catalog, pg_temp AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn drop_stream_table(stream_table: Option<pg_sys::Oid>, cascade: Option<bool>) -> Result<(), ErrorReport> {
    boundary(|| lifecycle::drop_stream_table(&owned(stream_table)?, given(cascade, "cascade")?))
}

/// Sets schedule and mode. Both are always set: NULL as schedule means by hand.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle.alter_stream_table(stream_table regclass, schedule interval, refresh_mode text) RETURNS void
LANGUAGE c SET search_path = pg_catalog, pg_temp AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
COMMENT ON FUNCTION pgtrickle.alter_stream_table IS
  'Sets schedule (NULL: only by hand) and refresh_mode (NULL: as it is).';
"#)]
fn alter_stream_table(
    stream_table: Option<pg_sys::Oid>,
    schedule: Option<Interval>,
    refresh_mode: Option<&str>,
) -> Result<(), ErrorReport> {
    boundary(|| {
        let table = owned(stream_table)?;
        let mode = refresh_mode.map(mode_of).transpose()?.unwrap_or(table.mode);
        lifecycle::alter(&table, schedule_of(schedule)?.as_deref(), mode)
    })
}

/// Replaces the query.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle.alter_stream_table_query(stream_table regclass, query text)
RETURNS TABLE (action text, rows_inserted bigint, rows_updated bigint, rows_deleted bigint)
LANGUAGE c ROWS 1 AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
COMMENT ON FUNCTION pgtrickle.alter_stream_table_query IS
  'Gives a stream table another query: same oid, columns as the query says, refilled in this transaction. Ends a suspension.';
"#)]
#[allow(clippy::type_complexity)] // the row type of a table function
fn alter_stream_table_query(
    stream_table: Option<pg_sys::Oid>,
    query: Option<&str>,
) -> Result<
    TableIterator<
        'static,
        (
            name!(action, String),
            name!(rows_inserted, i64),
            name!(rows_updated, i64),
            name!(rows_deleted, i64),
        ),
    >,
    ErrorReport,
> {
    boundary(|| {
        let outcome = evolve::alter_query(&owned(stream_table)?, given(query, "query")?)?;
        let row = (outcome.action.word().to_string(), outcome.inserted, outcome.updated, outcome.deleted);
        Ok(TableIterator::once(row))
    })
}

/// Stops refreshing.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle.suspend_stream_table(stream_table regclass) RETURNS void
LANGUAGE c SET search_path = pg_catalog, pg_temp AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn suspend_stream_table(stream_table: Option<pg_sys::Oid>) -> Result<(), ErrorReport> {
    boundary(|| {
        let table = owned(stream_table)?;
        lifecycle::locked(table.relid, evolve::suspend_by_hand)
    })
}

/// Goes on refreshing.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle.resume_stream_table(stream_table regclass) RETURNS void
LANGUAGE c SET search_path = pg_catalog, pg_temp AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn resume_stream_table(stream_table: Option<pg_sys::Oid>) -> Result<(), ErrorReport> {
    boundary(|| {
        let table = owned(stream_table)?;
        lifecycle::run_as_caller(|| lifecycle::locked(table.relid, evolve::resume))
    })
}

/// How a stream table is kept.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle.explain_refresh(stream_table regclass) RETURNS TABLE (step text, detail text)
LANGUAGE c SET search_path = pg_catalog, pg_temp AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn explain_refresh(
    stream_table: Option<pg_sys::Oid>,
) -> Result<TableIterator<'static, (name!(step, String), name!(detail, String))>, ErrorReport> {
    boundary(|| {
        let table = owned(stream_table)?;
        let rows = as_extension(|| {
            if table.status == Status::Suspended {
                return Err(refresh::suspended(&table));
            }
            monitor::explain::explain(&table, refresh::plan_of(&table)?.as_ref())
        })?;
        Ok(TableIterator::new(rows))
    })
}

/// What needs attention.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle.health_check() RETURNS TABLE ("check" text, status text, detail text)
LANGUAGE c SET search_path = pg_catalog, pg_temp AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
#[allow(clippy::type_complexity)] // the row type of a table function
fn health_check() -> Result<
    TableIterator<'static, (name!(check, String), name!(status, String), name!(detail, String))>,
    ErrorReport,
> {
    boundary(|| {
        let user = current_user();
        Ok(TableIterator::new(as_extension(|| monitor::health::check(user))?))
    })
}

/// Has a stream table changes to consume? For the view `stream_tables`, and for those who see it there.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle._pending(stream_table oid) RETURNS boolean STRICT
LANGUAGE c SET search_path = pg_catalog, pg_temp AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
pub(super) fn pending(stream_table: pg_sys::Oid) -> Result<bool, ErrorReport> {
    boundary(|| {
        let user = current_user();
        let seen = |table: &StreamTable| may_read(user, table.relid) || has_rights_of(user, table.owner);
        as_extension(|| match stream_tables::find(stream_table.to_u32())?.filter(seen) {
            Some(table) => {
                crate::pg::snapshot::with_transaction_snapshot(|| monitor::buffers::pending(&table))
            }
            None => Ok(false),
        })
    })
}

/// Buffers of the sources that the caller can read. For the view `change_buffers`.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle._change_buffers() RETURNS TABLE (source oid, rows bigint, bytes bigint, oldest text)
LANGUAGE c SET search_path = pg_catalog, pg_temp AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
#[allow(clippy::type_complexity)] // the row type of a table function
pub(super) fn change_buffers() -> Result<
    TableIterator<
        'static,
        (name!(source, pg_sys::Oid), name!(rows, i64), name!(bytes, i64), name!(oldest, Option<String>)),
    >,
    ErrorReport,
> {
    boundary(|| {
        let user = current_user();
        let buffers = as_extension(|| monitor::buffers::list(user))?;
        let rows = buffers
            .into_iter()
            .map(|b| (pg_sys::Oid::from(b.source), b.rows, b.bytes, b.oldest.map(|xid| xid.to_string())));
        Ok(TableIterator::new(rows.collect::<Vec<_>>()))
    })
}
