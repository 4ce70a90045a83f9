//! Nothing of ours grows without bound: buffers that a slow reader keeps, and history where no worker prunes it.

use crate::common::*;
use crate::support::{Cluster, Options, assert_up_to_date, refresh, wait_until};
use postgres::Client;

/// A cluster whose buffers may have 1 MB.
fn cluster(options: Options) -> (Cluster, Client) {
    let cluster = Cluster::start(&options.with("pg_trickle.buffer_limit = '1MB'"));
    let mut c = cluster.connect("postgres");
    exec(&mut c, "CREATE EXTENSION pgtrickle; CREATE TABLE t (id int PRIMARY KEY, grp int, note text)");
    exec(&mut c, "INSERT INTO t SELECT i, i % 7, 'n' FROM generate_series(1, 100) i");
    (cluster, c)
}

const COUNTS: &str = "SELECT grp, count(*) AS n, sum(id) AS s FROM t GROUP BY grp";

/// About 2 MB of changes.
fn write_much(c: &mut Client) {
    exec(c, "DO $$ BEGIN FOR i IN 1..250 LOOP UPDATE t SET grp = (grp + i) % 7; END LOOP; END $$");
}

fn buffered(c: &mut Client) -> i64 {
    one(c, "SELECT coalesce(sum(rows), 0)::bigint FROM pgtrickle.change_buffers WHERE source = 't'::regclass")
}

fn mark(c: &mut Client, name: &str) -> Option<String> {
    c.query_one(
        "SELECT reinitialize FROM pgtrickle.stream_tables WHERE stream_table = $1::text::regclass",
        &[&name],
    )
    .expect("the row of a stream table")
    .get(0)
}

fn assert_told(c: &mut Client, name: &str) {
    let why = mark(c, name).unwrap_or_else(|| panic!("{name} is not marked"));
    assert!(why.contains("pg_trickle.buffer_limit"), "{why}");
    let health: Vec<String> = column(c, "SELECT detail FROM pgtrickle.health_check() WHERE status = 'WARN'");
    assert!(health.iter().any(|d| d.contains(name) && d.contains("buffer_limit")), "{health:?}");
}

/// Its next refresh computes it anew, and says why.
fn assert_comes_back(c: &mut Client, name: &str) {
    assert_eq!(refresh(c, name).action, "reinitialize");
    let detail: String = one(
        c,
        &format!(
            "SELECT detail FROM pgtrickle.refresh_history WHERE stream_table = '{name}'::regclass ORDER BY id DESC LIMIT 1"
        ),
    );
    assert!(detail.contains("buffer_limit"), "{detail}");
    exec(c, "UPDATE t SET grp = grp + 1 WHERE id % 3 = 0");
    differential(c, name);
}

#[test]
fn a_reader_that_nobody_refreshes_does_not_keep_a_buffer_growing() {
    let (cluster, mut c) = cluster(Options::preloaded().with("pg_trickle.naptime = '100ms'"));
    create(&mut c, "slow", COUNTS);
    create(&mut c, "above", "SELECT grp, n FROM slow WHERE n > 1");
    write_much(&mut c);
    wait_until("the slow reader is marked", PATIENCE, || mark(&mut c, "slow").is_some());
    assert_told(&mut c, "slow");
    assert!(cluster.log().contains("stream table public.slow is computed anew"));
    assert_eq!(buffered(&mut c), 0, "nobody has to consume any of it");
    assert_eq!(mark(&mut c, "above"), None);
    // What comes after that is not kept either.
    let vacuum: String = one(&mut c, "SELECT 'VACUUM pgtrickle_internal.changes_' || 't'::regclass::oid");
    for _ in 0..5 {
        exec(&mut c, &vacuum);
        write_much(&mut c);
    }
    wait_until("the buffer stays small", PATIENCE, || {
        exec(&mut c, &vacuum);
        one::<i64>(
            &mut c,
            "SELECT pg_total_relation_size(('pgtrickle_internal.changes_' || 't'::regclass::oid)::regclass)",
        ) < 2 << 20
    });
    assert_comes_back(&mut c, "slow");
    refresh(&mut c, "above");
}

#[test]
fn readers_that_keep_up_are_left_alone() {
    let (_cluster, mut c) = cluster(Options::preloaded().with("pg_trickle.naptime = '100ms'"));
    create(&mut c, "slow", COUNTS);
    create(&mut c, "filtered", "SELECT id, grp FROM t WHERE grp > 3");
    exec(
        &mut c,
        "SELECT pgtrickle.create_stream_table('quick', 'SELECT grp, max(id) AS m FROM t GROUP BY grp', '1 second')",
    );
    // The worker counts what is buffered while both are behind; the quick one passes it with its next refresh.
    for _ in 0..8 {
        exec(&mut c, "UPDATE t SET note = repeat('x', 200) || random(), grp = (grp + 1) % 7");
        exec(&mut c, "SELECT * FROM pgtrickle.refresh_stream_table('quick')");
    }
    assert_eq!(mark(&mut c, "slow"), None, "it is under the limit");
    write_much(&mut c);
    wait_until("the slow readers are marked", PATIENCE, || {
        mark(&mut c, "slow").is_some() && mark(&mut c, "filtered").is_some()
    });
    wait_until("what they alone needed is gone", PATIENCE, || buffered(&mut c) == 0);
    assert_comes_back(&mut c, "slow");
    assert_eq!(refresh(&mut c, "filtered").action, "reinitialize");
    refresh(&mut c, "quick");
}

#[test]
fn without_a_worker_another_reader_s_refresh_bounds_the_buffer() {
    let (cluster, mut c) = cluster(Options::default());
    create(&mut c, "slow", COUNTS);
    create(&mut c, "quick", "SELECT id, grp FROM t");
    let mut writer = cluster.connect("postgres");
    exec(&mut writer, "BEGIN; INSERT INTO t VALUES (1001, 3, 'open')");
    write_much(&mut c);
    differential(&mut c, "quick");
    assert_told(&mut c, "slow");
    assert_eq!(buffered(&mut c), 0);
    // What was written by a transaction that is open since before is in both of them.
    exec(&mut writer, "COMMIT");
    assert_comes_back(&mut c, "slow");
    refresh(&mut c, "quick");
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM quick WHERE id = 1001"), 1);
}

#[test]
fn a_reader_that_somebody_is_at_is_left_for_later() {
    let (cluster, mut c) = cluster(Options::default());
    create(&mut c, "slow", COUNTS);
    create(&mut c, "quick", "SELECT id, grp FROM t");
    let mut other = cluster.connect("postgres");
    exec(&mut c, "UPDATE t SET grp = grp + 1");
    // Its lock is held until the commit.
    exec(&mut other, "BEGIN; SELECT * FROM pgtrickle.refresh_stream_table('slow')");
    write_much(&mut c);
    differential(&mut c, "quick");
    assert_eq!(mark(&mut c, "slow"), None);
    exec(&mut other, "COMMIT");
    differential(&mut c, "slow");
    write_much(&mut c);
    differential(&mut c, "quick");
    assert_comes_back(&mut c, "slow");
}

#[test]
fn a_refresh_with_an_old_snapshot_is_never_wrong_after_it() {
    let (cluster, mut c) = cluster(Options::default());
    create(&mut c, "slow", COUNTS);
    create(&mut c, "quick", "SELECT id, grp FROM t");
    let mut old = cluster.connect("postgres");
    exec(&mut old, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t");
    write_much(&mut c);
    differential(&mut c, "quick");
    assert_told(&mut c, "slow");
    // Its snapshot does not show the mark: it must not overwrite it.
    old.batch_execute("SELECT * FROM pgtrickle.refresh_stream_table('slow'); COMMIT").ok();
    exec(&mut old, "ROLLBACK");
    refresh(&mut c, "slow");
    assert_up_to_date(&mut c, "slow");
}

#[test]
fn partitioned_sources_and_suspended_readers_are_bounded_too() {
    let (_cluster, mut c) = cluster(Options::default());
    exec(
        &mut c,
        "ALTER TABLE t RENAME TO plain; CREATE TABLE t (id int, grp int, note text) PARTITION BY RANGE (id);
         CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (50); CREATE TABLE t2 PARTITION OF t DEFAULT;
         INSERT INTO t SELECT * FROM plain",
    );
    create(&mut c, "slow", COUNTS);
    create(&mut c, "asleep", "SELECT id FROM t WHERE grp = 2");
    create(&mut c, "quick", "SELECT id, grp FROM t");
    exec(&mut c, "SELECT pgtrickle.suspend_stream_table('asleep')");
    write_much(&mut c);
    differential(&mut c, "quick");
    assert_told(&mut c, "slow");
    assert_eq!(buffered(&mut c), 0);
    exec(&mut c, "SELECT pgtrickle.resume_stream_table('asleep')");
    refresh(&mut c, "asleep");
    assert_comes_back(&mut c, "slow");
}

#[test]
fn without_a_worker_refreshes_prune_history() {
    let (_cluster, mut c) = cluster(Options::default().with("pg_trickle.history_keep_last = 8"));
    create(&mut c, "pruned", COUNTS);
    for _ in 0..150 {
        exec(&mut c, "UPDATE t SET grp = grp + 1; SELECT * FROM pgtrickle.refresh_stream_table('pruned')");
    }
    refresh(&mut c, "pruned");
    let rows: i64 = one(&mut c, "SELECT count(*) FROM pgtrickle.refresh_history");
    assert!(rows <= 8 + 64, "{rows} rows");
}

#[test]
fn tables_made_and_dropped_again_and_again_are_one_row_with_a_count() {
    let (_cluster, mut c) = cluster(Options::preloaded().with("pg_trickle.naptime = '100ms'"));
    let night = "DO $$ BEGIN FOR i IN 1..100 LOOP FOR n IN 1..3 LOOP
        EXECUTE format('CREATE TABLE stage%s (id int, v text)', n); EXECUTE format('DROP TABLE stage%s', n);
        END LOOP; END LOOP; END $$";
    exec(&mut c, night);
    // Others: their shape changes, or more than the drop is recorded of them.
    exec(
        &mut c,
        "CREATE TABLE other (a int); DROP TABLE other; CREATE TABLE other (b int); DROP TABLE other",
    );
    exec(&mut c, "CREATE TABLE other (a int); DROP TABLE other; SET pg_trickle.resource_identity = 'feed'");
    exec(&mut c, "CREATE TABLE fed (a int); DROP TABLE fed; CREATE TABLE fed (a int); DROP TABLE fed");
    exec(&mut c, "RESET pg_trickle.resource_identity");
    create(&mut c, "s", COUNTS);
    exec(&mut c, "SELECT pgtrickle.alter_stream_table('s', '1 second', 'auto')");
    let policy = |c: &mut Client, n: i32| {
        exec(c, &format!("ALTER SYSTEM SET pg_trickle.history_keep_last = {n}"));
        exec(c, "SELECT pg_reload_conf()");
    };
    policy(&mut c, 9001);
    let rows = |c: &mut Client, name: &str| -> i64 {
        one(c, &format!("SELECT count(*) FROM pgtrickle.schema_snapshots WHERE table_name LIKE '{name}'"))
    };
    wait_until("they are folded", PATIENCE, || rows(&mut c, "stage%") == 3);
    let size = |c: &mut Client| -> i64 {
        exec(c, "VACUUM pgtrickle.pgt_schema_snapshots");
        one(c, "SELECT pg_total_relation_size('pgtrickle.pgt_schema_snapshots')")
    };
    let before = size(&mut c);
    exec(&mut c, night);
    policy(&mut c, 9002);
    wait_until("the next night is folded as well", PATIENCE, || rows(&mut c, "stage%") == 3);
    let told: Vec<i64> = column(
        &mut c,
        "SELECT times FROM pgtrickle.schema_snapshots WHERE table_name LIKE 'stage%' AND first_captured_at < captured_at",
    );
    assert_eq!(told, [200, 200, 200]);
    assert!(size(&mut c) <= before * 11 / 10, "{before} bytes, and then {}", size(&mut c));
    assert_eq!((rows(&mut c, "other"), rows(&mut c, "fed")), (3, 2));
    let history: Vec<String> = column(&mut c, "SELECT what FROM pgtrickle.schema_history('stage1')");
    assert!(history.iter().any(|what| what.contains("tells of 200 tables")), "{history:?}");
}
