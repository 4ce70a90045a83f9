//! What sessions say and ask: that the extension is there, that a database is to be left, and how things stand.

use super::{look, wake_launcher, with};
use crate::model::Oid;
use crate::pg::clock::{self, Micros};
use crate::scheduler::turns::{Database, Place, Presence};

const SIGTERM: i32 = 15;

// SAFETY: the C library's function.
unsafe extern "C" {
    fn kill(pid: i32, signal: i32) -> i32;
}

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
