//! The verdict table, row by row. The cases of the seed that it came from are in `seed_000.rs`.

use pgtrickle::drift::diff::{Column, RowSecurity, Turn};
use pgtrickle::drift::{Change, Usage, judge};
use pgtrickle::model::{Reason, Verdict};
use std::collections::BTreeSet;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Is {
    Nothing,
    InPlace,
    Reinit,
    Suspend(Reason),
}
pub use Is::*;

pub fn is(changes: &[Change], usage: &Usage) -> Is {
    match judge(changes, usage) {
        Verdict::Nothing => Nothing,
        Verdict::InPlace => InPlace,
        Verdict::Reinitialize { detail } => {
            assert!(detail.ends_with('.'), "{detail}");
            Reinit
        }
        Verdict::Suspend { reason, detail } => {
            assert!(detail.starts_with("public.orders: ") && detail.ends_with('.'), "{detail}");
            Suspend(reason)
        }
    }
}

pub fn usage(columns: &[i16]) -> Usage {
    Usage {
        source: "public.orders".into(),
        columns: columns.iter().copied().collect(),
        capture: true,
        ..Usage::default()
    }
}

/// Each kind of change about column 1 (where it is about a column): verdict for who uses it, who uses another one, and
/// who uses the whole row.
fn table() -> Vec<(Change, Is, Is, Is)> {
    let s = String::from;
    let c = || Column { attnum: 1, name: s("x") };
    let all = |change: Change, is: Is| (change, is, is, is);
    let used = |change: Change, is: Is| (change, is, Nothing, is);
    let typed = |change: Change| used(change, Suspend(Reason::ColumnTypeChanged));
    let key = Suspend(Reason::KeyChanged);
    let unclassified = Suspend(Reason::Unclassified);
    let constraint = |kind| Change::ConstraintChanged { name: s("c"), turn: Turn::Removed, kind };
    let partition =
        |foreign, created| Change::PartitionAttached { member: 7, name: s("p"), foreign, created };
    let capture = |turn| Change::CaptureChanged {
        member: 7,
        relation: s("t"),
        trigger: s("t"),
        turn,
        before: Some('A'),
        after: Some('D'),
    };
    let security = |before, after| Change::RowSecurityChanged { before, after };
    let policy = |in_force| Change::PolicyChanged { name: s("p"), turn: Turn::Added, in_force };
    let mut rows = vec![
        all(Change::RelationReplaced { before: 1, after: 2 }, Suspend(Reason::SourceRecreated)),
        all(Change::TableRenamed { before: s("a"), after: s("b") }, InPlace),
        all(Change::SchemaChanged { before: s("a"), after: s("b") }, InPlace),
        all(Change::OwnerChanged { before: s("a"), after: s("b") }, InPlace),
        all(Change::PersistenceChanged { relation: s("t"), before: 'p', after: 'u' }, Reinit),
        used(Change::ColumnDropped { column: c() }, Suspend(Reason::ColumnDropped)),
        (Change::ColumnAdded { column: c() }, Nothing, Nothing, Reinit),
        (Change::ColumnRenamed { attnum: 1, before: s("a"), after: s("b") }, InPlace, InPlace, Reinit),
        typed(Change::ColumnTypeChanged { column: c(), before: s("a"), after: s("b") }),
        typed(Change::ColumnTypmodChanged { column: c(), before: s("a"), after: s("b") }),
        typed(Change::ColumnDimensionsChanged { column: c(), before: 0, after: 1 }),
        typed(Change::ColumnTypeKindChanged { column: c(), before: 'b', after: 'e' }),
        typed(Change::ColumnCollationChanged { column: c(), before: None, after: Some(s("C")) }),
        typed(Change::ColumnRewritten { column: c() }),
        used(Change::ColumnTypeRenamed { column: c(), before: s("a"), after: s("b") }, InPlace),
        all(Change::NullabilityChanged { column: c(), not_null: true }, Nothing),
        all(Change::NullabilityChanged { column: c(), not_null: false }, Nothing),
        all(Change::DefaultChanged { column: c(), before: None, after: Some(s("1")) }, Nothing),
        all(Change::IdentityChanged { column: c(), before: s(""), after: s("a") }, Nothing),
        used(
            Change::GenerationChanged { column: c(), before: None, after: Some(s("1")) },
            Suspend(Reason::GenerationChanged),
        ),
        all(Change::ColumnsReordered, Nothing),
        all(Change::PrimaryKeyAdded { columns: vec![s("x")] }, Nothing),
        all(Change::PrimaryKeyRemoved { columns: vec![s("x")] }, key),
        all(Change::PrimaryKeyChanged { before: vec![s("x")], after: vec![s("y")] }, key),
        all(Change::ReplicaIdentityRemoved { before: s("DEFAULT"), after: s("NOTHING") }, key),
        all(Change::ReplicaIdentityChanged { before: s("DEFAULT"), after: s("FULL") }, Nothing),
        all(Change::IndexChanged { name: s("i"), turn: Turn::Removed, unique: true }, Nothing),
        all(Change::IndexRenamed { before: s("a"), after: s("b") }, Nothing),
        all(constraint('?'), unclassified),
        all(Change::ConstraintRenamed { before: s("a"), after: s("b") }, Nothing),
        all(security(RowSecurity::Off, RowSecurity::On), Reinit),
        all(security(RowSecurity::Forced, RowSecurity::On), Reinit),
        all(security(RowSecurity::On, RowSecurity::Off), Reinit),
        all(security(RowSecurity::Off, RowSecurity::OffForced), Nothing),
        all(policy(true), Reinit),
        all(policy(false), Nothing),
        all(partition(false, false), Reinit),
        all(partition(false, true), InPlace),
        all(partition(true, true), unclassified),
        all(partition(true, false), unclassified),
        all(Change::PartitionDetached { member: 7, name: s("p") }, Reinit),
        all(Change::ChildAdded { member: 7, name: s("p") }, unclassified),
        all(Change::ChildRemoved { member: 7, name: s("p") }, unclassified),
        all(Change::MemberRenamed { member: 7, before: s("a"), after: s("b") }, Nothing),
        all(Change::ParentsChanged, Nothing),
        all(capture(Turn::Added), Nothing),
        all(capture(Turn::Removed), Reinit),
        all(capture(Turn::Changed), Reinit),
        all(Change::Other { what: s("something new") }, unclassified),
        all(Change::KindChanged { before: 'r', after: 'v' }, unclassified),
        all(
            Change::PartitionKeyChanged { before: Some(s("RANGE (a)")), after: Some(s("LIST (a)")) },
            unclassified,
        ),
    ];
    rows.extend(['c', 'f', 'u', 'x', 't', 'p'].map(|kind| all(constraint(kind), Nothing)));
    rows
}

#[test]
fn every_kind_of_change_has_the_verdict_of_its_row() {
    for (change, user, other, whole) in table() {
        let one = std::slice::from_ref(&change);
        assert_eq!(is(one, &usage(&[1, 2])), user, "{change:?}, used");
        assert_eq!(is(one, &usage(&[2])), other, "{change:?}, not used");
        assert_eq!(is(one, &Usage { whole_row: true, ..usage(&[]) }), whole, "{change:?}, whole row");
    }
}

#[test]
fn the_table_has_every_kind_of_change() {
    let words: BTreeSet<String> = table().iter().map(|(c, ..)| variant(c)).collect();
    let expected = VARIANTS.iter().map(|v| v.to_string()).collect();
    assert_eq!(words, expected);
}

/// The name of a variant, from its stable JSON form.
fn variant(change: &Change) -> String {
    let value = serde_json::to_value(change).expect("JSON");
    value["change"].as_str().expect("a tag").to_string()
}

/// The tags of all variants. They are in stored JSON: appended to, never changed.
const VARIANTS: &[&str] = &[
    "relation_replaced",
    "table_renamed",
    "schema_changed",
    "owner_changed",
    "persistence_changed",
    "column_dropped",
    "column_added",
    "column_renamed",
    "column_type_changed",
    "column_typmod_changed",
    "column_dimensions_changed",
    "column_type_kind_changed",
    "column_collation_changed",
    "column_type_renamed",
    "column_rewritten",
    "nullability_changed",
    "default_changed",
    "identity_changed",
    "generation_changed",
    "columns_reordered",
    "primary_key_added",
    "primary_key_removed",
    "primary_key_changed",
    "replica_identity_removed",
    "replica_identity_changed",
    "index_changed",
    "index_renamed",
    "constraint_changed",
    "constraint_renamed",
    "row_security_changed",
    "policy_changed",
    "partition_attached",
    "partition_detached",
    "child_added",
    "child_removed",
    "member_renamed",
    "parents_changed",
    "capture_changed",
    "other",
    "kind_changed",
    "partition_key_changed",
];

#[test]
fn every_change_is_told_in_words() {
    for (change, ..) in table() {
        let text = change.describe();
        assert!(!text.is_empty() && !text.ends_with('.'), "{change:?}: {text}");
        assert!(!change.word().is_empty());
        let json = serde_json::to_string(&change).expect("JSON");
        assert_eq!(change, serde_json::from_str::<Change>(&json).expect("a change"));
    }
}

#[test]
fn capture_matters_to_who_captures() {
    let by_query = Usage { capture: false, ..usage(&[1]) };
    for (change, ..) in table().iter().filter(|(c, ..)| matches!(c, Change::CaptureChanged { .. })) {
        assert_eq!(is(std::slice::from_ref(change), &by_query), Nothing, "{change:?}");
    }
}

#[test]
fn several_changes_are_judged_as_a_whole() {
    let dropped = Change::ColumnDropped { column: Column { attnum: 1, name: "x".into() } };
    let key = Change::PrimaryKeyRemoved { columns: vec!["x".into()] };
    let renamed = Change::TableRenamed { before: "a".into(), after: "b".into() };
    let policy = Change::PolicyChanged { name: "p".into(), turn: Turn::Added, in_force: true };
    let all = [key.clone(), renamed.clone(), policy.clone(), dropped.clone()];
    assert_eq!(
        judge(&all, &usage(&[1])),
        Verdict::Suspend {
            reason: Reason::ColumnDropped,
            detail: "public.orders: the primary key (\"x\") was removed; column \"x\" was dropped.".into()
        }
    );
    assert_eq!(
        judge(&[key], &Usage { relies_on_primary_key: true, ..usage(&[]) }),
        Verdict::Suspend {
            reason: Reason::KeyChanged,
            detail: "public.orders: the primary key (\"x\") was removed, on which the query relies.".into()
        }
    );
    assert_eq!(is(&[renamed.clone(), policy], &usage(&[1])), Reinit);
    assert_eq!(is(&[renamed, dropped], &usage(&[2])), InPlace);
    assert_eq!(is(&[], &usage(&[1])), Nothing);
}
