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

/// Why a refresh that was to apply changes computes the contents anew. Its words, first the stable one, stand in the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unplanned {
    /// What left with a TRUNCATE is not in the buffer.
    Truncated,
    /// So many inputs of one join changed.
    TooManyInputs(usize),
    /// The stream table's owner may not read its sources' buffers.
    Unreadable(&'static str),
    /// Applying the changes took longer than this says.
    TimeLimit(String),
    /// A version of a row that somebody had for a moment can't be computed with: the error's SQLSTATE.
    Evaluation(String),
    /// A buffered row or a group's state is of other types than the columns have now.
    StaleImage,
    /// So many rows did not match the maintenance state.
    Diverged(i64),
    /// The definition, or a mark on it, is another one than it was at the start.
    Changed,
}

impl Unplanned {
    /// Stable word, as in the history's `reason`.
    pub fn word(&self) -> &'static str {
        match self {
            Unplanned::Truncated => "TRUNCATED",
            Unplanned::TooManyInputs(_) => "TOO_MANY_CHANGED_INPUTS",
            Unplanned::Unreadable(_) => "UNREADABLE_CHANGES",
            Unplanned::TimeLimit(_) => "TIME_LIMIT",
            Unplanned::Evaluation(_) => "EVALUATION_ERROR",
            Unplanned::StaleImage => "STALE_IMAGE",
            Unplanned::Diverged(_) => "DIVERGED",
            Unplanned::Changed => "CHANGED_MEANWHILE",
        }
    }

    /// Are the contents that are there in doubt?
    pub fn distrusts_contents(&self) -> bool {
        matches!(self, Unplanned::Diverged(_) | Unplanned::Changed)
    }

    /// Does an error of this SQLSTATE say of rows, not of the statement or the server, that they can't be computed with?
    pub fn is_evaluation(sqlstate: &str) -> bool {
        sqlstate.starts_with("22") || sqlstate.starts_with("23")
    }
}

impl std::fmt::Display for Unplanned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: ", self.word())?;
        match self {
            Unplanned::Truncated => f.write_str("a source was truncated"),
            Unplanned::TooManyInputs(n) => write!(f, "{n} inputs of one join changed at once"),
            Unplanned::Unreadable(why) => f.write_str(why),
            Unplanned::TimeLimit(why) => f.write_str(why),
            // Not the message: it may quote rows.
            Unplanned::Evaluation(sqlstate) => {
                write!(f, "the changes could not be applied one by one (SQLSTATE {sqlstate})")
            }
            Unplanned::StaleImage => f.write_str("buffered changes or state have columns of other types"),
            Unplanned::Diverged(rows) => write!(f, "{rows} rows did not match the maintenance state"),
            Unplanned::Changed => f.write_str("the definition changed while it was refreshed"),
        }
    }
}
