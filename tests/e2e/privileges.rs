//! Who may do what, and as whom a refresh runs.

use crate::common::*;
use crate::support::{self, TestDb, describe, expect_error, fresh_db, refresh};
use postgres::Client;

/// A role that may create tables in schema `own`, and read `t`.
fn author(db: &TestDb, c: &mut Client) -> (String, Client) {
    let role = db.create_role("author");
    exec(
        c,
        &format!("{T}; CREATE SCHEMA own AUTHORIZATION \"{role}\"; GRANT SELECT, TRIGGER ON t TO \"{role}\""),
    );
    let a = db.connect_as(&role);
    (role, a)
}

#[test]
fn an_ordinary_user_can_do_everything_with_what_is_his() {
    let db = fresh_db();
    let mut c = db.connect();
    let (role, mut a) = author(&db, &mut c);
    let query = "SELECT grp, count(*) AS n, max(v) AS hi FROM t GROUP BY grp";
    exec(&mut a, &create_call("own.s", query, "auto"));
    let owner: String =
        one(&mut c, "SELECT relowner::regrole::text FROM pg_class WHERE oid = 'own.s'::regclass");
    assert_eq!(owner.trim_matches('"'), role, "the table belongs to the caller");
    exec(&mut c, "UPDATE t SET v = v + 1; DELETE FROM t WHERE id = 2");
    differential(&mut a, "own.s");
    exec(&mut a, "SELECT pgtrickle.alter_stream_table('own.s', '1 minute', 'differential')");
    exec(
        &mut a,
        "SELECT pgtrickle.suspend_stream_table('own.s'); SELECT pgtrickle.resume_stream_table('own.s')",
    );
    exec(
        &mut a,
        "SELECT pgtrickle.alter_stream_table_query('own.s', 'SELECT grp, sum(v) AS v FROM t GROUP BY grp')",
    );
    exec(&mut c, "UPDATE t SET grp = 1 WHERE id = 3");
    differential(&mut a, "own.s");
    for view in ["stream_tables", "refresh_history", "change_buffers"] {
        exec(&mut a, &format!("SELECT * FROM pgtrickle.{view}"));
    }
    exec(&mut a, "SELECT * FROM pgtrickle.explain_refresh('own.s')");
    exec(&mut a, "CREATE INDEX ON own.s (grp); COMMENT ON TABLE own.s IS 'mine'; DROP TABLE own.s");
    exec(&mut a, &create_call("own.s", query, "auto"));
    exec(&mut a, "SELECT pgtrickle.drop_stream_table('own.s')");
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM pg_trigger WHERE tgrelid = 't'::regclass"), 0);
}

#[test]
fn creation_needs_select_on_the_sources_and_create_on_the_schema() {
    let db = fresh_db();
    let mut c = db.connect();
    let (role, mut a) = author(&db, &mut c);
    exec(
        &mut c,
        "CREATE TABLE secret (x int); CREATE TABLE half (a int, b int); CREATE VIEW door AS SELECT x FROM secret",
    );
    exec(
        &mut c,
        &format!(
            "GRANT SELECT (a), TRIGGER ON half TO \"{role}\"; CREATE SCHEMA closed; REVOKE CREATE ON SCHEMA public FROM PUBLIC"
        ),
    );
    let refused = |a: &mut Client, c: &mut Client, name: &str, query: &str| {
        let before = census(c);
        let e = expect_error(a, &create_call(name, query, "auto"));
        assert_eq!(e.sqlstate, "42501", "{name}, {query}: {e:?}");
        assert!(e.detail.starts_with("reason=") && !e.hint.is_empty(), "{name}, {query}: {e:?}");
        assert_eq!(census(c), before, "{name}, {query}");
    };
    refused(&mut a, &mut c, "own.s", "SELECT x FROM secret");
    refused(&mut a, &mut c, "own.s", "SELECT t.id FROM t JOIN secret ON x = id");
    refused(&mut a, &mut c, "own.s", "SELECT x FROM door");
    refused(&mut a, &mut c, "own.s", "SELECT a, b FROM half");
    refused(&mut a, &mut c, "own.s", "SELECT id FROM t WHERE id IN (SELECT x FROM secret)");
    refused(&mut a, &mut c, "closed.s", "SELECT id FROM t");
    refused(&mut a, &mut c, "public.s", "SELECT id FROM t");
    // A view reads with its owner's rights, as everywhere.
    exec(&mut c, &format!("GRANT SELECT ON door TO \"{role}\"; INSERT INTO secret VALUES (1)"));
    exec(&mut a, &create_call("own.through_door", "SELECT x FROM door", "auto"));
    exec(&mut c, "INSERT INTO secret VALUES (2)");
    exec(&mut a, "SELECT pgtrickle.refresh_stream_table('own.through_door')");
    assert_eq!(one::<i64>(&mut a, "SELECT count(*) FROM own.through_door"), 2);
    // Rights on the columns that are used are enough.
    if let Err(e) = a.batch_execute(&create_call("own.half", "SELECT a FROM half", "auto")) {
        panic!("SELECT on the used columns should do: {}", describe(&e));
    }
    exec(&mut c, "INSERT INTO half VALUES (1, 2)");
    exec(&mut a, "SELECT pgtrickle.refresh_stream_table('own.half')");
    assert_eq!(one::<i64>(&mut a, "SELECT count(*) FROM own.half"), 1);
}

#[test]
fn others_may_read_what_they_are_granted_and_no_more() {
    let db = fresh_db();
    let mut c = db.connect();
    let (_, mut a) = author(&db, &mut c);
    exec(&mut a, &create_call("own.s", "SELECT id, v FROM t", "auto"));
    let reader = db.create_role("reader");
    exec(
        &mut a,
        &format!("GRANT USAGE ON SCHEMA own TO \"{reader}\"; GRANT SELECT ON own.s TO \"{reader}\""),
    );
    let mut r = db.connect_as(&reader);
    assert_eq!(one::<i64>(&mut r, "SELECT count(*) FROM own.s"), 10);
    for call in [
        "drop_stream_table('own.s')",
        "alter_stream_table('own.s', '1 minute', 'auto')",
        "suspend_stream_table('own.s')",
        "resume_stream_table('own.s')",
        "alter_stream_table_query('own.s', 'SELECT 1 AS id, 2 AS v')",
        "refresh_stream_table('own.s')",
    ] {
        let e = expect_error(&mut r, &format!("SELECT * FROM pgtrickle.{call}"));
        assert_eq!(e.sqlstate, "42501", "{call}: {e:?}");
    }
    assert_active(&mut a, "own.s");
    // Nobody can turn our internals against a table of somebody else.
    let internal: Vec<String> = column(
        &mut c,
        &format!(
            "SELECT format('%s(%s)', oid::regproc, pg_get_function_identity_arguments(oid)) FROM pg_proc
             WHERE pronamespace::regnamespace::text LIKE 'pgtrickle%' AND prosecdef AND has_function_privilege('{reader}', oid, 'EXECUTE')
                   AND prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype)
                   AND NOT coalesce(proconfig::text, '') LIKE '%search_path%'"
        ),
    );
    assert!(internal.is_empty(), "SECURITY DEFINER without a pinned search_path: {internal:?}");
}

#[test]
fn a_refresh_runs_as_the_owner_whoever_calls_it() {
    let db = fresh_db();
    let mut c = db.connect();
    let (role, mut a) = author(&db, &mut c);
    // Immutable in name only: this is how somebody would try to run code as the superuser who refreshes.
    exec(
        &mut a,
        "CREATE FUNCTION own.who(int) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN current_user; END $$;
         CREATE FUNCTION own.grab(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
            $$ BEGIN BEGIN EXECUTE 'ALTER ROLE ' || quote_ident(current_user) || ' SUPERUSER'; EXCEPTION WHEN OTHERS THEN NULL; END; RETURN $1; END $$;
         CREATE FUNCTION own.reset_role(int) RETURNS text IMMUTABLE LANGUAGE plpgsql AS
            $$ BEGIN BEGIN RESET SESSION AUTHORIZATION; EXCEPTION WHEN OTHERS THEN NULL; END; RETURN current_user; END $$",
    );
    exec(
        &mut a,
        &create_call(
            "own.s",
            "SELECT id, own.who(v) AS who, own.grab(v) AS g, own.reset_role(v) AS r FROM t",
            "auto",
        ),
    );
    exec(&mut c, "UPDATE t SET v = v + 1; INSERT INTO t VALUES (40, 1, 1)");
    exec(&mut c, "SELECT pgtrickle.refresh_stream_table('own.s')");
    assert_eq!(column::<String>(&mut c, "SELECT DISTINCT who FROM own.s"), std::slice::from_ref(&role));
    assert_eq!(column::<String>(&mut c, "SELECT DISTINCT r FROM own.s"), std::slice::from_ref(&role));
    exec(&mut c, "SELECT pgtrickle.refresh_stream_table('own.s', 'full')");
    assert_eq!(column::<String>(&mut c, "SELECT DISTINCT who FROM own.s"), std::slice::from_ref(&role));
    let is_super: bool = one(&mut c, &format!("SELECT rolsuper FROM pg_roles WHERE rolname = '{role}'"));
    assert!(!is_super, "a refresh made its owner a superuser");
    assert_eq!(one::<String>(&mut c, "SELECT current_user::text"), "postgres");
    // And after a failed one as well.
    exec(
        &mut a,
        "CREATE OR REPLACE FUNCTION own.grab(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'stop'; END $$",
    );
    exec(&mut c, "UPDATE t SET v = v + 1");
    expect_error(&mut c, "SELECT pgtrickle.refresh_stream_table('own.s')");
    assert_eq!(one::<String>(&mut c, "SELECT current_user::text"), "postgres");
}

#[test]
fn a_right_that_is_taken_away_stops_the_refresh_clearly() {
    let db = fresh_db();
    let mut c = db.connect();
    let (role, mut a) = author(&db, &mut c);
    exec(&mut a, &create_call("own.s", "SELECT id, v FROM t", "auto"));
    exec(&mut a, &create_call("own.g", "SELECT grp, max(v) AS v FROM t GROUP BY grp", "auto"));
    exec(&mut c, &format!("REVOKE SELECT ON t FROM \"{role}\"; UPDATE t SET v = 777"));
    for s in ["own.s", "own.g"] {
        let e = expect_error(&mut a, &format!("SELECT pgtrickle.refresh_stream_table('{s}')"));
        assert_eq!(e.sqlstate, "42501", "{e:?}");
        assert_eq!(
            one::<i64>(&mut c, &format!("SELECT count(*) FROM {s} WHERE v = 777")),
            0,
            "what he may not see is not shown"
        );
    }
    exec(&mut c, &format!("GRANT SELECT ON t TO \"{role}\""));
    for s in ["own.s", "own.g"] {
        if status(&mut c, s).status == "suspended" {
            exec(&mut c, &format!("SELECT pgtrickle.resume_stream_table('{s}')"));
        }
        refresh(&mut c, s);
    }
}

#[test]
fn row_security_of_a_source_is_never_bypassed() {
    let db = fresh_db();
    let mut c = db.connect();
    let (role, mut a) = author(&db, &mut c);
    exec(&mut c, "ALTER TABLE t ENABLE ROW LEVEL SECURITY");
    exec(&mut c, &format!("CREATE POLICY p ON t FOR SELECT TO \"{role}\" USING (grp = 1)"));
    match a.batch_execute(&create_call("own.s", "SELECT id, grp FROM t", "auto")) {
        Err(e) => {
            let e = support::db_error(&e);
            assert!(e.detail.starts_with("reason="), "{e:?}");
        }
        Ok(()) => {
            assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM own.s WHERE grp <> 1"), 0);
            exec(&mut c, "UPDATE t SET grp = grp + 1; INSERT INTO t VALUES (99, 5, 1), (98, 1, 1)");
            right_or_suspended(&mut a, "own.s");
            assert_eq!(
                one::<i64>(&mut c, "SELECT count(*) FROM own.s WHERE grp <> 1"),
                0,
                "rows that the owner may not see"
            );
        }
    }
}

#[test]
fn a_hostile_search_path_changes_nothing() {
    let db = fresh_db();
    let mut c = db.connect();
    let (role, mut a) = author(&db, &mut c);
    create(&mut c, "s", "SELECT grp, count(*) AS n, sum(v) AS v, min(note) AS note FROM t GROUP BY grp");
    // Things that shadow what our own statements might use.
    exec(
        &mut a,
        "CREATE FUNCTION own.count() RETURNS bigint LANGUAGE sql AS 'SELECT 42::bigint';
         CREATE FUNCTION own.eq(int, int) RETURNS boolean LANGUAGE sql AS 'SELECT true';
         CREATE OPERATOR own.= (leftarg = int, rightarg = int, function = own.eq);
         CREATE FUNCTION own.plus(bigint, bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint';
         CREATE OPERATOR own.+ (leftarg = bigint, rightarg = bigint, function = own.plus);
         CREATE TABLE own.stream_tables (x int); CREATE TABLE own.t (id int, grp int, v int, note text);
         CREATE FUNCTION own.pg_current_snapshot() RETURNS text LANGUAGE sql AS 'SELECT 1::text';
         CREATE FUNCTION own.coalesce_(int) RETURNS int LANGUAGE sql AS 'SELECT 1'",
    );
    exec(
        &mut c,
        &format!("GRANT USAGE ON SCHEMA own TO PUBLIC; GRANT INSERT, UPDATE, DELETE ON t TO \"{role}\""),
    );
    let hostile = "SET search_path = own, pg_catalog, public";
    exec(&mut a, hostile);
    exec(&mut a, "UPDATE public.t SET v = 5 WHERE public.t.id OPERATOR(pg_catalog.=) 1");
    let mut other = db.connect();
    exec(&mut other, hostile);
    exec(&mut other, "SELECT pgtrickle.refresh_stream_table('public.s')");
    exec(&mut other, "ALTER TABLE public.t ADD COLUMN x int; SELECT * FROM pgtrickle.health_check()");
    support::assert_up_to_date(&mut c, "s");
    exec(&mut c, "DELETE FROM t WHERE id = 4");
    differential(&mut c, "s");
}

#[test]
fn drop_owned_and_reassign_owned() {
    let db = fresh_db();
    let mut c = db.connect();
    let (role, mut a) = author(&db, &mut c);
    exec(&mut a, &create_call("own.s", "SELECT id, v FROM t", "auto"));
    exec(&mut a, &create_call("own.s2", "SELECT count(*) AS n FROM own.s", "auto"));
    let second = db.create_role("second");
    exec(
        &mut c,
        &format!(
            "GRANT SELECT, TRIGGER ON t TO \"{second}\"; REASSIGN OWNED BY \"{role}\" TO \"{second}\"; UPDATE t SET v = 0"
        ),
    );
    exec(&mut c, "SELECT pgtrickle.refresh_stream_table('own.s2')");
    support::assert_up_to_date(&mut c, "own.s");
    exec(&mut c, &format!("DROP OWNED BY \"{second}\" CASCADE"));
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM pgtrickle.stream_tables"), 0);
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM pg_trigger WHERE tgrelid = 't'::regclass"), 0);
    exec(&mut c, &format!("DROP OWNED BY \"{role}\"; DROP ROLE \"{second}\"; DROP ROLE \"{role}\""));
}
