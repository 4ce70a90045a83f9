//! What a process in a database says of itself and asks of the others.

use pgrx::{pg_guard, pg_sys};

use super::{look, unreserve, wake_launcher, with};
use crate::model::Oid;
use crate::pg::clock::{self, Micros};
use crate::scheduler::turns::{Place, Presence};

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
