//! ONLY: a table without its children, wherever a query names it so.

use crate::common::*;
use crate::support::{self, fresh_db, refresh};

const FAMILY: &str = "
    CREATE TABLE mother (k int PRIMARY KEY, v int);
    CREATE TABLE daughter (extra text) INHERITS (mother);
    CREATE TABLE a (id int PRIMARY KEY, k int);
    CREATE VIEW seen AS SELECT k, v FROM ONLY mother;
    INSERT INTO a VALUES (1, 1), (2, 2), (3, 3);
    INSERT INTO mother VALUES (1, 10), (4, 40);
    INSERT INTO daughter VALUES (2, 20, 'x'), (1, 11, 'y')";

/// Changes of each member of the family, and of what it is joined with.
const CHANGES: &[&str] = &[
    "INSERT INTO a VALUES (4, 2), (5, 1), (6, 4)",
    "INSERT INTO daughter VALUES (3, 30, 'z'), (4, 41, 'z')",
    "INSERT INTO mother VALUES (3, 31)",
    "UPDATE mother SET v = v + 1",
    "UPDATE ONLY mother SET v = v + 100; UPDATE daughter SET k = k + 1; UPDATE a SET k = k % 4 + 1",
    "DELETE FROM mother WHERE k = 1; INSERT INTO a VALUES (7, 1)",
    "TRUNCATE daughter; INSERT INTO daughter VALUES (1, 12, 'w'); UPDATE a SET k = 1 WHERE id < 4",
    "INSERT INTO mother VALUES (1, 13), (2, 22); DELETE FROM ONLY mother WHERE k = 3",
    "TRUNCATE mother; INSERT INTO mother VALUES (1, 1); INSERT INTO daughter VALUES (1, 2, 'v')",
];

/// Changes of who is in the family.
const FAMILY_AFFAIRS: &[&str] = &[
    "INSERT INTO a VALUES (8, 1); ALTER TABLE daughter NO INHERIT mother; UPDATE mother SET v = 7",
    "CREATE TABLE late () INHERITS (mother); INSERT INTO late VALUES (2, 5), (1, 6); INSERT INTO a VALUES (9, 2)",
    "ALTER TABLE daughter INHERIT mother; INSERT INTO mother VALUES (2, 3)",
    "DROP TABLE late; UPDATE mother SET v = v + 1",
];

/// (name, query, can be kept differentially)
const QUERIES: &[(&str, &str, bool)] = &[
    ("from_only", "SELECT k, v FROM ONLY mother", true),
    ("in_parentheses", "SELECT k, v FROM ONLY (mother)", true),
    ("joined_on", "SELECT a.id, m.v FROM a JOIN ONLY mother m ON m.k = a.k", true),
    ("joined_using", "SELECT id, k, v FROM a JOIN ONLY mother USING (k)", true),
    ("only_first", "SELECT id, k, v FROM ONLY mother JOIN a USING (k)", true),
    ("both_only", "SELECT x.k, x.v, y.v AS w FROM ONLY mother x JOIN ONLY mother y USING (k)", true),
    ("naturally", "SELECT id, k, v FROM a NATURAL JOIN ONLY mother", true),
    ("crossed", "SELECT id, v FROM a CROSS JOIN ONLY mother", true),
    ("comma", "SELECT id, v FROM a, ONLY mother m WHERE m.k = a.k AND m.v > 3", true),
    ("left_joined", "SELECT id, k, v FROM a LEFT JOIN ONLY mother USING (k)", false),
    ("right_joined", "SELECT id, k, v FROM a RIGHT JOIN ONLY mother USING (k)", false),
    ("full_joined", "SELECT id, k, v FROM a FULL JOIN ONLY mother USING (k)", false),
    ("in_subquery", "SELECT id, v FROM a JOIN (SELECT k, v FROM ONLY mother WHERE v > 0) s USING (k)", true),
    ("in_with", "WITH m AS (SELECT k, v FROM ONLY mother) SELECT id, v FROM a JOIN m USING (k)", true),
    ("in_exists", "SELECT id FROM a WHERE EXISTS (SELECT FROM ONLY mother m WHERE m.k = a.k)", false),
    ("through_view", "SELECT id, v FROM a JOIN seen USING (k)", true),
    ("of_view", "SELECT k, v FROM ONLY seen", true),
    (
        "grouped",
        "SELECT k, count(*) AS n, sum(v) AS v, max(v) AS x FROM a JOIN ONLY mother USING (k) GROUP BY k",
        true,
    ),
    ("in_union", "SELECT k FROM a UNION SELECT k FROM ONLY mother", true),
    ("only_and_all", "SELECT x.k, x.v, y.v AS w FROM ONLY mother x JOIN mother y USING (k)", false),
];

#[test]
fn only_is_a_table_without_its_children() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, FAMILY);
    for (name, query, differential) in QUERIES {
        create(&mut c, name, query);
        let sql = format!(
            "SELECT refresh_mode || ' ' || differential FROM pgtrickle.pgt_stream_tables WHERE relid = '{name}'::regclass"
        );
        assert_eq!(one::<String>(&mut c, &sql), format!("auto {differential}"), "{name}");
        create_mode(&mut c, &format!("{name}_full"), query, "full");
    }
    create(&mut c, "above", "SELECT k, count(*) AS n FROM joined_using GROUP BY k");
    for change in CHANGES {
        exec(&mut c, change);
        for (name, query, _) in QUERIES {
            refresh(&mut c, name);
            support::assert_equal(&mut c, name, query);
            let full = format!("{name}_full");
            refresh(&mut c, &full);
            support::assert_equal(&mut c, &full, query);
        }
        refresh(&mut c, "above");
    }
    // Who reads the children is suspended, or computes it all.
    let only = QUERIES.iter().filter(|(name, ..)| *name != "only_and_all");
    for change in FAMILY_AFFAIRS {
        exec(&mut c, change);
        for (name, query, differential) in only.clone() {
            let done = refresh(&mut c, name);
            assert!(
                !differential || matches!(done.action.as_str(), "differential" | "no_change"),
                "{name} after {change}: {done:?}"
            );
            support::assert_equal(&mut c, name, query);
        }
    }
    assert_suspended(&mut c, "only_and_all", "inherits");
}

#[test]
fn a_change_of_a_child_is_none_of_only_its_parent() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, FAMILY);
    create(&mut c, "s", "SELECT id, k, v FROM a JOIN ONLY mother USING (k)");
    exec(
        &mut c,
        "INSERT INTO daughter VALUES (3, 3, ''); UPDATE daughter SET v = 0; DELETE FROM daughter WHERE k = 2",
    );
    assert_eq!(refresh(&mut c, "s").action, "no_change");
    exec(&mut c, "UPDATE mother SET v = v + 1");
    let done = differential(&mut c, "s");
    assert_eq!((done.inserted, done.updated, done.deleted), (1, 0, 1), "{done:?}");
}

#[test]
fn only_of_a_partitioned_table_has_no_rows() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE p (k int, v int) PARTITION BY LIST (k);
         CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1); CREATE TABLE p2 PARTITION OF p DEFAULT;
         CREATE TABLE a (id int, k int); INSERT INTO a VALUES (1, 1), (2, 2); INSERT INTO p VALUES (1, 1), (2, 2);
         CREATE VIEW of_p AS SELECT k, v FROM ONLY p",
    );
    let queries = [
        ("s", "SELECT k, v FROM ONLY p"),
        ("joined", "SELECT id, v FROM a JOIN ONLY p USING (k)"),
        ("left_joined", "SELECT id, v FROM a LEFT JOIN ONLY p USING (k)"),
        ("counted", "SELECT count(*) AS n FROM ONLY p"),
        ("through_view", "SELECT k, v FROM of_p"),
        ("with_all", "SELECT x.k, y.v FROM p x JOIN ONLY p y USING (k)"),
    ];
    for (name, query) in queries {
        create(&mut c, name, query);
        if name != "left_joined" {
            let e = support::expect_error(&mut c, &create_call("refused", query, "differential"));
            assert_eq!(e.sqlstate, "0A000", "{e:?}");
            assert!(format!("{e:?}").contains("ONLY OF A PARTITIONED TABLE"), "{name}: {e:?}");
        }
    }
    // The root's rows are captured all the same, for whoever reads all of it.
    create(&mut c, "all_of_p", "SELECT k, v FROM p");
    for change in [
        "INSERT INTO p VALUES (1, 3), (5, 5); INSERT INTO a VALUES (3, 5)",
        "UPDATE p SET k = 2 WHERE k = 1",
        "TRUNCATE p1",
    ] {
        exec(&mut c, change);
        for (name, query) in queries {
            refresh(&mut c, name);
            support::assert_equal(&mut c, name, query);
        }
        refresh(&mut c, "all_of_p");
    }
}
