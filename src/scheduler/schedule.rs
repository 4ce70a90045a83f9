//! Which stream tables are due.
#![forbid(unsafe_code)]

use crate::model::Oid;
use crate::scheduler::backoff::Backoff;
use std::time::Duration;

/// A moment, in microseconds; only differences count.
pub type Micros = i64;

/// What the scheduler knows of one active stream table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The stream table.
    pub table: Oid,
    /// Longest wanted age; none for refreshes by hand only.
    pub schedule: Option<Duration>,
    /// Start of the last attempt, successful or not; none before the first one.
    pub last_attempt: Option<Micros>,
    /// Failures in a row.
    pub failures: u32,
    /// Attempts in a row that ended at somebody's lock: no failures, and tried again whatever the schedule.
    pub waits: u32,
}

/// After an attempt that ended at a lock.
const WAITING: Backoff = Backoff { first: Duration::from_secs(1), cap: Duration::from_secs(30) };

/// A stream table is late when it has not been up to date for so long.
pub fn late_after(schedule: Duration) -> Duration {
    (schedule * 3).max(Duration::from_secs(30))
}

impl Entry {
    /// The moment from which it is due: the schedule after the last attempt, or the back-off where that is longer.
    /// None: never.
    pub fn due_at(&self, now: Micros, backoff: &Backoff) -> Option<Micros> {
        let schedule = self.schedule?;
        // An attempt in the future means that the clock was set back. Don't wait for it to catch up.
        let Some(last) = self.last_attempt.filter(|last| *last <= now) else { return Some(now) };
        let wait = match self.waits {
            0 => schedule.max(backoff.delay(self.failures)),
            waits => WAITING.delay(waits),
        };
        Some(last.saturating_add(Micros::try_from(wait.as_micros()).unwrap_or(Micros::MAX)))
    }
}

/// The tables that are due, the most overdue first, then by oid. Put them into `dag::order` before refreshing.
pub fn due(now: Micros, entries: &[Entry], backoff: &Backoff) -> Vec<Oid> {
    let mut due: Vec<(Micros, Oid)> = entries
        .iter()
        .filter_map(|e| e.due_at(now, backoff).map(|at| (at, e.table)))
        .filter(|(at, _)| *at <= now)
        .collect();
    due.sort_unstable();
    due.into_iter().map(|(_, table)| table).collect()
}
