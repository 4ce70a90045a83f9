//! From the function manager's raw call data to the typed entry points. PostgreSQL calls these functions only with call
//! data of its own; what kind of call it is, each checks.

use pgrx::pg_sys;

use crate::error::Result;
use crate::pg::{capture, changes, drop_command, event, own_rows, row_image, state};

/// Row and TRUNCATE trigger.
pub fn capture(fcinfo: pg_sys::FunctionCallInfo) -> Result<()> {
    // SAFETY: see the module's doc.
    unsafe { capture::capture(fcinfo) }
}

/// Guard trigger.
pub fn guard(fcinfo: pg_sys::FunctionCallInfo) -> Result<()> {
    // SAFETY: see the module's doc.
    unsafe { capture::guard(fcinfo) }
}

/// Event trigger data.
pub fn command(fcinfo: pg_sys::FunctionCallInfo) -> Result<event::Command> {
    // SAFETY: see the module's doc.
    unsafe { event::command(fcinfo) }
}

/// What a DROP without CASCADE names.
pub fn restricted_drop(fcinfo: pg_sys::FunctionCallInfo) -> Result<Vec<drop_command::Object>> {
    // SAFETY: see the module's doc.
    unsafe { drop_command::restricted_drop(fcinfo) }
}

/// Unconsumed changes.
pub fn changes(fcinfo: pg_sys::FunctionCallInfo) -> Result<()> {
    // SAFETY: see the module's doc.
    unsafe { changes::changes(fcinfo) }
}

/// The planner's question about them.
pub fn expected_rows(fcinfo: pg_sys::FunctionCallInfo) -> Option<pg_sys::Datum> {
    // SAFETY: see the module's doc.
    unsafe { changes::expected_rows(fcinfo) }
}

/// Rows of a state table.
pub fn read_state(fcinfo: pg_sys::FunctionCallInfo) -> Result<()> {
    // SAFETY: see the module's doc.
    unsafe { state::read(fcinfo) }
}

/// One row for a state table.
pub fn write_state(fcinfo: pg_sys::FunctionCallInfo) -> Result<i64> {
    // SAFETY: see the module's doc.
    unsafe { state::write(fcinfo) }
}

/// The end of them.
pub fn state_written(fcinfo: pg_sys::FunctionCallInfo) -> i64 {
    // SAFETY: see the module's doc.
    unsafe { state::written(fcinfo) }
}

/// What a row is made of.
pub fn row_image(fcinfo: pg_sys::FunctionCallInfo) -> Result<Vec<u8>> {
    // SAFETY: see the module's doc.
    unsafe { row_image::row_image(fcinfo) }
}

/// Rows of a table of our own, for its own query.
pub fn own_rows(fcinfo: pg_sys::FunctionCallInfo) -> Result<()> {
    // SAFETY: see the module's doc.
    unsafe { own_rows::own_rows(fcinfo) }
}

/// Trigger for restored rows.
pub fn restore(fcinfo: pg_sys::FunctionCallInfo) -> Result<()> {
    // SAFETY: see the module's doc.
    unsafe { own_rows::restore(fcinfo) }
}
