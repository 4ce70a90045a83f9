//! The function by which a refresh reads a buffer: what the frontier has not passed, equal rows counted together.
//!
//! # Safety
//! Functions here that are not safe to call take call data of PostgreSQL's function manager for the functions that they
//! are the bodies of.

use pgrx::pg_sys;

use crate::dvm::consolidate::Consolidation;
use crate::dvm::frontier::Frontier;
use crate::error::{Error, Result};
use crate::pg::values::{Output, bad_columns};
use crate::pg::{access, side};

/// The body of `changes(source, snapshot, own xid, epoch)`. The columns asked for are named `c<attnum>`, the last is the
/// weight.
///
/// # Safety
/// See the module's doc.
pub unsafe fn changes(fcinfo: pg_sys::FunctionCallInfo) -> Result<()> {
    // SAFETY: per the contract; the arguments have these types, and the function is strict.
    unsafe {
        let argument = || Error::Internal("changes() without its arguments".into());
        let source: pg_sys::Oid = pgrx::pg_getarg(fcinfo, 0).ok_or_else(argument)?;
        let source = source.to_u32();
        access::check_source(source)?;
        let snapshot: &str = pgrx::pg_getarg(fcinfo, 1).ok_or_else(argument)?;
        let own = pgrx::pg_getarg_datum(fcinfo, 2).ok_or_else(argument)?.value() as u64;
        let epoch: i32 = pgrx::pg_getarg(fcinfo, 3).ok_or_else(argument)?;
        let frontier = Frontier::parse(snapshot, &own.to_string(), epoch)?;
        let mut out = Output::new(fcinfo, &[], &[pg_sys::INT8OID])?;
        let numbers = out.names().into_iter().map(|name| {
            name.strip_prefix('c').and_then(|number| number.parse::<i16>().ok()).ok_or_else(bad_columns)
        });
        let numbers = numbers.collect::<Result<Vec<_>>>()?;
        let mut rows = Consolidation::new(numbers.into_iter().zip(out.types()).collect());
        let limit = pg_sys::get_hash_memory_limit().max(1 << 20);
        side::scan(source, |change| {
            if frontier.has_passed(change.xid, change.epoch) {
                return Ok(());
            }
            change.each_row(|image, weight| rows.add(image, weight))?;
            if rows.size() > limit {
                rows.compact();
                if rows.size() > limit / 2 {
                    rows.drain(|values, weight| out.put(&[], values, &[weight.into()]))?;
                }
            }
            Ok(())
        })?;
        rows.drain(|values, weight| out.put(&[], values, &[weight.into()]))
    }
}

/// The planner's question how many rows `changes()` returns. Without an answer the function's own estimate counts.
///
/// # Safety
/// See the module's doc.
pub unsafe fn expected_rows(fcinfo: pg_sys::FunctionCallInfo) -> Option<pg_sys::Datum> {
    // SAFETY: a support function gets one node, and answers with it or with a null pointer.
    unsafe {
        let request = pgrx::pg_getarg_datum(fcinfo, 0)?;
        let node = request.cast_mut_ptr::<pg_sys::Node>();
        let rows = access::expected()?;
        if (*node).type_ != pg_sys::NodeTag::T_SupportRequestRows {
            return None;
        }
        (*node.cast::<pg_sys::SupportRequestRows>()).rows = rows;
        Some(request)
    }
}
