//! The difference of two shapes of one relation, as a list of atomic changes.
//!
//! Identity is (relation, attnum): a rename is known, a column that was dropped and added again is two changes. Between two
//! *different* relations (dropped and created again) numbers mean nothing; there columns, indexes, constraints, partitions
//! and children are paired by name, and the first change is [`Change::RelationReplaced`].
//!
//! What differs and has no variant of its own is [`Change::Other`], never left out. Evidence (see `snapshot::shape`) is
//! not a change by itself.
#![forbid(unsafe_code)]

pub use crate::drift::change::{Change, Column, RowSecurity, Severity, Turn};

use crate::model::Oid;
use crate::snapshot::shape::TableShape;
use std::borrow::Cow;
use std::collections::BTreeSet;

mod columns;
mod keys;
mod tree;

/// What changed from `before` to `after`, judging rewrites of rows by evidence alone (see [`diff_retyped`]).
pub fn diff(before: &TableShape, after: &TableShape) -> Vec<Change> {
    Diff::new(&ordered(before), &ordered(after), None).run()
}

/// Like [`diff`], where it is known which columns the command named in `ALTER COLUMN ... TYPE`.
///
/// Needed to be exact: PostgreSQL 15 writes new `pg_attribute` rows for the altered column *and for all that follow
/// it*, so that after `ALTER unused TYPE bigint` a later column looks like one that was rewritten in place. Without this
/// knowledge such a column is reported as rewritten, unless its index, constraint or default shows that it was not.
pub fn diff_retyped(before: &TableShape, after: &TableShape, retyped: &BTreeSet<String>) -> Vec<Change> {
    Diff::new(&ordered(before), &ordered(after), Some(retyped)).run()
}

/// Like [`diff`], where it is known that the relations are two, even if the oid of a dropped one was given out again, or if
/// they are of two databases. No oid of one says anything about the other, so types and collations are told apart by name:
/// a schema that is dropped and made again takes its types along. Policies are told apart by digests that hold oids: one
/// that names roles or functions comes out as changed, for want of knowledge.
pub fn diff_replaced(before: &TableShape, after: &TableShape) -> Vec<Change> {
    let (before, after) = (ordered(before), ordered(after));
    let mut diff = Diff::new(&before, &after, None);
    diff.pairing = Pairing::Name;
    diff.run()
}

/// Marks partitions that the same command created: `CREATE TABLE ... PARTITION OF`. Two shapes of the parent can't tell
/// them from tables with rows that were attached; the relation oids of the command can.
pub fn mark_created(changes: &mut [Change], created_relations: &BTreeSet<Oid>) {
    for change in changes {
        if let Change::PartitionAttached { member, created, .. } = change {
            *created = created_relations.contains(member);
        }
    }
}

/// The shape with its lists in their documented order, and whatever is listed twice in a fixed one: what comes out must
/// not depend on the order in which it was read.
fn ordered(shape: &TableShape) -> Cow<'_, TableShape> {
    let sorted = shape.columns.is_sorted()
        && shape.indexes.is_sorted()
        && shape.constraints.is_sorted()
        && shape.policies.is_sorted()
        && shape.members.is_sorted()
        && shape.capture.is_sorted();
    let mut shape = Cow::Borrowed(shape);
    if !sorted {
        let lists = shape.to_mut();
        lists.columns.sort();
        lists.indexes.sort();
        lists.constraints.sort();
        lists.policies.sort();
        lists.members.sort();
        lists.capture.sort();
        lists.members.iter_mut().for_each(|m| m.capture.sort());
    }
    shape
}

/// How two relations' items are paired.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pairing {
    /// Same relation: by number and oid.
    Identity,
    /// Two relations: by name.
    Name,
}

struct Diff<'a> {
    before: &'a TableShape,
    after: &'a TableShape,
    pairing: Pairing,
    retyped: Option<&'a BTreeSet<String>>,
    /// A relation of the tree has other storage than before.
    storage_moved: bool,
    changes: Vec<Change>,
}

impl<'a> Diff<'a> {
    fn new(before: &'a TableShape, after: &'a TableShape, retyped: Option<&'a BTreeSet<String>>) -> Diff<'a> {
        let pairing = if before.oid == after.oid { Pairing::Identity } else { Pairing::Name };
        let later = after.storage();
        let storage_moved =
            before.storage().iter().any(|(oid, filenode)| later.get(oid).is_some_and(|now| now != filenode));
        Diff { before, after, pairing, retyped, storage_moved, changes: Vec::new() }
    }

    fn run(mut self) -> Vec<Change> {
        self.relation();
        self.partition_key();
        self.parents();
        self.columns();
        self.primary_key();
        self.replica_identity();
        self.indexes();
        self.constraints();
        self.row_security();
        self.members();
        self.capture();
        self.changes
    }

    fn push(&mut self, change: Change) {
        self.changes.push(change);
    }

    fn other(&mut self, what: String) {
        self.push(Change::Other { what });
    }

    fn relation(&mut self) {
        let (b, a) = (self.before, self.after);
        if self.pairing == Pairing::Name {
            self.push(Change::RelationReplaced { before: b.oid, after: a.oid });
        }
        if b.version != a.version {
            self.other(format!("the shapes have format versions {} and {}", b.version, a.version));
        }
        if b.kind != a.kind {
            self.push(Change::KindChanged { before: b.kind, after: a.kind });
        }
        if b.schema != a.schema {
            self.push(Change::SchemaChanged { before: b.schema.clone(), after: a.schema.clone() });
        }
        if b.name != a.name {
            self.push(Change::TableRenamed { before: b.name.clone(), after: a.name.clone() });
        }
        if b.owner != a.owner {
            self.push(Change::OwnerChanged { before: b.owner.clone(), after: a.owner.clone() });
        }
        if b.persistence != a.persistence {
            self.push(Change::PersistenceChanged {
                relation: a.display_name(),
                before: b.persistence,
                after: a.persistence,
            });
        }
    }

    /// Columns in a form that can be compared between the two shapes.
    fn ids(&self, shape: &TableShape, attnums: &[i16]) -> Vec<String> {
        match self.pairing {
            Pairing::Identity => attnums.iter().map(i16::to_string).collect(),
            Pairing::Name => names(shape, attnums),
        }
    }
}

/// Two items of the same key.
struct Beside<'s, T> {
    before: Option<&'s T>,
    after: Option<&'s T>,
    /// Not the first of this key: such a list is no server's.
    repeated: bool,
}

/// Items of both sides side by side, by a key; items of one key in their order. Sorted by key.
fn beside<'s, T, K: Ord + Copy>(
    before: impl Iterator<Item = (K, &'s T)>,
    after: impl Iterator<Item = (K, &'s T)>,
) -> Vec<Beside<'s, T>> {
    let sorted = |mut items: Vec<(K, &'s T)>| {
        items.sort_by_key(|(key, _)| *key);
        items.into_iter().peekable()
    };
    let (mut left, mut right) = (sorted(before.collect()), sorted(after.collect()));
    let (mut all, mut last) = (Vec::new(), None);
    while let Some(key) = left.peek().map(|(k, _)| *k).into_iter().chain(right.peek().map(|(k, _)| *k)).min()
    {
        all.push(Beside {
            before: left.next_if(|(k, _)| *k == key).map(|(_, item)| item),
            after: right.next_if(|(k, _)| *k == key).map(|(_, item)| item),
            repeated: last == Some(key),
        });
        last = Some(key);
    }
    all
}

/// Items of both sides side by side, by oid first (where the relation is the same), then by name; sorted by name.
fn paired<'s, T>(
    before: &'s [T],
    after: &'s [T],
    pairing: Pairing,
    oid: impl Fn(&T) -> Oid,
    name: impl Fn(&T) -> &str,
) -> Vec<(Option<&'s T>, Option<&'s T>)> {
    let mut left: Vec<&T> = after.iter().collect();
    left.sort_by(|x, y| (name(x), oid(x)).cmp(&(name(y), oid(y))));
    let mut old: Vec<&T> = before.iter().collect();
    old.sort_by(|x, y| (name(x), oid(x)).cmp(&(name(y), oid(y))));
    let mut pairs: Vec<(Option<&T>, Option<&T>)> = Vec::new();
    let mut unmatched = Vec::new();
    for item in old {
        let same = left.iter().position(|l| pairing == Pairing::Identity && oid(l) == oid(item));
        match same {
            Some(at) => pairs.push((Some(item), Some(left.remove(at)))),
            None => unmatched.push(item),
        }
    }
    for item in unmatched {
        match left.iter().position(|l| name(l) == name(item)) {
            Some(at) => pairs.push((Some(item), Some(left.remove(at)))),
            None => pairs.push((Some(item), None)),
        }
    }
    pairs.extend(left.into_iter().map(|l| (None, Some(l))));
    pairs.sort_by(|x, y| {
        let key = |(b, a): &(Option<&'s T>, Option<&'s T>)| b.or(*a).map(|i| (name(i), oid(i)));
        key(x).cmp(&key(y))
    });
    pairs
}

/// Names of columns; `(expression)` for attnum 0.
fn names(shape: &TableShape, attnums: &[i16]) -> Vec<String> {
    let name = |attnum: &i16| match shape.column(*attnum) {
        Some(column) => column.name.to_string(),
        None if *attnum == 0 => "(expression)".into(),
        None => format!("#{attnum}"),
    };
    attnums.iter().map(name).collect()
}
