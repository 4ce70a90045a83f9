//! The SQL surface: names, arguments, columns, and what each call does in its plainest form.

use crate::common::*;
use crate::support::{self, expect_error, fresh_db, refresh, try_refresh};
use postgres::Client;
use postgres::types::Type;

/// Name, promised leading arguments with their types, how many of them have defaults.
type Signature = (&'static str, &'static [(&'static str, &'static str)], usize, &'static str);

const SIGNATURES: &[Signature] = &[
    (
        "create_stream_table",
        &[
            ("name", "text"),
            ("query", "text"),
            ("schedule", "interval"),
            ("refresh_mode", "text"),
            ("initialize", "boolean"),
        ],
        3,
        "regclass",
    ),
    ("refresh_stream_table", &[("stream_table", "regclass"), ("mode", "text")], 1, "TABLE"),
    ("drop_stream_table", &[("stream_table", "regclass"), ("cascade", "boolean")], 1, ""),
    (
        "alter_stream_table",
        &[("stream_table", "regclass"), ("schedule", "interval"), ("refresh_mode", "text")],
        0,
        "",
    ),
    ("suspend_stream_table", &[("", "regclass")], 0, ""),
    ("resume_stream_table", &[("", "regclass")], 0, ""),
    ("alter_stream_table_query", &[("stream_table", "regclass"), ("query", "text")], 0, ""),
    ("explain_refresh", &[("stream_table", "regclass")], 0, "TABLE"),
    ("health_check", &[], 0, "TABLE"),
];

#[test]
fn functions_have_the_promised_arguments() {
    let db = fresh_db();
    let mut c = db.connect();
    for (name, args, defaults, result) in SIGNATURES {
        let row = c
            .query_one(
                "SELECT coalesce(proargnames, '{}'), pronargs::int, pronargdefaults::int,
                        (SELECT coalesce(array_agg(format_type(t, NULL) ORDER BY n), '{}')
                         FROM unnest(proargtypes) WITH ORDINALITY a(t, n)),
                        pg_get_function_result(oid)
                 FROM pg_proc WHERE pronamespace = 'pgtrickle'::regnamespace AND proname = $1",
                &[name],
            )
            .unwrap_or_else(|e| panic!("pgtrickle.{name} should exist once: {e}"));
        let (names, n, with_default): (Vec<String>, i32, i32) = (row.get(0), row.get(1), row.get(2));
        let (types, returns): (Vec<String>, String) = (row.get(3), row.get(4));
        for (i, (arg, ty)) in args.iter().enumerate() {
            assert_eq!(types[i], *ty, "{name}, argument {}", i + 1);
            assert!(arg.is_empty() || names[i] == *arg, "{name}, argument {}: {names:?}", i + 1);
        }
        let required = args.len() - defaults;
        assert!(n - with_default <= required as i32, "{name} has a further argument without a default");
        assert!(returns.starts_with(result), "{name} returns {returns}");
    }
    let defaults: String =
        one(&mut c, "SELECT pg_get_function_arguments('pgtrickle.create_stream_table'::regproc)");
    for promised in [
        "schedule interval DEFAULT '00:00:10'::interval",
        "refresh_mode text DEFAULT 'auto'::text",
        "initialize boolean DEFAULT true",
    ] {
        let other_spelling = promised.replace("'00:00:10'", "'10 seconds'");
        assert!(defaults.contains(promised) || defaults.contains(&other_spelling), "{promised}: {defaults}");
    }
}

fn assert_columns(c: &mut Client, from: &str, columns: &[(&str, Option<Type>)]) {
    let list: Vec<String> = columns.iter().map(|(n, _)| format!("\"{n}\"")).collect();
    let sql = format!("SELECT {} FROM {from}", list.join(", "));
    let statement = c.prepare(&sql).unwrap_or_else(|e| panic!("{sql}: {}", support::describe(&e)));
    for (column, (name, ty)) in statement.columns().iter().zip(columns) {
        if let Some(ty) = ty {
            assert_eq!(column.type_(), ty, "{from}, column {name}");
        }
    }
}

#[test]
fn views_and_results_have_the_promised_columns() {
    let db = fresh_db();
    let mut c = db.connect();
    let text = || Some(Type::TEXT);
    assert_columns(
        &mut c,
        "pgtrickle.stream_tables",
        &[
            ("stream_table", Some(Type::REGCLASS)),
            ("query", text()),
            ("schedule", Some(Type::INTERVAL)),
            ("refresh_mode", text()),
            ("status", text()),
            ("reason", text()),
            ("detail", text()),
            ("hint", text()),
            ("sources", Some(Type::REGCLASS_ARRAY)),
            ("last_refresh", Some(Type::TIMESTAMPTZ)),
            ("staleness", Some(Type::INTERVAL)),
        ],
    );
    assert_columns(
        &mut c,
        "pgtrickle.refresh_history",
        &[
            ("stream_table", None),
            ("started_at", Some(Type::TIMESTAMPTZ)),
            ("finished_at", Some(Type::TIMESTAMPTZ)),
            ("action", text()),
            ("status", text()),
            ("reason", text()),
            ("detail", text()),
            ("hint", text()),
            ("rows_inserted", Some(Type::INT8)),
            ("rows_updated", Some(Type::INT8)),
            ("rows_deleted", Some(Type::INT8)),
        ],
    );
    assert_columns(
        &mut c,
        "pgtrickle.change_buffers",
        &[("source", None), ("rows", Some(Type::INT8)), ("bytes", Some(Type::INT8)), ("oldest", None)],
    );
    assert_columns(
        &mut c,
        "pgtrickle.health_check()",
        &[("check", text()), ("status", text()), ("detail", text())],
    );
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id FROM t");
    assert_columns(
        &mut c,
        "pgtrickle.refresh_stream_table('s')",
        &[
            ("action", text()),
            ("rows_inserted", Some(Type::INT8)),
            ("rows_updated", Some(Type::INT8)),
            ("rows_deleted", Some(Type::INT8)),
            ("duration", Some(Type::INTERVAL)),
        ],
    );
    assert_columns(&mut c, "pgtrickle.explain_refresh('s')", &[("step", None), ("detail", text())]);
    assert!(one::<i64>(&mut c, "SELECT count(*) FROM pgtrickle.explain_refresh('s')") > 0);
}

#[test]
fn creation_returns_the_table_and_records_it() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    let query = "SELECT grp, count(*) AS n FROM t GROUP BY grp";
    let made: String =
        one(&mut c, &format!("SELECT pgtrickle.create_stream_table('s', {})::text", lit(query)));
    assert_eq!(made, "s");
    support::assert_equal(&mut c, "s", query);
    let row = c
        .query_one(
            "SELECT status, schedule = '10 seconds', refresh_mode, sources = ARRAY['t'::regclass],
                    last_refresh <= now(), staleness >= '0', reason IS NULL, query
             FROM pgtrickle.stream_tables WHERE stream_table = 's'::regclass",
            &[],
        )
        .expect("row");
    assert_eq!(row.get::<_, String>(0), "active");
    assert!(row.get::<_, bool>(1), "the schedule is 10 seconds by default");
    assert_eq!(row.get::<_, String>(2), "auto");
    assert!(row.get::<_, bool>(3), "sources");
    assert!(row.get::<_, bool>(4), "last_refresh");
    assert!(row.get::<_, bool>(5), "staleness");
    assert!(row.get::<_, bool>(6), "no reason while active");
    support::assert_equal(&mut c, "s", &row.get::<_, String>(7));
}

#[test]
fn schedule_null_and_named_arguments() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    exec(
        &mut c,
        "SELECT pgtrickle.create_stream_table(name => 's', query => 'SELECT id FROM t', schedule => NULL,
                refresh_mode => 'differential', initialize => true)",
    );
    assert!(one::<bool>(
        &mut c,
        "SELECT schedule IS NULL AND refresh_mode = 'differential' FROM pgtrickle.stream_tables"
    ));
}

#[test]
fn creation_without_preload_says_so() {
    let db = fresh_db();
    let (mut c, notices) = db.connect_noting();
    exec(&mut c, T);
    notices.take();
    exec(&mut c, "SELECT pgtrickle.create_stream_table('s', 'SELECT id FROM t')");
    let heard = notices.take();
    assert!(
        heard.iter().any(|(severity, n)| severity == "NOTICE"
            && format!("{} {} {}", n.message, n.detail, n.hint).contains("preload")),
        "{heard:?}"
    );
    let health: Vec<String> = column(
        &mut c,
        "SELECT status FROM pgtrickle.health_check() WHERE concat(\"check\", ' ', detail) LIKE '%preload%'",
    );
    assert!(
        health.iter().any(|s| s == "WARN" || s == "FAIL"),
        "health_check says that it is not preloaded: {health:?}"
    );
    let words: Vec<String> = column(
        &mut c,
        "SELECT DISTINCT status FROM pgtrickle.health_check() WHERE status NOT IN ('OK', 'WARN', 'FAIL')",
    );
    assert!(words.is_empty(), "{words:?}");
}

#[test]
fn not_initialized_until_the_first_refresh() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    exec(
        &mut c,
        "SELECT pgtrickle.create_stream_table('s', 'SELECT id, v FROM t', schedule => NULL, initialize => false)",
    );
    assert_eq!(status(&mut c, "s").status, "uninitialized");
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM s"), 0);
    exec(&mut c, "UPDATE t SET v = v + 1; DELETE FROM t WHERE id = 3");
    let done = refresh(&mut c, "s");
    assert!(["full", "reinitialize"].contains(&done.action.as_str()), "{done:?}");
    assert_active(&mut c, "s");
    support::assert_equal(&mut c, "s", "SELECT id, v FROM t");
    exec(&mut c, "UPDATE t SET v = v + 1 WHERE id < 3");
    differential(&mut c, "s");
}

#[test]
fn qualified_names_and_search_path() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, &format!("{T}; CREATE SCHEMA reports; CREATE SCHEMA other"));
    create(&mut c, "reports.s", "SELECT id FROM public.t");
    exec(&mut c, "SET search_path = other, public");
    create(&mut c, "s", "SELECT v FROM t");
    assert_eq!(
        column::<String>(
            &mut c,
            "SELECT format('%s.%s', relnamespace::regnamespace, relname) FROM pg_class
             WHERE oid IN (SELECT stream_table FROM pgtrickle.stream_tables) ORDER BY 1"
        ),
        ["other.s", "reports.s"]
    );
    // The query means for ever what it meant when it was given.
    exec(
        &mut c,
        "CREATE TABLE other.t (v int); INSERT INTO other.t VALUES (-1); UPDATE public.t SET v = 0 WHERE id = 1",
    );
    assert_eq!(support::try_refresh(&mut c, "other.s", "auto").expect("refresh").action, "differential");
    support::assert_equal(&mut c, "other.s", "SELECT v FROM public.t");
}

#[test]
fn i7_the_table_has_exactly_the_columns_of_the_query() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TYPE mood AS ENUM ('sad', 'ok');
         CREATE DOMAIN positive AS int CHECK (VALUE > 0);
         CREATE TABLE w (id int PRIMARY KEY, a varchar(10), b char(3), c numeric(10, 2), d numeric, e timestamp(3),
             f text COLLATE \"C\", g int[], h mood, i positive, j jsonb, k uuid, l bytea, m bit(5), n interval, o float4,
             p timestamptz, q inet, r \"char\", s name, t boolean, u point);
         INSERT INTO w VALUES (1, 'x', 'y', 1.5, 2.50, '2024-01-01 01:02:03.456', 'f', '{1,2}', 'ok', 3, '{\"a\": 1}',
             '00000000-0000-0000-0000-000000000001', '\\x01', B'10101', '1 day', 1.5, '2024-01-01', '10.0.0.1', 'r', 's',
             true, '(1,2)')",
    );
    let queries = [
        "SELECT * FROM w",
        "SELECT id AS \"Id\", a || b AS ab, c * 2 AS c2, 'unknown' AS lit, NULL AS nothing, g[1] AS g1 FROM w",
        "SELECT grp.h, count(*), sum(grp.c), avg(grp.d) AS \"the average\", min(grp.e), max(grp.f) FROM w AS grp GROUP BY grp.h",
        "SELECT DISTINCT a, f FROM w",
        "SELECT a FROM w UNION ALL SELECT f FROM w",
    ];
    for (i, query) in queries.iter().enumerate() {
        exec(&mut c, &format!("CREATE TABLE plain{i} AS {query}"));
        // `point` and `json` have no equality, so the bag comparison of the harness does not apply to the first query.
        exec(&mut c, &create_call(&format!("s{i}"), query, "auto"));
        let shape = |c: &mut Client, name: String| -> Vec<String> {
            column(
                c,
                &format!(
                    "SELECT format('%s %I %s %s %s', attnum, attname, format_type(atttypid, atttypmod), attcollation,
                                   attisdropped)
                     FROM pg_attribute WHERE attrelid = '{name}'::regclass AND attnum > 0 ORDER BY attnum"
                ),
            )
        };
        assert_eq!(shape(&mut c, format!("s{i}")), shape(&mut c, format!("plain{i}")), "I7: {query}");
        assert!(one::<bool>(
            &mut c,
            &format!(
                "SELECT relkind = 'r' AND relpersistence = 'p' AND NOT relhasrules AND NOT relispartition
                 FROM pg_class WHERE oid = 's{i}'::regclass"
            )
        ));
    }
    // COPY and SELECT * see what the query says.
    let mut out = String::new();
    std::io::Read::read_to_string(&mut c.copy_out("COPY s4 TO STDOUT").expect("copy"), &mut out)
        .expect("copy");
    assert_eq!(out, "x\nf\n");
}

#[test]
fn unnamed_and_duplicate_columns_are_treated_as_in_create_table_as() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT grp, count(*), max(v) FROM t GROUP BY grp");
    assert_eq!(
        column::<String>(
            &mut c,
            "SELECT attname::text FROM pg_attribute WHERE attrelid = 's'::regclass AND attnum > 0 ORDER BY attnum"
        ),
        ["grp", "count", "max"]
    );
    create(&mut c, "s2", "SELECT 1 FROM t");
    assert!(one::<bool>(
        &mut c,
        "SELECT attname = '?column?' FROM pg_attribute WHERE attrelid = 's2'::regclass AND attnum = 1"
    ));
    for query in
        ["SELECT id, id FROM t", "SELECT 1, 2 FROM t", "SELECT a.id, b.id FROM t a JOIN t b USING (grp)"]
    {
        assert_refused(&mut c, &create_call("s3", query, "auto"), &["42701"]);
    }
}

#[test]
fn refresh_counts_rows_and_says_what_it_did() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id, v FROM t");
    let nothing = refresh(&mut c, "s");
    assert_eq!(nothing, support::Refresh { action: "no_change".into(), inserted: 0, updated: 0, deleted: 0 });
    exec(&mut c, "INSERT INTO t VALUES (11, 1, 1), (12, 1, 2), (13, 1, 3)");
    assert_eq!(
        differential(&mut c, "s"),
        support::Refresh { action: "differential".into(), inserted: 3, updated: 0, deleted: 0 }
    );
    exec(&mut c, "DELETE FROM t WHERE id IN (1, 2)");
    let done = differential(&mut c, "s");
    assert_eq!((done.inserted, done.updated, done.deleted), (0, 0, 2));
    exec(&mut c, "UPDATE t SET v = -1 WHERE id = 3");
    let done = differential(&mut c, "s");
    // One row changed: as an update, or as one row that goes and one that comes.
    assert!([(0, 1, 0), (1, 0, 1)].contains(&(done.inserted, done.updated, done.deleted)), "{done:?}");
    // Changes that cancel out.
    exec(&mut c, "INSERT INTO t VALUES (99, 1, 1); DELETE FROM t WHERE id = 99; UPDATE t SET v = v");
    let done = refresh(&mut c, "s");
    assert_eq!((done.inserted, done.updated, done.deleted), (0, 0, 0), "{done:?}");
}

#[test]
fn refresh_in_mode_full_and_back() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT grp, sum(v) AS total FROM t GROUP BY grp");
    exec(&mut c, "UPDATE t SET v = v + 1 WHERE id < 4");
    let done = try_refresh(&mut c, "s", "full").expect("full");
    assert_eq!(done.action, "full");
    assert_eq!(refresh(&mut c, "s").action, "no_change", "a full refresh moves the frontier");
    exec(&mut c, "DELETE FROM t WHERE grp = 0; INSERT INTO t VALUES (50, 7, 7)");
    differential(&mut c, "s");
    exec(&mut c, "UPDATE t SET v = 5 WHERE id = 50");
    assert_eq!(try_refresh(&mut c, "s", "differential").expect("differential").action, "differential");
    let e = expect_error(&mut c, "SELECT pgtrickle.refresh_stream_table('s', 'sideways')");
    assert_eq!(e.sqlstate, "22023", "{e:?}");
    assert!(e.detail.starts_with("reason=") && !e.hint.is_empty(), "{e:?}");
}

#[test]
fn a_refresh_with_nothing_to_do_writes_nothing() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, &format!("{T}; CREATE TABLE unrelated (x int)"));
    create(&mut c, "s", "SELECT grp, count(*) AS n, max(v) AS m FROM t GROUP BY grp");
    exec(&mut c, "UPDATE t SET v = v + 1; INSERT INTO t VALUES (20, 5, 5)");
    differential(&mut c, "s");
    refresh(&mut c, "s");
    exec(&mut c, "INSERT INTO unrelated VALUES (1)");
    let census_before = census(&mut c);
    let mut tx = c.transaction().expect("begin");
    assert_eq!(one::<String>(&mut tx, "SELECT action FROM pgtrickle.refresh_stream_table('s')"), "no_change");
    let wrote: bool = one(&mut tx, "SELECT pg_current_xact_id_if_assigned() IS NOT NULL");
    assert!(!wrote, "a refresh with nothing to do took a transaction id");
    tx.commit().expect("commit");
    assert_eq!(census(&mut c), census_before);
}

#[test]
fn history_has_a_row_for_each_refresh_that_did_something() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id FROM t");
    exec(&mut c, "INSERT INTO t VALUES (100, 1, 1), (101, 1, 1)");
    differential(&mut c, "s");
    exec(&mut c, "INSERT INTO t VALUES (102, 1, 1)");
    try_refresh(&mut c, "s", "full").expect("full");
    let rows: Vec<String> = column(
        &mut c,
        "SELECT format('%s %s %s', action, status, rows_inserted) FROM pgtrickle.refresh_history
         WHERE stream_table::text = 's' AND finished_at >= started_at AND action IN ('differential', 'full')
         ORDER BY started_at, finished_at",
    );
    assert!(rows.contains(&"differential completed 2".to_string()), "{rows:?}");
    assert!(rows.last().is_some_and(|r| r.starts_with("full completed")), "{rows:?}");
    assert!(one::<bool>(
        &mut c,
        "SELECT last_refresh >= (SELECT max(started_at) FROM pgtrickle.refresh_history) - interval '1 minute'
                AND last_refresh <= clock_timestamp() FROM pgtrickle.stream_tables"
    ));
}

#[test]
fn alter_changes_schedule_and_mode() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT grp, count(*) AS n FROM t GROUP BY grp");
    exec(&mut c, "SELECT pgtrickle.alter_stream_table('s', '5 minutes', 'full')");
    assert!(one::<bool>(
        &mut c,
        "SELECT schedule = '5 minutes' AND refresh_mode = 'full' FROM pgtrickle.stream_tables"
    ));
    // The first refresh after the change of mode may do more than the mode says.
    exec(&mut c, "UPDATE t SET grp = 9 WHERE id = 1");
    refresh(&mut c, "s");
    exec(&mut c, "UPDATE t SET grp = 9 WHERE id = 2");
    assert_eq!(refresh(&mut c, "s").action, "full");
    exec(
        &mut c,
        "SELECT pgtrickle.alter_stream_table('s', schedule => '1 minute', refresh_mode => 'differential')",
    );
    exec(&mut c, "UPDATE t SET grp = 8 WHERE id = 1");
    refresh(&mut c, "s");
    exec(&mut c, "UPDATE t SET grp = 8 WHERE id = 2");
    differential(&mut c, "s");
    for bad in [
        "SELECT pgtrickle.alter_stream_table('s', '1 minute', 'sometimes')",
        "SELECT pgtrickle.alter_stream_table('s', '-1 minute', 'auto')",
        "SELECT pgtrickle.create_stream_table('s9', 'SELECT id FROM t', '-5 seconds')",
        "SELECT pgtrickle.create_stream_table('s9', 'SELECT id FROM t', refresh_mode => 'sometimes')",
    ] {
        assert_refused(&mut c, bad, &["22023"]);
    }
    // A query that has no delta can't be switched to differential, and the mode stays.
    create(&mut c, "w", "SELECT id, row_number() OVER (ORDER BY id) AS n FROM t");
    let e =
        assert_refused(&mut c, "SELECT pgtrickle.alter_stream_table('w', NULL, 'differential')", &["0A000"]);
    assert!(e.message.to_lowercase().contains("window"), "{e:?}");
}

#[test]
fn every_call_refuses_what_is_not_a_stream_table() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    for call in [
        "refresh_stream_table('t')",
        "drop_stream_table('t')",
        "alter_stream_table('t', '1 minute', 'auto')",
        "suspend_stream_table('t')",
        "resume_stream_table('t')",
        "alter_stream_table_query('t', 'SELECT 1 AS a')",
        "explain_refresh('t')",
    ] {
        let e = assert_refused(&mut c, &format!("SELECT * FROM pgtrickle.{call}"), &["42809"]);
        assert!(e.message.contains('t'), "{e:?}");
    }
    assert_eq!(
        expect_error(&mut c, "SELECT pgtrickle.refresh_stream_table('no_such_thing')").sqlstate,
        "42P01"
    );
    assert_eq!(
        one::<i64>(&mut c, "SELECT count(*) FROM t"),
        10,
        "a plain table is not dropped by drop_stream_table"
    );
}
