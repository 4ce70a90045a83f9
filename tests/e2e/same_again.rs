//! What a command leaves as it was computes nothing anew: the same definition again, another view, a partition by itself.

use crate::common::*;
use crate::support::{fresh_db, refresh};

/// Nothing is to be done for any of these.
fn assert_quiet(c: &mut postgres::Client, after: &str, tables: &[&str]) {
    for s in tables {
        assert_active(c, s);
        assert_eq!(refresh(c, s).action, "no_change", "{s} after {after}");
    }
}

#[test]
fn the_same_view_again_computes_nothing() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        &format!(
            "{T}; CREATE VIEW v1 AS SELECT id, v FROM t; CREATE VIEW v2 AS SELECT id, grp FROM t; CREATE VIEW over AS SELECT id FROM v1 WHERE v > 0"
        ),
    );
    create(&mut c, "s1", "SELECT id, v FROM v1");
    create(&mut c, "s_over", "SELECT id FROM over");
    create(&mut c, "plain", "SELECT id, grp, v FROM t");
    create(&mut c, "s2", "SELECT id, grp FROM v2");
    let all = ["s1", "s_over", "plain", "s2"];
    for same in [
        "CREATE OR REPLACE VIEW v1 AS SELECT id, v FROM t",
        "CREATE OR REPLACE VIEW v1 AS  SELECT t.id,  t.v  FROM public.t",
        "CREATE OR REPLACE VIEW over AS SELECT id FROM v1 WHERE v > 0",
        "BEGIN; CREATE OR REPLACE VIEW v1 AS SELECT id, v FROM t; CREATE OR REPLACE VIEW v2 AS SELECT id, grp FROM t; COMMIT",
        "ALTER VIEW v1 OWNER TO CURRENT_USER",
        "COMMENT ON VIEW v1 IS 'a view'",
    ] {
        exec(&mut c, same);
        assert_quiet(&mut c, same, &all);
    }
}

#[test]
fn a_replaced_view_computes_only_what_goes_through_it() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        &format!(
            "{T}; CREATE VIEW v1 AS SELECT id, v FROM t; CREATE VIEW v2 AS SELECT id, grp FROM t; CREATE VIEW over AS SELECT id FROM v1 WHERE v > 0"
        ),
    );
    create(&mut c, "s1", "SELECT id, v FROM v1");
    create(&mut c, "s_over", "SELECT id FROM over");
    create(&mut c, "plain", "SELECT id, grp, v FROM t");
    create(&mut c, "s2", "SELECT id, grp FROM v2");
    create(&mut c, "s2_full", "SELECT id, grp FROM v2 ORDER BY id LIMIT 1000");
    let mut other = db.connect();
    for (i, how) in ["id > 1", "id > 2", "id > 3"].iter().enumerate() {
        // In one session, in another, and in a transaction with a refresh.
        let replace = format!("CREATE OR REPLACE VIEW v1 AS SELECT id, v FROM t WHERE {how}");
        match i {
            0 => exec(&mut c, &replace),
            1 => exec(&mut other, &replace),
            _ => exec(
                &mut c,
                &format!("BEGIN; {replace}; SELECT pgtrickle.refresh_stream_table('s2'); COMMIT"),
            ),
        }
        assert_quiet(&mut c, &replace, &["plain", "s2", "s2_full"]);
        for s in ["s1", "s_over"] {
            assert_eq!(refresh(&mut c, s).action, "reinitialize", "{s} after {replace}");
        }
        exec(&mut c, "UPDATE t SET v = v + 1, grp = 9 WHERE id < 4");
        for s in ["s1", "plain", "s2", "s2_full"] {
            refresh(&mut c, s);
        }
    }
    // One that needs more columns of the table, one that is another kind of query, and one over another table.
    exec(
        &mut c,
        "CREATE TABLE u (id int, v int); INSERT INTO u SELECT g, g FROM generate_series(1, 9) g; CREATE VIEW v3 AS SELECT id, v FROM u",
    );
    create(&mut c, "s3", "SELECT id, v FROM v3");
    create(&mut c, "s2_new", "SELECT grp, count(*) AS n FROM v2 GROUP BY grp");
    for replace in [
        "CREATE OR REPLACE VIEW v1 AS SELECT id, v, grp AS more FROM t WHERE v > 0",
        "CREATE OR REPLACE VIEW v1 AS SELECT id, v, grp AS more FROM t LEFT JOIN u USING (id, v)",
        "CREATE OR REPLACE VIEW v1 AS SELECT u.id, u.v, grp AS more FROM t JOIN u ON u.id = t.id",
    ] {
        exec(&mut c, replace);
        assert_quiet(&mut c, replace, &["s3", "s2_new", "s2", "plain", "s2_full"]);
        for s in ["s1", "s_over"] {
            assert_eq!(refresh(&mut c, s).action, "reinitialize", "{s} after {replace}");
        }
        assert_quiet(&mut c, replace, &["s3", "s2_new", "s2", "plain", "s2_full"]);
        exec(&mut c, "UPDATE t SET v = v + 1, grp = 9 WHERE id < 4; UPDATE u SET v = v + 1");
        for s in ["s1", "s_over", "plain", "s2", "s2_full", "s3", "s2_new"] {
            refresh(&mut c, s);
        }
    }
    let mut fresh = db.connect();
    exec(&mut fresh, "CREATE OR REPLACE VIEW v2 AS SELECT id, grp FROM t WHERE id > 1");
    assert_quiet(&mut fresh, "another view", &["s1", "s_over", "plain"]);
    assert_eq!(refresh(&mut fresh, "s2").action, "reinitialize");
}

#[test]
fn the_same_function_again_computes_nothing() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        &format!("{T}; CREATE FUNCTION f(x int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT x + 1'"),
    );
    exec(&mut c, "CREATE FUNCTION g(x int) RETURNS int IMMUTABLE LANGUAGE sql RETURN x + 2");
    exec(
        &mut c,
        "CREATE FUNCTION p(x int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN x + 3; END'",
    );
    create(&mut c, "s", "SELECT id, f(v) AS f, g(v) AS g, p(v) AS p FROM t");
    for same in [
        "CREATE OR REPLACE FUNCTION f(x int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT x + 1'",
        "CREATE OR REPLACE FUNCTION g(x int) RETURNS int IMMUTABLE LANGUAGE sql RETURN x + 2",
        "CREATE OR REPLACE FUNCTION p(x int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN x + 3; END'",
        "ALTER FUNCTION f(int) COST 1; ALTER FUNCTION f(int) IMMUTABLE; ALTER FUNCTION f(int) OWNER TO CURRENT_USER",
        "COMMENT ON FUNCTION f(int) IS 'a function'",
    ] {
        exec(&mut c, same);
        assert_quiet(&mut c, same, &["s"]);
    }
    for (other, what) in [
        (
            "CREATE OR REPLACE FUNCTION f(x int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT x + 2'",
            "reinitialize",
        ),
        (
            "CREATE OR REPLACE FUNCTION g(x int) RETURNS int IMMUTABLE LANGUAGE sql RETURN x + 3",
            "reinitialize",
        ),
        (
            "CREATE OR REPLACE FUNCTION p(x int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN x + 4; END'",
            "reinitialize",
        ),
        ("ALTER FUNCTION p(int) STRICT", "reinitialize"),
        ("ALTER FUNCTION p(int) SET extra_float_digits = 0", "reinitialize"),
    ] {
        exec(&mut c, other);
        assert_eq!(refresh(&mut c, "s").action, what, "{other}");
    }
    // A rename is one in the text alone.
    exec(&mut c, "ALTER FUNCTION f(int) RENAME TO h");
    assert_quiet(&mut c, "a rename", &["s"]);
    assert!(
        one::<String>(&mut c, "SELECT query FROM pgtrickle.stream_tables WHERE stream_table = 's'::regclass")
            .contains("h(")
    );
    // Two in one transaction: each is compared with what was before it.
    exec(
        &mut c,
        "BEGIN; CREATE OR REPLACE FUNCTION g(x int) RETURNS int IMMUTABLE LANGUAGE sql RETURN x + 9;
         CREATE OR REPLACE FUNCTION g(x int) RETURNS int IMMUTABLE LANGUAGE sql RETURN x + 9; COMMIT",
    );
    assert_eq!(refresh(&mut c, "s").action, "reinitialize");
}

#[test]
fn a_partition_that_leaves_or_joins_is_as_it_was_by_itself() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE p (k int, v int) PARTITION BY LIST (k);
         CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1); CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2);
         INSERT INTO p VALUES (1, 1), (2, 2)",
    );
    create(&mut c, "leaf", "SELECT k, v FROM p1");
    create(&mut c, "other", "SELECT k, v FROM p2");
    create(&mut c, "counted", "SELECT k, count(*) AS n FROM p1 GROUP BY k");
    create(&mut c, "whole", "SELECT k, v FROM p");
    for command in [
        "ALTER TABLE p DETACH PARTITION p1",
        "ALTER TABLE p ATTACH PARTITION p1 FOR VALUES IN (1)",
        "ALTER TABLE p DETACH PARTITION p1 CONCURRENTLY",
        "ALTER TABLE p ATTACH PARTITION p1 FOR VALUES IN (1)",
    ] {
        exec(&mut c, command);
        assert_quiet(&mut c, command, &["leaf", "other", "counted"]);
        assert_eq!(refresh(&mut c, "whole").action, "reinitialize", "{command}");
        exec(&mut c, "INSERT INTO p1 VALUES (1, 5); UPDATE p1 SET v = v + 1");
        differential(&mut c, "leaf");
        differential(&mut c, "counted");
        refresh(&mut c, "whole");
    }
}
