//! Refreshes that are not what was planned: which errors in the changes lead to a computation of everything, which are
//! raised, and where it is told. And contents that somebody has changed behind the query's back.

use crate::common::*;
use crate::support::{self, Cluster, Options, TestDb, db_error, fresh_db, refresh, try_refresh};
use postgres::Client;

/// The newest row of the history: action, reason, detail.
fn told(c: &mut Client, name: &str) -> (String, String, String) {
    let row = c
        .query_one(
            "SELECT coalesce(action, ''), coalesce(reason, ''), coalesce(detail, '') FROM pgtrickle.refresh_history
             WHERE stream_table = $1::text::regclass ORDER BY id DESC LIMIT 1",
            &[&name],
        )
        .expect("history");
    (row.get(0), row.get(1), row.get(2))
}

fn warnings(c: &mut Client, name: &str) -> Vec<String> {
    column(
        c,
        &format!(
            "SELECT detail FROM pgtrickle.health_check() WHERE \"check\" = 'stream table {name}' AND status = 'WARN'"
        ),
    )
}

/// `t.v - d.w` is not 0 for any row of either.
const D: &str = "CREATE TABLE d (id int PRIMARY KEY, w int); INSERT INTO d SELECT id, 0 FROM t";

/// Nor is it 0 afterwards; but what left of one table would give 0 with what came to the other one.
fn cross(c: &mut Client) {
    exec(c, "BEGIN; UPDATE t SET v = 10 - v WHERE id = 1; UPDATE d SET w = 10 - w WHERE id = 1; COMMIT");
}

#[test]
fn an_error_of_evaluation_is_computed_around_and_told() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, &format!("{T}; {D}"));
    create(&mut c, "s", "SELECT t.id, 100 / (t.v - d.w) AS q FROM t JOIN d USING (id)");
    for round in 1..=3 {
        assert_eq!(warnings(&mut c, "public.s"), [] as [String; 0], "before round {round}");
        cross(&mut c);
        assert_eq!(refresh(&mut c, "s").action, "full");
        let (action, reason, detail) = told(&mut c, "s");
        assert_eq!((action.as_str(), reason.as_str()), ("full", "EVALUATION_ERROR"));
        assert!(detail.starts_with("EVALUATION_ERROR: ") && detail.contains("22012"), "{detail}");
    }
    let warned = warnings(&mut c, "public.s");
    assert!(
        warned.len() == 1 && warned[0].contains("3 of the last") && warned[0].contains("EVALUATION_ERROR"),
        "{warned:?}"
    );
    // It stops happening.
    for i in 0..10 {
        exec(&mut c, &format!("UPDATE t SET v = {} WHERE id = 2", 30 + i));
        differential(&mut c, "s");
    }
    assert_eq!(warnings(&mut c, "public.s"), [] as [String; 0]);
    assert_eq!(told(&mut c, "s").1, "");
}

#[test]
fn other_errors_in_the_changes_are_raised() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, &format!("{T}; {D}"));
    for (i, code) in
        ["42P01", "42601", "42883", "55P03", "53200", "XX000", "P0001", "40P01", "40001", "54001"]
            .iter()
            .enumerate()
    {
        exec(
            &mut c,
            &format!(
                "CREATE FUNCTION f{i}(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
                 $$ BEGIN IF $1 = 0 THEN RAISE EXCEPTION 'no' USING ERRCODE = '{code}'; END IF; RETURN $1; END $$"
            ),
        );
        let s = format!("s{i}");
        create(&mut c, &s, &format!("SELECT t.id, f{i}(t.v - d.w) AS v FROM t JOIN d USING (id)"));
        cross(&mut c);
        exec(&mut c, "UPDATE t SET v = v + 1 WHERE id = 2");
        let before: Vec<String> = column(&mut c, &format!("SELECT r::text FROM {s} r ORDER BY id"));
        for _ in 0..2 {
            let error = try_refresh(&mut c, &s, "auto").expect_err(code);
            let place = error.as_db_error().and_then(|e| e.where_()).unwrap_or_default().to_string();
            let e = db_error(&error);
            assert_eq!((e.sqlstate.as_str(), e.message.as_str()), (*code, "no"), "{e:?}");
            assert!(
                place.contains(&format!("refresh of stream table \"public\".\"{s}\"")),
                "{code}: {place}"
            );
            assert_eq!(place.matches("refresh of stream table").count(), 1, "{code}: {place}");
        }
        assert_eq!(
            column::<String>(&mut c, &format!("SELECT r::text FROM {s} r ORDER BY id")),
            before,
            "{code}"
        );
        assert_active(&mut c, &s);
        // Who knows better can compute everything.
        assert_eq!(try_refresh(&mut c, &s, "full").expect(code).action, "full");
        exec(&mut c, "UPDATE t SET v = v + 1 WHERE id = 2");
        differential(&mut c, &s);
        exec(&mut c, &format!("DROP TABLE {s}"));
    }
}

#[test]
fn an_error_in_the_changes_is_a_failed_refresh_of_the_scheduler() {
    let cluster = Cluster::start(&Options::preloaded());
    cluster.create_db("d");
    let mut c = cluster.connect("d");
    exec(&mut c, &format!("CREATE EXTENSION pgtrickle; {T}; {D}"));
    exec(
        &mut c,
        "CREATE FUNCTION f(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
         $$ BEGIN IF $1 = 0 THEN RAISE EXCEPTION 'no' USING ERRCODE = '53200'; END IF; RETURN $1; END $$;
         SELECT pgtrickle.create_stream_table('s', 'SELECT t.id, f(t.v - d.w) AS v FROM t JOIN d USING (id)', schedule => '100 milliseconds')",
    );
    cross(&mut c);
    support::wait_until("the failure is in the history", PATIENCE, || {
        one::<bool>(
            &mut c,
            "SELECT EXISTS (SELECT FROM pgtrickle.refresh_history WHERE status = 'failed' AND detail LIKE '%53200%')",
        )
    });
    let failed = warnings(&mut c, "public.s");
    assert!(failed.iter().any(|w| w.contains("failed")), "{failed:?}");
}

/// Writes to a stream table as only a superuser can who lies to PostgreSQL's catalog.
fn tamper(c: &mut Client, name: &str, sql: &str) {
    let triggers =
        |on: bool| format!("UPDATE pg_class SET relhastriggers = {on} WHERE oid = '{name}'::regclass");
    exec(c, &format!("BEGIN; {}; COMMIT", triggers(false)));
    exec(c, sql);
    exec(c, &format!("BEGIN; {}; COMMIT", triggers(true)));
}

fn diverges(db: &TestDb, query: &str, tampering: &str, change: &str) {
    let mut c = db.connect();
    exec(&mut c, "DROP TABLE IF EXISTS s; DROP TABLE IF EXISTS t");
    exec(&mut c, T);
    create(&mut c, "s", query);
    tamper(&mut c, "s", tampering);
    exec(&mut c, change);
    let (mut noting, notices) = db.connect_noting();
    let what = format!("{query} after {tampering}; {change}");
    // The harness checks that it has healed.
    let done = refresh(&mut noting, "s");
    assert_eq!(done.action, "reinitialize", "{what}: {done:?}");
    let (_, reason, detail) = told(&mut c, "s");
    assert_eq!(reason, "DIVERGED", "{what}");
    assert!(detail.starts_with("DIVERGED: "), "{detail}");

    assert!(notices.take().iter().any(|(_, n)| n.detail.starts_with("reason=DIVERGED: ")), "{what}");
    exec(&mut c, "INSERT INTO t VALUES (77, 0, 1)");
    differential(&mut c, "s");
    // And health says so for as long as the history does.
    let warned = warnings(&mut c, "public.s");
    assert!(warned.iter().any(|w| w.contains("had diverged")), "{what}: {warned:?}");
}

#[test]
fn contents_that_had_diverged_heal_and_health_says_so() {
    let db = fresh_db();
    let keyed = "SELECT id, sum(v) AS v FROM t GROUP BY id";
    let one = "UPDATE t SET v = 0 WHERE id = 1";
    let two = "UPDATE t SET v = 0 WHERE id IN (1, 2)";
    let again = "INSERT INTO s SELECT * FROM s WHERE id = 1";
    diverges(&db, keyed, "DELETE FROM s WHERE id = 1", one);
    diverges(&db, keyed, again, one);
    // Together they are as many rows as there should be.
    diverges(&db, keyed, &format!("{again}; DELETE FROM s WHERE id = 2"), two);
    diverges(&db, keyed, again, "DELETE FROM t WHERE id = 1");
    diverges(&db, keyed, &format!("{again}; DELETE FROM s WHERE id = 2"), "DELETE FROM t WHERE id IN (1, 2)");
    diverges(
        &db,
        keyed,
        &format!("{again}; DELETE FROM s WHERE id = 2"),
        &format!("{one}; DELETE FROM t WHERE id = 2"),
    );
    diverges(&db, "SELECT v FROM t", "DELETE FROM s WHERE v = 10", one);
    diverges(
        &db,
        "SELECT grp, count(*) AS n FROM t GROUP BY grp",
        "DELETE FROM s WHERE grp = 1",
        "DELETE FROM t WHERE id = 1",
    );
}

#[test]
fn a_truncate_is_told_and_no_reason_to_warn() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id, v FROM t");
    for _ in 0..4 {
        exec(&mut c, "TRUNCATE t; INSERT INTO t VALUES (1, 1, 1)");
        assert_eq!(refresh(&mut c, "s").action, "full");
        let (_, reason, detail) = told(&mut c, "s");
        assert_eq!((reason.as_str(), detail.as_str()), ("TRUNCATED", "TRUNCATED: a source was truncated"));
    }
    assert_eq!(warnings(&mut c, "public.s"), [] as [String; 0]);
    // What was asked for has no reason.
    try_refresh(&mut c, "s", "full").expect("full");
    exec(&mut c, "INSERT INTO t VALUES (2, 1, 1)");
    differential(&mut c, "s");
    assert_eq!(told(&mut c, "s").1, "");
}

#[test]
fn i2_a_refresh_through_an_older_snapshot_than_anothers_is_a_serialization_failure() {
    let db = fresh_db();
    let (mut a, mut b) = (db.connect(), db.connect());
    exec(&mut a, T);
    create(&mut a, "flat", "SELECT id, v FROM t");
    create(&mut a, "agg", "SELECT grp, sum(v) AS v FROM t GROUP BY grp");
    create_mode(&mut a, "whole", "SELECT grp, sum(v) AS v FROM t GROUP BY grp", "full");
    for s in ["flat", "agg", "whole"] {
        exec(&mut a, "UPDATE t SET v = v + 1");
        let mut tx = b
            .build_transaction()
            .isolation_level(postgres::IsolationLevel::RepeatableRead)
            .start()
            .expect("begin");
        one::<i64>(&mut tx, "SELECT count(*) FROM t");
        refresh(&mut a, s);
        let e = db_error(&try_refresh(&mut tx, s, "auto").expect_err(s));
        assert_eq!(e.sqlstate, "40001", "{s}: {e:?}");
        tx.rollback().expect("rollback");
        refresh(&mut b, s);
    }
}

#[test]
fn a_function_renamed_behind_a_view_is_followed_differentially() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        &format!(
            "{T}; CREATE FUNCTION twice(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN $1 * 2; END';
             CREATE VIEW vw AS SELECT id, twice(v) AS v FROM t"
        ),
    );
    create(&mut c, "s", "SELECT id, v FROM vw");
    exec(&mut c, "UPDATE t SET v = v + 1 WHERE id = 1");
    differential(&mut c, "s");
    // The query's text has nothing of it, but the plan has.
    exec(&mut c, "ALTER FUNCTION twice(int) RENAME TO double_; UPDATE t SET v = v + 1 WHERE id = 1");
    differential(&mut c, "s");
}
