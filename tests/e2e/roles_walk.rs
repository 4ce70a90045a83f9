//! Every object of ours, as each kind of role, before and after REVOKE.

use std::collections::BTreeSet;

use crate::common::*;
use crate::support::{TestDb, expect_error, fresh_db, refresh};
use postgres::{Client, GenericClient};

/// What PUBLIC may call; everything else is for the extension's owner and whom he grants it to.
const CALLED_BY_ALL: &[&str] = &[
    "_capture",
    "_change_buffers",
    "_pending",
    "_snapshot_columns",
    "_snapshot_details",
    "_verdicts",
    "alter_stream_table",
    "alter_stream_table_query",
    "changes",
    "create_stream_table",
    "drop_stream_table",
    "explain_refresh",
    "health_check",
    "refresh_stream_table",
    "resume_stream_table",
    "row_image",
    "schema_hash",
    "state",
    "suspend_stream_table",
    "write_state",
];

/// What PUBLIC may read.
const READ_BY_ALL: &[&str] = &["change_buffers", "refresh_history", "source_columns", "stream_tables"];

const MEMBERS: &str = "pg_depend d WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
  AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pgtrickle')";

/// Functions of ours that the role may execute.
fn executable(c: &mut impl GenericClient, role: &str) -> BTreeSet<String> {
    let sql = format!(
        "SELECT DISTINCT p.proname::text FROM pg_proc p WHERE has_function_privilege('{role}', p.oid, 'EXECUTE')
         AND p.oid IN (SELECT d.objid FROM {MEMBERS} AND d.classid = 'pg_proc'::regclass)"
    );
    column(c, &sql).into_iter().collect()
}

/// Relations of ours (members, and all in our schemas) on which the role has any of these privileges.
fn relations(c: &mut impl GenericClient, role: &str, privileges: &str) -> BTreeSet<String> {
    let sql = format!(
        "SELECT c.relname::text FROM pg_class c
         WHERE (c.oid IN (SELECT d.objid FROM {MEMBERS} AND d.classid = 'pg_class'::regclass)
                OR c.relnamespace::regnamespace::text LIKE 'pgtrickle%') AND c.relkind IN ('r', 'v', 'S', 'p', 'm')
         AND CASE WHEN c.relkind = 'S' THEN has_sequence_privilege('{role}', c.oid, 'USAGE, SELECT, UPDATE')
                  ELSE has_table_privilege('{role}', c.oid, '{privileges}')
                    OR has_any_column_privilege('{role}', c.oid, 'SELECT, INSERT, UPDATE') AND '{privileges}' <> 'TRIGGER' END"
    );
    column(c, &sql).into_iter().collect()
}

fn names(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|n| n.to_string()).collect()
}

/// A database with a source of `owner`, a stream table of `author`, and roles that have nothing or may read the stream table.
struct Stage {
    db: TestDb,
    c: Client,
    owner: String,
    author: String,
    reader: String,
    nobody: String,
}

fn stage() -> Stage {
    let db = fresh_db();
    let mut c = db.connect();
    let [owner, author, reader, nobody] = ["owner", "author", "reader", "nobody"].map(|r| db.create_role(r));
    exec(
        &mut c,
        &format!(
            "CREATE SCHEMA shop AUTHORIZATION \"{owner}\"; CREATE SCHEMA own AUTHORIZATION \"{author}\";
             GRANT USAGE ON SCHEMA shop, own TO PUBLIC; CREATE SCHEMA hidden;
             CREATE TABLE hidden.h (id int PRIMARY KEY, v int)"
        ),
    );
    create_mode(&mut c, "hidden.st", "SELECT id, v FROM hidden.h", "differential");
    let mut o = db.connect_as(&owner);
    exec(
        &mut o,
        &format!(
            "CREATE TABLE shop.t (id int PRIMARY KEY, grp int, v text);
             INSERT INTO shop.t VALUES (1, 1, '10'), (2, 1, '20'), (3, 2, '30');
             GRANT SELECT, TRIGGER ON shop.t TO \"{author}\""
        ),
    );
    let mut a = db.connect_as(&author);
    exec(&mut a, &create_call("own.s", "SELECT id, v::int AS v FROM shop.t", "differential"));
    exec(
        &mut a,
        &create_call("own.g", "SELECT grp, count(*) AS n, max(v) AS v FROM shop.t GROUP BY grp", "auto"),
    );
    exec(&mut a, &format!("GRANT SELECT ON own.s TO \"{reader}\""));
    Stage { db, c, owner, author, reader, nobody }
}

#[test]
fn an_unprivileged_role_reaches_what_is_listed_and_nothing_else() {
    let mut s = stage();
    for role in [&s.nobody, &s.owner, &s.reader, &s.author] {
        assert_eq!(executable(&mut s.c, role), names(CALLED_BY_ALL), "functions, {role}");
        assert_eq!(relations(&mut s.c, role, "TRIGGER"), BTreeSet::new(), "triggers, {role}");
    }
    for role in [&s.nobody, &s.owner, &s.reader] {
        let all = "SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES";
        assert_eq!(relations(&mut s.c, role, all), names(READ_BY_ALL), "relations, {role}");
    }
    let create = |c: &mut Client, role: &str| -> bool {
        one(
            c,
            &format!(
                "SELECT bool_or(has_schema_privilege('{role}', n.oid, 'CREATE')) FROM pg_namespace n
                 WHERE n.nspname IN ('pgtrickle', 'pgtrickle_internal')"
            ),
        )
    };
    for role in [&s.nobody, &s.owner, &s.reader, &s.author] {
        assert!(!create(&mut s.c, role), "{role} may create in a schema of ours");
    }
    // What it can call says nothing about what is not its own.
    let mut n = s.db.connect_as(&s.nobody);
    for view in READ_BY_ALL {
        assert_eq!(one::<i64>(&mut n, &format!("SELECT count(*) FROM pgtrickle.{view}")), 0, "{view}");
    }
    exec(&mut s.c, "INSERT INTO hidden.h VALUES (1, 1)");
    let hidden: u32 = one(&mut s.c, "SELECT 'hidden.st'::regclass::oid");
    assert!(one::<bool>(&mut s.c, &format!("SELECT pgtrickle._pending({hidden})")));
    assert!(!one::<bool>(&mut n, &format!("SELECT pgtrickle._pending({hidden})")));
    let told: Vec<String> = column(&mut n, "SELECT \"check\" || ' ' || detail FROM pgtrickle.health_check()");
    assert!(told.iter().all(|t| !t.contains("hidden") && !t.contains("own.")), "{told:?}");
    for call in [
        "refresh_stream_table",
        "drop_stream_table",
        "suspend_stream_table",
        "resume_stream_table",
        "explain_refresh",
    ] {
        let e = expect_error(&mut n, &format!("SELECT * FROM pgtrickle.{call}({hidden})"));
        assert_eq!(e.sqlstate, "42501", "{call}: {e:?}");
    }
    for function in ["_guard", "_on_ddl_end", "_on_sql_drop"] {
        let returns = if function == "_guard" {
            "TRIGGER g BEFORE INSERT ON mine"
        } else {
            "EVENT TRIGGER g ON sql_drop"
        };
        let each = if function == "_guard" { "FOR EACH STATEMENT" } else { "" };
        let e = expect_error(
            &mut n,
            &format!(
                "CREATE TEMP TABLE mine (x int); CREATE {returns} {each} EXECUTE FUNCTION pgtrickle.{function}()"
            ),
        );
        assert_eq!(e.sqlstate, "42501", "{function}: {e:?}");
    }
    let e = expect_error(&mut n, "SELECT * FROM pgtrickle._verdicts()");
    assert_eq!(e.sqlstate, "42501", "{e:?}");
}

#[test]
fn default_privileges_open_nothing() {
    let db = crate::support::bare_db();
    let mut c = db.connect();
    let role = db.create_role("greedy");
    exec(
        &mut c,
        &format!(
            "ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO \"{role}\"; ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO \"{role}\";
             ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO \"{role}\"; ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO \"{role}\";
             CREATE EXTENSION pgtrickle"
        ),
    );
    assert_eq!(executable(&mut c, &role), names(CALLED_BY_ALL));
    assert_eq!(
        relations(&mut c, &role, "SELECT, INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER"),
        names(READ_BY_ALL)
    );
    exec(&mut c, "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1)");
    create(&mut c, "s", "SELECT v, count(*) AS n FROM t GROUP BY v");
    assert_eq!(
        relations(&mut c, &role, "SELECT, INSERT, UPDATE, DELETE, TRUNCATE"),
        names(READ_BY_ALL),
        "made later"
    );
    for schema in ["pgtrickle", "pgtrickle_internal"] {
        assert!(
            !one::<bool>(&mut c, &format!("SELECT has_schema_privilege('{role}', '{schema}', 'CREATE')")),
            "{schema}"
        );
    }
}

#[test]
fn the_owner_of_a_source_keeps_all_that_was_his() {
    let mut s = stage();
    let mut o = s.db.connect_as(&s.owner);
    // Partitions: PostgreSQL clones our trigger with the rights of whoever makes or attaches one.
    exec(
        &mut o,
        &format!(
            "CREATE TABLE shop.p (k int PRIMARY KEY, v int) PARTITION BY RANGE (k);
             CREATE TABLE shop.p1 PARTITION OF shop.p FOR VALUES FROM (0) TO (10);
             GRANT SELECT, TRIGGER ON shop.p TO \"{}\"",
            s.author
        ),
    );
    let mut a = s.db.connect_as(&s.author);
    exec(&mut a, &create_call("own.p", "SELECT k, v FROM shop.p", "differential"));
    exec(
        &mut o,
        "CREATE TABLE shop.p2 PARTITION OF shop.p FOR VALUES FROM (10) TO (20);
         CREATE TABLE shop.p3 (k int PRIMARY KEY, v int); INSERT INTO shop.p3 VALUES (25, 1);
         ALTER TABLE shop.p ATTACH PARTITION shop.p3 FOR VALUES FROM (20) TO (30);
         INSERT INTO shop.p VALUES (1, 1), (11, 1), (21, 1)",
    );
    refresh(&mut s.c, "own.p");
    exec(&mut o, "UPDATE shop.p SET v = 2 WHERE k > 5");
    differential(&mut s.c, "own.p");
    // A forged trigger on what is his own reaches nobody's stream table.
    let source: u32 = one(&mut s.c, "SELECT 'shop.t'::regclass::oid");
    exec(
        &mut o,
        &format!(
            "CREATE TABLE shop.forged (id int PRIMARY KEY, grp int, v text);
             CREATE TRIGGER pgtrickle_capture_{source} AFTER INSERT ON shop.forged FOR EACH ROW EXECUTE FUNCTION pgtrickle._capture('{source}');
             INSERT INTO shop.forged VALUES (666, 6, '6')"
        ),
    );
    assert_eq!(refresh(&mut s.c, "own.s").action, "no_change");
    // He sees neither the stream tables nor what they are suspended for, and can't touch them.
    for view in ["stream_tables", "refresh_history", "source_columns"] {
        assert_eq!(one::<i64>(&mut o, &format!("SELECT count(*) FROM pgtrickle.{view}")), 0, "{view}");
    }
    assert_eq!(expect_error(&mut o, "SELECT pgtrickle.drop_stream_table('own.s')").sqlstate, "42501");
    // His DDL goes through, and ends capture when the table goes.
    exec(
        &mut o,
        "ALTER TABLE shop.t ADD COLUMN x int; ALTER TABLE shop.t RENAME x TO y; DROP TABLE shop.t, shop.p",
    );
    assert_suspended(&mut s.c, "own.s", "SOURCE_DROPPED");
}

#[test]
fn a_reader_sees_status_and_no_values() {
    let mut s = stage();
    exec(&mut s.c, "INSERT INTO shop.t VALUES (9, 9, 'the secret')");
    let mut a = s.db.connect_as(&s.author);
    let e = expect_error(&mut a, "SELECT pgtrickle.refresh_stream_table('own.s')");
    assert!(e.message.contains("the secret"), "its owner is told: {e:?}");
    // As the worker notes it, and suspends in the end.
    edit_own(
        &mut s.c,
        "pgt_refresh_history",
        "INSERT INTO pgtrickle.pgt_refresh_history (id, relid, stream_table_name, started_at, status, reason, detail, hint)
         SELECT nextval('pgtrickle.pgt_refresh_history_id_seq'), relid, table_name, now(), 'failed', 'REFRESH_FAILED', 'invalid: the secret', 'the secret'
         FROM pgtrickle.pgt_stream_tables WHERE table_name = 's'",
    );
    let mut r = s.db.connect_as(&s.reader);
    let walk = |c: &mut Client| -> String {
        let sources = [
            "SELECT x::text FROM pgtrickle.stream_tables x",
            "SELECT x::text FROM pgtrickle.refresh_history x",
            "SELECT x::text FROM pgtrickle.source_columns x",
            "SELECT x::text FROM pgtrickle.change_buffers x",
            "SELECT x::text FROM pgtrickle.health_check() x",
        ];
        sources.iter().flat_map(|sql| column::<String>(c, sql)).collect::<Vec<_>>().join("\n")
    };
    let told = walk(&mut r);
    assert!(!told.contains("secret"), "{told}");
    assert!(told.contains("own.s") && told.contains("failed"), "{told}");
    assert!(walk(&mut a).contains("secret"));
    edit_own(
        &mut s.c,
        "pgt_stream_tables",
        "UPDATE pgtrickle.pgt_stream_tables SET status = 'suspended', reason = 'REFRESH_FAILING', detail = 'the secret', hint = 'the secret'
         WHERE table_name = 's'",
    );
    let told = walk(&mut r);
    assert!(!told.contains("secret") && told.contains("REFRESH_FAILING"), "{told}");
    assert_eq!(one::<i64>(&mut r, "SELECT count(*) FROM pgtrickle.stream_tables WHERE query IS NOT NULL"), 1);
    // Without the privilege, nothing.
    exec(&mut s.c, &format!("REVOKE SELECT ON own.s FROM \"{}\"", s.reader));
    let told = walk(&mut r);
    assert!(!told.contains("own.s"), "{told}");
}

#[test]
fn what_a_stream_tables_owner_has_ends_with_a_revoke() {
    let mut s = stage();
    let mut a = s.db.connect_as(&s.author);
    exec(&mut s.c, "UPDATE shop.t SET v = '424242'");
    exec(&mut s.c, &format!("REVOKE SELECT ON shop.t FROM \"{}\"", s.author));
    // Whatever there is of ours, nothing of it shows him the new value.
    let relations: Vec<String> = column(
        &mut s.c,
        "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'pgtrickle'::regnamespace AND relkind IN ('r', 'v')",
    );
    for relation in relations {
        let sql = format!("SELECT x::text FROM {relation} x");
        if let Ok(rows) = a.query(&sql, &[]) {
            let shown: Vec<String> = rows.iter().map(|r| r.get(0)).collect();
            assert!(shown.iter().all(|r| !r.contains("424242")), "{relation}: {shown:?}");
        }
    }
    for table in ["own.s", "own.g"] {
        if let Err(e) = a.batch_execute(&format!("SELECT pgtrickle.refresh_stream_table('{table}')")) {
            let e = crate::support::db_error(&e);
            assert!(e.sqlstate == "42501" && !format!("{e:?}").contains("424242"), "{e:?}");
        } else {
            assert_suspended(&mut a, table, "OBJECT_CHANGED");
        }
    }
    assert_eq!(one::<i64>(&mut a, "SELECT count(*) FROM own.s WHERE v = 424242"), 0);
    exec(&mut s.c, &format!("GRANT SELECT ON shop.t TO \"{}\"", s.author));
    for table in ["own.s", "own.g"] {
        if status(&mut s.c, table).status == "suspended" {
            exec(&mut s.c, &format!("SELECT pgtrickle.resume_stream_table('{table}')"));
        }
        refresh(&mut s.c, table);
    }
}

/// What calls of functions that everybody may call can come to without an error, on objects that are not the caller's: they
/// tell of what is his, or of nothing.
const HARMLESS: &[&str] = &[
    "_change_buffers",
    "_pending",
    "_snapshot_columns",
    "_snapshot_details",
    "health_check",
    "row_image",
    "schema_hash",
];

/// A value of each type that a function of ours takes: where it is an object, one that is not the caller's.
fn argument(of: &str) -> &'static str {
    match of {
        "oid" => {
            "(SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'hidden' AND c.relname = 'h')"
        }
        "regclass" => {
            "(SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'hidden' AND c.relname = 'st')::regclass"
        }
        "text" | "name" | "cstring" => "'pgtrickle'",
        "integer" => "1",
        "bigint" => "1::bigint",
        "boolean" => "false",
        "interval" => "interval '1 day'",
        "timestamp with time zone" => "now()",
        "xid8" => "'0'::xid8",
        "tid" => "'(0,1)'::tid",
        "bigint[]" => "'{1}'::bigint[]",
        "record" => "ROW(1)",
        other => panic!("a function of ours takes {other}: give it a value here"),
    }
}

/// Calls every function of ours that SQL can call: name, and the rows as text or the SQLSTATE.
fn call_all(admin: &mut Client, who: &mut Client) -> Vec<(String, Result<String, String>)> {
    let functions = admin
        .query(
            "SELECT n.nspname::text, p.proname::text, ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) t)::text[],
                    p.prorettype = 'record'::regtype AND p.proallargtypes IS NULL
             FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
             WHERE n.nspname IN ('pgtrickle', 'pgtrickle_internal') AND p.prokind = 'f'
               AND p.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype)
               AND NOT 'internal'::regtype = ANY (p.proargtypes::oid[])
             ORDER BY 1, 2",
            &[],
        )
        .expect("functions");
    assert!(functions.len() > 20, "{}", functions.len());
    let calls = functions.iter().map(|f| {
        let (schema, name, types, record): (String, String, Vec<String>, bool) =
            (f.get(0), f.get(1), f.get(2), f.get(3));
        let arguments: Vec<&str> = types.iter().map(|t| argument(t)).collect();
        let shape = if record { "AS f (a int, b int)" } else { "AS f" };
        (name.clone(), format!("SELECT f::text FROM {schema}.{name}({}) {shape}", arguments.join(", ")))
    });
    let calls: Vec<(String, String)> = calls.collect();
    let outcome = |sql: &str, who: &mut Client| match who.query(sql, &[]) {
        Ok(rows) => {
            let shown: Vec<String> =
                rows.iter().map(|r| r.get::<_, Option<String>>(0).unwrap_or_default()).collect();
            Ok(shown.join("\n"))
        }
        Err(e) => Err(crate::support::db_error(&e).sqlstate),
    };
    calls.into_iter().map(|(name, sql)| (name, outcome(&sql, who))).collect()
}

/// All that can be tried on a relation.
const STATEMENTS: &[&str] = &[
    "SELECT x::text FROM {r} x",
    "COPY {r} TO STDOUT",
    "INSERT INTO {r} DEFAULT VALUES",
    "DELETE FROM {r}",
    "TRUNCATE {r}",
    "LOCK TABLE {r} IN ACCESS SHARE MODE",
    "LOCK TABLE {r} IN ACCESS EXCLUSIVE MODE",
    "REFRESH MATERIALIZED VIEW {r}",
    "CREATE INDEX ON {r} ((1))",
    "CREATE TRIGGER forged AFTER INSERT ON {r} EXECUTE FUNCTION pgtrickle._capture()",
    "CREATE RULE forged AS ON INSERT TO {r} DO INSTEAD NOTHING",
    "ALTER TABLE {r} ADD COLUMN forged int",
    "ALTER TABLE {r} RENAME TO forged",
    "COMMENT ON MATERIALIZED VIEW {r} IS 'forged'",
    "ALTER TABLE {r} OWNER TO CURRENT_USER",
    "CLUSTER {r}",
    "DROP MATERIALIZED VIEW {r}",
    "SELECT nextval('{r}')::text",
    "SELECT setval('{r}', 1)::text",
];

/// What of it goes through: (relation, statement, what it showed).
fn try_all(admin: &mut Client, who: &mut Client) -> Vec<(String, &'static str, String)> {
    let relations: Vec<String> = column(
        admin,
        "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname IN ('pgtrickle', 'pgtrickle_internal') AND c.relkind IN ('r', 'v', 'm', 'S', 'p', 'f') ORDER BY 1",
    );
    assert!(relations.len() > 20, "{relations:?}");
    assert!(
        relations.iter().any(|r| r.contains("changes_")) && relations.iter().any(|r| r.contains("state_"))
    );
    let mut through = Vec::new();
    for relation in relations {
        for statement in STATEMENTS {
            exec(who, "BEGIN");
            if let Ok(messages) = who.simple_query(&statement.replace("{r}", &relation)) {
                let shown = messages.iter().filter_map(|m| match m {
                    postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_string),
                    _ => None,
                });
                through.push((relation.clone(), *statement, shown.collect::<Vec<_>>().join("\n")));
            }
            exec(who, "ROLLBACK");
        }
    }
    through
}

#[test]
fn every_object_of_ours_is_tried_by_each_kind_of_role_before_and_after_a_revoke() {
    let mut s = stage();
    exec(&mut s.c, "INSERT INTO hidden.h VALUES (1, 424242); UPDATE hidden.h SET v = 434343");
    create_mode(&mut s.c, "hidden.g", "SELECT v, count(*) AS n FROM hidden.h GROUP BY v", "differential");
    exec(&mut s.c, "INSERT INTO hidden.h VALUES (2, 444444)");
    let hidden: Vec<String> = column(
        &mut s.c,
        "SELECT oid::text FROM pg_class WHERE relnamespace = 'hidden'::regnamespace AND relkind = 'r'",
    );
    let values = ["424242", "434343", "444444", "hidden"].map(str::to_string);
    let secrets: Vec<String> = values.into_iter().chain(hidden).collect();
    let roles = [s.nobody.clone(), s.owner.clone(), s.reader.clone(), s.author.clone()];
    for revoked in [false, true] {
        if revoked {
            exec(
                &mut s.c,
                &format!(
                    "UPDATE shop.t SET v = '424242'; REVOKE ALL ON shop.t FROM \"{}\"; REVOKE ALL ON own.s FROM \"{}\"",
                    s.author, s.reader
                ),
            );
        }
        for role in &roles {
            let mut who = s.db.connect_as(role);
            for (name, outcome) in call_all(&mut s.c, &mut who) {
                match outcome {
                    Ok(shown) => {
                        assert!(HARMLESS.contains(&name.as_str()), "{role} may call {name}: {shown}");
                        // A hash, and a word of the parser's, hold what they hold.
                        assert!(
                            !secrets.iter().any(|secret| shown.contains(secret.as_str())),
                            "{role}: {name}: {shown}"
                        );
                    }
                    Err(sqlstate) if HARMLESS.contains(&name.as_str()) || name == "create_stream_table" => {
                        // Of a text that is no shape the reader of shapes says that it is unreadable.
                        assert!(sqlstate != "XX000" || name.starts_with("_snapshot_"), "{role}: {name}");
                    }
                    Err(sqlstate) => assert_eq!(sqlstate, "42501", "{role}: {name}"),
                }
            }
            for (relation, statement, shown) in try_all(&mut s.c, &mut who) {
                let listed = READ_BY_ALL.iter().any(|view| relation == format!("pgtrickle.{view}"));
                let reads =
                    ["SELECT x", "LOCK TABLE {r} IN ACCESS SHARE"].iter().any(|r| statement.starts_with(r));
                assert!(listed && reads, "{role}: {statement}: {relation}: {shown}");
                assert!(
                    !secrets.iter().any(|secret| shown.contains(secret.as_str())),
                    "{role}: {relation}: {shown}"
                );
            }
        }
    }
    for st in ["hidden.st", "hidden.g"] {
        differential(&mut s.c, st);
    }
}
