//! The function by which a refresh reads a buffer: what the frontier has not passed, equal rows counted together.
//!
//! # Safety
//! Functions here that are not safe to call take call data of PostgreSQL's function manager for the functions that they
//! are the bodies of.

use pgrx::pg_sys;

use crate::dvm::consolidate::Consolidation;
use crate::dvm::frontier::Frontier;
use crate::dvm::image::Values;
use crate::error::{Error, Result};
use crate::model::Oid;
use crate::pg::compat::descriptor_attribute;
use crate::pg::{access, side};

/// How the values of a column are stored.
struct Kind {
    by_value: bool,
    length: i16,
}

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
        pg_sys::InitMaterializedSRF(fcinfo, pg_sys::MAT_SRF_USE_EXPECTED_DESC);
        let result = (*fcinfo).resultinfo.cast::<pg_sys::ReturnSetInfo>();
        let mut out = Output::new(result)?;
        let mut rows = Consolidation::new(out.wanted.clone());
        let limit = pg_sys::get_hash_memory_limit().max(1 << 20);
        side::scan(source, |change| {
            if change.weight == 0 || frontier.has_passed(change.xid, change.epoch) {
                return Ok(());
            }
            change.with_image(|image| rows.add(image, change.weight.into()))?;
            if rows.size() > limit {
                rows.compact();
                if rows.size() > limit / 2 {
                    rows.drain(|values, weight| out.put(values, weight))?;
                }
            }
            Ok(())
        })?;
        rows.drain(|values, weight| out.put(values, weight))
    }
}

/// Where the rows go.
struct Output {
    result: *mut pg_sys::ReturnSetInfo,
    wanted: Vec<(i16, Oid)>,
    kinds: Vec<Kind>,
    values: Vec<pg_sys::Datum>,
    nulls: Vec<bool>,
    /// Memory of the values of one row, aligned for any type.
    scratch: Vec<u64>,
}

impl Output {
    /// # Safety
    /// `result` was prepared by InitMaterializedSRF.
    unsafe fn new(result: *mut pg_sys::ReturnSetInfo) -> Result<Output> {
        let bad = || Error::Internal("changes() with a bad list of columns".into());
        let (mut wanted, mut kinds) = (Vec::new(), Vec::new());
        // SAFETY: per the contract; attributes below natts.
        unsafe {
            let desc = (*result).setDesc;
            let count = ((*desc).natts as usize).checked_sub(1).ok_or_else(bad)?;
            if (*descriptor_attribute(desc, count)).atttypid != pg_sys::INT8OID {
                return Err(bad());
            }
            for i in 0..count {
                let attribute = descriptor_attribute(desc, i);
                let name = std::ffi::CStr::from_ptr((*attribute).attname.data.as_ptr()).to_string_lossy();
                let number = name.strip_prefix('c').and_then(|n| n.parse().ok()).ok_or_else(bad)?;
                wanted.push((number, (*attribute).atttypid.to_u32()));
                kinds.push(Kind { by_value: (*attribute).attbyval, length: (*attribute).attlen });
            }
            let values = vec![pg_sys::Datum::null(); count + 1];
            Ok(Output { result, wanted, kinds, values, nulls: vec![false; count + 1], scratch: Vec::new() })
        }
    }

    fn put(&mut self, mut row: Values<'_>, weight: i64) -> Result<()> {
        // Room first, so that nothing moves while values point to it.
        let room = row.0.len() / 8 + 3 * self.kinds.len();
        self.scratch.clear();
        self.scratch.resize(room, 0);
        let mut free = self.scratch.as_mut_slice();
        for (i, kind) in self.kinds.iter().enumerate() {
            let value = row.next()?;
            self.nulls[i] = value.is_none();
            if let Some(value) = value {
                self.values[i] = place(value, kind, &mut free)?;
            }
        }
        if let Some(last) = self.values.last_mut() {
            *last = pg_sys::Datum::from(weight);
        }
        // SAFETY: prepared by InitMaterializedSRF; one value and one flag for each column; the store copies them.
        unsafe {
            pg_sys::tuplestore_putvalues(
                (*self.result).setResult,
                (*self.result).setDesc,
                self.values.as_mut_ptr(),
                self.nulls.as_mut_ptr(),
            );
        }
        Ok(())
    }
}

/// A value from its stored bytes; what is no number itself is put into `free`.
fn place(bytes: &[u8], kind: &Kind, free: &mut &mut [u64]) -> Result<pg_sys::Datum> {
    let damaged = || Error::Internal("a stored value has another length than its type".into());
    if kind.by_value {
        // As PostgreSQL itself reads stored numbers: with their sign.
        let number = match *bytes {
            [a] => i64::from(a as i8),
            [a, b] => i64::from(i16::from_le_bytes([a, b])),
            [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => i64::from_le_bytes([a, b, c, d, e, f, g, h]),
            _ => return Err(damaged()),
        };
        return Ok(pg_sys::Datum::from(number));
    }
    let prefix = if kind.length == -1 { 4 } else { 0 };
    let length = prefix + bytes.len() + usize::from(kind.length == -2);
    if kind.length > 0 && length != kind.length as usize {
        return Err(damaged());
    }
    let (mine, rest) = std::mem::take(free).split_at_mut_checked(length.div_ceil(8)).ok_or_else(damaged)?;
    *free = rest;
    // SAFETY: `mine` has room for the prefix, the bytes, and a terminator, which is there since it was zeroed.
    unsafe {
        let start = mine.as_mut_ptr().cast::<u8>();
        if prefix != 0 {
            pgrx::varlena::set_varsize_4b(start.cast(), length as i32);
        }
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), start.add(prefix), bytes.len());
        Ok(pg_sys::Datum::from(start))
    }
}

/// The planner's question how many rows `changes()` returns. Without an answer the function's own estimate counts.
///
/// # Safety
/// See the module's doc.
pub unsafe fn expected_rows(fcinfo: pg_sys::FunctionCallInfo) -> Option<pg_sys::Datum> {
    // SAFETY: a support function gets one node, and answers with it or with NULL.
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
