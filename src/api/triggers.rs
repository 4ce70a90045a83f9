//! Trigger entry points.

use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::pg::entry;
use crate::pg::foreign::boundary;

/// Row and TRUNCATE trigger on sources.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle._capture() RETURNS trigger LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn capture(fcinfo: pg_sys::FunctionCallInfo) -> Result<(), ErrorReport> {
    boundary(|| entry::capture(fcinfo))
}

/// Guard on stream tables and their state.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle._guard() RETURNS trigger LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn guard(fcinfo: pg_sys::FunctionCallInfo) -> Result<(), ErrorReport> {
    boundary(|| entry::guard(fcinfo))
}

/// Restored rows of a table of pgtrickle's own.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle._restore() RETURNS trigger LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#, requires = ["schemas"])]
pub(super) fn restore(fcinfo: pg_sys::FunctionCallInfo) -> Result<(), ErrorReport> {
    boundary(|| entry::restore(fcinfo))
}

/// After every DDL command.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle._on_ddl_end() RETURNS event_trigger LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
pub(super) fn on_ddl_end(fcinfo: pg_sys::FunctionCallInfo) -> Result<(), ErrorReport> {
    boundary(|| entry::command(fcinfo).and_then(|c| crate::evolve::on_ddl_end(&c)))
}

/// Before types, collations and extensions are dropped.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle._on_drop_start() RETURNS event_trigger LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
pub(super) fn on_drop_start(fcinfo: pg_sys::FunctionCallInfo) -> Result<(), ErrorReport> {
    boundary(|| crate::evolve::on_drop_start(|| entry::restricted_drop(fcinfo)))
}

/// After objects were dropped.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle._on_sql_drop() RETURNS event_trigger LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
pub(super) fn on_sql_drop(fcinfo: pg_sys::FunctionCallInfo) -> Result<(), ErrorReport> {
    boundary(|| entry::command(fcinfo).and_then(|c| crate::evolve::on_sql_drop(&c)))
}
