//! The constructs that are maintained differentially: each is created in mode `differential`, so that a fallback would be
//! refused, and refreshed after a mix of changes, alone and together.

use crate::common::*;
use crate::support::{self, fresh_db, refresh};
use postgres::Client;

const SCHEMA: &str = "
    CREATE TABLE a (id int PRIMARY KEY, k int, v int, price numeric(10, 2), note text, day date, at timestamp, big bigint);
    CREATE TABLE b (k int, w int, tag text);
    CREATE TABLE c (id int PRIMARY KEY, lo int, hi int, flag boolean);
    CREATE VIEW av AS SELECT id, k, v * 2 AS v2, note FROM a WHERE v IS NOT NULL;
    CREATE VIEW bv AS SELECT k, count(*) AS n, sum(w) AS w FROM b GROUP BY k;
    CREATE VIEW avv AS SELECT av.id, bv.n FROM av JOIN bv ON av.k = bv.k;
    INSERT INTO a SELECT i, i % 4, i * 3 % 7, i * 1.25, 'n' || i % 3, '2024-01-01'::date + i % 5,
        '2024-01-01'::timestamp + i % 3 * interval '5 hours', 10000000000 + i % 2 FROM generate_series(1, 16) i;
    INSERT INTO a VALUES (100, NULL, NULL, NULL, NULL, NULL, NULL, NULL), (101, 1, NULL, 'NaN', 'n1', NULL, NULL, 5);
    INSERT INTO b SELECT i % 5, i % 3, 't' || i % 2 FROM generate_series(1, 12) i;
    INSERT INTO b SELECT * FROM b WHERE k = 1;
    INSERT INTO b VALUES (NULL, NULL, NULL), (NULL, 1, 't1');
    INSERT INTO c SELECT i, i, i + 3, i % 2 = 0 FROM generate_series(1, 5) i";

const MIX: &[&str] = &[
    "INSERT INTO a VALUES (200, 1, 5, 9.99, 'n1', '2024-01-02', '2024-01-01 05:00', 7), (201, NULL, 2, 0, 'x', '2024-02-01', NULL, 8)",
    "INSERT INTO b VALUES (1, 1, 't1'), (1, 1, 't1'), (9, 9, 't9')",
    "UPDATE a SET v = coalesce(v, 0) + 1 WHERE id % 2 = 0",
    "UPDATE a SET k = (k + 1) % 4, note = 'n' || k WHERE id < 6",
    "DELETE FROM b WHERE ctid = (SELECT min(ctid) FROM b WHERE k = 1)",
    "DELETE FROM a WHERE v = 3 OR id = 100",
    "UPDATE b SET k = NULL WHERE k = 2; UPDATE b SET w = w + 1; UPDATE a SET price = price + 0.01, big = big + 1",
    "BEGIN; INSERT INTO a VALUES (300, 0, 1, 1, 'n0', '2024-01-03', '2024-03-03', 1); DELETE FROM b WHERE w = 2;
     UPDATE c SET hi = hi + 1, flag = NOT flag; UPDATE a SET day = day + 1, at = at + interval '1 hour'; COMMIT",
    "DELETE FROM c WHERE id = 3; INSERT INTO c VALUES (9, 0, 100, NULL); DELETE FROM b WHERE tag = 't1'",
    "UPDATE a SET id = id + 1000, v = NULL WHERE id > 100",
    "DELETE FROM a WHERE k = 1; UPDATE a SET k = 2",
    "TRUNCATE b",
    "INSERT INTO b SELECT k, v, note FROM a; INSERT INTO a SELECT id + 5000, k, v, price, note, day, at, big FROM a",
    "TRUNCATE a, b, c",
    "INSERT INTO a VALUES (1, 1, 1, 1.5, 'n1', '2024-01-01', '2024-01-01', 1), (2, 1, 2, 2.5, 'n2', '2024-01-01', '2024-01-01', 2);
     INSERT INTO b VALUES (1, 1, 't1'), (1, 1, 't1'); INSERT INTO c VALUES (1, 0, 5, true)",
];

/// Plays the mix over all queries at once: each is refreshed after each change, and some only after several.
fn play(queries: &[&str]) {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, SCHEMA);
    for (i, query) in queries.iter().enumerate() {
        create_mode(&mut c, &format!("s{i}"), query, "differential");
        create_mode(&mut c, &format!("lazy{i}"), query, "differential");
    }
    let mut worked = vec![0; queries.len()];
    for (round, sql) in MIX.iter().enumerate() {
        exec(&mut c, sql);
        for (i, query) in queries.iter().enumerate() {
            let done = refresh_checked(&mut c, &format!("s{i}"), query, sql);
            worked[i] += usize::from(done == "differential");
            if round % 4 == i % 4 {
                // What it has to do goes back to changes of earlier rounds.
                let since = MIX[round.saturating_sub(3)..=round].join("; ");
                refresh_checked(&mut c, &format!("lazy{i}"), query, &since);
            }
        }
    }
    for (i, query) in queries.iter().enumerate() {
        refresh_checked(&mut c, &format!("lazy{i}"), query, &MIX.join("; "));
        assert!(worked[i] > 2, "the mix hardly touched {query}");
    }
}

fn refresh_checked(c: &mut Client, name: &str, query: &str, after: &str) -> String {
    let done = refresh(c, name);
    assert_not_full(&done, &format!("{after}\n{query}"));
    assert_printed_equal(c, name, query);
    done.action
}

#[test]
fn scan_filter_and_projection() {
    play(&[
        "SELECT * FROM a",
        "SELECT k, note FROM a",
        "SELECT id, v + 1 AS v1, upper(note) AS u, coalesce(price, 0) * 2 AS p FROM a WHERE v > 1 AND note LIKE 'n%'",
        "SELECT id FROM a WHERE v IS NULL OR k IN (1, 2) OR day BETWEEN '2024-01-02' AND '2024-01-03'",
        "SELECT CASE WHEN v > 2 THEN 'many' WHEN v IS NULL THEN NULL ELSE 'few' END AS c, (v % 2)::bigint AS odd, day + 1 AS d,
            date_trunc('day', at) AS t, length(note) AS l, note || '-' || v::text AS n, big / 2 AS half FROM a",
        "SELECT 'constant' AS x, 1 AS y FROM b",
        "SELECT k, tag FROM b WHERE NOT (k = 1 AND w = 1)",
        "SELECT a.*, a.v IS DISTINCT FROM a.k AS other FROM a WHERE (a.v, a.k) > (1, 1)",
        "SELECT ARRAY[k, w] AS pair, ROW(k, tag) = ROW(1, 't1') AS r FROM b",
        "SELECT id FROM a WHERE false",
        "SELECT x.v FROM (SELECT id, v FROM (SELECT id, v, k FROM a WHERE k > 0) i WHERE v > 0) x WHERE id < 250",
    ]);
}

#[test]
fn inner_joins() {
    play(&[
        "SELECT a.id, b.w FROM a JOIN b ON a.k = b.k",
        "SELECT a.id, b.w FROM a, b WHERE a.k = b.k AND a.v > b.w",
        "SELECT id, w FROM a JOIN b USING (k)",
        "SELECT * FROM b NATURAL JOIN (SELECT k, v FROM a) a2",
        "SELECT a.id, c.id AS c FROM a JOIN c ON a.v BETWEEN c.lo AND c.hi",
        "SELECT a.id, b.tag, c.flag FROM a JOIN b ON a.k = b.k JOIN c ON c.id = b.w",
        "SELECT a.id, c.id AS c FROM a JOIN c ON a.v < c.lo OR c.flag",
        "SELECT count(*) AS n FROM a, b, c WHERE a.k = b.k AND b.w <> c.lo",
        "SELECT a.id, c.id AS c FROM a CROSS JOIN c",
        "SELECT b.k, a.note FROM a JOIN b ON a.k IS NOT DISTINCT FROM b.k",
        "SELECT b.tag FROM a JOIN b ON a.note || '' = 'n' || b.k::text",
    ]);
}

#[test]
fn self_joins() {
    play(&[
        "SELECT x.id, y.id AS other FROM a x JOIN a y ON x.k = y.k AND x.id < y.id",
        "SELECT x.tag, y.w FROM b x JOIN b y ON x.k = y.k",
        "SELECT x.w, y.w AS y, z.w AS z FROM b x JOIN b y ON x.w = y.k JOIN b z ON z.k = y.w",
        "SELECT x.id FROM c x, c y WHERE x.lo = y.hi - 3",
        "SELECT x.k, count(*) AS n FROM b x JOIN b y ON x.w = y.w GROUP BY x.k",
        "SELECT a.id, v.v2, w.n FROM a JOIN av v ON v.id = a.id JOIN avv w ON w.id = a.id",
    ]);
}

#[test]
fn group_by() {
    play(&[
        "SELECT k, count(*) AS n, count(v) AS nv, sum(v) AS sv, avg(v) AS av, min(v) AS lo, max(v) AS hi FROM a GROUP BY k",
        "SELECT note, sum(price) AS p, avg(price) AS ap, min(price) AS lp, max(price) AS hp FROM a GROUP BY note",
        "SELECT k, min(day) AS d1, max(day) AS d2, min(at) AS t1, max(at) AS t2, min(note) AS n1, max(note) AS n2,
            sum(big) AS b, avg(big) AS ab, min(big) AS b1, max(big) AS b2 FROM a GROUP BY k",
        "SELECT count(*) AS n, sum(v) AS s, avg(price) AS p, min(note) AS m FROM a",
        "SELECT k % 2 AS parity, v > 2 AS much, count(*) AS n FROM a GROUP BY 1, 2",
        "SELECT count(*) AS n FROM a GROUP BY k, note",
        "SELECT k FROM b GROUP BY k",
        "SELECT tag, sum(w) * 2 + count(*) AS mixed, max(w) - min(w) AS spread, avg(w) > 1 AS big FROM b GROUP BY tag",
        "SELECT day, at, count(*) AS n FROM a GROUP BY day, at",
        "SELECT b.tag, sum(a.price * b.w) AS total, count(*) AS n FROM a JOIN b ON a.k = b.k GROUP BY b.tag",
        "SELECT sum(v + k) AS s, sum(CASE WHEN v > 1 THEN 1 ELSE 0 END) AS c FROM a WHERE note <> 'n2'",
        "SELECT id, k, count(*) AS n FROM a GROUP BY id",
    ]);
}

#[test]
fn having_and_distinct() {
    play(&[
        "SELECT k, count(*) AS n FROM a GROUP BY k HAVING count(*) > 3",
        "SELECT note FROM a GROUP BY note HAVING sum(v) > 5 AND min(k) IS NOT NULL",
        "SELECT k, sum(v) AS s FROM a GROUP BY k HAVING k > 1 OR max(price) > 10",
        "SELECT max(v) AS m FROM a HAVING count(*) > 4",
        "SELECT DISTINCT k FROM b",
        "SELECT DISTINCT tag, w FROM b WHERE w IS NOT NULL",
        "SELECT DISTINCT a.note, b.tag FROM a JOIN b ON a.k = b.k",
        "SELECT DISTINCT v % 2 AS p, day FROM a",
        "SELECT DISTINCT k, count(*) AS n FROM b GROUP BY k, tag",
        "SELECT DISTINCT * FROM b",
    ]);
}

#[test]
fn union_all() {
    play(&[
        "SELECT k FROM a UNION ALL SELECT k FROM b",
        "SELECT id, note FROM a WHERE v > 2 UNION ALL SELECT id, note FROM a WHERE k = 1 UNION ALL SELECT id, 'c' FROM c",
        "SELECT k, w FROM b UNION ALL SELECT k, w FROM b",
        "SELECT k, count(*) AS n FROM a GROUP BY k UNION ALL SELECT w, count(*) FROM b GROUP BY w",
        "SELECT k::bigint AS x FROM b UNION ALL SELECT id FROM a",
        "SELECT x, count(*) AS n FROM (SELECT k AS x FROM a UNION ALL SELECT w FROM b UNION ALL SELECT lo FROM c) u GROUP BY x",
        "SELECT DISTINCT x FROM (SELECT k AS x FROM a UNION ALL SELECT w FROM b) u",
        "(SELECT tag FROM b) UNION ALL (SELECT note FROM a UNION ALL SELECT note FROM a)",
    ]);
}

#[test]
fn views_and_nesting() {
    play(&[
        "SELECT * FROM av",
        "SELECT * FROM bv",
        "SELECT n, count(*) AS ids, min(id) AS first FROM avv GROUP BY n",
        "SELECT k, v2 FROM av JOIN bv USING (k) WHERE n > 1",
        "SELECT n, count(*) AS groups FROM (SELECT k, count(*) AS n FROM a GROUP BY k) g GROUP BY n",
        "SELECT max(s) AS m, count(*) AS c FROM (SELECT note, sum(v) AS s FROM a GROUP BY note HAVING count(*) > 1) g",
        "SELECT a.id, g.n FROM a JOIN (SELECT k, count(*) AS n FROM b GROUP BY k) g ON g.k = a.k",
        "SELECT d.tag, g.s FROM (SELECT DISTINCT k, tag FROM b) d JOIN (SELECT k, sum(v) AS s FROM a GROUP BY k) g ON g.k = d.k",
        "SELECT sum(n) AS total FROM (SELECT DISTINCT n FROM (SELECT k, count(*) AS n FROM b GROUP BY k) x) y",
        "WITH g AS (SELECT k, max(v) AS m FROM a GROUP BY k) SELECT b.tag, g.m FROM b JOIN g ON g.k = b.k",
        "SELECT l.k, l.n, r.n AS rn FROM bv l JOIN bv r ON l.n = r.n AND l.k < r.k",
    ]);
}

#[test]
fn explain_refresh_names_no_fallback_for_a_differential_query() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, SCHEMA);
    create(&mut c, "s", "SELECT b.tag, sum(a.v) AS v FROM a JOIN b ON a.k = b.k GROUP BY b.tag");
    let steps: Vec<String> =
        column(&mut c, "SELECT concat_ws(' ', step, detail) FROM pgtrickle.explain_refresh('s')");
    assert!(steps.iter().any(|s| s.contains("differential")), "{steps:?}");
    assert!(!steps.iter().any(|s| s.contains("full")), "{steps:?}");
}

#[test]
fn i1_a_long_walk_of_small_changes() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, SCHEMA);
    let query = "SELECT b.tag, a.note, count(*) AS n, sum(a.price) AS p, avg(a.v) AS av, max(b.w) AS w FROM a JOIN b ON a.k = b.k
        WHERE a.v IS NOT NULL GROUP BY b.tag, a.note";
    create_mode(&mut c, "s", query, "differential");
    for i in 0..60 {
        exec(
            &mut c,
            &match i % 5 {
                0 => format!("INSERT INTO b VALUES ({}, {}, 't{}')", i % 4, i % 3, i % 7),
                1 => format!("UPDATE a SET v = {i}, k = k + 1 WHERE id = {}", 1 + i % 16),
                2 => format!("DELETE FROM b WHERE ctid = (SELECT ctid FROM b WHERE k = {} LIMIT 1)", i % 4),
                3 => format!("UPDATE a SET price = {i}.5, k = {} WHERE id % 5 = {}", i % 5, i % 4),
                _ => format!("UPDATE b SET tag = 't{}', k = {} WHERE w = {}", i % 6, i % 5, i % 3),
            },
        );
        refresh_checked(&mut c, "s", query, &i.to_string());
    }
    support::assert_up_to_date(&mut c, "s");
}

#[test]
fn rows_that_are_equal_and_print_differently_are_equal() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE x (id int, n numeric); INSERT INTO x VALUES (1, 1.0), (2, 1.00), (3, 1), (4, 1.00)",
    );
    let query = "SELECT n FROM x";
    create_mode(&mut c, "s", query, "differential");
    for change in [
        "DELETE FROM x WHERE id = 2",
        "UPDATE x SET n = 1.000 WHERE id = 1",
        "DELETE FROM x WHERE id = 4",
        "UPDATE x SET n = 1.0",
    ] {
        exec(&mut c, change);
        refresh(&mut c, "s");
    }
}
