//! What the processes of this server know of each other, in shared memory: who has a place as a worker and what it does,
//! which databases have the extension, and what scheduled refreshes came to that is written nowhere else. Only under
//! `shared_preload_libraries`; without it everything here is empty and nothing is kept.
//!
//! The arrays are fixed. A full one degrades: whoever finds no entry does without.

mod places;
mod sessions;
mod tables;
mod workers;

pub use places::*;
pub use sessions::*;
pub use tables::*;
pub use workers::*;

use std::sync::atomic::{AtomicBool, Ordering};

use pgrx::lwlock::PgLwLock;
use pgrx::pg_sys;
use pgrx::{PGRXSharedMemory, pg_guard, pg_shmem_init};

use crate::model::Oid;
use crate::pg::clock::Micros;
use crate::scheduler::turns::{Database, Place, Presence};

const PLACES: usize = 256;
const DATABASES: usize = 1024;
const FACTS: usize = 4096;
const TROUBLES: usize = 64;
/// Bytes of a text that are kept.
const TEXT: usize = 480;
/// Entries that one stream table may be found in.
const PROBES: usize = 64;

/// A failure that is not in the history; `relid` 0: of the worker itself.
#[derive(Clone, Copy)]
struct Trouble {
    database: Oid,
    relid: Oid,
    at: Micros,
    length: usize,
    text: [u8; TEXT],
}

#[derive(Clone, Copy)]
struct State {
    places: [Place; PLACES],
    databases: [Database; DATABASES],
    facts: [Fact; FACTS],
    troubles: [Trouble; TROUBLES],
    /// Address of the launcher's latch, which is in shared memory; 0 while none runs.
    launcher: usize,
    /// Starts of workers so far.
    turns: u64,
    /// Databases that found no place, at the launcher's last look.
    waiting: usize,
    /// The server refused the last worker, and since when.
    refused_since: Micros,
}

// SAFETY: plain values; the one address in it is of shared memory, which all processes see at the same place.
unsafe impl PGRXSharedMemory for State {}

impl State {
    const fn new() -> State {
        State {
            places: [Place::FREE; PLACES],
            databases: [Database::new(0); DATABASES],
            facts: [Fact::NONE; FACTS],
            troubles: [Trouble { database: 0, relid: 0, at: 0, length: 0, text: [0; TEXT] }; TROUBLES],
            launcher: 0,
            turns: 0,
            waiting: 0,
            refused_since: 0,
        }
    }

    fn database(&mut self, oid: Oid) -> Option<&mut Database> {
        self.databases.iter_mut().find(|d| d.oid == oid)
    }

    /// The database's entry, made if there is room for it.
    fn database_or_new(&mut self, oid: Oid) -> Option<&mut Database> {
        let index = self.databases.iter().position(|d| d.oid == oid).or_else(|| {
            let free = self.databases.iter().position(|d| d.oid == 0);
            free.or_else(|| self.databases.iter().position(|d| d.presence == Presence::Absent))
        })?;
        if self.databases[index].oid != oid {
            self.databases[index] = Database::new(oid);
        }
        Some(&mut self.databases[index])
    }

    fn fact_index(&self, database: Oid, relid: Oid) -> Option<usize> {
        probes(database, relid).find(|i| self.facts[*i].database == database && self.facts[*i].relid == relid)
    }
}

/// Where a stream table's entry may be.
fn probes(database: Oid, relid: Oid) -> impl Iterator<Item = usize> {
    let mixed = (u64::from(database) << 32 | u64::from(relid)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let home = (mixed >> 40) as usize;
    (0..PROBES).map(move |step| (home + step) % FACTS)
}

// SAFETY: the name is used nowhere else.
static STATE: PgLwLock<State> = unsafe { PgLwLock::new(c"pgtrickle workers") };
static READY: AtomicBool = AtomicBool::new(false);

/// Asks for the memory; while the postmaster loads libraries.
pub fn register() {
    pg_shmem_init!(STATE = State::new());
    READY.store(true, Ordering::Relaxed);
}

/// Runs `f` on the state, alone. It must not call PostgreSQL but for what can't raise.
fn with<T>(f: impl FnOnce(&mut State) -> T) -> Option<T> {
    READY.load(Ordering::Relaxed).then(|| f(&mut STATE.exclusive()))
}

/// Runs `f` on the state while others read as well.
fn look<T>(f: impl FnOnce(&State) -> T) -> Option<T> {
    READY.load(Ordering::Relaxed).then(|| f(&STATE.share()))
}

fn my_latch() -> usize {
    // SAFETY: a backend variable; the latch is part of the process's entry in shared memory.
    unsafe { pg_sys::MyLatch as usize }
}

fn set_latch(address: usize) {
    if address != 0 {
        // SAFETY: a latch in shared memory, written by `my_latch`. If its process is gone, the next one that has the entry
        // wakes up once for nothing.
        unsafe { pg_sys::SetLatch(address as *mut pg_sys::Latch) };
    }
}
