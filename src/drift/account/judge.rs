//! What lies between two neighbouring snapshots: one class, and the gates that exonerate it.
//!
//! A gate is a reason why a difference is no drift. Gates only exonerate, never accuse. One that can't be evaluated because
//! what it asks was never known abstains, and is listed: a missing exoneration then is not a finding.
#![forbid(unsafe_code)]

use super::{Entry, Link};
use crate::drift::change::{Change, Severity};
use std::collections::BTreeSet;

/// What lies between two snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// The same relation, and nothing that a reader could notice.
    Unchanged,
    /// The same relation, with something more.
    Additive,
    /// The same relation, with other names or rules; all values stay.
    Compatible,
    /// The same relation, where values, rows or their identity are lost, changed or unknown.
    Destructive,
    /// Another relation of the same shape.
    Recreated,
    /// Another relation of another shape.
    Reshaped,
    /// The name was given to another relation while both existed.
    SourceSwapped,
}

impl Class {
    /// The stable word.
    pub fn word(self) -> &'static str {
        match self {
            Class::Unchanged => "unchanged",
            Class::Additive => "additive",
            Class::Compatible => "compatible",
            Class::Destructive => "destructive",
            Class::Recreated => "recreated",
            Class::Reshaped => "reshaped",
            Class::SourceSwapped => "source_swapped",
        }
    }

    fn of(link: Link, severity: Severity) -> Class {
        match (link, severity) {
            (Link::Same, Severity::None) => Class::Unchanged,
            (Link::Same, Severity::Additive) => Class::Additive,
            (Link::Same, Severity::Compatible) => Class::Compatible,
            (Link::Same, Severity::Destructive) => Class::Destructive,
            (Link::Swapped, _) => Class::SourceSwapped,
            (Link::Recreated | Link::Restored | Link::Another, Severity::None) => Class::Recreated,
            (Link::Recreated | Link::Restored | Link::Another, _) => Class::Reshaped,
        }
    }
}

/// A reason why a difference is no drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gate {
    /// The command was pgtrickle's own.
    OwnDdl,
    /// Both relations are temporary: nobody but one session ever saw them. Known of every snapshot, so it never abstains.
    Temporary,
    /// CLUSTER, VACUUM, REINDEX or REFRESH MATERIALIZED VIEW gave the relation another heap or other indexes, and all that
    /// differs is what the storage says.
    HeapSwap,
    /// The command was part of an extension's script.
    ExtensionScript,
    /// All changes are about columns that a collector adds. It never abstains. It can't exonerate a swap, which is one
    /// whatever the columns.
    CollectorMetadata,
}

impl Gate {
    /// All gates, in the order in which they are named.
    pub const ALL: [Gate; 5] =
        [Gate::OwnDdl, Gate::Temporary, Gate::HeapSwap, Gate::ExtensionScript, Gate::CollectorMetadata];

    /// The stable word.
    pub fn word(self) -> &'static str {
        match self {
            Gate::OwnDdl => "own_ddl",
            Gate::Temporary => "temporary",
            Gate::HeapSwap => "heap_swap",
            Gate::ExtensionScript => "extension_script",
            Gate::CollectorMetadata => "collector_metadata",
        }
    }
}

/// What is known of two snapshots beside their difference.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The earlier one.
    pub before: &'a Entry,
    /// The later one.
    pub after: &'a Entry,
    /// How their relations stand to each other.
    pub link: Link,
    /// Names of the columns that collectors add.
    pub metadata: &'a BTreeSet<String>,
}

/// The result of [`classify`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// What lies between them.
    pub class: Class,
    /// The worst difference of shape. That another relation has other rows is for the class to say.
    pub severity: Severity,
    /// The first gate that exonerates.
    pub gate: Option<Gate>,
    /// All that do.
    pub exonerated_by: Vec<Gate>,
    /// Those that could not be evaluated.
    pub abstained: Vec<Gate>,
}

/// Judges the difference of two snapshots, which is to be that of [`Link::diff`].
pub fn classify(changes: &[Change], context: &Context) -> Judgement {
    let shape: Vec<&Change> = changes.iter().filter(|c| context.after.tells(context.link, c)).collect();
    let severity = shape.iter().map(|c| c.severity()).max().unwrap_or(Severity::None);
    let class = Class::of(context.link, severity);
    let mut judgement =
        Judgement { class, severity, gate: None, exonerated_by: Vec::new(), abstained: Vec::new() };
    if class == Class::Unchanged {
        // Nothing to exonerate.
        return judgement;
    }
    for gate in Gate::ALL {
        match exonerates(gate, &shape, context) {
            Some(true) => judgement.exonerated_by.push(gate),
            Some(false) => {}
            None => judgement.abstained.push(gate),
        }
    }
    judgement.gate = judgement.exonerated_by.first().copied();
    judgement
}

/// None: it can't be known.
fn exonerates(gate: Gate, shape: &[&Change], context: &Context) -> Option<bool> {
    let command = Some(context.after).filter(|after| context.link == Link::Same && after.made_by_command());
    match gate {
        Gate::OwnDdl => Some(command?.own),
        Gate::Temporary => Some(context.before.persistence == 't' && context.after.persistence == 't'),
        Gate::HeapSwap => {
            let tag = command?.command_tag.as_deref()?;
            let moves = ["CLUSTER", "VACUUM", "REINDEX", "REFRESH MATERIALIZED VIEW"].contains(&tag);
            // The one change that is concluded from storage alone.
            Some(moves && shape.iter().all(|c| matches!(c, Change::ColumnRewritten { .. })))
        }
        Gate::ExtensionScript => Some(command?.in_extension),
        Gate::CollectorMetadata => Some(
            context.link != Link::Swapped
                && !shape.is_empty()
                && shape.iter().all(|c| only_about(c, context.metadata)),
        ),
    }
}

/// A change of nothing but columns of these names.
fn only_about(change: &Change, names: &BTreeSet<String>) -> bool {
    let renamed = match change {
        Change::ColumnRenamed { after, .. } => names.contains(after),
        _ => true,
    };
    renamed && change.column().is_some_and(|(_, name)| names.contains(name))
}
