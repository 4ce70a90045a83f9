//! The baseline pass over living tables.

use crate::common::*;
use crate::evidence::*;
use crate::support::{self, TestDb, db_error, expect_error, fresh_db};
use postgres::{Client, GenericClient};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// (captured, skipped, remaining) of one call.
fn baseline(c: &mut impl GenericClient, limit: &str) -> (i32, i32, i32) {
    let row = c
        .query_one(&format!("SELECT * FROM pgtrickle.capture_baseline({limit})"), &[])
        .unwrap_or_else(|e| panic!("capture_baseline({limit}): {}", support::describe(&e)));
    (row.get(0), row.get(1), row.get(2))
}

/// Names of the tables recorded by baseline passes, in the order of their snapshots.
fn recorded(c: &mut Client) -> Vec<String> {
    column(
        c,
        "SELECT table_name FROM pgtrickle.schema_snapshots WHERE reason = 'baseline' ORDER BY snapshot_id",
    )
}

#[test]
fn it_counts_and_walks_forward() {
    let db = fresh_db();
    let mut c = db.connect();
    assert_eq!(baseline(&mut c, ""), (0, 0, 0), "there is nothing");
    for table in ["t1", "t2", "t3", "t4", "t5"] {
        exec(&mut c, &format!("CREATE TABLE {table} (x int)"));
    }
    assert_eq!(baseline(&mut c, "0"), (0, 0, 5));
    assert_eq!(baseline(&mut c, "2"), (2, 0, 3));
    assert_eq!(recorded(&mut c), ["t4", "t5"], "the youngest first");
    assert_eq!(baseline(&mut c, "\"limit\" => 2"), (2, 0, 3), "what is not recorded goes before what is");
    assert_eq!(recorded(&mut c), ["t4", "t5", "t2", "t3"]);
    assert_eq!(baseline(&mut c, "2"), (1, 4, 0));
    assert_eq!(baseline(&mut c, "2"), (0, 5, 0), "all are there");
    // A changed shape, a new table, and one made anew.
    exec(&mut c, "ALTER TABLE t1 ADD COLUMN y int; CREATE TABLE t6 (x int)");
    exec(&mut c, "DROP TABLE t2; CREATE TABLE t2 (x int); INSERT INTO t3 VALUES (1); ANALYZE t3");
    assert_eq!(baseline(&mut c, "1"), (1, 0, 5));
    assert_eq!(baseline(&mut c, "1"), (1, 0, 5));
    assert_eq!(recorded(&mut c)[5..], ["t2", "t6"], "those without any snapshot");
    // t1 is the oldest: everything else is looked at first, and skipped.
    assert_eq!(baseline(&mut c, "1"), (1, 5, 0));
    assert_eq!(shots_of(&mut c, "t1").last().map(|s| s.names().len()), Some(2));
    assert_eq!(baseline(&mut c, "1"), (0, 6, 0), "new statistics are no new shape");
    exec(
        &mut c,
        "ALTER TABLE t4 RENAME TO renamed; ALTER TABLE t5 ALTER COLUMN x SET NOT NULL; CREATE INDEX ON t6 (x)",
    );
    assert_eq!(baseline(&mut c, "100"), (3, 3, 0));
    for bad in ["NULL", "-1"] {
        let e =
            assert_refused(&mut c, &format!("SELECT * FROM pgtrickle.capture_baseline({bad})"), &["22023"]);
        assert!(e.message.contains("limit"), "{e:?}");
    }
}

#[test]
fn what_it_records_and_how() {
    let db = fresh_db();
    let mut c = db.connect();
    people(&mut c, "t");
    exec(
        &mut c,
        "CREATE SCHEMA app; CREATE UNLOGGED TABLE app.fast (x int); CREATE TABLE app.p (x int DEFAULT 1) PARTITION BY LIST (x);
         CREATE TABLE app.p1 PARTITION OF app.p DEFAULT; CREATE TEMP TABLE temporary (x int); CREATE VIEW v AS SELECT 1 AS one;
         CREATE MATERIALIZED VIEW m AS SELECT 1 AS one",
    );
    create(&mut c, "s", "SELECT id, city FROM t");
    exec(&mut c, "SET application_name = 'nightly'; SET pg_trickle.resource_identity = 'whole'");
    // The source is recorded already.
    assert_eq!(baseline(&mut c, ""), (4, 1, 0));
    let mut names = recorded(&mut c);
    names.sort();
    assert_eq!(names, ["fast", "p", "p1", "s"], "neither views, temporary tables nor our own");
    for shot in shots(&mut c, "reason = 'baseline'") {
        assert!(shot.alive && shot.moment.is_none() && shot.actor == "postgres", "{shot:#?}");
        assert_eq!((shot.application.as_deref(), shot.identity.as_deref()), (Some("nightly"), Some("whole")));
        let stored: String = one(&mut c, &format!("SELECT pgtrickle.schema_hash({})", shot.relation));
        assert_eq!(shot.hash, stored);
        assert_eq!(i64::from(shot.column_count), shot.names().len() as i64);
    }
    empty(&mut c, "pgt_schema_snapshots");
    assert_eq!(baseline(&mut c, ""), (5, 0, 0));
    let shot = shots_of(&mut c, "t").remove(0);
    assert_eq!((shot.rows, shot.stats, shot.values("city").len()), (Some(400), true, 4));
    assert_eq!(shots_of(&mut c, "p")[0].column("x")["default"], "1");
    assert_eq!(missing(&mut c), 0);
}

#[test]
fn the_setting_says_what_it_may_record() {
    let db = fresh_db();
    let (mut c, notices) = db.connect_noting();
    exec(&mut c, T);
    exec(&mut c, "CREATE TABLE other (x int)");
    create(&mut c, "s", "SELECT id, v FROM t");
    empty(&mut c, "pgt_schema_snapshots");
    exec(&mut c, "SET pg_trickle.schema_snapshots = off");
    notices.take();
    assert_eq!(baseline(&mut c, ""), (0, 0, 0));
    let said = notices.take();
    assert!(
        matches!(said.as_slice(), [(s, n)] if s == "NOTICE" && n.detail.starts_with("reason=SWITCHED_OFF")),
        "{said:?}"
    );
    exec(&mut c, "SET pg_trickle.schema_snapshots = sources");
    assert_eq!(baseline(&mut c, ""), (1, 0, 0));
    assert_eq!(recorded(&mut c), ["t"]);
    exec(&mut c, "RESET pg_trickle.schema_snapshots");
    assert_eq!(baseline(&mut c, ""), (2, 1, 0));
}

/// 120 tables, and a baseline pass that stops at the 70th snapshot until a lock is let go.
fn with_a_stop(db: &TestDb) -> Client {
    let mut c = db.connect();
    let tables: String = (1..=120).map(|i| format!("CREATE TABLE t{i} (x int);")).collect();
    exec(&mut c, &tables);
    let seventieth = "IF value = 'baseline' AND nextval('public.stored') = 70 THEN PERFORM pg_advisory_xact_lock(7); END IF";
    exec(&mut c, "CREATE SEQUENCE stored");
    on_store(&mut c, "stop", "pgt_schema_snapshots", "reason", seventieth);
    exec(&mut c, "SELECT pg_advisory_lock(7)");
    c
}

/// Runs a pass until it stops, then `meanwhile` in the session that holds the lock, which lets it go or cancels the pass.
fn stopped(
    db: &TestDb,
    c: &mut Client,
    meanwhile: impl FnOnce(&mut Client, i32),
) -> Result<(i32, i32, i32), support::Failure> {
    let mut other = db.connect();
    let p = pid(&mut other);
    thread::scope(|s| {
        let run = s.spawn(move || {
            let row = other.query_one("SELECT * FROM pgtrickle.capture_baseline()", &[]);
            row.map(|r| (r.get(0), r.get(1), r.get(2))).map_err(|e| db_error(&e))
        });
        let watched = Watched { watcher: c, pid: p };
        wait_for_lock_wait(watched.watcher, p);
        meanwhile(watched.watcher, p);
        run.join().expect("thread")
    })
}

const LET_GO: &str = "SELECT pg_advisory_unlock(7)";

#[test]
fn it_is_one_transaction_that_can_be_cancelled() {
    let db = fresh_db();
    let mut c = with_a_stop(&db);
    let e = stopped(&db, &mut c, |c, p| exec(c, &format!("SELECT pg_cancel_backend({p})")))
        .expect_err("cancelled");
    assert_eq!(e.sqlstate, "57014");
    assert_eq!(count(&mut c), 0, "nothing half");
    exec(&mut c, LET_GO);
    assert_eq!(baseline(&mut c, ""), (120, 0, 0), "its lock went with it");
    // Undone with the transaction that called it.
    empty(&mut c, "pgt_schema_snapshots");
    exec(&mut c, "BEGIN; SELECT pgtrickle.capture_baseline(); ROLLBACK");
    assert_eq!(count(&mut c), 0);
}

#[test]
fn one_at_a_time_and_its_progress_is_seen() {
    let db = fresh_db();
    let mut c = with_a_stop(&db);
    let progress = "SELECT coalesce(string_agg(pid || ' ' || done || '/' || total, ','), 'none') FROM pgtrickle.baseline_progress
        WHERE started_at <= clock_timestamp()";
    assert_eq!(one::<String>(&mut c, progress), "none");
    let done = stopped(&db, &mut c, |c, p| {
        assert_eq!(one::<String>(c, progress), format!("{p} 50/120"), "after each 50 tables");
        assert_eq!(count(c), 0, "seen before it commits");
        let e = assert_refused(c, "SELECT * FROM pgtrickle.capture_baseline()", &["55P03"]);
        assert!(e.detail.starts_with("reason=LOCK_NOT_AVAILABLE"), "{e:?}");
        exec(c, LET_GO);
    });
    assert_eq!(done, Ok((120, 0, 0)));
    assert_eq!(one::<String>(&mut c, progress), "none");
    // Another database has another pass.
    let other = fresh_db();
    let mut o = other.connect();
    exec(&mut o, "BEGIN; SELECT * FROM pgtrickle.capture_baseline()");
    assert_eq!(one::<String>(&mut c, progress), "none");
    assert_eq!(baseline(&mut c, ""), (0, 120, 0));
}

#[test]
fn tables_that_come_and_go_meanwhile() {
    let db = fresh_db();
    let mut c = with_a_stop(&db);
    let done = stopped(&db, &mut c, |c, _| {
        // One of the batch that is read already, one of a later one, and a new one.
        exec(c, "DROP TABLE t55; DROP TABLE t3; CREATE TABLE t121 (x int); ALTER TABLE t2 ADD COLUMN y int");
        exec(c, LET_GO);
    });
    assert_eq!(done, Ok((118, 0, 0)), "what was dropped after it was read does not come back");
    assert_eq!(all_dropped(&mut c), ["public.t3", "public.t55"]);
    assert_eq!(shots_of(&mut c, "t2").remove(0).names(), ["x", "y"]);
    assert_eq!(baseline(&mut c, ""), (1, 118, 0), "the new one");
}

#[test]
fn it_waits_for_no_lock_on_a_table() {
    let db = fresh_db();
    let (mut c, mut locker) = (db.connect(), db.connect());
    people(&mut c, "t");
    exec(&mut c, "ALTER TABLE t ADD COLUMN d int DEFAULT 5, ADD CHECK (id > 0)");
    exec(&mut locker, "BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE");
    // Only to end the test if it should wait.
    exec(&mut c, "SET statement_timeout = '30s'");
    assert_eq!(baseline(&mut c, ""), (0, 0, 1), "it may be about to be dropped");
    exec(&mut locker, "COMMIT");
    assert_eq!(baseline(&mut c, ""), (1, 0, 0));
    assert_eq!(shots_of(&mut c, "t").remove(0).column("d")["default"], "5");
}

#[test]
fn a_drop_in_progress_is_not_followed_by_a_baseline() {
    let db = fresh_db();
    let (mut c, mut dropper) = (db.connect(), db.connect());
    people(&mut c, "t");
    exec(&mut dropper, "BEGIN; DROP TABLE t");
    assert_eq!(baseline(&mut c, ""), (0, 0, 1));
    exec(&mut dropper, "COMMIT");
    assert_eq!(baseline(&mut c, ""), (0, 0, 0));
    let reasons: Vec<String> =
        column(&mut c, "SELECT reason FROM pgtrickle.schema_snapshots WHERE table_name = 't'");
    assert_eq!(reasons, ["drop"]);
}

#[test]
fn damage_of_one_table_does_not_end_it() {
    let db = fresh_db();
    let (mut c, notices) = db.connect_noting();
    people(&mut c, "sound");
    exec(
        &mut c,
        "CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE TABLE unprinted (m mood, n int); INSERT INTO unprinted SELECT 'sad', 4711 FROM generate_series(1, 9);
         ANALYZE unprinted; CREATE TYPE lost AS ENUM ('x'); CREATE TABLE damaged (l lost);
         SET allow_system_table_mods = on; DELETE FROM pg_enum WHERE enumtypid = 'mood'::regtype; DELETE FROM pg_type WHERE oid = 'lost'::regtype",
    );
    notices.take();
    assert_eq!(baseline(&mut c, ""), (2, 0, 0));
    let warnings: Vec<String> = notices
        .take()
        .into_iter()
        .filter(|(severity, _)| severity == "WARNING")
        .map(|(_, w)| {
            assert!(w.detail.starts_with("reason=SNAPSHOT_FAILED"), "{w:?}");
            w.message
        })
        .collect();
    assert!(warnings.iter().any(|w| w.contains("values of public.unprinted")), "{warnings:?}");
    assert!(warnings.iter().any(|w| w.contains("what public.damaged")), "{warnings:?}");
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    let shot = shots_of(&mut c, "unprinted").remove(0);
    assert_eq!((shot.absent("m"), shot.values("n")), ("UNREADABLE", vec!["4711"]));
    assert_eq!(shots_of(&mut c, "sound").len(), 1);
    // It must not look as if all were well.
    exec(&mut c, "ALTER TABLE pgtrickle.pgt_schema_snapshots RENAME TO elsewhere");
    assert_eq!(expect_error(&mut c, "SELECT * FROM pgtrickle.capture_baseline()").sqlstate, "42P01");
}

#[test]
fn drops_passes_and_pruning_at_once() {
    const SESSIONS: usize = 5;
    const ROUNDS: usize = 25;
    let db = fresh_db();
    let stop = AtomicBool::new(false);
    thread::scope(|s| {
        let stop_at_end = StopAtEnd(&stop);
        let pass = s.spawn(|| {
            let (mut c, notices) = db.connect_noting();
            while !stop.load(Ordering::SeqCst) {
                baseline(&mut c, "7");
                exec(&mut c, "SELECT pgtrickle.prune_snapshots(older_than => '1 day')");
                exec(&mut c, "VACUUM pgtrickle.pgt_schema_snapshots");
            }
            warnings(&notices)
        });
        let sessions: Vec<_> = (0..SESSIONS)
            .map(|session| {
                let db = &db;
                s.spawn(move || {
                    let (mut c, notices) = db.connect_noting();
                    for round in 0..ROUNDS {
                        let t = format!("t{session}_{round}");
                        exec(
                            &mut c,
                            &format!(
                                "CREATE TABLE {t} (id serial PRIMARY KEY, a int DEFAULT 5 CHECK (a > 0), g int GENERATED ALWAYS AS (a * 2) STORED,
                                   b text); CREATE INDEX ON {t} (lower(b)) WHERE a > 1; INSERT INTO {t} (b) VALUES ('x'), ('x'); ANALYZE {t}"
                            ),
                        );
                        exec(&mut c, &format!("DROP TABLE {t}"));
                    }
                    warnings(&notices)
                })
            })
            .collect();
        for session in sessions {
            assert_eq!(session.join().expect("drops"), []);
        }
        drop(stop_at_end);
        assert_eq!(pass.join().expect("passes"), []);
    });
    let mut c = db.connect();
    let drops = shots(&mut c, "reason = 'drop'");
    assert_eq!(drops.len(), SESSIONS * ROUNDS);
    assert!(drops.iter().all(|s| s.values("b") == ["x"] && s.column("id")["default"].is_string()));
    assert_eq!(missing(&mut c), 0);
}
