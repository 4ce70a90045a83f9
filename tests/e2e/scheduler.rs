//! The scheduler, in preloaded clusters of its own.

use crate::common::*;
use crate::support::{self, Cluster, Options, Stop, describe};
use postgres::Client;
use std::time::Duration;

/// Patience with something that the scheduler does within seconds.
const SOON: Duration = Duration::from_secs(40);

fn cluster() -> Cluster {
    Cluster::start(&Options::preloaded().with("jit = off").with("log_min_messages = warning"))
}

fn create_every(c: &mut Client, name: &str, query: &str, schedule: &str) {
    exec(c, &format!("SELECT pgtrickle.create_stream_table({}, {}, '{schedule}')", lit(name), lit(query)));
}

/// Waits until the stream table equals its query without a refresh of ours.
fn wait_until_equal(c: &mut Client, name: &str, query: &str) {
    support::wait_until(&format!("{name} equals its query"), SOON, || {
        support::difference(c, name, query).is_none()
    });
}

/// The process ids of our workers that are connected to a database, or to none.
fn workers(c: &mut Client, database: Option<&str>) -> Vec<i32> {
    let filter = match database {
        Some(db) => format!("datname = {}", lit(db)),
        None => "datname IS NULL".into(),
    };
    column(
        c,
        &format!(
            "SELECT pid FROM pg_stat_activity WHERE backend_type ILIKE '%trickle%' AND backend_type <> 'client backend' AND {filter}"
        ),
    )
}

#[test]
fn it_refreshes_what_is_due_in_dependency_order_and_survives_errors_kills_and_restarts() {
    let cluster = cluster();
    let mut c = cluster.connect("postgres");
    let (mut noting, notices) = cluster.connect_noting("postgres");
    exec(&mut c, &format!("CREATE EXTENSION pgtrickle; {T}"));
    exec(
        &mut noting,
        "SELECT pgtrickle.create_stream_table('low', 'SELECT grp, count(*) AS n, sum(v) AS v FROM t GROUP BY grp', '1 second')",
    );
    assert!(notices.take().iter().all(|(_, n)| !n.message.contains("preload")), "preloaded: nothing to say");
    create_every(&mut c, "high", "SELECT max(n) AS n, sum(v) AS v FROM low", "1 second");
    create_every(&mut c, "by_hand", "SELECT count(*) AS n FROM t", "1 hour");
    exec(&mut c, "SELECT pgtrickle.alter_stream_table('by_hand', NULL, 'auto')");
    assert_eq!(
        one::<i64>(
            &mut c,
            "SELECT count(*) FROM pgtrickle.health_check() WHERE concat(\"check\", detail) LIKE '%preload%' AND status <> 'OK'"
        ),
        0
    );
    const LOW: &str = "SELECT grp, count(*), sum(v) FROM t GROUP BY grp";
    const HIGH: &str = "SELECT max(n), sum(v) FROM (SELECT count(*) AS n, sum(v) AS v FROM t GROUP BY grp) x";
    exec(&mut c, "UPDATE t SET v = v + 1; INSERT INTO t VALUES (50, 1, 50)");
    wait_until_equal(&mut c, "high", HIGH);
    support::assert_equal(&mut c, "low", LOW);

    // Dependency order: in each round the lower one finished before the upper one began.
    let out_of_order: i64 = one(
        &mut c,
        "SELECT count(*) FROM pgtrickle.refresh_history h WHERE h.stream_table::text = 'high' AND h.action = 'differential' AND NOT EXISTS
            (SELECT 1 FROM pgtrickle.refresh_history l WHERE l.stream_table::text = 'low' AND l.finished_at <= h.started_at)",
    );
    assert_eq!(out_of_order, 0);

    // An error in one does not stop the others, is told, and ends by itself when it is cured.
    create_every(&mut c, "fragile", "SELECT id, 1000 / v AS x FROM t", "1 second");
    exec(&mut c, "UPDATE t SET v = 0 WHERE id = 1");
    support::wait_until("the failure is in the history", SOON, || {
        one::<i64>(
            &mut c,
            "SELECT count(*) FROM pgtrickle.refresh_history WHERE status = 'failed' AND stream_table::text = 'fragile'",
        ) > 0
    });
    let told: Vec<String> = column(
        &mut c,
        "SELECT concat_ws(' ', reason, detail) FROM pgtrickle.refresh_history WHERE status = 'failed' AND stream_table::text = 'fragile' LIMIT 1",
    );
    assert!(told[0].contains("division by zero"), "{told:?}");
    assert!(
        one::<i64>(
            &mut c,
            "SELECT count(*) FROM pgtrickle.health_check() WHERE status <> 'OK' AND concat(\"check\", detail) LIKE '%fragile%'"
        ) > 0
    );
    exec(&mut c, "INSERT INTO t VALUES (51, 2, 51)");
    wait_until_equal(&mut c, "high", HIGH);
    exec(&mut c, "UPDATE t SET v = 5 WHERE id = 1");
    wait_until_equal(&mut c, "fragile", "SELECT id, 1000 / v FROM t");

    // The database's worker is terminated, then killed (which restarts the server).
    support::wait_until("a worker", SOON, || !workers(&mut c, Some("postgres")).is_empty());
    for worker in workers(&mut c, Some("postgres")).into_iter().chain(workers(&mut c, None)) {
        exec(&mut c, &format!("SELECT pg_terminate_backend({worker})"));
    }
    exec(&mut c, "INSERT INTO t VALUES (52, 2, 52)");
    wait_until_equal(&mut c, "high", HIGH);

    for how in [Stop::Fast, Stop::Immediate, Stop::Smart] {
        drop(c);
        drop(noting);
        cluster.stop(how);
        cluster.start_again();
        c = cluster.connect("postgres");
        noting = cluster.connect("postgres");
        exec(&mut c, "INSERT INTO t SELECT max(id) + 1, 7, 7 FROM t");
        wait_until_equal(&mut c, "high", HIGH);
    }
    assert_eq!(one::<i64>(&mut c, "SELECT n FROM by_hand"), 10, "schedule NULL: only by hand");
    assert!(!cluster.log().contains("panicked at"), "a worker panicked");
    assert!(!cluster.log().contains("was terminated by signal 6"), "a worker aborted");
}

#[test]
fn a_change_of_schedule_and_a_suspension_are_noticed() {
    let cluster = cluster();
    let mut c = cluster.connect("postgres");
    exec(&mut c, &format!("CREATE EXTENSION pgtrickle; {T}"));
    create_every(&mut c, "s", "SELECT id, v FROM t", "1 hour");
    create_every(&mut c, "witness", "SELECT count(*) AS n FROM t", "1 second");
    exec(&mut c, "INSERT INTO t VALUES (60, 1, 1)");
    wait_until_equal(&mut c, "witness", "SELECT count(*) FROM t");
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM s"), 10, "it is not due for an hour");
    exec(&mut c, "SELECT pgtrickle.alter_stream_table('s', '1 second', 'auto')");
    wait_until_equal(&mut c, "s", "SELECT id, v FROM t");
    exec(&mut c, "SELECT pgtrickle.suspend_stream_table('s'); INSERT INTO t VALUES (61, 1, 1)");
    wait_until_equal(&mut c, "witness", "SELECT count(*) FROM t");
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM s"), 11, "suspended");
    exec(&mut c, "SELECT pgtrickle.resume_stream_table('s')");
    wait_until_equal(&mut c, "s", "SELECT id, v FROM t");
    // DDL under the scheduler: followed in place, then suspended.
    exec(&mut c, "ALTER TABLE t RENAME COLUMN v TO w; UPDATE t SET w = w + 1");
    wait_until_equal(&mut c, "s", "SELECT id, w FROM t");
    exec(&mut c, "ALTER TABLE t DROP COLUMN w");
    assert_suspended(&mut c, "s", "COLUMN_DROPPED");
    // Not initialised at creation: the scheduler does it.
    exec(
        &mut c,
        "SELECT pgtrickle.create_stream_table('lazy', 'SELECT grp FROM t', '1 second', initialize => false)",
    );
    support::wait_until("it is initialised", SOON, || status(&mut c, "lazy").status == "active");
    wait_until_equal(&mut c, "lazy", "SELECT grp FROM t");
}

#[test]
fn databases_come_and_go() {
    let cluster = cluster();
    let mut admin = cluster.connect("postgres");
    for round in 0..2 {
        let name = format!("app{round}");
        cluster.create_db(&name);
        let mut c = cluster.connect(&name);
        exec(&mut c, &format!("CREATE EXTENSION pgtrickle; {T}"));
        create_every(&mut c, "s", "SELECT count(*) AS n FROM t", "1 second");
        exec(&mut c, "INSERT INTO t VALUES (70, 1, 1)");
        wait_until_equal(&mut c, "s", "SELECT count(*) FROM t");
        drop(c);
        // Its worker is connected, and does not keep it.
        support::wait_until("a worker is connected", SOON, || !workers(&mut admin, Some(&name)).is_empty());
        admin
            .batch_execute(&format!("DROP DATABASE {name}"))
            .unwrap_or_else(|e| panic!("DROP DATABASE: {}", describe(&e)));
    }
    // As a template, renamed, and with the extension taken away again.
    cluster.create_db("tpl");
    let mut c = cluster.connect("tpl");
    exec(&mut c, &format!("CREATE EXTENSION pgtrickle; {T}"));
    create_every(&mut c, "s", "SELECT count(*) AS n FROM t", "1 second");
    support::wait_until("a worker is connected", SOON, || !workers(&mut admin, Some("tpl")).is_empty());
    exec(
        &mut c,
        "DROP EXTENSION pgtrickle CASCADE; DROP TABLE IF EXISTS s; CREATE TABLE x (a int); INSERT INTO t VALUES (71, 1, 1)",
    );
    support::wait_until("its worker has gone", SOON, || workers(&mut admin, Some("tpl")).is_empty());
    exec(&mut c, "CREATE EXTENSION pgtrickle");
    create_every(&mut c, "s", "SELECT count(*) AS n FROM t", "1 second");
    exec(&mut c, "INSERT INTO t VALUES (72, 1, 1)");
    wait_until_equal(&mut c, "s", "SELECT count(*) FROM t");
    drop(c);
    assert!(!cluster.log().contains("panicked at"), "a worker panicked");
    // A database that refuses connections is not an endless loop of errors.
    exec(&mut admin, "ALTER DATABASE tpl ALLOW_CONNECTIONS false");
    let took = cluster.stop(Stop::Fast);
    assert!(took < Duration::from_secs(30), "fast shutdown was kept waiting: {took:?}");
}

#[test]
fn a_fast_shutdown_in_the_middle_of_a_long_refresh() {
    let cluster = cluster();
    let mut c = cluster.connect("postgres");
    exec(
        &mut c,
        "CREATE EXTENSION pgtrickle; CREATE TABLE t (id int); INSERT INTO t VALUES (1);
         CREATE FUNCTION slow(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.5); RETURN $1; END $$",
    );
    create_every(&mut c, "s", "SELECT slow(id) AS id FROM t", "1 second");
    exec(&mut c, "INSERT INTO t SELECT generate_series(2, 2000)");
    support::wait_until("the worker is in its refresh", SOON, || {
        workers(&mut c, Some("postgres")).iter().any(|p| {
            one::<bool>(&mut c, &format!("SELECT coalesce((SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = {p}), false)"))
        })
    });
    drop(c);
    let took = cluster.stop(Stop::Fast);
    assert!(took < Duration::from_secs(30), "{took:?}");
    cluster.start_again();
    let mut c = cluster.connect("postgres");
    support::wait_until("the worker is at it again", SOON, || !workers(&mut c, Some("postgres")).is_empty());
    drop(c);
    // Nor is DROP DATABASE kept waiting by one.
    cluster.create_db("busy");
    let mut c = cluster.connect("busy");
    exec(
        &mut c,
        "CREATE EXTENSION pgtrickle; CREATE TABLE t (id int); INSERT INTO t VALUES (1);
         CREATE FUNCTION slow(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.5); RETURN $1; END $$",
    );
    create_every(&mut c, "s", "SELECT slow(id) AS id FROM t", "1 second");
    exec(&mut c, "INSERT INTO t SELECT generate_series(2, 2000)");
    drop(c);
    let mut admin = cluster.connect("postgres");
    support::wait_until("the worker is in its refresh", SOON, || {
        workers(&mut admin, Some("busy")).iter().any(|p| {
            one::<bool>(&mut admin, &format!("SELECT coalesce((SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = {p}), false)"))
        })
    });
    admin.batch_execute("DROP DATABASE busy").unwrap_or_else(|e| panic!("DROP DATABASE: {}", describe(&e)));
}

#[test]
fn without_worker_slots_everything_by_hand_works() {
    let cluster = Cluster::start(
        &Options::preloaded().with("max_worker_processes = 0").with("max_parallel_workers = 0"),
    );
    let mut c = cluster.connect("postgres");
    exec(&mut c, &format!("CREATE EXTENSION pgtrickle; {T}"));
    create_every(&mut c, "s", "SELECT grp, sum(v) AS v FROM t GROUP BY grp", "1 second");
    exec(&mut c, "UPDATE t SET v = v + 1");
    differential(&mut c, "s");
    let worst: Vec<String> =
        column(&mut c, "SELECT detail FROM pgtrickle.health_check() WHERE status <> 'OK'");
    assert!(!worst.is_empty(), "health_check says that nothing is scheduled");
}
