//! Retention: `prune_snapshots` and the scheduler's policy.

use crate::common::*;
use crate::evidence::*;
use crate::support::{Cluster, Options, fresh_db, wait_until};
use postgres::Client;

/// Makes and drops a table some times, each time with a column more; the snapshots are as old as the days say.
fn history(c: &mut Client, table: &str, days: &[i32]) {
    for (i, age) in days.iter().enumerate() {
        let columns: Vec<String> = (0..=i).map(|i| format!("c{i} int")).collect();
        exec(c, &format!("CREATE TABLE {table} ({}); DROP TABLE {table}", columns.join(", ")));
        // There is no other way to be older than to be restored.
        exec(
            c,
            &format!(
                "CREATE TEMP TABLE kept AS SELECT * FROM pgtrickle.pgt_schema_snapshots;
                 UPDATE kept SET captured_at = now() - interval '{age} days'
                 WHERE snapshot_id = (SELECT max(snapshot_id) FROM kept)"
            ),
        );
        empty(c, "pgt_schema_snapshots");
        exec(c, "INSERT INTO pgtrickle.pgt_schema_snapshots_dump TABLE kept; DROP TABLE kept");
    }
}

fn prune(c: &mut Client, arguments: &str) -> i64 {
    one(c, &format!("SELECT pgtrickle.prune_snapshots({arguments})"))
}

/// Numbers of columns of the snapshots that there are of a table.
fn left(c: &mut Client, table: &str) -> Vec<i32> {
    shots_of(c, table).iter().map(|s| s.column_count).collect()
}

#[test]
fn by_number_by_age_and_by_both() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "CREATE SCHEMA app");
    let fill = |c: &mut Client| {
        empty(c, "pgt_schema_snapshots");
        history(c, "t", &[100, 80, 60, 10, 1]);
        history(c, "app.t", &[200, 199]);
        history(c, "single", &[500]);
    };
    fill(&mut c);
    assert_eq!(prune(&mut c, "keep_last => 10"), 0);
    assert_eq!(prune(&mut c, "keep_last => 2"), 3);
    assert_eq!(left(&mut c, "t"), [4, 5, 1, 2], "of each schema's table of that name");
    assert_eq!(prune(&mut c, "1"), 2);
    assert_eq!((left(&mut c, "t"), left(&mut c, "single")), (vec![5, 2], vec![1]));
    fill(&mut c);
    assert_eq!(prune(&mut c, "older_than => '30 days'"), 4);
    assert_eq!(left(&mut c, "t"), [4, 5, 2], "the newest stays, whatever its age");
    assert_eq!(left(&mut c, "single"), [1]);
    fill(&mut c);
    assert_eq!(prune(&mut c, "keep_last => 3, older_than => '70 days'"), 2);
    assert_eq!(left(&mut c, "t"), [3, 4, 5, 1, 2], "beyond the third and older");
    assert_eq!(prune(&mut c, "older_than => '0'"), 3);
    assert_eq!((left(&mut c, "t"), left(&mut c, "single")), (vec![5, 2], vec![1]));
    for bad in [
        "",
        "NULL, NULL",
        "keep_last => 0",
        "keep_last => -3",
        "older_than => '-1 day'",
        "keep_last => 5, older_than => '-1 day'",
    ] {
        assert_refused(&mut c, &format!("SELECT pgtrickle.prune_snapshots({bad})"), &["22023"]);
    }
    assert_eq!(count(&mut c), 3, "nothing went with an error");
}

#[test]
fn the_newest_of_a_living_table_stays_under_whatever_name() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE t (a int, b int, c int); CREATE TABLE old (x int); SELECT * FROM pgtrickle.capture_baseline()",
    );
    exec(&mut c, "ALTER TABLE t RENAME TO moved; ALTER TABLE old RENAME TO older");
    history(&mut c, "t", &[3, 2, 1]);
    exec(&mut c, "DROP TABLE older");
    history(&mut c, "old", &[5, 4]);
    assert_eq!(left(&mut c, "t"), [3, 1, 2, 3]);
    assert_eq!(prune(&mut c, "1"), 4);
    assert_eq!(
        left(&mut c, "t"),
        [3, 3],
        "what the living table was last recorded as, and the newest of the name"
    );
    assert_eq!(shots_of(&mut c, "t")[0].relation, one::<u32>(&mut c, "SELECT 'moved'::regclass::oid"));
    assert_eq!(left(&mut c, "old"), [2], "one that is gone has its name's newest");
    assert_eq!(left(&mut c, "older"), [1]);
    // What stays is what the next pass compares with.
    let captured: i32 = one(&mut c, "SELECT captured FROM pgtrickle.capture_baseline()");
    assert_eq!(captured, 1, "its name is a part of its shape");
}

/// Vacuum after it would lock the table exclusively to make its file shorter, and a drop of just then is not recorded.
#[test]
fn vacuum_takes_no_lock_that_a_drop_would_meet() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "CREATE TABLE a (x int); DROP TABLE a");
    let size =
        |c: &mut Client| -> i64 { one(c, "SELECT pg_relation_size('pgtrickle.pgt_schema_snapshots')") };
    exec(&mut c, "INSERT INTO pgtrickle.pgt_schema_snapshots_dump SELECT (jsonb_populate_record(s, jsonb_build_object('snapshot_id', 1000 + i))).*
        FROM pgtrickle.pgt_schema_snapshots s, generate_series(1, 2000) i WHERE snapshot_id = 1");
    let full = size(&mut c);
    assert!(prune(&mut c, "1") > 1900);
    exec(&mut c, "VACUUM pgtrickle.pgt_schema_snapshots");
    assert_eq!(size(&mut c), full);
}

#[test]
fn the_scheduler_runs_the_policy_when_it_is_set() {
    let cluster = Cluster::start(
        &Options::preloaded().with("pg_trickle.naptime = '100ms'").with("pg_trickle.snapshot_max_age = 0"),
    );
    let mut c = cluster.connect("postgres");
    exec(&mut c, "CREATE EXTENSION pgtrickle");
    let ages = [100, 80, 60, 10, 1];
    history(&mut c, "t", &ages);
    history(&mut c, "single", &[500]);
    // A first stream table starts the worker at once.
    exec(
        &mut c,
        "CREATE TABLE src (id int PRIMARY KEY); SELECT pgtrickle.create_stream_table('s', 'SELECT id FROM src', '1 hour')",
    );
    wait_until("the worker runs", PATIENCE, || {
        one::<i64>(&mut c, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pgtrickle worker'")
            > 0
    });
    assert_eq!(left(&mut c, "t").len(), ages.len(), "no age is too old");
    exec(&mut c, "ALTER SYSTEM SET pg_trickle.snapshot_keep_last = 3");
    exec(&mut c, "ALTER SYSTEM SET pg_trickle.snapshot_max_age = 70");
    exec(&mut c, "SELECT pg_reload_conf()");
    wait_until("old snapshots are removed", PATIENCE, || left(&mut c, "t") == [3, 4, 5]);
    // Another policy counts at once, and refreshing by schedule has nothing to do with it.
    exec(&mut c, "ALTER SYSTEM SET pg_trickle.enabled = off");
    exec(&mut c, "ALTER SYSTEM SET pg_trickle.snapshot_keep_last = 1");
    exec(&mut c, "ALTER SYSTEM SET pg_trickle.snapshot_max_age = 30");
    exec(&mut c, "SELECT pg_reload_conf()");
    wait_until("more of them are removed", PATIENCE, || left(&mut c, "t") == [4, 5]);
    assert_eq!(left(&mut c, "single"), Vec::<i32>::new(), "of a name that no table has, age decides alone");
}
