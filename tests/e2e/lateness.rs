//! What holds up one stream table holds up no other, and health tells what is late, how late, and behind whom.

use crate::common::*;
use crate::support::{self, Cluster, Options};
use postgres::Client;
use std::time::{Duration, Instant};

fn cluster() -> Cluster {
    Cluster::start(
        &Options::preloaded().with("log_min_messages = log").with("pg_trickle.lock_timeout = '200ms'"),
    )
}

const TABLES: &str = "CREATE EXTENSION pgtrickle; CREATE TABLE a (id int, v int); CREATE TABLE b (id int, v int);
    CREATE TABLE p (id int, grp int) PARTITION BY LIST (grp); CREATE TABLE p0 PARTITION OF p FOR VALUES IN (0);";

fn create_every_second(c: &mut Client, name: &str, query: &str) {
    exec(c, &format!("SELECT pgtrickle.create_stream_table({}, {}, '1 second')", lit(name), lit(query)));
}

fn await_equal(c: &mut Client, name: &str, query: &str) {
    support::wait_until(&format!("{name} equals its query"), PATIENCE * 2, || {
        support::difference(c, name, query).is_none()
    });
}

/// Waits until one row of health has all of these words.
fn await_health(c: &mut Client, status: &str, like: &[&str]) {
    let deadline = Instant::now() + PATIENCE * 3;
    loop {
        let rows: Vec<String> =
            column(c, "SELECT concat_ws(' | ', status, \"check\", detail) FROM pgtrickle.health_check()");
        if rows.iter().any(|row| row.starts_with(status) && like.iter().all(|word| row.contains(word))) {
            return;
        }
        assert!(Instant::now() < deadline, "health never said {status} {like:?}:\n{}", rows.join("\n"));
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_locked_source_and_an_open_transaction_hold_up_only_their_own_stream_tables() {
    let cluster = cluster();
    let mut c = cluster.connect("postgres");
    exec(&mut c, TABLES);
    create_every_second(&mut c, "of_a", "SELECT count(*) AS n, sum(v) AS v FROM a");
    create_every_second(&mut c, "of_b", "SELECT count(*) AS n, sum(v) AS v FROM b");
    create_every_second(&mut c, "of_p", "SELECT grp, count(*) AS n FROM p GROUP BY grp");
    create_every_second(&mut c, "also_b", "SELECT id, sum(v) AS v FROM b GROUP BY id");
    // One source is locked, a partition of another one too, and a third stream table was refreshed by somebody who is still
    // in his transaction.
    let mut locker = cluster.connect("postgres");
    exec(&mut locker, "SET application_name = 'migration'; BEGIN; LOCK TABLE a, p0 IN ACCESS EXCLUSIVE MODE");
    let mut refresher = cluster.connect("postgres");
    exec(&mut c, "INSERT INTO b VALUES (0, 1)");
    exec(
        &mut refresher,
        "SET application_name = 'by hand'; BEGIN; SELECT pgtrickle.refresh_stream_table('also_b')",
    );
    let (locker_pid, refresher_pid) = (pid(&mut locker), pid(&mut refresher));
    for i in 1..4 {
        exec(&mut c, &format!("INSERT INTO b VALUES ({i}, {i})"));
        await_equal(&mut c, "of_b", "SELECT count(*), sum(v) FROM b");
    }
    // At once, and as a warning when it has become late.
    let words = ["of_a", "migration", &format!("process {locker_pid} "), "holds one on public.a"];
    await_health(&mut c, "", &words);
    await_health(&mut c, "", &["also_b", "by hand", &format!("process {refresher_pid} ")]);
    await_health(&mut c, "WARN", &["of_a is late", "with a schedule of 1 s", "migration"]);
    await_health(&mut c, "WARN", &["also_b is late", "by hand"]);
    // Late is not failed.
    assert_eq!(
        one::<i64>(&mut c, "SELECT count(*) FROM pgtrickle.refresh_history WHERE status = 'failed'"),
        0
    );
    exec(&mut locker, "INSERT INTO a VALUES (1, 7); COMMIT");
    exec(&mut refresher, "COMMIT");
    await_equal(&mut c, "of_a", "SELECT count(*), sum(v) FROM a");
    await_equal(&mut c, "also_b", "SELECT id, sum(v) FROM b GROUP BY id");
    support::wait_until("nothing is late any more", PATIENCE * 2, || {
        one::<i64>(
            &mut c,
            "SELECT count(*) FROM pgtrickle.health_check() WHERE detail LIKE '%late%' OR detail LIKE '%waits%'",
        ) == 0
    });
    for name in ["of_a", "of_b", "of_p", "also_b"] {
        assert_active(&mut c, name);
        support::refresh(&mut c, name);
    }
}

#[test]
fn a_failure_that_can_not_be_written_is_in_health() {
    let cluster = cluster();
    let mut c = cluster.connect("postgres");
    exec(&mut c, TABLES);
    exec(&mut c, "INSERT INTO a VALUES (1, 1)");
    create_every_second(&mut c, "fragile", "SELECT id, 10 / v AS x FROM a");
    let mut locker = cluster.connect("postgres");
    exec(&mut locker, "BEGIN; CREATE INDEX shared ON pgtrickle.pgt_refresh_history (id)");
    exec(&mut c, "UPDATE a SET v = 0");
    await_health(&mut c, "WARN", &["fragile", "division by zero", "can't be written"]);
    exec(&mut locker, "ROLLBACK");
    exec(&mut c, "UPDATE a SET v = 5");
    await_equal(&mut c, "fragile", "SELECT id, 10 / v FROM a");
    support::wait_until("health forgets it", PATIENCE, || {
        one::<i64>(
            &mut c,
            "SELECT count(*) FROM pgtrickle.health_check() WHERE detail LIKE '%division by zero%'",
        ) == 0
    });
}

#[test]
fn a_failure_that_can_not_be_written_tells_values_to_the_owner_alone() {
    let cluster = cluster();
    let mut c = cluster.connect("postgres");
    exec(&mut c, TABLES);
    exec(
        &mut c,
        "CREATE TABLE words (id int, w text); INSERT INTO words VALUES (1, '1'); CREATE ROLE reader LOGIN",
    );
    create_every_second(&mut c, "fragile", "SELECT id, w::int AS w FROM words");
    exec(&mut c, "GRANT SELECT ON fragile TO reader");
    let mut locker = cluster.connect("postgres");
    exec(&mut locker, "BEGIN; CREATE INDEX shared ON pgtrickle.pgt_refresh_history (id)");
    exec(&mut c, "UPDATE words SET w = 'the secret'");
    await_health(&mut c, "WARN", &["fragile", "the secret", "can't be written"]);
    let mut r = cluster.connect_as("postgres", "reader");
    await_health(&mut r, "WARN", &["fragile", "its last refresh failed"]);
    let told: Vec<String> = column(&mut r, "SELECT h::text FROM pgtrickle.health_check() h");
    assert!(told.iter().all(|row| !row.contains("secret")), "{told:?}");
    exec(&mut locker, "ROLLBACK");
}

#[test]
fn a_failure_of_the_worker_itself_is_told_in_full_to_the_extensions_owner_alone() {
    let cluster = cluster();
    let mut c = cluster.connect("postgres");
    exec(&mut c, TABLES);
    exec(&mut c, "CREATE ROLE nobody LOGIN");
    create_every_second(&mut c, "of_a", "SELECT count(*) AS n FROM a");
    exec(&mut c, "UPDATE pg_extension SET extversion = '0.0.1' WHERE extname = 'pgtrickle'");
    await_health(&mut c, "WARN", &["the worker of this database fails", "0.0.1"]);
    let mut n = cluster.connect_as("postgres", "nobody");
    await_health(&mut n, "WARN", &["the worker of this database fails", "server log"]);
    let told: Vec<String> = column(&mut n, "SELECT h::text FROM pgtrickle.health_check() h");
    assert!(told.iter().all(|row| !row.contains("0.0.1")), "{told:?}");
}

#[test]
fn a_worker_that_is_switched_off_makes_stream_tables_late() {
    let cluster = cluster();
    let mut c = cluster.connect("postgres");
    exec(&mut c, TABLES);
    create_every_second(&mut c, "of_a", "SELECT count(*) AS n FROM a");
    cluster.append_conf("pg_trickle.enabled = off");
    exec(&mut c, "SELECT pg_reload_conf()");
    await_health(&mut c, "WARN", &["pg_trickle.enabled is off"]);
    await_health(&mut c, "WARN", &["of_a is late"]);
}

#[test]
fn a_scheduled_refresh_that_takes_longer_than_computing_is_ended_and_done_that_way() {
    let cluster = Cluster::start(&Options::preloaded().with("pg_trickle.refresh_timeout = '300ms'"));
    let mut c = cluster.connect("postgres");
    exec(&mut c, TABLES);
    // To take a row away it has to be computed, which takes a minute; without the row there is nothing to compute.
    exec(
        &mut c,
        "CREATE TABLE slow (); INSERT INTO a VALUES (1, -1), (2, 2);
         CREATE FUNCTION dear(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
           IF $1 < 0 THEN PERFORM pg_sleep(60) FROM public.slow; END IF; RETURN $1; END $$",
    );
    create_every_second(&mut c, "s", "SELECT id, dear(v) AS v FROM a");
    exec(&mut c, "BEGIN; INSERT INTO slow DEFAULT VALUES; DELETE FROM a WHERE id = 1; COMMIT");
    await_equal(&mut c, "s", "SELECT id, v FROM a");
    support::wait_until("the reason is in the history", PATIENCE, || {
        one::<i64>(
            &mut c,
            "SELECT count(*) FROM pgtrickle.refresh_history WHERE action = 'full' AND detail LIKE '%pg_trickle.refresh_timeout%'",
        ) == 1
    });
    assert_active(&mut c, "s");
    support::refresh(&mut c, "s");
}
