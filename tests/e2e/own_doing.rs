//! A command answers for what it did itself, not for what others did meanwhile; and where nothing of ours is concerned it
//! leaves nothing of ours behind: no lock, no row.

use crate::common::*;
use crate::support::{self, fresh_db, refresh};
use postgres::Client;

/// Locks that the running transaction of `c` holds on anything of ours.
fn our_locks(c: &mut Client) -> Vec<String> {
    column(
        c,
        "SELECT l.mode || ' ' || coalesce(r.relname::text, l.locktype) FROM pg_locks l LEFT JOIN pg_class r ON r.oid = l.relation
           LEFT JOIN pg_namespace n ON n.oid = r.relnamespace
         WHERE l.pid = pg_backend_pid() AND (n.nspname LIKE 'pgtrickle%' OR l.locktype IN ('object', 'advisory')
           AND l.classid = 'pgtrickle.pgt_stream_tables'::regclass)",
    )
}

const UNRELATED: &[&str] = &[
    "CREATE TEMP TABLE fresh (x int)",
    "CREATE TABLE other (id int PRIMARY KEY, x int)",
    "ALTER TABLE filler ADD COLUMN y int",
    "ALTER TABLE filler ADD COLUMN z serial",
    "CREATE INDEX ON filler (x)",
    "CREATE VIEW ov AS SELECT 1 AS one",
    "CREATE OR REPLACE FUNCTION unrelated() RETURNS int LANGUAGE sql AS 'SELECT 2'",
    "ALTER FUNCTION unrelated() STABLE",
    "CREATE TYPE mood AS ENUM ('a')",
    "CREATE SCHEMA elsewhere",
    "COMMENT ON TABLE filler IS 'x'",
    "GRANT SELECT ON filler TO PUBLIC",
    "DROP INDEX filler_i",
    "DROP VIEW filler_v",
    "DROP FUNCTION other_function()",
];

const SETUP: &str = "CREATE TABLE filler (x int); CREATE INDEX filler_i ON filler (x); CREATE VIEW filler_v AS SELECT x FROM filler;
    CREATE FUNCTION unrelated() RETURNS int LANGUAGE sql AS 'SELECT 1'; CREATE FUNCTION other_function() RETURNS int LANGUAGE sql AS 'SELECT 1'";

#[test]
fn i6_unrelated_ddl_holds_no_lock_of_ours() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        &format!(
            "{T}; {SETUP}; CREATE FUNCTION f(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1'; CREATE VIEW v AS SELECT id FROM t"
        ),
    );
    create(&mut c, "s", "SELECT id, f(v) AS v FROM t");
    create(&mut c, "s2", "SELECT id FROM v");
    for ddl in UNRELATED {
        // The first of a session, the first after a rollback, after a caught exception, and one more.
        let mut d = db.connect();
        for _ in 0..2 {
            exec(&mut d, &format!("BEGIN; {ddl}"));
            assert_eq!(our_locks(&mut d), [] as [String; 0], "{ddl}");
            exec(&mut d, "ROLLBACK");
        }
        exec(
            &mut d,
            "BEGIN; DO $$ BEGIN BEGIN RAISE EXCEPTION 'x'; EXCEPTION WHEN raise_exception THEN NULL; END; END $$",
        );
        exec(&mut d, ddl);
        assert_eq!(our_locks(&mut d), [] as [String; 0], "after an exception: {ddl}");
        exec(&mut d, "ROLLBACK");
    }
}

#[test]
fn i6_unrelated_ddl_holds_no_lock_of_ours_while_something_is_suspended() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        &format!(
            "{T}; {SETUP}; CREATE TABLE gone (id int); CREATE FUNCTION f(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1'"
        ),
    );
    create(&mut c, "s", "SELECT id FROM gone");
    create(&mut c, "s2", "SELECT f(id) AS x FROM t");
    create(&mut c, "s3", "SELECT v FROM t");
    exec(&mut c, "DROP TABLE gone; DROP FUNCTION f(int); ALTER TABLE t DROP COLUMN v");
    for (s, word) in [("s", "SOURCE_DROPPED"), ("s2", "OBJECT_CHANGED"), ("s3", "COLUMN_DROPPED")] {
        assert_suspended(&mut c, s, word);
    }
    for ddl in UNRELATED {
        exec(&mut c, &format!("BEGIN; {ddl}"));
        assert_eq!(our_locks(&mut c), [] as [String; 0], "{ddl}");
        exec(&mut c, "ROLLBACK");
    }
    // What they need comes back, one by one.
    exec(&mut c, "CREATE TABLE gone (id int)");
    assert_ne!(status(&mut c, "s").status, "suspended");
    exec(&mut c, "CREATE FUNCTION f(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1'");
    assert_ne!(status(&mut c, "s2").status, "suspended");
    exec(&mut c, "ALTER TABLE t ADD COLUMN v int");
    assert_ne!(status(&mut c, "s3").status, "suspended");
    for s in ["s", "s2", "s3"] {
        refresh(&mut c, s);
    }
}

/// All that a command could have written about stream tables.
fn rows(c: &mut Client) -> Vec<String> {
    column(
        c,
        "SELECT s.ctid::text || s.xmin::text || coalesce(reinitialize, '') || version FROM pgtrickle.pgt_stream_tables s
         UNION ALL SELECT ctid::text || xmin::text FROM pgtrickle.pgt_dependencies
         UNION ALL SELECT ctid::text || xmin::text FROM pgtrickle.pgt_sources ORDER BY 1",
    )
}

#[test]
fn what_others_did_is_not_taken_for_this_commands_doing() {
    let db = fresh_db();
    let (mut c, mut d) = (db.connect(), db.connect());
    exec(&mut c, &format!("{T}; {SETUP}; CREATE VIEW v AS SELECT id, v FROM t"));
    create(&mut c, "s", "SELECT grp, sum(v) AS v FROM t GROUP BY grp");
    create(&mut c, "by_view", "SELECT id, v FROM v");
    for elsewhere in [
        "ANALYZE",
        "VACUUM s",
        "COMMENT ON VIEW v IS 'x'",
        "GRANT SELECT ON v, t, s TO PUBLIC",
        "CREATE INDEX ON s (v)",
        "CREATE INDEX ON t (v)",
        "CREATE INDEX CONCURRENTLY ON t (grp)",
        "ALTER TABLE t ADD COLUMN more int",
        "ALTER TABLE t SET (fillfactor = 50)",
    ] {
        for (i, ddl) in UNRELATED.iter().enumerate() {
            exec(&mut c, elsewhere.replace("more", &format!("more{i}")).as_str());
            let before = rows(&mut c);
            exec(&mut d, &format!("BEGIN; {ddl}"));
            let being_changed = "SELECT count(*) FROM pgtrickle.pgt_stream_tables
                WHERE xmax <> '0' AND pg_xact_status(xmax::text::xid8) = 'in progress'";
            assert_eq!(
                one::<i64>(&mut c, being_changed),
                0,
                "{ddl} after {elsewhere} changes a stream table"
            );
            assert_eq!(our_locks(&mut d), [] as [String; 0], "{ddl} after {elsewhere}");
            exec(&mut d, "ROLLBACK");
            exec(&mut d, "CREATE TEMP TABLE mine (x int); DROP TABLE mine");
            assert_eq!(rows(&mut c), before, "after {elsewhere}");
            if elsewhere.starts_with("CREATE") || elsewhere.starts_with("VACUUM") {
                break;
            }
        }
    }
    exec(&mut c, "UPDATE t SET v = v + 1");
    differential(&mut c, "s");
    differential(&mut c, "by_view");
}

#[test]
fn a_flood_of_invalidations_makes_no_command_touch_everything() {
    let db = fresh_db();
    let (mut c, mut d) = (db.connect(), db.connect());
    exec(&mut c, &format!("{T}; {SETUP}"));
    create(&mut c, "s", "SELECT grp, sum(v) AS v FROM t GROUP BY grp");
    for _ in 0..3 {
        exec(&mut d, "CREATE TEMP TABLE IF NOT EXISTS mine (x int)");
        exec(
            &mut c,
            "DO $$ BEGIN FOR i IN 1..6000 LOOP EXECUTE 'ALTER TABLE filler SET (fillfactor = ' || 50 + i % 10 || ')'; END LOOP; END $$",
        );
        let before = rows(&mut c);
        exec(&mut d, "BEGIN; CREATE TABLE other (x int)");
        assert_eq!(our_locks(&mut d), [] as [String; 0]);
        exec(&mut d, "ROLLBACK");
        assert_eq!(rows(&mut c), before);
    }
    // And what it does concern is not overlooked after it.
    exec(&mut d, "ALTER TABLE t RENAME COLUMN v TO w");
    let query: String = one(&mut c, "SELECT query FROM pgtrickle.stream_tables");
    assert!(query.contains('w'), "{query}");
    exec(&mut d, "ALTER TABLE t DROP COLUMN w");
    assert_suspended(&mut c, "s", "COLUMN_DROPPED");
}

#[test]
fn a_transaction_with_a_flood_of_its_own_follows_all_of_it() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        &format!(
            "{T}; {SETUP}; CREATE TABLE p (id int, v int) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100)"
        ),
    );
    create(&mut c, "s", "SELECT id, v FROM t");
    create(&mut c, "of_parts", "SELECT id, v FROM p");
    exec(
        &mut c,
        "DO $$ BEGIN
           FOR i IN 1..11000 LOOP EXECUTE 'ALTER TABLE filler SET (fillfactor = ' || 50 + i % 10 || ')'; END LOOP;
           ALTER TABLE t DROP COLUMN v; ALTER TABLE p DROP COLUMN v; END $$",
    );
    assert_suspended(&mut c, "s", "COLUMN_DROPPED");
    assert_suspended(&mut c, "of_parts", "COLUMN_DROPPED");
}

#[test]
fn i3_names_that_were_tried_and_rolled_back_are_forgotten() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id, v FROM t");
    for end in ["ROLLBACK", "SAVEPOINT x; ROLLBACK TO x; ROLLBACK", "COMMIT"] {
        exec(&mut c, "BEGIN; SAVEPOINT a; CREATE TABLE u (id int, v int)");
        create(&mut c, "su", "SELECT id, v FROM u");
        exec(&mut c, "ALTER TABLE u ADD COLUMN w int; ROLLBACK TO a; CREATE TABLE u (id int, v int)");
        create(&mut c, "su", "SELECT id, v FROM u");
        exec(&mut c, end);
        exec(&mut c, "ALTER TABLE t ADD COLUMN IF NOT EXISTS w int");
    }
    exec(
        &mut c,
        "ALTER TABLE u RENAME COLUMN v TO w; INSERT INTO u VALUES (1, 1); ALTER TABLE su RENAME TO moved",
    );
    refresh(&mut c, "moved");
    support::assert_equal(&mut c, "moved", "SELECT id, w FROM u");
    exec(&mut c, "ALTER TABLE u DROP COLUMN w");
    assert_suspended(&mut c, "moved", "COLUMN_DROPPED");
}
