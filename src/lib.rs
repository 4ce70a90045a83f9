//! pgtrickle: stream tables for PostgreSQL that survive schema changes. `src/README.md` is the map.

pub mod drift;
pub mod dvm;
pub mod error;
pub mod model;
pub mod scheduler;
pub mod snapshot;
pub mod sqltext;

mod api;
mod catalog;
mod cdc;
mod evolve;
mod lifecycle;
mod monitor;
mod pg;
mod refresh;

pgrx::pg_module_magic!();

/// Library entry: settings always, hooks and workers only under `shared_preload_libraries`.
#[pgrx::pg_guard]
pub extern "C-unwind" fn _PG_init() {
    pg::guc::register();
    pg::cache::register();
    pg::route::register();
    pg::access::register();
    pg::commit::register(evolve::tasks::before_commit);
    pg::worker::set_database_worker(scheduler::worker::start);
    pg::init_preloaded();
}
