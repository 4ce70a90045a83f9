//! A row as bytes, with the number and type of each of its columns: what buffers and state tables hold. They so depend
//! on no type that a user could drop or change, and a value of another type than expected is noticed.
//!
//! `count`, then per column its number and type oid, then per column its value: 0 for NULL, or its length + 1 and its bytes.
//! Lengths are in groups of seven bits, lowest first. Two rows of one layout are the same image exactly when their bytes are.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::model::Oid;

/// Bytes of one column in a header.
const COLUMN: usize = 6;

/// The first part of an image: numbers and types of its columns.
pub fn header(columns: &[(i16, Oid)]) -> Vec<u8> {
    let count = u16::try_from(columns.len()).unwrap_or(u16::MAX);
    let mut out = Vec::with_capacity(2 + COLUMN * columns.len());
    out.extend(count.to_le_bytes());
    for (number, type_oid) in columns {
        out.extend(number.to_le_bytes());
        out.extend(type_oid.to_le_bytes());
    }
    out
}

/// Appends a NULL.
pub fn put_null(out: &mut Vec<u8>) {
    out.push(0);
}

/// Appends a value.
pub fn put(out: &mut Vec<u8>, value: &[u8]) {
    let mut rest = value.len() as u64 + 1;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
    out.extend_from_slice(value);
}

/// The header of an image, and its values.
pub fn split(image: &[u8]) -> Result<(&[u8], &[u8])> {
    let count = image.first_chunk::<2>().map(|c| usize::from(u16::from_le_bytes(*c))).ok_or_else(damaged)?;
    image.split_at_checked(2 + COLUMN * count).ok_or_else(damaged)
}

/// Two images in one: a row as it was before an update, and as it is after it.
pub fn pair(before: &[u8], after: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 + before.len() + after.len());
    // The write path keeps no image that is as long.
    out.extend(u32::try_from(before.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(before);
    out.extend_from_slice(after);
    out
}

/// The images of a pair.
pub fn split_pair(pair: &[u8]) -> Result<(&[u8], &[u8])> {
    let (length, images) = pair.split_first_chunk::<4>().ok_or_else(damaged)?;
    images.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(damaged)
}

/// Numbers and types of the columns of a header.
pub fn columns(header: &[u8]) -> Vec<(i16, Oid)> {
    let (columns, _) = header.get(2..).unwrap_or(&[]).as_chunks::<COLUMN>();
    columns
        .iter()
        .map(|[a, b, c, d, e, f]| (i16::from_le_bytes([*a, *b]), Oid::from_le_bytes([*c, *d, *e, *f])))
        .collect()
}

/// The values of an image, one after the other.
pub struct Values<'a>(pub &'a [u8]);

impl<'a> Values<'a> {
    /// The next value; inside, None is NULL.
    pub fn take(&mut self) -> Result<Option<&'a [u8]>> {
        let (mut length, mut shift) = (0u64, 0);
        loop {
            let (byte, rest) = self.0.split_first().ok_or_else(damaged)?;
            self.0 = rest;
            length |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
            if shift > 56 {
                return Err(damaged());
            }
        }
        let Some(length) = length.checked_sub(1) else { return Ok(None) };
        let (value, rest) = self.0.split_at_checked(length as usize).ok_or_else(damaged)?;
        self.0 = rest;
        Ok(Some(value))
    }
}

fn damaged() -> Error {
    Error::Internal("a stored row image is damaged".into())
}
