//! Everything that touches PostgreSQL's C interface. The only folder with `unsafe`; decides nothing.

pub mod cache;
pub mod capture;
pub mod compat;
pub mod entry;
pub mod event;
pub mod guc;
pub mod hooks;
pub mod lock;
pub mod query;
pub mod report;
pub mod secctx;
pub mod snapshot;
pub mod spi;
pub mod subxact;
pub mod worker;

use pgrx::pg_sys;

/// Was the library loaded by `shared_preload_libraries`?
pub fn preloaded() -> bool {
    hooks::installed()
}

/// Hooks and the launcher, when the postmaster loads the library; nothing during `pg_upgrade`.
pub fn init_preloaded() {
    // SAFETY: backend variables, read once.
    let (preloading, upgrading) =
        unsafe { (pg_sys::process_shared_preload_libraries_in_progress, pg_sys::IsBinaryUpgrade) };
    if preloading && !upgrading {
        hooks::install();
        worker::register_launcher();
    }
}

/// Is this server restoring by pg_upgrade? Then no event trigger of ours acts.
pub fn binary_upgrade() -> bool {
    // SAFETY: backend variable.
    unsafe { pg_sys::IsBinaryUpgrade }
}
