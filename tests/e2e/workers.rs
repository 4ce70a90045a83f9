//! Where workers are, how many, and that nobody waits for them: in preloaded clusters.

use crate::common::*;
use crate::support::{self, Cluster, Options, Stop, describe};
use postgres::Client;

fn cluster(conf: &[&str]) -> Cluster {
    let options = Options::preloaded().with("log_min_messages = log").with("max_connections = 60");
    Cluster::start(&conf.iter().fold(options, |options, line| options.with(line)))
}

/// The databases that a process of ours is connected to, one entry for each.
fn ours(c: &mut Client) -> Vec<String> {
    column(
        c,
        "SELECT datname::text FROM pg_stat_activity WHERE backend_type IN ('pgtrickle worker', 'pgtrickle probe') AND datname IS NOT NULL ORDER BY 1",
    )
}

fn with_stream_table(cluster: &Cluster, db: &str) -> Client {
    cluster.create_db(db);
    let mut c = cluster.connect(db);
    exec(&mut c, &format!("CREATE EXTENSION pgtrickle; {T}"));
    exec(
        &mut c,
        "SELECT pgtrickle.create_stream_table('s', 'SELECT grp, count(*) AS n, sum(v) AS v FROM t GROUP BY grp', '1 second')",
    );
    c
}

const S: &str = "SELECT grp, count(*), sum(v) FROM t GROUP BY grp";

fn await_equal(c: &mut Client, name: &str, query: &str) {
    support::wait_until(&format!("{name} equals its query"), PATIENCE * 2, || {
        support::difference(c, name, query).is_none()
    });
}

/// Makes the worker of a database sit in a query that does not end by itself.
fn block_worker(c: &mut Client, admin: &mut Client, db: &str) {
    exec(
        c,
        "CREATE TABLE w (id int); INSERT INTO w VALUES (1);
         CREATE FUNCTION slow(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN IF $1 > 1 THEN PERFORM pg_sleep(600); END IF; RETURN $1; END $$;
         SELECT pgtrickle.create_stream_table('waits', 'SELECT slow(id) AS id FROM w', '1 second');
         INSERT INTO w VALUES (2)",
    );
    support::wait_until("the worker is in its refresh", PATIENCE, || {
        one::<i64>(
            admin,
            &format!(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = '{db}' AND backend_type = 'pgtrickle worker' AND wait_event = 'PgSleep'"
            ),
        ) > 0
    });
}

#[test]
fn fourteen_databases_share_the_places_and_take_turns() {
    let cluster = cluster(&["max_worker_processes = 16"]);
    let mut admin = cluster.connect("postgres");
    cluster.create_db("bystander");
    let mut clients: Vec<Client> = (0..14).map(|i| with_stream_table(&cluster, &format!("app{i}"))).collect();
    for c in &mut clients {
        exec(c, "UPDATE t SET v = v + 1");
    }
    for c in &mut clients {
        await_equal(c, "s", S);
        let many: Vec<String> = ours(&mut admin);
        assert!(many.len() <= 8, "more than half of max_worker_processes: {many:?}");
        assert!(!many.iter().any(|d| d == "bystander" || d == "postgres"), "{many:?}");
    }
    // Again, so that nobody had but one turn.
    for c in &mut clients {
        exec(c, "DELETE FROM t WHERE id = 1");
    }
    for c in &mut clients {
        await_equal(c, "s", S);
    }
    let told = cluster.log().matches("places of pg_trickle.max_worker_processes").count();
    assert_eq!(told, 1, "told once, not at each round");
    assert_eq!(one::<i64>(&mut admin, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), 0);
    assert!(!cluster.log().contains("panicked at"), "a process panicked");
    // Another place is free for each of the others by a setting.
    cluster.append_conf("pg_trickle.max_worker_processes = 15");
    exec(&mut admin, "SELECT pg_reload_conf()");
    support::wait_until("every database has its worker", PATIENCE * 2, || {
        let mut all = ours(&mut admin);
        all.dedup();
        all.len() == 14
    });
}

#[test]
fn only_databases_with_the_extension_have_a_worker_and_it_goes_with_the_extension() {
    let cluster = cluster(&[]);
    let mut admin = cluster.connect("postgres");
    cluster.create_db("plain");
    let mut c = with_stream_table(&cluster, "app");
    support::wait_until("a worker in app alone", PATIENCE, || ours(&mut admin) == ["app"]);
    // After a restart each database is looked at once.
    drop((c, admin));
    cluster.stop(Stop::Fast);
    cluster.start_again();
    let mut admin = cluster.connect("postgres");
    support::wait_until("a worker in app alone", PATIENCE, || ours(&mut admin) == ["app"]);
    c = cluster.connect("app");
    exec(&mut c, "UPDATE t SET v = v + 1");
    await_equal(&mut c, "s", S);
    exec(&mut c, "DROP TABLE s; DROP EXTENSION pgtrickle CASCADE");
    support::wait_until("no worker", PATIENCE, || ours(&mut admin).is_empty());
    exec(&mut c, "CREATE EXTENSION pgtrickle");
    exec(
        &mut c,
        "SELECT pgtrickle.create_stream_table('s', 'SELECT grp, count(*) AS n, sum(v) AS v FROM t GROUP BY grp', '1 second')",
    );
    exec(&mut c, "UPDATE t SET v = v + 1");
    await_equal(&mut c, "s", S);
    assert_eq!(ours(&mut admin), ["app"]);
}

#[test]
fn no_place_in_the_server_is_a_log_line_and_a_health_row_with_the_reason() {
    // One for PostgreSQL's own launcher of logical replication, one for ours.
    let cluster = cluster(&["max_worker_processes = 2", "max_parallel_workers = 0"]);
    let mut c = with_stream_table(&cluster, "app");
    support::wait_until("health tells the reason", PATIENCE, || {
        one::<i64>(
            &mut c,
            "SELECT count(*) FROM pgtrickle.health_check() WHERE \"check\" = 'scheduler' AND status = 'WARN' AND detail LIKE '%max_worker_processes%'",
        ) == 1
    });
    support::wait_until("the log tells it", PATIENCE, || {
        cluster.log().contains("no place for another worker")
    });
    exec(&mut c, "UPDATE t SET v = v + 1");
    support::refresh(&mut c, "s");
    assert_eq!(cluster.log().matches("no place for another worker").count(), 1, "once");
}

#[test]
fn no_place_of_our_own_is_a_health_row_that_says_how_many_there_are() {
    let cluster = cluster(&["pg_trickle.max_worker_processes = 1"]);
    let mut admin = cluster.connect("postgres");
    let mut first = with_stream_table(&cluster, "first");
    block_worker(&mut first, &mut admin, "first");
    let mut second = with_stream_table(&cluster, "second");
    let waits = "SELECT count(*) FROM pgtrickle.health_check() WHERE \"check\" = 'scheduler' AND status = 'WARN'
        AND detail LIKE '%waits for one of the 1 places of pg_trickle.max_worker_processes, 1 of which are taken%'";
    support::wait_until("health tells the reason", PATIENCE, || one::<i64>(&mut second, waits) == 1);
    assert_eq!(one::<i64>(&mut first, waits), 0, "the one that has the place does not wait");
    assert_eq!(ours(&mut admin), ["first"]);
    // It waits no longer than that.
    drop(first);
    exec(&mut admin, "DROP DATABASE first WITH (FORCE)");
    exec(&mut second, "UPDATE t SET v = v + 1");
    await_equal(&mut second, "s", S);
    assert_eq!(one::<i64>(&mut second, waits), 0);
}

#[test]
fn a_second_worker_takes_over_what_the_first_one_holds_up() {
    let cluster = cluster(&[]);
    let mut admin = cluster.connect("postgres");
    let mut c = with_stream_table(&cluster, "app");
    block_worker(&mut c, &mut admin, "app");
    exec(&mut c, "UPDATE t SET v = v + 1");
    await_equal(&mut c, "s", S);
    assert_eq!(ours(&mut admin), ["app", "app"], "two of them, and no third");
}

/// It takes its objects away one by one, in another order than a refresh locks them.
#[test]
fn drop_extension_ends_a_busy_worker() {
    let cluster = cluster(&[]);
    let mut admin = cluster.connect("postgres");
    let mut c = with_stream_table(&cluster, "app");
    block_worker(&mut c, &mut admin, "app");
    exec(&mut admin, "CREATE ROLE nobody LOGIN");
    let busy = "SELECT pid FROM pg_stat_activity WHERE datname = 'app' AND backend_type = 'pgtrickle worker' AND wait_event = 'PgSleep'";
    let before: Vec<i32> = column(&mut admin, busy);
    let mut nobody = cluster.connect_as("app", "nobody");
    assert_eq!(support::expect_error(&mut nobody, "DROP EXTENSION pgtrickle CASCADE").sqlstate, "42501");
    exec(&mut nobody, "BEGIN");
    assert_eq!(support::expect_error(&mut nobody, "DROP EXTENSION pgtrickle").sqlstate, "42501");
    assert_eq!(column::<i32>(&mut admin, busy), before, "who may not do it ends nobody's worker");
    // Taken back, it goes on as before.
    exec(&mut c, "SET lock_timeout = '5s'; BEGIN; DROP EXTENSION pgtrickle CASCADE; ROLLBACK");
    support::wait_until("a worker is busy again", PATIENCE, || !column::<i32>(&mut admin, busy).is_empty());
    exec(&mut c, "DROP EXTENSION pgtrickle CASCADE");
    support::wait_until("its worker has gone", PATIENCE, || column::<i32>(&mut admin, busy).is_empty());
}

#[test]
fn commands_that_want_a_database_to_themselves_end_a_busy_worker() {
    let cluster = cluster(&[]);
    let mut admin = cluster.connect("postgres");
    for command in
        ["CREATE DATABASE copy TEMPLATE app", "ALTER DATABASE app RENAME TO other", "DROP DATABASE app"]
    {
        admin.batch_execute("DROP DATABASE IF EXISTS copy").expect("drop");
        admin.batch_execute("DROP DATABASE IF EXISTS app").expect("drop");
        let mut c = with_stream_table(&cluster, "app");
        block_worker(&mut c, &mut admin, "app");
        drop(c);
        support::wait_until("our own sessions have gone", PATIENCE, || {
            one::<i64>(
                &mut admin,
                "SELECT count(*) FROM pg_stat_activity WHERE datname = 'app' AND backend_type = 'client backend'",
            ) == 0
        });
        admin.batch_execute(command).unwrap_or_else(|e| panic!("{command}: {}", describe(&e)));
    }
    // Who may not do it ends nobody's worker.
    let mut c = with_stream_table(&cluster, "app");
    block_worker(&mut c, &mut admin, "app");
    let before: Vec<i32> = column(
        &mut admin,
        "SELECT pid FROM pg_stat_activity WHERE datname = 'app' AND backend_type = 'pgtrickle worker' AND wait_event = 'PgSleep'",
    );
    exec(&mut admin, "CREATE ROLE nobody LOGIN; CREATE ROLE maker LOGIN CREATEDB");
    for (role, command) in [
        ("nobody", "DROP DATABASE app"),
        ("maker", "DROP DATABASE app"),
        ("maker", "CREATE DATABASE copy TEMPLATE app"),
        ("nobody", "ALTER DATABASE app RENAME TO x"),
    ] {
        let mut c = cluster.connect_as("postgres", role);
        let e = support::expect_error(&mut c, command);
        assert_eq!(e.sqlstate, "42501", "{role}: {command}: {e:?}");
    }
    // An owner without CREATEDB may not rename.
    exec(&mut admin, "ALTER DATABASE app OWNER TO nobody");
    let mut c = cluster.connect_as("postgres", "nobody");
    assert_eq!(support::expect_error(&mut c, "ALTER DATABASE app RENAME TO x").sqlstate, "42501");
    let after: Vec<i32> = column(
        &mut admin,
        "SELECT pid FROM pg_stat_activity WHERE datname = 'app' AND backend_type = 'pgtrickle worker' AND wait_event = 'PgSleep'",
    );
    assert_eq!(before, after);
    drop((admin, c));
    cluster.stop(Stop::Fast);
    assert!(!cluster.log().contains("panicked at"), "a process panicked");
}
