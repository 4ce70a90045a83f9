//! Relation locks, taken by oid and held until the end of the transaction.

use pgrx::pg_sys;

use crate::error::{Error, Result};
use crate::model::Oid;
use crate::pg::{cache, names};

/// Lock modes in use, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    AccessShare,
    RowExclusive,
    ShareRowExclusive,
    AccessExclusive,
}

impl LockMode {
    fn level(self) -> i32 {
        let level = match self {
            LockMode::AccessShare => pg_sys::AccessShareLock,
            LockMode::RowExclusive => pg_sys::RowExclusiveLock,
            LockMode::ShareRowExclusive => pg_sys::ShareRowExclusiveLock,
            LockMode::AccessExclusive => pg_sys::AccessExclusiveLock,
        };
        level as i32
    }
}

/// Waits for the lock. The relation may be gone afterwards: check.
pub fn lock_relation(oid: Oid, mode: LockMode) {
    // SAFETY: takes a heavyweight lock; raises on cancel or deadlock.
    unsafe { pg_sys::LockRelationOid(pg_sys::Oid::from(oid), mode.level()) };
}

/// Takes the lock if it can be had at once.
pub fn try_lock_relation(oid: Oid, mode: LockMode) -> bool {
    // SAFETY: takes a heavyweight lock, or none.
    unsafe { pg_sys::ConditionalLockRelationOid(pg_sys::Oid::from(oid), mode.level()) }
}

/// Takes a lock on a table of pgtrickle's own if it can be had at once: somebody may hold another one for as long as he likes.
pub fn try_lock_own(name: &'static std::ffi::CStr, mode: LockMode) -> Result<()> {
    let shown = || format!("pgtrickle.{}", name.to_string_lossy());
    let Some(oid) = names::own_relation(name) else { return Err(Error::OwnTableMissing { name: shown() }) };
    if try_lock_relation(oid, mode) { Ok(()) } else { Err(Error::LockNotAvailable { what: shown() }) }
}

/// Gives a lock back before the transaction ends.
pub fn unlock_relation(oid: Oid, mode: LockMode) {
    // SAFETY: a lock of that mode is held.
    unsafe { pg_sys::UnlockRelationOid(pg_sys::Oid::from(oid), mode.level()) };
}

/// What our own object locks protect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ours {
    /// One stream table: one refresh or change of definition at a time.
    StreamTable(Oid),
    /// A source's buffer: shared by those who compute contents from the table and will start from a snapshot that
    /// nobody else knows yet; exclusive for trimming, which must not remove what they have still to consume.
    Buffer(Oid),
    /// The baseline pass, which runs once at a time; `baseline_progress` looks for it.
    Baseline,
}

impl Ours {
    fn tag(self) -> (pg_sys::Oid, u16) {
        match self {
            Ours::StreamTable(oid) => (pg_sys::Oid::from(oid), 0),
            Ours::Buffer(oid) => (pg_sys::Oid::from(oid), 1),
            Ours::Baseline => (pg_sys::InvalidOid, 2),
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
