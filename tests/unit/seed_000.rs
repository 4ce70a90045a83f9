//! Seed 000, precise invalidation: its table of column attributes, its edge cases and its six tests, against what `diff`
//! makes of two shapes and `judge` of the difference. "Invalidated" there is here a verdict that disturbs the stream table;
//! a rename, which the seed can only take for a loss, is known by number and followed in place.

use crate::classify::{InPlace, Is, Nothing, Reinit, Suspend, is, usage};
use crate::shapes::src;
use pgtrickle::drift::{Change, Usage, diff};
use pgtrickle::model::Reason;
use pgtrickle::snapshot::shape::{ColumnShape, TableShape};

/// The difference that a change of `t.src (id, used, free, late, gen, fast)` makes.
fn changed(change: impl FnOnce(&mut TableShape)) -> Vec<Change> {
    let before = src();
    let mut after = before.clone();
    change(&mut after);
    let changes = diff(&before, &after);
    assert!(!changes.is_empty(), "it is a change");
    changes
}

/// A change of column 2, `used`.
fn with_column(change: impl FnOnce(&mut ColumnShape)) -> Vec<Change> {
    changed(|s| change(&mut s.columns[1]))
}

fn with_extra_column() -> Vec<Change> {
    changed(|s| {
        let mut column = s.columns[0].clone();
        column.attnum = 7;
        column.name = "extra".into();
        s.columns.push(column);
    })
}

/// The verdict for who uses column 2, and for who uses column 3 only.
fn judged(changes: &[Change], used: Is, unused: Is) {
    assert_eq!(is(changes, &usage(&[2])), used, "used: {changes:?}");
    assert_eq!(is(changes, &usage(&[3])), unused, "not used: {changes:?}");
}

fn words(changes: &[Change]) -> Vec<&'static str> {
    changes.iter().map(Change::word).collect()
}

const RETYPED: Is = Suspend(Reason::ColumnTypeChanged);

// The table of attributes.

#[test]
fn seed_000_attribute_name_concerns_who_selects_the_column() {
    let changes = with_column(|c| c.name = "other".into());
    assert_eq!(words(&changes), ["renamed"]);
    judged(&changes, InPlace, InPlace);
    let whole = Usage { whole_row: true, ..usage(&[]) };
    assert_eq!(is(&changes, &whole), Reinit, "the name is part of the value");
}

#[test]
fn seed_000_attribute_type_id_concerns_who_selects_the_column() {
    let changes = with_column(|c| {
        c.type_oid = 20;
        c.type_name = "pg_catalog.int8".into();
    });
    assert_eq!(words(&changes), ["type_changed"]);
    judged(&changes, RETYPED, Nothing);
}

#[test]
fn seed_000_attribute_type_mod_concerns_who_selects_the_column() {
    let changes = with_column(|c| c.typmod = 8);
    assert_eq!(words(&changes), ["type_changed"]);
    judged(&changes, RETYPED, Nothing);
}

#[test]
fn seed_000_attribute_array_dimensions_concerns_who_selects_the_column() {
    let changes = with_column(|c| c.dims = 2);
    assert_eq!(words(&changes), ["type_changed"]);
    judged(&changes, RETYPED, Nothing);
}

#[test]
fn seed_000_attribute_type_kind_concerns_who_selects_the_column() {
    let changes = with_column(|c| c.type_kind = 'e');
    assert_eq!(words(&changes), ["type_changed"]);
    judged(&changes, RETYPED, Nothing);
}

#[test]
fn seed_000_attribute_is_generated_concerns_who_selects_the_column() {
    let changes = with_column(|c| c.generated = "s".into());
    assert_eq!(words(&changes), ["generated_changed"]);
    judged(&changes, Suspend(Reason::GenerationChanged), Nothing);
    let generated = src();
    let mut plain = generated.clone();
    plain.columns[4].generated.clear();
    plain.columns[4].expression = None;
    for changes in [diff(&generated, &plain), diff(&plain, &generated)] {
        assert_eq!(is(&changes, &usage(&[5])), Suspend(Reason::GenerationChanged), "{changes:?}");
        assert_eq!(is(&changes, &usage(&[1])), Nothing, "{changes:?}");
    }
}

#[test]
fn seed_000_attribute_not_null_concerns_nobody() {
    for not_null in [true, false] {
        let mut before = src();
        before.columns[1].not_null = !not_null;
        let mut after = before.clone();
        after.columns[1].not_null = not_null;
        let changes = diff(&before, &after);
        assert_eq!(words(&changes), ["nullability_changed"]);
        judged(&changes, Nothing, Nothing);
    }
}

#[test]
fn seed_000_attribute_pk_position_concerns_all() {
    let two = |s: &mut TableShape| s.constraints[0].attnums = vec![1, 2];
    let key = Suspend(Reason::KeyChanged);
    let changes = changed(two);
    assert_eq!(words(&changes), ["key_changed"]);
    judged(&changes, key, key);
    let mut before = src();
    two(&mut before);
    let mut after = before.clone();
    after.constraints[0].attnums.reverse();
    judged(&diff(&before, &after), key, key);
}

// The edge cases.

#[test]
fn seed_000_edge_column_renamed_to_existing_name() {
    // `late` takes the name of `free`, which is dropped: by number a drop and a rename, not "removed and added".
    let changes = changed(|s| {
        s.columns.remove(2);
        s.columns[2].name = "free".into();
    });
    assert_eq!(is(&changes, &usage(&[3])), Suspend(Reason::ColumnDropped));
    assert_eq!(is(&changes, &usage(&[4])), InPlace);
    assert_eq!(is(&changes, &usage(&[1])), InPlace);
}

#[test]
fn seed_000_edge_type_change_within_a_family() {
    let changes = changed(|s| s.columns[2].typmod = 104);
    assert_eq!(changes[0].describe(), "column \"free\" changed its type from varchar(20) to varchar(100)");
    assert_eq!(is(&changes, &usage(&[3])), RETYPED);
}

#[test]
fn seed_000_edge_several_attributes_of_one_column() {
    let changes = with_column(|c| {
        c.not_null = false;
        c.dims = 1;
        c.name = "other".into();
    });
    assert_eq!(changes.len(), 3);
    assert_eq!(is(&changes, &usage(&[2])), RETYPED);
    assert_eq!(is(&changes, &usage(&[1])), InPlace);
}

#[test]
fn seed_000_edge_all_columns_selected() {
    let whole = Usage { whole_row: true, ..usage(&[]) };
    assert_eq!(is(&with_extra_column(), &whole), Reinit);
    let removed = changed(|s| {
        s.columns.remove(3);
    });
    assert_eq!(is(&removed, &whole), Suspend(Reason::ColumnDropped));
}

// The six tests.

#[test]
fn seed_000_add_column_not_selected_disturbs_nobody() {
    let changes = with_extra_column();
    assert_eq!(words(&changes), ["added"]);
    judged(&changes, Nothing, Nothing);
    assert_eq!(is(&changes, &usage(&[1, 2, 3, 4, 5, 6])), Nothing, "all columns of that time");
}

#[test]
fn seed_000_add_column_concerns_who_selects_all() {
    assert_eq!(is(&with_extra_column(), &Usage { whole_row: true, ..usage(&[]) }), Reinit);
}

#[test]
fn seed_000_change_nullability_disturbs_nobody() {
    let changes = with_column(|c| c.not_null = false);
    judged(&changes, Nothing, Nothing);
    assert_eq!(is(&changes, &Usage { whole_row: true, ..usage(&[]) }), Nothing);
}

#[test]
fn seed_000_change_type_concerns_who_selects_the_column() {
    let changes = with_column(|c| (c.type_oid, c.type_name) = (25, "pg_catalog.text".into()));
    judged(&changes, RETYPED, Nothing);
    assert_eq!(is(&changes, &Usage { whole_row: true, ..usage(&[]) }), RETYPED);
}

#[test]
fn seed_000_change_primary_key_concerns_all() {
    let key = Suspend(Reason::KeyChanged);
    judged(&changed(|s| s.constraints[0].attnums = vec![2]), key, key);
    judged(&changed(|s| s.constraints.retain(|c| c.kind != 'p')), key, key);
    let other = changed(|s| s.constraints[0].attnums = vec![2]);
    assert_eq!(is(&other, &usage(&[])), key, "also who selects no column at all");
}

#[test]
fn seed_000_rename_column_is_followed_by_who_selects_it() {
    let changes = with_column(|c| c.name = "utilized".into());
    assert_eq!(changes[0].describe(), "column \"used\" was renamed to \"utilized\"");
    judged(&changes, InPlace, InPlace);
}
