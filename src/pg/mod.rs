//! Everything that touches PostgreSQL's C interface. The only folder with `unsafe`; decides nothing.

pub mod access;
pub mod cache;
pub mod capture;
pub mod catalog_scan;
mod changes;
pub mod clock;
pub mod columns;
pub mod commit;
pub mod compat;
pub mod concern;
pub mod deadline;
pub mod drop_command;
pub mod dropped;
pub mod entry;
pub mod event;
pub mod foreign;
pub mod guc;
pub mod hooks;
pub mod inheritance;
pub mod launcher;
pub mod lock;
pub mod names;
pub mod objects;
pub mod own_rows;
pub mod plans;
pub mod query;
pub mod relation;
pub mod report;
pub mod rights;
pub mod route;
pub mod row_image;
pub mod secctx;
pub mod settings;
pub mod shmem;
pub mod side;
pub mod snapshot;
pub mod spi;
mod state;
pub mod statistics;
pub mod subxact;
pub mod types;
mod values;
pub mod worker;

use pgrx::pg_sys;
use sha2::{Digest, Sha256};

use crate::model::Oid;

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
        shmem::register();
        launcher::register();
    }
}

/// Is the server in recovery?
pub fn in_recovery() -> bool {
    // SAFETY: reads shared state.
    unsafe { pg_sys::RecoveryInProgress() }
}

/// The database of this process.
pub fn database() -> Oid {
    // SAFETY: backend variable.
    unsafe { pg_sys::MyDatabaseId }.to_u32()
}

/// Which server and database this is, as one number: oids of another one mean something else.
pub fn origin() -> i64 {
    // SAFETY: backend state that does not change.
    let (system, database) = unsafe { (pg_sys::GetSystemIdentifier(), pg_sys::MyDatabaseId.to_u32()) };
    let mut hash = Sha256::new();
    hash.update(system.to_be_bytes());
    hash.update(database.to_be_bytes());
    let digest = hash.finalize();
    digest.iter().take(8).fold(0, |number, byte| number << 8 | i64::from(*byte))
}

/// Name of the database's encoding.
pub fn encoding() -> String {
    // SAFETY: a static string of the server's.
    unsafe { std::ffi::CStr::from_ptr(pg_sys::GetDatabaseEncodingName()) }.to_string_lossy().into_owned()
}

/// Is this server restoring by pg_upgrade? Then no event trigger of ours acts.
pub fn binary_upgrade() -> bool {
    // SAFETY: backend variable.
    unsafe { pg_sys::IsBinaryUpgrade }
}
