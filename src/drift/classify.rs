//! What the changes of one source mean for one stream table: the verdict table, row by row.
//!
//! Every change is matched by name. There is no arm that would pass a change nobody thought of: a new variant of
//! [`Change`] does not compile until it has a verdict, and what `diff` has no variant for suspends.
#![forbid(unsafe_code)]

use crate::drift::change::{Change, Turn};
use crate::model::{Reason, Verdict};
use std::collections::BTreeSet;

/// What one stream table takes from one source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usage {
    /// The source as people read it; begins the sentence in the verdict. May be empty.
    pub source: String,
    /// Columns that the query uses, in whatever role.
    pub columns: BTreeSet<i16>,
    /// The query uses the row as a value (`SELECT t FROM t`, `to_jsonb(t)`): all columns, and their names and number.
    /// Not for `SELECT *`, which PostgreSQL has turned into columns.
    pub whole_row: bool,
    /// The query reads ONLY the source's own rows, not those of its children.
    pub only: bool,
    /// The query or its plan relies on the primary key.
    pub relies_on_primary_key: bool,
    /// Differential: fed by capture triggers.
    pub capture: bool,
    /// Nothing is known of the command: new storage can be an `ALTER TYPE ... USING` that no event told of, or VACUUM FULL
    /// of the whole database. Then the contents are in doubt, and the query is not.
    pub unwitnessed: bool,
}

impl Usage {
    fn uses(&self, attnum: i16) -> bool {
        self.whole_row || self.columns.contains(&attnum)
    }
}

/// The verdict on a set of changes as a whole: the worst one, with all changes that lead to it in its sentence. Among
/// several reasons to suspend the most specific one names it (a dropped column before the key that went with it).
pub fn judge(changes: &[Change], usage: &Usage) -> Verdict {
    let effects: Vec<(Effect, String)> =
        changes.iter().map(|c| (effect(c, usage), words(c, usage))).collect();
    let Some(worst) = effects.iter().map(|(e, _)| e.rank()).max() else { return Verdict::Nothing };
    let told: Vec<&str> =
        effects.iter().filter(|(e, _)| e.rank() == worst).map(|(_, text)| text.as_str()).collect();
    let detail = sentence(&usage.source, &told);
    match worst {
        Rank::Nothing => Verdict::Nothing,
        Rank::InPlace => Verdict::InPlace,
        Rank::Reinitialize => Verdict::Reinitialize { detail },
        Rank::Suspend => {
            let reasons = effects.iter().filter_map(|(e, _)| e.reason());
            Verdict::Suspend { reason: reasons.min().unwrap_or(Reason::Unclassified), detail }
        }
    }
}

/// What one change means.
#[derive(Clone, Copy)]
enum Effect {
    Nothing,
    InPlace,
    Reinitialize,
    Suspend(Reason),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Nothing,
    InPlace,
    Reinitialize,
    Suspend,
}

impl Effect {
    fn rank(self) -> Rank {
        match self {
            Effect::Nothing => Rank::Nothing,
            Effect::InPlace => Rank::InPlace,
            Effect::Reinitialize => Rank::Reinitialize,
            Effect::Suspend(_) => Rank::Suspend,
        }
    }

    fn reason(self) -> Option<Reason> {
        match self {
            Effect::Suspend(reason) => Some(reason),
            Effect::Nothing | Effect::InPlace | Effect::Reinitialize => None,
        }
    }
}

fn effect(change: &Change, usage: &Usage) -> Effect {
    let if_used = |attnum: i16, effect: Effect| if usage.uses(attnum) { effect } else { Effect::Nothing };
    match change {
        // Another table of that name. Whether it fits is for `evolve` to ask, of the rest of the list.
        Change::RelationReplaced { .. } => Effect::Suspend(Reason::SourceRecreated),

        // Names follow in place; only a row used as a value carries column names in its contents.
        Change::TableRenamed { .. } | Change::SchemaChanged { .. } | Change::OwnerChanged { .. } => {
            Effect::InPlace
        }
        Change::ColumnRenamed { .. } => {
            if usage.whole_row {
                Effect::Reinitialize
            } else {
                Effect::InPlace
            }
        }
        Change::ColumnTypeRenamed { column, .. } => if_used(column.attnum, Effect::InPlace),

        Change::ColumnAdded { .. } => {
            if usage.whole_row {
                Effect::Reinitialize
            } else {
                Effect::Nothing
            }
        }
        Change::ColumnDropped { column } => if_used(column.attnum, Effect::Suspend(Reason::ColumnDropped)),
        Change::ColumnTypeChanged { column, .. }
        | Change::ColumnTypmodChanged { column, .. }
        | Change::ColumnDimensionsChanged { column, .. }
        | Change::ColumnTypeKindChanged { column, .. }
        | Change::ColumnCollationChanged { column, .. } => {
            if_used(column.attnum, Effect::Suspend(Reason::ColumnTypeChanged))
        }
        Change::ColumnRewritten { column } if usage.unwitnessed => {
            if_used(column.attnum, Effect::Reinitialize)
        }
        Change::ColumnRewritten { column } => {
            if_used(column.attnum, Effect::Suspend(Reason::ColumnTypeChanged))
        }
        Change::GenerationChanged { column, .. } => {
            if_used(column.attnum, Effect::Suspend(Reason::GenerationChanged))
        }

        // They govern future writes, which are captured like all others.
        Change::NullabilityChanged { .. }
        | Change::DefaultChanged { .. }
        | Change::IdentityChanged { .. }
        | Change::ColumnsReordered => Effect::Nothing,

        // All users of the source, whatever they read: the identity of its rows is another one.
        Change::PrimaryKeyRemoved { .. }
        | Change::PrimaryKeyChanged { .. }
        | Change::ReplicaIdentityRemoved { .. } => Effect::Suspend(Reason::KeyChanged),
        Change::PrimaryKeyAdded { .. } | Change::ReplicaIdentityChanged { .. } => Effect::Nothing,

        Change::IndexChanged { .. } | Change::IndexRenamed { .. } | Change::ConstraintRenamed { .. } => {
            Effect::Nothing
        }
        // Check, foreign key, unique, exclusion, trigger; and the primary key's facts other than its columns.
        Change::ConstraintChanged { kind: 'c' | 'f' | 'u' | 'x' | 't' | 'p', .. } => Effect::Nothing,
        Change::ConstraintChanged { .. } => Effect::Suspend(Reason::Unclassified),

        Change::RowSecurityChanged { before, after } => {
            if before.in_force() || after.in_force() {
                Effect::Reinitialize
            } else {
                Effect::Nothing
            }
        }
        Change::PolicyChanged { in_force: true, .. } => Effect::Reinitialize,
        Change::PolicyChanged { in_force: false, .. } => Effect::Nothing,

        Change::PersistenceChanged { .. } => Effect::Reinitialize,

        // No ALTER does that to a relation: whatever it was, nothing here knows what it means.
        Change::KindChanged { .. } | Change::PartitionKeyChanged { .. } => {
            Effect::Suspend(Reason::Unclassified)
        }

        // Rows of a foreign table change where nothing of ours sees it.
        Change::PartitionAttached { foreign: true, .. } => Effect::Suspend(Reason::Unclassified),
        // Created empty by the same command: contents stay, capture is extended in place.
        Change::PartitionAttached { created: true, .. } => Effect::InPlace,
        Change::PartitionAttached { created: false, .. } | Change::PartitionDetached { .. } => {
            Effect::Reinitialize
        }
        Change::ChildAdded { .. } | Change::ChildRemoved { .. } => {
            if usage.only {
                Effect::Nothing
            } else {
                Effect::Suspend(Reason::Unclassified)
            }
        }
        // About names and ancestors: the rows of the source and their row triggers stay.
        Change::MemberRenamed { .. } | Change::ParentsChanged => Effect::Nothing,

        // A trigger that was switched off, away or to another function, or on again, has missed rows.
        Change::CaptureChanged { turn: Turn::Removed | Turn::Changed, .. } => {
            if usage.capture {
                Effect::Reinitialize
            } else {
                Effect::Nothing
            }
        }
        // Ours: whoever begins to capture sets the frontier.
        Change::CaptureChanged { turn: Turn::Added, .. } => Effect::Nothing,

        Change::Other { .. } => Effect::Suspend(Reason::Unclassified),
    }
}

fn words(change: &Change, usage: &Usage) -> String {
    let text = change.describe();
    match change {
        Change::PrimaryKeyRemoved { .. } | Change::PrimaryKeyChanged { .. }
            if usage.relies_on_primary_key =>
        {
            format!("{text}, on which the query relies")
        }
        _ => text,
    }
}

/// `source: this; that.`
fn sentence(source: &str, parts: &[&str]) -> String {
    let text = parts.join("; ");
    if source.is_empty() { format!("{text}.") } else { format!("{source}: {text}.") }
}
