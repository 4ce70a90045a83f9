//! kill -9 of backends and of the postmaster in the middle of refreshes under writes: afterwards all is equal.

use crate::common::*;
use crate::support::{self, Cluster, Options, refresh};
use postgres::{Client, NoTls};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const TABLES: &[&str] = &["flat", "agg", "top"];

fn setup(cluster: &Cluster) -> Client {
    let mut c = cluster.connect("postgres");
    exec(
        &mut c,
        "CREATE EXTENSION pgtrickle; CREATE TABLE t (id bigserial, k int, v numeric); CREATE TABLE d (k int PRIMARY KEY, name text);
         INSERT INTO d SELECT i, 'd' || i FROM generate_series(0, 9) i; INSERT INTO t (k, v) SELECT i % 10, i / 4.0 FROM generate_series(1, 500) i",
    );
    create(&mut c, "flat", "SELECT t.id, d.name, t.v FROM t JOIN d USING (k)");
    create(
        &mut c,
        "agg",
        "SELECT d.name, count(*) AS n, sum(t.v) AS v, max(t.v) AS hi FROM t JOIN d USING (k) GROUP BY d.name",
    );
    create(&mut c, "top", "SELECT hi, count(*) AS names, sum(n) AS n FROM agg GROUP BY hi");
    c
}

/// Writes or refreshes until the connection is lost, or `stop`. Errors other than a lost connection are failures.
fn hammer(cluster: &Cluster, stop: &AtomicBool, sql: impl Fn(u64) -> String) {
    let Ok(mut c) = cluster.config("postgres", "postgres").connect(NoTls) else { return };
    let mut i = 0;
    while !stop.load(Ordering::Relaxed) {
        i += 1;
        let sql = sql(i);
        if let Err(e) = c.batch_execute(&sql) {
            match e.as_db_error() {
                // The connection, or the whole server, is gone.
                None => return,
                Some(e) if ["57P01", "57P02", "57P03"].contains(&e.code().code()) => return,
                Some(_) => panic!("{sql}: {}", support::describe(&e)),
            }
        }
    }
}

fn write_sql(worker: u64, i: u64) -> String {
    match i % 5 {
        0 => format!("INSERT INTO t (k, v) SELECT x, {i} FROM generate_series(0, 9) x"),
        1 => format!("UPDATE t SET v = v + 0.25 WHERE id % 7 = {} AND id % 2 = {worker}", i % 7),
        2 => format!("DELETE FROM t WHERE id % 11 = {} AND id % 2 = {worker}", i % 11),
        3 => format!(
            "BEGIN; INSERT INTO t (k, v) VALUES ({}, 1); SAVEPOINT a; UPDATE t SET k = 0 WHERE id % 2 = {worker} AND k = 3; ROLLBACK TO a; COMMIT",
            i % 10
        ),
        _ => format!("UPDATE d SET name = 'd' || {} WHERE k % 2 = {worker} AND k = {}", i % 12, i % 10),
    }
}

/// One round: two writers and a refresher per stream table at work, `kill`, and what is left to say.
fn round(cluster: &Cluster, seen: impl Fn() -> bool, kill: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    thread::scope(|s| {
        let stop = &stop;
        for worker in 0..2 {
            s.spawn(move || hammer(cluster, stop, |i| write_sql(worker, i)));
        }
        for name in TABLES {
            s.spawn(move || {
                hammer(cluster, stop, |_| format!("SELECT pgtrickle.refresh_stream_table('{name}')"))
            });
        }
        let _stop = StopAtEnd(stop);
        support::wait_until("a refresh is running", PATIENCE, seen);
        kill();
    });
}

fn check(c: &mut Client) {
    for name in TABLES {
        assert_active(c, name);
        let done = refresh(c, name);
        assert_ne!(done.action, "reinitialize", "{name}: nothing derived was lost in a crash");
        assert_ne!(done.action, "full", "{name}");
    }
    exec(c, "INSERT INTO t (k, v) VALUES (1, 1); DELETE FROM t WHERE id = (SELECT min(id) FROM t)");
    for name in TABLES {
        refresh(c, name);
    }
}

#[test]
fn i1_i2_kill_9_of_the_postmaster_ten_times() {
    // Real durability, since what is tested is what survives.
    let cluster = Cluster::start(&Options::default().with("jit = off").with("checkpoint_timeout = 30s"));
    drop(setup(&cluster));
    for n in 0..10 {
        let watch = std::sync::Mutex::new(cluster.connect("postgres"));
        round(
            &cluster,
            || {
                let mut w = watch.lock().expect("watch");
                one::<i64>(
                    &mut *w,
                    "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%refresh_stream_table%' AND pid <> pg_backend_pid()",
                ) > 0
                    && (n % 2 == 0
                        || one::<i64>(
                            &mut *w,
                            "SELECT count(*) FROM pgtrickle.change_buffers WHERE rows > 0",
                        ) > 0)
            },
            || cluster.kill9_postmaster(),
        );
        cluster.start_again();
        check(&mut cluster.connect("postgres"));
    }
}

#[test]
fn i1_i2_kill_9_of_a_refreshing_backend_ten_times() {
    let cluster = Cluster::start(&Options::default().with("jit = off"));
    drop(setup(&cluster));
    for _ in 0..10 {
        let watch = std::sync::Mutex::new(cluster.connect("postgres"));
        let victim = std::sync::atomic::AtomicI32::new(0);
        round(
            &cluster,
            || {
                let mut w = watch.lock().expect("watch");
                let found: Vec<i32> = column(
                    &mut *w,
                    "SELECT pid FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%refresh_stream_table%'
                        AND backend_xid IS NOT NULL AND pid <> pg_backend_pid()",
                );
                victim.store(found.first().copied().unwrap_or(0), Ordering::SeqCst);
                !found.is_empty()
            },
            // SAFETY: kill has no memory preconditions; the process is a backend of a server that this test started.
            || unsafe {
                libc::kill(victim.load(Ordering::SeqCst), libc::SIGKILL);
            },
        );
        support::wait_until("the server is back after the crash of a backend", PATIENCE, || {
            cluster
                .config("postgres", "postgres")
                .connect(NoTls)
                .is_ok_and(|mut c| c.simple_query("SELECT 1").is_ok())
        });
        // Recovery may begin a moment later than the first answer.
        let mut c = connect_patiently(&cluster);
        check(&mut c);
    }
}

fn connect_patiently(cluster: &Cluster) -> Client {
    let mut out = None;
    support::wait_until("a connection that stays", PATIENCE, || {
        let Ok(mut c) = cluster.config("postgres", "postgres").connect(NoTls) else { return false };
        let answers = c.batch_execute("SELECT count(*) FROM t").is_ok();
        out = Some(c);
        answers
    });
    out.expect("a connection")
}

#[test]
fn an_immediate_stop_keeps_what_was_committed() {
    let cluster = Cluster::start(&Options::default());
    let mut c = setup(&cluster);
    exec(&mut c, "UPDATE t SET v = v + 1 WHERE id < 50; DELETE FROM t WHERE id > 480");
    let mut open = cluster.connect("postgres");
    exec(&mut open, "BEGIN; UPDATE t SET v = -1; SELECT pgtrickle.refresh_stream_table('top')");
    drop(c);
    cluster.stop(support::Stop::Immediate);
    cluster.start_again();
    let mut c = cluster.connect("postgres");
    assert!(
        one::<i64>(&mut c, "SELECT coalesce(sum(rows), 0)::bigint FROM pgtrickle.change_buffers") > 0,
        "buffers are not emptied by recovery"
    );
    differential(&mut c, "agg");
    check(&mut c);
}

#[test]
fn an_unlogged_source_is_refused_or_never_stale() {
    let cluster = Cluster::start(&Options::default());
    let mut c = cluster.connect("postgres");
    exec(
        &mut c,
        "CREATE EXTENSION pgtrickle; CREATE UNLOGGED TABLE u (id int, v int); INSERT INTO u SELECT i, i FROM generate_series(1, 10) i",
    );
    match c.batch_execute(&create_call("s", "SELECT id, v FROM u", "auto")) {
        Err(e) => assert!(support::db_error(&e).detail.starts_with("reason="), "{}", support::describe(&e)),
        Ok(()) => {
            exec(&mut c, "INSERT INTO u VALUES (11, 11)");
            refresh(&mut c, "s");
            drop(c);
            cluster.stop(support::Stop::Immediate);
            cluster.start_again();
            let mut c = cluster.connect("postgres");
            assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM u"), 0, "recovery empties unlogged tables");
            right_or_suspended(&mut c, "s");
        }
    }
}
