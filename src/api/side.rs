//! Functions by which a refresh reaches the side tables. Everybody may execute them, since a refresh has its owner's
//! rights; each looks for itself whether a refresh is running that may.

use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::pg::entry;
use crate::pg::foreign::boundary;

/// What a side table's query returns: its own rows.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle_internal.kept(name cstring) RETURNS SETOF record STRICT
LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
GRANT EXECUTE ON FUNCTION pgtrickle_internal.kept TO PUBLIC;
"#, requires = ["catalog"])]
fn kept(fcinfo: pg_sys::FunctionCallInfo) -> Result<(), ErrorReport> {
    boundary(|| entry::kept(fcinfo))
}

/// Tells the planner how many rows `changes` returns.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle_internal.expected_rows(internal) RETURNS internal STRICT
LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
GRANT EXECUTE ON FUNCTION pgtrickle_internal.expected_rows TO PUBLIC;
"#, requires = ["catalog"])]
fn expected_rows(fcinfo: pg_sys::FunctionCallInfo) -> i64 {
    // A null pointer that is no NULL is the answer "no opinion".
    entry::expected_rows(fcinfo).map_or(0, |datum| datum.value() as i64)
}

/// Unconsumed changes of a source, equal rows counted together.
#[pg_extern(sql = r#"
CREATE FUNCTION pgtrickle_internal.changes(source oid, frontier text, own xid8, epoch integer) RETURNS SETOF record STRICT
ROWS 1000 SUPPORT pgtrickle_internal.expected_rows LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
GRANT EXECUTE ON FUNCTION pgtrickle_internal.changes TO PUBLIC;
"#, requires = ["catalog", expected_rows])]
fn changes(fcinfo: pg_sys::FunctionCallInfo) -> Result<(), ErrorReport> {
    boundary(|| entry::changes(fcinfo))
}
