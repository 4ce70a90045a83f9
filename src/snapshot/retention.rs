//! Which snapshots go. The newest of a table always stays: it is what the next change is compared with.
#![forbid(unsafe_code)]

use crate::catalog::snapshots;
use crate::error::{Error, Result};
use crate::pg::guc::Retention;

/// Removes snapshots that are not among the newest `keep_last` of their table and older than `older_than` (an interval as
/// text); each that is not given does not hold any back. Returns how many.
pub(crate) fn prune(keep_last: Option<i32>, older_than: Option<&str>) -> Result<i64> {
    if keep_last.is_none() && older_than.is_none() {
        return Err(Error::BadArgument {
            argument: "keep_last and older_than",
            value: "NULL".into(),
            hint: "Pass at least one of them, for example keep_last => 10.".into(),
        });
    }
    snapshots::prune(keep_last.unwrap_or(1).max(1), older_than)
}

/// Removes what the scheduler's policy does not keep, the oldest first and at most `batch`; returns how many.
pub(crate) fn enforce(policy: &Retention, batch: i64) -> Result<i64> {
    if policy.snapshot_max_age == 0 && policy.snapshot_max_dropped == 0 {
        return Ok(0);
    }
    snapshots::enforce(policy, batch)
}

/// Makes snapshots of one shape made again and again one row that counts them, at most `batch` at once; returns how many went.
pub(crate) fn fold(batch: i64) -> Result<i64> {
    snapshots::fold(batch)
}
