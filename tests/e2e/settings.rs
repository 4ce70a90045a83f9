//! What users set for a database, a role or a session changes nothing of ours: each pinned setting (src/pg/settings.rs)
//! at an adverse value, with everything that pgtrickle does under it, compared by a session with plain settings.

use crate::common::*;
use crate::support::{self, Cluster, Options, fresh_db, quote_ident};
use postgres::{Client, NoTls};
use std::collections::BTreeMap;

/// The opposite of what is pinned, or what hurts most.
fn adverse() -> BTreeMap<&'static str, &'static str> {
    let mut values = BTreeMap::from([
        ("search_path", "nowhere"),
        ("standard_conforming_strings", "off"),
        ("backslash_quote", "on"),
        ("transform_null_equals", "on"),
        ("array_nulls", "off"),
        ("xmloption", "document"),
        ("quote_all_identifiers", "on"),
        ("DateStyle", "German, DMY"),
        ("IntervalStyle", "sql_standard"),
        ("extra_float_digits", "-15"),
        ("bytea_output", "escape"),
        ("xmlbinary", "hex"),
        ("row_security", "off"),
        ("session_replication_role", "replica"),
        ("gin_fuzzy_search_limit", "1"),
        ("lo_compat_privileges", "on"),
        ("restrict_nonsystem_relation_kind", "'view', 'foreign-table'"),
        ("zero_damaged_pages", "on"),
        ("ignore_checksum_failure", "on"),
        ("check_function_bodies", "off"),
        ("default_tablespace", "elsewhere"),
        ("temp_tablespaces", "elsewhere"),
        ("default_table_access_method", "heap2"),
        ("default_toast_compression", "lz4"),
        ("plan_cache_mode", "force_custom_plan"),
        ("constraint_exclusion", "off"),
        ("cursor_tuple_fraction", "1"),
        ("from_collapse_limit", "1"),
        ("join_collapse_limit", "1"),
        ("recursive_worktable_factor", "1000000"),
        ("geqo", "off"),
        ("geqo_threshold", "2"),
        ("geqo_effort", "1"),
        ("geqo_generations", "1"),
        ("geqo_pool_size", "2"),
        ("geqo_seed", "1"),
        ("geqo_selection_bias", "1.5"),
        ("jit", "on"),
        ("synchronize_seqscans", "off"),
        ("parallel_leader_participation", "off"),
        ("force_parallel_mode", "on"),
        ("debug_parallel_query", "on"),
        ("enable_partitionwise_aggregate", "on"),
        ("enable_partitionwise_join", "on"),
        ("role", "nobody"),
        ("default_transaction_read_only", "on"),
        ("default_transaction_isolation", "serializable"),
        ("default_transaction_deferrable", "on"),
        ("statement_timeout", "1"),
        ("lock_timeout", "1"),
        ("idle_in_transaction_session_timeout", "1"),
        ("idle_session_timeout", "1"),
        ("transaction_timeout", "1"),
        ("client_min_messages", "debug5"),
        ("exit_on_error", "on"),
        ("event_triggers", "off"),
        ("stats_fetch_consistency", "none"),
    ]);
    for (name, value) in pinned().into_iter().chain(for_workers()) {
        if name.starts_with("enable_") && value == "on" {
            values.insert(leaked(&name), "off");
        }
    }
    values
}

fn leaked(text: &str) -> &'static str {
    Box::leak(text.to_string().into_boxed_str())
}

/// The entries of a list in src/pg/settings.rs.
fn listed(list: &str) -> Vec<(String, String)> {
    let source = include_str!("../../src/pg/settings.rs");
    let (_, list) = source.split_once(list).expect("the list");
    let (list, _) = list.split_once("];").expect("its end");
    list.split("(c\"")
        .skip(1)
        .map(|entry| {
            let (name, rest) = entry.split_once("\", c\"").expect("name and value");
            (name.to_string(), rest.split_once('"').expect("a value").0.to_string())
        })
        .collect()
}

fn pinned() -> Vec<(String, String)> {
    listed("pub const PINNED")
}

fn for_workers() -> Vec<(String, String)> {
    listed("const WORKER")
}

/// Those of the list that this server has and that can be set here, each with its adverse value.
fn hostile(c: &mut Client, list: Vec<(String, String)>) -> Vec<(String, &'static str)> {
    let adverse = adverse();
    list.into_iter()
        .filter_map(|(name, _)| {
            if name == "ignore_system_indexes" {
                return None; // only for a connection that asks for it
            }
            let value = adverse.get(name.as_str()).unwrap_or_else(|| panic!("no adverse value for {name}"));
            let known = format!(
                // A server can be built without lz4.
                "SELECT count(*) FROM pg_settings WHERE context IN ('user', 'superuser') AND name = {}
                   AND (vartype <> 'enum' OR {} = ANY (enumvals) OR name <> 'default_toast_compression')",
                lit(&name),
                lit(value)
            );
            (one::<i64>(c, &known) == 1).then_some((name, *value))
        })
        .collect()
}

/// Objects that adverse values name, and tables whose contents go through many of them.
const SURROUNDINGS: &str = r"CREATE SCHEMA app; CREATE ACCESS METHOD heap2 TYPE TABLE HANDLER heap_tableam_handler;
    CREATE TABLE app.t (id int PRIMARY KEY, grp int, v int, note text, f float8, at timestamptz, d date, iv interval, b bytea,
                        words text[], arr int[]);
    INSERT INTO app.t SELECT i, i % 3, i * 10, E'a\\b''' || i, i / 8.0, '2026-03-04 05:06:07+00'::timestamptz + i * interval '1 day',
        DATE '2026-03-04' + i, i * interval '26 hours', decode(lpad(i::text, 4, '0'), 'hex'), ARRAY['w' || i % 4, NULL], ARRAY[i, NULL]
        FROM generate_series(1, 40) i;
    CREATE INDEX ON app.t USING gin (words);
    CREATE TABLE app.g (grp int, name text); INSERT INTO app.g SELECT i, 'g' || i FROM generate_series(0, 2) i;
    CREATE VIEW app.w AS SELECT * FROM app.t WHERE v > 20;
    CREATE TABLE app.p (id int, grp int, PRIMARY KEY (id, grp)) PARTITION BY LIST (grp);
    CREATE TABLE app.p0 PARTITION OF app.p FOR VALUES IN (0); CREATE TABLE app.p1 PARTITION OF app.p FOR VALUES IN (1, 2);
    INSERT INTO app.p SELECT i, i % 3 FROM generate_series(1, 20) i;";

/// Stream tables, each with its query as a plain session understands it.
const STREAM_TABLES: &[(&str, &str)] = &[
    (
        "app.s_join",
        "SELECT t.id, g.name, t.note, t.f, t.at, t.d, t.iv, t.b, t.arr FROM app.t JOIN app.g ON g.grp = t.grp",
    ),
    (
        "app.s_agg",
        "SELECT grp, count(*) AS n, sum(f) AS f, min(at) AS first, max(note) AS note FROM app.w GROUP BY grp",
    ),
    (
        "app.s_full",
        r"SELECT id, d::text AS d, iv::text AS iv, b::text AS b, f::text AS f, note FROM app.t ORDER BY id LIMIT 30",
    ),
    ("app.s_words", "SELECT id, note FROM app.t WHERE words @> ARRAY['w1'::text]"),
    ("app.s_part", "SELECT grp, count(*) AS n FROM app.p GROUP BY grp"),
];

const WRITES: &[&str] = &[
    r"UPDATE app.t SET f = f + 0.125, at = at + interval '1 hour', b = b || '\001'::bytea, note = left('''' || note, 9) WHERE id % 4 = 1",
    "DELETE FROM app.t WHERE id % 11 = 5",
    "INSERT INTO app.t (id, grp, v, note, d, words) SELECT i, i % 3, i, 'n', DATE '2026-12-01', ARRAY['w1', 'w2'] FROM generate_series(100, 110) i ON CONFLICT DO NOTHING",
    "UPDATE app.p SET grp = (grp + 1) % 3 WHERE id % 2 = 0",
];

/// Reads as a session without any of it.
fn check(plain: &mut Client, name: &str, query: &str) {
    support::assert_equal(plain, name, query);
    assert_active(plain, name);
}

fn create_all(c: &mut Client, prefix: &str, schedule: &str) {
    for (name, query) in STREAM_TABLES {
        exec(
            c,
            &format!("SELECT pgtrickle.create_stream_table($n${name}{prefix}$n$, $q${query}$q$, {schedule})"),
        );
    }
}

/// Everything by hand, in a hostile session; read in a plain one.
fn live_through(hostile: &mut Client, plain: &mut Client, prefix: &str) {
    create_all(hostile, prefix, "NULL");
    for (name, query) in STREAM_TABLES {
        check(plain, &format!("{name}{prefix}"), query);
    }
    for write in WRITES {
        exec(hostile, write);
    }
    for (name, query) in STREAM_TABLES {
        let name = format!("{name}{prefix}");
        exec(hostile, &format!("SELECT pgtrickle.refresh_stream_table('{name}')"));
        check(plain, &name, query);
    }
    let name = format!("app.s_agg{prefix}");
    let other = "SELECT grp, count(*) AS n, sum(v) AS v, max(note) AS note FROM app.w GROUP BY grp";
    exec(hostile, &format!("SELECT pgtrickle.alter_stream_table_query('{name}', $q${other}$q$)"));
    check(plain, &name, other);
    let name = format!("app.s_join{prefix}");
    exec(hostile, &format!("SELECT pgtrickle.suspend_stream_table('{name}')"));
    exec(hostile, WRITES[0]);
    exec(hostile, &format!("SELECT pgtrickle.resume_stream_table('{name}')"));
    exec(hostile, &format!("SELECT pgtrickle.refresh_stream_table('{name}')"));
    check(plain, &name, STREAM_TABLES[0].1);
    // In place, by what the event triggers see.
    exec(hostile, "ALTER TABLE app.g RENAME COLUMN name TO title");
    exec(hostile, "UPDATE app.g SET title = title || '!'");
    exec(hostile, &format!("SELECT pgtrickle.refresh_stream_table('{name}')"));
    check(plain, &name, &STREAM_TABLES[0].1.replace("g.name", "g.title"));
    exec(hostile, "ALTER TABLE app.g RENAME COLUMN title TO name");
    one::<i64>(hostile, "SELECT count(*) FROM pgtrickle.health_check()");
    for (name, _) in STREAM_TABLES {
        exec(hostile, &format!("SELECT pgtrickle.drop_stream_table('{name}{prefix}')"));
    }
}

#[test]
fn settings_of_a_session_change_nothing_of_ours() {
    let db = fresh_db();
    let mut plain = db.connect();
    exec(&mut plain, SURROUNDINGS);
    // A few at a time, so that a failure names them.
    for (i, few) in hostile(&mut plain, pinned()).chunks(8).enumerate() {
        let mut c = db.connect();
        // The preloaded cluster of the other tests has the tablespace.
        for (name, value) in few.iter().filter(|(_, value)| *value != "elsewhere") {
            exec(&mut c, &format!("SET {name} TO {value}"));
        }
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            live_through(&mut c, &mut plain, &format!("_{i}"));
        }));
        run.unwrap_or_else(|_| panic!("with {few:?}"));
    }
}

#[test]
fn the_text_of_a_query_is_read_as_in_its_authors_session() {
    let db = fresh_db();
    let (mut c, mut plain) = (db.connect(), db.connect());
    exec(&mut c, "CREATE TABLE t (id int, d date); INSERT INTO t VALUES (1, NULL), (2, '2026-04-03')");
    exec(
        &mut c,
        "SET DateStyle = 'German, DMY'; SET transform_null_equals = on; SET standard_conforming_strings = off",
    );
    exec(
        &mut c,
        r"SELECT pgtrickle.create_stream_table('s', $$SELECT id, 'a\\b'::text AS k FROM t WHERE d = NULL OR d = DATE '03.04.2026'$$, NULL)",
    );
    let meant = r"SELECT id, E'a\\b' AS k FROM t WHERE d IS NULL OR d = DATE '2026-04-03'";
    check(&mut plain, "s", meant);
    exec(
        &mut c,
        "INSERT INTO t VALUES (3, '03.04.2026'), (4, '04.03.2026'); SELECT pgtrickle.refresh_stream_table('s')",
    );
    check(&mut plain, "s", meant);
    assert_eq!(one::<i64>(&mut plain, "SELECT count(*) FROM s"), 3);
}

/// A preloaded cluster with what adverse values name.
fn cluster() -> Cluster {
    let cluster = Cluster::start(&Options::preloaded().with("log_min_messages = warning"));
    let mut c = cluster.connect("postgres");
    exec(&mut c, "CREATE ROLE nobody; CREATE ROLE helper SUPERUSER LOGIN");
    exec(&mut c, "SET allow_in_place_tablespaces = on");
    exec(&mut c, "CREATE TABLESPACE elsewhere LOCATION ''");
    cluster
}

/// A session in which what is only for workers is as always; the rest is as it was set.
fn session(cluster: &Cluster, db: &str, plain: bool) -> Client {
    let mut c = cluster.connect_as("template1", "helper");
    let mut options = String::new();
    let mut list: Vec<(String, String)> = for_workers();
    if plain {
        list.extend(pinned());
    }
    for (name, _) in list {
        let found = format!("SELECT boot_val FROM pg_settings WHERE name = {}", lit(&name));
        for value in column::<Option<String>>(&mut c, &found) {
            let value = value.unwrap_or_default().replace('\\', "\\\\").replace(' ', "\\ ");
            options.push_str(&format!(" -c {name}={value}"));
        }
    }
    let mut config = cluster.config(db, "postgres");
    config.options(options.trim());
    config.connect(NoTls).unwrap_or_else(|e| panic!("{}\n{options}", support::describe(&e)))
}

/// Everything at once, set by `ALTER what SET`, by hand and by the worker.
fn all_of_them(cluster: &Cluster, what: &str, db: &str) {
    cluster.create_db(db);
    let mut setter = session(cluster, db, true);
    exec(&mut setter, &format!("CREATE EXTENSION pgtrickle; {SURROUNDINGS}"));
    let list = hostile(&mut setter, pinned().into_iter().chain(for_workers()).collect());
    for (name, value) in list {
        let list = ["search_path", "DateStyle", "restrict_nonsystem_relation_kind"].contains(&name.as_str());
        let set = if list { value.to_string() } else { lit(value) };
        exec(&mut setter, &format!("ALTER {what} SET {name} TO {set}"));
    }
    let mut plain = session(cluster, db, true);
    let mut hostile = session(cluster, db, false);
    assert_eq!(one::<String>(&mut hostile, "SHOW quote_all_identifiers"), "on");
    live_through(&mut hostile, &mut plain, "");
    create_all(&mut hostile, "", "'1 second'");
    for write in WRITES {
        exec(&mut hostile, write);
    }
    for (name, query) in STREAM_TABLES {
        support::wait_until(&format!("{name} equals its query"), PATIENCE, || {
            support::difference(&mut plain, name, query).is_none()
        });
    }
    let trouble: Vec<String> = column(
        &mut plain,
        "SELECT concat_ws(' ', stream_table_name, status, detail) FROM pgtrickle.refresh_history WHERE status = 'failed'",
    );
    assert!(trouble.is_empty(), "{trouble:?}");
    let unwell: Vec<String> = column(
        &mut plain,
        "SELECT concat_ws(' ', \"check\", detail) FROM pgtrickle.health_check() WHERE status <> 'OK'",
    );
    assert!(unwell.is_empty(), "{unwell:?}");
}

#[test]
fn all_settings_of_a_database_change_nothing_of_ours() {
    let cluster = cluster();
    all_of_them(&cluster, &format!("DATABASE {}", quote_ident("app")), "app");
}

#[test]
fn all_settings_of_a_role_change_nothing_of_ours() {
    let cluster = cluster();
    all_of_them(&cluster, "ROLE postgres", "app");
}

#[test]
fn a_read_only_default_is_for_sessions_not_for_the_worker_and_a_read_only_transaction_says_so() {
    let cluster = cluster();
    cluster.create_db("app");
    let mut c = cluster.connect("app");
    exec(&mut c, &format!("CREATE EXTENSION pgtrickle; {T}"));
    exec(&mut c, "ALTER DATABASE app SET default_transaction_read_only = on");
    exec(
        &mut c,
        "SELECT pgtrickle.create_stream_table('s', 'SELECT grp, sum(v) AS v FROM t GROUP BY grp', '1 second')",
    );
    exec(&mut c, "UPDATE t SET v = v + 1");
    support::wait_until("s equals its query", PATIENCE, || {
        support::difference(&mut c, "s", "SELECT grp, sum(v) FROM t GROUP BY grp").is_none()
    });
    exec(&mut c, "UPDATE t SET v = v + 1; BEGIN READ ONLY");
    let e = support::expect_error(&mut c, "SELECT pgtrickle.refresh_stream_table('s')");
    assert_eq!(e.sqlstate, "25006", "{e:?}");
    exec(&mut c, "ROLLBACK");
}
