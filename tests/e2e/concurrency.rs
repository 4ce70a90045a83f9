//! Several sessions at once. Where two have to meet, the test waits for the lock wait to be visible, never for a time.

use crate::common::*;
use crate::support::{self, TestDb, db_error, describe, fresh_db, refresh, try_refresh};
use postgres::{Client, IsolationLevel};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// A refresh and its check from one snapshot while others write.
fn refresh_in_one_snapshot(c: &mut Client, name: &str) -> Result<String, postgres::Error> {
    let mut tx = c.build_transaction().isolation_level(IsolationLevel::RepeatableRead).start()?;
    let done = try_refresh(&mut tx, name, "auto")?;
    tx.commit()?;
    Ok(done.action)
}

/// Runs `sql` in another session until it waits for a lock, then `release`, then gives back how it ended.
fn blocked(
    db: &TestDb,
    watcher: &mut Client,
    sql: &str,
    release: impl FnOnce(),
) -> Result<(), support::Failure> {
    let mut c = db.connect();
    let p = pid(&mut c);
    thread::scope(|s| {
        let run = s.spawn(move || c.batch_execute(sql));
        let watched = Watched { watcher, pid: p };
        wait_for_lock_wait(watched.watcher, p);
        release();
        run.join().expect("thread").map_err(|e| db_error(&e))
    })
}

#[test]
fn i2_in_flight_writer_is_in_the_next_refresh() {
    let db = fresh_db();
    let (mut c, mut w) = (db.connect(), db.connect());
    exec(&mut c, T);
    create(&mut c, "s", "SELECT grp, count(*) AS n, sum(v) AS v FROM t GROUP BY grp");
    // The writer's transaction is older than the refresh and commits after it, with the refresh's own work in between.
    exec(
        &mut w,
        "BEGIN; INSERT INTO t VALUES (100, 1, 1); SAVEPOINT a; UPDATE t SET v = 0 WHERE id = 1; RELEASE a",
    );
    exec(&mut c, "INSERT INTO t VALUES (200, 2, 2)");
    differential(&mut c, "s");
    assert_eq!(refresh(&mut c, "s").action, "no_change");
    exec(&mut c, "INSERT INTO t VALUES (201, 2, 2)");
    differential(&mut c, "s");
    exec(&mut w, "DELETE FROM t WHERE id = 100; INSERT INTO t VALUES (101, 3, 3); COMMIT");
    differential(&mut c, "s");
    assert_eq!(refresh(&mut c, "s").action, "no_change");
    support::assert_equal(&mut c, "s", "SELECT grp, count(*), sum(v) FROM t GROUP BY grp");
}

#[test]
fn i2_in_flight_writer_survives_full_refresh_and_replacement() {
    let db = fresh_db();
    let (mut c, mut w) = (db.connect(), db.connect());
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id, v FROM t");
    exec(&mut w, "BEGIN; INSERT INTO t VALUES (100, 1, 1)");
    try_refresh(&mut c, "s", "full").expect("full");
    exec(&mut w, "INSERT INTO t VALUES (101, 1, 1); COMMIT");
    assert_eq!(differential(&mut c, "s").inserted, 2);
    exec(&mut w, "BEGIN; INSERT INTO t VALUES (102, 1, 1)");
    let replace = "SELECT pgtrickle.alter_stream_table_query('s', 'SELECT id, v, grp FROM t')";
    // It may have to wait for the writer; then the writer's end lets it go on.
    let p = pid(&mut c);
    let mut watcher = db.connect();
    thread::scope(|s| {
        let run = s.spawn(|| exec(&mut c, replace));
        let watched = Watched { watcher: &mut watcher, pid: p };
        waits_or_ends(watched.watcher, p, || run.is_finished());
        exec(&mut w, "INSERT INTO t VALUES (103, 1, 1); COMMIT");
        run.join().expect("replacement");
    });
    refresh(&mut c, "s");
    support::assert_equal(&mut c, "s", "SELECT id, v, grp FROM t");
}

#[test]
fn case_3_creation_while_a_writer_is_in_flight() {
    let db = fresh_db();
    let (mut c, mut w, mut watcher) = (db.connect(), db.connect(), db.connect());
    exec(&mut c, &format!("{T}; CREATE TABLE u (id int)"));
    exec(&mut w, "BEGIN; INSERT INTO t VALUES (100, 1, 1); DELETE FROM t WHERE id = 1");
    let p = pid(&mut c);
    thread::scope(|s| {
        let make = s.spawn(|| exec(&mut c, &create_call("s", "SELECT id, v FROM t", "auto")));
        let watched = Watched { watcher: &mut watcher, pid: p };
        waits_or_ends(watched.watcher, p, || make.is_finished());
        exec(&mut w, "INSERT INTO t VALUES (101, 1, 1); COMMIT");
        make.join().expect("creation");
    });
    refresh(&mut c, "s");
    support::assert_equal(&mut c, "s", "SELECT id, v FROM t");
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM s WHERE id IN (1, 100, 101)"), 2);
    // A second one on a source that is captured already.
    exec(&mut w, "BEGIN; INSERT INTO t VALUES (102, 1, 1)");
    thread::scope(|s| {
        let make = s.spawn(|| exec(&mut c, &create_call("s2", "SELECT id, grp FROM t", "auto")));
        let watched = Watched { watcher: &mut watcher, pid: p };
        waits_or_ends(watched.watcher, p, || make.is_finished());
        exec(&mut w, "INSERT INTO t VALUES (103, 1, 1); COMMIT");
        make.join().expect("creation");
    });
    refresh(&mut c, "s2");
    refresh(&mut c, "s");
    support::assert_equal(&mut c, "s2", "SELECT id, grp FROM t");
}

#[test]
fn an_open_refresh_does_not_block_writers_nor_readers() {
    let db = fresh_db();
    let (mut c, mut w) = (db.connect(), db.connect());
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id, v FROM t");
    exec(&mut c, "UPDATE t SET v = v + 1");
    let mut tx = c.transaction().expect("begin");
    refresh(&mut tx, "s");
    exec(&mut w, "SET lock_timeout = '5s'");
    exec(
        &mut w,
        "INSERT INTO t VALUES (100, 1, 1); UPDATE t SET v = 0 WHERE id = 1; DELETE FROM t WHERE id = 2",
    );
    assert_eq!(
        one::<i64>(&mut w, "SELECT count(*) FROM s WHERE v = id * 10"),
        10,
        "the old contents until it commits"
    );
    tx.commit().expect("commit");
    differential(&mut c, "s");
}

#[test]
fn an_open_refresh_does_not_block_other_stream_tables_of_the_source() {
    let db = fresh_db();
    let (mut c, mut w) = (db.connect(), db.connect());
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id, v FROM t");
    create(&mut c, "s2", "SELECT count(*) AS n FROM t");
    exec(&mut c, "UPDATE t SET v = v + 1; DELETE FROM t WHERE id = 1");
    exec(&mut w, "SET lock_timeout = '5s'");
    let mut tx = c.transaction().expect("begin");
    refresh(&mut tx, "s");
    refresh(&mut w, "s2");
    tx.commit().expect("commit");
    refresh(&mut c, "s");
    refresh(&mut c, "s2");
}

#[test]
fn two_refreshes_at_once_wait_for_each_other() {
    let db = fresh_db();
    let (mut c, mut watcher) = (db.connect(), db.connect());
    exec(&mut c, T);
    create(&mut c, "s", "SELECT grp, sum(v) AS v FROM t GROUP BY grp");
    for end in ["COMMIT", "ROLLBACK"] {
        exec(&mut c, "UPDATE t SET v = v + 1");
        exec(&mut c, "BEGIN; SELECT pgtrickle.refresh_stream_table('s')");
        let ended =
            blocked(&db, &mut watcher, "SELECT pgtrickle.refresh_stream_table('s')", || exec(&mut c, end));
        assert_eq!(ended, Ok(()), "after {end}");
        support::assert_up_to_date(&mut c, "s");
        assert_eq!(refresh(&mut c, "s").action, "no_change", "after {end}");
    }
}

#[test]
fn i1_i2_many_writers_and_refreshers() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE t (id serial, k int, v numeric); CREATE TABLE d (k int PRIMARY KEY, name text);
         INSERT INTO d SELECT i, 'd' || i FROM generate_series(0, 9) i; INSERT INTO t (k, v) SELECT i % 10, i FROM generate_series(1, 50) i",
    );
    create(&mut c, "flat", "SELECT t.id, d.name, t.v FROM t JOIN d USING (k)");
    create(
        &mut c,
        "agg",
        "SELECT d.name, count(*) AS n, sum(t.v) AS v, max(t.v) AS hi FROM t JOIN d USING (k) GROUP BY d.name",
    );
    create(&mut c, "top", "SELECT hi, count(*) AS names, sum(n) AS n FROM agg GROUP BY hi");
    let stop = AtomicBool::new(false);
    thread::scope(|s| {
        let at_end = StopAtEnd(&stop);
        for worker in 0..3 {
            let db = &db;
            let stop = &stop;
            s.spawn(move || {
                let mut w = db.connect();
                let mut i = 0;
                while !stop.load(Ordering::Relaxed) {
                    i += 1;
                    let sql = match i % 6 {
                        0 => format!("BEGIN; INSERT INTO t (k, v) SELECT x, {i} FROM generate_series(0, 9) x; SAVEPOINT a; DELETE FROM t WHERE k = {}; ROLLBACK TO a; COMMIT", i % 10),
                        1 => format!("DELETE FROM t WHERE id IN (SELECT id FROM t WHERE id % 3 = {worker} ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED)"),
                        2 => format!("UPDATE t SET v = v + 1, k = (k + {worker}) % 10 WHERE id IN (SELECT id FROM t WHERE id % 3 = {worker} ORDER BY id DESC LIMIT 7 FOR UPDATE SKIP LOCKED)"),
                        3 => format!("BEGIN; INSERT INTO t (k, v) VALUES ({}, {i}); ROLLBACK", i % 10),
                        4 => format!("BEGIN; INSERT INTO t (k, v) VALUES ({}, {i}); SELECT pg_sleep(0.003); COMMIT", i % 10),
                        _ => format!("UPDATE d SET name = 'd' || {} WHERE k = {}", i % 12, (i + worker) % 10),
                    };
                    exec(&mut w, &sql);
                }
            });
        }
        let mut refreshers = Vec::new();
        for name in ["flat", "agg", "top"] {
            let db = &db;
            refreshers.push(s.spawn(move || {
                let mut r = db.connect();
                let (mut done, mut conflicts) = (0, 0);
                while done < 25 && conflicts < 500 {
                    match refresh_in_one_snapshot(&mut r, name) {
                        Ok(action) => {
                            assert_ne!(action, "full", "{name}");
                            done += 1;
                        }
                        // Two refreshes in REPEATABLE READ: the later one may lose, as any two writers may.
                        Err(e) if db_error(&e).sqlstate == "40001" => conflicts += 1,
                        Err(e) => panic!("{name}: {}", describe(&e)),
                    }
                }
                assert_eq!(done, 25, "{name} came through only {done} times");
            }));
        }
        let outcomes: Vec<_> = refreshers.into_iter().map(|r| r.join()).collect();
        drop(at_end);
        for o in outcomes {
            if let Err(e) = o {
                std::panic::resume_unwind(e);
            }
        }
    });
    for name in ["flat", "agg", "top"] {
        refresh(&mut c, name);
    }
}

#[test]
fn refreshes_of_one_table_from_many_sessions() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "CREATE TABLE t (id serial, k int)");
    create(&mut c, "s", "SELECT k, count(*) AS n FROM t GROUP BY k");
    thread::scope(|s| {
        for worker in 0..4 {
            let db = &db;
            s.spawn(move || {
                let mut w = db.connect();
                for i in 0..20 {
                    exec(&mut w, &format!("INSERT INTO t (k) VALUES ({}); ", (worker + i) % 5));
                    exec(&mut w, "SELECT pgtrickle.refresh_stream_table('s')");
                }
            });
        }
    });
    // The last refresh of each worker saw at least its own rows; together nothing is missing and nothing double.
    refresh(&mut c, "s");
    assert_eq!(one::<i64>(&mut c, "SELECT sum(n)::bigint FROM s"), 80);
}

#[test]
fn refresh_against_ddl_of_a_source() {
    let db = fresh_db();
    let (mut c, mut watcher) = (db.connect(), db.connect());
    exec(&mut c, &format!("{T}; ALTER TABLE t ADD COLUMN spare int"));
    create(&mut c, "s", "SELECT id, v FROM t");
    exec(&mut c, "UPDATE t SET v = v + 1");
    // DDL first, refresh waits.
    exec(&mut c, "BEGIN; ALTER TABLE t DROP COLUMN spare");
    let ended =
        blocked(&db, &mut watcher, "SELECT pgtrickle.refresh_stream_table('s')", || exec(&mut c, "COMMIT"));
    assert_eq!(ended, Ok(()));
    support::assert_up_to_date(&mut c, "s");
    // A rename: what waited with the old plan goes on with the new name.
    exec(
        &mut c,
        "UPDATE t SET v = v + 1; BEGIN; ALTER TABLE t RENAME COLUMN v TO value; ALTER TABLE t RENAME TO t2",
    );
    let ended =
        blocked(&db, &mut watcher, "SELECT pgtrickle.refresh_stream_table('s')", || exec(&mut c, "COMMIT"));
    assert_eq!(ended, Ok(()));
    support::assert_equal(&mut c, "s", "SELECT id, value FROM t2");
    exec(&mut c, "ALTER TABLE t2 RENAME COLUMN value TO v; ALTER TABLE t2 RENAME TO t");
    // Refresh first, DDL waits and goes through.
    exec(&mut c, "UPDATE t SET v = v + 1; BEGIN; SELECT pgtrickle.refresh_stream_table('s')");
    let ended =
        blocked(&db, &mut watcher, "ALTER TABLE t ADD COLUMN more int DEFAULT 1", || exec(&mut c, "COMMIT"));
    assert_eq!(ended, Ok(()));
    exec(&mut c, "UPDATE t SET v = v + 1");
    differential(&mut c, "s");
    // A used column goes while a refresh waits: it must not serve what it can't know.
    exec(&mut c, "UPDATE t SET v = v + 1; BEGIN; ALTER TABLE t DROP COLUMN v");
    let ended =
        blocked(&db, &mut watcher, "SELECT pgtrickle.refresh_stream_table('s')", || exec(&mut c, "COMMIT"));
    if let Err(e) = ended {
        assert!(e.detail.starts_with("reason=") && !e.hint.is_empty(), "{e:?}");
    }
    assert_suspended(&mut c, "s", "COLUMN_DROPPED");
}

#[test]
fn drop_against_refresh() {
    let db = fresh_db();
    let (mut c, mut watcher) = (db.connect(), db.connect());
    exec(&mut c, T);
    for drop in ["DROP TABLE s", "SELECT pgtrickle.drop_stream_table('s')"] {
        // A refresh is open, the drop waits for its end.
        create(&mut c, "s", "SELECT id, v FROM t");
        exec(&mut c, "UPDATE t SET v = v + 1; BEGIN; SELECT pgtrickle.refresh_stream_table('s')");
        assert_eq!(blocked(&db, &mut watcher, drop, || exec(&mut c, "COMMIT")), Ok(()), "{drop}");
        assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM pgtrickle.stream_tables"), 0);
        // The drop is open, the refresh waits and then finds nothing.
        create(&mut c, "s", "SELECT id, v FROM t");
        exec(&mut c, &format!("UPDATE t SET v = v + 1; BEGIN; {drop}"));
        let e = blocked(&db, &mut watcher, "SELECT pgtrickle.refresh_stream_table('s')", || {
            exec(&mut c, "COMMIT")
        })
        .expect_err("refresh of a dropped stream table");
        assert!(["42P01", "42704", "42809", "55000"].contains(&e.sqlstate.as_str()), "{e:?}");
        // The drop rolls back, the refresh goes on.
        create(&mut c, "s", "SELECT id, v FROM t");
        exec(&mut c, &format!("UPDATE t SET v = v + 1; BEGIN; {drop}"));
        let ended = blocked(&db, &mut watcher, "SELECT pgtrickle.refresh_stream_table('s')", || {
            exec(&mut c, "ROLLBACK")
        });
        assert_eq!(ended, Ok(()));
        support::assert_up_to_date(&mut c, "s");
        exec(&mut c, "DROP TABLE s");
    }
}

#[test]
fn drop_and_write_and_refresh_in_a_storm() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "keeper", "SELECT grp, count(*) AS n FROM t GROUP BY grp");
    let stop = AtomicBool::new(false);
    thread::scope(|s| {
        let at_end = StopAtEnd(&stop);
        let (db, stop) = (&db, &stop);
        let writer = s.spawn(move || {
            let mut w = db.connect();
            let mut i = 1000;
            while !stop.load(Ordering::Relaxed) {
                i += 1;
                let sql =
                    format!("INSERT INTO t VALUES ({i}, {}, 1); DELETE FROM t WHERE id = {}", i % 4, i - 20);
                retry_deadlock(&mut w, &sql);
            }
        });
        let refresher = s.spawn(move || {
            let mut r = db.connect();
            while !stop.load(Ordering::Relaxed) {
                if let Err(e) = r.batch_execute("SELECT pgtrickle.refresh_stream_table('s')") {
                    let e = db_error(&e);
                    assert!(
                        ["42P01", "42704", "42809", "55000", "40P01"].contains(&e.sqlstate.as_str()),
                        "refresh beside drop: {e:?}"
                    );
                }
                retry_deadlock(&mut r, "SELECT pgtrickle.refresh_stream_table('keeper')");
            }
        });
        for i in 0..12 {
            retry_deadlock(&mut c, &create_call("s", "SELECT id, grp, v FROM t", "auto"));
            retry_deadlock(&mut c, "UPDATE t SET v = v + 1 WHERE id < 5");
            retry_deadlock(
                &mut c,
                if i % 2 == 0 { "DROP TABLE s" } else { "SELECT pgtrickle.drop_stream_table('s')" },
            );
        }
        drop(at_end);
        writer.join().expect("writer");
        refresher.join().expect("refresher");
    });
    refresh(&mut c, "keeper");
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM pgtrickle.stream_tables"), 1);
}

/// Installing capture locks the source, so that a deadlock between sessions that lock several tables is possible, as
/// with any DDL; PostgreSQL names it, and the statement is run again. A handful of them is too many.
fn retry_deadlock(c: &mut Client, sql: &str) {
    for _ in 0..5 {
        match c.batch_execute(sql) {
            Ok(()) => return,
            Err(e) if db_error(&e).sqlstate == "40P01" => {}
            Err(e) => panic!("{sql}: {}", describe(&e)),
        }
    }
    panic!("deadlocks again and again: {sql}");
}

#[test]
fn savepoints_rolled_back_around_a_refresh() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT grp, count(*) AS n, min(v) AS lo, sum(v) AS v FROM t GROUP BY grp");
    let mut tx = c.transaction().expect("begin");
    exec(&mut tx, "INSERT INTO t VALUES (100, 1, 1)");
    refresh(&mut tx, "s");
    {
        let mut sub = tx.transaction().expect("savepoint");
        exec(&mut sub, "INSERT INTO t VALUES (101, 1, -1)");
        refresh(&mut sub, "s");
        let mut deeper = sub.transaction().expect("savepoint");
        exec(&mut deeper, "DELETE FROM t WHERE id < 6");
        refresh(&mut deeper, "s");
        deeper.rollback().expect("rollback");
        refresh(&mut sub, "s");
        sub.rollback().expect("rollback");
    }
    // The refresh of the rolled back part is undone together with what it consumed.
    refresh(&mut tx, "s");
    exec(&mut tx, "UPDATE t SET v = v + 1, grp = 0 WHERE id = 100");
    refresh(&mut tx, "s");
    exec(&mut tx, "INSERT INTO t VALUES (102, 9, 9)");
    tx.commit().expect("commit");
    assert_eq!(differential(&mut c, "s").inserted, 1);
    assert_eq!(refresh(&mut c, "s").action, "no_change");
}

#[test]
fn i2_refreshes_inside_the_transaction_that_writes() {
    let db = fresh_db();
    let (mut c, mut w) = (db.connect(), db.connect());
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id, grp, v FROM t");
    create(&mut c, "g", "SELECT grp, count(*) AS n, max(v) AS hi FROM t GROUP BY grp");
    for level in [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead, IsolationLevel::Serializable]
    {
        for end in ["commit", "rollback"] {
            let mut tx = c.build_transaction().isolation_level(level).start().expect("begin");
            exec(&mut tx, "UPDATE t SET v = v + 1 WHERE id < 4");
            for i in 0..3 {
                exec(&mut tx, &format!("INSERT INTO t SELECT max(id) + 1, {i}, {i} FROM t"));
                refresh(&mut tx, "s");
                refresh(&mut tx, "g");
                exec(&mut tx, &format!("DELETE FROM t WHERE id = {} OR v = 999", 4 + i));
                refresh(&mut tx, "g");
            }
            // Another session writes meanwhile; its rows are for later.
            exec(&mut w, "INSERT INTO t SELECT max(id) + 1000, 7, 7 FROM t");
            if end == "commit" { tx.commit() } else { tx.rollback() }.expect("end");
            for s in ["s", "g"] {
                refresh(&mut c, s);
                assert_eq!(refresh(&mut c, s).action, "no_change", "{s} after {end}");
            }
        }
    }
}

#[test]
fn a_repeatable_read_refresh_is_right_at_its_snapshot_or_refused() {
    let db = fresh_db();
    let (mut c, mut other) = (db.connect(), db.connect());
    exec(&mut c, T);
    create(&mut c, "s", "SELECT grp, sum(v) AS v FROM t GROUP BY grp");
    // Its snapshot is older than a refresh of somebody else.
    let mut tx =
        c.build_transaction().isolation_level(IsolationLevel::RepeatableRead).start().expect("begin");
    let _: i64 = one(&mut tx, "SELECT count(*) FROM t");
    exec(&mut other, "UPDATE t SET v = v + 1");
    differential(&mut other, "s");
    let early = try_refresh(&mut tx, "s", "auto");
    match early {
        Ok(_) => tx.commit().expect("commit"),
        Err(e) => {
            assert_eq!(db_error(&e).sqlstate, "40001", "{}", describe(&e));
            tx.rollback().expect("rollback");
        }
    }
    // Its snapshot is older than a write that nobody refreshed.
    refresh(&mut other, "s");
    let mut tx =
        c.build_transaction().isolation_level(IsolationLevel::RepeatableRead).start().expect("begin");
    let _: i64 = one(&mut tx, "SELECT count(*) FROM t");
    exec(&mut other, "UPDATE t SET v = v + 1 WHERE id = 1");
    refresh(&mut tx, "s");
    tx.commit().expect("commit");
    differential(&mut other, "s");
    // Read only: it says so, as any writing function does.
    let mut tx = c.build_transaction().read_only(true).start().expect("begin");
    exec(&mut other, "UPDATE t SET v = v + 1 WHERE id = 1");
    match try_refresh(&mut tx, "s", "auto") {
        Ok(done) => panic!("a refresh wrote in a read-only transaction: {done:?}"),
        Err(e) => assert_eq!(db_error(&e).sqlstate, "25006", "{}", describe(&e)),
    }
}

#[test]
fn open_cursors() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id, v FROM t");
    create(&mut c, "f", "SELECT id, rank() OVER (ORDER BY v) AS r FROM t");
    let mut tx = c.transaction().expect("begin");
    exec(
        &mut tx,
        "DECLARE on_s CURSOR FOR SELECT id, v FROM s ORDER BY id; DECLARE on_t CURSOR FOR SELECT id FROM t ORDER BY id;
         DECLARE on_f CURSOR FOR SELECT id FROM f ORDER BY id; DECLARE held SCROLL CURSOR WITH HOLD FOR SELECT v FROM s",
    );
    assert_eq!(tx.query("FETCH 3 FROM on_s", &[]).expect("fetch").len(), 3);
    tx.query("FETCH 2 FROM on_t; ", &[]).expect("fetch");
    tx.query("FETCH 1 FROM on_f", &[]).expect("fetch");
    exec(&mut tx, "UPDATE t SET v = -v; DELETE FROM t WHERE id = 10");
    assert_eq!(refresh(&mut tx, "s").action, "differential");
    assert_eq!(refresh(&mut tx, "f").action, "full");
    let rest = tx.query("FETCH ALL FROM on_s", &[]).expect("fetch");
    assert_eq!(rest.len(), 7, "a cursor goes on with what it began");
    assert!(rest.iter().all(|r| r.get::<_, i32>(1) > 0));
    assert_eq!(tx.query("FETCH ALL FROM on_t", &[]).expect("fetch").len(), 8);
    assert_eq!(tx.query("FETCH ALL FROM on_f", &[]).expect("fetch").len(), 9);
    tx.commit().expect("commit");
    assert_eq!(c.query("FETCH ALL FROM held", &[]).expect("fetch").len(), 10);
    exec(&mut c, "CLOSE held");
    refresh(&mut c, "s");
    // A cursor of another session.
    let mut other = db.connect();
    let mut tx = other.transaction().expect("begin");
    exec(&mut tx, "DECLARE k CURSOR FOR SELECT * FROM s, f; FETCH 1 FROM k");
    exec(&mut c, "SET lock_timeout = '5s'; UPDATE t SET v = v + 5");
    differential(&mut c, "s");
    // A reader does not stop a full refresh either.
    refresh(&mut c, "f");
    drop(tx);
}

#[test]
fn a_refresh_in_the_middle_of_a_scan_in_a_function() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT grp, sum(v) AS v FROM t GROUP BY grp");
    exec(
        &mut c,
        "DO $$ DECLARE r record; BEGIN
            FOR r IN SELECT * FROM t ORDER BY id LOOP
                UPDATE t SET v = v + 1 WHERE id = r.id;
                PERFORM pgtrickle.refresh_stream_table('s');
            END LOOP; END $$",
    );
    assert_eq!(refresh(&mut c, "s").action, "no_change");
    // Called from a trigger of the source itself.
    exec(
        &mut c,
        "CREATE FUNCTION now_() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM pgtrickle.refresh_stream_table('s'); RETURN NULL; END $$;
         CREATE TRIGGER zz AFTER INSERT OR UPDATE OR DELETE ON t FOR EACH STATEMENT EXECUTE FUNCTION now_()",
    );
    exec(&mut c, "UPDATE t SET v = v + 1; DELETE FROM t WHERE id = 3; INSERT INTO t VALUES (300, 3, 3)");
    refresh(&mut c, "s");
    support::assert_equal(&mut c, "s", "SELECT grp, sum(v) FROM t GROUP BY grp");
}

#[test]
fn a_cancelled_refresh_leaves_everything_as_it_was() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE t (id int, k int); INSERT INTO t SELECT i, i % 3 FROM generate_series(1, 200) i;
         CREATE FUNCTION slow(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.002); RETURN $1; END $$",
    );
    create(&mut c, "s", "SELECT slow(k) AS k, count(*) AS n FROM t GROUP BY slow(k)");
    exec(&mut c, "UPDATE t SET k = k + 1");
    // Cancelled at many points: while it reads the catalog, plans, evaluates, writes. The session is well afterwards.
    for ms in [1, 2, 3, 5, 8, 12, 20, 30, 40, 60, 90, 130, 200, 300] {
        exec(&mut c, &format!("SET statement_timeout = {ms}"));
        let done = c.batch_execute("SELECT pgtrickle.refresh_stream_table('s')");
        // On a busy machine this may run into the timeout itself.
        let freed = (0..100).any(|_| c.batch_execute("SET statement_timeout = 0").is_ok());
        assert!(freed, "the session is not usable after {ms} ms: {done:?}");
        match done {
            Err(e) => assert_eq!(db_error(&e).sqlstate, "57014", "{}", describe(&e)),
            Ok(()) => exec(&mut c, "UPDATE t SET k = k + 1"),
        }
        assert_active(&mut c, "s");
        exec(&mut c, "BEGIN; SAVEPOINT a; SELECT 1; RELEASE a; COMMIT");
    }
    exec(&mut c, "UPDATE t SET k = k + 1");
    differential(&mut c, "s");
}

#[test]
fn many_sources_change_schema_and_rows_while_others_refresh() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT grp, sum(v) AS v, count(*) AS n FROM t GROUP BY grp");
    let stop = AtomicBool::new(false);
    thread::scope(|s| {
        let at_end = StopAtEnd(&stop);
        let (db, stop) = (&db, &stop);
        let refresher = s.spawn(move || {
            let mut r = db.connect();
            while !stop.load(Ordering::Relaxed) {
                retry_deadlock(&mut r, "SELECT pgtrickle.refresh_stream_table('s')");
            }
        });
        let writer = s.spawn(move || {
            let mut w = db.connect();
            let mut i = 100;
            while !stop.load(Ordering::Relaxed) {
                i += 1;
                exec(
                    &mut w,
                    &format!("INSERT INTO t (id) VALUES ({i}); DELETE FROM t WHERE id = {}", i - 10),
                );
            }
        });
        for i in 0..15 {
            for ddl in [
                format!("ALTER TABLE t ADD COLUMN x{i} int DEFAULT {i}"),
                format!(
                    "ALTER TABLE t RENAME COLUMN {} TO v{i}",
                    if i == 0 { "v".into() } else { format!("v{}", i - 1) }
                ),
                format!("CREATE INDEX ix{i} ON t (id)"),
                format!("ALTER TABLE t DROP COLUMN x{i}"),
            ] {
                retry_deadlock(&mut c, &ddl);
            }
        }
        drop(at_end);
        refresher.join().expect("refresher");
        writer.join().expect("writer");
    });
    assert_active(&mut c, "s");
    refresh(&mut c, "s");
    support::assert_equal(&mut c, "s", "SELECT grp, sum(v14), count(*) FROM t GROUP BY grp");
}
