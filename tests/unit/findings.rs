//! Rows of a comparison: known changes, and what the likeness of values adds.

use crate::shapes::src;
use pgtrickle::drift::findings::{Finding, Side, findings, guesses};
use pgtrickle::drift::rename::DEFAULT_THRESHOLD;
use pgtrickle::drift::{Severity, diff};
use pgtrickle::snapshot::profile::{
    Absent, Column, ColumnProfile, Common, Form, PROFILE_VERSION, TableProfile,
};
use pgtrickle::snapshot::shape::{TableShape, Text};

/// A table of text columns of these names, and the values that each holds.
fn table(oid: u32, columns: &[(&str, &[&str])]) -> (TableShape, TableProfile) {
    let mut shape = src();
    let pattern = shape.columns[1].clone();
    (shape.indexes, shape.constraints, shape.capture) = (Vec::new(), Vec::new(), Vec::new());
    (shape.oid, shape.row_estimate) = (oid, Some(1000));
    shape.columns.clear();
    let mut profile = TableProfile { version: PROFILE_VERSION, form: Form::Plain, columns: Vec::new() };
    for (attnum, (name, values)) in (1i16..).zip(columns) {
        let mut column = pattern.clone();
        (column.attnum, column.name, column.expression) = (attnum, Text::from(*name), None);
        shape.columns.push(column);
        profile.columns.push((attnum, sampled(values)));
    }
    (shape, profile)
}

fn sampled(values: &[&str]) -> Column {
    if values.is_empty() {
        return Column::Absent(Absent::NeverAnalysed);
    }
    let frequency = 1.0 / values.len() as f32;
    let common = values.iter().map(|v| Common { value: v.to_string(), frequency }).collect();
    Column::Known(ColumnProfile {
        null_fraction: 0.0,
        average_width: 8,
        distinct: values.len() as f32,
        correlation: None,
        common,
        common_fraction: 1.0,
        histogram: Vec::new(),
        positions: Vec::new(),
    })
}

fn compared(before: &(TableShape, TableProfile), after: &(TableShape, TableProfile)) -> Vec<Finding> {
    let side = |t: &'static (TableShape, TableProfile)| Side { shape: &t.0, profile: &t.1 };
    let keep = |t: &(TableShape, TableProfile)| -> &'static _ { Box::leak(Box::new(t.clone())) };
    let (before, after) = (side(keep(before)), side(keep(after)));
    findings(&diff(before.shape, after.shape), before, after, DEFAULT_THRESHOLD)
}

fn words(rows: &[Finding]) -> Vec<(&str, Option<&str>, Option<&str>)> {
    rows.iter().map(|f| (f.change, f.before.as_deref(), f.after.as_deref())).collect()
}

const PROVINCES: [&str; 5] = ["Salta", "Jujuy", "Chaco", "Chubut", "La Pampa"];
const KINDS: [&str; 3] = ["A1", "B2", "C3"];
const COLOURS: [&str; 4] = ["red", "green", "blue", "white"];

#[test]
fn sc_003_a_rename_that_keeps_the_values_is_no_loss_and_gain() {
    let before = table(1, &[("id", &KINDS), ("provincia", &PROVINCES)]);
    let after = table(2, &[("id", &KINDS), ("jurisdiccion", &PROVINCES)]);
    let rows = compared(&before, &after);
    let found: Vec<&Finding> = rows.iter().filter(|f| f.change != "relation_replaced").collect();
    assert_eq!(found.len(), 1, "{rows:?}");
    assert_eq!(found[0].change, "rename_candidate");
    assert_eq!(found[0].column.as_deref(), Some("provincia"));
    assert_eq!(found[0].after.as_deref(), Some("jurisdiccion"));
    assert_eq!(found[0].severity, Severity::Destructive, "whoever reads the old name breaks");
    assert!(found[0].similarity.is_some_and(|s| s > 0.95));
    assert!(found[0].detail.starts_with(r#"column "provincia" is probably "jurisdiccion" now"#));
}

#[test]
fn fr_014_columns_without_values_are_like_nothing() {
    let before = table(1, &[("id", &KINDS), ("a", &[])]);
    let after = table(2, &[("id", &KINDS), ("b", &[])]);
    let rows = compared(&before, &after);
    let found: Vec<&str> = rows.iter().map(|f| f.change).collect();
    assert_eq!(found, ["relation_replaced", "removed", "added"]);
}

#[test]
fn two_that_fit_equally_are_listed_beside_the_loss_and_the_gain() {
    let before = table(1, &[("home", &PROVINCES)]);
    let after = table(2, &[("from", &PROVINCES), ("to", &PROVINCES)]);
    let rows = compared(&before, &after);
    let found: Vec<&str> = rows.iter().map(|f| f.change).collect();
    assert_eq!(
        found,
        ["relation_replaced", "removed", "added", "added", "rename_ambiguous", "rename_ambiguous"]
    );
}

#[test]
fn exchanged_names_are_candidates_both_ways() {
    let before = table(1, &[("province", &PROVINCES), ("colour", &COLOURS)]);
    let after = table(2, &[("province", &COLOURS), ("colour", &PROVINCES)]);
    let rows = compared(&before, &after);
    let expected = [
        ("relation_replaced", Some("1"), Some("2")),
        ("rename_candidate", Some("province"), Some("colour")),
        ("rename_candidate", Some("colour"), Some("province")),
    ];
    assert_eq!(words(&rows), expected);
}

#[test]
fn of_one_relation_a_column_of_the_same_name_is_the_same() {
    let before = table(1, &[("province", &PROVINCES), ("colour", &COLOURS)]);
    let after = table(1, &[("province", &COLOURS), ("colour", &PROVINCES)]);
    assert_eq!(compared(&before, &after), []);
}

#[test]
fn a_candidate_tells_of_another_type() {
    let before = table(1, &[("provincia", &PROVINCES)]);
    let mut after = table(2, &[("jurisdiccion", &PROVINCES)]);
    after.0.columns[0].type_name = "pg_catalog.varchar".into();
    let rows = compared(&before, &after);
    let last = rows.last().expect("a row");
    assert_eq!(last.change, "rename_candidate", "{rows:?}");
    assert!(last.detail.contains("its type changed from"), "{}", last.detail);
}

#[test]
fn guesses_are_what_the_changes_do_not_say() {
    let before = table(1, &[("provincia", &PROVINCES), ("gone", &COLOURS)]);
    let after = table(2, &[("jurisdiccion", &PROVINCES)]);
    let (old, new) =
        (Side { shape: &before.0, profile: &before.1 }, Side { shape: &after.0, profile: &after.1 });
    let told = guesses(&diff(old.shape, new.shape), old, new, DEFAULT_THRESHOLD);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("provincia") && !told[0].contains("gone"));
}
