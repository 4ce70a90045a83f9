//! What lies between two snapshots, as rows: the changes that are known, and the columns that are probably the same under
//! another name.
//!
//! A rename is known where attribute numbers say so. Across a drop it is a *candidate*, by the likeness of values, and takes
//! the place of the lost and the new column; it stays as destructive as the loss, because who reads the old name breaks. Where
//! several columns fit equally well, these are listed beside the loss and the gain.
#![forbid(unsafe_code)]

use super::change::{Change, Severity};
use super::rename::{Match, exchanged, renames};
use super::similarity::Sample;
use crate::snapshot::profile::TableProfile;
use crate::snapshot::shape::{ColumnShape, TableShape};
use crate::sqltext::visible_ident;

/// One of the two snapshots.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// What the table looked like.
    pub shape: &'a TableShape,
    /// What its values looked like.
    pub profile: &'a TableProfile,
}

/// One row.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The stable word.
    pub change: &'static str,
    /// Name of the column that it is about; of the earlier snapshot where both have one.
    pub column: Option<String>,
    /// Value before.
    pub before: Option<String>,
    /// Value after.
    pub after: Option<String>,
    /// How bad it is for whoever reads the table.
    pub severity: Severity,
    /// Likeness of values, 0 to 1, where the row rests on it.
    pub similarity: Option<f64>,
    /// In words, without a full stop.
    pub detail: String,
}

impl From<&Change> for Finding {
    fn from(change: &Change) -> Finding {
        Finding {
            change: change.word(),
            column: change.column().map(|(_, name)| name.to_string()),
            before: change.before_value(),
            after: change.after_value(),
            severity: change.severity(),
            similarity: None,
            detail: change.describe(),
        }
    }
}

/// The rows of a list of changes from one snapshot to the other.
pub fn findings(changes: &[Change], before: Side, after: Side, threshold: f64) -> Vec<Finding> {
    let guess = Guess::of(changes, before, after, threshold);
    let known = changes.iter().filter(|change| !guess.explains(change) && !named_otherwise(change, changes));
    let known = known.map(|change| match change {
        Change::RelationReplaced { .. } => {
            Finding { detail: another(before, after), ..Finding::from(change) }
        }
        _ => Finding::from(change),
    });
    known.chain(guess.rows(before.shape, after.shape)).collect()
}

/// Another relation that has another name was not renamed.
fn named_otherwise(change: &Change, changes: &[Change]) -> bool {
    matches!(change, Change::TableRenamed { .. } | Change::SchemaChanged { .. }) && replaced(changes)
}

fn replaced(changes: &[Change]) -> bool {
    changes.iter().any(|change| matches!(change, Change::RelationReplaced { .. }))
}

fn another(before: Side, after: Side) -> String {
    let (old, new) = (before.shape.display_name(), after.shape.display_name());
    if old == new {
        format!("another table of the name {new}")
    } else {
        format!("another table: {new} after {old}")
    }
}

/// What the likeness of values says beyond the changes.
struct Guess {
    candidates: Vec<Match>,
    ambiguous: Vec<Match>,
    exchanged: Vec<Match>,
}

impl Guess {
    fn of(changes: &[Change], before: Side, after: Side, threshold: f64) -> Guess {
        let (mut lost, mut gained) = (Vec::new(), Vec::new());
        for change in changes {
            match change {
                Change::ColumnDropped { column } => lost.extend(sample(before, column.attnum)),
                Change::ColumnAdded { column } => gained.extend(sample(after, column.attnum)),
                _ => {}
            }
        }
        let found = renames(&lost, &gained, threshold);
        // Of one relation a column of the same name is the same column, whatever its values.
        let common = if replaced(changes) { same_names(before, after) } else { Vec::new() };
        let exchanged = exchanged(&common, threshold);
        Guess { candidates: found.candidates, ambiguous: found.ambiguous, exchanged }
    }

    /// The change is half of a candidate, which says more.
    fn explains(&self, change: &Change) -> bool {
        match change {
            Change::ColumnDropped { column } => self.candidates.iter().any(|m| m.before == column.attnum),
            Change::ColumnAdded { column } => self.candidates.iter().any(|m| m.after == column.attnum),
            _ => false,
        }
    }

    fn rows(&self, before: &TableShape, after: &TableShape) -> Vec<Finding> {
        let row = |change: &'static str, found: &Match, words: fn(&str, &str) -> String| {
            let (old, new) = (before.column(found.before)?, after.column(found.after)?);
            let likeness = format!(
                "{} (likeness {:.2})",
                words(&visible_ident(&old.name), &visible_ident(&new.name)),
                found.similarity
            );
            Some(Finding {
                change,
                column: Some(old.name.to_string()),
                before: Some(old.name.to_string()),
                after: Some(new.name.to_string()),
                severity: Severity::Destructive,
                similarity: Some(found.similarity),
                detail: likeness + &retyped(old, new),
            })
        };
        let candidates = self.candidates.iter().filter_map(|m| {
            row("rename_candidate", m, |old, new| format!("column {old} is probably {new} now"))
        });
        let exchanged = self.exchanged.iter().filter_map(|m| {
            row("rename_candidate", m, |old, new| {
                format!("the values of column {old} are probably those of {new} now")
            })
        });
        let ambiguous = self.ambiguous.iter().filter_map(|m| {
            row("rename_ambiguous", m, |old, new| {
                format!("column {old} may be {new} now, but others fit equally well")
            })
        });
        candidates.chain(exchanged).chain(ambiguous).collect()
    }
}

fn retyped(old: &ColumnShape, new: &ColumnShape) -> String {
    let (before, after) = (old.display_type(), new.display_type());
    if before == after { String::new() } else { format!("; its type changed from {before} to {after}") }
}

fn sample<'a>(side: Side<'a>, attnum: i16) -> Option<Sample<'a>> {
    Some(Sample {
        shape: side.shape.column(attnum)?,
        profile: side.profile.column(attnum)?,
        form: side.profile.form,
        rows: side.shape.row_estimate,
    })
}

fn same_names<'a>(before: Side<'a>, after: Side<'a>) -> Vec<(Sample<'a>, Sample<'a>)> {
    let pair = |old: &ColumnShape| {
        let new = after.shape.column_named(&old.name)?;
        Some((sample(before, old.attnum)?, sample(after, new.attnum)?))
    };
    before.shape.columns.iter().filter_map(pair).collect()
}

/// Sentences of [`Finding`]s that rest on likeness: what a list of changes alone does not say.
pub fn guesses(changes: &[Change], before: Side, after: Side, threshold: f64) -> Vec<String> {
    let rows = findings(changes, before, after, threshold);
    rows.into_iter().filter(|row| row.similarity.is_some()).map(|row| row.detail).collect()
}
