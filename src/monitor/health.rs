//! `health_check()`.
#![forbid(unsafe_code)]

use crate::error::Result;
use crate::model::Oid;
use crate::pg::spi::{self, Arg, Mode};

/// Rows (check, status, detail); status is OK, WARN or FAIL.
pub fn check(user: Oid) -> Result<Vec<(String, String, String)>> {
    let args = [Arg::Bool(crate::pg::preloaded()), Arg::Oid(user), Arg::Bool(crate::pg::guc::enabled())];
    spi::run(include_str!("../../sql/queries/health.sql"), &args, Mode::Fresh)?
        .into_iter()
        .map(|mut row| Ok((row.text(0)?, row.text(1)?, row.text(2)?)))
        .collect()
}
