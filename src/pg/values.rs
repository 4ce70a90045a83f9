//! Values between PostgreSQL's form and their bytes in an image.
//!
//! # Safety
//! Functions here that are not safe to call get values, descriptors and call data that are valid and of the kind that is
//! said beside them.

use pgrx::pg_sys;

use crate::dvm::image::{self, Values};
use crate::error::{Error, Result};
use crate::model::Oid;
use crate::pg::compat::descriptor_attribute;

/// How the values of a column are stored.
pub struct Kind {
    pub by_value: bool,
    pub length: i16,
}

/// Type and kind of each attribute of a descriptor from `first` on, and up to `last`.
///
/// # Safety
/// The descriptor has that many attributes.
pub unsafe fn kinds(desc: pg_sys::TupleDesc, first: usize, last: usize) -> Vec<(Oid, Kind)> {
    (first..last)
        .map(|i| {
            // SAFETY: per the contract.
            let attribute = unsafe { &*descriptor_attribute(desc, i) };
            let kind = Kind { by_value: attribute.attbyval, length: attribute.attlen };
            (attribute.atttypid.to_u32(), kind)
        })
        .collect()
}

/// Appends a value to an image. What is stored compressed, elsewhere or expanded is copied into the current context first.
///
/// # Safety
/// A value of this kind: a number, or a pointer to bytes of fixed length, a varlena (-1) or a C string (-2).
pub unsafe fn put(value: pg_sys::Datum, kind: &Kind, out: &mut Vec<u8>) {
    // SAFETY: per the contract.
    unsafe {
        if kind.by_value {
            let bytes = (value.value() as u64).to_le_bytes();
            return image::put(out, &bytes[..(kind.length as usize).min(8)]);
        }
        match kind.length {
            -1 => {
                let stored = value.cast_mut_ptr::<pg_sys::varlena>();
                let plain = if pgrx::varlena::varatt_is_4b_u(stored) || is_short(stored) {
                    stored
                } else {
                    pg_sys::pg_detoast_datum_packed(stored)
                };
                image::put(out, pgrx::varlena::varlena_to_byte_slice(plain));
            }
            -2 => image::put(out, std::ffi::CStr::from_ptr(value.cast_mut_ptr()).to_bytes()),
            n => image::put(out, std::slice::from_raw_parts(value.cast_mut_ptr::<u8>(), n as usize)),
        }
    }
}

/// Is it stored in place with a short header?
unsafe fn is_short(value: *const pg_sys::varlena) -> bool {
    // SAFETY: a varlena.
    unsafe { pgrx::varlena::varatt_is_1b(value) && !pgrx::varlena::varatt_is_1b_e(value) }
}

/// The result of a function that returns a set of records: some plain values, values of an image, some plain values.
pub struct Output {
    result: *mut pg_sys::ReturnSetInfo,
    before: usize,
    kinds: Vec<(Oid, Kind)>,
    values: Vec<pg_sys::Datum>,
    nulls: Vec<bool>,
    /// Memory of the values of one row, aligned for any type.
    scratch: Vec<u64>,
}

impl Output {
    /// Prepares the result. `before` and `after` are the types of the plain values at both ends.
    ///
    /// # Safety
    /// `fcinfo` comes from PostgreSQL's function manager, for such a function.
    pub unsafe fn new(
        fcinfo: pg_sys::FunctionCallInfo,
        before: &[pg_sys::Oid],
        after: &[pg_sys::Oid],
    ) -> Result<Output> {
        // SAFETY: per the contract; PostgreSQL checks the context of the call; attributes below natts.
        unsafe {
            pg_sys::InitMaterializedSRF(fcinfo, pg_sys::MAT_SRF_USE_EXPECTED_DESC);
            let result = (*fcinfo).resultinfo.cast::<pg_sys::ReturnSetInfo>();
            let desc = (*result).setDesc;
            let all = (*desc).natts as usize;
            let last = all.checked_sub(after.len()).filter(|last| *last >= before.len());
            let last = last.ok_or_else(bad_columns)?;
            let fits = |from: usize, types: &[pg_sys::Oid]| {
                types.iter().enumerate().all(|(i, t)| (*descriptor_attribute(desc, from + i)).atttypid == *t)
            };
            if !fits(0, before) || !fits(last, after) {
                return Err(bad_columns());
            }
            Ok(Output {
                result,
                before: before.len(),
                kinds: kinds(desc, before.len(), last),
                values: vec![pg_sys::Datum::null(); all],
                nulls: vec![false; all],
                scratch: Vec::new(),
            })
        }
    }

    /// Types of the values that come from images.
    pub fn types(&self) -> Vec<Oid> {
        self.kinds.iter().map(|(type_oid, _)| *type_oid).collect()
    }

    /// Names of their columns.
    pub fn names(&self) -> Vec<String> {
        (self.before..self.before + self.kinds.len())
            .map(|i| {
                // SAFETY: attributes of the result's descriptor; a name is NUL-terminated.
                unsafe {
                    let attribute = descriptor_attribute((*self.result).setDesc, i);
                    let name = std::ffi::CStr::from_ptr((*attribute).attname.data.as_ptr());
                    name.to_string_lossy().into_owned()
                }
            })
            .collect()
    }

    /// Adds a row.
    ///
    /// # Safety
    /// The plain values have the types that were announced.
    pub unsafe fn put(
        &mut self,
        before: &[pg_sys::Datum],
        mut row: Values<'_>,
        after: &[pg_sys::Datum],
    ) -> Result<()> {
        // Room first, so that nothing moves while values point to it.
        self.scratch.clear();
        self.scratch.resize(row.0.len() / 8 + 3 * self.kinds.len(), 0);
        let mut free = self.scratch.as_mut_slice();
        let mut at = before.len();
        self.values[..at].copy_from_slice(before);
        for (_, kind) in &self.kinds {
            let value = row.take()?;
            self.nulls[at] = value.is_none();
            if let Some(value) = value {
                self.values[at] = place(value, kind, &mut free)?;
            }
            at += 1;
        }
        self.values[at..].copy_from_slice(after);
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

/// A list of columns that the function can't return.
pub fn bad_columns() -> Error {
    Error::Internal("a function of pgtrickle was called with a bad list of columns".into())
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
