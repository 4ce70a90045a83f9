//! Nothing that goes wrong in capture prevents a drop: it is done, a WARNING says what is missing, `health_check()` counts
//! it. Each fault here is a real one, but where a comment says otherwise.

use crate::common::*;
use crate::evidence::*;
use crate::support::{Cluster, Failure, Notices, Options, TestDb, expect_error, fresh_db};
use postgres::Client;

/// A table to drop, with statistics, and a session that keeps its WARNINGs.
fn setup() -> (TestDb, Client, Notices) {
    let db = fresh_db();
    let (mut c, notices) = db.connect_noting();
    people(&mut c, "victim");
    (db, c, notices)
}

/// Drops `victim`, which has to work; the one WARNING.
fn drop_victim(db: &TestDb, c: &mut Client, notices: &Notices) -> Failure {
    notices.take();
    exec(c, "DROP TABLE victim");
    assert!(!exists(&mut db.connect(), "victim"), "the drop is done");
    warning(notices)
}

/// Storing a snapshot fails.
fn storing_fails(c: &mut Client, message: &str) {
    on_store(c, "fault", "pgt_schema_snapshots", "profile", &format!("RAISE EXCEPTION {message}"));
}

/// It is counted, and forgotten on demand; without the fault everything is as before.
fn counted_once(c: &mut Client, notices: &Notices) {
    assert_eq!(missing(c), 1);
    assert_eq!(one::<i64>(c, "SELECT pgtrickle.forget_capture_failures()"), 1);
    assert_eq!(missing(c), 0);
    notices.take();
    let recorded = count(c);
    exec(c, "CREATE TABLE afterwards (x int); DROP TABLE afterwards");
    assert_eq!(count(c), recorded + 1);
    assert!(warnings(notices).is_empty());
}

#[test]
fn the_table_of_the_evidence_is_missing() {
    let (db, mut c, notices) = setup();
    exec(&mut c, "ALTER TABLE pgtrickle.pgt_schema_snapshots RENAME TO elsewhere");
    let w = drop_victim(&db, &mut c, &notices);
    assert_eq!(w.message, "pgtrickle: what public.victim looked like was not recorded");
    assert!(w.detail.contains("pgt_schema_snapshots does not exist (SQLSTATE 42P01)"), "{w:?}");
    let (status, detail) = health(&mut c);
    assert!(status == "FAIL" && detail.contains("pgt_schema_snapshots does not exist"), "{status} {detail}");
    exec(&mut c, "ALTER TABLE pgtrickle.elsewhere RENAME TO pgt_schema_snapshots");
    counted_once(&mut c, &notices);
}

#[test]
fn the_table_of_the_evidence_lacks_a_column() {
    let (db, mut c, notices) = setup();
    exec(&mut c, "ALTER TABLE pgtrickle.pgt_schema_snapshots RENAME COLUMN digest TO digested");
    let w = drop_victim(&db, &mut c, &notices);
    assert!(w.detail.contains("SQLSTATE 42703"), "{w:?}");
    let health_says = health(&mut c);
    assert!(health_says.0 == "WARN" && health_says.1.contains("victim"), "{health_says:?}");
    exec(&mut c, "ALTER TABLE pgtrickle.pgt_schema_snapshots RENAME COLUMN digested TO digest");
    counted_once(&mut c, &notices);
}

#[test]
fn the_table_of_the_evidence_is_locked() {
    let (db, mut c, notices) = setup();
    let mut locker = db.connect();
    lock_out(&mut locker, &["pgt_schema_snapshots"]);
    // Were the lock waited for, the reason would be a time that is over.
    for (table, settings) in [
        ("victim", "SET pg_trickle.snapshot_timeout = '10s'"),
        ("second", "SET lock_timeout = '20s'"),
        ("third", "SET statement_timeout = '20s'"),
    ] {
        exec(&mut c, &format!("CREATE TABLE IF NOT EXISTS {table} (x int); {settings}"));
        notices.take();
        exec(&mut c, &format!("DROP TABLE {table}"));
        let w = warning(&notices);
        assert!(w.detail.contains("SQLSTATE 55P03") && w.message.contains(table), "{w:?}");
        assert!(!exists(&mut db.connect(), table));
    }
    exec(&mut locker, "COMMIT");
    assert_eq!(missing(&mut c), 3);
    exec(
        &mut c,
        "RESET ALL; SELECT pgtrickle.forget_capture_failures(); CREATE TABLE fourth (x int); DROP TABLE fourth",
    );
    assert_eq!(all_dropped(&mut c), ["public.fourth"]);
}

#[test]
fn storing_raises_an_error_that_quotes_a_value() {
    let (db, mut c, notices) = setup();
    storing_fails(&mut c, "'look at %', left(value, 4000)");
    let w = drop_victim(&db, &mut c, &notices);
    assert!(w.detail.contains("SQLSTATE P0001"), "{w:?}");
    let text = format!("{w:?}");
    assert!(
        !text.contains("Oslo") && !text.contains("look at"),
        "values are not for whoever drops a table: {text}"
    );
    assert!(db.cluster.log().contains("look at"), "the server log has the message");
    exec(&mut c, "DROP INDEX pgtrickle.fault");
    counted_once(&mut c, &notices);
}

#[test]
fn the_disk_is_full() {
    // A limit on the size of the backend's files ends a write in the middle, which PostgreSQL takes for a full disk. It must
    // not be less than a segment of WAL, so the table is made larger than that: a row a page.
    let (db, mut c, notices) = setup();
    exec(
        &mut c,
        "ALTER TABLE pgtrickle.pgt_schema_snapshots SET (fillfactor = 10);
         CREATE TABLE filler (x int); DROP TABLE filler;
         INSERT INTO pgtrickle.pgt_schema_snapshots_dump SELECT r.* FROM pgtrickle.pgt_schema_snapshots s, generate_series(1001, 3200) i,
           jsonb_populate_record(s, jsonb_build_object('snapshot_id', i, 'table_name', 'filler', 'statement', repeat('x', 1000))) r",
    );
    let size: i64 = one(&mut c, "SELECT pg_relation_size('pgtrickle.pgt_schema_snapshots')");
    assert!(size > 16 << 20, "{size}");
    let backend = pid(&mut c);
    let limited = db
        .cluster
        .command("/usr/bin/prlimit")
        .args([format!("--pid={backend}"), format!("--fsize={}:", size + 4096)])
        .status()
        .expect("prlimit");
    assert!(limited.success());
    let w = drop_victim(&db, &mut c, &notices);
    let code = if db.cluster.major() < 16 { "53100" } else { "XX000" };
    assert!(w.detail.contains(&format!("SQLSTATE {code}")), "{w:?}");
    assert_eq!(missing(&mut c), 1);
    drop(c);
    let mut c = db.connect();
    exec(&mut c, "CREATE TABLE afterwards (x int); DROP TABLE afterwards");
    dropped(&mut c, "afterwards");
}

#[test]
fn statistics_of_one_column_can_not_be_read() {
    let (db, mut c, notices) = setup();
    exec(
        &mut c,
        "CREATE TYPE mood AS ENUM ('sad', 'glad'); ALTER TABLE victim ADD COLUMN m mood; UPDATE victim SET m = 'glad'; ANALYZE victim;
         SET allow_system_table_mods = on; DELETE FROM pg_enum WHERE enumtypid = 'mood'::regtype",
    );
    let w = drop_victim(&db, &mut c, &notices);
    assert_eq!(w.message, "pgtrickle: values of public.victim were not recorded with its shape");
    assert!(
        !format!("{w:?}").contains("Oslo") && !format!("{w:?}").contains("invalid internal value"),
        "{w:?}"
    );
    let shot = dropped(&mut c, "victim");
    assert_eq!((shot.absent("m"), shot.column("m")["type"].as_str()), ("UNREADABLE", Some("public.mood")));
    assert_eq!((shot.values("city").len(), shot.stats), (4, true), "the others are there");
    counted_once(&mut c, &notices);
}

#[test]
fn a_row_of_the_catalogs_is_missing() {
    let (db, mut c, notices) = setup();
    exec(
        &mut c,
        "CREATE TYPE mood AS ENUM ('sad'); CREATE TABLE damaged (id int, m mood); CREATE TABLE sound (x int);
         SET allow_system_table_mods = on; DELETE FROM pg_type WHERE oid = 'mood'::regtype",
    );
    notices.take();
    exec(&mut c, "DROP TABLE victim, damaged, sound");
    assert!(!exists(&mut db.connect(), "damaged") && !exists(&mut db.connect(), "victim"));
    let w = warning(&notices);
    assert_eq!(w.message, "pgtrickle: what public.damaged looked like was not recorded");
    assert_eq!(all_dropped(&mut c), ["public.sound", "public.victim"], "the others are there");
    assert_eq!(dropped(&mut c, "victim").values("city").len(), 4);
    counted_once(&mut c, &notices);
}

#[test]
fn a_table_of_the_catalog_of_stream_tables_is_missing() {
    let (db, mut c, _) = setup();
    people(&mut c, "second");
    people(&mut c, "third");
    exec(&mut c, "ALTER TABLE pgtrickle.pgt_dependencies RENAME TO elsewhere");
    // A session that has not read it yet.
    let (mut c, notices) = db.connect_noting();
    let degraded = |c: &mut Client, sql: &str| {
        notices.take();
        exec(c, sql);
        let all: Vec<_> = notices.take().into_iter().filter(|(severity, _)| severity == "WARNING").collect();
        assert!(
            !all.is_empty() && all.iter().all(|(_, w)| w.detail.starts_with("reason=DEGRADED")),
            "{all:#?}"
        );
    };
    degraded(&mut c, "DROP TABLE victim");
    assert!(!exists(&mut db.connect(), "victim"));
    assert_eq!(dropped(&mut c, "victim").values("city").len(), 4, "the evidence does not go with it");
    // Which tables are sources can't be told.
    exec(&mut c, "SET pg_trickle.schema_snapshots = sources");
    notices.take();
    exec(&mut c, "DROP TABLE second");
    let all: Vec<String> = notices.take().into_iter().map(|(_, w)| w.detail).collect();
    assert!(all.iter().any(|d| d.starts_with("reason=SNAPSHOT_FAILED")), "{all:#?}");
    assert_eq!(missing(&mut c), 1);
    // Without this one nothing is known to be installed.
    exec(&mut c, "ALTER TABLE pgtrickle.pgt_stream_tables RENAME TO elsewhere2");
    degraded(&mut c, "DROP TABLE third");
    assert!(!exists(&mut db.connect(), "third"));
}

#[test]
fn there_is_no_key_to_hash_with() {
    let (db, mut c, notices) = setup();
    empty(&mut c, "pgt_hash_keys");
    exec(&mut c, "SET pg_trickle.snapshot_values = hashed");
    let w = drop_victim(&db, &mut c, &notices);
    assert!(w.message.contains("values of public.victim"), "{w:?}");
    let shot = dropped(&mut c, "victim");
    assert_eq!((shot.absent("city"), shot.stats, shot.rows), ("UNREADABLE", false, Some(400)));
    let row: String = one(&mut c, "SELECT s::text FROM pgtrickle.pgt_schema_snapshots s");
    assert!(!row.contains("Oslo"), "never plain values in their place: {row}");
    counted_once(&mut c, &notices);
}

#[test]
fn what_is_missing_can_not_be_noted_either() {
    let (db, mut c, notices) = setup();
    exec(
        &mut c,
        "ALTER TABLE pgtrickle.pgt_schema_snapshots RENAME TO elsewhere; ALTER TABLE pgtrickle.pgt_capture_failures RENAME TO elsewhere2",
    );
    drop_victim(&db, &mut c, &notices);
    assert_eq!(health(&mut c).0, "FAIL");
    exec(
        &mut c,
        "ALTER TABLE pgtrickle.elsewhere RENAME TO pgt_schema_snapshots; ALTER TABLE pgtrickle.elsewhere2 RENAME TO pgt_capture_failures",
    );
    counted_once(&mut c, &notices);
    // Locked, and the lock is not given up.
    people(&mut c, "victim");
    exec(&mut c, "SET pg_trickle.snapshot_timeout = 100");
    let mut locker = db.connect();
    lock_out(&mut locker, &["pgt_schema_snapshots", "pgt_capture_failures"]);
    drop_victim(&db, &mut c, &notices);
    exec(&mut locker, "COMMIT");
    counted_once(&mut c, &notices);
    // Not even a number: the drop is done all the same, and the server log knows.
    people(&mut c, "victim");
    exec(
        &mut c,
        "ALTER TABLE pgtrickle.pgt_schema_snapshots RENAME TO elsewhere; ALTER TABLE pgtrickle.pgt_capture_failures RENAME TO elsewhere2;
         ALTER SEQUENCE pgtrickle.pgt_uncounted_failures RENAME TO elsewhere3",
    );
    drop_victim(&db, &mut c, &notices);
    assert!(db.cluster.log().contains("a missing snapshot could not be counted"));
}

#[test]
fn a_rollback_takes_back_what_was_noted() {
    let (_db, mut c, notices) = setup();
    storing_fails(&mut c, "'no'");
    notices.take();
    exec(&mut c, "BEGIN; DROP TABLE victim; ROLLBACK");
    warning(&notices);
    assert!(exists(&mut c, "victim"));
    assert_eq!((missing(&mut c), count(&mut c)), (0, 0), "nothing is missing");
    exec(
        &mut c,
        "BEGIN; SAVEPOINT s; DROP TABLE victim; ROLLBACK TO s; INSERT INTO victim VALUES (0, 'x'); COMMIT",
    );
    assert_eq!(missing(&mut c), 0);
    // The fault ends within the transaction, the first try stays undone.
    exec(&mut c, "BEGIN; DROP TABLE victim; ROLLBACK; DROP INDEX pgtrickle.fault; DROP TABLE victim");
    dropped(&mut c, "victim");
    assert_eq!(missing(&mut c), 0);
}

#[test]
fn many_tables_in_one_command() {
    let db = fresh_db();
    let (mut c, notices) = db.connect_noting();
    let tables: String = (1..=12).map(|i| format!("CREATE TABLE app.t{i:02} (x int);")).collect();
    exec(&mut c, &format!("CREATE SCHEMA app; {tables}"));
    storing_fails(&mut c, "'no'");
    notices.take();
    exec(&mut c, "DROP SCHEMA app CASCADE");
    let w = warning(&notices);
    let named = w.message.matches("app.t").count();
    assert!(named == 5 && w.message.contains("7 more"), "{w:?}");
    assert_eq!(missing(&mut c), 12, "each is counted");
    assert_eq!(one::<i64>(&mut c, "SELECT pgtrickle.forget_capture_failures()"), 12);
}

#[test]
fn a_change_of_a_source_goes_through_as_well() {
    let db = fresh_db();
    let (mut c, notices) = db.connect_noting();
    exec(&mut c, T);
    storing_fails(&mut c, "'no'");
    create(&mut c, "s", "SELECT id, v FROM t");
    assert_eq!(warnings(&notices).len(), 1, "when it becomes a source");
    exec(&mut c, "ALTER TABLE t ADD COLUMN x int, DROP COLUMN note");
    assert!(!warnings(&notices).is_empty());
    assert_eq!(right_or_suspended(&mut c, "s"), "right");
    exec(&mut c, "ALTER TABLE t DROP COLUMN v");
    assert_suspended(&mut c, "s", "COLUMN_DROPPED");
    warnings(&notices);
    exec(&mut c, "DROP TABLE t");
    warning(&notices);
    assert_suspended(&mut c, "s", "COLUMN_DROPPED");
    assert!(missing(&mut c) >= 4);
}

/// Neither dropping a table nor the baseline pass reads it: its rows are not even there.
#[test]
fn nothing_reads_the_table() {
    let cluster = Cluster::start(&Options::default());
    let mut c = cluster.connect("postgres");
    exec(&mut c, "CREATE EXTENSION pgtrickle");
    for table in ["one", "two", "three"] {
        people(&mut c, table);
    }
    let files: Vec<String> = column(
        &mut c,
        "SELECT pg_relation_filepath(oid) FROM pg_class WHERE relname IN ('one', 'one_pkey', 'two', 'two_pkey')",
    );
    assert_eq!(files.len(), 4);
    drop(c);
    cluster.stop(crate::support::Stop::Fast);
    for file in files {
        std::fs::remove_file(cluster.data_dir().join(file)).expect("the table's file");
    }
    cluster.start_again();
    let mut c = cluster.connect("postgres");
    for sql in ["SELECT * FROM one", "SELECT count(*) FROM two WHERE id = 5"] {
        assert_eq!(expect_error(&mut c, sql).sqlstate, "58P01", "{sql}");
    }
    exec(&mut c, "SELECT * FROM pgtrickle.capture_baseline()");
    exec(&mut c, "DROP TABLE one");
    let (before, shot) = (&shots_of(&mut c, "one")[0], dropped(&mut c, "one"));
    assert_eq!(before.columns, shot.columns);
    assert_eq!((shot.values("city").len(), shot.rows), (4, Some(400)));
    // And counters of tables that are alive.
    let counters = "SELECT (seq_scan, seq_tup_read, idx_scan, heap_blks_read, heap_blks_hit, idx_blks_read, idx_blks_hit)::text
        FROM pg_stat_user_tables JOIN pg_statio_user_tables USING (relid) WHERE pg_stat_user_tables.relname = 'three'";
    exec(&mut c, "SELECT pg_stat_force_next_flush()");
    let untouched: String = one(&mut c, counters);
    empty(&mut c, "pgt_schema_snapshots");
    exec(&mut c, "SELECT * FROM pgtrickle.capture_baseline(); SELECT pg_stat_force_next_flush()");
    exec(&mut c, "BEGIN; DROP TABLE three; ROLLBACK; SELECT pg_stat_force_next_flush()");
    exec(&mut c, "SELECT pg_stat_force_next_flush()");
    assert_eq!(one::<String>(&mut c, counters), untouched);
    exec(&mut c, "SELECT count(*) FROM three; SELECT pg_stat_force_next_flush()");
    assert_ne!(one::<String>(&mut c, counters), untouched, "the counters count");
}
