//! `pgtrickle.pgt_hash_keys`: the key of the digests that stand for values.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::pg::lock::{LockMode, try_lock_own};
use crate::pg::spi::{self, Mode};

/// The key in force: the oldest.
pub fn key() -> Result<String> {
    try_lock_own(c"pgt_hash_keys", LockMode::AccessShare)?;
    let rows = spi::run(
        "SELECT key FROM pgtrickle.pgt_hash_keys ORDER BY created_at, key LIMIT 1",
        &[],
        Mode::Fresh,
    )?;
    match rows.first() {
        Some(mut row) => row.text(0),
        None => Err(Error::Internal("pgtrickle.pgt_hash_keys is empty".into())),
    }
}
