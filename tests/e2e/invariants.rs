//! The invariants of the design that no other file's subject covers; the rest is in tests whose names begin with theirs.

use crate::common::*;
use crate::support::{self, expect_error, fresh_db, refresh};

#[test]
fn i3_identity_is_oid_and_attnum() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE t (id int PRIMARY KEY, a int, b int); INSERT INTO t SELECT i, i, -i FROM generate_series(1, 5) i",
    );
    create(&mut c, "s", "SELECT id, a FROM t");
    // Two columns of one type trade names: what was read is still what is read.
    exec(
        &mut c,
        "ALTER TABLE t RENAME a TO x; ALTER TABLE t RENAME b TO a; ALTER TABLE t RENAME x TO b; UPDATE t SET b = b + 100 WHERE id = 1",
    );
    differential(&mut c, "s");
    support::assert_equal(&mut c, "s", "SELECT id, b FROM t");
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM s WHERE a > 0"), 5);
    // Two tables trade names.
    exec(&mut c, "CREATE TABLE u (id int PRIMARY KEY, a int, b int); INSERT INTO u VALUES (77, 77, 77);
        ALTER TABLE t RENAME TO z; ALTER TABLE u RENAME TO t; ALTER TABLE z RENAME TO u; INSERT INTO t VALUES (78, 78, 78); DELETE FROM u WHERE id = 2");
    differential(&mut c, "s");
    support::assert_equal(&mut c, "s", "SELECT id, b FROM u");
    // The other table's end is none of its business.
    exec(&mut c, "DROP TABLE t");
    assert_active(&mut c, "s");
}

#[test]
fn i4_a_lost_buffer_is_not_an_empty_buffer() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT grp, sum(v) AS v FROM t GROUP BY grp");
    exec(&mut c, "UPDATE t SET v = v + 1");
    // Every plain DROP or TRUNCATE of something of ours is refused, or noticed.
    let internals: Vec<String> = column(
        &mut c,
        "SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname LIKE 'pgtrickle%' AND c.relkind = 'r' ORDER BY 1",
    );
    assert!(!internals.is_empty());
    for t in internals {
        for sql in [format!("DROP TABLE {t}"), format!("DROP TABLE {t} CASCADE")] {
            exec(&mut c, "BEGIN");
            let done = c.batch_execute(&sql);
            if done.is_ok() {
                exec(&mut c, "SAVEPOINT a");
                let still = c.query("SELECT action FROM pgtrickle.refresh_stream_table('s')", &[]);
                if let Ok(rows) = still {
                    // It may say so with a suspension, but not that there was nothing to do.
                    assert_ne!(rows[0].get::<_, String>(0), "no_change", "after {sql}");
                    support::assert_up_to_date(&mut c, "s");
                }
            }
            exec(&mut c, "ROLLBACK");
        }
    }
    differential(&mut c, "s");
}

#[test]
fn i5_capture_that_is_taken_away_is_made_again() {
    for ddl in [
        "DROP TRIGGER \"TRIGGER\" ON t",
        "ALTER TRIGGER \"TRIGGER\" ON t RENAME TO mine",
        "ALTER TABLE t DISABLE TRIGGER \"TRIGGER\"",
        "ALTER TABLE t DISABLE TRIGGER ALL",
    ] {
        let db = fresh_db();
        let mut c = db.connect();
        exec(&mut c, T);
        create(&mut c, "s", "SELECT id, v FROM t");
        let trigger: String = one(
            &mut c,
            "SELECT tgname::text FROM pg_trigger WHERE tgrelid = 't'::regclass AND NOT tgisinternal ORDER BY 1 LIMIT 1",
        );
        // The table is the user's, and so is the command.
        exec(&mut c, &ddl.replace("TRIGGER\"", &format!("{trigger}\"")));
        exec(&mut c, "UPDATE t SET v = v + 1; DELETE FROM t WHERE id = 2");
        assert_eq!(right_or_suspended(&mut c, "s"), "right", "{ddl}");
        let captured = "SELECT count(*) FROM pg_trigger WHERE tgrelid = 't'::regclass AND tgname LIKE 'pgtrickle_capture%' AND tgenabled = 'A'";
        assert_eq!(one::<i64>(&mut c, captured), 2, "{ddl}");
        exec(&mut c, "UPDATE t SET v = v + 1");
        differential(&mut c, "s");
    }
}

#[test]
fn i5_only_ddl_on_our_internals_is_refused() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT grp, sum(v) AS v FROM t GROUP BY grp");
    for (ddl, sqlstate) in [
        ("ALTER TABLE s DISABLE TRIGGER pgtrickle_guard", "55000"),
        ("ALTER TABLE s ADD COLUMN x int", "55000"),
        ("ALTER TABLE s DROP COLUMN v", "55000"),
        ("ALTER TABLE s ALTER COLUMN v TYPE text", "55000"),
        ("ALTER TABLE s SET UNLOGGED", "55000"),
        ("DROP MATERIALIZED VIEW pgtrickle.pgt_stream_tables", "2BP01"),
        ("DROP MATERIALIZED VIEW pgtrickle.pgt_tasks CASCADE", "2BP01"),
    ] {
        let e = expect_error(&mut c, ddl);
        assert_eq!(e.sqlstate, sqlstate, "{ddl}: {e:?}");
        assert!(!e.hint.is_empty(), "{ddl}: {e:?}");
    }
    exec(&mut c, "UPDATE t SET v = v + 1");
    differential(&mut c, "s");
}

#[test]
fn i7_column_order_types_and_comments_survive_a_full_refresh() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT note, id, v::numeric(8, 2) AS price FROM t");
    exec(&mut c, "COMMENT ON COLUMN s.price IS 'in euro'; CREATE INDEX s_price ON s (price)");
    let before: Vec<String> = column(
        &mut c,
        "SELECT format('%s %s', attname, format_type(atttypid, atttypmod)) FROM pg_attribute WHERE attrelid = 's'::regclass",
    );
    let oid: u32 = one(&mut c, "SELECT 's'::regclass::oid");
    exec(&mut c, "UPDATE t SET v = v + 1");
    support::try_refresh(&mut c, "s", "full").expect("full");
    assert_eq!(
        column::<String>(
            &mut c,
            "SELECT format('%s %s', attname, format_type(atttypid, atttypmod)) FROM pg_attribute WHERE attrelid = 's'::regclass"
        ),
        before
    );
    assert_eq!(one::<u32>(&mut c, "SELECT 's'::regclass::oid"), oid);
    assert!(one::<bool>(
        &mut c,
        "SELECT to_regclass('s_price') IS NOT NULL AND col_description('s'::regclass, 3) = 'in euro'"
    ));
}

#[test]
fn i8_a_dump_restores_complete_tables_and_never_a_silent_lie() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT grp, sum(v) AS v FROM t GROUP BY grp");
    exec(&mut c, "UPDATE t SET v = v + 1");
    refresh(&mut c, "s");
    let copy = format!("{}_copy", db.name);
    db.cluster.create_db(&copy);
    let dump = db.cluster.command("pg_dump").args(["-d", &db.name]).output().expect("pg_dump");
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    let file = db.cluster.home().join(format!("{copy}.sql"));
    std::fs::write(&file, &dump.stdout).expect("dump file");
    let restored =
        db.cluster.psql(&["-v", "ON_ERROR_STOP=1", "-q", "-d", &copy, "-f", file.to_str().expect("path")]);
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    let mut r = db.cluster.connect(&copy);
    support::assert_equal(&mut r, "s", "SELECT grp, sum(v) FROM t GROUP BY grp");
    exec(&mut r, "UPDATE t SET v = v + 1 WHERE id = 1; ALTER TABLE t ADD COLUMN more int");
    let known: i64 =
        one(&mut r, "SELECT count(*) FROM pgtrickle.stream_tables WHERE stream_table = 's'::regclass");
    if known == 1 {
        right_or_suspended(&mut r, "s");
    }
    drop(r);
    exec(&mut db.cluster.connect("postgres"), &format!("DROP DATABASE {copy} WITH (FORCE)"));
}

#[test]
fn errors_come_with_a_state_a_reason_and_a_hint_in_one_line() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id FROM t");
    exec(&mut c, "SELECT pgtrickle.suspend_stream_table('s')");
    for sql in [
        "SELECT pgtrickle.refresh_stream_table('s')",
        "SELECT pgtrickle.refresh_stream_table('t')",
        "DELETE FROM s",
        "SELECT pgtrickle.create_stream_table('s', 'SELECT 1 AS a')",
        "SELECT pgtrickle.create_stream_table('x', 'SELECT random() AS a FROM t')",
    ] {
        let e = expect_error(&mut c, sql);
        assert!(e.message.chars().next().is_some_and(|ch| !ch.is_uppercase()), "{e:?}");
        assert!(!e.message.ends_with('.') && !e.message.contains('\n'), "{e:?}");
        assert!(e.hint.ends_with(['.', ';']), "a hint is a sentence, or ends with what to type: {e:?}");
        assert_ne!(e.sqlstate, "XX000", "{e:?}");
        let word = e
            .detail
            .trim_start_matches("reason=")
            .split([':', '.', ' '])
            .next()
            .unwrap_or_default()
            .to_string();
        assert!(!word.is_empty() && word.chars().all(|ch| ch.is_ascii_uppercase() || ch == '_'), "{e:?}");
    }
}
