//! Stream tables over stream tables.

use crate::common::*;
use crate::support::{self, expect_error, fresh_db, refresh};
use postgres::Client;

const C: &str = "CREATE TABLE t (id int PRIMARY KEY, grp int, v int, x text);
    INSERT INTO t SELECT i, i % 5, i % 7, 'x' || i % 2 FROM generate_series(1, 40) i";

fn chain(c: &mut Client) {
    exec(c, C);
    create(c, "s1", "SELECT grp, x, count(*) AS n, sum(v) AS v, max(v) AS hi FROM t GROUP BY grp, x");
    create(
        c,
        "s2",
        "SELECT x, sum(v) AS v, min(hi) AS lo, count(*) AS groups FROM s1 WHERE n > 1 GROUP BY x",
    );
    create(c, "s3", "SELECT s1.grp, s2.v FROM s1 JOIN s2 ON s1.x = s2.x AND s1.hi >= s2.lo");
    create(c, "s4", "SELECT DISTINCT grp FROM s3 UNION ALL SELECT groups FROM s2");
}

const CHANGES: &[&str] = &[
    "UPDATE t SET v = v + 1 WHERE id < 10",
    "DELETE FROM t WHERE grp = 1",
    "INSERT INTO t SELECT i, i % 6, i, 'x2' FROM generate_series(100, 120) i",
    "UPDATE t SET x = 'x' || id % 3",
    "UPDATE t SET grp = 9 - grp WHERE id % 4 = 0; DELETE FROM t WHERE v = 3",
    "TRUNCATE t",
    "INSERT INTO t VALUES (1, 1, 1, 'a'), (2, 1, 2, 'a'), (3, 2, 3, 'b'), (4, 2, 3, 'b')",
];

#[test]
fn a_refresh_by_hand_brings_what_is_below_up_to_date_first() {
    let db = fresh_db();
    let mut c = db.connect();
    chain(&mut c);
    for sql in CHANGES {
        exec(&mut c, sql);
        let done = refresh(&mut c, "s4");
        assert_not_full(&done, sql);
        for s in ["s1", "s2", "s3", "s4"] {
            support::assert_up_to_date(&mut c, s);
        }
        // It is all done: nothing is left for the lower ones.
        for s in ["s1", "s2", "s3", "s4"] {
            assert_eq!(refresh(&mut c, s).action, "no_change", "{s} after {sql}");
        }
    }
}

#[test]
fn a_refresh_does_not_touch_what_is_above() {
    let db = fresh_db();
    let mut c = db.connect();
    chain(&mut c);
    exec(&mut c, "UPDATE t SET v = v + 100");
    let before: Vec<String> = column(&mut c, "SELECT s2::text FROM s2 ORDER BY 1");
    differential(&mut c, "s1");
    assert_eq!(column::<String>(&mut c, "SELECT s2::text FROM s2 ORDER BY 1"), before);
    differential(&mut c, "s2");
    differential(&mut c, "s3");
}

#[test]
fn several_refreshes_below_before_one_above() {
    let db = fresh_db();
    let mut c = db.connect();
    chain(&mut c);
    for sql in CHANGES {
        exec(&mut c, sql);
        assert_not_full(&refresh(&mut c, "s1"), sql);
    }
    refresh(&mut c, "s4");
    for s in ["s1", "s2", "s3", "s4"] {
        support::assert_up_to_date(&mut c, s);
    }
}

#[test]
fn a_diamond_counts_each_change_once() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, C);
    create(&mut c, "base", "SELECT grp, count(*) AS n FROM t GROUP BY grp");
    create(&mut c, "left_", "SELECT grp, n * 2 AS n FROM base WHERE n > 3");
    create(&mut c, "right_", "SELECT n, count(*) AS groups FROM base GROUP BY n");
    exec(&mut c, "CREATE VIEW between_ AS SELECT n * 2 AS n, groups FROM right_");
    create(
        &mut c,
        "top",
        "SELECT l.grp, l.n, b.groups, t.id FROM left_ l JOIN between_ b ON l.n = b.n JOIN t ON t.grp = l.grp",
    );
    for sql in CHANGES {
        exec(&mut c, sql);
        refresh(&mut c, "top");
        for s in ["base", "left_", "right_"] {
            support::assert_up_to_date(&mut c, s);
        }
    }
}

#[test]
fn a_full_one_below_and_a_differential_one_above() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, C);
    create(
        &mut c,
        "ranked",
        "SELECT id, grp, row_number() OVER (PARTITION BY grp ORDER BY v DESC, id) AS r FROM t",
    );
    create_mode(
        &mut c,
        "top1",
        "SELECT grp, count(*) AS n FROM ranked WHERE r <= 2 GROUP BY grp",
        "differential",
    );
    for sql in CHANGES {
        exec(&mut c, sql);
        let done = refresh(&mut c, "top1");
        assert_not_full(&done, sql);
        support::assert_up_to_date(&mut c, "ranked");
    }
    // A full refresh of a differential one is a change for those above as well.
    create(&mut c, "s1", "SELECT grp, sum(v) AS v FROM t GROUP BY grp");
    create(&mut c, "s2", "SELECT sum(v) AS v FROM s1");
    exec(&mut c, "UPDATE t SET v = v * 3");
    support::try_refresh(&mut c, "s1", "full").expect("full");
    refresh(&mut c, "s2");
    support::assert_equal(&mut c, "s2", "SELECT sum(v) FROM (SELECT sum(v) AS v FROM t GROUP BY grp) x");
}

#[test]
fn an_uninitialized_one_below() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, C);
    exec(
        &mut c,
        "SELECT pgtrickle.create_stream_table('s1', 'SELECT grp, sum(v) AS v FROM t GROUP BY grp', NULL, 'auto', false)",
    );
    let made = c.batch_execute(&create_call("s2", "SELECT count(*) AS n FROM s1", "auto"));
    if let Err(e) = made {
        assert!(support::db_error(&e).detail.starts_with("reason="), "{}", support::describe(&e));
        return;
    }
    refresh(&mut c, "s2");
    assert_active(&mut c, "s1");
    support::assert_equal(&mut c, "s2", "SELECT 5::bigint");
}

#[test]
fn cycles_are_refused() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, C);
    create(&mut c, "s1", "SELECT grp, count(*) AS n FROM t GROUP BY grp");
    create(&mut c, "s2", "SELECT grp, n FROM s1 WHERE n > 2");
    exec(&mut c, "CREATE VIEW v2 AS SELECT * FROM s2");
    create(&mut c, "s3", "SELECT grp, n FROM v2");
    for (st, query) in [
        ("s1", "SELECT grp, n FROM s1"),
        ("s1", "SELECT grp, n FROM s2"),
        ("s1", "SELECT grp, n FROM v2"),
        ("s1", "SELECT grp, n FROM s3"),
        ("s2", "SELECT t.grp, s3.n FROM t JOIN s3 USING (grp)"),
    ] {
        let e = assert_refused(
            &mut c,
            &format!("SELECT pgtrickle.alter_stream_table_query('{st}', {})", lit(query)),
            &["42P17", "0A000"],
        );
        assert!(e.detail.contains("CYCLE"), "{e:?}");
    }
    // A view that is redefined to read what is above it.
    let redefined = c.batch_execute("CREATE VIEW v0 AS SELECT grp, v FROM t");
    assert!(redefined.is_ok());
    create(&mut c, "low", "SELECT grp, v FROM v0");
    exec(&mut c, "CREATE OR REPLACE VIEW v0 AS SELECT grp, v FROM low");
    exec(&mut c, "UPDATE t SET v = 0");
    right_or_suspended(&mut c, "low");
    assert_eq!(expect_error(&mut c, &create_call("self", "SELECT * FROM self", "auto")).sqlstate, "42P01");
}

#[test]
fn i2_a_chain_inside_the_transaction_that_wrote_the_source() {
    let db = fresh_db();
    let mut c = db.connect();
    chain(&mut c);
    let mut tx = c.transaction().expect("begin");
    for (i, sql) in CHANGES.iter().enumerate() {
        exec(&mut tx, sql);
        refresh(&mut tx, "s4");
        for s in ["s1", "s2", "s3"] {
            support::assert_up_to_date(&mut tx, s);
        }
        let mut sub = tx.transaction().expect("savepoint");
        exec(&mut sub, &format!("UPDATE t SET v = v + {i}; DELETE FROM t WHERE id % 3 = 0"));
        refresh(&mut sub, "s4");
        if i % 2 == 0 { sub.commit() } else { sub.rollback() }.expect("end of savepoint");
    }
    tx.commit().expect("commit");
    for s in ["s1", "s2", "s3", "s4"] {
        refresh(&mut c, s);
    }
}

#[test]
fn the_sources_column_names_stream_tables_too() {
    let db = fresh_db();
    let mut c = db.connect();
    chain(&mut c);
    let mut sources: Vec<String> = column(
        &mut c,
        "SELECT unnest(sources)::text FROM pgtrickle.stream_tables WHERE stream_table = 's3'::regclass",
    );
    sources.sort();
    assert_eq!(sources, ["s1", "s2"]);
}
