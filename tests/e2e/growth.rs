//! Nothing of ours grows without bound by default: schema snapshots, refresh history, notes of failures.

use crate::common::*;
use crate::support::{Cluster, Options, fresh_db, refresh, wait_until};
use postgres::Client;

/// A preloaded cluster with the extension in `postgres` and a running worker, whose settings are the default ones but for
/// those given.
fn cluster(settings: &[&str]) -> (Cluster, Client) {
    let mut options = Options::preloaded().with("pg_trickle.naptime = '100ms'");
    for setting in settings {
        options = options.with(setting);
    }
    let cluster = Cluster::start(&options);
    let mut c = cluster.connect("postgres");
    exec(&mut c, "CREATE EXTENSION pgtrickle");
    (cluster, c)
}

/// A stream table with a schedule keeps a worker, which prunes at once when another policy is in force.
fn start_worker(c: &mut Client) {
    exec(
        c,
        "CREATE TABLE src (id int PRIMARY KEY); SELECT pgtrickle.create_stream_table('s', 'SELECT id FROM src', '1 second')",
    );
    exec(c, "ALTER SYSTEM SET pg_trickle.history_keep_last = 9999");
    exec(c, "SELECT pg_reload_conf()");
}

/// Makes all snapshots of tables whose names begin so as old as that.
fn age(c: &mut Client, names: &str, days: i32) {
    edit_own(
        c,
        "pgt_schema_snapshots",
        &format!(
            "UPDATE pgtrickle.pgt_schema_snapshots SET captured_at = captured_at - interval '{days} days' WHERE table_name LIKE '{names}'"
        ),
    );
}

fn snapshots(c: &mut Client, names: &str) -> i64 {
    one(c, &format!("SELECT count(*) FROM pgtrickle.schema_snapshots WHERE table_name LIKE '{names}'"))
}

/// `number` tables are made and dropped, each of another shape: those of one shape would be told by one row.
fn nightly(c: &mut Client, name: &str, number: i32) {
    exec(
        c,
        &format!(
            "DO $$ BEGIN FOR i IN 1..{number} LOOP EXECUTE format('CREATE TABLE %I (%I int)', format('{name}', i), 'a' || i); EXECUTE format('DROP TABLE %I', format('{name}', i)); END LOOP; END $$"
        ),
    );
}

#[test]
fn the_default_policy_bounds_snapshots_by_age() {
    let (_cluster, mut c) = cluster(&[]);
    assert_eq!(one::<String>(&mut c, "SHOW pg_trickle.snapshot_max_age"), "90");
    nightly(&mut c, "night_%s", 30);
    nightly(&mut c, "again", 30);
    nightly(&mut c, "young_%s", 5);
    exec(&mut c, "CREATE TABLE again (a int); CREATE TABLE lives (a int); CREATE TABLE first (a int)");
    exec(&mut c, "SELECT * FROM pgtrickle.capture_baseline(); ALTER TABLE first RENAME TO second");
    for names in ["night%", "again", "lives", "first"] {
        age(&mut c, names, 91);
    }
    start_worker(&mut c);
    wait_until("old snapshots are removed", PATIENCE, || snapshots(&mut c, "night%") == 0);
    assert_eq!(snapshots(&mut c, "again"), 10, "the newest few of a table that is there stay");
    assert_eq!(snapshots(&mut c, "young%"), 5);
    assert_eq!(snapshots(&mut c, "lives"), 1);
    assert_eq!(snapshots(&mut c, "first"), 1, "it lives under another name");
}

#[test]
fn snapshots_of_tables_that_are_gone_have_a_limit_of_their_own() {
    let (_cluster, mut c) = cluster(&["pg_trickle.snapshot_max_dropped = 25"]);
    exec(&mut c, "CREATE TABLE lives (a int); SELECT * FROM pgtrickle.capture_baseline()");
    nightly(&mut c, "night_%s", 60);
    nightly(&mut c, "again", 20);
    start_worker(&mut c);
    wait_until("the number is bounded", PATIENCE, || snapshots(&mut c, "%") <= 30);
    assert_eq!(snapshots(&mut c, "again"), 20, "the newest stay");
    assert_eq!(snapshots(&mut c, "night%"), 5);
    assert_eq!(snapshots(&mut c, "lives"), 1);
    // What became of a table is told as ever, and the next change is compared with what is there.
    exec(&mut c, "ALTER TABLE lives ADD COLUMN b int; DROP TABLE lives");
    let told: Vec<String> = column(&mut c, "SELECT what FROM pgtrickle.schema_history('lives')");
    assert!(told.iter().any(|line| line.contains("column \"b\"")), "{told:?}");
}

#[test]
fn refresh_history_is_bounded_by_age_and_number() {
    let (_cluster, mut c) = cluster(&[]);
    exec(&mut c, "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1)");
    for name in ["kept", "idle", "one_gone", "two_gone"] {
        create(&mut c, name, "SELECT id, v FROM t");
        let times = if name == "idle" { 3 } else { 12 };
        for _ in 0..times {
            exec(&mut c, "UPDATE t SET v = v + 1");
            refresh(&mut c, name);
        }
        exec(&mut c, &format!("SELECT pgtrickle.suspend_stream_table('{name}')"));
    }
    exec(
        &mut c,
        "SELECT pgtrickle.drop_stream_table('one_gone'); SELECT pgtrickle.drop_stream_table('two_gone')",
    );
    // There is no other way to be older.
    edit_own(
        &mut c,
        "pgt_refresh_history",
        "UPDATE pgtrickle.pgt_refresh_history SET started_at = started_at - interval '31 days' WHERE stream_table_name LIKE '%idle'",
    );
    let rows = |c: &mut Client, name: &str, status: &str| -> i64 {
        one(
            c,
            &format!(
                "SELECT count(*) FROM pgtrickle.refresh_history WHERE stream_table_name LIKE '%{name}' AND status = '{status}'"
            ),
        )
    };
    // Another policy counts at once.
    exec(&mut c, "ALTER SYSTEM SET pg_trickle.history_keep_last = 8");
    exec(&mut c, "ALTER SYSTEM SET pg_trickle.history_max_age = 30");
    exec(&mut c, "SELECT pg_reload_conf()");
    wait_until("old rows are removed", PATIENCE, || rows(&mut c, "kept", "completed") == 8);
    assert_eq!(rows(&mut c, "kept", "suspended"), 1);
    assert_eq!(rows(&mut c, "idle", "completed"), 1, "the newest stays, whatever its age");
    assert_eq!(rows(&mut c, "idle", "suspended"), 1);
    assert_eq!(
        rows(&mut c, "gone", "completed") + rows(&mut c, "gone", "suspended"),
        8,
        "of all that are gone together"
    );
    edit_own(
        &mut c,
        "pgt_refresh_history",
        "UPDATE pgtrickle.pgt_refresh_history SET started_at = started_at - interval '31 days' WHERE stream_table_name LIKE '%gone'",
    );
    exec(&mut c, "ALTER SYSTEM SET pg_trickle.history_max_age = 29");
    exec(&mut c, "SELECT pg_reload_conf()");
    wait_until("nothing old is left of what is gone", PATIENCE, || {
        rows(&mut c, "gone", "completed") + rows(&mut c, "gone", "suspended") == 0
    });
}

#[test]
fn notes_of_failed_snapshots_become_one_and_stay_counted() {
    let (_cluster, mut c) = cluster(&[]);
    edit_own(
        &mut c,
        "pgt_capture_failures",
        "INSERT INTO pgtrickle.pgt_capture_failures (failed_at, what, sqlstate, number, relations, actor)
         SELECT now() - i * interval '1 minute', 'failed', '57014', 2, 't' || i, 'somebody' FROM generate_series(1, 2500) i",
    );
    let told = |c: &mut Client| -> String {
        one(
            c,
            "SELECT string_agg(detail, ' ') FROM pgtrickle.health_check() WHERE detail LIKE '%could not be taken%'",
        )
    };
    let before = told(&mut c);
    assert!(before.contains("5000 could not be taken"), "{before}");
    start_worker(&mut c);
    wait_until("they are few", PATIENCE, || {
        one::<i64>(&mut c, "SELECT count(*) FROM pgtrickle.pgt_capture_failures") == 1001
    });
    assert_eq!(told(&mut c), before);
}

#[test]
fn the_defaults_are_bounds() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "SELECT pgtrickle.schema_hash('pg_class')");
    let defaults: Vec<String> = column(
        &mut c,
        "SELECT name || ' ' || setting FROM pg_settings WHERE name ~ '^pg_trickle.(snapshot_max|snapshot_keep|history)' ORDER BY 1",
    );
    assert_eq!(
        defaults,
        [
            "pg_trickle.history_keep_last 10000",
            "pg_trickle.history_max_age 90",
            "pg_trickle.snapshot_keep_last 10",
            "pg_trickle.snapshot_max_age 90",
            "pg_trickle.snapshot_max_dropped 20000"
        ]
    );
}
