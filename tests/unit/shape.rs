//! Reading, writing and asking a shape.

use crate::shapes::{part, recorded, rich, src};
use pgtrickle::snapshot::shape::TableShape;

#[test]
fn what_servers_give_is_read_whole_and_survives_a_round_trip() {
    for major in [15, 18] {
        let all = recorded(major);
        assert!(all.len() > 50, "{} commands recorded on {major}", all.len());
        for shape in all.iter().flat_map(|r| [&r.before, &r.after]) {
            let again = TableShape::from_json(&shape.to_json().expect("JSON")).expect("a shape");
            assert_eq!(shape, &again);
        }
    }
}

#[test]
fn json_is_stable() {
    let json = rich().to_json().expect("JSON");
    assert!(json.starts_with(&format!("[1,{},\"t\",\"src\",", rich().oid)), "{json}");
    assert_eq!(json, rich().to_json().expect("JSON"));
}

#[test]
fn i4_an_unreadable_shape_is_an_error() {
    let good = serde_json::to_string(&src()).expect("JSON");
    assert_eq!(TableShape::from_json(&good).ok(), Some(src()), "the form with names");
    let stored = src().to_json().expect("JSON");
    for bad in [
        stored.replacen("[1,", "[2,", 1),
        stored.replacen("[1,", "[1,0,", 1),
        stored.replacen("\"t\",", "", 1),
    ] {
        assert_ne!(bad, stored);
        assert!(TableShape::from_json(&bad).is_err(), "{bad} was read");
    }
    for (what, bad) in [
        ("nothing", String::new()),
        ("null", "null".into()),
        ("an empty object", "{}".into()),
        ("another version", good.replace(r#""version":1"#, r#""version":2"#)),
        ("no owner", good.replace(r#""owner":"postgres""#, r#""owner":null"#)),
        ("no columns key", good.replace(r#""columns""#, r#""colonnes""#)),
        ("a type that is gone", good.replace(r#""type_name":"pg_catalog.int4""#, r#""type_name":null"#)),
        ("an unknown fact", good.replacen('{', r#"{"new_fact":1,"#, 1)),
    ] {
        assert_ne!(bad, good, "{what}");
        assert!(TableShape::from_json(&bad).is_err(), "{what} was read");
    }
}

#[test]
fn keys() {
    let shape = src();
    assert_eq!(shape.primary_key().map(|k| k.attnums.as_slice()), Some(&[1i16][..]));
    assert_eq!(shape.key_position(1), Some(1));
    assert_eq!(shape.key_position(2), None);
    assert_eq!(shape.unique_keys(), vec![&[1i16][..], &[2, 1]]);
    let mut shape = src();
    shape.indexes[1].partial = true;
    assert_eq!(shape.unique_keys(), vec![&[1i16][..]], "a partial index is no key");
    shape.indexes[0].valid = false;
    assert!(shape.unique_keys().is_empty(), "an invalid index is no key");
    shape.indexes[0].key_count = -3;
    assert!(shape.indexes[0].key().is_empty());
    shape.indexes[0].key_count = 30;
    assert_eq!(shape.indexes[0].key(), [1]);
}

#[test]
fn storage_covers_the_tree() {
    let shape = part();
    let with_rows: Vec<&str> =
        shape.members.iter().filter(|m| m.kind == 'r').map(|m| m.name.as_str()).collect();
    assert_eq!(with_rows, ["p1", "p2a"]);
    assert_eq!(shape.storage().len(), 2, "partitioned tables have none");
    assert_eq!(src().storage().len(), 1);
}

#[test]
fn fingerprint_ignores_the_row_estimate_and_nothing_else() {
    let print = |s: &TableShape| s.fingerprint().expect("fingerprint");
    let shape = rich();
    let mut other = shape.clone();
    other.row_estimate = Some(17);
    assert_eq!(print(&shape), print(&other));
    assert_eq!(print(&shape).len(), 64);
    other.columns[0].stored.push('x');
    assert_ne!(print(&shape), print(&other));
    let mut other = shape.clone();
    other.filenode += 1;
    assert_ne!(print(&shape), print(&other));
}

#[test]
fn types_as_people_write_them() {
    let mut column = src().columns[0].clone();
    for (name, typmod, shown) in [
        ("pg_catalog.int4", -1, "integer"),
        ("pg_catalog._int8", -1, "bigint[]"),
        ("pg_catalog.varchar", 24, "varchar(20)"),
        ("pg_catalog._varchar", 24, "varchar(20)[]"),
        ("pg_catalog.bpchar", 5, "char(1)"),
        ("pg_catalog.numeric", -1, "numeric"),
        ("pg_catalog.numeric", 655366, "numeric(10,2)"),
        ("pg_catalog.numeric", 198650, "numeric(3,-10)"),
        ("pg_catalog.timestamptz", 3, "timestamptz(3)"),
        ("pg_catalog.interval", 327679, "interval (typmod 327679)"),
        ("shop.mood", -1, "shop.mood"),
        ("My Schema.Mood", 7, "\"My Schema\".\"Mood\" (typmod 7)"),
        ("no dot", -1, "\"\".\"no dot\""),
    ] {
        column.type_name = name.into();
        column.typmod = typmod;
        assert_eq!(column.display_type(), shown);
    }
}
