//! What scheduled refreshes came to, by stream table, and failures that are written nowhere else.

use super::{TEXT, look, probes, with};
use crate::model::Oid;
use crate::pg::clock::{self, Micros};

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
    pub(super) const NONE: Fact = Fact {
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
