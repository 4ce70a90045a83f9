//! Background workers: one launcher for the cluster, which sees the list of databases, and one worker for each database
//! that has the extension. What a worker does in a tick is `scheduler/worker.rs`.
//!
//! # Safety
//! Functions here that are not safe to call take nodes, descriptors or call data of PostgreSQL that are valid and of the
//! type that their names say; those that walk trees get the context that their caller passes along with them.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use pgrx::IntoDatum;
use pgrx::bgworkers::{
    BackgroundWorker, BackgroundWorkerBuilder, BgWorkerStartTime, DynamicBackgroundWorker, SignalWakeFlags,
};
use pgrx::pg_guard;
use pgrx::pg_sys;

use crate::error::Result;
use crate::model::Oid;
use crate::pg::spi::{self, Arg, Mode};
use crate::pg::subxact::Caught;
use crate::pg::{foreign, report, settings};

/// One round of a database worker; false ends it for good.
pub type Tick = Box<dyn FnMut() -> bool>;

/// What a database worker runs; set when the library is loaded.
static DATABASE_WORKER: OnceLock<fn() -> Tick> = OnceLock::new();

/// Says what a database worker runs. Later calls have no effect.
pub fn set_database_worker(start: fn() -> Tick) {
    DATABASE_WORKER.get_or_init(|| start);
}

/// `backend_type` of database workers.
const WORKER_TYPE: &str = "pgtrickle worker";

/// Registers the launcher with the postmaster.
pub fn register_launcher() {
    BackgroundWorkerBuilder::new("pgtrickle launcher")
        .set_type("pgtrickle launcher")
        .set_library("pgtrickle")
        .set_function("pgtrickle_launcher_main")
        .enable_shmem_access(None)
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(Some(Duration::from_secs(5)))
        .load();
}

fn start_database_worker(database: Oid) -> Option<DynamicBackgroundWorker> {
    BackgroundWorkerBuilder::new(WORKER_TYPE)
        .set_type(WORKER_TYPE)
        .set_library("pgtrickle")
        .set_function("pgtrickle_worker_main")
        .enable_shmem_access(None)
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(None)
        .set_argument(pg_sys::Oid::from(database).into_datum())
        .load_dynamic()
        .ok()
}

/// Starts this database's worker if none runs: a first stream table should not wait for the launcher's next round.
pub fn ensure_running() -> Result<()> {
    let running = spi::run(
        "SELECT FROM pg_catalog.pg_stat_activity WHERE backend_type = $1 AND datid = \
         (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())",
        &[Arg::Text(WORKER_TYPE)],
        Mode::Fresh,
    )?;
    if running.first().is_none() {
        // SAFETY: backend variable.
        let database = unsafe { pg_sys::MyDatabaseId }.to_u32();
        // None: all worker slots are taken; the launcher tries again.
        start_database_worker(database);
    }
    Ok(())
}

/// SIGTERM as backends treat it: the next check for interrupts ends the process, in the middle of a query as well.
fn prepare_process() {
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP);
    // SAFETY: `die` is PostgreSQL's own handler for this signal.
    unsafe {
        crate::pg::compat::set_signal_handler(15, Some(die));
        pg_sys::BackgroundWorkerUnblockSignals();
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
fn sleep(duration: Duration) {
    // SAFETY: waits on this process's own latch; interrupts are processed here, outside any transaction.
    unsafe {
        pg_sys::WaitLatch(
            pg_sys::MyLatch,
            (pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH) as i32,
            i64::try_from(duration.as_millis()).unwrap_or(i64::MAX),
            pg_sys::PG_WAIT_EXTENSION,
        );
        pg_sys::ResetLatch(pg_sys::MyLatch);
        pg_sys::check_for_interrupts!();
        if BackgroundWorker::sighup_received() {
            pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP);
        }
    }
}

/// Runs `f` in a transaction of its own. An error aborts it and is returned; a shutdown is raised on.
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

/// Databases that allow connections and are no templates. Read from the shared catalog, since the launcher has no
/// database to run SQL in.
fn databases() -> Result<Vec<Oid>> {
    let mut found = Vec::new();
    // SAFETY: a heap scan of a shared catalog under a snapshot, as autovacuum's launcher does it; tuples are read
    // while the scan holds them.
    unsafe {
        let rel = pg_sys::table_open(pg_sys::DatabaseRelationId, pg_sys::AccessShareLock as i32);
        let scan = pg_sys::table_beginscan_catalog(rel, 0, std::ptr::null_mut());
        loop {
            let tuple = pg_sys::heap_getnext(scan, pg_sys::ScanDirection::ForwardScanDirection);
            if tuple.is_null() {
                break;
            }
            let form = pg_sys::heap_tuple_get_struct::<pg_sys::FormData_pg_database>(tuple);
            if (*form).datallowconn && !(*form).datistemplate {
                found.push((*form).oid.to_u32());
            }
        }
        if let Some(end) = (*(*rel).rd_tableam).scan_end {
            end(scan);
        }
        pg_sys::table_close(rel, pg_sys::AccessShareLock as i32);
    }
    Ok(found)
}

/// Time between two looks at the list of databases, and after a worker ended before it is started again: longer than
/// DROP DATABASE waits for connections to go.
const LAUNCHER_ROUND: Duration = Duration::from_secs(10);

/// Time until a database in which a worker ended at once is looked at again.
const PROBE_AGAIN: Duration = Duration::from_secs(30);

/// # Safety
/// Entry point of the launcher, called by PostgreSQL.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pgtrickle_launcher_main(_arg: pg_sys::Datum) {
    prepare_process();
    BackgroundWorker::connect_worker_to_spi(None, None);
    let mut workers: Vec<Running> = Vec::new();
    loop {
        match transaction("looking for databases", databases) {
            Ok(list) => {
                workers.retain(|w| list.contains(&w.database));
                for database in list {
                    look_after(&mut workers, database);
                }
            }
            Err(message) => report::log(&format!("pgtrickle launcher: {message}")),
        }
        sleep(LAUNCHER_ROUND);
    }
}

/// A worker that the launcher started.
struct Running {
    database: Oid,
    worker: DynamicBackgroundWorker,
    started: Instant,
    /// When it was first seen to have ended.
    ended: Option<Instant>,
}

/// Starts the database's worker if none runs. One that ended at once found no extension there: looking again too often
/// would be a process for nothing; whoever creates a stream table starts one himself.
fn look_after(workers: &mut Vec<Running>, database: Oid) {
    if let Some(known) = workers.iter_mut().find(|w| w.database == database) {
        if known.worker.pid().is_ok() {
            return;
        }
        let ended = *known.ended.get_or_insert_with(Instant::now);
        let found_nothing = ended.duration_since(known.started) <= LAUNCHER_ROUND + Duration::from_secs(1);
        if found_nothing && known.started.elapsed() < PROBE_AGAIN {
            return;
        }
    }
    if let Some(worker) = start_database_worker(database) {
        workers.retain(|w| w.database != database);
        workers.push(Running { database, worker, started: Instant::now(), ended: None });
    }
}

/// # Safety
/// Entry point of a database's worker, called by PostgreSQL; the argument is the database's oid.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pgtrickle_worker_main(arg: pg_sys::Datum) {
    prepare_process();
    let database = pg_sys::Oid::from(arg.value() as u32);
    // SAFETY: called once, before any transaction; a database that is gone ends the process with a FATAL of its own.
    unsafe { pg_sys::BackgroundWorkerInitializeConnectionByOid(database, pg_sys::InvalidOid, 0) };
    set_application_name();
    let Some(start) = DATABASE_WORKER.get() else { return };
    let mut tick = start();
    while tick() {
        sleep(crate::pg::guc::naptime());
    }
}

fn set_application_name() {
    // SAFETY: sets a setting of this process.
    unsafe {
        pg_sys::SetConfigOption(
            c"application_name".as_ptr(),
            c"pgtrickle worker".as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
        );
    }
}

/// One worker a database: a session lock that ends with the process.
pub fn claim_database() -> Result<bool> {
    let rows = spi::run(
        "SELECT pg_catalog.pg_try_advisory_lock(('x' || pg_catalog.substr(pg_catalog.md5('pgtrickle worker'), 1, 16))::bit(64)::bigint)",
        &[],
        Mode::Fresh,
    )?;
    rows.first().map_or(Ok(false), |mut row| row.bool(0))
}

/// Is the server in recovery?
pub fn in_recovery() -> bool {
    // SAFETY: reads shared state.
    unsafe { pg_sys::RecoveryInProgress() }
}

/// The extension's version in the catalog, if it is installed, and this library's.
pub fn versions() -> Result<Option<(String, &'static str)>> {
    let rows = spi::run(
        "SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'pgtrickle'",
        &[],
        Mode::Fresh,
    )?;
    rows.first().map(|mut row| Ok((row.text(0)?, env!("CARGO_PKG_VERSION")))).transpose()
}
