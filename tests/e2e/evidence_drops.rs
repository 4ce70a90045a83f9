//! Every drop of a permanent table is preceded by a snapshot, by whatever path.

use crate::common::*;
use crate::evidence::*;
use crate::support::{fresh_db, quote_ident};

/// What is set up, the drop, its tag, and the tables of which a drop is to be recorded.
type Path = (&'static str, &'static str, &'static str, &'static [&'static str]);

const PATHS: &[Path] = &[
    (
        "CREATE TABLE a (x int); CREATE TABLE b (y int); CREATE TABLE kept (z int)",
        "DROP TABLE a, b",
        "DROP TABLE",
        &["public.a", "public.b"],
    ),
    (
        "CREATE TABLE a (x int PRIMARY KEY); CREATE TABLE b (a int REFERENCES a); CREATE VIEW v AS SELECT x FROM a;
         CREATE MATERIALIZED VIEW m AS SELECT x FROM v",
        "DROP TABLE a CASCADE",
        "DROP TABLE",
        &["public.a"],
    ),
    (
        "CREATE TYPE shape AS (x int, y int); CREATE TABLE typed OF shape; CREATE TABLE other (s shape)",
        "DROP TYPE shape CASCADE",
        "DROP TYPE",
        &["public.typed"],
    ),
    (
        "CREATE SCHEMA app; CREATE TABLE app.a (x int); CREATE TABLE app.b (x int); CREATE VIEW app.v AS SELECT 1 AS one",
        "DROP SCHEMA app CASCADE",
        "DROP SCHEMA",
        &["app.a", "app.b"],
    ),
    (
        "CREATE SCHEMA one; CREATE SCHEMA two; CREATE TABLE one.a (x int); CREATE TABLE two.a (x int)",
        "DROP SCHEMA one, two CASCADE",
        "DROP SCHEMA",
        &["one.a", "two.a"],
    ),
    // plpgsql is there without contrib, and a table can be made its member.
    (
        "CREATE TABLE a (x int); ALTER EXTENSION plpgsql ADD TABLE a",
        "DROP EXTENSION plpgsql",
        "DROP EXTENSION",
        &["public.a"],
    ),
    (
        "CREATE TABLE a (x int); CREATE TABLE b (x int)",
        "DO $$ BEGIN DROP TABLE a; EXECUTE 'DROP TABLE b'; END $$",
        "DROP TABLE",
        &["public.a", "public.b"],
    ),
    (
        "CREATE TABLE a (x int); CREATE FUNCTION f() RETURNS void LANGUAGE sql AS 'DROP TABLE a'",
        "SELECT f()",
        "DROP TABLE",
        &["public.a"],
    ),
    (
        "CREATE TABLE a (x int); CREATE TABLE b (x int);
         CREATE FUNCTION f() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
           IF to_regclass('b') IS NOT NULL THEN DROP TABLE b; END IF; END $$;
         CREATE EVENT TRIGGER e ON sql_drop EXECUTE FUNCTION f()",
        "DROP TABLE a",
        "DROP TABLE",
        &["public.a", "public.b"],
    ),
    (
        "CREATE TABLE a (x int);
         CREATE FUNCTION f() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN DROP TABLE IF EXISTS a; END';
         CREATE EVENT TRIGGER e ON ddl_command_end WHEN TAG IN ('CREATE VIEW') EXECUTE FUNCTION f()",
        "CREATE VIEW v AS SELECT 1 AS one",
        "DROP TABLE",
        &["public.a"],
    ),
    (
        "CREATE TABLE a (x int); CREATE TABLE b (x int);
         CREATE FUNCTION f() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
           ALTER EVENT TRIGGER e DISABLE; DROP TABLE a; END $$;
         CREATE EVENT TRIGGER e ON ddl_command_start WHEN TAG IN ('DROP TABLE') EXECUTE FUNCTION f()",
        "DROP TABLE b",
        "DROP TABLE",
        &["public.a", "public.b"],
    ),
    (
        "CREATE TABLE a (x int); CREATE TABLE log (x int);
         CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN DROP TABLE a; RETURN NULL; END';
         CREATE TRIGGER t AFTER INSERT ON log FOR EACH ROW EXECUTE FUNCTION f()",
        "INSERT INTO log VALUES (1)",
        "DROP TABLE",
        &["public.a"],
    ),
    ("CREATE UNLOGGED TABLE a (x int)", "DROP TABLE a", "DROP TABLE", &["public.a"]),
    (
        "CREATE TABLE p (x int, y int) PARTITION BY RANGE (x); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (9)
           PARTITION BY LIST (y); CREATE TABLE p11 PARTITION OF p1 DEFAULT",
        "DROP TABLE p11",
        "DROP TABLE",
        &["public.p11"],
    ),
    (
        "CREATE TABLE p (x int, y int) PARTITION BY RANGE (x); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (9)
           PARTITION BY LIST (y); CREATE TABLE p11 PARTITION OF p1 DEFAULT",
        "DROP TABLE p",
        "DROP TABLE",
        &["public.p", "public.p1", "public.p11"],
    ),
    (
        "CREATE TABLE up (x int); CREATE TABLE child (y int) INHERITS (up); CREATE TABLE grandchild () INHERITS (child)",
        "DROP TABLE up CASCADE",
        "DROP TABLE",
        &["public.child", "public.grandchild", "public.up"],
    ),
    // Logical replication applies and restores run like this.
    ("CREATE TABLE a (x int); SET session_replication_role = replica", "DROP TABLE a", "DROP TABLE", &["public.a"]),
];

#[test]
fn by_whatever_path() {
    crate::ddl::for_each_in_threads(PATHS, |(setup, drop, tag, tables)| {
        let db = fresh_db();
        let (mut c, notices) = db.connect_noting();
        exec(&mut c, setup);
        assert_eq!(count(&mut c), 0, "making tables leaves nothing: {setup}");
        exec(&mut c, drop);
        assert_eq!(all_dropped(&mut c), *tables, "{drop}");
        assert_eq!(count(&mut c), tables.len() as i64, "{drop}");
        for shot in shots(&mut c, "true") {
            assert_eq!(shot.tag.as_deref(), Some(*tag), "{drop}");
            assert_eq!(shot.statement.as_deref(), Some(*drop), "the text that the client sent");
            assert!(!shot.alive && shot.moment.as_deref() == Some("before"), "{drop}: {shot:#?}");
            assert!(!exists(&mut c, &format!("{}.{}", shot.schema, shot.table)), "{drop}");
        }
        assert!(warnings(&notices).is_empty(), "{drop}");
    });
}

#[test]
fn by_an_event_trigger_that_hears_of_our_own_ddl() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE src (id int PRIMARY KEY); CREATE TABLE a (x int); CREATE TABLE b (x int);
         CREATE FUNCTION f() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN DROP TABLE IF EXISTS public.a; END';
         CREATE FUNCTION g() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
           IF to_regclass('public.b') IS NOT NULL THEN DROP TABLE public.b; END IF; END $$;
         CREATE EVENT TRIGGER f ON ddl_command_end WHEN TAG IN ('CREATE TRIGGER') EXECUTE FUNCTION f()",
    );
    create(&mut c, "s", "SELECT id FROM src");
    assert_eq!(all_dropped(&mut c), ["public.a"]);
    exec(&mut c, "CREATE EVENT TRIGGER g ON sql_drop WHEN TAG IN ('DROP TRIGGER') EXECUTE FUNCTION g()");
    exec(&mut c, "SELECT pgtrickle.drop_stream_table('s')");
    assert_eq!(all_dropped(&mut c), ["public.a", "public.b", "public.s"]);
    assert_eq!(missing(&mut c), 0);
}

#[test]
fn all_that_a_role_owns() {
    let db = fresh_db();
    let mut c = db.connect();
    let role = db.create_role("leaver");
    exec(
        &mut c,
        &format!(
            "CREATE SCHEMA his AUTHORIZATION \"{role}\"; SET ROLE \"{role}\"; CREATE TABLE his.a (x int);
             CREATE TABLE his.b (x int, y int); RESET ROLE; CREATE TABLE mine (x int); GRANT SELECT ON mine TO \"{role}\""
        ),
    );
    exec(&mut c, &format!("DROP OWNED BY \"{role}\""));
    assert_eq!(all_dropped(&mut c), ["his.a", "his.b"]);
    let shot = dropped(&mut c, "b");
    assert_eq!(
        (shot.tag.as_deref(), shot.details["owner"].as_str()),
        (Some("DROP OWNED"), Some(role.as_str()))
    );
    assert_eq!(shot.actor, "postgres");
}

/// As pandas' `to_sql(if_exists = "replace")` and ORMs' test set-ups do it.
#[test]
fn dropped_and_made_again_within_one_transaction() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE feed (a int); BEGIN;
         DROP TABLE feed; CREATE TABLE feed (a int, b text); INSERT INTO feed VALUES (1, 'one'); ANALYZE feed;
         DROP TABLE feed; CREATE TABLE feed (b text, c date); DROP TABLE IF EXISTS feed; CREATE TABLE feed (d int);
         COMMIT; DROP TABLE feed",
    );
    let line = shots_of(&mut c, "feed");
    let names: Vec<Vec<&str>> = line.iter().map(Shot::names).collect();
    assert_eq!(names, [vec!["a"], vec!["a", "b"], vec!["b", "c"], vec!["d"]]);
    assert!(line[1].stats && line[1].rows == Some(1), "statistics of the same transaction: {:#?}", line[1]);
    let mut oids: Vec<u32> = line.iter().map(|s| s.relation).collect();
    oids.dedup();
    assert_eq!(oids.len(), 4, "each was a table of its own");
}

#[test]
fn the_shape_is_that_at_the_drop_and_not_at_the_statement() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "CREATE TABLE a (x int)");
    exec(
        &mut c,
        "DO $$ BEGIN
           ALTER TABLE a ADD COLUMN y text NOT NULL DEFAULT 'v', ADD PRIMARY KEY (x);
           ALTER TABLE a RENAME TO renamed; INSERT INTO renamed VALUES (1); DROP TABLE renamed;
           CREATE TABLE b (p int); ALTER TABLE b RENAME p TO q; DROP TABLE b;
         END $$",
    );
    let shot = dropped(&mut c, "renamed");
    assert_eq!(shot.names(), ["x", "y"]);
    assert_eq!(shot.details["primary_key"], serde_json::json!(["x"]));
    assert_eq!(shot.column("y")["default"], "'v'::text");
    assert_eq!(dropped(&mut c, "b").names(), ["q"]);
}

#[test]
fn values_of_types_that_go_with_their_schema() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE SCHEMA shop; CREATE TYPE shop.mood AS ENUM ('sad', 'glad', 'mad'); CREATE DOMAIN shop.code AS text;
         CREATE DOMAIN shop.small AS int CHECK (VALUE < 1000); CREATE DOMAIN shop.smaller AS shop.small;
         CREATE TYPE shop.pair AS (l int, r int);
         CREATE TABLE shop.t (id int, m shop.mood, c shop.code, n shop.smaller, p shop.pair, plain text);
         INSERT INTO shop.t SELECT i, (ARRAY['sad', 'glad'])[1 + i % 2]::shop.mood, 'code' || i % 3, i % 5, ROW(i % 2, 1)::shop.pair, 'p' || i % 4
           FROM generate_series(1, 100) i; ANALYZE shop.t",
    );
    exec(&mut c, "DROP SCHEMA shop CASCADE");
    let shot = dropped(&mut c, "t");
    let sorted = |name: &str| {
        let mut values = shot.values(name);
        values.sort_unstable();
        values
    };
    assert_eq!(sorted("m"), ["glad", "sad"]);
    assert_eq!(sorted("c"), ["code0", "code1", "code2"]);
    assert_eq!(sorted("n"), ["0", "1", "2", "3", "4"]);
    assert_eq!(sorted("plain"), ["p0", "p1", "p2", "p3"]);
    assert_eq!(shot.absent("p"), "TYPE_DROPPED");
    let types: Vec<&str> =
        ["m", "c", "n", "p"].iter().map(|n| shot.column(n)["type"].as_str().expect("type")).collect();
    assert_eq!(types, ["shop.mood", "shop.code", "shop.smaller", "shop.pair"]);
    assert_eq!(shot.column("m")["type_kind"], "e");
    assert!(shot.stats);
}

#[test]
fn a_partitioned_table_has_the_statistics_of_its_rows_wherever_they_lie() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE p (k int, v text, PRIMARY KEY (k)) PARTITION BY RANGE (k);
         CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100);
         CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (100) TO (200);
         INSERT INTO p SELECT i, CASE WHEN i < 100 THEN 'low' ELSE 'high' END FROM generate_series(0, 199) i; ANALYZE p;
         CREATE TABLE up (v text); CREATE TABLE child () INHERITS (up);
         INSERT INTO up SELECT 'upper' FROM generate_series(1, 9); INSERT INTO child SELECT 'lower' FROM generate_series(1, 9);
         ANALYZE up; ANALYZE child",
    );
    exec(&mut c, "DROP TABLE p");
    exec(&mut c, "DROP TABLE up CASCADE");
    let whole = dropped(&mut c, "p");
    let mut values = whole.values("v");
    values.sort_unstable();
    assert_eq!(values, ["high", "low"]);
    assert_eq!(whole.rows, Some(200));
    assert_eq!(whole.details["kind"], "partitioned table");
    assert_eq!(whole.details["partition_key"], serde_json::json!({"strategy": "range", "columns": ["k"]}));
    assert_eq!(whole.details["members"], serde_json::json!(["public.p1", "public.p2"]));
    let part = dropped(&mut c, "p1");
    assert_eq!(part.values("v"), ["low"]);
    assert_eq!((&part.details["is_partition"], part.rows), (&serde_json::json!(true), Some(100)));
    assert_eq!(part.details["primary_key"], serde_json::json!(["k"]));
    // A table with children is a table of its own rows.
    assert_eq!(dropped(&mut c, "up").values("v"), ["upper"]);
    let child = dropped(&mut c, "child");
    assert_eq!(child.values("v"), ["lower"]);
    assert_eq!(child.details["parents"], serde_json::json!([dropped(&mut c, "up").relation]));
}

#[test]
fn names_of_every_kind() {
    let db = fresh_db();
    let mut c = db.connect();
    let names =
        ["Upper", "sp ace", "quo\"te", "größe", "数据", "🦀", "select", "back\\slash", "'s'", "tab\there"];
    for name in names {
        let q = quote_ident(name);
        exec(
            &mut c,
            &format!(
                "CREATE SCHEMA IF NOT EXISTS {q}; CREATE TABLE {q}.{q} ({q} int, x int); DROP TABLE {q}.{q}"
            ),
        );
        let shot = dropped(&mut c, name);
        assert_eq!((shot.schema.as_str(), shot.names()), (name, vec![name, "x"]));
    }
    // What Excel and Windows tools leave before the first column's name.
    let bom = "\u{feff}id";
    exec(&mut c, &format!("CREATE TABLE export (\"{bom}\" int, name text); DROP TABLE export"));
    let shot = dropped(&mut c, "export");
    assert_eq!(shot.names(), [bom, "name"], "the exact name");
    assert_eq!(shot.column(bom)["shown"], "U&\"\\FEFFid\"", "and one that can be seen");
    assert_eq!(shot.column("name").get("shown"), None);
}

#[test]
fn narrow_wide_and_thinned_tables() {
    let db = fresh_db();
    let mut c = db.connect();
    let columns = |n: usize| (1..=n).map(|i| format!("c{i} int DEFAULT {i}")).collect::<Vec<_>>().join(", ");
    exec(&mut c, "CREATE TABLE nothing (); INSERT INTO nothing DEFAULT VALUES; ANALYZE nothing");
    exec(
        &mut c,
        "CREATE TABLE thinned (a int, b int, c int); ALTER TABLE thinned DROP b; INSERT INTO thinned VALUES (1, 2); ANALYZE thinned",
    );
    for n in [300, 301, 1600] {
        exec(&mut c, &format!("CREATE TABLE wide{n} ({})", columns(n)));
        exec(
            &mut c,
            &format!(
                "INSERT INTO wide{n} DEFAULT VALUES; INSERT INTO wide{n} DEFAULT VALUES; ANALYZE wide{n}"
            ),
        );
    }
    for table in ["nothing", "thinned", "wide300", "wide301", "wide1600"] {
        exec(&mut c, &format!("DROP TABLE {table}"));
    }
    let nothing = dropped(&mut c, "nothing");
    assert_eq!(
        (nothing.column_count, nothing.names().len(), nothing.rows, nothing.stats),
        (0, 0, Some(1), false)
    );
    let thinned = dropped(&mut c, "thinned");
    assert_eq!((thinned.column_count, thinned.names()), (2, vec!["a", "c"]));
    assert_eq!(thinned.column("c")["attnum"], 3);
    let widest = dropped(&mut c, "wide1600");
    assert_eq!((widest.column_count, widest.stats), (1600, false));
    assert_eq!(widest.absent("c1600"), "TOO_WIDE");
    assert_eq!(widest.column("c1600")["default"], "1600", "the shape is whole");
    assert_eq!(dropped(&mut c, "wide301").absent("c1"), "TOO_WIDE");
    let most = dropped(&mut c, "wide300");
    assert_eq!((most.column_count, most.stats), (300, true));
    assert_eq!(most.values("c300"), ["300"]);
}

#[test]
fn stream_tables_and_their_sources() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "first", "SELECT id, v FROM t");
    create(&mut c, "second", "SELECT grp, count(*) AS n FROM t GROUP BY grp");
    exec(&mut c, "ANALYZE first; ANALYZE second");
    exec(&mut c, "SELECT pgtrickle.drop_stream_table('first')");
    exec(&mut c, "DROP TABLE second");
    // Of the user's tables alone, not of their buffers and state.
    assert_eq!(all_dropped(&mut c), ["public.first", "public.second"]);
    assert!(dropped(&mut c, "first").stats && dropped(&mut c, "second").stats);
    let own: Vec<bool> = column(
        &mut c,
        "SELECT own FROM pgtrickle.pgt_schema_snapshots WHERE reason = 'drop' ORDER BY snapshot_id",
    );
    assert_eq!(own, [true, false], "by a function of ours, and by the user");
    create(&mut c, "third", "SELECT id, v FROM t");
    exec(&mut c, "ANALYZE t; DROP TABLE t");
    let shot = dropped(&mut c, "t");
    assert_eq!((shot.details["primary_key"][0].as_str(), shot.stats), (Some("id"), true));
    assert_suspended(&mut c, "third", "SOURCE_DROPPED");
    assert_eq!(all_dropped(&mut c), ["public.first", "public.second", "public.t"]);
}

/// The time that recording may take is for a few tables at a time: a large schema must not use it up.
#[test]
fn a_schema_of_many_tables() {
    let db = fresh_db();
    let (mut c, notices) = db.connect_noting();
    exec(&mut c, "CREATE SCHEMA app");
    for batch in 0..20 {
        let tables: String = (0..100)
            .map(|i| {
                format!("CREATE TABLE app.t{batch}_{i} (id int PRIMARY KEY, a text DEFAULT 'x', b date);")
            })
            .collect();
        exec(&mut c, &tables);
    }
    // Less than all of it takes, and more than a few tables do on a busy machine.
    exec(&mut c, "SET pg_trickle.snapshot_timeout = '1s'");
    exec(&mut c, "DROP SCHEMA app CASCADE");
    assert!(warnings(&notices).is_empty());
    assert_eq!(count(&mut c), 2000);
}
