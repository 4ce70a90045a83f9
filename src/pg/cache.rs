//! What this backend knows between statements: which relations changed, the version of all definitions, the epoch of its
//! own buffered rows, and where it does work of its own.
//!
//! PostgreSQL tells every backend which relations' catalog rows changed (relcache invalidation), by oid. The event
//! triggers ask `pg/concern.rs` about those alone; whether the running command changed them is told by the catalogs.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use pgrx::pg_guard;
use pgrx::pg_sys;

use crate::error::{Error, Result};
use crate::model::Oid;
use crate::pg::foreign;
use crate::pg::names::{self, own_relation};
use crate::pg::shmem;

/// Relations whose catalog rows may have changed.
#[derive(Debug, PartialEq, Eq)]
pub enum Touched {
    These(Vec<Oid>),
    /// Too many to tell, or PostgreSQL has lost count.
    Unknown,
}

thread_local! {
    /// Oid of the catalog table whose invalidation means that definitions changed; 0 while it is not known.
    static CATALOG: Cell<Oid> = const { Cell::new(0) };
    /// Owner of the extension, as of a version of the definitions.
    static OWNER: Cell<Option<(u64, Oid)>> = const { Cell::new(None) };
    /// Invalidated relations of this transaction since the last look; None means "could be any".
    static DIRTY: RefCell<Option<HashSet<Oid>>> = const { RefCell::new(None) };
    /// Changes with every change of a definition.
    static DEFINITIONS: Cell<u64> = const { Cell::new(1) };
    /// Something was read of definitions in this transaction: what it sees of its own is not to be believed after an abort.
    static READ: Cell<bool> = const { Cell::new(false) };
    static GENERATION: Cell<u64> = const { Cell::new(0) };
    static EPOCH: Cell<i32> = const { Cell::new(0) };
    static WORK: Cell<Option<Work>> = const { Cell::new(None) };
    static OWN_COMMAND: Cell<Option<Level>> = const { Cell::new(None) };
    /// Oid of the catalog table that the launcher was told of.
    static TOLD: Cell<Oid> = const { Cell::new(0) };
    /// This transaction changed a definition: a worker should look soon.
    static WANTED: Cell<bool> = const { Cell::new(false) };
}

/// More invalidations than this between two looks are kept as "could be any".
const MAX_DIRTY: usize = 10_000;

/// Registers the callbacks, from `_PG_init`: in the postmaster, for all backends to come, or in one backend when it first
/// needs the library. There the running command may have changed something already.
pub fn register() {
    // SAFETY: backend variable.
    if unsafe { pg_sys::process_shared_preload_libraries_in_progress } {
        DIRTY.set(Some(HashSet::new()));
    }
    // SAFETY: the callbacks are functions of this library, which is never unloaded.
    unsafe {
        pg_sys::CacheRegisterRelcacheCallback(Some(on_relcache), pg_sys::Datum::null());
        // Names, rights and meanings that come from elsewhere than a relation's own catalog rows.
        for kind in [
            pg_sys::SysCacheIdentifier::NAMESPACEOID,
            pg_sys::SysCacheIdentifier::TYPEOID,
            pg_sys::SysCacheIdentifier::AUTHOID,
            pg_sys::SysCacheIdentifier::PROCOID,
            pg_sys::SysCacheIdentifier::AGGFNOID,
            pg_sys::SysCacheIdentifier::OPEROID,
            pg_sys::SysCacheIdentifier::COLLOID,
            pg_sys::SysCacheIdentifier::ENUMOID,
        ] {
            pg_sys::CacheRegisterSyscacheCallback(kind as i32, Some(on_syscache), pg_sys::Datum::null());
        }
        pg_sys::RegisterXactCallback(Some(on_xact_end), std::ptr::null_mut());
        pg_sys::RegisterSubXactCallback(Some(on_subxact_end), std::ptr::null_mut());
    }
}

/// # Safety
/// Called by PostgreSQL. Must not read catalogs.
#[pg_guard]
unsafe extern "C-unwind" fn on_relcache(_arg: pg_sys::Datum, relid: pg_sys::Oid) {
    let oid = relid.to_u32();
    GENERATION.set(GENERATION.get().wrapping_add(1));
    let catalog = CATALOG.get();
    if oid == 0 || oid == catalog || catalog == 0 {
        DEFINITIONS.set(DEFINITIONS.get().wrapping_add(1));
    }
    DIRTY.with_borrow_mut(|dirty| match dirty {
        Some(set) if oid != 0 && set.len() < MAX_DIRTY => {
            set.insert(oid);
        }
        _ => *dirty = None,
    });
}

/// # Safety
/// Called by PostgreSQL. Must not read catalogs.
#[pg_guard]
unsafe extern "C-unwind" fn on_syscache(_arg: pg_sys::Datum, _kind: i32, _hash: u32) {
    GENERATION.set(GENERATION.get().wrapping_add(1));
}

/// # Safety
/// Called by PostgreSQL at transaction end.
#[pg_guard]
unsafe extern "C-unwind" fn on_xact_end(event: pg_sys::XactEvent::Type, _arg: *mut std::ffi::c_void) {
    use pg_sys::XactEvent::*;
    if matches!(event, XACT_EVENT_COMMIT | XACT_EVENT_ABORT | XACT_EVENT_PREPARE) {
        EPOCH.set(0);
        WORK.set(None);
        OWN_COMMAND.set(None);
        let wanted = WANTED.replace(false);
        if event == XACT_EVENT_COMMIT {
            tell_launcher(wanted);
        }
        // Of this transaction's commands each was looked at when it ended; of others' changes none concerns the next one.
        DIRTY.with_borrow_mut(|dirty| match dirty {
            Some(set) => set.clear(),
            None => *dirty = Some(HashSet::new()),
        });
        forget_read(event == XACT_EVENT_ABORT);
    }
}

/// After an abort, what was read of definitions in the transaction can be of rows that never were.
fn forget_read(aborted: bool) {
    if aborted && READ.get() {
        DEFINITIONS.set(DEFINITIONS.get().wrapping_add(1));
    }
    READ.set(false);
}

/// Says that this database has the extension, as a committed transaction saw it: once in a backend, and when something may
/// be due. Reads no catalog.
fn tell_launcher(wanted: bool) {
    let catalog = CATALOG.get();
    if catalog != 0 && (wanted || TOLD.get() != catalog) {
        TOLD.set(catalog);
        // SAFETY: backend variable.
        shmem::tell_installed(unsafe { pg_sys::MyDatabaseId }.to_u32(), wanted);
    }
}

/// # Safety
/// Called by PostgreSQL at subtransaction end.
#[pg_guard]
unsafe extern "C-unwind" fn on_subxact_end(
    event: pg_sys::SubXactEvent::Type,
    _sub: pg_sys::SubTransactionId,
    _parent: pg_sys::SubTransactionId,
    _arg: *mut std::ffi::c_void,
) {
    if event == pg_sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB {
        forget_read(true);
    }
}

/// Changes whenever any relation, schema, type, function, operator, collation or role changes: while it stays, so does all that was read of them.
pub fn generation() -> u64 {
    GENERATION.get()
}

/// Epoch of rows that this transaction writes to buffers now.
pub fn epoch() -> i32 {
    EPOCH.get()
}

/// Begins the next epoch: what was written before is consumed by the refresh that calls this.
pub fn next_epoch() -> i32 {
    let consumed = EPOCH.get();
    EPOCH.set(consumed + 1);
    consumed
}

/// Where our own work is being done: the level of PostgreSQL's stack of error contexts, each of whose entries is an
/// executed statement, a function's body or the like; those that we put there to watch errors don't count. A statement of ours is one level above; whatever runs for users'
/// functions and triggers, also inside that statement, is further up, and is not ours.
#[derive(Clone, Copy)]
struct Level(*mut pg_sys::ErrorContextCallback);

impl Level {
    fn here() -> Level {
        // SAFETY: backend variable.
        Level(foreign::below_ours(unsafe { pg_sys::error_context_stack }))
    }

    /// Is what runs now this level's own doing, directly or by one statement?
    fn acts_now(self) -> bool {
        let Level(top) = Level::here();
        // SAFETY: entries of the stack are valid while they are on it. The level itself is compared only.
        top == self.0 || (!top.is_null() && foreign::below_ours(unsafe { (*top).previous }) == self.0)
    }
}

/// Work that is our own, at one level.
#[derive(Clone, Copy)]
struct Work {
    level: Level,
    /// The one stream table whose contents it may change; none: any.
    of: Option<Oid>,
}

/// Is pgtrickle itself acting? Not while a function or a trigger of a user runs, though it may be our statement that
/// called it.
pub fn in_maintenance() -> bool {
    WORK.get().is_some_and(|work| work.level.acts_now())
}

/// May what acts now write to this relation of a user's schema? A rule could turn our statement into one on another.
pub fn maintains(relation: Oid) -> bool {
    in_maintenance() && WORK.get().is_some_and(|work| work.of.is_none_or(|of| of == relation))
}

/// Runs `f` as pgtrickle's own work: its writes and DDL are not the user's.
pub fn maintenance<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    work(None, f)
}

/// The same for what fills one stream table.
pub fn maintenance_of<T>(relid: Oid, f: impl FnOnce() -> Result<T>) -> Result<T> {
    work(Some(relid), f)
}

fn work<T>(of: Option<Oid>, f: impl FnOnce() -> Result<T>) -> Result<T> {
    let guard = WorkGuard(WORK.replace(Some(Work { level: Level::here(), of })));
    let result = f();
    drop(guard);
    result
}

/// Is the DDL command that runs now one of a function of ours, on the user's behalf?
pub fn is_own_command() -> bool {
    OWN_COMMAND.get().is_some_and(Level::acts_now)
}

/// Runs `f`, whose DDL commands are followed like the user's but are not his own.
pub fn own_command<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    let guard = OwnCommandGuard(OWN_COMMAND.replace(Some(Level::here())));
    let result = f();
    drop(guard);
    result
}

/// Plain thread-local state, so safe to restore while unwinding.
struct OwnCommandGuard(Option<Level>);

impl Drop for OwnCommandGuard {
    fn drop(&mut self) {
        OWN_COMMAND.set(self.0);
    }
}

/// Plain thread-local state, so safe to restore while unwinding.
struct WorkGuard(Option<Work>);

impl Drop for WorkGuard {
    fn drop(&mut self) {
        WORK.set(self.0);
    }
}

/// Version of the definitions of all stream tables, for what is kept of them: read it before, and again when it is used.
pub fn definitions_version() -> u64 {
    READ.set(true);
    DEFINITIONS.get()
}

/// Oid of `pgt_stream_tables`, if it is there. During CREATE and DROP EXTENSION it may not be.
fn find_catalog() -> Option<Oid> {
    let found = own_relation(c"pgt_stream_tables");
    let known = CATALOG.replace(found.unwrap_or(0));
    if known != found.unwrap_or(0) {
        DEFINITIONS.set(DEFINITIONS.get().wrapping_add(1));
    }
    found
}

/// Owner of the extension.
pub fn extension_owner() -> Result<Oid> {
    find_catalog();
    let version = definitions_version();
    if let Some((_, owner)) = OWNER.get().filter(|(read, _)| *read == version) {
        return Ok(owner);
    }
    let owner = names::extension_owner(c"pgtrickle").ok_or_else(not_installed)?;
    OWNER.set(Some((version, owner)));
    Ok(owner)
}

/// Oid of `pgt_stream_tables`.
pub fn catalog_oid() -> Result<Oid> {
    find_catalog().ok_or_else(not_installed)
}

fn not_installed() -> Error {
    Error::Internal("extension pgtrickle is not installed in this database".into())
}

/// Does the extension's catalog exist here?
pub fn installed() -> bool {
    find_catalog().is_some()
}

/// Tells all backends that definitions changed.
pub fn definitions_changed() -> Result<()> {
    let catalog = catalog_oid()?;
    WANTED.set(true);
    DEFINITIONS.set(DEFINITIONS.get().wrapping_add(1));
    // SAFETY: queues an invalidation message; the oid is that of an existing table.
    unsafe { pg_sys::CacheInvalidateRelcacheByRelid(pg_sys::Oid::from(catalog)) };
    Ok(())
}

/// Relations whose catalog rows may have changed in this transaction since the last call, and forgets them. Other sessions'
/// changes are among them.
pub fn take_touched() -> Touched {
    DIRTY.with_borrow_mut(|dirty| match dirty {
        Some(set) => {
            let mut taken: Vec<Oid> = set.drain().collect();
            taken.sort_unstable();
            Touched::These(taken)
        }
        None => {
            *dirty = Some(HashSet::new());
            Touched::Unknown
        }
    })
}
