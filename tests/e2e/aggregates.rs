//! Aggregates where incremental upkeep usually goes wrong.

use crate::common::*;
use crate::support::{self, fresh_db, refresh};
use postgres::Client;

/// Runs each change, refreshes `s` and compares values as printed.
fn walk(c: &mut Client, query: &str, changes: &[&str]) {
    create_mode(c, "s", query, "differential");
    assert_printed_equal(c, "s", query);
    for change in changes {
        exec(c, change);
        let done = refresh(c, "s");
        assert_not_full(&done, change);
        assert_printed_equal(c, "s", query);
    }
}

#[test]
fn numeric_sums_and_averages_print_exactly_as_computed_afresh() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "CREATE TABLE n (g int, x numeric); INSERT INTO n VALUES (1, 1.5)");
    walk(
        &mut c,
        "SELECT g, sum(x) AS s, avg(x) AS a, count(x) AS n, sum(x)::text AS st, avg(x)::text AS at FROM n GROUP BY g",
        &[
            "INSERT INTO n VALUES (1, 0.25)",
            "INSERT INTO n VALUES (1, 1e-20)",
            "DELETE FROM n WHERE x = 1e-20",
            "DELETE FROM n WHERE x = 0.25",
            "INSERT INTO n VALUES (1, 'NaN')",
            "INSERT INTO n VALUES (1, 2)",
            "DELETE FROM n WHERE x = 'NaN'",
            "INSERT INTO n VALUES (1, 'Infinity'), (1, '-Infinity'), (2, 'Infinity')",
            "DELETE FROM n WHERE x = '-Infinity'",
            "DELETE FROM n WHERE x = 'Infinity'",
            "UPDATE n SET x = NULL",
            "INSERT INTO n VALUES (1, 0.000)",
            "UPDATE n SET x = 12345678901234567890123456789.123456789012345678901234567890 WHERE x = 0",
            "INSERT INTO n VALUES (1, 1), (1, 1), (1, 1)",
            "DELETE FROM n WHERE x > 100",
            "UPDATE n SET x = 3.00",
            "UPDATE n SET x = 3.0",
            "DELETE FROM n WHERE ctid = (SELECT min(ctid) FROM n)",
        ],
    );
}

#[test]
fn scalar_numeric_sum_keeps_the_scale_of_what_is_left() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE n (x numeric, y int); INSERT INTO n VALUES (1, 1), (1.5, 2), (1.25, 3), (1.250, 4), (10, NULL)",
    );
    walk(
        &mut c,
        "SELECT sum(x) AS s, avg(x) AS a, sum(y) AS sy, avg(y) AS ay, sum(x * y) AS xy FROM n",
        &[
            "DELETE FROM n WHERE y = 4",
            "DELETE FROM n WHERE y = 3",
            "DELETE FROM n WHERE y = 2",
            "INSERT INTO n VALUES (1e-20, 5)",
            "DELETE FROM n",
            "INSERT INTO n VALUES (NULL, NULL)",
            "INSERT INTO n VALUES ('NaN', 1)",
            "TRUNCATE n",
        ],
    );
}

#[test]
fn min_and_max_that_lose_their_extreme() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE m (id int PRIMARY KEY, g int, i int, b bigint, n numeric, d date, t timestamp, x text);
         INSERT INTO m SELECT k, k % 2, k, k * 10000000000, k + 0.5, '2024-01-01'::date + k, '2024-01-01'::timestamp + k * interval '1 hour',
            chr(96 + k) FROM generate_series(1, 12) k",
    );
    walk(
        &mut c,
        "SELECT g, min(i) AS i1, max(i) AS i2, min(b) AS b1, max(b) AS b2, min(n) AS n1, max(n) AS n2, min(d) AS d1, max(d) AS d2,
            min(t) AS t1, max(t) AS t2, min(x) AS x1, max(x) AS x2 FROM m GROUP BY g",
        &[
            "DELETE FROM m WHERE id IN (1, 2)",
            "DELETE FROM m WHERE id = 12",
            "UPDATE m SET i = 100, x = 'zz', d = 'infinity' WHERE id = 5",
            "UPDATE m SET i = 0, x = '', d = '-infinity', t = '-infinity' WHERE id = 5",
            "INSERT INTO m VALUES (50, 0, -5, -5, -5, '1990-01-01', '1990-01-01', 'A'), (51, 0, -5, -5, -5, '1990-01-01', '1990-01-01', 'A')",
            "DELETE FROM m WHERE id = 50",
            "DELETE FROM m WHERE id = 51",
            "UPDATE m SET g = 1 - g WHERE id = 11",
            "UPDATE m SET i = NULL, b = NULL, n = NULL, d = NULL, t = NULL, x = NULL WHERE g = 0",
            "UPDATE m SET i = 1 WHERE id = 4",
            "UPDATE m SET n = 'NaN' WHERE id = 7",
            "DELETE FROM m WHERE n = 'NaN'",
            "DELETE FROM m",
        ],
    );
}

#[test]
fn min_and_max_of_text_follow_the_collation() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE x (g int, c text COLLATE \"C\", u text); INSERT INTO x VALUES (1, 'b', 'b'), (1, 'A', 'A'), (1, 'ä', 'ä')",
    );
    walk(
        &mut c,
        "SELECT g, min(c) AS c1, max(c) AS c2, min(u) AS u1, max(u) AS u2 FROM x GROUP BY g",
        &[
            "INSERT INTO x VALUES (1, 'Z', 'Z'), (1, 'a', 'a')",
            "DELETE FROM x WHERE c IN ('A', 'ä')",
            "UPDATE x SET c = '', u = ''",
        ],
    );
}

#[test]
fn groups_vanish_and_reappear() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "CREATE TABLE g (k text, v int); INSERT INTO g VALUES ('a', 1), ('a', 2), (NULL, 3)");
    walk(
        &mut c,
        "SELECT k, count(*) AS n, sum(v) AS s, avg(v) AS a, min(v) AS lo FROM g GROUP BY k",
        &[
            "DELETE FROM g WHERE k = 'a'",
            "INSERT INTO g VALUES ('a', 7)",
            "DELETE FROM g WHERE k IS NULL; INSERT INTO g VALUES (NULL, 4)",
            "UPDATE g SET k = NULL",
            "UPDATE g SET k = 'b' WHERE v = 7",
            "DELETE FROM g",
            "INSERT INTO g VALUES ('a', NULL)",
            "UPDATE g SET v = 0",
            "UPDATE g SET v = NULL",
            "TRUNCATE g; INSERT INTO g VALUES ('', 1), (NULL, 1)",
        ],
    );
}

#[test]
fn scalar_aggregates_over_empty_input() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "CREATE TABLE e (v int, p numeric, x text)");
    let query =
        "SELECT count(*) AS n, count(v) AS nv, sum(v) AS s, avg(p) AS a, min(x) AS lo, max(v) AS hi FROM e";
    walk(
        &mut c,
        query,
        &[
            "INSERT INTO e VALUES (NULL, NULL, NULL)",
            "INSERT INTO e VALUES (1, 1.5, 'x')",
            "DELETE FROM e",
            "INSERT INTO e VALUES (2, 2, 'y'); DELETE FROM e",
            "INSERT INTO e VALUES (2, 2, 'y')",
            "TRUNCATE e",
        ],
    );
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM s WHERE n = 0 AND s IS NULL"), 1);
    // Nothing grouped is no row, and HAVING may hide the one row.
    create_mode(&mut c, "h", "SELECT count(*) AS n FROM e HAVING count(*) <> 1", "differential");
    for sql in ["INSERT INTO e VALUES (1, 1, '')", "INSERT INTO e VALUES (1, 1, '')", "DELETE FROM e"] {
        exec(&mut c, sql);
        refresh(&mut c, "h");
    }
    // A scalar aggregate below a join and below another aggregate.
    create_mode(
        &mut c,
        "j",
        "SELECT e.v, m.hi FROM e, (SELECT max(v) AS hi, count(*) AS n FROM e) m WHERE e.v = m.hi",
        "differential",
    );
    for sql in [
        "INSERT INTO e VALUES (1), (2)",
        "DELETE FROM e WHERE v = 2",
        "DELETE FROM e",
        "INSERT INTO e VALUES (NULL)",
    ] {
        exec(&mut c, sql);
        refresh(&mut c, "j");
    }
}

#[test]
fn float_sums_never_drift() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE f (id int PRIMARY KEY, g int, x float8, y float4); INSERT INTO f VALUES (1, 1, 0.1, 0.1), (2, 1, 0.2, 0.2)",
    );
    let query =
        "SELECT g, sum(x) AS s, avg(x) AS a, min(x) AS lo, max(y) AS hi, sum(y) AS sy FROM f GROUP BY g";
    create(&mut c, "s", query);
    for change in [
        "INSERT INTO f VALUES (3, 1, 1e30, 1e30)",
        "DELETE FROM f WHERE id = 3",
        "INSERT INTO f VALUES (4, 1, 'NaN', 'NaN'), (5, 2, 'Infinity', 'Infinity'), (6, 2, '-Infinity', 1)",
        "DELETE FROM f WHERE id IN (4, 6)",
        "DELETE FROM f WHERE id = 5; INSERT INTO f VALUES (7, 2, 1e-300, 1e-30)",
        "INSERT INTO f SELECT i, 1, 1e15 / i, i FROM generate_series(10, 20) i",
        "DELETE FROM f WHERE id >= 10",
        "UPDATE f SET x = -0.0",
    ] {
        exec(&mut c, change);
        let done = refresh(&mut c, "s");
        assert_eq!(done.action, "differential", "only the affected groups are recomputed, after {change}");
    }
    // Zero after all was taken away, not 1e-17.
    exec(&mut c, "DELETE FROM f; INSERT INTO f VALUES (1, 1, 0.1, 0.1)");
    refresh(&mut c, "s");
    assert!(one::<bool>(&mut c, "SELECT s = 0.1::float8 AND a = 0.1::float8 FROM s"));
}

#[test]
fn float_sums_above_a_join_and_in_a_chain() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE f (id int PRIMARY KEY, g int, x float8); CREATE TABLE d (g int, name text);
         INSERT INTO d VALUES (1, 'one'), (2, 'two'); INSERT INTO f SELECT i, 1 + i % 2, i / 4.0 FROM generate_series(1, 10) i",
    );
    create(
        &mut c,
        "s",
        "SELECT d.name, sum(f.x) AS x, count(*) AS n FROM f JOIN d USING (g) GROUP BY d.name",
    );
    create(&mut c, "top", "SELECT max(x) AS x FROM s WHERE n > 1");
    for change in [
        "UPDATE f SET x = x + 0.25 WHERE id = 3",
        "UPDATE d SET name = 'zwei' WHERE g = 2",
        "DELETE FROM f WHERE g = 1",
        "INSERT INTO d VALUES (2, 'twice')",
    ] {
        exec(&mut c, change);
        differential(&mut c, "top");
        support::assert_up_to_date(&mut c, "s");
    }
}

#[test]
fn large_sums_and_counts() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE l (b bigint, i int, s smallint); INSERT INTO l VALUES (9223372036854775807, 2147483647, 32767)",
    );
    walk(
        &mut c,
        "SELECT sum(b) AS b, sum(i) AS i, sum(s) AS s, avg(b) AS ab, avg(i) AS ai, avg(s) AS sa, min(s) AS s1, max(s) AS s2 FROM l",
        &[
            "INSERT INTO l SELECT l.* FROM l, generate_series(1, 9)",
            "INSERT INTO l VALUES (-9223372036854775808, -2147483648, -32768)",
            "DELETE FROM l WHERE b < 0",
            "DELETE FROM l WHERE ctid IN (SELECT ctid FROM l LIMIT 9)",
        ],
    );
}

#[test]
fn group_keys_whose_equality_is_coarser_than_identity() {
    let db = fresh_db();
    let mut c = db.connect();
    // 1.0 and 1.00 are one group; so are 0.0 and -0.0. Which of them is shown is free, how many groups there are is not.
    exec(
        &mut c,
        "CREATE TABLE k (n numeric, f float8); INSERT INTO k VALUES (1.0, 0.0), (1.00, '-0'), (1, 0)",
    );
    create(&mut c, "s", "SELECT n, count(*) AS c FROM k GROUP BY n");
    create(&mut c, "d", "SELECT DISTINCT f FROM k");
    create(&mut c, "raw", "SELECT n, f FROM k");
    for change in [
        "DELETE FROM k WHERE n::text = '1.0'",
        "INSERT INTO k VALUES (1.000, '-0'), ('NaN', 'NaN'), ('NaN', 'NaN')",
        "DELETE FROM k WHERE n::text = '1'",
        "UPDATE k SET n = 1.0000 WHERE n = 1",
        "DELETE FROM k WHERE n = 'NaN'",
        "DELETE FROM k",
    ] {
        exec(&mut c, change);
        for s in ["s", "d", "raw"] {
            assert_ne!(refresh(&mut c, s).action, "full", "{s} after {change}");
        }
    }
}

#[test]
fn group_keys_of_many_types() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TYPE pair AS (a int, b text);
         CREATE TABLE k (e mood, u uuid, j jsonb, a int[], p pair, b boolean, t timestamptz, i interval, y bytea, n inet, v varchar(5), c char(4));
         INSERT INTO k VALUES ('sad', '00000000-0000-0000-0000-000000000001', '{\"a\": 1}', '{1,NULL}', '(1,x)', true, '2024-01-01 UTC',
            '1 day', '\\x00ff', '10.0.0.1', 'v', 'c '), (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    );
    let query = "SELECT e, u, j, a, p, b, t, i, y, n, v, c, count(*) AS k FROM k GROUP BY e, u, j, a, p, b, t, i, y, n, v, c";
    walk(
        &mut c,
        query,
        &[
            "INSERT INTO k SELECT * FROM k",
            "INSERT INTO k SELECT 'ok', u, j, a, p, b, t, '24 hours', y, n, v, c FROM k WHERE e = 'sad'",
            "DELETE FROM k WHERE ctid IN (SELECT min(ctid) FROM k GROUP BY e)",
            "UPDATE k SET p = '(2,y)', a = '{}' WHERE e = 'ok'",
            "DELETE FROM k WHERE e IS NULL",
            "DELETE FROM k",
        ],
    );
}
