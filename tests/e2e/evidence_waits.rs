//! Capture that hangs: a time of its own ends it, without using up the user's, and the user can still cancel.

use crate::common::*;
use crate::evidence::*;
use crate::support::{self, TestDb, db_error, expect_error, fresh_db};
use postgres::Client;
use std::thread;

/// Makes storing a snapshot sleep for ever; how often it was tried can be counted.
fn hang(c: &mut Client) {
    exec(c, "CREATE SEQUENCE tries");
    on_store(c, "hang", "pgt_schema_snapshots", "reason", HANG);
}

const HANG: &str = "PERFORM nextval('public.tries'), pg_sleep(1000000)";

fn tries(c: &mut Client) -> i64 {
    one(c, "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM tries")
}

/// Waits until the backend sleeps while it stores a row.
fn wait_for_sleep(c: &mut Client, pid: i32) {
    support::wait_until("the backend hangs", PATIENCE, || {
        one::<bool>(
            c,
            &format!(
                "SELECT coalesce((SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = {pid}), false)"
            ),
        )
    });
}

#[test]
fn a_hanging_capture_ends_by_itself() {
    let db = fresh_db();
    let (mut c, notices) = db.connect_noting();
    hang(&mut c);
    exec(&mut c, "SET pg_trickle.snapshot_timeout = '100ms'");
    for (table, setting) in [
        ("a", "SET statement_timeout = 0"),
        ("b", "SET statement_timeout = '60s'"),
        ("d", "SET statement_timeout = 0; SET lock_timeout = '60s'"),
    ] {
        exec(&mut c, &format!("CREATE TABLE {table} (x int); {setting}"));
        notices.take();
        exec(&mut c, &format!("DROP TABLE {table}"));
        assert!(!exists(&mut db.connect(), table), "{setting}");
        let w = warning(&notices);
        assert!(w.detail.contains("SQLSTATE 57014"), "{w:?}");
    }
    assert_eq!(missing(&mut c), 3);
    // No alarm is left behind that would go off later.
    exec(&mut c, "RESET lock_timeout; SELECT pg_sleep(0.3)");
    exec(&mut c, "CREATE TABLE e (x int); BEGIN; DROP TABLE e; SELECT pg_sleep(0.3); COMMIT");
    assert!(!exists(&mut c, "e"));
}

#[test]
fn the_users_own_time_goes_on_and_is_not_used_up() {
    let db = fresh_db();
    let (mut c, notices) = db.connect_noting();
    hang(&mut c);
    exec(&mut c, "CREATE TABLE a (x int); CREATE TABLE b (x int)");
    // Longer than the user's own limit.
    exec(&mut c, "SET pg_trickle.snapshot_timeout = '3s'; SET statement_timeout = '2s'");
    exec(&mut c, "DROP TABLE a");
    warning(&notices);
    assert!(!exists(&mut c, "a"), "our time is not the user's");
    // The user's limit still holds for what is the user's own, in the same statement and in the next.
    exec(&mut c, "SET pg_trickle.snapshot_timeout = '100ms'; SET statement_timeout = '1s'");
    let e = expect_error(&mut c, "DO $$ BEGIN DROP TABLE b; PERFORM pg_sleep(1000000); END $$");
    assert_eq!(
        (e.sqlstate.as_str(), e.message.as_str()),
        ("57014", "canceling statement due to statement timeout")
    );
    assert!(exists(&mut c, "b"));
    exec(&mut c, "SET statement_timeout = '100ms'");
    assert_eq!(expect_error(&mut c, "SELECT pg_sleep(1000000)").sqlstate, "57014");
    exec(&mut c, "RESET statement_timeout");
    assert_eq!((missing(&mut c), count(&mut c)), (1, 0), "of the drop that was done");
}

#[test]
fn many_tables_are_not_waited_for_one_by_one() {
    let db = fresh_db();
    let (mut c, notices) = db.connect_noting();
    let tables: String = (1..=12).map(|i| format!("CREATE TABLE app.t{i} (x int);")).collect();
    exec(&mut c, &format!("CREATE SCHEMA app; {tables}"));
    hang(&mut c);
    exec(&mut c, "SET pg_trickle.snapshot_timeout = '100ms'");
    notices.take();
    exec(&mut c, "DROP SCHEMA app CASCADE");
    assert_eq!(tries(&mut c), 1);
    let w = warning(&notices);
    assert!(w.message.contains("7 more"), "{w:?}");
    assert_eq!(missing(&mut c), 12);
}

/// Begins to drop `victim`, which hangs in capture; does something to the backend, and says how the drop ended.
fn interrupted(db: &TestDb, c: &mut Client, what: &str) -> Result<(), postgres::Error> {
    hang(c);
    exec(c, "CREATE TABLE victim (x int)");
    let mut other = db.connect();
    exec(&mut other, "SET pg_trickle.snapshot_timeout = '60s'");
    let p = pid(&mut other);
    thread::scope(|s| {
        let run = s.spawn(move || other.batch_execute("DROP TABLE victim"));
        let watched = Watched { watcher: c, pid: p };
        wait_for_sleep(watched.watcher, p);
        exec(watched.watcher, &format!("SELECT {what}({p})"));
        run.join().expect("thread")
    })
}

#[test]
fn the_user_can_cancel() {
    let db = fresh_db();
    let mut c = db.connect();
    let e = db_error(&interrupted(&db, &mut c, "pg_cancel_backend").expect_err("cancelled"));
    assert_eq!(
        (e.sqlstate.as_str(), e.message.as_str()),
        ("57014", "canceling statement due to user request")
    );
    assert!(exists(&mut c, "victim"), "nothing is dropped");
    assert_eq!((missing(&mut c), count(&mut c)), (0, 0));
}

#[test]
fn a_session_can_be_ended() {
    let db = fresh_db();
    let mut c = db.connect();
    let e = interrupted(&db, &mut c, "pg_terminate_backend").expect_err("ended");
    assert!(e.as_db_error().is_none_or(|e| e.code().code() == "57P01"), "{e:?}");
    // Its locks are gone with it.
    exec(&mut c, "SET pg_trickle.snapshot_timeout = '100ms'; DROP TABLE victim");
    assert_eq!(missing(&mut c), 1);
}

#[test]
fn noting_it_hangs_as_well() {
    let db = fresh_db();
    let (mut c, notices) = db.connect_noting();
    hang(&mut c);
    on_store(&mut c, "hang2", "pgt_capture_failures", "what", HANG);
    exec(&mut c, "SET pg_trickle.snapshot_timeout = '100ms'; CREATE TABLE a (x int)");
    exec(&mut c, "DROP TABLE a");
    warning(&notices);
    assert!(!exists(&mut c, "a"));
    assert_eq!(missing(&mut c), 1, "counted without a row");
    assert_eq!(one::<i64>(&mut c, "SELECT pgtrickle.forget_capture_failures()"), 1);
}

/// PostgreSQL itself waits for it, to remove the statistics; it is no other with us.
#[test]
fn statistics_are_locked() {
    let db = fresh_db();
    let (mut c, mut watcher, mut other) = (db.connect(), db.connect(), db.connect());
    people(&mut c, "victim");
    exec(&mut c, "CREATE TABLE first (x int); DROP TABLE first");
    // What the two need while it is locked is planned beforehand.
    exec(&mut other, "CREATE TABLE second (x int); DROP TABLE second");
    let p = pid(&mut other);
    wait_for_ready(&mut watcher, p);
    exec(&mut c, "BEGIN; LOCK TABLE pg_statistic IN ACCESS EXCLUSIVE MODE");
    assert_eq!(expect_error(&mut other, "SET lock_timeout = '100ms'; DROP TABLE victim").sqlstate, "55P03");
    exec(&mut other, "RESET lock_timeout");
    thread::scope(|s| {
        let run = s.spawn(|| exec(&mut other, "DROP TABLE victim"));
        let watched = Watched { watcher: &mut watcher, pid: p };
        waits(watched.watcher, p);
        exec(&mut c, "COMMIT");
        run.join().expect("the drop");
    });
    assert_eq!(dropped(&mut c, "victim").values("city").len(), 4);
    assert_eq!(missing(&mut c), 0);
}

/// Waiting for any lock, asked by a statement that is planned once: planning a new one would wait as well.
const WAITS: &str =
    "SELECT coalesce((SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $1), false)";

fn wait_for_ready(c: &mut Client, pid: i32) {
    // A generic plan from the first execution on.
    exec(c, &format!("SET plan_cache_mode = force_generic_plan; PREPARE waits (int) AS {WAITS}"));
    for _ in 0..2 {
        let _: bool = one(c, &format!("EXECUTE waits ({pid})"));
    }
}

fn waits(c: &mut Client, pid: i32) {
    support::wait_until("the drop waits", PATIENCE, || {
        match c.simple_query(&format!("EXECUTE waits ({pid})")) {
            Ok(rows) => rows
                .iter()
                .any(|m| matches!(m, postgres::SimpleQueryMessage::Row(r) if r.get(0) == Some("t"))),
            Err(e) => panic!("{}", support::describe(&e)),
        }
    });
}
