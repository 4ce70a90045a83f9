//! alter_stream_table_query in its plain form.

use crate::common::*;
use crate::support::{self, fresh_db, refresh};
use postgres::Client;

fn alter(c: &mut Client, name: &str, query: &str) {
    exec(c, &format!("SELECT pgtrickle.alter_stream_table_query({}, {})", lit(name), lit(query)));
    support::assert_equal(c, name, query);
    support::assert_up_to_date(c, name);
    assert_active(c, name);
}

#[test]
fn it_keeps_oid_grants_fitting_indexes_and_comments() {
    let db = fresh_db();
    let mut c = db.connect();
    let role = db.create_role("reader");
    exec(
        &mut c,
        &format!(
            "{T}; CREATE TABLE u (grp int, name text); INSERT INTO u VALUES (0, 'zero'), (1, 'one'), (2, 'two')"
        ),
    );
    create(&mut c, "s", "SELECT grp, count(*) AS n, sum(v) AS total, min(note) AS note FROM t GROUP BY grp");
    exec(
        &mut c,
        &format!(
            "GRANT SELECT ON s TO \"{role}\"; COMMENT ON TABLE s IS 'the table'; COMMENT ON COLUMN s.n IS 'how many';
             CREATE INDEX s_n ON s (n); CREATE UNIQUE INDEX s_grp ON s (grp); CREATE INDEX s_note ON s (note);
             CREATE VIEW over_s AS SELECT grp, n FROM s"
        ),
    );
    let oid: u32 = one(&mut c, "SELECT 's'::regclass::oid");
    let index_oid: u32 = one(&mut c, "SELECT 's_n'::regclass::oid");
    // note goes, name comes, total changes its type; another source joins.
    alter(
        &mut c,
        "s",
        "SELECT t.grp, count(*) AS n, avg(v)::float8 AS total, u.name FROM t JOIN u USING (grp) GROUP BY t.grp, u.name",
    );
    assert_eq!(one::<u32>(&mut c, "SELECT 's'::regclass::oid"), oid);
    assert!(one::<bool>(&mut c, &format!("SELECT has_table_privilege('{role}', 's', 'SELECT')")));
    assert_eq!(one::<String>(&mut c, "SELECT obj_description('s'::regclass, 'pg_class')"), "the table");
    assert_eq!(
        one::<String>(
            &mut c,
            "SELECT col_description('s'::regclass, attnum) FROM pg_attribute WHERE attrelid = 's'::regclass AND attname = 'n'"
        ),
        "how many"
    );
    let indexes: Vec<String> = column(
        &mut c,
        "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 's'::regclass AND indisvalid ORDER BY 1",
    );
    assert!(indexes.contains(&"s_n".into()) && indexes.contains(&"s_grp".into()), "{indexes:?}");
    assert!(!indexes.contains(&"s_note".into()), "its column is gone: {indexes:?}");
    let _ = index_oid;
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM over_s"), 3);
    assert_eq!(
        column::<String>(
            &mut c,
            "SELECT attname::text FROM pg_attribute WHERE attrelid = 's'::regclass AND attnum > 0 AND NOT attisdropped
             ORDER BY attname"
        ),
        ["grp", "n", "name", "total"]
    );
    // Both old and new sources are captured from now on, the column of another role too.
    exec(&mut c, "UPDATE u SET name = 'uno' WHERE grp = 1; UPDATE t SET v = v + 1, grp = 2 WHERE id = 1");
    differential(&mut c, "s");
}

#[test]
fn columns_come_in_the_order_of_the_query() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id, v FROM t");
    for query in [
        "SELECT v, id FROM t",
        "SELECT id, note, v FROM t",
        "SELECT note AS id, id AS v FROM t",
        "SELECT v AS a, id AS b, note AS c, grp AS d FROM t",
        "SELECT id, v FROM t",
        "SELECT id::bigint AS id, v::numeric AS v FROM t",
    ] {
        // The helper compares names and types in their order.
        alter(&mut c, "s", query);
        exec(&mut c, "UPDATE t SET v = v + 1, note = note || '.' WHERE id < 4");
        differential(&mut c, "s");
    }
}

#[test]
fn sources_that_are_no_longer_used_are_let_go() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, &format!("{T}; CREATE TABLE u (id int, w int); INSERT INTO u VALUES (1, 1)"));
    create(&mut c, "s", "SELECT id, v AS x FROM t");
    alter(&mut c, "s", "SELECT id, w AS x FROM u");
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM pg_trigger WHERE tgrelid = 't'::regclass"), 0);
    assert!(one::<bool>(&mut c, "SELECT sources = ARRAY['u'::regclass] FROM pgtrickle.stream_tables"));
    exec(&mut c, "DROP TABLE t; INSERT INTO u VALUES (2, 2)");
    differential(&mut c, "s");
}

#[test]
fn more_columns_of_a_known_source_are_captured() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id FROM t");
    create(&mut c, "other", "SELECT id FROM t WHERE id > 3");
    // Changes that the old plan has in its buffer are not lost and not counted twice.
    exec(
        &mut c,
        "UPDATE t SET v = -1 WHERE id = 1; DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (77, 1, 1, 'a')",
    );
    alter(&mut c, "s", "SELECT id, v, note FROM t WHERE grp < 2");
    assert_eq!(refresh(&mut c, "s").action, "no_change");
    exec(
        &mut c,
        "UPDATE t SET note = 'changed' WHERE id = 4; UPDATE t SET grp = 5 WHERE id = 6; UPDATE t SET v = 9 WHERE id = 7",
    );
    differential(&mut c, "s");
    differential(&mut c, "other");
}

#[test]
fn a_failed_replacement_changes_nothing() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id, v FROM t");
    exec(&mut c, "CREATE VIEW needs_v AS SELECT v FROM s");
    for (query, states) in [
        ("SELECT id, random() AS v FROM t", &["0A000"][..]),
        ("SELECT id, v FROM nowhere", &["42P01"]),
        ("SELEKT id", &["42601"]),
        ("SELECT id, 1 / (v - v) AS v FROM t", &["22012"]),
    ] {
        let before = census(&mut c);
        let e = support::expect_error(
            &mut c,
            &format!("SELECT pgtrickle.alter_stream_table_query('s', {})", lit(query)),
        );
        assert!(states.contains(&e.sqlstate.as_str()), "{query}: {e:?}");
        assert_eq!(census(&mut c), before, "{query}");
        assert_active(&mut c, "s");
        exec(&mut c, "UPDATE t SET v = v + 1");
        differential(&mut c, "s");
    }
    // A view of the user needs the column that would go: that is the user's to decide.
    match c.batch_execute("SELECT pgtrickle.alter_stream_table_query('s', 'SELECT id FROM t')") {
        Ok(()) => panic!("needs_v lost its column"),
        Err(e) => {
            let e = support::db_error(&e);
            assert_eq!(e.sqlstate, "2BP01", "{e:?}");
            assert!(!e.hint.is_empty(), "{e:?}");
        }
    }
    exec(
        &mut c,
        "BEGIN; SELECT pgtrickle.alter_stream_table_query('s', 'SELECT id, grp AS v FROM t'); ROLLBACK; UPDATE t SET v = 0",
    );
    differential(&mut c, "s");
    support::assert_equal(&mut c, "s", "SELECT id, v FROM t");
}

#[test]
fn stream_tables_above_follow_or_suspend() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "low", "SELECT grp, sum(v) AS v, count(*) AS n FROM t GROUP BY grp");
    create(&mut c, "uses_v", "SELECT sum(v) AS v FROM low");
    create(&mut c, "uses_n", "SELECT sum(n) AS n FROM low");
    exec(
        &mut c,
        "SELECT pgtrickle.alter_stream_table_query('low', 'SELECT grp, count(*) AS n, max(v) AS top FROM t GROUP BY grp')",
    );
    assert_active(&mut c, "low");
    assert_eq!(right_or_suspended(&mut c, "uses_n"), "right");
    assert_suspended(&mut c, "uses_v", "SCHEMA_INCOMPATIBLE");
    exec(&mut c, "UPDATE t SET grp = 7 WHERE id < 4");
    refresh(&mut c, "uses_n");
    support::assert_equal(
        &mut c,
        "uses_n",
        "SELECT sum(n) FROM (SELECT count(*) AS n FROM t GROUP BY grp) x",
    );
}

#[test]
fn switching_between_differential_and_full_queries() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id, v FROM t");
    for query in [
        "SELECT id, (rank() OVER (ORDER BY v))::int AS v FROM t",
        "SELECT grp AS id, max(v) AS v FROM t GROUP BY grp",
        "SELECT DISTINCT grp AS id, 1 AS v FROM t",
        "SELECT a.id, b.v FROM t a JOIN t b ON a.grp = b.grp",
        "SELECT id, v FROM t",
    ] {
        alter(&mut c, "s", query);
        exec(&mut c, "UPDATE t SET v = v + 1 WHERE grp = 1; UPDATE t SET grp = (grp + 1) % 3 WHERE id < 5");
        refresh(&mut c, "s");
        exec(
            &mut c,
            "INSERT INTO t SELECT max(id) + 1, 1, 5, 'n' FROM t; DELETE FROM t WHERE id = (SELECT min(id) FROM t)",
        );
        refresh(&mut c, "s");
    }
    // In mode differential the new query has to be one as well.
    exec(&mut c, "SELECT pgtrickle.alter_stream_table('s', NULL, 'differential')");
    assert_refused(
        &mut c,
        "SELECT pgtrickle.alter_stream_table_query('s', 'SELECT id, (rank() OVER (ORDER BY v))::int AS v FROM t')",
        &["0A000"],
    );
}
