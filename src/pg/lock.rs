//! Relation locks, taken by oid and held until the end of the transaction.

use pgrx::pg_sys;

use crate::error::Result;
use crate::model::Oid;
use crate::pg::cache;

/// Lock modes in use, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    AccessShare,
    RowExclusive,
    ShareRowExclusive,
    AccessExclusive,
}

/// Waits for the lock. The relation may be gone afterwards: check.
pub fn lock_relation(oid: Oid, mode: LockMode) {
    let level = match mode {
        LockMode::AccessShare => pg_sys::AccessShareLock,
        LockMode::RowExclusive => pg_sys::RowExclusiveLock,
        LockMode::ShareRowExclusive => pg_sys::ShareRowExclusiveLock,
        LockMode::AccessExclusive => pg_sys::AccessExclusiveLock,
    };
    // SAFETY: takes a heavyweight lock; raises on cancel or deadlock.
    unsafe { pg_sys::LockRelationOid(pg_sys::Oid::from(oid), level as i32) };
}

/// What our own object locks protect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ours {
    /// One stream table: one refresh or change of definition at a time.
    StreamTable(Oid),
    /// A source's buffer: shared by those who compute contents from the table and will start from a snapshot that
    /// nobody else knows yet; exclusive for trimming, which must not remove what they have still to consume.
    Buffer(Oid),
}

impl Ours {
    fn tag(self) -> (pg_sys::Oid, u16) {
        match self {
            Ours::StreamTable(oid) => (pg_sys::Oid::from(oid), 0),
            Ours::Buffer(oid) => (pg_sys::Oid::from(oid), 1),
        }
    }
}

/// Waits for one of our own locks, exclusive or shared, until the end of the transaction.
pub fn lock_ours(what: Ours, exclusive: bool) -> Result<()> {
    let (oid, sub) = what.tag();
    let class = pg_sys::Oid::from(cache::catalog_oid()?);
    let mode = if exclusive { pg_sys::ExclusiveLock } else { pg_sys::ShareLock };
    // SAFETY: takes a heavyweight lock on a tag that only pgtrickle uses (the class is its own catalog table).
    unsafe { pg_sys::LockDatabaseObject(class, oid, sub, mode as i32) };
    Ok(())
}

/// The exclusive lock if it can be had at once.
pub fn try_lock_ours(what: Ours) -> Result<bool> {
    let (oid, sub) = what.tag();
    let class = pg_sys::Oid::from(cache::catalog_oid()?);
    // SAFETY: as above.
    Ok(unsafe { pg_sys::ConditionalLockDatabaseObject(class, oid, sub, pg_sys::ExclusiveLock as i32) })
}
