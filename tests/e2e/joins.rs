//! Joins where both sides move.

use crate::common::*;
use crate::support::{self, fresh_db, refresh};

const J: &str = "CREATE TABLE l (id int, k int, x text); CREATE TABLE r (k int, y text);
    INSERT INTO l VALUES (1, 1, 'a'), (2, 1, 'b'), (3, 2, 'c'), (3, 2, 'c'), (4, NULL, 'd');
    INSERT INTO r VALUES (1, 'p'), (1, 'q'), (2, 'r'), (2, 'r'), (NULL, 's'), (9, 't')";

#[test]
fn both_inputs_change_in_one_cycle() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, J);
    create_mode(&mut c, "s", "SELECT l.id, l.x, r.y FROM l JOIN r ON l.k = r.k", "differential");
    create_mode(
        &mut c,
        "g",
        "SELECT r.y, count(*) AS n, max(l.x) AS x FROM l JOIN r ON l.k = r.k GROUP BY r.y",
        "differential",
    );
    for change in [
        "INSERT INTO l VALUES (5, 9, 'e'); INSERT INTO r VALUES (9, 'u')",
        "DELETE FROM l WHERE id = 5; DELETE FROM r WHERE k = 9",
        "UPDATE l SET k = k + 1; UPDATE r SET k = k + 1",
        "UPDATE l SET k = 7 WHERE k = 2; INSERT INTO r VALUES (7, 'v'), (7, 'v')",
        "UPDATE l SET k = 8; UPDATE r SET k = 8; UPDATE l SET x = 'z' WHERE id = 1",
        "DELETE FROM l; INSERT INTO r VALUES (8, 'w')",
        "INSERT INTO l VALUES (1, 8, 'a'); DELETE FROM r",
        "TRUNCATE l, r; INSERT INTO l VALUES (1, 1, 'a'); INSERT INTO r VALUES (1, 'p')",
    ] {
        exec(&mut c, change);
        for s in ["s", "g"] {
            assert_not_full(&refresh(&mut c, s), change);
        }
    }
}

#[test]
fn three_inputs_change_in_one_cycle() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        &format!(
            "{J}; CREATE TABLE m (y text, z int); INSERT INTO m VALUES ('p', 1), ('q', 2), ('r', 3), ('r', 4)"
        ),
    );
    create_mode(
        &mut c,
        "s",
        "SELECT l.id, m.z FROM l JOIN r ON l.k = r.k JOIN m ON m.y = r.y AND m.z <> l.id",
        "differential",
    );
    for change in [
        "INSERT INTO l VALUES (6, 1, 'f'); INSERT INTO r VALUES (1, 'r'); INSERT INTO m VALUES ('p', 6), ('r', 7)",
        "UPDATE l SET k = 3 - k; UPDATE r SET k = 3 - k; UPDATE m SET z = z + 1",
        "DELETE FROM m WHERE z = 2; DELETE FROM l WHERE id = 1; INSERT INTO r SELECT * FROM r",
        "UPDATE r SET y = 'p'; UPDATE m SET y = 'p'",
        "DELETE FROM r WHERE k = 1; DELETE FROM m WHERE z > 4; UPDATE l SET id = id + 10",
    ] {
        exec(&mut c, change);
        differential(&mut c, "s");
    }
}

#[test]
fn five_tables() {
    let db = fresh_db();
    let mut c = db.connect();
    for t in ["t1", "t2", "t3", "t4", "t5"] {
        exec(
            &mut c,
            &format!(
                "CREATE TABLE {t} (k int, v int); INSERT INTO {t} SELECT i % 4, i FROM generate_series(1, 8) i"
            ),
        );
    }
    create_mode(
        &mut c,
        "s",
        "SELECT t1.v AS a, t2.v AS b, t3.v AS c, t4.v AS d, t5.v AS e FROM t1 JOIN t2 USING (k) JOIN t3 USING (k) JOIN t4 USING (k)
            JOIN t5 ON t5.k = t1.k AND t5.v > t4.v",
        "differential",
    );
    for change in [
        "UPDATE t1 SET v = 100 WHERE v = 1; UPDATE t3 SET k = 0 WHERE v = 3; UPDATE t5 SET v = v + 1",
        "DELETE FROM t2 WHERE k = 1; INSERT INTO t4 VALUES (1, 1); INSERT INTO t1 VALUES (1, 1)",
        "UPDATE t1 SET k = 2; UPDATE t2 SET k = 2 WHERE v < 4; UPDATE t3 SET k = 2 WHERE v < 3; UPDATE t4 SET k = 2 WHERE v < 2",
    ] {
        exec(&mut c, change);
        differential(&mut c, "s");
    }
}

#[test]
fn a_self_join_whose_table_changes_on_both_sides() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE e (id int PRIMARY KEY, boss int, pay int);
        INSERT INTO e SELECT i, i / 2, i * 100 FROM generate_series(1, 12) i",
    );
    create_mode(
        &mut c,
        "s",
        "SELECT w.id, b.id AS boss, b.pay - w.pay AS gap FROM e w JOIN e b ON w.boss = b.id",
        "differential",
    );
    create_mode(
        &mut c,
        "t",
        "SELECT a.id, z.id AS z FROM e a JOIN e b ON a.boss = b.id JOIN e z ON b.boss = z.id",
        "differential",
    );
    create_mode(
        &mut c,
        "n",
        "SELECT a.id, count(*) AS richer FROM e a JOIN e b ON b.pay > a.pay GROUP BY a.id",
        "differential",
    );
    for change in [
        "UPDATE e SET pay = pay + 1",
        "UPDATE e SET boss = 1 WHERE id > 8; UPDATE e SET pay = 0 WHERE id = 1",
        "DELETE FROM e WHERE id IN (2, 3); INSERT INTO e VALUES (2, 2, 5)",
        "UPDATE e SET id = id + 100, boss = boss + 100",
        "UPDATE e SET boss = id",
        "INSERT INTO e SELECT id + 1000, boss, pay FROM e",
        "DELETE FROM e",
    ] {
        exec(&mut c, change);
        for s in ["s", "t", "n"] {
            let done = refresh(&mut c, s);
            assert!(
                ["differential", "no_change"].contains(&done.action.as_str()),
                "{s} after {change}: {done:?}"
            );
        }
    }
}

#[test]
fn a_foreign_key_cascade_that_touches_both_sides_in_one_statement() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE o (id int PRIMARY KEY, name text);
         CREATE TABLE i (id int PRIMARY KEY, o int REFERENCES o ON DELETE CASCADE ON UPDATE CASCADE, q int);
         INSERT INTO o SELECT k, 'o' || k FROM generate_series(1, 5) k; INSERT INTO i SELECT k, 1 + k % 5, k FROM generate_series(1, 20) k",
    );
    create_mode(
        &mut c,
        "s",
        "SELECT o.name, sum(i.q) AS q, count(*) AS n FROM o JOIN i ON i.o = o.id GROUP BY o.name",
        "differential",
    );
    create_mode(&mut c, "flat", "SELECT o.id, i.id AS item FROM o JOIN i ON i.o = o.id", "differential");
    for change in [
        "UPDATE o SET id = id + 100 WHERE id = 2",
        "DELETE FROM o WHERE id = 1",
        "UPDATE o SET id = id + 1000, name = name || '!'",
        "TRUNCATE o CASCADE",
    ] {
        exec(&mut c, change);
        for s in ["s", "flat"] {
            assert_not_full(&refresh(&mut c, s), change);
        }
    }
}

#[test]
fn duplicates_multiply_and_nulls_never_match() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, J);
    create_mode(&mut c, "s", "SELECT l.x, r.y FROM l JOIN r ON l.k = r.k", "differential");
    create_mode(&mut c, "n", "SELECT l.x, r.y FROM l JOIN r ON l.k IS NOT DISTINCT FROM r.k", "differential");
    create_mode(&mut c, "neq", "SELECT l.x, r.y FROM l JOIN r ON l.k <> r.k", "differential");
    for change in [
        "INSERT INTO l SELECT * FROM l; INSERT INTO r SELECT * FROM r",
        "DELETE FROM r WHERE ctid = (SELECT min(ctid) FROM r WHERE k = 2)",
        "UPDATE l SET k = NULL WHERE id = 3",
        "UPDATE r SET k = 1 WHERE k IS NULL",
        "DELETE FROM l WHERE ctid IN (SELECT min(ctid) FROM l GROUP BY id)",
    ] {
        exec(&mut c, change);
        for s in ["s", "n", "neq"] {
            let done = refresh(&mut c, s);
            assert!(
                ["differential", "no_change"].contains(&done.action.as_str()),
                "{s} after {change}: {done:?}"
            );
        }
    }
}

#[test]
fn joins_of_aggregates_and_streams() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, J);
    create_mode(&mut c, "cnt", "SELECT k, count(*) AS n FROM l GROUP BY k", "differential");
    create_mode(
        &mut c,
        "s",
        "SELECT cnt.k, cnt.n, g.m, r.y FROM cnt JOIN (SELECT k, max(y) AS m FROM r GROUP BY k) g ON g.k = cnt.k JOIN r ON r.k = cnt.k",
        "differential",
    );
    for change in [
        "INSERT INTO l VALUES (7, 9, 'x'); INSERT INTO r VALUES (9, 'zz')",
        "DELETE FROM r WHERE y IN ('zz', 'q'); UPDATE l SET k = 9 WHERE id = 1",
        "UPDATE r SET y = 'm' WHERE k = 1; DELETE FROM l WHERE k = 2; INSERT INTO l VALUES (8, 2, 'y')",
        "TRUNCATE l",
        "INSERT INTO l SELECT i, i % 10, 'n' FROM generate_series(1, 30) i",
    ] {
        exec(&mut c, change);
        assert_not_full(&refresh(&mut c, "s"), change);
        support::assert_up_to_date(&mut c, "cnt");
    }
}
