//! Pure parts of schema snapshots: hash, sampling of values, digests, the stored and the shown form.

use crate::shapes::{recorded, rich, src};
use pgtrickle::snapshot::hash::{identifiers, schema_hash};
use pgtrickle::snapshot::profile::{
    Absent, Column, ColumnProfile, Common, Form, MAX_VALUE_CHARS, MAX_VALUES, PROFILE_VERSION, TableProfile,
    bounded, hashed, rounded, shares, spaced,
};
use pgtrickle::snapshot::{shape::TableShape, show};
use std::collections::BTreeSet;

fn names(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|n| n.to_string()).collect()
}

// schema_hash

#[test]
fn schema_hash_knows_no_order_and_no_collector_columns() {
    let collectors = names(&["_ingested_at"]);
    let hash = schema_hash(["b", "a"], &collectors);
    assert_eq!(hash, schema_hash(["a", "b", "_ingested_at"], &collectors));
    assert_ne!(hash, schema_hash(["a", "b", "_ingested_at"], &names(&[])));
    assert_ne!(hash, schema_hash(["a", "b", "c"], &collectors));
    assert!(hash.starts_with("v1:") && hash.len() == 3 + 64, "{hash}");
}

#[test]
fn schema_hash_does_not_join_names() {
    let none = names(&[]);
    let all = [vec!["a|b"], vec!["a", "b"], vec!["ab"], vec!["a", "b", ""], vec!["", "ab"], vec![]];
    let hashes: BTreeSet<String> = all.iter().map(|n| schema_hash(n.iter().copied(), &none)).collect();
    assert_eq!(hashes.len(), all.len());
    // Known answer: whoever stores hashes elsewhere relies on it.
    assert_eq!(
        schema_hash(["id", "name"], &none),
        "v1:99462b7a03ad60631fe721ee871217ea35846dbd52d2a9a8024759de677df4d1"
    );
}

#[test]
fn lists_of_names_are_read_as_in_search_path() {
    for (list, expected) in [
        ("", Some(vec![])),
        ("  ", Some(vec![])),
        ("a", Some(vec!["a"])),
        ("A, b ,C", Some(vec!["a", "b", "c"])),
        (r#""A b","it""s" , c"#, Some(vec!["A b", "c", "it\"s"])),
        (r#""Größe",größe"#, Some(vec!["Größe", "größe"])),
        ("a,", None),
        (",a", None),
        ("a b", None),
        (r#""a"#, None),
        (r#""""#, None),
        (r#"a"b""#, None),
    ] {
        let expected = expected.map(|names| names.into_iter().map(str::to_string).collect());
        assert_eq!(identifiers(list), expected, "{list:?}");
    }
}

// Sampling

#[test]
fn common_values_and_quantiles_share_the_room() {
    for common in 0..120 {
        for quantiles in 0..120 {
            let (c, q) = shares(common, quantiles);
            assert!(c <= common && q <= quantiles && c + q <= MAX_VALUES, "{common} {quantiles}");
            assert_eq!(c + q, (common + quantiles).min(MAX_VALUES), "no room is left while there are values");
        }
    }
    assert_eq!(shares(100, 101), (10, 10));
    assert_eq!(shares(100, 0), (20, 0));
    assert_eq!(shares(3, 101), (3, 17));
}

#[test]
fn quantiles_are_spaced_evenly_with_both_ends() {
    assert_eq!(spaced(101, 11), (0..=100).step_by(10).collect::<Vec<_>>());
    for count in 0..130 {
        for kept in 0..=20 {
            let picked = spaced(count, kept);
            assert_eq!(picked.len(), kept.min(count));
            assert!(picked.windows(2).all(|w| w[0] < w[1]), "{count} {kept}: {picked:?}");
            if picked.len() > 1 {
                assert_eq!((picked[0], picked[picked.len() - 1]), (0, count - 1));
            }
        }
    }
}

#[test]
fn values_are_bounded_by_characters() {
    let long = "ß".repeat(500);
    assert_eq!(bounded(&long).chars().count(), MAX_VALUE_CHARS);
    assert_eq!(bounded("short"), "short");
    assert_eq!(bounded(&"x".repeat(MAX_VALUE_CHARS)).len(), MAX_VALUE_CHARS);
}

#[test]
fn estimates_have_four_digits() {
    for (number, expected) in
        [(0.033_333_335_f32, 0.03333), (12345.678, 12350.0), (-0.987_654, -0.9877), (0.0, 0.0), (1.0, 1.0)]
    {
        assert_eq!(rounded(number), expected);
    }
    assert_eq!(rounded(f32::NAN), 0.0);
    assert_eq!(rounded(f32::INFINITY), 0.0);
    assert!(rounded(f32::MIN_POSITIVE / 8.0) >= 0.0);
}

// Digests

fn column(common: &[&str], histogram: &[&str]) -> ColumnProfile {
    ColumnProfile {
        null_fraction: 0.25,
        average_width: 7,
        distinct: -0.5,
        correlation: Some(-0.125),
        common: common.iter().map(|v| Common { value: v.to_string(), frequency: 0.1 }).collect(),
        common_fraction: 0.1 * common.len() as f32,
        histogram: histogram.iter().map(|v| v.to_string()).collect(),
        positions: Vec::new(),
    }
}

#[test]
fn digests_keep_equality_and_places_and_no_value() {
    let mut one = column(&["secret", "other"], &["2026-01-01", "2026-01-11", "2026-01-21"]);
    let mut two = column(&["secret"], &["10", "20", "40"]);
    let mut text = column(&[], &["a", "b", "c"]);
    for profile in [&mut one, &mut two, &mut text] {
        hashed(profile, "key");
    }
    assert_eq!(one.common[0].value, two.common[0].value);
    assert_ne!(one.common[0].value, one.common[1].value);
    assert_eq!(one.positions, [0.0, 0.5, 1.0]);
    assert_eq!(two.positions, [0.0, 0.3333, 1.0]);
    assert!(text.positions.is_empty(), "texts have no distances");
    let mut elsewhere = column(&["secret"], &[]);
    hashed(&mut elsewhere, "another key");
    assert_ne!(elsewhere.common[0].value, one.common[0].value);
    let all = format!("{one:?}{two:?}{text:?}");
    assert!(!all.contains("secret") && !all.contains("2026") && !all.contains("\"10\""), "{all}");
}

// Stored form

fn profile() -> TableProfile {
    TableProfile {
        version: PROFILE_VERSION,
        form: Form::Plain,
        columns: vec![
            (1, Column::Known(column(&["a, {b}", "\"c\"\\"], &[]))),
            (2, Column::Absent(Absent::NeverAnalysed)),
            (3, Column::Known(column(&[], &["1", "2"]))),
            (9, Column::Absent(Absent::TypeDropped)),
        ],
    }
}

#[test]
fn the_stored_form_survives_a_round_trip() {
    for major in [15, 18] {
        for shape in recorded(major).iter().map(|r| &r.after).chain([&rich()]) {
            let stored = shape.to_json().expect("JSON");
            assert_eq!(&TableShape::from_json(&stored).expect("a shape"), shape);
        }
    }
    let stored = profile().to_json().expect("JSON");
    assert_eq!(TableProfile::from_json(&stored).expect("a profile"), profile());
    assert!(stored.starts_with("[1,\"plain\",[[1,["), "{stored}");
}

#[test]
fn i4_an_unreadable_profile_is_an_error() {
    let good = profile().to_json().expect("JSON");
    for bad in [
        String::new(),
        "null".into(),
        "[]".into(),
        good.replacen("[1,", "[2,", 1),
        good.replace("NEVER_ANALYSED", "NEVER_HEARD_OF"),
        good.replace("\"plain\"", "\"painted\""),
    ] {
        assert_ne!(bad, good);
        assert!(TableProfile::from_json(&bad).is_err(), "{bad} was read");
    }
}

#[test]
fn the_digest_of_the_content_leaves_out_evidence_alone() {
    let digest = |s: &TableShape| s.content_digest().expect("a digest");
    let shape = src();
    let mut again = shape.clone();
    (again.oid, again.filenode, again.row_estimate) = (again.oid + 7, again.filenode + 7, Some(3));
    for column in &mut again.columns {
        column.stored = "1(2,3)".into();
        column.missing = !column.missing;
    }
    again.indexes.iter_mut().for_each(|i| i.oid += 7);
    again.constraints.iter_mut().for_each(|c| c.oid += 7);
    assert_eq!(digest(&shape), digest(&again));
    for change in [
        |s: &mut TableShape| s.columns[0].name = "other".into(),
        |s: &mut TableShape| s.columns[0].typmod = 9,
        |s: &mut TableShape| s.columns[1].not_null ^= true,
        |s: &mut TableShape| s.name = "other".into(),
        |s: &mut TableShape| s.owner = "other".into(),
        |s: &mut TableShape| s.row_security = true,
        |s: &mut TableShape| s.indexes[0].unique ^= true,
        |s: &mut TableShape| s.constraints[0].validated ^= true,
        |s: &mut TableShape| s.columns.reverse(),
    ] {
        let mut other = shape.clone();
        change(&mut other);
        assert_ne!(digest(&shape), digest(&other));
    }
}

// Shown form

#[test]
fn a_column_is_shown_with_its_profile_or_the_reason_why_not() {
    let mut shape = src();
    shape.columns[0].name = "\u{feff}id".into();
    let shown = show::columns(&shape, &profile());
    let columns = shown.as_array().expect("a list");
    assert_eq!(columns.len(), shape.columns.len());
    assert_eq!(columns[0]["name"], "\u{feff}id");
    assert_eq!(columns[0]["shown"], r#"U&"\FEFFid""#);
    assert_eq!(columns[0]["key_position"], 1);
    assert_eq!(columns[0]["profile"]["most_common_values"][0], "a, {b}");
    assert_eq!(columns[0]["profile"]["null_fraction"], 0.25);
    assert_eq!(columns[0]["profile"]["most_common_frequencies"][0], 0.1);
    assert!(columns[0].get("profile_absent").is_none());
    assert_eq!(columns[1]["profile_absent"], "NEVER_ANALYSED");
    assert!(columns[1].get("profile").is_none() && columns[1].get("shown").is_none());
}

#[test]
fn details_name_columns() {
    let shown = show::details(&rich());
    assert_eq!(shown["kind"], "table");
    assert_eq!(shown["primary_key"][0], "id");
    assert!(shown["indexes"].as_array().is_some_and(|i| !i.is_empty()), "{shown}");
    assert_eq!(shown["row_security"]["policies"].as_array().map(Vec::len), Some(1), "{shown}");
    assert!(shown["partition_key"]["columns"].is_array() && shown["members"].is_array(), "{shown}");
}
