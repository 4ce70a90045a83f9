//! The launcher: one process of the server, connected to no database. It keeps the list of databases, and starts a probe or
//! a worker where `scheduler::turns` wants one.
//!
//! # Safety
//! Functions here that are not safe to call take nodes, descriptors or call data of PostgreSQL that are valid and of the
//! type that their names say; those that walk trees get the context that their caller passes along with them.

use std::time::{Duration, Instant};

use pgrx::bgworkers::{BackgroundWorker, BackgroundWorkerBuilder, BgWorkerStartTime};
use pgrx::pg_guard;
use pgrx::pg_sys;

use crate::error::Result;
use crate::model::Oid;
use crate::pg::worker::{Me, argument, prepare_process, sleep, transaction};
use crate::pg::{clock, guc, report, shmem};
use crate::scheduler::turns::{Limits, Order, Place, orders};

/// Registers the launcher with the postmaster.
pub fn register() {
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

/// Time between two looks at the list of databases.
const LIST_EVERY: Duration = Duration::from_secs(10);
/// Time between two looks at who needs a worker, if nobody calls.
const ROUND: Duration = Duration::from_secs(1);
/// A worker keeps its place for so long when others wait, in microseconds.
const QUANTUM: i64 = 1_000_000;
/// A process that has not begun after so long will not, in microseconds.
const GIVEN_UP: i64 = 30_000_000;
/// Time between two lines in the log about one shortage.
const TELL_EVERY: Duration = Duration::from_secs(600);

/// # Safety
/// Entry point of the launcher, called by PostgreSQL.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pgtrickle_launcher_main(_arg: pg_sys::Datum) {
    prepare_process();
    BackgroundWorker::connect_worker_to_spi(None, None);
    shmem::become_launcher();
    let mut listed: Option<Instant> = None;
    let mut shortage = Shortage { told: None };
    loop {
        if listed.is_none_or(|at| at.elapsed() >= LIST_EVERY) {
            match transaction("looking for databases", databases) {
                Ok(list) => {
                    shmem::set_databases(&list);
                    listed = Some(Instant::now());
                }
                Err(caught) => report::log(&format!("pgtrickle launcher: {}", caught.message)),
            }
        }
        round(&mut shortage);
        sleep(ROUND);
    }
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

fn limits() -> Limits {
    let naptime = i64::try_from(guc::naptime().as_micros()).unwrap_or(i64::MAX);
    Limits {
        places: guc::max_worker_processes(),
        per_database: guc::max_workers(),
        patience: naptime,
        quantum: QUANTUM,
    }
}

/// Looks once, and does what is to be done.
fn round(shortage: &mut Shortage) {
    let now = clock::now();
    let (places, databases) = shmem::overview();
    give_up(&places, now);
    let (orders, waiting) = orders(now, limits(), &places, &databases);
    let mut refused = false;
    for order in orders {
        match order {
            Order::Probe(database) => refused |= !start(database, true),
            Order::Start(database) => refused |= !start(database, false),
            Order::Leave(place) => shmem::ask_to_leave(place),
        }
    }
    shmem::set_shortage(waiting, refused);
    shortage.tell(waiting, refused);
}

/// Frees places whose process never began.
fn give_up(places: &[Place], now: i64) {
    for (index, place) in places.iter().enumerate() {
        if place.database != 0 && place.pid == 0 && place.started + GIVEN_UP < now {
            shmem::unreserve(index, place.database);
        }
    }
}

/// Starts a process in a database. False: the server has no place for it.
fn start(database: Oid, probe: bool) -> bool {
    let Some(place) = shmem::reserve(database, probe) else { return false };
    let (kind, function) = if probe {
        ("pgtrickle probe", "pgtrickle_probe_main")
    } else {
        ("pgtrickle worker", "pgtrickle_worker_main")
    };
    let started = BackgroundWorkerBuilder::new(kind)
        .set_type(kind)
        .set_library("pgtrickle")
        .set_function(function)
        .enable_shmem_access(None)
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(None)
        .set_argument(Some(argument(Me { database, place })))
        .load_dynamic()
        .is_ok();
    if !started {
        shmem::unreserve(place, database);
    }
    started
}

/// What the log was told of a lack of places.
struct Shortage {
    told: Option<Instant>,
}

impl Shortage {
    fn tell(&mut self, waiting: usize, refused: bool) {
        if waiting == 0 && !refused {
            return;
        }
        if self.told.is_some_and(|at| at.elapsed() < TELL_EVERY) {
            return;
        }
        self.told = Some(Instant::now());
        report::log(&if refused {
            "pgtrickle: the server has no place for another worker (max_worker_processes); databases wait for theirs"
                .to_string()
        } else {
            format!(
                "pgtrickle: {waiting} databases wait for one of the {} places of pg_trickle.max_worker_processes; they take turns",
                guc::max_worker_processes()
            )
        });
    }
}
