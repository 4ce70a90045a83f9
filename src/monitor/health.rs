//! `health_check()`.
#![forbid(unsafe_code)]

use crate::error::Result;
use crate::pg::spi::{self, Arg, Mode};

/// Rows (check, status, detail); status is OK, WARN or FAIL.
pub fn check() -> Result<Vec<(String, String, String)>> {
    let preloaded = crate::pg::preloaded();
    spi::run(include_str!("../../sql/queries/health.sql"), &[Arg::Bool(preloaded)], Mode::Fresh)?
        .into_iter()
        .map(|mut row| Ok((row.text(0)?, row.text(1)?, row.text(2)?)))
        .collect()
}
