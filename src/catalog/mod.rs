//! The catalog tables: one file each, the only reader and writer of it. All functions expect the rights of the
//! extension's owner and the pinned search_path (`pg::secctx::as_extension`).
#![forbid(unsafe_code)]

pub mod captures;
pub mod dependencies;
pub mod failures;
pub mod hash_keys;
pub mod history;
pub mod restored;
pub mod snapshots;
pub mod sources;
pub mod stream_tables;
mod tables;
pub mod tasks;

use crate::error::Result;
use crate::pg::own_rows;
use crate::pg::spi::{Arg, Mode};
use crate::sqltext::rows::{Assignment, Table};

/// Adds a row. `values` are expressions of the arguments.
fn insert(table: &Table, values: &[Assignment], args: &[Arg], mode: Mode) -> Result<()> {
    own_rows::put(table, &table.insert(values)?, args, mode).map(|_| ())
}

/// Changes the rows of a condition on `t`.
fn update(table: &Table, values: &[Assignment], condition: &str, args: &[Arg], mode: Mode) -> Result<()> {
    own_rows::put(table, &table.update(values, condition)?, args, mode).map(|_| ())
}

/// Deletes the rows of a condition on `t`. How many there were.
fn delete(table: &Table, condition: &str, args: &[Arg], mode: Mode) -> Result<u64> {
    own_rows::delete(table, &table.delete(condition), args, mode)
}

/// A number of rows as PostgreSQL counts.
fn count(rows: u64) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}
