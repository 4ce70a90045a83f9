//! Buffers and state: what they hold, who reaches them, and what they stand in the way of.

use crate::common::*;
use crate::support::{self, assert_up_to_date, expect_error, fresh_db, refresh};
use postgres::Client;

/// The buffer of a source, qualified.
fn buffer(c: &mut Client, source: &str) -> String {
    one(c, &format!("SELECT 'pgtrickle_internal.changes_' || '{source}'::regclass::oid"))
}

fn buffered(c: &mut Client, source: &str) -> i64 {
    let buffer = buffer(c, source);
    one(c, &format!("SELECT count(*) FROM {buffer}"))
}

/// All stream tables after a refresh each, by name.
fn differential_each(c: &mut Client, names: &[&str]) {
    for name in names {
        differential(c, name);
    }
}

#[test]
fn side_tables_have_base_types_and_nobody_has_rights_on_them() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE DOMAIN small AS int;
         CREATE TABLE t (id int PRIMARY KEY, m mood, d small); INSERT INTO t VALUES (1, 'sad', 1), (2, 'glad', 2)",
    );
    create(&mut c, "s", "SELECT m, max(d) AS d, count(*) AS n FROM t GROUP BY m");
    let types: Vec<String> = column(
        &mut c,
        "SELECT DISTINCT format_type(atttypid, NULL) FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
         WHERE relnamespace = 'pgtrickle_internal'::regnamespace AND relkind <> 'i' AND attnum > 0 ORDER BY 1",
    );
    assert_eq!(types, ["bigint", "bytea", "integer", "xid8"]);
    let granted: Vec<String> = column(
        &mut c,
        "SELECT relname::text FROM pg_class c, aclexplode(relacl) a
         WHERE relnamespace = 'pgtrickle_internal'::regnamespace AND a.grantee <> c.relowner",
    );
    assert_eq!(granted, Vec::<String>::new());
    // Not even a superuser writes to them by accident.
    let buffer = buffer(&mut c, "t");
    for sql in [
        format!("INSERT INTO {buffer} VALUES ('1', 0, 1, '')"),
        format!("DELETE FROM {buffer}"),
        format!("TRUNCATE {buffer}"),
    ] {
        assert_eq!(expect_error(&mut c, &sql).sqlstate, "42809", "{sql}");
    }
}

#[test]
fn the_functions_of_a_refresh_refuse_everybody_else() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT grp, sum(v) AS v FROM t GROUP BY grp");
    exec(&mut c, "UPDATE t SET v = v + 1");
    let role = db.create_role("reader");
    let mut r = db.connect_as(&role);
    let t: u32 = one(&mut c, "SELECT 't'::regclass::oid");
    let state: u32 = one(&mut c, "SELECT oid FROM pg_class WHERE relname LIKE 'state%' AND relkind = 'm'");
    for who in [&mut r, &mut c] {
        for sql in [
            format!("SELECT * FROM pgtrickle_internal.changes({t}, '1:1:', '0', 0) AS b(c1 int, w bigint)"),
            format!("SELECT * FROM pgtrickle_internal.state({state}, NULL) AS b(sid tid, h bigint, c1 int)"),
            format!("SELECT pgtrickle_internal.write_state({state}, NULL, ROW(1::bigint, 1))"),
        ] {
            let e = expect_error(who, &sql);
            assert_eq!(e.sqlstate, "42501", "{sql}: {e:?}");
            assert!(e.detail.contains("ONLY_IN_REFRESH") && !e.hint.is_empty(), "{sql}: {e:?}");
        }
    }
    assert!(r.batch_execute(&format!("SELECT * FROM {}", buffer(&mut c, "t"))).is_err());
    assert!(
        r.batch_execute(&format!("SELECT pgtrickle_internal.own_rows('pgtrickle_internal', 'changes_{t}')"))
            .is_err()
    );
    differential(&mut c, "s");
}

#[test]
fn refreshing_all_materialized_views_takes_nothing_away() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT grp, sum(v) AS v FROM t GROUP BY grp");
    create(&mut c, "p", "SELECT id, v FROM t");
    exec(&mut c, "UPDATE t SET v = v + 1; DELETE FROM t WHERE id = 1");
    let before = buffered(&mut c, "t");
    assert!(before > 0);
    exec(
        &mut c,
        "DO $$ DECLARE m regclass; BEGIN
           FOR m IN SELECT oid FROM pg_class WHERE relkind = 'm' LOOP EXECUTE 'REFRESH MATERIALIZED VIEW ' || m; END LOOP;
         END $$",
    );
    assert_eq!(buffered(&mut c, "t"), before);
    differential_each(&mut c, &["s", "p"]);
    exec(&mut c, "UPDATE t SET v = v + 1");
    let buffer = buffer(&mut c, "t");
    exec(&mut c, &format!("VACUUM FULL {buffer}"));
    exec(&mut c, "INSERT INTO t VALUES (70, 1, 1)");
    for s in ["s", "p"] {
        refresh(&mut c, s);
    }
    // Emptied on purpose: noticed, and computed anew.
    exec(&mut c, "UPDATE t SET v = v + 1");
    exec(&mut c, &format!("REFRESH MATERIALIZED VIEW {buffer} WITH NO DATA; UPDATE t SET v = v + 1"));
    for s in ["s", "p"] {
        refresh(&mut c, s);
    }
    exec(&mut c, "UPDATE t SET v = v + 1");
    differential_each(&mut c, &["s", "p"]);
}

#[test]
fn types_checks_of_domains_pass_by_buffered_rows_and_state() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE DOMAIN d AS int; CREATE TABLE t (id int PRIMARY KEY, x d, y d);
         INSERT INTO t VALUES (1, 1, 5), (2, 2, NULL), (3, -3, 7)",
    );
    create(&mut c, "s", "SELECT id, x::int AS x FROM t");
    create(&mut c, "g", "SELECT (x > 0) AS pos, max(x)::int AS hi, count(y) AS n FROM t GROUP BY x > 0");
    // Rows that the check forbids are in the buffer, as what they were; NULL is in the state's past.
    exec(&mut c, "UPDATE t SET x = 3 WHERE id = 3; UPDATE t SET y = 6 WHERE id = 2");
    exec(&mut c, "ALTER DOMAIN d ADD CHECK (VALUE > 0)");
    exec(&mut c, "ALTER DOMAIN d SET NOT NULL");
    for s in ["s", "g"] {
        assert_ne!(right_or_suspended(&mut c, s), "refused", "{s}");
    }
    exec(&mut c, "UPDATE t SET x = 9 WHERE id = 1");
    for s in ["s", "g"] {
        right_or_suspended(&mut c, s);
    }
}

#[test]
fn types_an_enum_migration_goes_through() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE TABLE t (id int PRIMARY KEY, m mood, v int);
         INSERT INTO t VALUES (1, 'sad', 1), (2, 'glad', 2)",
    );
    // Used, and shown by neither.
    create(&mut c, "s", "SELECT id, v FROM t WHERE m = 'glad'::mood");
    create(&mut c, "g", "SELECT count(*) AS n, max(m)::text AS m FROM t");
    create(&mut c, "other", "SELECT id, v FROM t");
    exec(&mut c, "UPDATE t SET m = 'glad'");
    exec(
        &mut c,
        "BEGIN; ALTER TYPE mood RENAME TO mood_old; CREATE TYPE mood AS ENUM ('sad', 'glad', 'mad');
         ALTER TABLE t ALTER COLUMN m TYPE mood USING m::text::mood; DROP TYPE mood_old; COMMIT",
    );
    exec(&mut c, "INSERT INTO t VALUES (3, 'mad', 3)");
    for s in ["s", "g", "other"] {
        right_or_suspended(&mut c, s);
    }
    assert_active(&mut c, "other");
}

#[test]
fn hot_rows_cost_what_is_left_of_them() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE tellers (tid int PRIMARY KEY, bid int, balance int); INSERT INTO tellers SELECT i, 1, 0 FROM generate_series(1, 10) i;
         CREATE TABLE branches (bid int PRIMARY KEY, balance int); INSERT INTO branches VALUES (1, 0)",
    );
    create(
        &mut c,
        "s",
        "SELECT t.tid, t.balance, b.bid, b.balance AS total FROM tellers t JOIN branches b USING (bid)",
    );
    exec(
        &mut c,
        "DO $$ BEGIN FOR i IN 1..20000 LOOP
           UPDATE tellers SET balance = balance + i WHERE tid = 1 + i % 10; UPDATE branches SET balance = balance + i;
         END LOOP; END $$",
    );
    assert_eq!(buffered(&mut c, "tellers"), 20_000);
    // Unconsolidated, the two deltas alone join to 800 million rows.
    let done = differential(&mut c, "s");
    assert!(done.inserted + done.updated + done.deleted <= 20, "{done:?}");
    exec(&mut c, "UPDATE tellers SET balance = balance + 1; UPDATE tellers SET balance = balance - 1");
    let done = differential(&mut c, "s");
    assert_eq!((done.inserted, done.updated, done.deleted), (0, 0, 0), "{done:?}");
}

#[test]
fn rows_of_every_make() {
    let db = fresh_db();
    let mut c = db.connect();
    let wide: Vec<String> = (1..=300).map(|i| format!("w{i} int DEFAULT {i}")).collect();
    exec(
        &mut c,
        &format!(
            "CREATE TYPE pair AS (a int, b text);
             CREATE TABLE t (id int PRIMARY KEY, gone int, b bool, s smallint, r real, d float8, \"c\" \"char\", n name, u uuid,
                             ar text[], j jsonb, rg int4range, iv interval, p pair, big text, x numeric, gone2 text,
                             vc varchar(5), ch char(4), ci text COLLATE \"C\", {});
             ALTER TABLE t ALTER big SET STORAGE EXTERNAL; ALTER TABLE t DROP gone, DROP gone2;
             INSERT INTO t (id) VALUES (0)",
            wide.join(", ")
        ),
    );
    let all = "id, b, s, r, d, c, n, u, ar, j, rg, iv, p, big, x, vc, ch, ci, w1, w150, w300";
    create(&mut c, "s", &format!("SELECT {all} FROM t"));
    create(
        &mut c,
        "g",
        "SELECT ci, ch, max(vc) AS vc, max(big) AS big, sum(x) AS x, count(*) AS n FROM t GROUP BY ci, ch",
    );
    let row = |id: i32| {
        format!(
            "INSERT INTO t ({all}) VALUES ({id}, true, -1, 'NaN', -0.0, 'x', 'a name', gen_random_uuid(), ARRAY['a', NULL, 'b'],
              '{{\"a\": [1, 2]}}', '[1,5)', '1 mon -1 day', ROW(1, 'two'), repeat(md5('{id}'), 5000), 1.50, 'vc', 'ch', 'ci', NULL, 2, 3)"
        )
    };
    exec(&mut c, &row(1));
    exec(&mut c, &row(2));
    differential_each(&mut c, &["s", "g"]);
    // Out of line on one side, changed in one byte, gone and back, and in another order of columns.
    for sql in [
        "UPDATE t SET big = big || 'x' WHERE id = 1",
        "UPDATE t SET s = NULL, b = NULL, ar = NULL, big = NULL, x = 1.5000 WHERE id = 2",
        "DELETE FROM t WHERE id = 1",
        "UPDATE t SET w300 = 4, p = ROW(NULL, NULL), ch = '', ci = ''",
        "ALTER TABLE t ADD COLUMN late int DEFAULT 7; UPDATE t SET late = 8, w1 = 8",
    ] {
        exec(&mut c, sql);
        for s in ["s", "g"] {
            assert_not_full(&refresh(&mut c, s), sql);
        }
        assert_printed_equal(&mut c, "s", &format!("SELECT {all} FROM t"));
    }
}

#[test]
fn the_write_path_goes_on_when_the_buffer_is_gone() {
    let db = fresh_db();
    let (mut c, mut w) = (db.connect(), db.connect());
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id, v FROM t");
    // The writer has its route, and the buffer goes behind its back.
    exec(&mut w, "INSERT INTO t VALUES (50, 5, 5)");
    let buffer = buffer(&mut c, "t");
    exec(&mut w, "BEGIN; SELECT count(*) FROM t");
    exec(
        &mut c,
        &format!(
            "ALTER EXTENSION pgtrickle DROP MATERIALIZED VIEW {buffer}; DROP MATERIALIZED VIEW {buffer}"
        ),
    );
    exec(
        &mut w,
        "INSERT INTO t VALUES (51, 5, 5); UPDATE t SET v = 0 WHERE id = 50; DELETE FROM t WHERE id = 1; COMMIT",
    );
    let done = refresh(&mut c, "s");
    assert_ne!(done.action, "no_change", "what was not captured is noticed");
    exec(&mut w, "INSERT INTO t VALUES (52, 5, 5)");
    differential(&mut c, "s");
}

#[test]
fn what_a_role_may_no_longer_read_is_not_shown() {
    let db = fresh_db();
    let mut c = db.connect();
    let role = db.create_role("owner");
    exec(
        &mut c,
        &format!(
            "{T}; CREATE SCHEMA own AUTHORIZATION \"{role}\"; GRANT SELECT, TRIGGER ON t TO \"{role}\";
             CREATE FUNCTION public.peek(oid) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'"
        ),
    );
    let mut a = db.connect_as(&role);
    exec(&mut a, &create_call("own.s", "SELECT id, v FROM t", "auto"));
    exec(&mut a, &create_call("own.g", "SELECT grp, sum(v) AS v FROM t GROUP BY grp", "auto"));
    exec(&mut c, "UPDATE t SET v = 777 WHERE id = 1");
    exec(&mut c, &format!("REVOKE SELECT ON t FROM \"{role}\"; GRANT SELECT (id, grp) ON t TO \"{role}\""));
    for s in ["own.s", "own.g"] {
        let e = expect_error(&mut a, &format!("SELECT pgtrickle.refresh_stream_table('{s}')"));
        assert_eq!(e.sqlstate, "42501", "{s}: {e:?}");
        assert_eq!(one::<i64>(&mut c, &format!("SELECT count(*) FROM {s} WHERE v >= 777")), 0, "{s}");
    }
    // The columns that are used are enough.
    exec(&mut c, &format!("GRANT SELECT (v) ON t TO \"{role}\""));
    for s in ["own.s", "own.g"] {
        refresh(&mut c, s);
    }
    exec(&mut c, "UPDATE t SET v = 778 WHERE id = 1");
    differential(&mut c, "own.s");
    // A policy that binds the owner only now: nothing that it hides comes out of the buffer.
    exec(&mut c, &format!("ALTER ROLE \"{role}\" BYPASSRLS; ALTER TABLE t ENABLE ROW LEVEL SECURITY"));
    for s in ["own.s", "own.g"] {
        exec(&mut c, &format!("SELECT pgtrickle.refresh_stream_table('{s}')"));
    }
    exec(&mut c, "UPDATE t SET v = 999 WHERE id = 2");
    exec(&mut c, &format!("ALTER ROLE \"{role}\" NOBYPASSRLS"));
    for s in ["own.s", "own.g"] {
        let _ = a.batch_execute(&format!("SELECT pgtrickle.refresh_stream_table('{s}')"));
        assert_eq!(one::<i64>(&mut c, &format!("SELECT count(*) FROM {s} WHERE v >= 999")), 0, "{s}");
    }
}

#[test]
fn forged_triggers_write_nothing() {
    let db = fresh_db();
    let mut c = db.connect();
    let role = db.create_role("mallory");
    exec(
        &mut c,
        &format!(
            "CREATE TABLE p (id int, k int) PARTITION BY LIST (k); CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
             CREATE TABLE p2 (k int, extra int, id int); ALTER TABLE p2 DROP extra; ALTER TABLE p ATTACH PARTITION p2 FOR VALUES IN (2);
             CREATE SCHEMA own AUTHORIZATION \"{role}\""
        ),
    );
    create(&mut c, "s", "SELECT id, k FROM p");
    let p: u32 = one(&mut c, "SELECT 'p'::regclass::oid");
    let forge = |table: &str| {
        format!(
            "CREATE TRIGGER pgtrickle_capture_{p} AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW
             EXECUTE FUNCTION pgtrickle._capture('{p}')"
        )
    };
    // On a table of one's own, plain or partitioned, or in a schema of one's own.
    let mut m = db.connect_as(&role);
    for table in ["own.t (id int, k int)", "own.q (id int, k int) PARTITION BY LIST (k)"] {
        exec(&mut m, &format!("CREATE TABLE {table}"));
    }
    exec(&mut m, "CREATE TABLE own.q1 PARTITION OF own.q DEFAULT");
    for table in ["own.t", "own.q"] {
        // Whether PostgreSQL lets him make it or not.
        let _ = m.batch_execute(&forge(table));
        exec(
            &mut m,
            &format!("INSERT INTO {table} VALUES (666, 1); UPDATE {table} SET id = 667; DELETE FROM {table}"),
        );
    }
    exec(&mut c, &forge("own.t").replace("CREATE TRIGGER", "CREATE OR REPLACE TRIGGER"));
    exec(&mut m, "INSERT INTO own.t VALUES (666, 1)");
    assert_eq!(buffered(&mut c, "p"), 0);
    // A partition that was one: its rows are not the source's any more, with a trigger left or made anew.
    exec(&mut c, "INSERT INTO p VALUES (1, 1), (2, 2)");
    differential(&mut c, "s");
    exec(&mut c, "ALTER TABLE p DETACH PARTITION p1");
    exec(&mut c, &forge("p1"));
    exec(&mut c, "INSERT INTO p1 VALUES (668, 1)");
    refresh(&mut c, "s");
    exec(
        &mut c,
        "DROP TRIGGER IF EXISTS pgtrickle_guard ON p1; INSERT INTO p2 (id, k) VALUES (3, 2); INSERT INTO p1 VALUES (669, 1)",
    );
    differential(&mut c, "s");
    assert_eq!(column::<i32>(&mut c, "SELECT id FROM s ORDER BY 1"), [2, 3]);
    // And a trigger on a partition that is no clone of the source's own: each row once.
    exec(
        &mut c,
        &format!(
            "DROP TRIGGER pgtrickle_capture_{p} ON p1; ALTER TABLE p ATTACH PARTITION p1 FOR VALUES IN (1)"
        ),
    );
    refresh(&mut c, "s");
    exec(
        &mut c,
        "INSERT INTO p VALUES (4, 1), (4, 2); UPDATE p SET k = 3 - k WHERE id = 4; DELETE FROM p WHERE id = 2",
    );
    refresh(&mut c, "s");
    assert_up_to_date(&mut c, "s");
    support::assert_equal(&mut c, "s", "SELECT id, k FROM p");
}

#[test]
fn state_of_many_groups_is_found_by_index_and_by_scan() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE t (id int PRIMARY KEY, grp int, v numeric); INSERT INTO t SELECT i, i % 3000, i FROM generate_series(1, 6000) i;
         CREATE TABLE names (grp int PRIMARY KEY, name text); INSERT INTO names SELECT i, 'n' || i FROM generate_series(0, 3000, 7) i",
    );
    create(&mut c, "s", "SELECT grp, count(*) AS n, sum(v) AS v, max(id) AS hi FROM t GROUP BY grp");
    create(
        &mut c,
        "j",
        "SELECT names.name, g.n, g.v FROM (SELECT grp, count(*) AS n, sum(v) AS v FROM t GROUP BY grp) g JOIN names USING (grp)",
    );
    for sql in [
        "UPDATE t SET v = v + 1 WHERE id = 7",
        "UPDATE t SET v = v + 1",
        "DELETE FROM t WHERE grp = 14; INSERT INTO t VALUES (9001, NULL, 1), (9002, NULL, NULL)",
        "UPDATE t SET grp = grp + 1 WHERE id % 2 = 0; UPDATE names SET name = name || '!' WHERE grp < 100",
        "DELETE FROM t WHERE grp > 100 OR grp IS NULL",
        "INSERT INTO t SELECT i, i, i FROM generate_series(20000, 24000) i",
    ] {
        exec(&mut c, sql);
        differential_each(&mut c, &["s", "j"]);
    }
    assert_printed_equal(
        &mut c,
        "s",
        "SELECT grp, count(*) AS n, sum(v) AS v, max(id) AS hi FROM t GROUP BY grp",
    );
}
