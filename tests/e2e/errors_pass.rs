//! Errors that are not ours pass as if pgtrickle were not there: those of other people's commands on a preloaded server,
//! and those of users' functions inside a refresh.

use std::io::Write;

use crate::common::*;
use crate::support::{Cluster, Options, describe, fresh_db, wait_until};
use postgres::Client;
use postgres::error::{DbError, ErrorPosition};

/// Everything that the server says of a failing statement.
fn told(c: &mut Client, sql: &str) -> DbError {
    match c.batch_execute(sql) {
        Ok(()) => panic!("this should have failed: {sql}"),
        Err(e) => e.as_db_error().cloned().unwrap_or_else(|| panic!("not an error of the server: {e}")),
    }
}

fn told_of_copy(c: &mut Client, sql: &str, lines: &str) -> DbError {
    let mut copy = c.copy_in(sql).unwrap_or_else(|e| panic!("{sql}: {}", describe(&e)));
    copy.write_all(lines.as_bytes()).unwrap_or_else(|e| panic!("{sql}: {e}"));
    match copy.finish() {
        Ok(_) => panic!("this should have failed: {sql}"),
        Err(e) => e.as_db_error().cloned().unwrap_or_else(|| panic!("not an error of the server: {e}")),
    }
}

const OBJECTS: &str = r#"
CREATE TABLE t (id int PRIMARY KEY, v int CONSTRAINT v_small CHECK (v < 100), n text);
INSERT INTO t VALUES (1, 1, NULL), (2, 2, 'x');
CREATE DOMAIN d AS int CONSTRAINT d_positive CHECK (VALUE > 0);
CREATE FUNCTION f(x int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
  IF x < 0 THEN
    RAISE EXCEPTION 'negative' USING ERRCODE = 'PT123', DETAIL = 'the detail', HINT = 'the hint',
      SCHEMA = 's', TABLE = 't', COLUMN = 'c', DATATYPE = 'y', CONSTRAINT = 'k';
  END IF;
  RETURN 10 / x;
END $$;
CREATE FUNCTION outer_f(x int) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN f(x) + 1; END';
CREATE PROCEDURE p(x int) LANGUAGE plpgsql AS 'BEGIN PERFORM outer_f(x); END';
CREATE MATERIALIZED VIEW m AS SELECT f(v) AS x FROM t;
PREPARE q(int) AS INSERT INTO t VALUES ($1, f($1), NULL);
"#;

/// One of each way in which an error leaves a utility command: out of the executor, the parser, a function, an input
/// function, the catalogs.
const FAILING: &[&str] = &[
    "DO $$ BEGIN RAISE EXCEPTION 'mine' USING ERRCODE = 'PT123'; END $$",
    "DO $$ BEGIN PERFORM outer_f(-1); END $$",
    "DO $$ BEGIN EXECUTE 'DO $q$ BEGIN PERFORM outer_f(0); END $q$'; END $$",
    "DO $$ BEGIN SELECT nothing FROM t; END $$",
    "DO $$ BEGN END $$",
    "CALL p(-1)",
    "CALL p(0)",
    "EXECUTE q(-1)",
    "EXECUTE q(1)",
    "EXECUTE nothing",
    "VACUUM nothing",
    "BEGIN; VACUUM t",
    "ANALYZE t (nothing)",
    "EXPLAIN ANALYZE SELECT f(-1)",
    "EXPLAIN SELECT nothing FROM t",
    "CREATE TABLE u AS SELECT f(0) AS x",
    "CREATE TABLE u (a int,, b int)",
    "CREATE TABLE u (a nothing)",
    "CREATE TABLE u (a int REFERENCES nothing)",
    "CREATE VIEW w AS SELECT id, nothing FROM t",
    "CREATE VIEW w AS SELECT * FROM t WHERE v = 'x'",
    "CREATE FUNCTION g() RETURNS int LANGUAGE sql AS 'SELECT nothing FROM t'",
    "CREATE UNIQUE INDEX u ON t ((1))",
    "CREATE INDEX ON t (nothing)",
    "ALTER TABLE t ADD CONSTRAINT all_named CHECK (n IS NOT NULL)",
    "ALTER TABLE t ALTER n SET NOT NULL",
    "ALTER TABLE t ALTER n TYPE int USING n::int",
    "ALTER TABLE t ADD COLUMN w int DEFAULT nothing",
    "ALTER TABLE t DROP CONSTRAINT nothing",
    "ALTER DOMAIN d ADD CONSTRAINT even CHECK (VALUE % nothing = 0)",
    "DROP TABLE nothing",
    "DROP FUNCTION f(text)",
    "TRUNCATE nothing",
    "REFRESH MATERIALIZED VIEW m_missing",
    "UPDATE t SET v = 0; REFRESH MATERIALIZED VIEW m",
    "PREPARE bad AS SELECT nothing FROM t",
    "DECLARE c CURSOR FOR SELECT 1",
    "COPY t FROM '/nonexistent'",
    "SET pg_nothing",
    "SET work_mem = 'x'",
    "GRANT SELECT ON t TO nothing",
    "LOCK TABLE t",
    "DROP DATABASE nothing",
    "ALTER DATABASE nothing RENAME TO other",
    "ALTER DATABASE postgres SET TABLESPACE nothing",
    "CREATE DATABASE other TEMPLATE nothing",
    "CREATE DATABASE other TEMPLATE template0 nothing 1",
    "DO $$ BEGIN DROP DATABASE nothing; END $$",
];

/// All errors of the battery, in a database made for it.
fn battery(cluster: &Cluster, db: &str, extension: bool) -> Vec<(String, DbError)> {
    cluster.create_db(db);
    let mut c = cluster.connect(db);
    if extension {
        exec(&mut c, "CREATE EXTENSION pgtrickle");
    }
    exec(&mut c, OBJECTS);
    let mut all = Vec::new();
    for sql in FAILING {
        all.push(((*sql).to_string(), told(&mut c, sql)));
        exec(&mut c, "ROLLBACK");
    }
    for (sql, lines) in [
        ("COPY t FROM STDIN", "3\t3\tx\n4\tfour\tx\n"),
        ("COPY t FROM STDIN", "5\t500\tx\n"),
        ("COPY t FROM STDIN", "1\t1\tx\n"),
        ("COPY t FROM STDIN", "6\n"),
        ("COPY t FROM STDIN (FORMAT csv)", "6,\"6\n"),
    ] {
        all.push((format!("{sql} {lines:?}"), told_of_copy(&mut c, sql, lines)));
    }
    all
}

#[test]
fn a_preloaded_server_tells_errors_as_any_other() {
    let plain = Cluster::start(&Options::default());
    let expected = battery(&plain, "plain", false);
    drop(plain);
    let custom = &expected[0].1;
    assert_eq!(custom.code().code(), "PT123", "the battery works");
    assert!(expected.iter().any(|(_, e)| matches!(e.position(), Some(ErrorPosition::Original(_)))));
    assert!(expected.iter().any(|(_, e)| e.constraint() == Some("v_small")));
    assert!(expected.iter().any(|(_, e)| e.where_().is_some_and(|w| w.starts_with("COPY t, line 2"))));

    let cluster = Cluster::start(&Options { backtrace: true, ..Options::preloaded() });
    let mut differ = Vec::new();
    for (db, extension) in [("without", false), ("with", true)] {
        for ((sql, expected), (_, found)) in expected.iter().zip(battery(&cluster, db, extension)) {
            if *expected != found {
                differ.push(format!("{db} the extension: {sql}\n  {expected:?}\n  {found:?}"));
            }
        }
    }
    assert!(differ.is_empty(), "{} errors changed:\n{}", differ.len(), differ.join("\n"));
}

const RAISING: &str = r#"
CREATE TABLE src (id int PRIMARY KEY, v int);
INSERT INTO src VALUES (1, 1), (2, 2);
CREATE FUNCTION f(x int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
  IF x < 0 THEN
    RAISE EXCEPTION 'negative' USING ERRCODE = 'PT123', DETAIL = 'the detail', HINT = 'the hint',
      SCHEMA = 's', TABLE = 't', COLUMN = 'c', DATATYPE = 'y', CONSTRAINT = 'k';
  END IF;
  RETURN 10 / x;
END $$;
CREATE FUNCTION outer_f(x int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN public.f(x) + 1; END';
"#;

const QUERY: &str = "SELECT id, outer_f(v) AS x FROM src";

/// Is it the error of `f(-1)`, whole, with the stream table named, and nothing of the SQL that we generate?
fn assert_whole(e: &DbError, stream_table: &str, behind: &str) {
    let what = format!("{e:?}");
    assert_eq!((e.code().code(), e.message()), ("PT123", "negative"), "{what}");
    assert_eq!((e.detail(), e.hint()), (Some("the detail"), Some("the hint")), "{what}");
    assert_eq!((e.schema(), e.table(), e.column()), (Some("s"), Some("t"), Some("c")), "{what}");
    assert_eq!((e.datatype(), e.constraint()), (Some("y"), Some("k")), "{what}");
    let context = format!(
        "PL/pgSQL function f(integer) line 4 at RAISE\nPL/pgSQL function outer_f(integer) line 1 at RETURN\n\
         refresh of stream table {stream_table}{behind}"
    );
    // Names are printed as they were when the function was compiled; PL/pgSQL quotes an expression when it plans it.
    let found = e
        .where_()
        .unwrap_or_default()
        .replace("public.", "")
        .replace("PL/pgSQL expression", "SQL expression")
        .replace("SQL expression \"f(x) + 1\"\n", "");
    assert_eq!(found, context.replace("public.", ""), "{what}");
}

#[test]
fn an_error_of_a_users_function_leaves_a_refresh_whole() {
    let cluster = Cluster::start(&Options { backtrace: true, ..Options::default() });
    cluster.create_db("d");
    let mut c = cluster.connect("d");
    exec(&mut c, "CREATE EXTENSION pgtrickle");
    exec(&mut c, RAISING);
    create(&mut c, "st", QUERY);
    create(&mut c, "\"Ünder\"", "SELECT id, outer_f(v) AS x, now() > 'epoch' AS y FROM src");
    exec(&mut c, "UPDATE src SET v = -1 WHERE id = 2");
    for (name, shown) in [("st", "\"public\".\"st\""), ("\"Ünder\"", "\"public\".\"Ünder\"")] {
        for mode in ["auto", "full"] {
            let e = told(&mut c, &format!("SELECT pgtrickle.refresh_stream_table({}, '{mode}')", lit(name)));
            assert_whole(&e, shown, "");
        }
    }
    assert_whole(&told(&mut c, &create_call("st2", QUERY, "auto")), "\"public\".\"st2\"", "");
    let alter =
        format!("SELECT pgtrickle.alter_stream_table_query('st', {})", lit(&format!("{QUERY} WHERE id > 0")));
    assert_whole(&told(&mut c, &alter), "\"public\".\"st\"", "");

    // What calls us adds its lines, once.
    let e = told(&mut c, "DO $$ BEGIN PERFORM pgtrickle.refresh_stream_table('st'); END $$");
    let behind = "\nSQL statement \"SELECT pgtrickle.refresh_stream_table('st')\"\nPL/pgSQL function inline_code_block line 1 at PERFORM";
    assert_whole(&e, "\"public\".\"st\"", behind);
    // Caught and raised again by a function of the query.
    exec(
        &mut c,
        "CREATE OR REPLACE FUNCTION outer_f(x int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
         $$ BEGIN RETURN public.f(x) + 1; EXCEPTION WHEN sqlstate 'PT123' THEN BEGIN PERFORM 1/0; EXCEPTION WHEN division_by_zero THEN NULL; END; RAISE; END $$",
    );
    assert_whole(&told(&mut c, "SELECT pgtrickle.refresh_stream_table('st')"), "\"public\".\"st\"", "");
    // A user's code that catches it sees all of it.
    exec(
        &mut c,
        "DO $$ DECLARE k text; w text; BEGIN
           PERFORM pgtrickle.refresh_stream_table('st');
         EXCEPTION WHEN sqlstate 'PT123' THEN
           GET STACKED DIAGNOSTICS k = CONSTRAINT_NAME, w = PG_EXCEPTION_CONTEXT;
           ASSERT k = 'k' AND w LIKE '%f(integer) line 4 at RAISE%', concat(k, w);
         END $$",
    );
    exec(&mut c, "UPDATE src SET v = 2");
    crate::support::refresh(&mut c, "st");
    crate::support::refresh(&mut c, "\"Ünder\"");

    // An error without DETAIL gets none, whatever the environment.
    exec(&mut c, "UPDATE src SET v = 0");
    let e = told(&mut c, "SELECT pgtrickle.refresh_stream_table('st')");
    assert_eq!((e.code().code(), e.detail(), e.hint()), ("22012", None, None), "{e:?}");
}

#[test]
fn an_error_in_the_text_of_a_query_shows_its_place() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "CREATE TABLE src (id int PRIMARY KEY, v int)");
    create(&mut c, "st", "SELECT id FROM src");
    for (query, code, reason, place) in [
        ("SELECT id, nothing FROM src", "42703", "MISSING_COLUMN", 12),
        ("SELECT id FROM src WHERE ORDER", "42601", "SYNTAX_ERROR", 26),
        ("SELECT id FROM nothing", "42P01", "MISSING_TABLE", 16),
        ("SELECT nothing(id) FROM src", "42883", "MISSING_FUNCTION", 8),
        ("SELECT id, 'x'::int FROM src", "22P02", "INVALID_QUERY", 12),
    ] {
        let calls = [
            create_call("bad", query, "auto"),
            format!("SELECT pgtrickle.alter_stream_table_query('st', {})", lit(query)),
        ];
        for call in calls {
            let e = told(&mut c, &call);
            assert_eq!(e.code().code(), code, "{e:?}");
            assert!(e.detail().is_some_and(|d| d.starts_with(&format!("reason={reason}"))), "{e:?}");
            assert!(e.hint().is_some(), "{e:?}");
            let at = ErrorPosition::Internal { position: place, query: query.to_string() };
            assert_eq!(e.position(), Some(&at), "{e:?}");
        }
    }
}

#[test]
fn errors_of_others_pass_our_triggers_whole() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, RAISING);
    create(&mut c, "st", "SELECT id, v FROM src");
    exec(
        &mut c,
        "CREATE FUNCTION zz() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM f(-1); END $$;
         CREATE EVENT TRIGGER zz ON ddl_command_end WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION zz();
         CREATE FUNCTION row_check() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM f(NEW.v); RETURN NEW; END $$;
         CREATE TRIGGER zz AFTER INSERT ON src FOR EACH ROW EXECUTE FUNCTION row_check();",
    );
    for sql in ["ALTER TABLE src ADD COLUMN w int", "INSERT INTO src VALUES (9, -1)"] {
        let e = told(&mut c, sql);
        assert_eq!((e.code().code(), e.constraint()), ("PT123", Some("k")), "{e:?}");
        assert!(
            e.where_().is_some_and(|w| w.starts_with("PL/pgSQL function f(integer) line 4 at RAISE\n")),
            "{e:?}"
        );
    }
    // Creation runs other people's event triggers, too: their errors are not the query's.
    exec(
        &mut c,
        "DROP EVENT TRIGGER zz;
         ALTER FUNCTION zz SET search_path = public;
         CREATE EVENT TRIGGER zz ON ddl_command_end EXECUTE FUNCTION zz()",
    );
    let e = told(&mut c, &create_call("st2", "SELECT id FROM src", "auto"));
    assert_eq!(
        (e.code().code(), e.detail(), e.hint()),
        ("PT123", Some("the detail"), Some("the hint")),
        "{e:?}"
    );
    let context = e.where_().unwrap_or_default();
    assert!(
        context.starts_with("PL/pgSQL function public.f(integer) line 4 at RAISE\n")
            || context.starts_with("PL/pgSQL function f(integer) line 4 at RAISE\n"),
        "{context}"
    );
    assert!(context.ends_with("\ncreation of stream table \"public\".\"st2\""), "{context}");
}

#[test]
fn a_failed_scheduled_refresh_is_told_whole_to_the_log_and_to_the_owner_alone() {
    let cluster = Cluster::start(&Options::preloaded().with("pg_trickle.max_consecutive_failures = 2"));
    cluster.create_db("d");
    let mut c = cluster.connect("d");
    exec(&mut c, "CREATE EXTENSION pgtrickle; CREATE ROLE reader LOGIN");
    exec(&mut c, "CREATE TABLE src (id int PRIMARY KEY, v text); INSERT INTO src VALUES (1, '1')");
    exec(
        &mut c,
        "CREATE FUNCTION num(v text) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN v::int; END';
         SELECT pgtrickle.create_stream_table('st', 'SELECT id, num(v) AS n FROM src', '1 second');
         GRANT SELECT ON st TO reader;
         UPDATE src SET v = 'secret'",
    );
    let of_failure = |c: &mut Client, what: &str| -> Vec<String> {
        column(
            c,
            &format!("SELECT concat({what}) FROM pgtrickle.refresh_history WHERE status = 'failed' LIMIT 1"),
        )
    };
    wait_until("the stream table is suspended", PATIENCE, || {
        one::<String>(&mut c, "SELECT status FROM pgtrickle.pgt_stream_tables") == "suspended"
    });
    let owner = of_failure(&mut c, "detail");
    let message = "invalid input syntax for type integer: \"secret\" (SQLSTATE 22P02; SQL expression \"v::int\"; \
                   PL/pgSQL function public.num(text) line 1 at RETURN; refresh of stream table \"public\".\"st\")";
    // PostgreSQL 18 says whose expression it is.
    let told = owner[0].replace("function num", "function public.num");
    assert_eq!(told.replace("PL/pgSQL expression", "SQL expression"), message);
    let mut reader = cluster.connect_as("d", "reader");
    assert_eq!(of_failure(&mut reader, "reason, detail"), ["REFRESH_FAILED"], "one row, and no message");
    for view in ["refresh_history h", "stream_tables h", "health_check() h"] {
        let seen: Vec<String> = column(&mut reader, &format!("SELECT h::text FROM pgtrickle.{view}"));
        assert!(!seen.is_empty() && seen.iter().all(|row| !row.contains("secret")), "{seen:?}");
    }
    let log = cluster.log();
    let start =
        log.find("invalid input syntax for type integer: \"secret\"").expect("the failure is in the log");
    let told: Vec<&str> = log[start..].lines().take(5).collect();
    let told = told.join("\n");
    for part in ["DETAIL:  SQLSTATE 22P02", "line 1 at RETURN", "refresh of stream table \"public\".\"st\""] {
        assert!(told.contains(part), "no {part} in:\n{told}");
    }
}
