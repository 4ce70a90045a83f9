//! Dropping, suspending by hand, direct writes, and what the user may do with a stream table.

use crate::common::*;
use crate::support::{self, expect_error, fresh_db, refresh};
use postgres::Client;

#[test]
fn every_way_to_drop_a_stream_table_cleans_up() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, &format!("{T}; CREATE TABLE u (id int, w text)"));
    // The first stream table of a database may make things that stay.
    create(
        &mut c,
        "first",
        "SELECT t.grp, count(*), min(v), max(w) FROM t JOIN u ON t.id = u.id GROUP BY t.grp",
    );
    exec(&mut c, "SELECT pgtrickle.drop_stream_table('first')");
    let before = catalog_census(&mut c);
    for (schema, drop) in [
        ("public", "SELECT pgtrickle.drop_stream_table('s')"),
        ("public", "SELECT pgtrickle.drop_stream_table('s', cascade => true)"),
        ("public", "DROP TABLE s"),
        ("public", "DROP TABLE s CASCADE"),
        ("public", "DO $$ BEGIN DROP TABLE IF EXISTS s; END $$"),
        ("gone", "DROP SCHEMA gone CASCADE"),
        (
            "public",
            "BEGIN; INSERT INTO t VALUES (77, 7, 7); DROP TABLE s; DELETE FROM t WHERE id = 77; COMMIT",
        ),
    ] {
        exec(&mut c, &format!("CREATE SCHEMA IF NOT EXISTS {schema}"));
        let name = format!("{schema}.s");
        create(
            &mut c,
            &name,
            "SELECT t.grp, count(*), min(v), max(w) FROM t JOIN u ON t.id = u.id GROUP BY t.grp",
        );
        exec(&mut c, "INSERT INTO u SELECT id, 'w' || id FROM t; UPDATE t SET v = v + 1");
        refresh(&mut c, &name);
        exec(&mut c, "DELETE FROM u");
        exec(&mut c, drop);
        assert_eq!(catalog_census(&mut c), before, "after {drop}");
        for view in ["stream_tables", "change_buffers"] {
            assert_eq!(
                one::<i64>(&mut c, &format!("SELECT count(*) FROM pgtrickle.{view}")),
                0,
                "{view} after {drop}"
            );
        }
        exec(&mut c, "INSERT INTO t VALUES (1000, 1, 1); DELETE FROM t WHERE id = 1000");
    }
}

#[test]
fn a_drop_that_rolls_back_changes_nothing() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT grp, sum(v) AS v FROM t GROUP BY grp");
    for drop in ["DROP TABLE s", "SELECT pgtrickle.drop_stream_table('s')"] {
        exec(&mut c, &format!("BEGIN; {drop}; UPDATE t SET v = v + 1; ROLLBACK"));
        exec(&mut c, &format!("BEGIN; SAVEPOINT a; {drop}; ROLLBACK TO a; UPDATE t SET v = v + 1; COMMIT"));
        differential(&mut c, "s");
    }
    // Recreated in the transaction that dropped it.
    exec(&mut c, "BEGIN; DROP TABLE s");
    exec(&mut c, &create_call("s", "SELECT grp, max(v) AS v FROM t GROUP BY grp", "auto"));
    exec(&mut c, "UPDATE t SET v = 0; COMMIT");
    differential(&mut c, "s");
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM pgtrickle.stream_tables"), 1);
}

#[test]
fn dropping_what_others_read_needs_cascade() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "low", "SELECT grp, sum(v) AS v FROM t GROUP BY grp");
    create(&mut c, "high", "SELECT count(*) AS n FROM low WHERE v > 100");
    exec(&mut c, "CREATE VIEW over AS SELECT * FROM high");
    let e = assert_refused(&mut c, "SELECT pgtrickle.drop_stream_table('low')", &["2BP01"]);
    assert!(e.hint.contains("cascade"), "{e:?}");
    let e = expect_error(&mut c, "SELECT pgtrickle.drop_stream_table('high')");
    assert_eq!(e.sqlstate, "2BP01", "a view reads it: {e:?}");
    assert_active(&mut c, "high");
    exec(&mut c, "SELECT pgtrickle.drop_stream_table('low', cascade => true)");
    for gone in ["low", "high", "over"] {
        assert!(one::<bool>(&mut c, &format!("SELECT to_regclass('{gone}') IS NULL")), "{gone}");
    }
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM pgtrickle.stream_tables"), 0);
    exec(&mut c, "UPDATE t SET v = 1");
}

#[test]
fn drop_extension_takes_capture_along() {
    let db = fresh_db();
    let mut c = db.connect();
    let before = catalog_census(&mut db.connect());
    exec(&mut c, T);
    create(&mut c, "s", "SELECT grp, sum(v) AS v FROM t GROUP BY grp");
    exec(&mut c, "UPDATE t SET v = v + 1");
    exec(&mut c, "DROP EXTENSION pgtrickle CASCADE");
    // The application goes on.
    exec(&mut c, "INSERT INTO t VALUES (1000, 1, 1); TRUNCATE t; DROP TABLE t");
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal"), 0);
    exec(&mut c, "DROP TABLE IF EXISTS s; CREATE EXTENSION pgtrickle");
    assert_eq!(catalog_census(&mut c), before, "installed again it is as it was");
}

fn assert_write_refused(c: &mut Client, sql: &str) {
    let e = expect_error(c, sql);
    assert_eq!(e.sqlstate, "55000", "{sql}: {e:?}");
    assert!(e.detail.starts_with("reason="), "{sql}: {e:?}");
    assert!(e.hint.contains("refresh_stream_table") || e.hint.contains("sources"), "{sql}: {e:?}");
}

#[test]
fn direct_writes_are_refused_with_a_hint() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id, v FROM t");
    exec(&mut c, "CREATE VIEW through AS SELECT * FROM s");
    for sql in [
        "INSERT INTO s VALUES (1, 1)",
        "INSERT INTO s SELECT id, v FROM t",
        "UPDATE s SET v = 0",
        "UPDATE s SET v = 0 WHERE id = 1",
        "DELETE FROM s",
        "DELETE FROM s WHERE id = 2",
        "TRUNCATE s",
        "TRUNCATE t, s",
        "MERGE INTO s USING t ON s.id = t.id WHEN MATCHED THEN DELETE",
        "INSERT INTO through VALUES (1, 1)",
        "UPDATE through SET v = 0",
        "DELETE FROM through",
        "WITH gone AS (DELETE FROM s RETURNING *) SELECT count(*) FROM gone",
        "DO $$ BEGIN DELETE FROM s; END $$",
    ] {
        assert_write_refused(&mut c, sql);
    }
    // In psql: the client library loses its place when COPY fails in the middle.
    let copy = db.cluster.psql(&[
        "-d",
        &db.name,
        "-c",
        "\\set VERBOSITY sqlstate",
        "-c",
        "COPY s FROM PROGRAM 'echo 1,2' CSV",
    ]);
    let said = String::from_utf8_lossy(&copy.stderr).into_owned();
    assert!(!copy.status.success() && said.contains("55000"), "{said}");
    support::assert_equal(&mut c, "s", "SELECT id, v FROM t");
    // What a refresh may do is not left open afterwards, nor after one that failed.
    exec(&mut c, "UPDATE t SET v = 0 WHERE id = 1");
    exec(&mut c, "BEGIN; SELECT pgtrickle.refresh_stream_table('s'); SAVEPOINT a");
    assert_write_refused(&mut c, "DELETE FROM s");
    exec(&mut c, "ROLLBACK TO a; COMMIT");
    assert_write_refused(&mut c, "DELETE FROM s");
}

#[test]
fn no_setting_opens_a_stream_table_for_writes() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id, v FROM t");
    let role = db.create_role("writer");
    exec(&mut c, &format!("GRANT ALL ON s TO \"{role}\"; GRANT SELECT, TRIGGER ON t TO \"{role}\""));
    let settings: Vec<String> = column(&mut c, "SELECT name FROM pg_settings WHERE name LIKE 'pg_trickle.%'");
    let mut w = db.connect_as(&role);
    for name in settings {
        for value in ["on", "true", "1"] {
            let _ = w.batch_execute(&format!("SET {name} = '{value}'"));
        }
        assert_write_refused(&mut w, "UPDATE s SET v = 0");
        let _ = w.batch_execute(&format!("RESET {name}"));
    }
    assert_write_refused(&mut w, "INSERT INTO s VALUES (1, 1)");
}

#[test]
fn indexes_grants_views_comments_and_vacuum_are_the_users() {
    let db = fresh_db();
    let mut c = db.connect();
    let role = db.create_role("reader");
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id, grp, v FROM t");
    exec(
        &mut c,
        &format!(
            "CREATE INDEX s_v ON s (v); CREATE UNIQUE INDEX s_id ON s (id); CREATE INDEX s_expr ON s ((v + grp)) WHERE v > 0;
             GRANT SELECT ON s TO \"{role}\";
             CREATE VIEW over_s AS SELECT grp, sum(v) FROM s GROUP BY grp;
             CREATE MATERIALIZED VIEW mat_s AS SELECT * FROM s;
             COMMENT ON TABLE s IS 'mine'; COMMENT ON COLUMN s.v IS 'value';
             CREATE STATISTICS s_stat ON grp, v FROM s;
             ALTER TABLE s SET (fillfactor = 70); ALTER TABLE s ALTER COLUMN v SET STATISTICS 500"
        ),
    );
    for alone in [
        "VACUUM s",
        "VACUUM ANALYZE s",
        "ANALYZE s",
        "VACUUM FULL s",
        "CLUSTER s USING s_id",
        "REINDEX TABLE s",
    ] {
        exec(&mut c, alone);
    }
    assert_active(&mut c, "s");
    exec(&mut c, "UPDATE t SET v = v + 1; DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (50, 1, 1)");
    differential(&mut c, "s");
    let mut reader = db.connect_as(&role);
    assert_eq!(one::<i64>(&mut reader, "SELECT count(*) FROM s"), 10);
    exec(&mut c, "REINDEX INDEX CONCURRENTLY s_v");
    exec(&mut c, "DROP INDEX s_expr; ALTER INDEX s_v RENAME TO s_value");
    exec(&mut c, "UPDATE t SET v = v + 1");
    differential(&mut c, "s");
    assert_active(&mut c, "s");
}

#[test]
fn a_unique_index_on_a_stream_table_survives_every_order_of_changes() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id, v FROM t");
    create(&mut c, "g", "SELECT grp, count(*) AS n FROM t GROUP BY grp");
    exec(
        &mut c,
        "CREATE UNIQUE INDEX ON s (id); CREATE UNIQUE INDEX ON g (grp); ALTER TABLE s ADD PRIMARY KEY (id)",
    );
    for change in [
        "UPDATE t SET v = v + 1",
        "UPDATE t SET v = 999 WHERE id = 1",
        "UPDATE t SET id = id + 1000; UPDATE t SET id = id - 999",
        "DELETE FROM t WHERE id = 5; INSERT INTO t VALUES (5, 0, 55)",
        "UPDATE t SET grp = (grp + 1) % 3",
        "DELETE FROM t; INSERT INTO t SELECT i, i % 3, -i FROM generate_series(1, 10) i",
    ] {
        exec(&mut c, change);
        refresh(&mut c, "s");
        refresh(&mut c, "g");
        assert_active(&mut c, "s");
    }
}

#[test]
fn i7_a_stream_table_can_be_published() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id, v FROM t");
    exec(&mut c, "ALTER TABLE s REPLICA IDENTITY FULL; CREATE PUBLICATION p FOR TABLE s");
    exec(&mut c, "UPDATE t SET v = v + 1; DELETE FROM t WHERE id = 2");
    differential(&mut c, "s");
    // A source without replica identity, published or not, is not our business.
    exec(&mut c, "CREATE TABLE k (x int); CREATE PUBLICATION q FOR TABLE k WITH (publish = 'insert')");
    create(&mut c, "sk", "SELECT x FROM k");
    exec(&mut c, "INSERT INTO k VALUES (1)");
    differential(&mut c, "sk");
}

#[test]
fn rename_move_and_owner_of_the_stream_table_itself() {
    let db = fresh_db();
    let mut c = db.connect();
    let role = db.create_role("owner");
    exec(
        &mut c,
        &format!(
            "{T}; CREATE SCHEMA elsewhere; GRANT ALL ON SCHEMA elsewhere, public TO \"{role}\"; GRANT SELECT, TRIGGER ON t TO \"{role}\""
        ),
    );
    create(&mut c, "s", "SELECT grp, sum(v) AS v FROM t GROUP BY grp");
    create(&mut c, "above", "SELECT sum(v) AS v FROM s");
    exec(&mut c, "ALTER TABLE s RENAME TO \"S 2\"; ALTER TABLE \"S 2\" SET SCHEMA elsewhere");
    exec(&mut c, &format!("ALTER TABLE elsewhere.\"S 2\" OWNER TO \"{role}\""));
    exec(&mut c, "UPDATE t SET v = v + 1 WHERE id = 1");
    differential(&mut c, "elsewhere.\"S 2\"");
    exec(&mut c, "UPDATE t SET v = v + 1 WHERE id = 2");
    differential(&mut c, "above");
    support::assert_equal(&mut c, "elsewhere.\"S 2\"", "SELECT grp, sum(v) FROM t GROUP BY grp");
}

#[test]
fn ddl_that_would_break_i7_is_refused_or_seen() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    exec(&mut c, "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'");
    for (i, ddl) in [
        "ALTER TABLE @ ADD COLUMN extra int",
        "ALTER TABLE @ DROP COLUMN v",
        "ALTER TABLE @ ALTER COLUMN v TYPE bigint",
        "ALTER TABLE @ DISABLE TRIGGER ALL",
        "CREATE TRIGGER mine BEFORE INSERT ON @ FOR EACH ROW EXECUTE FUNCTION swallow()",
        "ALTER TABLE @ RENAME COLUMN v TO value",
    ]
    .iter()
    .enumerate()
    {
        let name = format!("s{i}");
        create(&mut c, &name, "SELECT id, v FROM t");
        let ddl = ddl.replace('@', &name);
        match c.batch_execute(&ddl) {
            Err(e) => {
                let e = support::db_error(&e);
                assert!(["55000", "0A000", "39P01", "42809"].contains(&e.sqlstate.as_str()), "{ddl}: {e:?}");
            }
            Ok(()) => {
                exec(&mut c, "UPDATE t SET v = v + 1");
                right_or_suspended(&mut c, &name);
            }
        }
    }
}

#[test]
fn suspend_and_resume_by_hand() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT grp, sum(v) AS v FROM t GROUP BY grp");
    exec(&mut c, "SELECT pgtrickle.suspend_stream_table('s')");
    let s = assert_suspended(&mut c, "s", "");
    assert!(!s.reason.is_empty(), "{s:?}");
    assert!(s.hint.contains("resume_stream_table"), "{s:?}");
    let before: Vec<String> = column(&mut c, "SELECT s::text FROM s ORDER BY 1");
    exec(&mut c, "UPDATE t SET v = v + 1; DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (60, 9, 9)");
    let e = expect_error(&mut c, "SELECT pgtrickle.refresh_stream_table('s')");
    assert_eq!(e.sqlstate, "55000", "{e:?}");
    assert!(e.detail.starts_with("reason=") && e.hint.contains("resume_stream_table"), "{e:?}");
    assert_eq!(column::<String>(&mut c, "SELECT s::text FROM s ORDER BY 1"), before, "readable, unchanged");
    // Again: nothing new happens.
    exec(&mut c, "SELECT pgtrickle.suspend_stream_table('s')");
    assert_suspended(&mut c, "s", "");
    exec(&mut c, "SELECT pgtrickle.resume_stream_table('s')");
    assert_active(&mut c, "s");
    refresh(&mut c, "s");
    support::assert_equal(&mut c, "s", "SELECT grp, sum(v) FROM t GROUP BY grp");
    let words: Vec<String> = column(
        &mut c,
        "SELECT DISTINCT status FROM pgtrickle.refresh_history WHERE status IN ('suspended', 'resumed') ORDER BY 1",
    );
    assert_eq!(words, ["resumed", "suspended"]);
    exec(&mut c, "SELECT pgtrickle.resume_stream_table('s')");
    assert_active(&mut c, "s");
}

#[test]
fn what_happened_while_suspended_is_there_after_the_resume() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id, v FROM t");
    create(&mut c, "beside", "SELECT count(*) AS n FROM t");
    exec(&mut c, "SELECT pgtrickle.suspend_stream_table('s')");
    exec(&mut c, "UPDATE t SET v = -1 WHERE id = 1; TRUNCATE t; INSERT INTO t VALUES (1, 1, 1)");
    refresh(&mut c, "beside");
    exec(
        &mut c,
        "ALTER TABLE t ADD COLUMN extra int; ALTER TABLE t RENAME COLUMN v TO w; UPDATE t SET w = 2",
    );
    exec(&mut c, "SELECT pgtrickle.resume_stream_table('s')");
    exec(&mut c, "INSERT INTO t VALUES (2, 2, 2)");
    refresh(&mut c, "s");
    support::assert_equal(&mut c, "s", "SELECT id, w FROM t");
    exec(&mut c, "UPDATE t SET w = 3");
    differential(&mut c, "s");
    differential(&mut c, "beside");
}
