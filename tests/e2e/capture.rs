//! Change capture: everything that can change a row of a source is seen, once, and by nobody who should not see it.

use crate::common::*;
use crate::support::{self, Cluster, Options, fresh_db, refresh};
use postgres::Client;

fn buffered(c: &mut Client, source: &str) -> i64 {
    one(
        c,
        &format!(
            "SELECT coalesce(sum(rows), 0)::bigint FROM pgtrickle.change_buffers
             WHERE source::text = '{source}' OR source::text = 'public.{source}'"
        ),
    )
}

/// Runs each statement and expects a differential refresh of `s` after it.
fn each(c: &mut Client, statements: &[&str]) {
    for sql in statements {
        exec(c, sql);
        let done = refresh(c, "s");
        assert_ne!(done.action, "no_change", "after {sql}");
        assert_not_full(&done, sql);
    }
}

#[test]
fn updates_of_unused_columns_are_not_buffered() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE t (id int PRIMARY KEY, used int, spare text, other int);
        INSERT INTO t SELECT i, i, 'x', i FROM generate_series(1, 10) i",
    );
    create(&mut c, "s", "SELECT used, count(*) AS n FROM t GROUP BY used");
    exec(&mut c, "UPDATE t SET spare = 'y', other = other + 1");
    assert_eq!(buffered(&mut c, "t"), 0);
    assert_eq!(refresh(&mut c, "s").action, "no_change");
    exec(&mut c, "UPDATE t SET spare = 'z', used = used WHERE id < 5");
    assert_eq!(refresh(&mut c, "s").inserted, 0);
    exec(&mut c, "UPDATE t SET used = 1 WHERE id = 2");
    differential(&mut c, "s");
    // A second stream table uses more; the first does not pay for it with wrong counts.
    create(&mut c, "s2", "SELECT other, spare FROM t");
    exec(
        &mut c,
        "UPDATE t SET spare = 'w'; UPDATE t SET used = 2 WHERE id = 3; UPDATE t SET other = 0 WHERE id = 4",
    );
    differential(&mut c, "s2");
    differential(&mut c, "s");
    assert_eq!(buffered(&mut c, "t"), 0, "trimmed when both have passed");
}

#[test]
fn buffers_are_kept_until_every_consumer_has_passed() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "fast", "SELECT grp, count(*) AS n FROM t GROUP BY grp");
    create(&mut c, "slow", "SELECT id, v FROM t");
    for i in 0..3 {
        exec(&mut c, &format!("UPDATE t SET v = v + 1, grp = {i}"));
        differential(&mut c, "fast");
    }
    assert!(buffered(&mut c, "t") > 0, "the slow one still needs them");
    let row = c
        .query_one("SELECT rows > 0, bytes > 0, oldest IS NOT NULL FROM pgtrickle.change_buffers", &[])
        .expect("one buffer");
    assert!(row.get::<_, bool>(0) && row.get::<_, bool>(1) && row.get::<_, bool>(2));
    differential(&mut c, "slow");
    assert_eq!(buffered(&mut c, "t"), 0);
    // The last consumer that leaves takes the capture along.
    exec(&mut c, "SELECT pgtrickle.drop_stream_table('slow'); UPDATE t SET v = 0, grp = 1");
    differential(&mut c, "fast");
    exec(&mut c, "DROP TABLE fast");
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM pg_trigger WHERE tgrelid = 't'::regclass"), 0);
}

#[test]
fn truncate_is_noticed() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, &format!("{T}; CREATE TABLE child (id int REFERENCES t, x int)"));
    create(&mut c, "s", "SELECT grp, count(*) AS n, sum(v) AS v FROM t GROUP BY grp");
    create(&mut c, "j", "SELECT t.id, x FROM t JOIN child USING (id)");
    exec(&mut c, "INSERT INTO child SELECT id, v FROM t");
    differential(&mut c, "j");
    exec(&mut c, "BEGIN; TRUNCATE child; ROLLBACK");
    assert_eq!(refresh(&mut c, "j").action, "no_change");
    for sql in &[
            "TRUNCATE t CASCADE",
            "INSERT INTO t VALUES (1, 1, 1); TRUNCATE t, child; INSERT INTO t VALUES (2, 2, 2), (3, 2, 3)",
            "BEGIN; INSERT INTO t VALUES (4, 4, 4); SAVEPOINT a; TRUNCATE t CASCADE; INSERT INTO t VALUES (5, 5, 5);
             ROLLBACK TO a; DELETE FROM t WHERE id = 2; COMMIT",
            "BEGIN; DELETE FROM t WHERE id = 3; TRUNCATE t RESTART IDENTITY CASCADE; INSERT INTO t VALUES (3, 3, 3); COMMIT",
            "TRUNCATE t CASCADE; TRUNCATE t CASCADE; INSERT INTO t VALUES (1, 1, 1)",
    ] {
        exec(&mut c, sql);
        let done = refresh(&mut c, "s");
        // The rows that left can't be read any more: contents are computed from what is there.
        let fine = if sql.contains("ROLLBACK TO") { "differential" } else { "full" };
        assert_eq!(done.action, fine, "after {sql}: {done:?}");
    }
    refresh(&mut c, "j");
    support::assert_equal(&mut c, "j", "SELECT t.id, x FROM t JOIN child USING (id)");
}

#[test]
fn i2_a_truncate_takes_rows_that_its_own_snapshot_does_not_see() {
    let db = fresh_db();
    let (mut a, mut b) = (db.connect(), db.connect());
    exec(&mut a, T);
    create(&mut a, "s", "SELECT id, v FROM t");
    create(&mut a, "g", "SELECT grp, count(*) AS n FROM t GROUP BY grp");
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        for refresh_inside in [false, true] {
            // TRUNCATE is not MVCC-safe: what was committed after A's snapshot goes as well.
            exec(&mut a, &format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM t"));
            exec(&mut b, "INSERT INTO t SELECT 1000 + i, 1, i FROM generate_series(1, 3) i");
            exec(&mut a, "TRUNCATE t");
            if refresh_inside {
                exec(&mut a, "SELECT pgtrickle.refresh_stream_table('s')");
            }
            exec(&mut a, "COMMIT");
            for s in ["s", "g"] {
                refresh(&mut b, s);
                assert_eq!(
                    one::<i64>(&mut b, &format!("SELECT count(*) FROM {s}")),
                    0,
                    "{level}, {refresh_inside}"
                );
            }
            exec(&mut b, "INSERT INTO t SELECT i, i, i FROM generate_series(1, 5) i");
            for s in ["s", "g"] {
                refresh(&mut b, s);
            }
        }
    }
}

#[test]
fn sources_without_key_with_duplicates_and_nulls() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "CREATE TABLE b (x int, y text);
        INSERT INTO b VALUES (1, 'a'), (1, 'a'), (1, 'a'), (NULL, NULL), (NULL, NULL), (2, NULL), (NULL, 'n')");
    create(&mut c, "s", "SELECT x, y FROM b");
    create(&mut c, "d", "SELECT DISTINCT x, y FROM b");
    create(&mut c, "u", "SELECT x FROM b UNION ALL SELECT x + 1 FROM b WHERE y IS NULL");
    each(
        &mut c,
        &[
            "DELETE FROM b WHERE ctid = (SELECT min(ctid) FROM b WHERE x = 1)",
            "INSERT INTO b SELECT * FROM b",
            "UPDATE b SET y = 'b' WHERE ctid IN (SELECT ctid FROM b WHERE x = 1 LIMIT 2)",
            "UPDATE b SET x = NULL WHERE y = 'b'",
            "DELETE FROM b WHERE ctid IN (SELECT ctid FROM b WHERE x IS NULL AND y IS NULL LIMIT 1)",
            "UPDATE b SET y = NULL, x = coalesce(x, 0)",
            "DELETE FROM b",
            "INSERT INTO b VALUES (NULL, NULL), (NULL, NULL)",
        ],
    );
    refresh(&mut c, "d");
    refresh(&mut c, "u");
    exec(&mut c, "DELETE FROM b WHERE ctid = (SELECT min(ctid) FROM b)");
    assert_eq!(refresh(&mut c, "d").action, "differential");
    differential(&mut c, "u");
}

#[test]
fn replication_apply_is_seen() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id, v FROM t");
    exec(&mut c, "SET session_replication_role = replica");
    each(
        &mut c,
        &[
            "INSERT INTO t VALUES (70, 1, 1)",
            "UPDATE t SET v = 0 WHERE id < 4",
            "DELETE FROM t WHERE id = 5",
            "TRUNCATE t",
        ],
    );
    exec(&mut c, "RESET session_replication_role");
    let kinds: Vec<String> = column(
        &mut c,
        "SELECT DISTINCT tgenabled::text FROM pg_trigger WHERE tgrelid = 't'::regclass AND NOT tgisinternal",
    );
    assert_eq!(kinds, ["A"], "ENABLE ALWAYS");
}

#[test]
fn toasted_values() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE t (id int PRIMARY KEY, big text, small int);
         ALTER TABLE t ALTER big SET STORAGE EXTERNAL;
         INSERT INTO t SELECT i, repeat(md5(i::text), 1000), i FROM generate_series(1, 5) i",
    );
    create(&mut c, "s", "SELECT id, big, small FROM t");
    create(&mut c, "m", "SELECT max(big) AS big, count(*) AS n FROM t");
    each(&mut c, &["UPDATE t SET small = 0 WHERE id = 1", "UPDATE t SET big = big || 'x' WHERE id = 2"]);
    // The row and its toast are gone from the source before the refresh reads the buffer.
    exec(&mut c, "DELETE FROM t WHERE id = 3; UPDATE t SET big = 'short' WHERE id = 4");
    exec(&mut c, "VACUUM t");
    differential(&mut c, "s");
    exec(&mut c, "TRUNCATE t");
    refresh(&mut c, "s");
    refresh(&mut c, "m");
    support::assert_equal(&mut c, "m", "SELECT max(big), count(*) FROM t");
}

#[test]
fn dropped_and_generated_columns_in_the_source() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE t (gone1 text, id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, gone2 int, a int,
            doubled int GENERATED ALWAYS AS (a * 2) STORED, label text DEFAULT 'd');
         ALTER TABLE t DROP COLUMN gone1; ALTER TABLE t DROP COLUMN gone2;
         INSERT INTO t (a) SELECT i FROM generate_series(1, 5) i",
    );
    create(&mut c, "s", "SELECT id, doubled, label FROM t WHERE doubled > 2");
    each(
        &mut c,
        &[
            "INSERT INTO t (a) VALUES (10), (11)",
            "UPDATE t SET a = a + 1",
            "DELETE FROM t WHERE doubled > 20",
            "ALTER TABLE t ADD COLUMN late int DEFAULT 3; ALTER TABLE t DROP COLUMN late; UPDATE t SET a = 1 WHERE id = 2",
        ],
    );
}

#[test]
fn what_triggers_change_is_what_is_seen() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE t (id int PRIMARY KEY, v int, copies int DEFAULT 0);
         CREATE FUNCTION before_row() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN NEW.v := NEW.v * 2; RETURN CASE WHEN NEW.v > 1000 THEN NULL ELSE NEW END; END $$;
         CREATE FUNCTION after_row() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN UPDATE t SET copies = copies + 1 WHERE id <> NEW.id; RETURN NULL; END $$;
         CREATE TRIGGER a_before BEFORE INSERT OR UPDATE OF v ON t FOR EACH ROW EXECUTE FUNCTION before_row();
         CREATE TRIGGER z_after AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION after_row()",
    );
    create(&mut c, "s", "SELECT id, v, copies FROM t");
    each(
        &mut c,
        &[
            "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)",
            "INSERT INTO t VALUES (4, 600), (5, 5)",
            "UPDATE t SET v = v + 1",
            "DELETE FROM t WHERE copies > 1",
        ],
    );
}

#[test]
fn every_kind_of_writing_statement() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE p (id int PRIMARY KEY, parent int REFERENCES p ON DELETE CASCADE ON UPDATE CASCADE, v int);
         CREATE TABLE src (id int, v int); INSERT INTO src SELECT i, i FROM generate_series(1, 20) i",
    );
    create(&mut c, "s", "SELECT id, parent, v FROM p");
    create(&mut c, "pairs", "SELECT a.id, b.id AS child FROM p a JOIN p b ON b.parent = a.id");
    for sql in [
        "INSERT INTO p VALUES (1, NULL, 1), (2, 1, 2), (3, 2, 3), (4, 2, 4), (5, NULL, 5)",
        "INSERT INTO p SELECT id + 10, NULL, v FROM src",
        "INSERT INTO p VALUES (1, NULL, 100), (50, 5, 50) ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v",
        "INSERT INTO p VALUES (1, NULL, 7) ON CONFLICT DO NOTHING; INSERT INTO p VALUES (51, 5, 1)",
        "MERGE INTO p USING src ON p.id = src.id WHEN MATCHED AND src.id = 5 THEN UPDATE SET v = -1
            WHEN NOT MATCHED AND src.id < 8 THEN INSERT VALUES (src.id, 5, 0)",
        "UPDATE p SET id = 100 WHERE id = 2",
        "UPDATE p SET v = src.v FROM src WHERE src.id = p.id",
        "WITH del AS (DELETE FROM p WHERE id > 25 AND id < 50 RETURNING id, v), ins AS (INSERT INTO p SELECT id + 500, NULL, v FROM del
            RETURNING id) UPDATE p SET v = v + 1 WHERE id = 11",
        "DELETE FROM p WHERE id = 1",
        "DELETE FROM p USING src WHERE src.id + 10 = p.id AND src.v % 2 = 0",
        "DO $$ DECLARE r record; BEGIN FOR r IN SELECT id FROM p LOOP UPDATE p SET v = v + 1 WHERE id = r.id; END LOOP; END $$",
        "DECLARE cur CURSOR WITH HOLD FOR SELECT 1; CLOSE cur; BEGIN; DECLARE k CURSOR FOR SELECT * FROM p WHERE parent IS NULL FOR UPDATE;
            FETCH k; DELETE FROM p WHERE CURRENT OF k; COMMIT",
    ] {
        exec(&mut c, sql);
        let done = refresh(&mut c, "s");
        assert_eq!(done.action, "differential", "after {sql}");
        refresh(&mut c, "pairs");
    }
    let mut copy = c.copy_in("COPY p FROM STDIN").expect("copy");
    std::io::Write::write_all(&mut copy, b"900\t\\N\t1\n901\t900\t2\n").expect("copy");
    copy.finish().expect("copy");
    differential(&mut c, "s");
    differential(&mut c, "pairs");
}

#[test]
fn i2_rolled_back_work_is_never_seen_and_each_change_once() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT grp, count(*) AS n, sum(v) AS v FROM t GROUP BY grp");
    exec(&mut c, "BEGIN; DELETE FROM t; ROLLBACK");
    assert_eq!(refresh(&mut c, "s").action, "no_change");
    each(
        &mut c,
        &[
            "BEGIN; INSERT INTO t VALUES (20, 1, 1); SAVEPOINT a; INSERT INTO t VALUES (21, 1, 1); SAVEPOINT b;
             UPDATE t SET v = 0; ROLLBACK TO b; INSERT INTO t VALUES (22, 2, 2); RELEASE a; COMMIT",
            "DO $$ BEGIN INSERT INTO t VALUES (30, 3, 3); BEGIN INSERT INTO t VALUES (31, 3, 3); INSERT INTO t VALUES (30, 0, 0);
             EXCEPTION WHEN unique_violation THEN INSERT INTO t VALUES (32, 3, 3); END; END $$",
            "BEGIN; UPDATE t SET v = 1 WHERE id = 1; UPDATE t SET v = 2 WHERE id = 1; DELETE FROM t WHERE id = 1;
             INSERT INTO t VALUES (1, 1, 3); COMMIT",
        ],
    );
    assert_eq!(refresh(&mut c, "s").action, "no_change", "consumed once");
}

#[test]
fn i2_a_prepared_transaction_is_in_the_refresh_after_its_commit() {
    let cluster = Cluster::start(&Options::default().with("max_prepared_transactions = 4"));
    let mut c = cluster.connect("postgres");
    exec(&mut c, &format!("CREATE EXTENSION pgtrickle; {T}"));
    create(&mut c, "s", "SELECT id, v FROM t");
    exec(&mut c, "BEGIN; INSERT INTO t VALUES (80, 8, 8); PREPARE TRANSACTION 'one'");
    exec(&mut c, "BEGIN; INSERT INTO t VALUES (81, 8, 8); PREPARE TRANSACTION 'two'");
    exec(&mut c, "INSERT INTO t VALUES (82, 8, 8)");
    differential(&mut c, "s");
    cluster.stop(support::Stop::Fast);
    cluster.start_again();
    let mut c = cluster.connect("postgres");
    exec(&mut c, "INSERT INTO t VALUES (83, 8, 8)");
    differential(&mut c, "s");
    exec(&mut c, "COMMIT PREPARED 'one'");
    exec(&mut c, "ROLLBACK PREPARED 'two'");
    assert_eq!(differential(&mut c, "s").inserted, 1);
}

#[test]
fn writers_need_no_rights_on_pgtrickle_and_get_none() {
    let db = fresh_db();
    let mut c = db.connect();
    let role = db.create_role("app");
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id, v FROM t");
    exec(&mut c, &format!("GRANT INSERT, UPDATE, DELETE, SELECT, TRUNCATE ON t TO \"{role}\""));
    let mut w = db.connect_as(&role);
    exec(
        &mut w,
        "SET search_path = ''; INSERT INTO public.t VALUES (90, 1, 1); UPDATE public.t SET v = 0 WHERE id = 1",
    );
    exec(&mut w, "DELETE FROM public.t WHERE id = 2");
    exec(
        &mut w,
        "CREATE TEMP TABLE pg_class (x int); SET search_path = pg_temp, public; INSERT INTO t VALUES (91, 1, 1)",
    );
    exec(
        &mut w,
        "SET ROLE NONE; SET LOCAL search_path = DEFAULT; TRUNCATE public.t; INSERT INTO public.t VALUES (1, 1, 1)",
    );
    refresh(&mut c, "s");
    // Whose rows are buffered is none of the writers' business.
    let tables: Vec<String> = column(
        &mut c,
        &format!(
            "SELECT format('%I.%I', n.nspname, relname) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
             WHERE nspname LIKE 'pgtrickle%' AND relkind IN ('r', 'p')
                   AND has_table_privilege('{role}', c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER')"
        ),
    );
    assert!(tables.is_empty(), "writable for everybody: {tables:?}");
    exec(&mut c, "INSERT INTO t VALUES (2, 2, 424242)");
    let readable: Vec<String> = column(
        &mut c,
        &format!(
            "SELECT format('%I.%I', n.nspname, relname) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
             WHERE nspname LIKE 'pgtrickle%' AND relkind = 'r' AND has_table_privilege('{role}', c.oid, 'SELECT')"
        ),
    );
    for t in readable {
        let hits: i64 = one(&mut c, &format!("SELECT count(*) FROM {t} x WHERE x::text LIKE '%424242%'"));
        assert_eq!(hits, 0, "{t} shows source rows to everybody");
    }
}

#[test]
fn a_plain_table_that_nobody_reads_has_no_trigger() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, &format!("{T}; CREATE TABLE other (x int)"));
    create(&mut c, "s", "SELECT id FROM t");
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'other'::regclass"), 0);
    assert!(one::<i64>(&mut c, "SELECT count(*) FROM pg_trigger WHERE tgrelid = 't'::regclass") > 0);
}

#[test]
fn buffers_survive_a_crash() {
    // Unlogged buffers would be emptied by recovery, and the changes in them lost without a word.
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT grp, min(v) AS v, count(*) AS n FROM t GROUP BY grp");
    let unlogged: Vec<String> = column(
        &mut c,
        "SELECT relname::text FROM pg_class WHERE relpersistence <> 'p' AND relnamespace::regnamespace::text LIKE 'pgtrickle%'
           -- Always empty: dumps are restored through them.
           AND relname NOT LIKE '%\\_dump'",
    );
    assert!(unlogged.is_empty(), "{unlogged:?}");
}

#[test]
fn many_subtransactions_and_wide_rows() {
    let db = fresh_db();
    let mut c = db.connect();
    let columns: Vec<String> = (0..300).map(|i| format!("c{i} int")).collect();
    exec(&mut c, &format!("CREATE TABLE wide (id int PRIMARY KEY, {})", columns.join(", ")));
    create(&mut c, "s", "SELECT id, c0, c299 FROM wide WHERE c150 IS NOT NULL");
    create(&mut c, "all_of_it", "SELECT * FROM wide");
    exec(&mut c, "INSERT INTO wide (id, c0, c150) SELECT i, i, i FROM generate_series(1, 200) i");
    exec(
        &mut c,
        "DO $$ BEGIN FOR i IN 1..150 LOOP
            BEGIN UPDATE wide SET c299 = i WHERE id = i; IF i % 3 = 0 THEN RAISE EXCEPTION 'no'; END IF;
            EXCEPTION WHEN raise_exception THEN NULL; END;
         END LOOP; END $$",
    );
    differential(&mut c, "s");
    differential(&mut c, "all_of_it");
}
