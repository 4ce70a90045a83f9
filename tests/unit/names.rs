//! Names that a printed query can use.

use pgtrickle::sqltext::{name_digest, names_in};

#[test]
fn all_names_of_a_query_are_found() {
    let query = r#"SELECT t."Odd ""Name""" AS x, public.f(t.v) +++ 1.5::shop.mood, 'not "this" it''s' , E'a\\\\b'
        FROM shop."T.x" t WHERE über OPERATOR(public.<->) t.v COLLATE "de""#;
    let names = names_in(query);
    for name in ["Odd \"Name\"", "f", "public", "+++", "mood", "shop", "T.x", "über", "<->", "de", "x"] {
        assert!(names.contains(name), "{name}: {names:?}");
    }
    assert!(!names.contains("this"), "{names:?}");
}

#[test]
fn what_never_ends_ends() {
    for query in ["", "'", "\"", "\"a", "'a''", "a\"\"\"", "\"\"", "ü'"] {
        let _ = names_in(query);
    }
    assert!(names_in("\"\"").contains(""));
}

#[test]
fn digests_differ() {
    assert_ne!(name_digest("a"), name_digest("b"));
    assert_eq!(name_digest("orders"), name_digest("orders"));
}
