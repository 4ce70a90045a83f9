//! What the processes of this server know of each other, in shared memory: who has a place as a worker and what it does,
//! which databases have the extension, and what scheduled refreshes came to that is written nowhere else. Only under
//! `shared_preload_libraries`; without it everything here is empty and nothing is kept.
//!
//! The arrays are fixed. A full one degrades: whoever finds no entry does without.

use std::sync::atomic::{AtomicBool, Ordering};

use pgrx::lwlock::PgLwLock;
use pgrx::pg_sys;
use pgrx::{PGRXSharedMemory, pg_guard, pg_shmem_init};

use crate::model::Oid;
use crate::pg::clock::{self, Micros};
use crate::scheduler::turns::{Database, Place, Presence};

const SIGTERM: i32 = 15;

// SAFETY: the C library's function.
unsafe extern "C" {
    fn kill(pid: i32, signal: i32) -> i32;
}

const PLACES: usize = 256;
const DATABASES: usize = 1024;
const FACTS: usize = 4096;
const TROUBLES: usize = 64;
/// Bytes of a text that are kept.
const TEXT: usize = 480;
/// Entries that one stream table may be found in.
const PROBES: usize = 64;

/// What is known of one scheduled stream table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fact {
    /// 0: an unused entry.
    pub database: Oid,
    pub relid: Oid,
    /// When a worker first saw it as it is now.
    pub known_since: Micros,
    /// Start of the last attempt; 0 before the first.
    pub attempt: Micros,
    /// Start of the last attempt after which it was up to date; 0: none.
    pub success: Micros,
    /// Failures in a row.
    pub failures: u32,
    /// Attempts in a row that ended at a lock.
    pub waits: u32,
    /// When the first of those began.
    pub waiting_since: Micros,
}

impl Fact {
    const NONE: Fact = Fact {
        database: 0,
        relid: 0,
        known_since: 0,
        attempt: 0,
        success: 0,
        failures: 0,
        waits: 0,
        waiting_since: 0,
    };

    /// Of a stream table that nobody has tried yet.
    pub fn new(relid: Oid) -> Fact {
        Fact { relid, known_since: clock::now(), ..Fact::NONE }
    }
}

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

// -- The launcher ------------------------------------------------------------------------------------------------

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

/// This process is the launcher from now on, until it ends.
pub fn become_launcher() {
    // SAFETY: the callback is a function of this library, which is never unloaded.
    unsafe { pg_sys::on_shmem_exit(Some(launcher_ends), pg_sys::Datum::null()) };
    with(|s| {
        s.launcher = my_latch();
        // Promises of a launcher before this one: it can't keep them.
        for place in s.places.iter_mut().filter(|p| p.database != 0 && p.pid == 0) {
            *place = Place::FREE;
        }
    });
}

/// # Safety
/// Called by PostgreSQL when the process ends.
#[pg_guard]
unsafe extern "C-unwind" fn launcher_ends(_code: i32, _arg: pg_sys::Datum) {
    with(|s| s.launcher = 0);
}

/// The databases that there are; others are forgotten.
pub fn set_databases(list: &[Oid]) {
    with(|s| {
        for database in s.databases.iter_mut().filter(|d| d.oid != 0 && !list.contains(&d.oid)) {
            *database = Database::new(0);
        }
        for fact in s.facts.iter_mut().filter(|f| f.database != 0 && !list.contains(&f.database)) {
            *fact = Fact::NONE;
        }
        for trouble in s.troubles.iter_mut().filter(|t| !list.contains(&t.database)) {
            trouble.database = 0;
        }
        for oid in list {
            // Without room it stays unknown, until a session of its own tells of itself.
            let full = !s.databases.iter().any(|d| d.oid == 0 || d.oid == *oid);
            if !full {
                s.database_or_new(*oid);
            }
        }
    });
}

/// Places and databases as they are.
pub fn overview() -> (Vec<Place>, Vec<Database>) {
    look(|s| (s.places.to_vec(), s.databases.iter().filter(|d| d.oid != 0).copied().collect()))
        .unwrap_or_default()
}

/// A place for a process that is about to be started; its index.
pub fn reserve(database: Oid, probe: bool) -> Option<usize> {
    with(|s| {
        let index = s.places.iter().position(|p| p.database == 0)?;
        let now = clock::now();
        s.places[index] = Place { database, probe, started: now, since: now, ..Place::FREE };
        Some(index)
    })?
}

/// Gives back a place whose process was not started, or ended before it began.
pub fn unreserve(index: usize, database: Oid) {
    with(|s| {
        if s.places[index].database == database && s.places[index].pid == 0 {
            s.places[index] = Place::FREE;
        }
    });
}

/// Asks the process in a place to leave.
pub fn ask_to_leave(index: usize) {
    with(|s| s.places[index].leaving = true);
}

/// What the launcher could not do: databases that wait for a place, and whether the server refuses workers.
pub fn set_shortage(waiting: usize, refused: bool) {
    with(|s| {
        s.waiting = waiting;
        s.refused_since = match (refused, s.refused_since) {
            (false, _) => 0,
            (true, 0) => clock::now(),
            (true, since) => since,
        };
    });
}

/// Wakes the launcher.
pub fn wake_launcher() {
    if let Some(latch) = look(|s| s.launcher) {
        set_latch(latch);
    }
}

// -- Sessions ----------------------------------------------------------------------------------------------------

/// A committed transaction of this database found the extension there; `due`: it may want something at once.
pub fn tell_installed(database: Oid, due: bool) {
    let news = with(|s| {
        let alone = !s.places.iter().any(|p| p.database == database && !p.probe);
        let Some(entry) = s.database_or_new(database) else { return false };
        let news = entry.presence != Presence::Installed || (due && alone);
        entry.presence = Presence::Installed;
        entry.told = entry.told.wrapping_add(1);
        if due {
            entry.due = 0;
        }
        news
    });
    if news == Some(true) {
        wake_launcher();
    }
}

/// Keeps our processes out of a database for a while, and ends those that are there.
pub fn evacuate(database: Oid, hold: Micros) {
    with(|s| {
        if let Some(entry) = s.database(database) {
            entry.held_until = clock::now() + hold;
        }
        for place in s.places.iter_mut().filter(|p| p.database == database) {
            place.leaving = true;
            if place.pid != 0 {
                // SAFETY: a process removes its entry, under this lock, before it ends: the number is still its own.
                unsafe { kill(place.pid, SIGTERM) };
            }
        }
    });
}

/// Is no process of ours in the database, nor about to be?
pub fn is_vacant(database: Oid) -> bool {
    look(|s| !s.places.iter().any(|p| p.database == database)).unwrap_or(true)
}

// -- Workers -----------------------------------------------------------------------------------------------------

/// Takes the place that was reserved for this process. False: it was given up, and nothing is to be done.
pub fn take_place(index: usize, database: Oid) -> bool {
    let taken = with(|s| {
        let place = &mut s.places[index];
        if place.database != database || place.pid != 0 || place.leaving {
            return false;
        }
        // SAFETY: backend variable.
        place.pid = unsafe { pg_sys::MyProcPid };
        true
    });
    if taken != Some(true) {
        unreserve(index, database);
        return false;
    }
    // Before the process is in the list of those that are connected, so that this runs after it has left that list.
    // SAFETY: the callback is a function of this library, which is never unloaded.
    unsafe { pg_sys::on_shmem_exit(Some(worker_ends), pg_sys::Datum::from(index)) };
    true
}

/// How long nobody connects again after a process of ours was ended or failed: DROP DATABASE waits for five seconds.
const AFTER_END: Micros = 6_000_000;

/// # Safety
/// Called by PostgreSQL when the process ends; the argument is the place's index.
#[pg_guard]
unsafe extern "C-unwind" fn worker_ends(code: i32, arg: pg_sys::Datum) {
    with(|s| {
        let now = clock::now();
        let place = std::mem::replace(&mut s.places[arg.value()], Place::FREE);
        if let Some(entry) = s.database(place.database) {
            entry.left = now;
            if code != 0 {
                entry.held_until = entry.held_until.max(now + AFTER_END);
            }
        }
    });
    wake_launcher();
}

/// How often a session has told of the extension; for `set_presence`.
pub fn told(database: Oid) -> u32 {
    with(|s| s.database(database).map(|d| d.told)).flatten().unwrap_or(0)
}

/// What a process of ours found in the database, unless a session has told something since.
pub fn set_presence(database: Oid, presence: Presence, told_before: u32) {
    with(|s| {
        if let Some(entry) = s.database(database)
            && entry.told == told_before
        {
            entry.presence = presence;
        }
    });
}

/// Nobody connects for so long.
pub fn hold(database: Oid, time: Micros) {
    with(|s| {
        if let Some(entry) = s.database(database) {
            entry.held_until = clock::now() + time;
        }
    });
}

/// When something is due in the database next.
pub fn set_due(database: Oid, due: Micros) {
    with(|s| {
        if let Some(entry) = s.database(database) {
            entry.due = due;
        }
    });
}

/// Stream tables that other workers of the database are at.
pub fn busy_elsewhere(index: usize) -> Vec<Oid> {
    look(|s| {
        let database = s.places[index].database;
        let others = s.places.iter().enumerate().filter(|(i, p)| *i != index && p.database == database);
        others.map(|(_, p)| p.relid).filter(|relid| *relid != 0).collect()
    })
    .unwrap_or_default()
}

/// Says that this worker refreshes `relid` now, unless another one does. `seen`: the last attempt that the caller knows of;
/// a later one makes it somebody else's work, too.
pub fn claim(index: usize, relid: Oid, seen: Micros) -> bool {
    with(|s| {
        let database = s.places[index].database;
        let taken = s.places.iter().any(|p| p.database == database && p.relid == relid);
        let done = s.fact_index(database, relid).is_some_and(|i| s.facts[i].attempt > seen);
        if taken || done {
            return false;
        }
        s.places[index].relid = relid;
        s.places[index].since = clock::now();
        true
    })
    .unwrap_or(true)
}

/// This worker is at nothing any more.
pub fn release(index: usize) {
    with(|s| {
        s.places[index].relid = 0;
        s.places[index].since = clock::now();
    });
}

/// A look at what is due is complete. True: the worker is to leave, because it was asked to, or because it was `idle` and
/// is not the only one.
pub fn end_of_round(index: usize, idle: bool) -> bool {
    with(|s| {
        let place = s.places[index];
        let another =
            s.places.iter().enumerate().any(|(i, p)| {
                i != index && p.database == place.database && !p.probe && !p.leaving && p.pid != 0
            });
        let place = &mut s.places[index];
        place.rounds = place.rounds.saturating_add(1);
        place.leaving |= idle && another;
        place.leaving
    })
    .unwrap_or(false)
}

/// Was it asked to leave?
pub fn is_leaving(index: usize) -> bool {
    look(|s| s.places[index].leaving).unwrap_or(false)
}

// -- Stream tables -----------------------------------------------------------------------------------------------

/// What is known of a database's scheduled stream tables.
pub fn facts(database: Oid) -> Vec<Fact> {
    look(|s| s.facts.iter().filter(|f| f.database == database).copied().collect()).unwrap_or_default()
}

/// Forgets all stream tables of a database but these.
pub fn retain_facts(database: Oid, keep: impl Fn(Oid) -> bool) {
    with(|s| {
        for fact in s.facts.iter_mut().filter(|f| f.database == database && !keep(f.relid)) {
            *fact = Fact::NONE;
        }
        for trouble in
            s.troubles.iter_mut().filter(|t| t.database == database && t.relid != 0 && !keep(t.relid))
        {
            trouble.database = 0;
        }
    });
}

/// Keeps what is known of a stream table. False: there is no room.
pub fn set_fact(database: Oid, fact: Fact) -> bool {
    with(|s| {
        let free = || probes(database, fact.relid).find(|i| s.facts[*i].database == 0);
        let Some(index) = s.fact_index(database, fact.relid).or_else(free) else { return false };
        s.facts[index] = Fact { database, ..fact };
        true
    })
    .unwrap_or(false)
}

/// Keeps a failure that could not be written to the history; the oldest one gives way.
pub fn set_trouble(database: Oid, relid: Oid, text: &str) {
    with(|s| {
        let same = s.troubles.iter().position(|t| t.database == database && t.relid == relid);
        let index = same.or_else(|| s.troubles.iter().position(|t| t.database == 0)).unwrap_or_else(|| {
            let oldest = s.troubles.iter().enumerate().min_by_key(|(_, t)| t.at);
            oldest.map_or(0, |(i, _)| i)
        });
        let end = (0..=text.len().min(TEXT)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        let trouble = &mut s.troubles[index];
        trouble.text[..end].copy_from_slice(&text.as_bytes()[..end]);
        (trouble.database, trouble.relid, trouble.at, trouble.length) = (database, relid, clock::now(), end);
    });
}

/// It is over.
pub fn clear_trouble(database: Oid, relid: Oid) {
    let any = look(|s| s.troubles.iter().any(|t| t.database == database && t.relid == relid));
    if any == Some(true) {
        with(|s| {
            let same = s.troubles.iter_mut().filter(|t| t.database == database && t.relid == relid);
            same.for_each(|t| t.database = 0);
        });
    }
}

/// What could not be written, by stream table; 0 is the worker itself.
pub fn troubles(database: Oid) -> Vec<(Oid, String)> {
    look(|s| {
        let own = s.troubles.iter().filter(|t| t.database == database && t.database != 0);
        own.map(|t| (t.relid, String::from_utf8_lossy(&t.text[..t.length]).into_owned())).collect()
    })
    .unwrap_or_default()
}

// -- Health ------------------------------------------------------------------------------------------------------

/// What is known of the workers of one database.
pub struct Standing {
    pub launcher: bool,
    pub workers: Vec<Place>,
    pub database: Option<Database>,
    /// Databases that wait for a place.
    pub waiting: usize,
    /// Places that are taken.
    pub taken: usize,
    pub refused: bool,
}

/// The standing of a database; none without preload.
pub fn standing(database: Oid) -> Option<Standing> {
    look(|s| Standing {
        launcher: s.launcher != 0,
        workers: s
            .places
            .iter()
            .filter(|p| p.database == database && !p.probe && p.pid != 0)
            .copied()
            .collect(),
        database: s.databases.iter().find(|d| d.oid == database).copied(),
        waiting: s.waiting,
        taken: s.places.iter().filter(|p| p.database != 0).count(),
        refused: s.refused_since != 0,
    })
}
