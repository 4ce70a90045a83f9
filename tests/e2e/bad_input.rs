//! Bad input: one clear error with SQLSTATE, DETAIL `reason=...` and HINT, and nothing left behind.

use crate::common::*;
use crate::support::{self, db_error, expect_error, fresh_db};
use postgres::Client;

fn setup(c: &mut Client) {
    exec(
        c,
        &format!(
            "{T}; CREATE TABLE \"T\" (\"Id\" int); CREATE VIEW v AS SELECT * FROM t; CREATE SEQUENCE q; CREATE TYPE ty AS (a int);
             CREATE TEMP TABLE tmp (x int); CREATE TEMP VIEW tmp_view AS SELECT * FROM t; CREATE MATERIALIZED VIEW mv AS SELECT * FROM t"
        ),
    );
}

fn refused(c: &mut Client, name: &str, query: &str, states: &[&str]) -> support::Failure {
    assert_refused(c, &create_call(name, query, "auto"), states)
}

#[test]
fn what_is_not_one_plain_select() {
    let db = fresh_db();
    let mut c = db.connect();
    setup(&mut c);
    for (query, states) in [
        ("SELEKT id FROM t", &["42601"][..]),
        ("SELECT id FROM", &["42601"]),
        ("", &["42601"]),
        ("   ", &["42601"]),
        ("-- nothing", &["42601"]),
        (";", &["42601"]),
        ("SELECT id FROM t; SELECT 1", &["42601"]),
        ("SELECT id FROM t; DROP TABLE t", &["42601"]),
        ("INSERT INTO t VALUES (99) RETURNING id", &["42601", "0A000"]),
        ("DELETE FROM t", &["42601", "0A000"]),
        ("UPDATE t SET v = 1 RETURNING id", &["42601", "0A000"]),
        ("WITH d AS (DELETE FROM t RETURNING id) SELECT id FROM d", &["42601", "0A000"]),
        ("CREATE TABLE x (a int)", &["42601", "0A000"]),
        ("EXPLAIN SELECT id FROM t", &["42601", "0A000"]),
        ("SHOW all", &["42601", "0A000"]),
        ("EXECUTE p", &["42601", "0A000"]),
        ("COPY t TO STDOUT", &["42601", "0A000"]),
        ("SELECT id INTO y FROM t", &["42601", "0A000"]),
        ("SELECT id FROM t FOR UPDATE", &["42601", "0A000"]),
        ("SELECT id FROM t FOR SHARE OF t SKIP LOCKED", &["42601", "0A000"]),
        ("SELECT id FROM t WHERE id = $1", &["42P02", "42601", "0A000"]),
        ("SELECT $1::int AS x FROM t", &["42P02", "42601", "0A000"]),
        ("BEGIN", &["42601", "0A000"]),
    ] {
        refused(&mut c, "s", query, states);
    }
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM t"), 10);
    // A trailing semicolon and comments are not worth an error.
    exec(&mut c, "SELECT pgtrickle.create_stream_table('s', 'SELECT id FROM t -- all of them')");
    exec(&mut c, "SELECT pgtrickle.create_stream_table('s2', E'/* x */ SELECT id FROM t ;  \\n')");
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM s2"), 10);
}

#[test]
fn what_does_not_exist_or_does_not_fit() {
    let db = fresh_db();
    let mut c = db.connect();
    setup(&mut c);
    for (query, state) in [
        ("SELECT id FROM nowhere", "42P01"),
        ("SELECT id FROM no_schema.t", "42P01"),
        ("SELECT nothing FROM t", "42703"),
        ("SELECT no_function(id) AS x FROM t", "42883"),
        ("SELECT id FROM t WHERE note = 1", "42883"),
        ("SELECT id, count(*) AS n FROM t GROUP BY grp", "42803"),
        ("SELECT id FROM t UNION ALL SELECT note FROM t", "42804"),
        ("SELECT 'x'::int AS x FROM t", "22P02"),
        ("SELECT id AS a, v AS a FROM t", "42701"),
        ("SELECT id FROM \"t\".\"x\"", "42P01"),
    ] {
        refused(&mut c, "s", query, &[state]);
    }
}

#[test]
fn names_that_can_not_be_taken() {
    let db = fresh_db();
    let mut c = db.connect();
    setup(&mut c);
    create(&mut c, "taken", "SELECT id FROM t");
    for (name, states) in [
        ("taken", &["42P07"][..]),
        ("t", &["42P07"]),
        ("public.t", &["42P07"]),
        ("v", &["42P07"]),
        ("q", &["42P07"]),
        ("mv", &["42P07"]),
        ("t_pkey", &["42P07"]),
        ("ty", &["42710", "42P07"]),
        ("pg_catalog.s", &["42501"]),
        ("information_schema.s", &["42501"]),
        ("pg_toast.s", &["42501"]),
        ("pgtrickle.s", &["42501"]),
        ("pg_temp.s", &["42501", "0A000", "42P16"]),
        ("no_such_schema.s", &["3F000"]),
        ("a.b.c", &["42601", "0A000", "42602", "3F000", "22023"]),
        ("", &["42601", "42602", "22023"]),
        ("a b", &["42601", "42602", "22023"]),
        ("a.", &["42601", "42602", "22023"]),
        (".a", &["42601", "42602", "22023"]),
        ("\"\"", &["42601", "42602", "22023"]),
        ("\"unfinished", &["42601", "42602", "22023"]),
        ("s; DROP TABLE t", &["42601", "42602", "22023"]),
        ("s(x)", &["42601", "42602", "22023"]),
    ] {
        refused(&mut c, name, "SELECT id FROM t", states);
    }
    // Any schema of ours, however it is called.
    let schemas: Vec<String> =
        column(&mut c, "SELECT quote_ident(nspname) FROM pg_namespace WHERE nspname LIKE 'pgtrickle%'");
    for s in schemas {
        refused(&mut c, &format!("{s}.mine"), "SELECT id FROM t", &["42501"]);
    }
}

#[test]
fn nulls_as_arguments() {
    let db = fresh_db();
    let mut c = db.connect();
    setup(&mut c);
    create(&mut c, "s0", "SELECT id FROM t");
    for call in [
        "create_stream_table(NULL, 'SELECT id FROM t')",
        "create_stream_table('s', NULL)",
        "create_stream_table('s', 'SELECT id FROM t', refresh_mode => NULL)",
        "create_stream_table('s', 'SELECT id FROM t', initialize => NULL)",
        "alter_stream_table_query('s0', NULL)",
        "refresh_stream_table('s0', NULL)",
        "refresh_stream_table(NULL)",
        "drop_stream_table(NULL)",
    ] {
        let before = census(&mut c);
        if let Err(e) = c.batch_execute(&format!("SELECT * FROM pgtrickle.{call}")) {
            let e = db_error(&e);
            assert!(["22023", "22004"].contains(&e.sqlstate.as_str()), "{call}: {e:?}");
            assert!(e.detail.starts_with("reason="), "{call}: {e:?}");
        }
        assert_eq!(census(&mut c), before, "{call}");
        assert_active(&mut c, "s0");
    }
}

#[test]
fn sources_that_can_not_be_watched() {
    let db = fresh_db();
    let mut c = db.connect();
    setup(&mut c);
    exec(
        &mut c,
        "CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER loop FOREIGN DATA WRAPPER nothing; CREATE FOREIGN TABLE ft (x int) SERVER loop;
         CREATE VIEW fv AS SELECT x FROM ft; CREATE VIEW cv AS SELECT relname FROM pg_class",
    );
    for (query, word) in [
        ("SELECT x FROM tmp", "temporary"),
        ("SELECT id FROM tmp_view", "temporary"),
        ("SELECT t.id FROM t JOIN tmp ON tmp.x = t.id", "temporary"),
        ("SELECT relname FROM pg_class", "system"),
        ("SELECT relname FROM cv", "system"),
        ("SELECT table_name FROM information_schema.tables", "system"),
        ("SELECT name FROM pg_settings", ""),
        ("SELECT x FROM ft", "foreign"),
        ("SELECT x FROM fv", "foreign"),
        ("SELECT last_value FROM q", "sequence"),
        ("SELECT stream_table::text AS s FROM pgtrickle.stream_tables", ""),
    ] {
        for mode in ["auto", "full"] {
            let e = assert_refused(&mut c, &create_call("s", query, mode), &["0A000", "42501", "42809"]);
            assert!(format!("{} {}", e.message, e.detail).to_lowercase().contains(word), "{query}: {e:?}");
        }
    }
    // A materialised view has no row events: refused, or kept right some other way.
    match c.batch_execute(&create_call("s", "SELECT id, v FROM mv", "auto")) {
        Err(e) => assert!(db_error(&e).detail.starts_with("reason="), "{}", support::describe(&e)),
        Ok(()) => {
            exec(&mut c, "UPDATE t SET v = 0; REFRESH MATERIALIZED VIEW mv");
            right_or_suspended(&mut c, "s");
        }
    }
}

#[test]
fn too_many_columns() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    let list = |n: usize| (0..n).map(|i| format!("id + {i} AS c{i}")).collect::<Vec<_>>().join(", ");
    let e = refused(&mut c, "s", &format!("SELECT {} FROM t", list(1601)), &["54011", "54000"]);
    assert!(e.message.len() < 500, "{}", e.message);
    // 1,600 are PostgreSQL's own limit; it works, or the limit is told.
    let query = format!("SELECT {} FROM t", list(1600));
    match c.batch_execute(&create_call("wide", &query, "auto")) {
        Err(_) => {
            refused(&mut c, "wide", &query, &["54011", "54000"]);
            exec(&mut c, &create_call("wide", &format!("SELECT {} FROM t", list(1000)), "auto"));
        }
        Ok(()) => support::assert_equal(&mut c, "wide", &query),
    }
    exec(&mut c, "UPDATE t SET id = id + 100 WHERE id = 1");
    differential(&mut c, "wide");
    // And a source of that width.
    let columns: Vec<String> = (0..1598).map(|i| format!("c{i} \"char\"")).collect();
    exec(&mut c, &format!("CREATE TABLE broad (id int PRIMARY KEY, {})", columns.join(", ")));
    match c.batch_execute(&create_call("b", "SELECT * FROM broad", "auto")) {
        Err(e) => {
            let e = db_error(&e);
            assert!(e.detail.starts_with("reason=") && !e.hint.is_empty(), "{e:?}");
        }
        Ok(()) => {
            exec(&mut c, "INSERT INTO broad (id, c7) VALUES (1, 'x')");
            differential(&mut c, "b");
        }
    }
}

#[test]
fn errors_of_the_query_itself_leave_nothing() {
    let db = fresh_db();
    let mut c = db.connect();
    setup(&mut c);
    let before = census(&mut c);
    let e = expect_error(&mut c, &create_call("s", "SELECT 1 / (v - v) AS x FROM t", "auto"));
    assert_eq!(e.sqlstate, "22012", "the user's own error is kept: {e:?}");
    assert_eq!(census(&mut c), before);
    // An error that comes with later rows: the refresh fails, everything stays, and it goes on once that is cured.
    create(&mut c, "s", "SELECT id, 100 / v AS x FROM t");
    exec(&mut c, "UPDATE t SET v = 0 WHERE id = 1; UPDATE t SET v = 7 WHERE id = 2");
    for _ in 0..2 {
        let e = expect_error(&mut c, "SELECT pgtrickle.refresh_stream_table('s')");
        assert_eq!(e.sqlstate, "22012", "{e:?}");
        assert_active(&mut c, "s");
    }
    // The buffer still has the version that can't be computed; the present rows can.
    exec(&mut c, "UPDATE t SET v = 3 WHERE id = 1");
    support::refresh(&mut c, "s");
    exec(&mut c, "UPDATE t SET v = 4 WHERE id = 1");
    differential(&mut c, "s");
}

#[test]
fn one_error_in_a_transaction_with_a_savepoint() {
    let db = fresh_db();
    let mut c = db.connect();
    setup(&mut c);
    let before = census(&mut c);
    exec(&mut c, "BEGIN; SAVEPOINT a");
    expect_error(&mut c, &create_call("s", "SELECT id, random() AS r FROM t", "auto"));
    exec(&mut c, "ROLLBACK TO a");
    exec(&mut c, &create_call("s", "SELECT id FROM t", "auto"));
    exec(&mut c, "ROLLBACK TO a; COMMIT");
    assert_eq!(census(&mut c), before);
    exec(&mut c, "BEGIN; UPDATE t SET v = 1");
    exec(&mut c, &create_call("s", "SELECT id, v FROM t", "auto"));
    exec(&mut c, "UPDATE t SET v = 2 WHERE id < 4; COMMIT");
    differential(&mut c, "s");
}
