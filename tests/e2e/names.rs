//! Names with quotes, dots, spaces, unicode and 63 bytes, everywhere a name can stand.

use crate::common::*;
use crate::support::{self, fresh_db, quote_ident, refresh};

const NAMES: &[&str] = &[
    "Upper",
    "with space",
    "with.dot",
    "quo\"te",
    "'single'",
    "semi;colon",
    "größe",
    "数据表",
    "🦀",
    "select",
    "user",
    "1digit",
    "back\\slash",
    "per%cent %s %I",
    "$1",
    "new",
    "old",
    "  edges  ",
    "tab\there",
    "curly{0}",
    "dash--dash",
    "/*comment*/",
    "a_name_of_exactly_sixty_three_bytes_that_is_the_longest_allowed",
    "ää_name_of_exactly_sixty_three_bytes_with_letters_of_two__ä_",
];

#[test]
fn every_name_in_every_place() {
    crate::ddl::for_each_in_threads(NAMES, |name| {
        assert!(name.len() <= 63);
        let db = fresh_db();
        let mut c = db.connect();
        let q = quote_ident(name);
        let other: String = format!("x{}", name.chars().take(20).collect::<String>());
        let q2 = quote_ident(&other);
        exec(
            &mut c,
            &format!(
                "CREATE SCHEMA {q}; CREATE TABLE {q}.{q} ({q} int PRIMARY KEY, {q2} text, num int);
                 INSERT INTO {q}.{q} SELECT i, 'v' || i % 3, i FROM generate_series(1, 9) i;
                 CREATE VIEW {q}.{q2} AS SELECT {q}, {q2} AS {q2} FROM {q}.{q}"
            ),
        );
        let st = quote_ident(&format!("s{}", name.chars().take(15).collect::<String>()));
        let full = format!("{q}.{st}");
        create_mode(
            &mut c,
            &full,
            &format!(
                "SELECT {q}.{q2} AS {q}, count(*) AS {q2}, max({q}.num) AS m FROM {q}.{q} GROUP BY {q}.{q2}"
            ),
            "differential",
        );
        let above =
            format!("{q}.{}", quote_ident(&format!("t{}", name.chars().take(15).collect::<String>())));
        create_mode(
            &mut c,
            &above,
            &format!("SELECT a.{q}, b.{q2} FROM {q}.{q2} b JOIN {full} a ON a.{q} = b.{q2}"),
            "differential",
        );
        exec(
            &mut c,
            &format!(
                "UPDATE {q}.{q} SET {q2} = {q2} || '!', num = num + 1 WHERE {q} < 4; DELETE FROM {q}.{q} WHERE {q} = 5"
            ),
        );
        differential(&mut c, &above);
        support::assert_up_to_date(&mut c, &full);
        // Renamed to and from, suspended, resolved.
        exec(
            &mut c,
            &format!(
                "ALTER TABLE {q}.{q} RENAME COLUMN num TO \"plain\"; ALTER TABLE {q}.{q} RENAME TO \"plain\""
            ),
        );
        exec(
            &mut c,
            &format!(
                "UPDATE {q}.\"plain\" SET \"plain\" = 0; ALTER TABLE {q}.\"plain\" RENAME COLUMN \"plain\" TO {}",
                quote_ident("n\"u.m")
            ),
        );
        differential(&mut c, &full);
        exec(&mut c, &format!("ALTER TABLE {q}.\"plain\" DROP COLUMN {}", quote_ident("n\"u.m")));
        let s = assert_suspended(&mut c, &full, "COLUMN_DROPPED");
        let call = extract_call(&s.hint, "pgtrickle.alter_stream_table_query(");
        exec(&mut c, &format!("SELECT {call}"));
        assert_active(&mut c, &full);
        exec(&mut c, &format!("DELETE FROM {q}.\"plain\" WHERE {q} = 1"));
        differential(&mut c, &full);
        refresh(&mut c, &above);
        exec(
            &mut c,
            "SELECT * FROM pgtrickle.stream_tables; SELECT * FROM pgtrickle.change_buffers; SELECT * FROM pgtrickle.refresh_history; SELECT * FROM pgtrickle.health_check()",
        );
        exec(&mut c, &format!("DROP SCHEMA {q} CASCADE"));
        assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM pgtrickle.stream_tables"), 0);
    });
}

#[test]
fn names_fold_as_in_sql() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "MixedCase", "SELECT id FROM t");
    create(&mut c, "\"MixedCase\"", "SELECT v FROM t");
    create(&mut c, "  Public . \"Sp ace\"  ", "SELECT grp FROM t");
    let names: Vec<String> = column(
        &mut c,
        "SELECT relname::text FROM pg_class WHERE oid IN (SELECT stream_table FROM pgtrickle.stream_tables) ORDER BY relname COLLATE \"C\"",
    );
    assert_eq!(names, ["MixedCase", "Sp ace", "mixedcase"]);
}

#[test]
fn too_long_a_name_is_cut_as_postgres_does_or_refused() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    let long = "n".repeat(80);
    match c.batch_execute(&create_call(&long, "SELECT id FROM t", "auto")) {
        Ok(()) => assert_active(&mut c, &"n".repeat(63)),
        Err(e) => {
            let e = support::db_error(&e);
            assert!(["42622", "22023"].contains(&e.sqlstate.as_str()), "{e:?}");
            assert!(e.detail.starts_with("reason="), "{e:?}");
        }
    }
    // Two sources whose names agree in their first 60 bytes: what is derived from names must not collide.
    let stem = "a_table_whose_name_is_so_long_that_only_its_last_bytes_tel";
    for suffix in ["a", "b"] {
        exec(
            &mut c,
            &format!(
                "CREATE TABLE {stem}_{suffix} (id int, v int); CREATE SCHEMA s_{suffix}; CREATE TABLE s_{suffix}.t (id int, v int)"
            ),
        );
    }
    create(
        &mut c,
        &format!("{stem}_1"),
        &format!("SELECT a.id, b.v FROM {stem}_a a JOIN {stem}_b b USING (id)"),
    );
    create(&mut c, &format!("{stem}_2"), "SELECT a.id, b.v FROM s_a.t a JOIN s_b.t b USING (id)");
    exec(
        &mut c,
        &format!(
            "INSERT INTO {stem}_a VALUES (1, 1); INSERT INTO {stem}_b VALUES (1, 2); INSERT INTO s_a.t VALUES (1, 1); INSERT INTO s_b.t VALUES (1, 2), (1, 3)"
        ),
    );
    assert_eq!(differential(&mut c, &format!("{stem}_1")).inserted, 1);
    assert_eq!(differential(&mut c, &format!("{stem}_2")).inserted, 2);
}
