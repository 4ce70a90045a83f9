//! Relation locks, taken by oid and held until the end of the transaction.

use std::cell::Cell;
use std::ffi::CStr;
use std::time::{Duration, Instant};

use pgrx::pg_sys;

use crate::error::{Error, Result};
use crate::model::Oid;
use crate::pg::secctx::with_settings;
use crate::pg::spi::{self, Arg, Mode};
use crate::pg::{cache, guc, inheritance, names, subxact, worker};

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

thread_local! {
    static NEVER_WAITS: Cell<bool> = const { Cell::new(false) };
}

/// Settings under which nothing that is locked is waited for: the shortest time that there is.
const IMPATIENT: &[(&CStr, &CStr)] = &[(c"lock_timeout", c"1ms")];

/// Runs `f`, which belongs to somebody else's command and therefore waits for nobody: relations, rows and locks of ours that
/// can't be had at once are an error. Call it in a subtransaction.
pub fn without_waiting<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    let guard = NeverWaits(NEVER_WAITS.replace(true));
    let result = with_settings(IMPATIENT, f);
    drop(guard);
    result
}

/// Runs in a piece of work that may not wait?
fn never_waits() -> bool {
    NEVER_WAITS.get()
}

/// Plain thread-local state, so safe to restore while unwinding.
struct NeverWaits(bool);

impl Drop for NeverWaits {
    fn drop(&mut self) {
        NEVER_WAITS.set(self.0);
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

/// Locks a table with all its partitions and children, as a change of its triggers does; see `lock_tables`.
pub fn lock_tree(table: Oid, mode: LockMode) -> Result<()> {
    let tree: Vec<Oid> = inheritance::with_descendants(table)?.into_iter().collect();
    lock_tables(&tree, mode)
}

/// Longest time in the queue for a lock, where everybody who comes later waits behind it.
const QUEUEING: &[(&CStr, &CStr)] = &[(c"lock_timeout", c"80ms")];
/// First pause between two tries, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));
/// Every so many tries one waits in the queue: of a table that is always written by somebody the lock is never free.
const QUEUE_EVERY: u32 = 8;

/// Locks users' tables, all or none, until the end of the transaction. Nobody else is held up for longer than `QUEUEING` says while
/// this waits: it tries again and again, for as long as `pg_trickle.source_lock_timeout` and `lock_timeout` allow. Work that
/// never waits tries once.
pub fn lock_tables(tables: &[Oid], mode: LockMode) -> Result<()> {
    if never_waits() {
        let missed = tables.iter().find(|table| !try_lock_relation(**table, mode));
        return missed.map_or(Ok(()), |table| Err(held(*table, mode)));
    }
    let deadline = Instant::now() + patience();
    let mut pause = PAUSES.0;
    let mut tries = 0u32;
    loop {
        tries += 1;
        let queue = tries.is_multiple_of(QUEUE_EVERY);
        let mut blocked = None;
        // What was had of them is given back where one was not: nobody is to wait for a table while this waits for another.
        match subxact::run(|| all_or_none(tables, mode, queue, &mut blocked)) {
            Ok(()) => return Ok(()),
            Err(caught) => match blocked {
                Some(table) if Instant::now() >= deadline => return Err(held(table, mode)),
                Some(_) => {}
                None => return Err(Error::Internal(caught.message)),
            },
        }
        worker::wait(pause);
        pause = (pause * 2).min(PAUSES.1);
    }
}

fn all_or_none(tables: &[Oid], mode: LockMode, queue: bool, blocked: &mut Option<Oid>) -> Result<()> {
    let mut taken = Vec::new();
    for table in tables {
        if try_lock_relation(*table, mode) {
            taken.push(*table);
        } else if blocked.replace(*table).is_some() {
            break;
        }
    }
    let Some(table) = *blocked else { return Ok(()) };
    let missing = Error::LockNotAvailable { what: format!("relation {table}") };
    if !queue || taken.len() + 1 < tables.len() {
        return Err(missing);
    }
    with_settings(QUEUEING, || {
        lock_relation(table, mode);
        Ok(())
    })
}

/// How long a source may be waited for: never longer than the user himself would wait for a lock.
fn patience() -> Duration {
    // SAFETY: backend variable, in milliseconds; 0 is no limit.
    let users = unsafe { pg_sys::LockTimeout };
    let ours = guc::source_lock_timeout();
    match u64::try_from(users) {
        Ok(limit) if limit > 0 => ours.min(Duration::from_millis(limit)),
        _ => ours,
    }
}

/// The error about a table that somebody else holds.
fn held(table: Oid, mode: LockMode) -> Error {
    let what = names::shown(table);
    if never_waits() {
        return Error::LockNotAvailable { what };
    }
    let holders = subxact::run(|| holders(table, mode)).unwrap_or(None);
    Error::SourceLocked {
        name: what,
        holders: holders.unwrap_or_else(|| "a transaction that is gone by now".into()),
    }
}

/// Processes that hold what conflicts.
fn holders(table: Oid, mode: LockMode) -> Result<Option<String>> {
    let readers_too = mode == LockMode::AccessExclusive;
    let rows = spi::run(
        "SELECT pg_catalog.string_agg(DISTINCT COALESCE('process ' || l.pid, 'a prepared transaction'), ', ') \
         FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_database d ON d.oid = l.database \
         WHERE d.datname = pg_catalog.current_database() AND l.locktype = 'relation' AND l.relation = $1 AND l.granted \
           AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid() \
           AND ($2 OR l.mode NOT IN ('AccessShareLock', 'RowShareLock'))",
        &[Arg::Oid(table), Arg::Bool(readers_too)],
        Mode::Fresh,
    )?;
    Ok(rows.first().and_then(|mut row| row.opt(0)))
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
    /// A task: carried out by one at a time.
    Task(i64),
    /// Notifications that are to be sent: one sends them at a time.
    Alerts,
}

impl Ours {
    fn tag(self) -> (pg_sys::Oid, u16) {
        match self {
            Ours::StreamTable(oid) => (pg_sys::Oid::from(oid), 0),
            Ours::Buffer(oid) => (pg_sys::Oid::from(oid), 1),
            Ours::Baseline => (pg_sys::InvalidOid, 2),
            // The lowest 32 bits; two tasks so far from each other may well be taken for one.
            Ours::Task(id) => (pg_sys::Oid::from(id as u32), 3),
            Ours::Alerts => (pg_sys::InvalidOid, 4),
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
