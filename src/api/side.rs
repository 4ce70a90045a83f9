//! Functions by which a refresh reaches the side tables, with the rights of the stream table's owner; each looks for itself
//! whether a refresh is running that may.

use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::pg::entry;
use crate::pg::foreign::boundary;

/// What the query of a table of pgtrickle's own returns: its rows.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle_internal.own_rows(schema name, name name) RETURNS SETOF record STRICT
LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#, requires = ["schemas"])]
pub(super) fn own_rows(fcinfo: pg_sys::FunctionCallInfo) -> Result<(), ErrorReport> {
    boundary(|| entry::own_rows(fcinfo))
}

/// Tells the planner how many rows `changes` returns.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle_internal.expected_rows(internal) RETURNS internal STRICT
LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#, requires = ["catalog"])]
fn expected_rows(fcinfo: pg_sys::FunctionCallInfo) -> i64 {
    // A null pointer that is no NULL is the answer "no opinion".
    entry::expected_rows(fcinfo).map_or(0, |datum| datum.value() as i64)
}

/// Unconsumed changes of a source, equal rows counted together.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle_internal.changes(source oid, frontier text, own xid8, epoch integer) RETURNS SETOF record STRICT
ROWS 1000 SUPPORT pgtrickle_internal.expected_rows LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#, requires = ["catalog", expected_rows])]
fn changes(fcinfo: pg_sys::FunctionCallInfo) -> Result<(), ErrorReport> {
    boundary(|| entry::changes(fcinfo))
}

/// Rows of a state table: all, or those with one of the hashes.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle_internal.state(state oid, hashes bigint[]) RETURNS SETOF record
ROWS 1000 LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#, requires = ["catalog"])]
fn state(fcinfo: pg_sys::FunctionCallInfo) -> Result<(), ErrorReport> {
    boundary(|| entry::read_state(fcinfo))
}

/// The bytes of a row's values, by which rows are told apart that are equal and print differently.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle_internal.row_image(row_value record) RETURNS bytea IMMUTABLE STRICT PARALLEL SAFE
LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#, requires = ["catalog"])]
fn row_image(fcinfo: pg_sys::FunctionCallInfo) -> Result<Vec<u8>, ErrorReport> {
    boundary(|| entry::row_image(fcinfo))
}

/// Takes the rows that `write_state` writes.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle_internal.write_row(internal, state oid, tid tid, image record) RETURNS internal
LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#, requires = ["catalog"])]
fn write_row(fcinfo: pg_sys::FunctionCallInfo) -> Result<i64, ErrorReport> {
    boundary(|| entry::write_state(fcinfo))
}

/// Ends `write_state`: the number of rows that it got.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle_internal.rows_written(internal) RETURNS bigint
LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
CREATE AGGREGATE pgtrickle_internal.write_state(state oid, tid tid, image record) (
  SFUNC = pgtrickle_internal.write_row, STYPE = internal, FINALFUNC = pgtrickle_internal.rows_written, PARALLEL = RESTRICTED
);
"#, requires = ["catalog", write_row])]
fn rows_written(fcinfo: pg_sys::FunctionCallInfo) -> i64 {
    entry::state_written(fcinfo)
}
