//! What the launcher keeps: the list of databases, and which process has which place.

use pgrx::{pg_guard, pg_sys};

use super::{Fact, look, my_latch, set_latch, with};
use crate::model::Oid;
use crate::pg::clock;
use crate::scheduler::turns::{Database, Place};

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
        s.turns += 1;
        let turn = s.turns;
        if let Some(entry) = s.database(database) {
            entry.turn = turn;
        }
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
