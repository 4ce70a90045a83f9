//! The difference of two shapes of one relation, as a list of atomic changes.
//!
//! Identity is (relation, attnum): a rename is known, a column that was dropped and added again is two changes. Between two
//! *different* relations (dropped and created again) numbers mean nothing; there columns, indexes and constraints are
//! paired by name, and the first change is [`Change::RelationReplaced`].
//!
//! What differs and has no variant of its own is [`Change::Other`], never left out. Evidence (see `snapshot::shape`) is
//! not a change by itself.
#![forbid(unsafe_code)]

pub use crate::drift::change::{Change, Column, RowSecurity, Severity, Turn};

use crate::model::Oid;
use crate::snapshot::shape::{
    CaptureTrigger, ColumnShape, ConstraintShape, Expression, IndexShape, MemberShape, TableShape,
};
use crate::sqltext::{display_ident, ident};
use std::collections::{BTreeMap, BTreeSet};

/// What changed from `before` to `after`, judging rewrites of rows by evidence alone (see [`diff_retyped`]).
pub fn diff(before: &TableShape, after: &TableShape) -> Vec<Change> {
    Diff::new(before, after, None).run()
}

/// Like [`diff`], where it is known which columns the command named in `ALTER COLUMN ... TYPE`.
///
/// Needed to be exact: PostgreSQL 15 writes new `pg_attribute` rows for the altered column *and for all that follow
/// it*, so that after `ALTER unused TYPE bigint` a later column looks like one that was rewritten in place. Without this
/// knowledge such a column is reported as rewritten, unless its index, constraint or default shows that it was not.
pub fn diff_retyped(before: &TableShape, after: &TableShape, retyped: &BTreeSet<String>) -> Vec<Change> {
    Diff::new(before, after, Some(retyped)).run()
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
        if b.oid != a.oid {
            self.push(Change::RelationReplaced { before: b.oid, after: a.oid });
        }
        if b.version != a.version {
            self.other(format!("the shapes have format versions {} and {}", b.version, a.version));
        }
        if b.kind != a.kind {
            self.other(format!("it became a {} where it was a {}", kind_word(a.kind), kind_word(b.kind)));
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
        let key = |s: &'a TableShape| {
            s.partitioning.as_ref().map(|p| (p.strategy, self.ids(s, &p.attnums), p.expressions))
        };
        if key(b) != key(a) {
            self.other("its partition key was changed".into());
        }
        let parents = |s: &TableShape| s.parents.iter().copied().collect::<BTreeSet<_>>();
        let moved = parents(b) != parents(a) || b.is_partition != a.is_partition;
        if self.pairing == Pairing::Identity && moved {
            self.push(Change::ParentsChanged);
        }
    }

    fn columns(&mut self) {
        let mut pairs: BTreeMap<ColumnId, (Option<&ColumnShape>, Option<&ColumnShape>)> = BTreeMap::new();
        let (before, after) = (self.before, self.after);
        for column in &before.columns {
            if pairs.entry(self.column_id(column)).or_default().0.replace(column).is_some() {
                self.other(format!("column {} was listed twice", ident(&column.name)));
            }
        }
        for column in &after.columns {
            if pairs.entry(self.column_id(column)).or_default().1.replace(column).is_some() {
                self.other(format!("column {} is listed twice", ident(&column.name)));
            }
        }
        let mut pairs: Vec<_> = pairs.into_values().collect();
        pairs.sort_by_key(|(b, a)| (b.or(*a).map(|c| c.attnum), b.is_none()));
        for pair in &pairs {
            match *pair {
                (Some(b), None) => self.push(Change::ColumnDropped { column: named(b) }),
                (None, Some(a)) => self.push(Change::ColumnAdded { column: named(a) }),
                (Some(b), Some(a)) => self.column(b, a),
                (None, None) => {}
            }
        }
        let order: Vec<i16> = pairs.iter().filter_map(|(b, a)| b.and(*a)).map(|a| a.attnum).collect();
        if !order.is_sorted() {
            self.push(Change::ColumnsReordered);
        }
    }

    fn column(&mut self, b: &ColumnShape, a: &ColumnShape) {
        let column = named(b);
        if b.name != a.name {
            self.push(Change::ColumnRenamed {
                attnum: b.attnum,
                before: b.name.clone(),
                after: a.name.clone(),
            });
        }
        let known = self.changes.len();
        if b.type_oid != a.type_oid {
            self.push(Change::ColumnTypeChanged {
                column: column.clone(),
                before: b.display_type(),
                after: a.display_type(),
            });
        } else {
            self.same_type(b, a);
        }
        let retyped = self.changes[known..].iter().any(|c| !matches!(c, Change::ColumnTypeRenamed { .. }));
        if !retyped && self.rewritten(b, a) {
            self.push(Change::ColumnRewritten { column: column.clone() });
        }
        if b.not_null != a.not_null {
            self.push(Change::NullabilityChanged { column: column.clone(), not_null: a.not_null });
        }
        if b.identity != a.identity {
            self.push(Change::IdentityChanged {
                column: column.clone(),
                before: b.identity.clone(),
                after: a.identity.clone(),
            });
        }
        let same_expression = self.same_expression(b.expression.as_ref(), a.expression.as_ref());
        if b.generated != a.generated || (!a.generated.is_empty() && !same_expression) {
            self.push(Change::GenerationChanged {
                column,
                before: generation_words(b),
                after: generation_words(a),
            });
        } else if !same_expression {
            let text = |c: &ColumnShape| c.expression.as_ref().map(expression_words);
            self.push(Change::DefaultChanged { column, before: text(b), after: text(a) });
        }
    }

    fn same_type(&mut self, b: &ColumnShape, a: &ColumnShape) {
        let column = named(b);
        if b.typmod != a.typmod {
            self.push(Change::ColumnTypmodChanged {
                column: column.clone(),
                before: b.display_type(),
                after: a.display_type(),
            });
        }
        if b.dims != a.dims {
            self.push(Change::ColumnDimensionsChanged {
                column: column.clone(),
                before: b.dims,
                after: a.dims,
            });
        }
        if b.type_kind != a.type_kind {
            self.push(Change::ColumnTypeKindChanged {
                column: column.clone(),
                before: b.type_kind,
                after: a.type_kind,
            });
        }
        if b.type_name != a.type_name {
            self.push(Change::ColumnTypeRenamed {
                column: column.clone(),
                before: b.type_name.clone(),
                after: a.type_name.clone(),
            });
        }
        if b.collation_oid != a.collation_oid {
            self.push(Change::ColumnCollationChanged {
                column,
                before: b.collation_name.clone(),
                after: a.collation_name.clone(),
            });
        } else if b.collation_name != a.collation_name {
            let words = |c: &ColumnShape| c.collation_name.clone().unwrap_or_default();
            self.push(Change::ColumnTypeRenamed { column, before: words(b), after: words(a) });
        }
    }

    /// Whether the values of a column of unchanged type were computed anew.
    fn rewritten(&self, b: &ColumnShape, a: &ColumnShape) -> bool {
        if self.pairing == Pairing::Name || !self.storage_moved || b.stored == a.stored {
            return false;
        }
        if let Some(retyped) = self.retyped {
            return retyped.contains(&b.name);
        }
        // ALTER TYPE makes a new default, and new indexes and constraints where the column takes part: any that stayed
        // itself shows that the new pg_attribute row has another cause.
        let default = b.expression.as_ref().zip(a.expression.as_ref()).is_some_and(|(b, a)| b.oid == a.oid);
        let of = |s: &TableShape| -> BTreeSet<Oid> {
            let indexes = s.indexes.iter().map(|i| (i.oid, &i.attnums));
            let constraints = s.constraints.iter().map(|c| (c.oid, &c.attnums));
            indexes.chain(constraints).filter(|(_, on)| on.contains(&b.attnum)).map(|(oid, _)| oid).collect()
        };
        let stayed = of(self.before).intersection(&of(self.after)).next().is_some();
        !(default || stayed)
    }

    /// Digests decide: printed text follows renames, and may be missing. Between two relations equal text suffices.
    fn same_expression(&self, b: Option<&Expression>, a: Option<&Expression>) -> bool {
        match (b, a) {
            (None, None) => true,
            (Some(b), Some(a)) => {
                b.digest == a.digest
                    || (self.pairing == Pairing::Name && b.text.is_some() && b.text == a.text)
            }
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    fn primary_key(&mut self) {
        let (b, a) = (self.before, self.after);
        match (b.primary_key(), a.primary_key()) {
            (None, None) => {}
            (None, Some(key)) => self.push(Change::PrimaryKeyAdded { columns: names(a, &key.attnums) }),
            (Some(key), None) => self.push(Change::PrimaryKeyRemoved { columns: names(b, &key.attnums) }),
            (Some(old), Some(new)) => {
                if self.ids(b, &old.attnums) != self.ids(a, &new.attnums) {
                    self.push(Change::PrimaryKeyChanged {
                        before: names(b, &old.attnums),
                        after: names(a, &new.attnums),
                    });
                }
                self.constraint(Some(old), Some(new));
            }
        }
    }

    fn replica_identity(&mut self) {
        let (b, a) = (self.before, self.after);
        let (old, new) = (self.identity(b), self.identity(a));
        // Under DEFAULT the primary key is the identity; its change has been told.
        let by_key = b.replica_identity == 'd' && a.replica_identity == 'd';
        let taken = a.replica_identity == 'n' && b.replica_identity != 'n';
        if taken || (!by_key && old.is_some() && new.is_none()) {
            self.push(Change::ReplicaIdentityRemoved { before: identity_words(b), after: identity_words(a) });
        } else if (!by_key && old != new)
            || b.replica_identity != a.replica_identity
            || self.marked(b) != self.marked(a)
        {
            self.push(Change::ReplicaIdentityChanged { before: identity_words(b), after: identity_words(a) });
        }
    }

    /// What tells rows apart in the WAL: none, or the columns (empty for the full row).
    fn identity(&self, shape: &TableShape) -> Option<Vec<String>> {
        match shape.replica_identity {
            'f' => Some(Vec::new()),
            'd' => shape.primary_key().map(|key| self.ids(shape, &key.attnums)),
            'i' => identity_index(shape).map(|i| self.ids(shape, i.key())),
            _ => None,
        }
    }

    /// Keys of the indexes that are marked as replica identity, in force or not.
    fn marked(&self, shape: &TableShape) -> BTreeSet<Vec<String>> {
        shape.indexes.iter().filter(|i| i.replica_identity).map(|i| self.ids(shape, i.key())).collect()
    }

    fn indexes(&mut self) {
        let (b, a) = (self.before, self.after);
        for (old, new) in paired(&b.indexes, &a.indexes, self.pairing, |i| i.oid, |i| &i.name) {
            match (old, new) {
                (Some(old), Some(new)) => {
                    let facts = |s: &TableShape, i: &IndexShape| {
                        let columns = self.ids(s, &i.attnums);
                        (columns, i.key_count, i.unique, i.primary, i.valid, i.expressions, i.partial)
                    };
                    let changed = facts(b, old) != facts(a, new);
                    if old.name != new.name {
                        self.push(Change::IndexRenamed { before: old.name.clone(), after: new.name.clone() });
                    }
                    if changed {
                        self.index(new, Turn::Changed);
                    }
                }
                (Some(old), None) => self.index(old, Turn::Removed),
                (None, Some(new)) => self.index(new, Turn::Added),
                (None, None) => {}
            }
        }
    }

    fn index(&mut self, index: &IndexShape, turn: Turn) {
        self.push(Change::IndexChanged { name: index.name.clone(), turn, unique: index.unique });
    }

    fn constraints(&mut self) {
        // The first primary key is `primary_key()`'s; a second one can't be, and would be told here.
        let rest = |s: &'a TableShape| -> Vec<&'a ConstraintShape> {
            let key = s.primary_key().map(|k| k.oid);
            s.constraints.iter().filter(|c| c.kind != 'p' || Some(c.oid) != key).collect()
        };
        let (b, a) = (rest(self.before), rest(self.after));
        for (old, new) in paired(&b, &a, self.pairing, |c| c.oid, |c| &c.name) {
            self.constraint(old.copied(), new.copied());
        }
    }

    fn constraint(&mut self, old: Option<&ConstraintShape>, new: Option<&ConstraintShape>) {
        let (turn, shown) = match (old, new) {
            (None, None) => return,
            (Some(old), None) => (Turn::Removed, old),
            (None, Some(new)) => (Turn::Added, new),
            (Some(old), Some(new)) => {
                if old.name != new.name {
                    self.push(Change::ConstraintRenamed {
                        before: old.name.clone(),
                        after: new.name.clone(),
                    });
                }
                let facts = |s: &TableShape, c: &ConstraintShape| {
                    // The columns of a primary key have changes of their own.
                    let columns = if c.kind == 'p' { Vec::new() } else { self.ids(s, &c.attnums) };
                    (c.kind, columns, c.validated)
                };
                if facts(self.before, old) == facts(self.after, new) {
                    return;
                }
                (Turn::Changed, new)
            }
        };
        self.push(Change::ConstraintChanged { name: shown.name.clone(), turn, kind: shown.kind });
    }

    fn row_security(&mut self) {
        let (b, a) = (self.before, self.after);
        let (old, new) = (RowSecurity::of(b), RowSecurity::of(a));
        if old != new {
            self.push(Change::RowSecurityChanged { before: old, after: new });
        }
        let in_force = old.in_force() || new.in_force();
        for (old, new) in paired(&b.policies, &a.policies, Pairing::Name, |_| 0, |p| &p.name) {
            let (turn, policy) = match (old, new) {
                (Some(old), None) => (Turn::Removed, old),
                (None, Some(new)) => (Turn::Added, new),
                (Some(old), Some(new)) if old.digest != new.digest => (Turn::Changed, new),
                (Some(_), Some(_)) | (None, None) => continue,
            };
            self.push(Change::PolicyChanged { name: policy.name.clone(), turn, in_force });
        }
    }

    fn members(&mut self) {
        let index = |s: &'a TableShape| -> BTreeMap<(Oid, Oid), &'a MemberShape> {
            s.members.iter().map(|m| ((m.oid, m.parent), m)).collect()
        };
        let (old, new) = (index(self.before), index(self.after));
        let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
        for key in keys {
            match (old.get(key), new.get(key)) {
                (Some(m), None) if m.partition => {
                    self.push(Change::PartitionDetached { member: m.oid, name: member_name(m) })
                }
                (Some(m), None) => self.push(Change::ChildRemoved { member: m.oid, name: member_name(m) }),
                (None, Some(m)) if m.partition => self.push(Change::PartitionAttached {
                    member: m.oid,
                    name: member_name(m),
                    foreign: m.kind == 'f',
                    created: false,
                }),
                (None, Some(m)) => self.push(Change::ChildAdded { member: m.oid, name: member_name(m) }),
                (Some(b), Some(a)) => self.member(b, a),
                (None, None) => {}
            }
        }
    }

    fn member(&mut self, b: &MemberShape, a: &MemberShape) {
        let (old, new) = (member_name(b), member_name(a));
        if old != new {
            self.push(Change::MemberRenamed { member: a.oid, before: old, after: new.clone() });
        }
        if b.kind != a.kind || b.partition != a.partition {
            self.other(format!("{new} takes part in it in another way"));
        }
        if b.persistence != a.persistence {
            self.push(Change::PersistenceChanged {
                relation: new,
                before: b.persistence,
                after: a.persistence,
            });
        }
    }

    fn capture(&mut self) {
        let (b, a) = (self.before, self.after);
        self.triggers(a.oid, a.display_name(), &b.capture, &a.capture);
        let later: BTreeMap<Oid, &MemberShape> = a.members.iter().map(|m| (m.oid, m)).collect();
        let earlier: BTreeMap<Oid, &MemberShape> = b.members.iter().map(|m| (m.oid, m)).collect();
        for (oid, old) in earlier {
            if let Some(new) = later.get(&oid) {
                self.triggers(oid, member_name(new), &old.capture, &new.capture);
            }
        }
    }

    fn triggers(&mut self, member: Oid, relation: String, b: &[CaptureTrigger], a: &[CaptureTrigger]) {
        for (old, new) in paired(b, a, Pairing::Name, |_| 0, |t| &t.name) {
            let turn = match (old, new) {
                (Some(old), Some(new)) if (old.enabled, old.function) == (new.enabled, new.function) => {
                    continue;
                }
                (Some(_), Some(_)) => Turn::Changed,
                (Some(_), None) => Turn::Removed,
                (None, Some(_)) => Turn::Added,
                (None, None) => continue,
            };
            self.push(Change::CaptureChanged {
                member,
                relation: relation.clone(),
                trigger: old.or(new).map(|t| t.name.clone()).unwrap_or_default(),
                turn,
                before: old.map(|t| t.enabled),
                after: new.map(|t| t.enabled),
            });
        }
    }

    fn column_id(&self, column: &ColumnShape) -> ColumnId {
        match self.pairing {
            Pairing::Identity => ColumnId::Number(column.attnum),
            Pairing::Name => ColumnId::Name(column.name.clone()),
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

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum ColumnId {
    Number(i16),
    Name(String),
}

/// Items of both sides side by side, by oid first (where the relation is the same), then by name; sorted by name.
fn paired<'s, T>(
    before: &'s [T],
    after: &'s [T],
    pairing: Pairing,
    oid: impl Fn(&T) -> Oid,
    name: impl Fn(&T) -> &String,
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
    let key = |(b, a): &(Option<&'s T>, Option<&'s T>)| b.or(*a).map(|i| (name(i).clone(), oid(i)));
    pairs.sort_by_cached_key(key);
    pairs
}

fn named(column: &ColumnShape) -> Column {
    Column { attnum: column.attnum, name: column.name.clone() }
}

/// Names of columns; `(expression)` for attnum 0.
fn names(shape: &TableShape, attnums: &[i16]) -> Vec<String> {
    let name = |attnum: &i16| match shape.column(*attnum) {
        Some(column) => column.name.clone(),
        None if *attnum == 0 => "(expression)".into(),
        None => format!("#{attnum}"),
    };
    attnums.iter().map(name).collect()
}

fn member_name(member: &MemberShape) -> String {
    format!("{}.{}", display_ident(&member.schema), display_ident(&member.name))
}

fn identity_index(shape: &TableShape) -> Option<&IndexShape> {
    shape.indexes.iter().find(|i| i.replica_identity && i.valid)
}

fn identity_words(shape: &TableShape) -> String {
    match (shape.replica_identity, identity_index(shape)) {
        ('d', _) => "DEFAULT".into(),
        ('n', _) => "NOTHING".into(),
        ('f', _) => "FULL".into(),
        ('i', Some(index)) => format!("INDEX {}", ident(&index.name)),
        ('i', None) => "INDEX (dropped)".into(),
        (other, _) => format!("'{other}'"),
    }
}

fn expression_words(expression: &Expression) -> String {
    expression.text.clone().unwrap_or_else(|| "(not printable any more)".into())
}

fn generation_words(column: &ColumnShape) -> Option<String> {
    let kind = match column.generated.as_str() {
        "" => return None,
        "s" => " stored",
        "v" => " virtual",
        _ => "",
    };
    let expression = column.expression.as_ref().map(expression_words).unwrap_or_default();
    Some(format!("{expression}{kind}"))
}

fn kind_word(kind: char) -> String {
    match kind {
        'r' => "table".into(),
        'p' => "partitioned table".into(),
        'v' => "view".into(),
        'm' => "materialized view".into(),
        'f' => "foreign table".into(),
        other => format!("relation of kind '{other}'"),
    }
}
