//! What tells rows apart and holds for them: keys, replica identity, indexes, constraints, row security.
#![forbid(unsafe_code)]

use super::{Diff, Pairing, names, paired};
use crate::drift::change::{Change, RowSecurity, Turn};
use crate::snapshot::shape::{ConstraintShape, IndexShape, TableShape};
use crate::sqltext::visible_ident;
use std::collections::BTreeSet;

impl<'a> Diff<'a> {
    pub(super) fn primary_key(&mut self) {
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

    pub(super) fn replica_identity(&mut self) {
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

    pub(super) fn indexes(&mut self) {
        let (b, a) = (self.before, self.after);
        for (old, new) in paired(&b.indexes, &a.indexes, self.pairing, |i| i.oid, |i| i.name.as_str()) {
            match (old, new) {
                (Some(old), Some(new)) => {
                    let facts = |s: &TableShape, i: &IndexShape| {
                        let columns = self.ids(s, &i.attnums);
                        (columns, i.key_count, i.unique, i.primary, i.valid, i.expressions, i.partial)
                    };
                    let redefined =
                        old.definition != new.definition && self.same_types(&old.attnums, &new.attnums);
                    let changed = redefined || facts(b, old) != facts(a, new);
                    if old.name != new.name {
                        self.push(Change::IndexRenamed {
                            before: old.name.to_string(),
                            after: new.name.to_string(),
                        });
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

    /// These columns kept their types. Operators and conditions follow another type, whose change has been told.
    fn same_types(&self, old: &[i16], new: &[i16]) -> bool {
        let of = |shape: &TableShape, attnum: i16| shape.column(attnum).map(|c| c.type_name.clone());
        old.iter().zip(new).all(|(o, n)| of(self.before, *o) == of(self.after, *n))
    }

    fn index(&mut self, index: &IndexShape, turn: Turn) {
        self.push(Change::IndexChanged { name: index.name.to_string(), turn, unique: index.unique });
    }

    pub(super) fn constraints(&mut self) {
        // The first primary key is `primary_key()`'s; a second one can't be, and would be told here.
        let rest = |s: &'a TableShape| -> Vec<&'a ConstraintShape> {
            let key = s.constraints.iter().position(|c| c.kind == 'p');
            let others = s.constraints.iter().enumerate().filter(|(at, _)| Some(*at) != key);
            others.map(|(_, c)| c).collect()
        };
        let (b, a) = (rest(self.before), rest(self.after));
        for (old, new) in paired(&b, &a, self.pairing, |c| c.oid, |c| c.name.as_str()) {
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
                        before: old.name.to_string(),
                        after: new.name.to_string(),
                    });
                }
                let facts = |s: &TableShape, c: &ConstraintShape| {
                    // The columns of a primary key have changes of their own.
                    let columns = if c.kind == 'p' { Vec::new() } else { self.ids(s, &c.attnums) };
                    (c.kind, columns, c.validated)
                };
                let redefined =
                    old.definition != new.definition && self.same_types(&old.attnums, &new.attnums);
                if !redefined && facts(self.before, old) == facts(self.after, new) {
                    return;
                }
                (Turn::Changed, new)
            }
        };
        self.push(Change::ConstraintChanged { name: shown.name.to_string(), turn, kind: shown.kind });
    }

    pub(super) fn row_security(&mut self) {
        let (b, a) = (self.before, self.after);
        let (old, new) = (RowSecurity::of(b), RowSecurity::of(a));
        if old != new {
            self.push(Change::RowSecurityChanged { before: old, after: new });
        }
        let in_force = old.in_force() || new.in_force();
        for (old, new) in paired(&b.policies, &a.policies, Pairing::Name, |_| 0, |p| p.name.as_str()) {
            let (turn, policy) = match (old, new) {
                (Some(old), None) => (Turn::Removed, old),
                (None, Some(new)) => (Turn::Added, new),
                (Some(old), Some(new)) if old.digest != new.digest => (Turn::Changed, new),
                (Some(_), Some(_)) | (None, None) => continue,
            };
            self.push(Change::PolicyChanged { name: policy.name.to_string(), turn, in_force });
        }
    }
}

fn identity_index(shape: &TableShape) -> Option<&IndexShape> {
    shape.indexes.iter().find(|i| i.replica_identity && i.valid)
}

fn identity_words(shape: &TableShape) -> String {
    match (shape.replica_identity, identity_index(shape)) {
        ('d', _) => "DEFAULT".into(),
        ('n', _) => "NOTHING".into(),
        ('f', _) => "FULL".into(),
        ('i', Some(index)) => format!("INDEX {}", visible_ident(&index.name)),
        ('i', None) => "INDEX (dropped)".into(),
        (other, _) => format!("'{other}'"),
    }
}
