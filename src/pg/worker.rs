//! Processes of our own: what all of them do, and the two that work in one database. What a worker does in a round is
//! `scheduler/worker.rs`; who is started where is `launcher.rs`.
//!
//! # Safety
//! Functions here that are not safe to call take nodes, descriptors or call data of PostgreSQL that are valid and of the
//! type that their names say; those that walk trees get the context that their caller passes along with them.

use std::sync::OnceLock;
use std::time::Duration;

use pgrx::bgworkers::{BackgroundWorker, SignalWakeFlags};
use pgrx::pg_guard;
use pgrx::pg_sys;

use crate::error::Result;
use crate::model::Oid;
use crate::pg::spi::{self, Mode};
use crate::pg::subxact::Caught;
use crate::pg::{foreign, settings, shmem};
use crate::scheduler::turns::Presence;

/// What is to come after a round of a database's worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// Another one. Idle: there has been nothing to do for a while.
    Again { idle: bool },
    /// The extension is gone.
    Gone,
    /// Nothing can be done here for now.
    Later,
}

/// This process as a worker.
#[derive(Debug, Clone, Copy)]
pub struct Me {
    pub database: Oid,
    /// Its place in shared memory.
    pub place: usize,
}

/// One round of a database worker.
pub type Tick = Box<dyn FnMut() -> Round>;

/// What a database worker runs; set when the library is loaded.
static DATABASE_WORKER: OnceLock<fn(Me) -> Tick> = OnceLock::new();

/// Says what a database worker runs. Later calls have no effect.
pub fn set_database_worker(start: fn(Me) -> Tick) {
    DATABASE_WORKER.get_or_init(|| start);
}

/// SIGTERM as backends treat it: the next check for interrupts ends the process, in the middle of a query as well. And
/// settings that nobody's database or role changes.
pub(super) fn prepare_process() {
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP);
    // SAFETY: `die` is PostgreSQL's own handler for this signal.
    unsafe {
        crate::pg::compat::set_signal_handler(15, Some(die));
        pg_sys::BackgroundWorkerUnblockSignals();
        // A reload between the fork and the handler above was ignored.
        pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP);
    }
    settings::pin_process();
}

/// # Safety
/// A signal handler: sets flags and the latch, nothing else.
unsafe extern "C-unwind" fn die(_signal: i32) {
    // SAFETY: flags that PostgreSQL's own handler sets in the same way.
    unsafe {
        pg_sys::InterruptPending = 1;
        pg_sys::ProcDiePending = 1;
        pg_sys::SetLatch(pg_sys::MyLatch);
    }
}

/// Sleeps until the time is over or a signal comes; reloads the configuration when told.
pub(super) fn sleep(duration: Duration) {
    wait(duration);
    if BackgroundWorker::sighup_received() {
        // SAFETY: outside any transaction, as in a backend's main loop.
        unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
    }
}

/// Waits until the time is over or this process is woken; interrupts are processed, so a cancel ends it.
pub fn wait(duration: Duration) {
    // SAFETY: waits on this process's own latch, as pg_sleep() does.
    unsafe {
        pg_sys::WaitLatch(
            pg_sys::MyLatch,
            (pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH) as i32,
            i64::try_from(duration.as_millis()).unwrap_or(i64::MAX),
            pg_sys::PG_WAIT_EXTENSION,
        );
        pg_sys::ResetLatch(pg_sys::MyLatch);
        pg_sys::check_for_interrupts!();
    }
}

/// Runs `f` in a transaction of its own. An error aborts it and is returned; a shutdown ends the process.
pub fn transaction<T>(activity: &str, f: impl FnOnce() -> Result<T>) -> std::result::Result<T, Caught> {
    // SAFETY: the calls that a backend makes around a statement; the error path aborts, as its main loop does.
    unsafe {
        pg_sys::SetCurrentStatementStartTimestamp();
        pg_sys::StartTransactionCommand();
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
        if let Ok(text) = spi::c_string(activity) {
            pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_RUNNING, text.as_ptr());
        }
    }
    let outcome = foreign::attempt(f).map_err(Caught::from);
    // SAFETY: as above.
    unsafe {
        match &outcome {
            Ok(_) => {
                pg_sys::PopActiveSnapshot();
                pg_sys::CommitTransactionCommand();
            }
            Err(_) => {
                pg_sys::AbortCurrentTransaction();
                pg_sys::FlushErrorState();
            }
        }
        pg_sys::pgstat_report_stat(false);
        pg_sys::pgstat_report_activity(pg_sys::BackendState::STATE_IDLE, std::ptr::null());
        pg_sys::check_for_interrupts!();
    }
    outcome
}

/// The argument of a process in a database: its place and the database.
pub(super) fn argument(me: Me) -> pg_sys::Datum {
    pg_sys::Datum::from((me.place << 32) | me.database as usize)
}

/// Takes the place and connects. None: it was given up.
fn connect(arg: pg_sys::Datum) -> Option<Me> {
    prepare_process();
    let me = Me { place: arg.value() >> 32, database: (arg.value() & 0xffff_ffff) as u32 };
    if !shmem::take_place(me.place, me.database) {
        return None;
    }
    let database = pg_sys::Oid::from(me.database);
    // SAFETY: called once, before any transaction; a database that is gone ends the process with a FATAL of its own.
    unsafe { pg_sys::BackgroundWorkerInitializeConnectionByOid(database, pg_sys::InvalidOid, 0) };
    Some(me)
}

/// How long a database is left alone that nothing can be done in.
const LATER: i64 = 30_000_000;

/// # Safety
/// Entry point of a database's worker, called by PostgreSQL; for the argument see `argument`.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pgtrickle_worker_main(arg: pg_sys::Datum) {
    let Some(me) = connect(arg) else { return };
    set_application_name();
    let Some(start) = DATABASE_WORKER.get() else { return };
    let mut tick = start(me);
    loop {
        let told = shmem::told(me.database);
        let idle = match tick() {
            Round::Again { idle } => idle,
            Round::Gone => return shmem::set_presence(me.database, Presence::Absent, told),
            Round::Later => return shmem::hold(me.database, LATER),
        };
        if shmem::end_of_round(me.place, idle) {
            return;
        }
        sleep(crate::pg::guc::naptime());
        if shmem::is_leaving(me.place) {
            return;
        }
    }
}

/// # Safety
/// Entry point of a probe, called by PostgreSQL; for the argument see `argument`. Looks whether the database has the
/// extension, runs no SQL, and is gone.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pgtrickle_probe_main(arg: pg_sys::Datum) {
    let Some(me) = connect(arg) else { return };
    let told = shmem::told(me.database);
    // SAFETY: a catalog look-up inside a transaction.
    let found = transaction("looking for the extension", || {
        Ok(unsafe { pg_sys::get_extension_oid(c"pgtrickle".as_ptr(), true) } != pg_sys::InvalidOid)
    });
    match found {
        Ok(true) => shmem::set_presence(me.database, Presence::Installed, told),
        Ok(false) => shmem::set_presence(me.database, Presence::Absent, told),
        Err(_) => shmem::hold(me.database, LATER),
    }
}

fn set_application_name() {
    // SAFETY: sets a setting of this process.
    unsafe {
        pg_sys::SetConfigOption(
            c"application_name".as_ptr(),
            c"pgtrickle worker".as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_OVERRIDE,
        );
    }
}

/// The extension's version in the catalog, if it is installed, and this library's.
pub fn versions() -> Result<Option<(String, &'static str)>> {
    let rows = spi::run(
        "SELECT extversion FROM pg_catalog.pg_extension WHERE extname OPERATOR(pg_catalog.=) 'pgtrickle'",
        &[],
        Mode::Fresh,
    )?;
    rows.first().map(|mut row| Ok((row.text(0)?, env!("CARGO_PKG_VERSION")))).transpose()
}
