//! Errors that are not ours pass as if pgtrickle were not there: those of other people's commands on a preloaded server,
//! and those of users' functions inside a refresh.

use std::io::Write;

use crate::common::*;
use crate::support::{Cluster, Options, describe};
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
