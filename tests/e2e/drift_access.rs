//! Who may see what was recorded, and that nobody else learns of it.

use crate::common::*;
use crate::drift::*;
use crate::support::{TestDb, describe, expect_error, fresh_db, quote_ident};
use postgres::Client;
use postgres::fallible_iterator::FallibleIterator;
use std::time::Duration;

/// A value that nobody but the owner of the evidence is to see, in a table that hides it from its own owner.
const SECRET: &str = "sesame-4711";

/// All there is to ask, by somebody who knows of two snapshots.
fn questions(before: i64, after: i64) -> Vec<String> {
    vec![
        format!("SELECT * FROM pgtrickle.diff_snapshots({before}, {after})"),
        "SELECT * FROM pgtrickle.schema_history('vault')".into(),
        "SELECT * FROM pgtrickle.schema_history('app.vault')".into(),
        "SELECT * FROM pgtrickle.drift_report()".into(),
        "SELECT * FROM pgtrickle.drift_report('-infinity')".into(),
        "SELECT * FROM pgtrickle.schema_drift".into(),
        "SELECT * FROM pgtrickle.schema_snapshots".into(),
        "SELECT * FROM pgtrickle._verdicts()".into(),
        "SELECT * FROM pgtrickle.capture_baseline()".into(),
        "SELECT * FROM pgtrickle.baseline_progress".into(),
        "SELECT * FROM pgtrickle.pgt_schema_snapshots".into(),
        "SELECT * FROM pgtrickle.pgt_hash_keys".into(),
        "SELECT * FROM pgtrickle.pgt_capture_failures".into(),
        "SELECT pgtrickle.prune_snapshots(1)".into(),
    ]
}

/// A table of `role` with row security, dropped and made again with its column renamed; and the ids of the two.
fn vault(c: &mut Client, role: &str) -> (i64, i64) {
    let owner = quote_ident(role);
    exec(c, &format!("CREATE SCHEMA IF NOT EXISTS app; GRANT ALL ON SCHEMA app TO {owner}"));
    for column in ["word", "phrase"] {
        // A statement of its own for the drop, whose text is kept for those who may see it.
        exec(c, "DROP TABLE IF EXISTS app.vault");
        exec(
            c,
            &format!(
                "CREATE TABLE app.vault (id int, {column} text);
                 INSERT INTO app.vault SELECT i, '{SECRET}' FROM generate_series(1, 100) i; ANALYZE app.vault;
                 ALTER TABLE app.vault OWNER TO {owner}; ALTER TABLE app.vault ENABLE ROW LEVEL SECURITY;
                 ALTER TABLE app.vault FORCE ROW LEVEL SECURITY"
            ),
        );
    }
    baseline(c);
    ends(c, "vault")
}

fn people() -> (TestDb, Client, [String; 2]) {
    let db = fresh_db();
    let c = db.connect();
    let roles = ["owner", "stranger"].map(|stem| db.create_role(stem));
    (db, c, roles)
}

#[test]
fn neither_strangers_nor_the_owner_of_the_table_may_ask() {
    let (db, mut c, roles) = people();
    let (before, after) = vault(&mut c, &roles[0]);
    for role in &roles {
        let mut his = db.connect_as(role);
        for question in questions(before, after) {
            let e = expect_error(&mut his, &question);
            assert_eq!(e.sqlstate, "42501", "{role}: {question}: {e:?}");
            let text = format!("{e:?}");
            assert!(!text.contains("vault") && !text.contains(SECRET), "{text}");
        }
        // Nor by way of what everybody may read.
        let readable: Vec<String> = column(
            &mut his,
            "SELECT format('pgtrickle.%I', relname) FROM pg_class WHERE relnamespace = 'pgtrickle'::regnamespace
               AND relkind IN ('r', 'v') AND has_table_privilege(oid, 'SELECT') ORDER BY 1",
        );
        assert_eq!(
            readable,
            [
                "pgtrickle.change_buffers",
                "pgtrickle.refresh_history",
                "pgtrickle.source_columns",
                "pgtrickle.stream_tables"
            ]
        );
        for view in readable {
            let shown: Vec<String> = column(&mut his, &format!("SELECT v::text FROM {view} v"));
            assert!(shown.is_empty(), "{view}: {shown:?}");
        }
        let health: Vec<String> = column(&mut his, "SELECT h::text FROM pgtrickle.health_check() h");
        assert!(!health.join("\n").contains("vault"), "{health:?}");
    }
    // What everybody may call of it tells the names of columns alone, as the catalogs do.
    let functions: Vec<String> = column(
        &mut c,
        "SELECT proname::text FROM pg_proc WHERE pronamespace = 'pgtrickle'::regnamespace AND prosrc LIKE '%snapshot%'
           AND has_function_privilege('public', oid, 'EXECUTE') ORDER BY 1",
    );
    assert_eq!(functions, ["_snapshot_columns", "_snapshot_details"], "they show what they are given");
}

#[test]
fn errors_tell_nothing_to_those_who_may_not_ask() {
    let (db, mut c, roles) = people();
    let (before, after) = vault(&mut c, &roles[0]);
    let mut his = db.connect_as(&roles[1]);
    // The same refusal, whether there is something or not.
    for (there, not_there) in [
        (format!("diff_snapshots({before}, {after})"), "diff_snapshots(-1, -2)".to_string()),
        ("schema_history('app.vault')".to_string(), "schema_history('app.nothing')".to_string()),
    ] {
        let [one, other] =
            [there, not_there].map(|call| expect_error(&mut his, &format!("SELECT * FROM pgtrickle.{call}")));
        assert_eq!(one, other);
    }
}

#[test]
fn whom_it_is_granted_to_may_ask() {
    let (db, mut c, roles) = people();
    let (before, after) = vault(&mut c, &roles[0]);
    let asked = "diff_snapshots, pgtrickle.schema_history, pgtrickle.drift_report";
    exec(
        &mut c,
        &format!(
            "GRANT EXECUTE ON FUNCTION pgtrickle.{asked} TO {role};
             GRANT SELECT ON pgtrickle.schema_drift TO {role}",
            role = roles[1]
        ),
    );
    let mut his = db.connect_as(&roles[1]);
    let his_rows = diff(&mut his, before, after);
    assert_eq!(his_rows, diff(&mut c, before, after));
    assert_eq!(history(&mut his, "vault"), history(&mut c, "vault"));
    assert_eq!(tally_lines(&report(&mut his, "")), tally_lines(&report(&mut c, "")));
    let of_view =
        |c: &mut Client| -> Vec<String> { verdicts(c, "true").iter().map(|v| format!("{v:?}")).collect() };
    assert_eq!(of_view(&mut his), of_view(&mut c));
    // The rest stays closed.
    for closed in ["SELECT * FROM pgtrickle.schema_snapshots", "SELECT * FROM pgtrickle.capture_baseline()"] {
        assert_eq!(expect_error(&mut his, closed).sqlstate, "42501", "{closed}");
    }
    assert_eq!(
        one::<String>(&mut his, "SELECT current_user::text"),
        roles[1],
        "the rights of the owner do not stay"
    );
    let e = expect_error(&mut his, "SELECT * FROM app.vault");
    assert_eq!(e.sqlstate, "42501");
}

#[test]
fn values_of_a_protected_table_are_nowhere() {
    let (db, mut c, roles) = people();
    let (mut listener, notices) = db.connect_noting();
    exec(&mut listener, "LISTEN pg_trickle_alert");
    let (before, after) = vault(&mut c, &roles[0]);
    // It is a source too, which is changed, suspends, and fails.
    exec(
        &mut c,
        "CREATE TABLE app.keys (id int PRIMARY KEY); CREATE POLICY few ON app.vault USING (id < 50)",
    );
    create(&mut c, "s", "SELECT id, phrase FROM app.vault");
    exec(&mut listener, "ALTER TABLE app.vault ADD more int; ALTER TABLE app.vault DROP phrase");
    assert_suspended(&mut c, "s", "COLUMN_DROPPED");
    exec(&mut listener, "DROP TABLE app.vault");
    baseline(&mut c);
    exec(&mut c, "SELECT pgtrickle.drop_stream_table('s')");
    let mut seen = Vec::new();
    for question in questions(before, after) {
        let sql = question.trim_start_matches("SELECT ").trim_start_matches("* FROM ");
        let rows: Vec<String> = column(&mut c, &format!("SELECT q::text FROM {sql} AS q"));
        seen.extend(rows);
    }
    seen.extend(column::<String>(&mut c, "SELECT h::text FROM pgtrickle.health_check() h"));
    seen.extend(column::<String>(&mut c, "SELECT h::text FROM pgtrickle.refresh_history h"));
    seen.extend(notices.take().into_iter().map(|notice| format!("{notice:?}")));
    let mut notifications = listener.notifications();
    let mut received = notifications.timeout_iter(Duration::from_millis(200));
    while let Some(notification) = received.next().expect("notification") {
        seen.push(notification.payload().to_string());
    }
    assert!(seen.iter().any(|text| text.contains("vault")), "there was something to see");
    let leaks: Vec<&String> = seen.iter().filter(|text| text.contains(SECRET)).collect();
    assert!(leaks.is_empty(), "{leaks:#?}");
}

#[test]
fn values_are_in_no_function_but_the_one_that_shows_them() {
    let db = fresh_db();
    let mut c = db.connect();
    // No row security: the values are kept, for those who may read `schema_snapshots`.
    for name in ["word", "phrase"] {
        exec(
            &mut c,
            &format!(
                "DROP TABLE IF EXISTS t; CREATE TABLE t (id int, {name} text);
                 INSERT INTO t SELECT i, '{SECRET}' FROM generate_series(1, 100) i; ANALYZE t"
            ),
        );
    }
    baseline(&mut c);
    let (before, after) = ends(&mut c, "t");
    let shown: bool = one(
        &mut c,
        &format!("SELECT bool_or(columns::text LIKE '%{SECRET}%') FROM pgtrickle.schema_snapshots"),
    );
    assert!(shown);
    assert!(words(&diff(&mut c, before, after)).contains(&"rename_candidate"));
    for question in
        questions(before, after).iter().filter(|q| !q.contains("vault") && !q.contains("schema_snapshots"))
    {
        let sql = question.trim_start_matches("SELECT ").trim_start_matches("* FROM ");
        let rows: Vec<String> = column(&mut c, &format!("SELECT q::text FROM {sql} AS q"));
        assert!(!rows.join("\n").contains(SECRET), "{question}: {rows:#?}");
    }
    assert!(!history(&mut c, "t").join("\n").contains(SECRET));
}

/// A schema whose functions, operators and types pass for those of PostgreSQL, and tell when somebody falls for them.
const HOSTILE: &str = r#"
    CREATE SCHEMA evil; CREATE TABLE evil.fallen (what text); GRANT ALL ON SCHEMA evil TO PUBLIC;
    CREATE FUNCTION evil.fell(what text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'fell for %', what; END $$;
    CREATE FUNCTION evil.eq(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.fell('= of text'); RETURN true; END $$;
    CREATE FUNCTION evil.eq(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.fell('= of bigint'); RETURN true; END $$;
    CREATE FUNCTION evil.eq(oid, oid) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.fell('= of oid'); RETURN true; END $$;
    CREATE FUNCTION evil.eq(name, name) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.fell('= of name'); RETURN true; END $$;
    CREATE FUNCTION evil.eq(name, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.fell('= of name and text'); RETURN true; END $$;
    CREATE OPERATOR evil.= (FUNCTION = evil.eq, LEFTARG = text, RIGHTARG = text);
    CREATE OPERATOR evil.= (FUNCTION = evil.eq, LEFTARG = bigint, RIGHTARG = bigint);
    CREATE OPERATOR evil.= (FUNCTION = evil.eq, LEFTARG = oid, RIGHTARG = oid);
    CREATE OPERATOR evil.= (FUNCTION = evil.eq, LEFTARG = name, RIGHTARG = name);
    CREATE OPERATOR evil.= (FUNCTION = evil.eq, LEFTARG = name, RIGHTARG = text);
    CREATE FUNCTION evil.calc(double precision, integer) RETURNS double precision LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.fell('*'); RETURN 0; END $$;
    CREATE FUNCTION evil.minus(bigint, bigint) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.fell('-'); RETURN 0; END $$;
    CREATE OPERATOR evil.* (FUNCTION = evil.calc, LEFTARG = double precision, RIGHTARG = integer);
    CREATE OPERATOR evil.- (FUNCTION = evil.minus, LEFTARG = bigint, RIGHTARG = bigint);
    CREATE FUNCTION evil.date_part(text, timestamptz) RETURNS double precision LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.fell('date_part'); RETURN 0; END $$;
    CREATE FUNCTION evil.current_schemas(boolean) RETURNS name[] LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.fell('current_schemas'); RETURN '{}'; END $$;
    CREATE FUNCTION evil.parse_ident(text) RETURNS text[] LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.fell('parse_ident'); RETURN '{}'; END $$;
    CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.fell('clock_timestamp'); RETURN now(); END $$;
    CREATE TABLE evil.pgt_schema_snapshots (LIKE pgtrickle.pgt_schema_snapshots);
    CREATE TYPE evil.text AS (x integer); CREATE TYPE evil.oid AS (x integer); CREATE TYPE evil.timestamptz AS (x integer);
    CREATE VIEW evil.pg_class AS SELECT 1 AS nothing; CREATE VIEW evil.pg_namespace AS SELECT 1 AS nothing"#;

#[test]
fn the_callers_search_path_changes_nothing_but_what_a_name_means() {
    let (db, mut c, roles) = people();
    let (before, after) = vault(&mut c, &roles[0]);
    exec(&mut c, "CREATE TABLE public.vault (x int)");
    baseline(&mut c);
    exec(&mut c, HOSTILE);
    exec(
        &mut c,
        &format!(
            "GRANT EXECUTE ON FUNCTION pgtrickle.diff_snapshots, pgtrickle.schema_history, pgtrickle.drift_report, pgtrickle.schema_hash TO {role};
             GRANT USAGE ON SCHEMA app TO {role}",
            role = roles[1]
        ),
    );
    let mut his = db.connect_as(&roles[1]);
    let answers = |c: &mut Client, name: &str| -> Vec<Vec<String>> {
        [
            format!("diff_snapshots({before}, {after})"),
            format!("schema_history({name})"),
            "schema_history('app.vault')".into(),
            "drift_report()".into(),
            "schema_hash('public.vault')".into(),
        ]
        .map(|call| {
            // The question itself must not fall for anything either: no cast, no operator.
            let sql = format!("SELECT pg_catalog.format('%s', q) FROM pgtrickle.{call} AS q");
            let rows = c.query(&sql, &[]).unwrap_or_else(|e| panic!("{sql}: {}", describe(&e)));
            rows.iter().map(|r| r.get(0)).collect()
        })
        .to_vec()
    };
    let expected = answers(&mut c, "'app.vault'");
    for client in [&mut c, &mut his] {
        for temp in [
            "",
            "CREATE TEMP TABLE pgt_schema_snapshots (x integer); CREATE TYPE pg_temp.text AS (x integer)",
        ] {
            exec(client, temp);
            for path in [
                "evil, app, pg_catalog",
                "evil, pg_temp, app, pg_catalog",
                "pg_temp, evil, app, pg_catalog, public",
            ] {
                exec(client, &format!("SET search_path = {path}"));
                assert_eq!(answers(client, "'vault'"), expected, "{path}");
                assert_eq!(one::<String>(client, "SHOW search_path"), path, "it is the caller's again");
            }
            exec(client, "RESET search_path");
        }
    }
    // A bare name is the caller's.
    exec(&mut c, "SET search_path = evil, public, pg_catalog");
    assert_ne!(answers(&mut c, "'vault'")[1], expected[1]);
    exec(&mut c, "SET search_path = evil, pg_catalog");
    let e = expect_error(&mut c, "SELECT pg_catalog.count(*) FROM pgtrickle.schema_history('vault')");
    assert_eq!(e.detail, "reason=AMBIGUOUS_NAME: app.vault, public.vault.");
    let e = expect_error(&mut c, "SELECT pg_catalog.count(*) FROM pgtrickle.schema_history('a b')");
    assert_eq!(e.detail, "reason=BAD_ARGUMENT.", "{e:?}");
    assert_eq!(one::<String>(&mut c, "SHOW search_path"), "evil, pg_catalog", "after an error too");
}

#[test]
fn commands_under_a_hostile_path_are_recorded_all_the_same() {
    let db = fresh_db();
    let (mut c, notices) = db.connect_noting();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id, v FROM t");
    exec(&mut c, HOSTILE);
    exec(&mut c, "CREATE TABLE public.gone (x int)");
    notices.take();
    exec(&mut c, "SET search_path = evil, pg_temp, public, pg_catalog");
    exec(&mut c, "ALTER TABLE public.t ADD more int; DROP TABLE public.gone");
    expect_error(&mut c, "SELECT 1/0");
    exec(&mut c, "ALTER TABLE public.t DROP note");
    assert!(notices.take().is_empty());
    exec(&mut c, "SELECT pg_catalog.count(*) FROM pgtrickle.capture_baseline(); RESET search_path");
    assert_eq!(
        history(&mut c, "public.t"),
        [
            "became a source with 4 columns, never analysed",
            "column \"more\" was added",
            "column \"note\" was dropped"
        ]
    );
    assert_eq!(history(&mut c, "gone"), ["dropped with 1 column, never analysed"]);
}

#[test]
fn a_temporary_table_of_the_name_hides_nothing() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "CREATE TABLE t (a int)");
    baseline(&mut c);
    exec(&mut c, "CREATE TEMP TABLE t (x int, y int)");
    assert_eq!(history(&mut c, "t"), ["seen by the baseline pass with 1 column, never analysed"]);
    exec(&mut c, "CREATE TABLE pg_temp.other (x int)");
    let e = expect_error(&mut c, "SELECT * FROM pgtrickle.schema_history('other')");
    assert_eq!(e.detail, "reason=NO_HISTORY.");
}

#[test]
fn read_only_transactions_may_ask() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "CREATE TABLE t (a int)");
    let before = snap(&mut c, "t");
    exec(&mut c, "ALTER TABLE t ADD b int");
    let after = snap(&mut c, "t");
    exec(&mut c, "BEGIN READ ONLY");
    assert_eq!(words(&diff(&mut c, before, after)), ["added"]);
    assert_eq!(history(&mut c, "t").len(), 3);
    assert_eq!(report(&mut c, "").len(), 1);
    assert_eq!(verdicts(&mut c, "true").len(), 1);
    exec(&mut c, "COMMIT");
}
