//! The account itself: how many neighbours were judged alike, with a few examples of each kind.
#![forbid(unsafe_code)]

use super::{Class, Entry, Gate, Judgement, Pair, Pairing};
use crate::drift::change::{Change, Severity};
use crate::drift::words::{Step, example};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Most examples of one class.
pub const MAX_EXAMPLES: usize = 20;

/// One row of the account: all neighbours that were judged alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// By what they belong together.
    pub pairing: Pairing,
    /// What lies between them.
    pub class: Class,
    /// The worst difference of shape.
    pub severity: Severity,
    /// The first gate that exonerates; none: nothing does.
    pub gate: Option<Gate>,
    /// How many they are.
    pub pairs: u64,
    /// Lines of relations (or resource identities) that they are in.
    pub relations: u64,
    /// Gates that abstained from any of them.
    pub abstained: BTreeSet<Gate>,
    /// The first of them in words, at most [`MAX_EXAMPLES`] in all rows of a class; none where nothing changed.
    pub examples: Vec<String>,
}

type Key = (Pairing, Class, Severity, Option<Gate>);

#[derive(Default)]
struct Row {
    pairs: u64,
    lines: HashSet<usize>,
    abstained: BTreeSet<Gate>,
    examples: Vec<String>,
}

/// Adds up judgements.
#[derive(Default)]
pub struct Account {
    rows: BTreeMap<Key, Row>,
    examples: BTreeMap<Class, usize>,
}

impl Account {
    /// Adds one pair of `entries`, as it was judged.
    pub fn add(&mut self, entries: &[Entry], pair: &Pair, changes: &[Change], judgement: &Judgement) {
        let key = (pair.pairing, judgement.class, judgement.severity, judgement.gate);
        let row = self.rows.entry(key).or_default();
        row.pairs += 1;
        row.lines.insert(pair.line);
        row.abstained.extend(&judgement.abstained);
        let told = self.examples.entry(judgement.class).or_default();
        if judgement.class != Class::Unchanged && *told < MAX_EXAMPLES {
            *told += 1;
            row.examples.push(example(&entries[pair.after], &Step::of(entries, pair, changes)));
        }
    }

    /// The rows, ordered by pairing, class, severity and gate.
    pub fn tallies(self) -> Vec<Tally> {
        let tally = |((pairing, class, severity, gate), row): (Key, Row)| Tally {
            pairing,
            class,
            severity,
            gate,
            pairs: row.pairs,
            relations: row.lines.len() as u64,
            abstained: row.abstained,
            examples: row.examples,
        };
        self.rows.into_iter().map(tally).collect()
    }
}
