//! Nobody waits for us: DDL that concerns stream tables goes through at once, whoever else holds what, and what could not be
//! done then is done later. No time decides: a session that waits is seen to wait, or its own lock_timeout ends it.

use crate::common::*;
use crate::support::{self, TestDb, expect_error, fresh_db, refresh};
use postgres::Client;
use std::thread;

/// Runs `sql` in a session of its own while others hold what they hold: that it ends is the verdict. What would wait is ended
/// by its own lock_timeout, which nothing of ours reaches: we don't wait that long for anything.
fn at_once(db: &TestDb, sql: &str) {
    let (mut c, notices) = db.connect_noting();
    exec(&mut c, "SET lock_timeout = '20s'");
    exec(&mut c, sql);
    let degraded = |n: &support::Failure| n.detail.contains("DEGRADED");
    let heard: Vec<_> = notices.take().into_iter().filter(|(_, n)| degraded(n)).collect();
    assert!(heard.is_empty(), "{sql}: {heard:?}");
}

/// A writer that gives up rather than wait for ever: the verdict is its error.
fn writer(db: &TestDb) -> Client {
    let mut w = db.connect();
    exec(&mut w, "SET lock_timeout = '20s'");
    w
}

fn tasks(c: &mut Client) -> Vec<String> {
    column(c, "SELECT kind || ' ' || coalesce(reason, '') FROM pgtrickle.pgt_tasks ORDER BY id")
}

const TWO: &str = "CREATE TABLE a (id int PRIMARY KEY, v int, spare int); CREATE TABLE b (id int PRIMARY KEY, w int);
    INSERT INTO a SELECT i, i, i FROM generate_series(1, 5) i; INSERT INTO b SELECT i, i FROM generate_series(1, 5) i";
const JOINED: &str = "SELECT a.id, a.v, b.w FROM a JOIN b USING (id)";

#[test]
fn a_suspension_waits_for_no_writer_of_another_source() {
    let db = fresh_db();
    let mut c = db.connect();
    let (mut w1, mut w2) = (writer(&db), writer(&db));
    exec(&mut c, TWO);
    create(&mut c, "s", JOINED);
    exec(&mut w1, "BEGIN; INSERT INTO b VALUES (6, 6)");
    at_once(&db, "ALTER TABLE a DROP COLUMN v");
    exec(&mut w2, "INSERT INTO b VALUES (7, 7); UPDATE b SET w = 0 WHERE id = 1");
    exec(&mut w1, "INSERT INTO b VALUES (8, 8); COMMIT");
    exec(&mut w2, "INSERT INTO b VALUES (9, 9)");
    let s = assert_suspended(&mut c, "s", "COLUMN_DROPPED");
    exec(&mut c, &format!("SELECT {}", extract_call(&s.hint, "pgtrickle.alter_stream_table_query(")));
    support::assert_up_to_date(&mut c, "s");
    exec(&mut w2, "DELETE FROM b WHERE id = 3");
    differential(&mut c, "s");
    assert_eq!(tasks(&mut c), [] as [String; 0], "nothing is left to do");
}

#[test]
fn buffers_that_nobody_reads_go_later() {
    let db = fresh_db();
    let (mut c, mut w) = (db.connect(), writer(&db));
    exec(&mut c, TWO);
    create(&mut c, "s", JOINED);
    create(&mut c, "other", "SELECT id, spare FROM a");
    exec(&mut w, "BEGIN; INSERT INTO b VALUES (6, 6)");
    at_once(&db, "ALTER TABLE a DROP COLUMN v");
    exec(&mut w, "COMMIT");
    // The next call of anybody, for another stream table, carries out what was left.
    refresh(&mut c, "other");
    let left: Vec<String> =
        column(&mut c, "SELECT relname::text FROM pg_class WHERE relname = 'changes_' || 'b'::regclass::oid");
    assert!(left.is_empty(), "the buffer of b has no reader: {left:?}");
    assert_eq!(tasks(&mut c), [] as [String; 0]);
}

#[test]
fn dropping_a_stream_table_waits_for_no_writer_of_its_sources() {
    for drop in ["DROP TABLE s", "SELECT pgtrickle.drop_stream_table('s')"] {
        let db = fresh_db();
        let mut c = db.connect();
        let (mut w1, mut w2) = (writer(&db), writer(&db));
        exec(&mut c, TWO);
        let before = catalog_census(&mut c);
        create(&mut c, "s", JOINED);
        exec(&mut w1, "BEGIN; INSERT INTO b VALUES (6, 6)");
        at_once(&db, drop);
        exec(&mut w2, "INSERT INTO b VALUES (7, 7)");
        exec(&mut w1, "INSERT INTO b VALUES (8, 8); COMMIT");
        exec(&mut w2, "INSERT INTO b VALUES (9, 9)");
        let health: Vec<String> = column(
            &mut c,
            "SELECT detail FROM pgtrickle.health_check() WHERE \"check\" = 'tasks' AND status = 'WARN'",
        );
        assert_eq!(health.len(), 1, "{drop}: what is left to do is shown: {health:?}");
        // Whoever calls next carries it out, and then nothing is left of either.
        create(&mut c, "x", "SELECT id FROM a");
        exec(&mut c, "DROP TABLE x");
        assert_eq!(catalog_census(&mut c), before, "{drop}");
        assert_eq!(tasks(&mut c), [] as [String; 0], "{drop}");
    }
}

#[test]
fn an_open_transaction_that_drops_a_stream_table_holds_up_no_writer() {
    let db = fresh_db();
    let (mut c, mut w) = (db.connect(), writer(&db));
    exec(&mut c, TWO);
    create(&mut c, "s", JOINED);
    exec(&mut c, "BEGIN; DROP TABLE s");
    exec(&mut w, "INSERT INTO b VALUES (7, 7); DELETE FROM a WHERE id = 2");
    exec(&mut c, "COMMIT");
    exec(&mut w, "INSERT INTO b VALUES (8, 8)");
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'pgtrickle%'"), 0);
}

#[test]
fn creation_holds_up_no_writer_while_it_waits() {
    let db = fresh_db();
    let (mut c, mut watcher) = (db.connect(), db.connect());
    let (mut w1, mut w2) = (writer(&db), writer(&db));
    exec(&mut c, TWO);
    exec(&mut w1, "BEGIN; INSERT INTO b VALUES (6, 6)");
    let p = pid(&mut c);
    thread::scope(|s| {
        let make = s.spawn(|| exec(&mut c, &create_call("s", JOINED, "auto")));
        let watched = Watched { watcher: &mut watcher, pid: p };
        // It has begun to try when its table is there for itself: the row that it holds.
        support::wait_until("creation has begun", PATIENCE, || {
            one::<bool>(
                watched.watcher,
                &format!(
                    "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = {p} AND mode = 'RowExclusiveLock' AND relation = 'pgtrickle.pgt_dependencies'::regclass)"
                ),
            )
        });
        for i in 0..30 {
            exec(
                &mut w2,
                &format!("INSERT INTO b VALUES ({}, 1); UPDATE a SET v = v + 1 WHERE id = 1", 100 + i),
            );
        }
        assert!(!make.is_finished(), "the first writer is still open");
        exec(&mut w1, "COMMIT");
        make.join().expect("creation");
    });
    exec(&mut w2, "DELETE FROM b WHERE id > 110");
    differential(&mut db.connect(), "s");
}

#[test]
fn creation_gives_up_with_the_name_of_the_table_and_its_holder() {
    let db = fresh_db();
    let (mut c, mut w) = (db.connect(), writer(&db));
    exec(&mut c, TWO);
    exec(&mut w, "BEGIN; INSERT INTO b VALUES (6, 6)");
    let holder = pid(&mut w);
    exec(&mut c, "SET pg_trickle.source_lock_timeout = '300ms'");
    let before = census(&mut c);
    let e = expect_error(&mut c, &create_call("s", JOINED, "auto"));
    assert_eq!(e.sqlstate, "55P03", "{e:?}");
    assert!(e.message.contains("public.b"), "{e:?}");
    assert!(e.detail.contains(&holder.to_string()), "{e:?}");
    assert!(e.hint.contains("pg_trickle.source_lock_timeout"), "{e:?}");
    assert_eq!(census(&mut c), before);
    exec(&mut w, "COMMIT");
    create(&mut c, "s", JOINED);
}

#[test]
fn a_refresh_that_is_open_holds_up_no_ddl_on_what_it_used() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        &format!(
            "{T}; CREATE FUNCTION f(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 1'; CREATE VIEW v AS SELECT id, v FROM t"
        ),
    );
    create(&mut c, "by_function", "SELECT id, f(v) AS v FROM t");
    create(&mut c, "by_view", "SELECT id, v FROM v");
    exec(&mut c, "UPDATE t SET v = v + 1");
    for (name, ddl) in [
        (
            "by_function",
            "CREATE OR REPLACE FUNCTION f(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 2'",
        ),
        ("by_view", "CREATE OR REPLACE VIEW v AS SELECT id, v * 2 AS v FROM t"),
    ] {
        exec(
            &mut c,
            &format!("UPDATE t SET v = v + 1; BEGIN; SELECT pgtrickle.refresh_stream_table('{name}')"),
        );
        at_once(&db, ddl);
        exec(&mut c, "COMMIT");
        refresh(&mut c, name);
    }
    refresh(&mut c, "by_function");
    support::assert_equal(&mut c, "by_function", "SELECT id, v + 2 FROM t");
    support::assert_equal(&mut c, "by_view", "SELECT id, v * 2 FROM t");
    assert_eq!(tasks(&mut c), [] as [String; 0]);
}

#[test]
fn what_could_not_be_suspended_at_once_is_suspended_before_its_next_refresh() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        &format!("{T}; CREATE FUNCTION f(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 1'"),
    );
    create(&mut c, "s", "SELECT id, f(v) AS v FROM t");
    exec(&mut c, "UPDATE t SET v = v + 1; BEGIN; SELECT pgtrickle.refresh_stream_table('s')");
    at_once(&db, "DROP FUNCTION f(int)");
    exec(&mut c, "COMMIT; UPDATE t SET v = v + 1");
    let health: Vec<String> = column(
        &mut c,
        "SELECT detail FROM pgtrickle.health_check() WHERE \"check\" = 'tasks' AND status = 'WARN'",
    );
    assert_eq!(health.len(), 1, "{health:?}");
    assert!(health[0].contains("suspend"), "{health:?}");
    assert_eq!(right_or_suspended(&mut c, "s"), "suspended");
    assert_suspended(&mut c, "s", "OBJECT_CHANGED");
    assert_eq!(tasks(&mut c), [] as [String; 0]);
}

#[test]
fn replacing_a_view_waits_for_no_writer_of_a_new_source() {
    let db = fresh_db();
    let (mut c, mut w) = (db.connect(), writer(&db));
    exec(&mut c, &format!("{TWO}; CREATE VIEW v AS SELECT id, v FROM a"));
    create(&mut c, "s", "SELECT id, v FROM v");
    exec(&mut w, "BEGIN; INSERT INTO b VALUES (6, 6)");
    at_once(&db, "CREATE OR REPLACE VIEW v AS SELECT a.id, b.w AS v FROM a JOIN b USING (id)");
    exec(&mut w, "INSERT INTO a VALUES (6, 6, 6); COMMIT");
    refresh(&mut c, "s");
    support::assert_equal(&mut c, "s", "SELECT a.id, b.w FROM a JOIN b USING (id)");
    exec(&mut w, "UPDATE b SET w = w + 1");
    differential(&mut c, "s");
}
