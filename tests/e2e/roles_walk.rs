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
