//! What a query depends on beyond what it names, and changes of it: told of by the event trigger, or found by the safety net.

use crate::common::*;
use crate::support::{self, fresh_db, refresh};
use postgres::Client;

/// A query whose pieces are made of others, which no tree names.
const SETUP: &str = "
    CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT g, g FROM generate_series(1, 9) g;
    CREATE FUNCTION deepest(x int) RETURNS int IMMUTABLE LANGUAGE sql RETURN x + 1;
    CREATE FUNCTION deep(x int) RETURNS int IMMUTABLE LANGUAGE sql RETURN deepest(x) * 2;
    CREATE FUNCTION f(x int) RETURNS int IMMUTABLE LANGUAGE sql BEGIN ATOMIC SELECT deep(x) + 1; END;
    CREATE FUNCTION op_deep(a int, b int) RETURNS int IMMUTABLE LANGUAGE sql RETURN a * 100 + b;
    CREATE FUNCTION op_f(a int, b int) RETURNS int IMMUTABLE LANGUAGE sql RETURN op_deep(a, b);
    CREATE OPERATOR <+> (LEFTARG = int, RIGHTARG = int, FUNCTION = op_f);
    CREATE FUNCTION cast_f(x int) RETURNS int IMMUTABLE LANGUAGE sql RETURN x + 7;
    CREATE FUNCTION add_f(s int, x int) RETURNS int IMMUTABLE LANGUAGE sql RETURN s + deepest(x);
    CREATE AGGREGATE total (int) (SFUNC = add_f, STYPE = int, INITCOND = '0');
    CREATE FUNCTION is_small(x int) RETURNS boolean IMMUTABLE LANGUAGE sql RETURN x < 100000;
    CREATE DOMAIN inner_dom AS int; CREATE DOMAIN small AS inner_dom CHECK (is_small(VALUE));
    CREATE TYPE part AS (x int, y int); CREATE TYPE pair AS (a int, b part);
    CREATE FUNCTION to_pair(x int) RETURNS pair IMMUTABLE LANGUAGE sql RETURN ROW(x, ROW(x, x)::part)::pair;
    CREATE FUNCTION pair_cast(p pair) RETURNS int IMMUTABLE LANGUAGE sql RETURN (p).a + 3;
    CREATE CAST (pair AS int) WITH FUNCTION pair_cast(pair);
    CREATE FUNCTION in_view(x int) RETURNS int IMMUTABLE LANGUAGE sql RETURN deep(x);
    CREATE VIEW vw AS SELECT id, in_view(v) AS v FROM t";

/// (stream table, query)
const TABLES: &[(&str, &str)] = &[
    ("s_fun", "SELECT id, f(v) AS v FROM t"),
    ("s_op", "SELECT id, v <+> 1 AS v FROM t"),
    ("s_agg", "SELECT total(v) AS v FROM t"),
    ("s_dom", "SELECT id, v::small::int AS v FROM t"),
    ("s_pair", "SELECT id, to_pair(v)::int AS v FROM t"),
    ("s_view", "SELECT id, v FROM vw"),
    ("s_none", "SELECT id, v FROM t"),
];

/// (command, stream tables that are computed anew by it)
const CHANGES: &[(&str, &[&str])] = &[
    (
        "CREATE OR REPLACE FUNCTION deepest(x int) RETURNS int IMMUTABLE LANGUAGE sql RETURN x + 2",
        &["s_fun", "s_agg", "s_view"],
    ),
    (
        "CREATE OR REPLACE FUNCTION deep(x int) RETURNS int IMMUTABLE LANGUAGE sql RETURN op_deep(x, 2)",
        &["s_fun", "s_view"],
    ),
    // What it calls now is known since then.
    (
        "CREATE OR REPLACE FUNCTION op_deep(a int, b int) RETURNS int IMMUTABLE LANGUAGE sql RETURN a * 10 + b",
        &["s_fun", "s_op", "s_view"],
    ),
    (
        "CREATE OR REPLACE FUNCTION op_f(a int, b int) RETURNS int IMMUTABLE LANGUAGE sql RETURN a - b",
        &["s_op"],
    ),
    (
        "CREATE OR REPLACE FUNCTION op_deep(a int, b int) RETURNS int IMMUTABLE LANGUAGE sql RETURN a * 11 + b",
        &["s_fun", "s_view"],
    ),
    (
        "CREATE OR REPLACE FUNCTION add_f(s int, x int) RETURNS int IMMUTABLE LANGUAGE sql RETURN s + x * 3",
        &["s_agg"],
    ),
    ("CREATE OR REPLACE AGGREGATE total (int) (SFUNC = add_f, STYPE = int, INITCOND = '5')", &["s_agg"]),
    (
        "CREATE OR REPLACE FUNCTION is_small(x int) RETURNS boolean IMMUTABLE LANGUAGE sql RETURN x < 90000",
        &["s_dom"],
    ),
    (
        "CREATE OR REPLACE FUNCTION pair_cast(p pair) RETURNS int IMMUTABLE LANGUAGE sql RETURN (p).a + 4",
        &["s_pair"],
    ),
    ("CREATE OR REPLACE FUNCTION in_view(x int) RETURNS int IMMUTABLE LANGUAGE sql RETURN x", &["s_view"]),
];

fn setup(c: &mut Client) {
    exec(c, SETUP);
    for (name, query) in TABLES {
        create(c, name, query);
    }
}

fn check(c: &mut Client, command: &str, anew: &[&str]) {
    for (name, query) in TABLES {
        let done = refresh(c, name);
        if *name == "s_agg" && !anew.contains(name) {
            // A user's aggregate is kept as full.
            assert!(matches!(done.action.as_str(), "no_change" | "full"), "{name} after {command}: {done:?}");
        } else {
            let expected = if anew.contains(name) { "reinitialize" } else { "no_change" };
            assert_eq!(done.action, expected, "{name} after {command}");
        }
        support::assert_equal(c, name, query);
    }
}

#[test]
fn what_functions_operators_casts_domains_aggregates_and_views_are_made_of_is_followed() {
    let db = fresh_db();
    let mut c = db.connect();
    setup(&mut c);
    for (command, anew) in CHANGES {
        exec(&mut c, command);
        check(&mut c, command, anew);
    }
}

#[test]
fn the_safety_net_finds_what_no_event_told_of() {
    let db = fresh_db();
    let (mut c, mut other) = (db.connect(), db.connect());
    setup(&mut c);
    for trigger in ["pgtrickle_ddl_end", "pgtrickle_sql_drop"] {
        let sql = format!("SELECT FROM pg_event_trigger WHERE evtname = '{trigger}'");
        if !c.query(&sql, &[]).expect("event triggers").is_empty() {
            exec(&mut c, &format!("ALTER EVENT TRIGGER {trigger} DISABLE"));
        }
    }
    let (known, unknown) = CHANGES.split_at(5);
    for (command, anew) in known {
        exec(&mut c, command);
        check(&mut c, command, anew);
    }
    // By another session, after this one has looked.
    for (command, anew) in unknown {
        exec(&mut other, command);
        check(&mut c, command, anew);
    }
    let view = "CREATE OR REPLACE VIEW vw AS SELECT id, in_view(v) + 1 AS v FROM t WHERE v > 1";
    exec(&mut other, view);
    check(&mut c, view, &["s_view"]);
    // It reads another table now.
    exec(
        &mut other,
        "CREATE TABLE u (id int, w int); INSERT INTO u SELECT g, g * 10 FROM generate_series(1, 9) g",
    );
    let view = "CREATE OR REPLACE VIEW vw AS SELECT t.id, u.w AS v FROM t JOIN u ON u.id = t.id";
    exec(&mut other, view);
    check(&mut c, view, &["s_view"]);
    exec(&mut other, "UPDATE u SET w = w + 1");
    differential(&mut c, "s_view");
    exec(&mut other, "DROP VIEW vw");
    assert_eq!(right_or_suspended(&mut c, "s_view"), "suspended");
    exec(&mut other, "ALTER TYPE part DROP ATTRIBUTE y");
    assert_eq!(right_or_suspended(&mut c, "s_pair"), "suspended");
    check_others(&mut c);
}

#[test]
fn a_composite_type_that_keeps_its_attributes_is_computed_anew() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TYPE pair AS (a int, b int); CREATE TABLE t (id int, p pair); INSERT INTO t VALUES (1, (1, 2)), (2, (3, 4))",
    );
    let tables = [
        ("shown", "SELECT id, p FROM t"),
        ("taken", "SELECT id, (p).b AS b FROM t"),
        ("printed", "SELECT id, to_jsonb(p) AS j FROM t"),
    ];
    for (name, query) in tables {
        create(&mut c, name, query);
    }
    let mut step = |command: &str, queries: &[(&str, &str)]| {
        exec(&mut c, command);
        for (name, query) in queries {
            assert_eq!(refresh(&mut c, name).action, "reinitialize", "{name} after {command}");
            support::assert_equal(&mut c, name, query);
        }
    };
    step("ALTER TYPE pair ADD ATTRIBUTE c int", &tables);
    step(
        "ALTER TYPE pair RENAME ATTRIBUTE b TO renamed",
        &[tables[0], ("taken", "SELECT id, (p).renamed AS b FROM t"), tables[2]],
    );
}

fn check_others(c: &mut Client) {
    for name in ["s_fun", "s_op", "s_dom", "s_none"] {
        assert_eq!(refresh(c, name).action, "no_change", "{name}");
    }
}

#[test]
fn a_type_that_is_altered_beneath_suspends() {
    for (command, table) in [
        ("ALTER TYPE part DROP ATTRIBUTE y CASCADE", "s_pair"),
        ("ALTER DOMAIN inner_dom ADD CHECK (VALUE > -5)", "s_dom"),
        ("ALTER DOMAIN small DROP CONSTRAINT small_check", "s_dom"),
    ] {
        let db = fresh_db();
        let mut c = db.connect();
        setup(&mut c);
        exec(&mut c, command);
        assert_eq!(right_or_suspended(&mut c, table), "suspended", "{command}");
        for (name, _) in TABLES.iter().filter(|(name, _)| *name != table && *name != "s_agg") {
            assert_eq!(refresh(&mut c, name).action, "no_change", "{name} after {command}");
        }
    }
}

#[test]
fn a_body_that_is_text_is_told_of_once() {
    let db = fresh_db();
    let (mut c, notices) = db.connect_noting();
    exec(
        &mut c,
        "CREATE TABLE t (id int PRIMARY KEY, v int);
         CREATE FUNCTION known(x int) RETURNS int IMMUTABLE LANGUAGE sql RETURN abs(x);
         CREATE FUNCTION old_sql(x int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT x';
         CREATE FUNCTION \"In PL\"(x int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN x; END';
         CREATE FUNCTION over_it(x int) RETURNS int IMMUTABLE LANGUAGE sql RETURN \"In PL\"(x)",
    );
    let told = |c: &mut Client, name: &str, query: &str| {
        notices.take();
        exec(c, &create_call(name, query, "auto"));
        notices
            .take()
            .into_iter()
            .filter(|(_, text)| text.detail.contains("OPAQUE_FUNCTION"))
            .collect::<Vec<_>>()
    };
    assert!(told(&mut c, "s0", "SELECT id, known(v) AS v, upper('a') AS u FROM t").is_empty());
    let heard = told(&mut c, "s1", "SELECT id, over_it(v) AS v FROM t");
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert!(heard[0].0 == "NOTICE" && heard[0].1.detail.contains("\"In PL\""), "{heard:?}");
    let heard = told(&mut c, "s2", "SELECT id, over_it(v) AS v, old_sql(v) AS w FROM t");
    assert_eq!(heard.len(), 1, "{heard:?}");
    for (name, functions) in [("s0", 0), ("s1", 1), ("s2", 2)] {
        let sql =
            format!("SELECT detail FROM pgtrickle.explain_refresh('{name}') WHERE step = 'opaque function'");
        assert_eq!(column::<String>(&mut c, &sql).len(), functions, "{name}");
    }
}
