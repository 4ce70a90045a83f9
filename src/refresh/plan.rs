//! What one refresh does, decided from facts. Pure.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use crate::model::{Oid, Status};

/// Facts about a stream table at the snapshot of the refresh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub status: Status,
    /// It has a differential plan, and this refresh may use it.
    pub differential: bool,
    /// The caller asked for `full`.
    pub full_wanted: bool,
    /// Why contents must be computed anew, by something that happened to a source or to the contents.
    pub reinitialize: Option<String>,
    /// Why the changes can't be applied one by one this time.
    pub full_needed: Option<String>,
    /// Sources with unconsumed changes.
    pub changed: BTreeSet<Oid>,
    /// How many they are.
    pub rows: i64,
}

/// The work to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Nothing,
    /// Apply the changes of these sources.
    Differential(BTreeSet<Oid>),
    /// Compute the query; state tables, where there are any, are rebuilt.
    Full {
        why: String,
    },
    /// The same, because of something that happened to a source.
    Reinitialize {
        why: String,
    },
}

/// Chooses the cheapest step that leaves the contents right.
pub fn choose(facts: &Facts) -> Step {
    if facts.status == Status::Uninitialized {
        return Step::Full { why: "first refresh".into() };
    }
    if let Some(why) = &facts.reinitialize {
        return Step::Reinitialize { why: why.clone() };
    }
    if let Some(why) = &facts.full_needed {
        return Step::Full { why: why.clone() };
    }
    if !facts.differential || facts.full_wanted {
        return Step::Full { why: "the whole query is computed".into() };
    }
    if facts.changed.is_empty() {
        return Step::Nothing;
    }
    Step::Differential(facts.changed.clone())
}
