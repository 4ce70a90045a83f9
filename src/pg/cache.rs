//! What this backend knows between statements: the watched relations, which of them changed, the epoch of its own
//! buffered rows, and where it does work of its own.
//!
//! PostgreSQL tells every backend which relations' catalog rows changed (relcache invalidation), by oid. The event
//! triggers ask only about those: unrelated DDL costs one hash look-up.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use pgrx::pg_guard;
use pgrx::pg_sys;

use crate::error::{Error, Result};
use crate::model::Oid;
use crate::pg::foreign;
use crate::pg::shmem;
use crate::pg::spi::{self, Mode};

/// Relations and objects that stream tables depend on.
#[derive(Debug, Default)]
pub struct Watch {
    /// Member of a source's partition tree (or the source itself) → the sources.
    pub sources: HashMap<Oid, BTreeSet<Oid>>,
    pub views: HashSet<Oid>,
    pub stream_tables: HashSet<Oid>,
    /// Functions, types and the like: (class oid, object oid).
    pub objects: HashSet<(Oid, Oid)>,
    /// Some stream table is suspended for something that may come back.
    pub curable: bool,
    /// Some stream table is suspended.
    pub suspended: bool,
}

impl Watch {
    fn relation(&self, oid: Oid) -> bool {
        self.sources.contains_key(&oid) || self.views.contains(&oid) || self.stream_tables.contains(&oid)
    }
}

struct Installed {
    /// Oid of the catalog table whose invalidation means that this picture is stale.
    catalog: Oid,
    owner: Oid,
    watch: Option<Rc<Watch>>,
}

thread_local! {
    static INSTALLED: RefCell<Option<Installed>> = const { RefCell::new(None) };
    static CATALOG: Cell<Oid> = const { Cell::new(0) };
    /// Invalidated relations since the last look; None means "could be any".
    static DIRTY: RefCell<Option<HashSet<Oid>>> = const { RefCell::new(None) };
    static STALE: Cell<bool> = const { Cell::new(true) };
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
        // Names and rights that come from elsewhere than a relation's own catalog rows.
        for kind in [
            pg_sys::SysCacheIdentifier::NAMESPACEOID,
            pg_sys::SysCacheIdentifier::TYPEOID,
            pg_sys::SysCacheIdentifier::AUTHOID,
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
        STALE.set(true);
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
    }
    if event == XACT_EVENT_ABORT {
        // What was read of uncommitted catalog rows is not to be believed.
        STALE.set(true);
    }
}

/// Says that this database has the extension, as a committed transaction saw it: once in a backend, and when something may
/// be due. Reads no catalog.
fn tell_launcher(wanted: bool) {
    let Some(catalog) = INSTALLED.with_borrow(|i| i.as_ref().map(|i| i.catalog)) else { return };
    if wanted || (!STALE.get() && TOLD.get() != catalog) {
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
        STALE.set(true);
    }
}

/// Changes whenever any relation, schema, type or role changes: while it stays, so does all that was read of them.
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

fn refresh_installed() -> Result<()> {
    if !STALE.get() && INSTALLED.with_borrow(Option::is_some) {
        return Ok(());
    }
    STALE.set(false);
    CATALOG.set(0);
    INSTALLED.set(None);
    // Reads the catalogs, which can process invalidations and set STALE again: then it is simply read again later.
    let found = spi::run(
        "SELECT c.oid, e.extowner FROM pg_catalog.pg_class c \
         JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'pgtrickle' \
         JOIN pg_catalog.pg_extension e ON e.extname = 'pgtrickle' WHERE c.relname = 'pgt_stream_tables'",
        &[],
        Mode::Fresh,
    )?;
    if let Some(mut row) = found.first() {
        let catalog = row.parse(0)?;
        CATALOG.set(catalog);
        INSTALLED.set(Some(Installed { catalog, owner: row.parse(1)?, watch: None }));
    }
    Ok(())
}

/// Owner of the extension.
pub fn extension_owner() -> Result<Oid> {
    refresh_installed()?;
    INSTALLED.with_borrow(|i| i.as_ref().map(|i| i.owner)).ok_or_else(not_installed)
}

/// Oid of `pgt_stream_tables`.
pub fn catalog_oid() -> Result<Oid> {
    refresh_installed()?;
    INSTALLED.with_borrow(|i| i.as_ref().map(|i| i.catalog)).ok_or_else(not_installed)
}

fn not_installed() -> Error {
    Error::Internal("extension pgtrickle is not installed in this database".into())
}

/// Does the extension's catalog exist here? During CREATE and DROP EXTENSION it may not.
pub fn installed() -> Result<bool> {
    refresh_installed()?;
    Ok(INSTALLED.with_borrow(Option::is_some))
}

/// Tells all backends that definitions changed.
pub fn definitions_changed() -> Result<()> {
    refresh_installed()?;
    let catalog = INSTALLED.with_borrow(|i| i.as_ref().map(|i| i.catalog)).ok_or_else(not_installed)?;
    STALE.set(true);
    WANTED.set(true);
    // SAFETY: queues an invalidation message; the oid is that of an existing table.
    unsafe { pg_sys::CacheInvalidateRelcacheByRelid(pg_sys::Oid::from(catalog)) };
    Ok(())
}

/// The watched objects, read by `load` when they are not known. Call with the extension owner's rights.
pub fn watch(load: impl FnOnce() -> Result<Watch>) -> Result<Rc<Watch>> {
    refresh_installed()?;
    if let Some(watch) = INSTALLED.with_borrow(|i| i.as_ref().and_then(|i| i.watch.clone())) {
        return Ok(watch);
    }
    let watch = Rc::new(load()?);
    INSTALLED.with_borrow_mut(|i| {
        if let Some(installed) = i.as_mut() {
            installed.watch = Some(watch.clone());
        }
    });
    Ok(watch)
}

/// Watched relations whose catalog rows may have changed since the last call, and forgets them.
pub fn take_dirty(watch: &Watch) -> Vec<Oid> {
    let taken = DIRTY.replace(Some(HashSet::new()));
    let mut hit: Vec<Oid> = match taken {
        Some(set) => set.into_iter().filter(|oid| watch.relation(*oid)).collect(),
        None => {
            let all = watch.sources.keys().chain(&watch.views).chain(&watch.stream_tables);
            all.copied().collect::<BTreeSet<_>>().into_iter().collect()
        }
    };
    hit.sort_unstable();
    hit
}

/// The watched objects if they are known and not stale; reads nothing.
pub fn fresh_watch() -> Option<Rc<Watch>> {
    if STALE.get() {
        return None;
    }
    INSTALLED.with_borrow(|i| i.as_ref().and_then(|i| i.watch.clone()))
}

/// Has any watched relation changed since the last look? Drops the marks of those that are not watched.
pub fn any_dirty(watch: &Watch) -> bool {
    DIRTY.with_borrow_mut(|dirty| match dirty {
        Some(set) => {
            set.retain(|oid| watch.relation(*oid));
            !set.is_empty()
        }
        None => true,
    })
}
