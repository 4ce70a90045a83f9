//! Which snapshots are neighbours in time: of one relation, of one name, of one resource identity.
//!
//! A relation is followed by its oid, so that a rename stays in its line. Where a name comes to another relation, the last
//! snapshot under that name and the first of the new holder are neighbours too: how the two relations stand to each other
//! is the [`Link`] between them.
#![forbid(unsafe_code)]

use super::{Entry, Why};
use crate::drift::change::Change;
use crate::drift::diff::{diff, diff_replaced, diff_retyped};
use crate::snapshot::shape::TableShape;
use std::collections::{BTreeSet, HashMap};

/// By what two snapshots belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pairing {
    /// The same relation, or the same qualified name.
    Relation,
    /// The same resource identity, whatever the tables are called.
    Identity,
}

impl Pairing {
    /// The stable word.
    pub fn word(self) -> &'static str {
        match self {
            Pairing::Relation => "relation",
            Pairing::Identity => "identity",
        }
    }
}

/// How the relation of the later snapshot stands to that of the earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Link {
    /// It is the same.
    Same,
    /// The earlier one was dropped, and this is another one.
    Recreated,
    /// The name went from one to the other by renaming: the earlier one was seen after that, or the later one before it
    /// under another name.
    Swapped,
    /// It is in another database, where a dump was restored or a copy made.
    Restored,
    /// Another one, and of the earlier one neither a drop nor its further life is recorded under this name or identity.
    Another,
}

impl Link {
    /// The stable word.
    pub fn word(self) -> &'static str {
        match self {
            Link::Same => "same",
            Link::Recreated => "recreated",
            Link::Swapped => "swapped",
            Link::Restored => "restored",
            Link::Another => "another",
        }
    }

    /// What differs between the shapes of two snapshots that are linked so; `retyped` names the columns that commands
    /// between them altered the type of, where these are known.
    pub fn diff(
        self,
        before: &TableShape,
        after: &TableShape,
        retyped: Option<&BTreeSet<String>>,
    ) -> Vec<Change> {
        match (self, retyped) {
            (Link::Same, Some(retyped)) => diff_retyped(before, after, retyped),
            (Link::Same, None) => diff(before, after),
            (Link::Recreated | Link::Swapped | Link::Restored | Link::Another, _) => {
                diff_replaced(before, after)
            }
        }
    }
}

/// Two snapshots that are neighbours. All numbers are positions in the list that [`pairs`] was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The earlier one.
    pub before: usize,
    /// The later one.
    pub after: usize,
    /// By what they belong together.
    pub pairing: Pairing,
    /// How their relations stand to each other.
    pub link: Link,
    /// First snapshot of the line that the earlier one is in; with `pairing` it names the line.
    pub line: usize,
    /// [`Link::Swapped`]: the snapshot that shows what the later relation was called before.
    pub came_from: Option<usize>,
    /// [`Link::Swapped`]: the first snapshot of the earlier relation after it had lost the name.
    pub went_to: Option<usize>,
}

/// All neighbours, ordered by the later one. Time is linear in the number of entries (which need not be sorted).
pub fn pairs(entries: &[Entry]) -> Vec<Pair> {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_key(|i| entries[*i].id);
    let lives = Lives::new(entries, &order);
    let mut walk = Walk { entries, lives, ..Walk::default() };
    for at in order {
        let holder = walk.holders.insert(entries[at].name(), at);
        walk.of_relation(at, holder);
        walk.of_identity(at, holder);
    }
    walk.found
}

/// The snapshots of each relation from its first one to its drop. An oid that is used again after that is another relation.
#[derive(Default)]
struct Lives {
    /// The snapshot before it, of the same relation.
    previous: Vec<Option<usize>>,
    /// The one after it.
    next: Vec<Option<usize>>,
    /// The first one, which stands for the relation.
    first: Vec<usize>,
}

impl Lives {
    fn new(entries: &[Entry], order: &[usize]) -> Lives {
        let count = entries.len();
        let mut lives =
            Lives { previous: vec![None; count], next: vec![None; count], first: (0..count).collect() };
        let mut living = HashMap::new();
        for &at in order {
            let relation = (entries[at].origin, entries[at].relation);
            if let Some(previous) = living.insert(relation, at) {
                lives.previous[at] = Some(previous);
                lives.next[previous] = Some(at);
                lives.first[at] = lives.first[previous];
            }
            if entries[at].why == Why::Drop {
                living.remove(&relation);
            }
        }
        lives
    }
}

#[derive(Default)]
struct Walk<'a> {
    entries: &'a [Entry],
    lives: Lives,
    /// Newest snapshot so far by name, by identity, and by identity and relation.
    holders: HashMap<(&'a str, &'a str), usize>,
    of_identity: HashMap<&'a str, usize>,
    of_both: HashMap<(&'a str, usize), usize>,
    /// First snapshot of the line that a relation is in, by the first one of the relation; and by identity.
    lines: HashMap<usize, usize>,
    identity_lines: HashMap<&'a str, usize>,
    found: Vec<Pair>,
}

impl<'a> Walk<'a> {
    fn of_relation(&mut self, at: usize, holder: Option<usize>) {
        let (previous, relation) = (self.lives.previous[at], self.lives.first[at]);
        let link = holder.and_then(|holder| Some((holder, self.name_link(holder, at)?)));
        if previous.is_none() {
            // A table made again goes on with the line of its name; a swap leaves that to the earlier table, which lives.
            let inherited = link.filter(|(_, link)| *link != Link::Swapped);
            let line = inherited.map_or(at, |(holder, _)| self.line(holder));
            self.lines.insert(relation, line);
        }
        if let Some(before) = previous {
            self.found.push(pair(Pairing::Relation, before, at, Link::Same, self.line(at)));
        }
        if let Some((holder, link)) = link {
            let mut found = pair(Pairing::Relation, holder, at, link, self.line(holder));
            if link == Link::Swapped {
                (found.came_from, found.went_to) = (previous, self.lives.next[holder]);
            }
            self.found.push(found);
        }
    }

    /// How the new holder of a name stands to the one before; none where the name did not change hands.
    fn name_link(&self, holder: usize, at: usize) -> Option<Link> {
        if self.lives.first[holder] == self.lives.first[at] {
            return None;
        }
        let known = self.lives.previous[at].is_some();
        if self.entries[holder].origin != self.entries[at].origin {
            // Rows of another database that lie between those of a relation tell nothing of it.
            return (!known).then_some(Link::Restored);
        }
        // Two relations can't have one name: the earlier one, if it was seen again, had lost it.
        if known || self.lives.next[holder].is_some() {
            return Some(Link::Swapped);
        }
        Some(self.ended(holder))
    }

    fn ended(&self, before: usize) -> Link {
        if self.entries[before].why == Why::Drop { Link::Recreated } else { Link::Another }
    }

    fn of_identity(&mut self, at: usize, holder: Option<usize>) {
        let Some(identity) = self.entries[at].identity.as_deref() else { return };
        let relation = self.lives.first[at];
        let line = *self.identity_lines.entry(identity).or_insert(at);
        let own = self.of_both.insert((identity, relation), at);
        let newest = self.of_identity.insert(identity, at);
        // Versions of a resource may live side by side: each is followed by itself, and the first snapshot of a version by
        // the newest one of the others; in a restored database by the same table's, where that has the identity.
        let restored = holder.filter(|h| {
            let earlier = &self.entries[*h];
            earlier.origin != self.entries[at].origin && earlier.identity.as_deref() == Some(identity)
        });
        let Some(before) = own.or(restored).or(newest) else { return };
        let link = if self.lives.first[before] == relation {
            Link::Same
        } else if self.entries[before].origin != self.entries[at].origin {
            Link::Restored
        } else {
            self.ended(before)
        };
        self.found.push(pair(Pairing::Identity, before, at, link, line));
    }

    fn line(&self, at: usize) -> usize {
        let relation = self.lives.first[at];
        self.lines.get(&relation).copied().unwrap_or(relation)
    }
}

fn pair(pairing: Pairing, before: usize, after: usize, link: Link, line: usize) -> Pair {
    Pair { before, after, pairing, link, line, came_from: None, went_to: None }
}
