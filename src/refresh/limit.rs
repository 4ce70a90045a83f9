//! How long a scheduled refresh may apply changes: no longer than computing the contents anew would take.
#![forbid(unsafe_code)]

use std::time::Duration;

use crate::catalog::history;
use crate::error::Result;
use crate::model::Oid;
use crate::pg::guc;

/// While nobody knows how long computing them takes.
const UNKNOWN: Duration = Duration::from_secs(60);
/// Shorter limits would end refreshes for a moment's load.
const LEAST: Duration = Duration::from_secs(5);

/// The limit for one stream table.
pub fn of(relid: Oid) -> Result<Duration> {
    match guc::refresh_timeout() {
        Some(limit) => Ok(limit),
        None => Ok(derived(history::last_computed(relid)?)),
    }
}

/// From the time that computing took the last time.
fn derived(computed: Option<Duration>) -> Duration {
    computed.map_or(UNKNOWN, |took| (took * 2).max(LEAST))
}

/// Why contents are computed anew after it.
pub fn ended(limit: Duration) -> String {
    format!(
        "applying the changes took longer than {} s (pg_trickle.refresh_timeout)",
        limit.as_millis() as f64 / 1000.0
    )
}
