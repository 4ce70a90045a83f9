//! Equal is not identical: a stream table shows what its query prints.

use crate::common::*;
use crate::support::{self, db_error, describe, fresh_db, refresh};

/// Each value is equal to the next one of its list, and prints differently.
const VALUES: [(&str, &[&str]); 9] = [
    ("interval", &["'1 mon'", "'30 days'", "'720:00:00'"]),
    ("numeric", &["1.0", "1.00", "1"]),
    ("float8", &["'-0'", "0"]),
    ("float4", &["0", "'-0'"]),
    ("jsonb", &["'{\"a\": 1.0}'", "'{\"a\": 1.00}'"]),
    ("numeric[]", &["'{1.0,2}'", "'{1.00,2}'"]),
    ("numrange", &["'[1.0,2)'", "'[1.00,2)'"]),
    ("pair", &["'(1.0,x)'", "'(1.00,x)'"]),
    ("amount", &["5.0", "5.000"]),
];

const TYPES: &str =
    "CREATE TYPE pair AS (n numeric, t text); CREATE DOMAIN amount AS numeric CHECK (VALUE > 0);";

/// What the stream table prints is what its query prints.
fn assert_prints_its_query(c: &mut postgres::Client, name: &str, query: &str) {
    refresh(c, name);
    assert_printed_equal(c, name, query);
}

#[test]
fn an_update_to_an_equal_value_is_an_update() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, TYPES);
    for (n, (of_type, values)) in VALUES.iter().enumerate() {
        let (t, s) = (format!("t{n}"), format!("s{n}"));
        exec(&mut c, &format!("CREATE TABLE {t} (id int PRIMARY KEY, v {of_type})"));
        let query = format!("SELECT id, v FROM {t}");
        create(&mut c, &s, &query);
        create(&mut c, &format!("{s}_v"), &format!("SELECT v FROM {t}"));
        create_mode(&mut c, &format!("{s}_full"), &query, "full");
        for value in values.iter().chain(&["NULL"]).chain(values.iter().rev()) {
            exec(
                &mut c,
                &format!(
                    "INSERT INTO {t} VALUES (1, {value}), (2, {value}), (3, NULL) ON CONFLICT (id) DO UPDATE SET v = excluded.v"
                ),
            );
            assert_prints_its_query(&mut c, &s, &query);
            assert_prints_its_query(&mut c, &format!("{s}_v"), &format!("SELECT v FROM {t}"));
            assert_prints_its_query(&mut c, &format!("{s}_full"), &query);
            exec(&mut c, &format!("UPDATE {t} SET v = {} WHERE id = 2", values[0]));
            assert_prints_its_query(&mut c, &s, &query);
            assert_prints_its_query(&mut c, &format!("{s}_v"), &format!("SELECT v FROM {t}"));
        }
    }
}

/// A text of another collation is equal and not the same; without one, nothing is compared twice.
#[test]
fn texts_that_a_collation_calls_equal() {
    let db = fresh_db();
    let mut c = db.connect();
    let collation = "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)";
    if let Err(e) = c.batch_execute(collation) {
        // A server without ICU has no such collations.
        assert_eq!(db_error(&e).sqlstate, "0A000", "{}", describe(&e));
        return;
    }
    exec(
        &mut c,
        "CREATE TABLE t (id int PRIMARY KEY, v text COLLATE ci); INSERT INTO t VALUES (1, 'a'), (2, 'B')",
    );
    create(&mut c, "s", "SELECT id, v FROM t");
    create(&mut c, "g", "SELECT v, count(*) AS n FROM t GROUP BY v");
    exec(&mut c, "UPDATE t SET v = 'A' WHERE id = 1");
    assert_prints_its_query(&mut c, "s", "SELECT id, v FROM t");
    assert_prints_its_query(&mut c, "g", "SELECT v, count(*) AS n FROM t GROUP BY v");
}

/// Where the query may print either of equal values, what is shown is one that a row of the group has now.
#[test]
fn a_group_shows_a_value_that_one_of_its_rows_has_now() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, TYPES);
    for (n, (of_type, values)) in VALUES.iter().enumerate() {
        let (t, s) = (format!("t{n}"), format!("s{n}"));
        let (a, b) = (values[0], values[1]);
        exec(
            &mut c,
            &format!(
                "CREATE TABLE {t} (id int PRIMARY KEY, v {of_type}, n int); INSERT INTO {t} VALUES (1, {a}, 1), (2, {b}, 1)"
            ),
        );
        create(&mut c, &s, &format!("SELECT v, count(*) AS c, sum(n) AS n FROM {t} GROUP BY v"));
        create(&mut c, &format!("{s}_d"), &format!("SELECT DISTINCT v FROM {t}"));
        for change in [
            "DELETE FROM {t} WHERE id = 1",
            "INSERT INTO {t} VALUES (1, {a}, 1)",
            "DELETE FROM {t} WHERE id = 2",
            "UPDATE {t} SET v = {b}",
            "INSERT INTO {t} VALUES (2, {a}, 7)",
            "UPDATE {t} SET v = CASE id WHEN 1 THEN {a}::{of_type} ELSE {b} END",
            "DELETE FROM {t}",
            "INSERT INTO {t} VALUES (5, {b}, 1), (6, {b}, NULL)",
        ] {
            let sql =
                change.replace("{t}", &t).replace("{a}", a).replace("{b}", b).replace("{of_type}", of_type);
            exec(&mut c, &sql);
            for name in [s.clone(), format!("{s}_d")] {
                // Not compared with the query: that may print another of the equal values.
                exec(&mut c, &format!("SELECT pgtrickle.refresh_stream_table('{name}')"));
                let missing: i64 = one(
                    &mut c,
                    &format!("SELECT count(*) FROM (SELECT v FROM {t} EXCEPT SELECT v FROM {name}) d"),
                );
                assert_eq!(missing, 0, "{of_type}: {name} after {sql}");
                let strange: i64 = one(
                    &mut c,
                    &format!(
                        "SELECT count(*) FROM {name} s WHERE NOT EXISTS (SELECT FROM {t} t WHERE t.v = s.v AND t.v::text = s.v::text)"
                    ),
                );
                assert_eq!(strange, 0, "{of_type}: {name} shows a value that no row has after {sql}");
            }
        }
    }
}

#[test]
fn extremes_of_equal_values_are_those_that_are_there() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE t (id int PRIMARY KEY, k int, v numeric); INSERT INTO t VALUES (1, 1, 1.0), (2, 1, 5)",
    );
    let query = "SELECT k, min(v) AS lo, max(v) AS hi, array_agg(v ORDER BY id) AS all_of FROM t GROUP BY k";
    create(&mut c, "s", query);
    for sql in [
        "UPDATE t SET v = 1.00 WHERE id = 1",
        "UPDATE t SET v = 5.000 WHERE id = 2",
        "DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (1, 1, 1)",
        "UPDATE t SET v = v",
    ] {
        exec(&mut c, sql);
        assert_prints_its_query(&mut c, "s", query);
    }
}

/// Types that can't be compared at all: rows are compared by what they are made of, and only what changed is written.
#[test]
fn what_has_no_equality_is_written_only_where_it_changed() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE t (id int, v json, p point); INSERT INTO t SELECT i, json_build_object('n', i), point(i, i) FROM generate_series(1, 20) i;
         INSERT INTO t SELECT * FROM t WHERE id = 3; INSERT INTO t VALUES (30, NULL, NULL)",
    );
    const QUERY: &str = "SELECT v, p FROM t";
    create(&mut c, "s", QUERY);
    let counts = |c: &mut postgres::Client| -> (i64, i64, i64) {
        let row = c
            .query_one(
                "SELECT rows_inserted, rows_updated, rows_deleted FROM pgtrickle.refresh_stream_table('s')",
                &[],
            )
            .expect("a refresh");
        (row.get(0), row.get(1), row.get(2))
    };
    assert_eq!(counts(&mut c), (0, 0, 0));
    exec(
        &mut c,
        "UPDATE t SET v = '{}' WHERE id = 7; DELETE FROM t WHERE ctid = (SELECT max(ctid) FROM t WHERE id = 3)",
    );
    assert_eq!(counts(&mut c), (1, 0, 2));
    support::assert_equal(&mut c, "s", QUERY);
    exec(&mut c, "TRUNCATE t");
    counts(&mut c);
    support::assert_equal(&mut c, "s", QUERY);
}

/// The common types of keys, whose equal values are the same: their groups are not read again.
#[test]
fn a_group_of_a_common_type_is_not_read_again() {
    let db = fresh_db();
    let mut c = db.connect();
    for (n, (of_type, value)) in [
        ("int", "1"),
        ("bigint", "1"),
        ("text", "'a'"),
        ("varchar(9)", "'a'"),
        ("char(3)", "'a'"),
        ("numeric(9,2)", "1.5"),
        ("date", "'2026-01-01'"),
        ("timestamptz", "'2026-01-01'"),
        ("boolean", "true"),
        ("uuid", "'00000000-0000-0000-0000-000000000001'"),
        ("bytea", "'a'"),
    ]
    .into_iter()
    .enumerate()
    {
        exec(
            &mut c,
            &format!(
                "CREATE TABLE t{n} (id int PRIMARY KEY, v {of_type}, n int); INSERT INTO t{n} VALUES (1, {value}, 1), (2, {value}, 1)"
            ),
        );
        create(
            &mut c,
            &format!("s{n}"),
            &format!("SELECT v, count(*) AS c, sum(n) AS n FROM t{n} GROUP BY v"),
        );
        exec(&mut c, &format!("DELETE FROM t{n} WHERE id = 1; UPDATE t{n} SET n = 5"));
        // Counted since the session's numbers were last sent: within one transaction they are not.
        exec(&mut c, "BEGIN");
        let scans = |c: &mut postgres::Client| -> i64 {
            one(c, &format!("SELECT pg_stat_get_xact_numscans('t{n}'::regclass)"))
        };
        let before = scans(&mut c);
        exec(&mut c, &format!("SELECT pgtrickle.refresh_stream_table('s{n}')"));
        assert_eq!(scans(&mut c), before, "{of_type}");
        exec(&mut c, "COMMIT");
        support::assert_up_to_date(&mut c, &format!("s{n}"));
    }
}
