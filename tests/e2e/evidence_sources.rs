//! Snapshots of sources, what leaves none, and rolled-back and concurrent drops.

use crate::common::*;
use crate::evidence::*;
use crate::support::{TestDb, db_error, expect_error, fresh_db};
use postgres::Client;
use std::thread;

/// (reason, moment, names of columns, statistics are there) of each snapshot of `t`.
fn line(c: &mut Client) -> Vec<String> {
    shots_of(c, "t")
        .iter()
        .map(|s| {
            let moment = s.moment.clone().unwrap_or_else(|| "-".into());
            format!("{} {moment} {} {}", s.reason, s.names().join(","), s.stats)
        })
        .collect()
}

#[test]
fn when_a_table_becomes_a_source() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, &format!("{T}; ANALYZE t"));
    create(&mut c, "s", "SELECT id, v FROM t");
    assert_eq!(line(&mut c), ["source - id,grp,v,note true"]);
    let shot = &shots_of(&mut c, "t")[0];
    assert_eq!((shot.alive, shot.tag.as_deref(), shot.rows), (true, Some("CREATE STREAM TABLE"), Some(10)));
    assert!(shot.statement.as_deref().is_some_and(|s| s.contains("create_stream_table")), "{shot:#?}");
    create(&mut c, "again", "SELECT id, note FROM t");
    assert_eq!(line(&mut c).len(), 1, "it is a source already");
    exec(&mut c, "SELECT pgtrickle.drop_stream_table('s'); SELECT pgtrickle.drop_stream_table('again')");
    create(&mut c, "anew", "SELECT id, note FROM t");
    assert_eq!(line(&mut c).len(), 2, "it became a source once more");
}

#[test]
fn before_and_after_each_change_of_a_source() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id, v FROM t");
    let mut expected = vec!["source - id,grp,v,note false"];
    assert_eq!(line(&mut c), expected);
    // Nothing changed since: the newest snapshot is the one before this command.
    exec(&mut c, "ALTER TABLE t ADD COLUMN x int");
    expected.push("change after id,grp,v,note,x false");
    assert_eq!(line(&mut c), expected);
    // There are statistics since.
    exec(&mut c, "ANALYZE t");
    assert_eq!(line(&mut c), expected);
    exec(&mut c, "ALTER TABLE t DROP COLUMN grp");
    expected.extend(["change before id,grp,v,note,x true", "change after id,v,note,x true"]);
    assert_eq!(line(&mut c), expected);
    exec(&mut c, "ALTER TABLE t RENAME COLUMN note TO remark");
    expected.push("change after id,v,remark,x true");
    assert_eq!(line(&mut c), expected);
    // The values are others, the shape is the same.
    exec(&mut c, "UPDATE t SET remark = 'all alike'; ANALYZE t; ALTER TABLE t DROP x");
    expected.extend(["change before id,v,remark,x true", "change after id,v,remark true"]);
    assert_eq!(line(&mut c), expected);
    let all = shots_of(&mut c, "t");
    let [.., before, after] = all.as_slice() else { panic!("{all:#?}") };
    assert_eq!(before.values("remark"), ["all alike"], "the profile is that of the moment");
    assert_eq!((before.tag.as_deref(), before.alive, after.alive), (Some("ALTER TABLE"), true, true));
    assert_eq!(before.statement, after.statement);
    // What changes no shape, what is undone, and what is no source.
    exec(
        &mut c,
        "ALTER TABLE t ALTER COLUMN v SET STATISTICS 50; COMMENT ON TABLE t IS 'c'; BEGIN; ALTER TABLE t ADD y int; ROLLBACK;
         CREATE TABLE other (x int); ALTER TABLE other ADD y int",
    );
    assert_eq!(line(&mut c), expected);
    assert!(shots_of(&mut c, "other").is_empty());
    assert_eq!(right_or_suspended(&mut c, "s"), "right");
}

#[test]
fn changes_of_every_kind() {
    let db = fresh_db();
    let mut c = db.connect();
    let role = db.create_role("heir");
    exec(
        &mut c,
        &format!(
            "{T}; CREATE SCHEMA app; CREATE TABLE p (id int NOT NULL, v int) PARTITION BY LIST (v);
        CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1); CREATE TABLE p2 (id int NOT NULL, v int);
             INSERT INTO p SELECT i, 1 FROM generate_series(1, 9) i; INSERT INTO p2 SELECT i, 2 FROM generate_series(1, 9) i"
        ),
    );
    create(&mut c, "s", "SELECT id, v FROM t");
    create(&mut c, "sp", "SELECT id, v FROM p");
    let kinds = [
        ("t", "ALTER TABLE t ALTER COLUMN v TYPE bigint"),
        ("t", "ALTER TABLE t ALTER COLUMN note SET DEFAULT 'n'"),
        ("t", "ALTER TABLE t ALTER COLUMN note SET NOT NULL"),
        ("t", "ALTER TABLE t ADD CONSTRAINT positive CHECK (id > 0)"),
        ("t", "CREATE INDEX some_index ON t (note)"),
        ("t", "DROP INDEX some_index"),
        ("t", "ALTER TABLE t REPLICA IDENTITY FULL"),
        ("t", "ALTER TABLE t DROP CONSTRAINT t_pkey"),
        ("t", "CREATE POLICY few ON t USING (id < 5)"),
        ("t", "ALTER TABLE t ENABLE ROW LEVEL SECURITY"),
        ("t", "ALTER TABLE t DISABLE ROW LEVEL SECURITY"),
        ("t", "ALTER TABLE t OWNER TO heir"),
        ("t", "ALTER TABLE t SET SCHEMA app"),
        ("t", "ALTER SCHEMA app RENAME TO app2"),
        ("p", "ALTER TABLE p ATTACH PARTITION p2 FOR VALUES IN (2)"),
        ("p", "ALTER TABLE p DETACH PARTITION p1"),
        ("p", "ALTER TABLE p ADD COLUMN extra text"),
    ];
    let mut previous = 0;
    for (table, ddl) in kinds {
        // New statistics, so that both sides are recorded.
        let name = if ddl.starts_with("ALTER SCHEMA") { "app.t" } else { table };
        exec(&mut c, &format!("UPDATE {name} SET id = id + 100"));
        exec(&mut c, &format!("ANALYZE {name}"));
        let ddl = ddl.replace("heir", &format!("\"{role}\""));
        exec(&mut c, &ddl);
        let new = shots(
            &mut c,
            &format!("snapshot_id > {previous} AND table_name = '{table}' AND reason = 'change'"),
        );
        let sides: Vec<_> = new.iter().map(|s| s.moment.clone().unwrap_or_default()).collect();
        // Row security hides statistics, so the newest snapshot is what the table was before.
        let hidden = ddl.contains("DISABLE ROW");
        assert_eq!(sides, if hidden { vec!["after"] } else { vec!["before", "after"] }, "{ddl}");
        let all = shots(&mut c, &format!("table_name = '{table}'"));
        let [.., before, after] = all.as_slice() else { panic!("{ddl}: {all:#?}") };
        assert_eq!(after.statement.as_deref(), Some(ddl.as_str()));
        assert_eq!(before.relation, after.relation, "{ddl}");
        let whole = |s: &Shot| format!("{}.{} {} {}", s.schema, s.table, s.columns, s.details);
        assert_ne!(whole(before), whole(after), "{ddl}");
        previous = after.id;
    }
    assert_eq!(missing(&mut c), 0);
}

#[test]
fn a_change_and_a_drop_in_one_statement_are_both_there() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, &format!("{T}; ANALYZE t"));
    create(&mut c, "s", "SELECT id, v FROM t");
    exec(&mut c, "DO $$ BEGIN ALTER TABLE t ADD COLUMN x int; DROP TABLE t; END $$");
    assert_eq!(
        line(&mut c),
        [
            "source - id,grp,v,note true",
            "change after id,grp,v,note,x true",
            "drop before id,grp,v,note,x true"
        ]
    );
}

#[test]
fn the_setting_counts_at_once() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        &format!(
            "{T}; CREATE TABLE p (id int, v int) PARTITION BY LIST (v);
        CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1); CREATE TABLE p2 PARTITION OF p DEFAULT"
        ),
    );
    exec(
        &mut c,
        "CREATE TABLE a (x int); CREATE TABLE b (x int); CREATE TABLE d (x int); CREATE TABLE e (x int)",
    );
    exec(&mut c, "SET pg_trickle.schema_snapshots = off");
    create(&mut c, "s", "SELECT id, v FROM t");
    exec(&mut c, "ALTER TABLE t ADD COLUMN x int; DROP TABLE a");
    assert_eq!(count(&mut c), 0, "off");
    assert_eq!(health(&mut c).1, "switched off by pg_trickle.schema_snapshots");
    create(&mut c, "sp", "SELECT id FROM p");
    exec(&mut c, "SET pg_trickle.schema_snapshots = sources; DROP TABLE b; DROP TABLE p2");
    assert_eq!(all_dropped(&mut c), ["public.p2"], "a partition of a source is part of it");
    exec(&mut c, "ALTER TABLE t DROP COLUMN x");
    assert!(line(&mut c).iter().any(|l| l.starts_with("change before")), "{:?}", line(&mut c));
    exec(&mut c, "DROP TABLE t");
    assert_eq!(all_dropped(&mut c), ["public.p2", "public.t"]);
    exec(
        &mut c,
        "BEGIN; RESET pg_trickle.schema_snapshots; DROP TABLE d; SET LOCAL pg_trickle.schema_snapshots = off; DROP TABLE e; COMMIT",
    );
    assert_eq!(
        all_dropped(&mut c),
        ["public.d", "public.p2", "public.t"],
        "all, and off within the same transaction"
    );
}

#[test]
fn who_is_watched_does_not_switch_it_off() {
    let db = fresh_db();
    let mut c = db.connect();
    let role = db.create_role("dropper");
    exec(&mut c, &format!("CREATE SCHEMA his AUTHORIZATION \"{role}\""));
    let mut his = db.connect_as(&role);
    // Before the session has loaded the library PostgreSQL takes any value of a name that it does not know.
    exec(&mut his, "SET pg_trickle.schema_snapshots = off");
    exec(&mut his, "CREATE TABLE his.a (x int); DROP TABLE his.a");
    assert_eq!(dropped(&mut c, "a").actor, role);
    for setting in ["schema_snapshots = off", "snapshot_values = plain", "snapshot_timeout = 1"] {
        let e = expect_error(&mut his, &format!("SET pg_trickle.{setting}"));
        assert_eq!(e.sqlstate, "42501", "{setting}");
    }
    // A function's own settings are set as its caller.
    exec(
        &mut his,
        "CREATE FUNCTION his.f() RETURNS void LANGUAGE plpgsql AS $$ BEGIN DROP TABLE his.b; END $$; CREATE TABLE his.b (x int)",
    );
    let e = expect_error(&mut his, "ALTER FUNCTION his.f() SET pg_trickle.schema_snapshots = off");
    assert_eq!(e.sqlstate, "42501");
    exec(&mut his, "SELECT his.f()");
    assert_eq!(dropped(&mut c, "b").actor, role);
}

#[test]
fn what_leaves_nothing() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE t (id int PRIMARY KEY, grp int, body text); INSERT INTO t SELECT i, i % 3, repeat('x', 9000) FROM generate_series(1, 9) i;
         CREATE MATERIALIZED VIEW m AS SELECT id, grp FROM t; CREATE UNIQUE INDEX m_id ON m (id);
         CREATE VIEW v AS SELECT 1 AS one; CREATE SEQUENCE q; CREATE INDEX t_grp ON t (grp); CREATE TYPE pair AS (a int, b int);
         CREATE FOREIGN DATA WRAPPER w; CREATE SERVER x FOREIGN DATA WRAPPER w; CREATE FOREIGN TABLE f (a int) SERVER x",
    );
    for statement in [
        "CREATE TEMP TABLE one (x int); DROP TABLE one",
        "CREATE TEMP TABLE two (x serial PRIMARY KEY, big text); DISCARD TEMP",
        "BEGIN; CREATE TEMP TABLE three (x int) ON COMMIT DROP; COMMIT",
        "SELECT 1 AS x INTO TEMP four; ALTER TABLE four ADD COLUMN y int; DROP TABLE four",
        "REFRESH MATERIALIZED VIEW m",
        "UPDATE t SET grp = grp + 1; REFRESH MATERIALIZED VIEW CONCURRENTLY m",
        "CLUSTER t USING t_pkey",
        "VACUUM FULL t",
        "VACUUM FULL m",
        "REINDEX TABLE t",
        "TRUNCATE t",
        "ALTER TABLE t ALTER COLUMN body TYPE varchar USING 'x' || body",
        "ALTER TABLE t SET UNLOGGED",
        "ALTER TABLE t DROP COLUMN body",
        "DROP INDEX t_grp",
        "DROP VIEW v",
        "DROP SEQUENCE q",
        "DROP MATERIALIZED VIEW m",
        "DROP TYPE pair",
        "DROP FOREIGN TABLE f",
    ] {
        // A transaction of its own for each part: VACUUM wants that.
        statement.split("; ").for_each(|part| exec(&mut c, part));
        assert_eq!(count(&mut c), 0, "{statement}");
    }
}

#[test]
fn our_own_tables_leave_nothing() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT grp, count(*) AS n, min(v) AS lo FROM t GROUP BY grp");
    exec(&mut c, "UPDATE t SET v = v + 1");
    differential(&mut c, "s");
    // Another query has other state tables.
    exec(
        &mut c,
        "SELECT pgtrickle.alter_stream_table_query('s', 'SELECT grp, count(*) AS n, max(v) AS lo FROM t GROUP BY grp')",
    );
    exec(&mut c, "SELECT pgtrickle.drop_stream_table('s'); DROP TABLE t");
    let internal: i64 = one(
        &mut c,
        "SELECT count(*) FROM pgtrickle.schema_snapshots WHERE schema_name IN ('pgtrickle', 'pgtrickle_internal', 'pg_toast')",
    );
    assert_eq!(internal, 0);
    let left: i64 =
        one(&mut c, "SELECT count(*) FROM pg_class WHERE relnamespace = 'pgtrickle_internal'::regnamespace");
    assert_eq!(left, 0, "there were some, and they were dropped");
}

#[test]
fn a_drop_that_is_rolled_back_leaves_no_row() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE a (x int); CREATE TABLE b (x int); CREATE SCHEMA app; CREATE TABLE app.c (x int)",
    );
    for undone in [
        "BEGIN; DROP TABLE a; ROLLBACK",
        "BEGIN; SAVEPOINT s; DROP SCHEMA app CASCADE; ROLLBACK TO s; COMMIT",
        "DO $$ BEGIN DROP TABLE a, b; RAISE 'no'; EXCEPTION WHEN raise_exception THEN NULL; END $$",
        "BEGIN; SAVEPOINT s; DROP TABLE b; RELEASE s; ROLLBACK",
    ] {
        exec(&mut c, undone);
        assert_eq!(count(&mut c), 0, "{undone}");
    }
    expect_error(&mut c, "DROP TABLE a, missing");
    expect_error(&mut c, "DO $$ BEGIN DROP TABLE a; PERFORM 1 / 0; END $$");
    assert_eq!(count(&mut c), 0);
    exec(
        &mut c,
        "BEGIN; SAVEPOINT s; DROP TABLE a; ROLLBACK TO s; ALTER TABLE a ADD y int; DROP TABLE a; COMMIT",
    );
    assert_eq!(dropped(&mut c, "a").names(), ["x", "y"]);
    assert_eq!(count(&mut c), 1);
}

/// Runs `waiting` in another session until it waits for a lock that `c` holds, then `release` in `c`; how it ended.
fn meet(db: &TestDb, c: &mut Client, waiting: &str, release: &str) -> Result<(), crate::support::Failure> {
    let (mut other, mut watcher) = (db.connect(), db.connect());
    let p = pid(&mut other);
    thread::scope(|s| {
        let run = s.spawn(move || other.batch_execute(waiting));
        let watched = Watched { watcher: &mut watcher, pid: p };
        wait_for_lock_wait(watched.watcher, p);
        exec(c, release);
        run.join().expect("thread").map_err(|e| db_error(&e))
    })
}

#[test]
fn two_sessions_drop_one_table() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE SCHEMA app; CREATE TABLE app.a (x int); CREATE TABLE app.b (x int); CREATE TABLE app.d (x int)",
    );
    exec(&mut c, "BEGIN; DROP TABLE app.a");
    let e = meet(&db, &mut c, "DROP TABLE app.a", "COMMIT").expect_err("it is gone");
    assert_eq!(e.message, "table \"a\" does not exist", "PostgreSQL's own error: {e:?}");
    exec(&mut c, "BEGIN; DROP TABLE app.b");
    meet(&db, &mut c, "DROP TABLE IF EXISTS app.b", "COMMIT").expect("a NOTICE");
    exec(&mut c, "CREATE TABLE app.b (x int, y int)");
    exec(&mut c, "BEGIN; DROP TABLE app.b");
    meet(&db, &mut c, "DROP TABLE app.b", "ROLLBACK").expect("the first changed its mind");
    exec(&mut c, "BEGIN; DROP TABLE app.d");
    meet(&db, &mut c, "DROP SCHEMA app CASCADE", "COMMIT").expect("the rest of the schema");
    assert_eq!(all_dropped(&mut c), ["app.a", "app.b", "app.b", "app.d"], "one row for each drop");
    assert_eq!(missing(&mut c), 0);
}

#[test]
fn what_another_session_did_before_the_lock_was_granted_is_there() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "CREATE TABLE a (x int); INSERT INTO a VALUES (1), (1)");
    exec(&mut c, "BEGIN; ALTER TABLE a ADD COLUMN y text DEFAULT 'late' NOT NULL; ANALYZE a");
    meet(&db, &mut c, "DROP TABLE a", "COMMIT").expect("the drop");
    let shot = dropped(&mut c, "a");
    assert_eq!((shot.names(), shot.values("y")), (vec!["x", "y"], vec!["late"]));
    // A snapshot that is fixed for the whole transaction does not hide it either.
    exec(&mut c, "CREATE TABLE b (x int)");
    let mut other = db.connect();
    exec(&mut other, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM b");
    // ANALYZE of nothing but the catalog: the reader's lock is in nobody's way.
    exec(&mut c, "INSERT INTO b VALUES (5), (5); ANALYZE b");
    exec(&mut other, "DROP TABLE b; COMMIT");
    assert_eq!(dropped(&mut c, "b").values("x"), ["5"]);
    assert_eq!(missing(&mut c), 0);
}
