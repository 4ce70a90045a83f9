//! Partitioned and inherited sources.

use crate::common::*;
use crate::support::{self, describe, fresh_db, refresh};
use postgres::Client;

const P: &str = "CREATE TABLE p (id int, region text, v int) PARTITION BY LIST (region);
    CREATE TABLE p_eu PARTITION OF p FOR VALUES IN ('eu');
    CREATE TABLE p_us (junk int, v int, id int, region text);
    ALTER TABLE p_us DROP COLUMN junk;
    ALTER TABLE p ATTACH PARTITION p_us FOR VALUES IN ('us');
    CREATE TABLE p_rest PARTITION OF p DEFAULT PARTITION BY RANGE (id);
    CREATE TABLE p_rest_low PARTITION OF p_rest FOR VALUES FROM (MINVALUE) TO (100);
    CREATE TABLE p_rest_high (v int, region text, id int);
    ALTER TABLE p_rest ATTACH PARTITION p_rest_high FOR VALUES FROM (100) TO (MAXVALUE);
    INSERT INTO p SELECT i, (ARRAY['eu', 'us', 'x', NULL])[1 + i % 4], i FROM generate_series(1, 20) i";

fn mix(c: &mut Client, streams: &[&str]) {
    for sql in [
        "INSERT INTO p VALUES (30, 'eu', 1), (31, 'us', 2), (32, 'y', 3), (150, 'y', 4)",
        "INSERT INTO p_us (id, region, v) VALUES (40, 'us', 40)",
        "UPDATE p SET v = v + 1",
        "UPDATE p_rest_high SET v = 0; UPDATE p_us SET v = -v",
        // Rows that move to another partition.
        "UPDATE p SET region = 'us' WHERE region = 'eu' AND id < 10",
        "UPDATE p SET region = 'z', id = id + 100 WHERE region = 'us' AND id > 10",
        "DELETE FROM p WHERE v % 3 = 0; DELETE FROM p_eu",
        "INSERT INTO p VALUES (1, 'eu', 1); TRUNCATE p_us",
        "TRUNCATE p; INSERT INTO p VALUES (5, 'us', 5), (6, 'q', 6), (700, NULL, 7), (8, 'eu', 8)",
    ] {
        exec(c, sql);
        for s in streams {
            let done = refresh(c, s);
            assert_not_full(&done, sql);
        }
    }
}

#[test]
fn partitions_with_other_attribute_numbers() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, P);
    create(&mut c, "s", "SELECT id, region, v FROM p");
    create(&mut c, "g", "SELECT region, count(*) AS n, sum(v) AS v, min(id) AS first FROM p GROUP BY region");
    mix(&mut c, &["s", "g"]);
}

#[test]
fn a_single_partition_as_source() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, P);
    create(&mut c, "s", "SELECT id, v FROM p_us");
    for sql in [
        "INSERT INTO p VALUES (41, 'us', 1)",
        "UPDATE p SET region = 'eu' WHERE id = 41",
        "UPDATE p SET v = v + 1 WHERE region = 'us'",
        "UPDATE p SET region = 'us' WHERE region = 'eu'",
        "DELETE FROM p WHERE id < 5",
        "TRUNCATE p",
    ] {
        exec(&mut c, sql);
        assert_not_full(&refresh(&mut c, "s"), sql);
    }
}

#[test]
fn parent_and_partition_in_one_query() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, P);
    create(&mut c, "s", "SELECT a.id, b.v FROM p a JOIN p_us b ON a.v = b.v");
    exec(&mut c, "UPDATE p SET v = 7; INSERT INTO p VALUES (1, 'us', 7), (2, 'eu', 7)");
    differential(&mut c, "s");
    exec(&mut c, "UPDATE p SET region = 'eu' WHERE region = 'us' AND id < 10");
    differential(&mut c, "s");
}

#[test]
fn a_partition_that_comes_later() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "CREATE TABLE p (id int, v int) PARTITION BY RANGE (id);
        CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10); INSERT INTO p SELECT i, i FROM generate_series(1, 9) i");
    create(&mut c, "s", "SELECT id, v FROM p");
    exec(
        &mut c,
        "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20); INSERT INTO p VALUES (11, 11), (12, 12)",
    );
    right_or_suspended(&mut c, "s");
    exec(&mut c, "UPDATE p SET v = 0 WHERE id > 5");
    right_or_suspended(&mut c, "s");
}

#[test]
fn case_9_a_partition_attached_with_rows() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "CREATE TABLE p (id int, v int) PARTITION BY RANGE (id);
        CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10); INSERT INTO p SELECT i, i FROM generate_series(1, 9) i;
        CREATE TABLE base (v int, id int); INSERT INTO base VALUES (100, 10), (110, 11)");
    create(&mut c, "s", "SELECT id, v FROM p");
    exec(&mut c, "ALTER TABLE p ATTACH PARTITION base FOR VALUES FROM (10) TO (20)");
    right_or_suspended(&mut c, "s");
    exec(
        &mut c,
        "INSERT INTO p VALUES (12, 12); INSERT INTO base VALUES (13, 13); DELETE FROM p WHERE id = 10",
    );
    right_or_suspended(&mut c, "s");
}

#[test]
fn a_partition_that_leaves() {
    let db = fresh_db();
    let mut c = db.connect();
    for (i, ddl) in [
        "ALTER TABLE p DETACH PARTITION p_us",
        "DROP TABLE p_us",
        "ALTER TABLE p DETACH PARTITION p_rest; ALTER TABLE p ATTACH PARTITION p_rest DEFAULT",
    ]
    .iter()
    .enumerate()
    {
        exec(
            &mut c,
            &format!("DROP SCHEMA IF EXISTS part CASCADE; CREATE SCHEMA part; SET search_path = part; {P}"),
        );
        let s = format!("s{i}");
        create(&mut c, &s, "SELECT id, v FROM p");
        exec(&mut c, ddl);
        exec(&mut c, "UPDATE p SET v = v + 1");
        right_or_suspended(&mut c, &s);
    }
    // Outside a transaction block, in two transactions.
    exec(&mut c, "DROP SCHEMA part CASCADE; CREATE SCHEMA part; CREATE TABLE part.q (id int, v int) PARTITION BY RANGE (id);
        CREATE TABLE part.q1 PARTITION OF part.q FOR VALUES FROM (0) TO (10); INSERT INTO part.q VALUES (1, 1)");
    create(&mut c, "part.sq", "SELECT id, v FROM part.q");
    exec(&mut c, "ALTER TABLE part.q DETACH PARTITION part.q1 CONCURRENTLY");
    right_or_suspended(&mut c, "part.sq");
}

#[test]
fn capture_does_not_forbid_attaching() {
    // Row triggers with transition tables would.
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        &format!("{P}; CREATE TABLE lone (id int, region text, v int); INSERT INTO lone VALUES (1, 'ch', 1)"),
    );
    create(&mut c, "s", "SELECT id, v FROM lone");
    exec(&mut c, "ALTER TABLE p ATTACH PARTITION lone FOR VALUES IN ('ch')");
    exec(
        &mut c,
        "INSERT INTO p VALUES (2, 'ch', 2); UPDATE lone SET v = 3; UPDATE p SET region = 'ch' WHERE region = 'eu'",
    );
    right_or_suspended(&mut c, "s");
}

#[test]
fn inheritance_is_right_or_refused() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE mother (id int, v int); CREATE TABLE daughter (extra text) INHERITS (mother);
        INSERT INTO mother VALUES (1, 1); INSERT INTO daughter VALUES (2, 2, 'x')",
    );
    match c.batch_execute(&create_call("s", "SELECT id, v FROM mother", "auto")) {
        Err(e) => {
            let e2 = support::db_error(&e);
            assert!(e2.detail.starts_with("reason=") && e2.sqlstate == "0A000", "{}", describe(&e));
        }
        Ok(()) => {
            support::assert_equal(&mut c, "s", "SELECT id, v FROM mother");
            exec(
                &mut c,
                "INSERT INTO daughter VALUES (3, 3, 'y'); UPDATE mother SET v = 9; DELETE FROM daughter WHERE id = 2",
            );
            right_or_suspended(&mut c, "s");
            exec(&mut c, "CREATE TABLE late () INHERITS (mother); INSERT INTO late VALUES (4, 4)");
            right_or_suspended(&mut c, "s");
            exec(&mut c, "INSERT INTO late VALUES (5, 5); TRUNCATE mother");
            right_or_suspended(&mut c, "s");
        }
    }
    // ONLY reads the mother alone.
    match c.batch_execute(&create_call("o", "SELECT id, v FROM ONLY mother", "auto")) {
        Err(e) => assert_eq!(support::db_error(&e).sqlstate, "0A000", "{}", describe(&e)),
        Ok(()) => {
            exec(&mut c, "INSERT INTO daughter VALUES (7, 7, 'y'); INSERT INTO mother VALUES (8, 8)");
            refresh(&mut c, "o");
            support::assert_equal(&mut c, "o", "SELECT id, v FROM ONLY mother");
        }
    }
}

#[test]
fn after_a_truncate_refreshes_and_writers_do_not_wait_for_each_other() {
    let db = fresh_db();
    let (mut c, mut w) = (db.connect(), db.connect());
    exec(&mut c, P);
    create(&mut c, "s", "SELECT id, v FROM p");
    exec(&mut c, "SET lock_timeout = '5s'; TRUNCATE p");
    exec(&mut w, "SET lock_timeout = '5s'");
    // A writer is open: the refresh does not wait for it.
    exec(&mut w, "BEGIN; INSERT INTO p VALUES (1, 'eu', 1)");
    refresh(&mut c, "s");
    exec(&mut w, "COMMIT");
    refresh(&mut c, "s");
    // A refresh is open: the writer does not wait for it.
    exec(&mut c, "TRUNCATE p");
    let mut tx = c.transaction().expect("begin");
    refresh(&mut tx, "s");
    exec(&mut w, "INSERT INTO p VALUES (2, 'us', 2); UPDATE p SET v = 3");
    tx.commit().expect("commit");
    refresh(&mut c, "s");
}
