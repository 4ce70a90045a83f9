//! The tree of partitions and inheritance children, and the capture triggers in it.
#![forbid(unsafe_code)]

use super::{Diff, Pairing, beside, paired};
use crate::drift::change::{Change, Turn};
use crate::model::Oid;
use crate::snapshot::shape::{CaptureTrigger, MemberShape, TableShape};
use crate::sqltext::{display, display_ident};
use std::collections::{BTreeMap, BTreeSet};

impl<'a> Diff<'a> {
    /// How the relation itself is partitioned.
    pub(super) fn partition_key(&mut self) {
        let (b, a) = (self.before, self.after);
        let key = |s: &TableShape| {
            s.partitioning.as_ref().map(|p| (p.strategy, self.ids(s, &p.attnums), p.expressions))
        };
        if key(b) != key(a) {
            let (before, after) = (partition_key_words(b), partition_key_words(a));
            self.push(Change::PartitionKeyChanged { before, after });
        }
    }

    /// What it is a part of. Two relations can't be compared by the oids of their parents, whose names aren't known; that
    /// one has others, or more of them, can be told.
    pub(super) fn parents(&mut self) {
        let (b, a) = (self.before, self.after);
        let parents = |s: &TableShape| s.parents.iter().copied().collect::<BTreeSet<_>>();
        let (old, new) = (parents(b), parents(a));
        let moved = match self.pairing {
            Pairing::Identity => old != new,
            Pairing::Name => old.len() != new.len(),
        };
        if moved || b.is_partition != a.is_partition {
            self.push(Change::ParentsChanged);
        }
    }

    /// Partitions and children of any depth.
    pub(super) fn members(&mut self) {
        let (old, new) = (self.member_ids(self.before), self.member_ids(self.after));
        for pair in beside(old.into_iter(), new.into_iter()) {
            match (pair.before, pair.after) {
                (Some(b), Some(a)) => self.member(b, a),
                (Some(m), None) | (None, Some(m)) if pair.repeated => {
                    self.other(format!("{} is listed twice in its tree", member_name(m)));
                }
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
                (None, None) => {}
            }
        }
    }

    fn member_ids(&self, shape: &'a TableShape) -> Vec<(MemberId<'a>, &'a MemberShape)> {
        let by_oid: BTreeMap<Oid, &MemberShape> = shape.members.iter().map(|m| (m.oid, m)).collect();
        let above = |parent: Oid| match by_oid.get(&parent) {
            _ if parent == shape.oid => Above::Itself,
            Some(m) => Above::Member(&m.schema, &m.name),
            None => Above::Unlisted(parent),
        };
        let id = |m: &'a MemberShape| match self.pairing {
            Pairing::Identity => MemberId::Oids(m.oid, m.parent),
            Pairing::Name => MemberId::Names(&m.schema, &m.name, above(m.parent)),
        };
        shape.members.iter().map(|m| (id(m), m)).collect()
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

    /// Capture triggers of the relation and of the members that stayed. They are a relation's own, and named after it:
    /// between two relations they are no difference.
    pub(super) fn capture(&mut self) {
        if self.pairing == Pairing::Name {
            return;
        }
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
                (Some(old), Some(new)) if old == new => continue,
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
}

/// What makes a member the same one in both shapes: itself, and what it is directly below.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum MemberId<'a> {
    Oids(Oid, Oid),
    Names(&'a str, &'a str, Above<'a>),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Above<'a> {
    /// The relation of the shape.
    Itself,
    /// Another member, by schema and name.
    Member(&'a str, &'a str),
    /// Nothing that the shape knows.
    Unlisted(Oid),
}

fn member_name(member: &MemberShape) -> String {
    display(&member.schema, &member.name)
}

/// `RANGE (a, b)`.
fn partition_key_words(shape: &TableShape) -> Option<String> {
    let key = shape.partitioning.as_ref()?;
    let strategy = match key.strategy {
        'r' => "RANGE".into(),
        'l' => "LIST".into(),
        'h' => "HASH".into(),
        other => format!("'{other}'"),
    };
    let column = |attnum: &i16| match shape.column(*attnum) {
        Some(column) => display_ident(&column.name),
        None if *attnum == 0 => "(expression)".into(),
        None => format!("#{attnum}"),
    };
    let columns: Vec<String> = key.attnums.iter().map(column).collect();
    Some(format!("{strategy} ({})", columns.join(", ")))
}
