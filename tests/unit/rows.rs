//! Statements that compute rows of our own tables.

use pgtrickle::sqltext::rows::{Column, Table};

const PLAIN: Table = Table {
    name: "pgt_plain",
    columns: &[
        Column::new("id", "pg_catalog.int8").or("7"),
        Column::new("columns", "pg_catalog.text"),
        Column::new("note", "pg_catalog.text").or_null(),
    ],
    rule: None,
};

const RULED: Table = Table { rule: Some("id > 0"), ..PLAIN };

#[test]
fn a_new_row_has_its_defaults() {
    assert_eq!(
        PLAIN.insert(&[("columns", "$1")]).as_deref(),
        Ok(
            "SELECT NULL::pg_catalog.tid AS place, CAST(7 AS pg_catalog.int8) AS \"id\", CAST($1 AS pg_catalog.text) AS \"columns\", \
            CAST(NULL AS pg_catalog.text) AS \"note\""
        )
    );
    let many = PLAIN.insert_from(&[("columns", "x")], "FROM y").unwrap_or_default();
    assert!(many.ends_with("AS \"note\" FROM y"), "{many}");
}

#[test]
fn a_changed_row_keeps_what_is_not_set() {
    assert_eq!(
        PLAIN.update(&[("note", "t.note || $2")], "t.id = $1").as_deref(),
        Ok(
            "SELECT t.ctid AS place, CAST(t.\"id\" AS pg_catalog.int8) AS \"id\", CAST(t.\"columns\" AS pg_catalog.text) AS \"columns\", \
            CAST(t.note || $2 AS pg_catalog.text) AS \"note\" FROM \"pgtrickle\".\"pgt_plain\" t WHERE t.id = $1"
        )
    );
    assert_eq!(
        PLAIN.delete("t.id = $1"),
        "SELECT t.ctid AS place FROM \"pgtrickle\".\"pgt_plain\" t WHERE t.id = $1"
    );
}

#[test]
fn a_row_that_may_be_there_is_new_or_keeps_the_rest() {
    let sql = PLAIN.upsert(&[("columns", "$1")], "t.columns = $1").unwrap_or_default();
    assert!(
        sql.contains("CAST(CASE WHEN t.ctid IS NULL THEN 7 ELSE t.\"id\" END AS pg_catalog.int8)"),
        "{sql}"
    );
    assert!(
        sql.ends_with("FROM (VALUES (true)) one LEFT JOIN \"pgtrickle\".\"pgt_plain\" t ON t.columns = $1"),
        "{sql}"
    );
}

#[test]
fn a_rule_is_judged_once_for_each_row() {
    let plain = PLAIN.insert(&[("columns", "$1")]).unwrap_or_default();
    let ruled = RULED.insert(&[("columns", "$1")]).unwrap_or_default();
    assert_eq!(ruled, format!("SELECT r.*, (id > 0) IS NOT FALSE FROM ({plain} OFFSET 0) r"));
    assert!(!RULED.delete("true").contains("FALSE"));
}

#[test]
fn columns_are_known_and_set_once() {
    assert!(PLAIN.insert(&[("colums", "$1")]).is_err());
    assert!(PLAIN.update(&[("note", "$1"), ("note", "$2")], "true").is_err());
}
