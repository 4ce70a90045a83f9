//! Functions and event triggers of others whose names are not found where search_path is pinned: the error says whose it is
//! and what to do, and the command in its HINT runs and helps.

use crate::common::*;
use crate::support::{Failure, expect_error, fresh_db, refresh};
use postgres::Client;

/// Checks the error and runs the command in its HINT.
fn cure(c: &mut Client, e: &Failure, sqlstate: &str, function: &str) {
    assert_eq!(e.sqlstate, sqlstate, "{e:?}");
    assert!(
        e.detail.starts_with(&format!("reason=FOREIGN_CODE: the error is in function {function}")),
        "{e:?}"
    );
    assert!(e.detail.contains("search_path is pinned"), "{e:?}");
    let alter = e.hint.find("ALTER FUNCTION").unwrap_or_else(|| panic!("{e:?}"));
    exec(c, &e.hint[alter..]);
}

const SOURCE: &str = "CREATE TABLE src (id int PRIMARY KEY, v int); INSERT INTO src VALUES (1, 1)";

#[test]
fn an_event_trigger_with_bare_names() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, SOURCE);
    exec(
        &mut c,
        "CREATE SCHEMA app; CREATE TABLE app.log (tag text);
         CREATE FUNCTION app.note() RETURNS event_trigger LANGUAGE plpgsql AS
         $$ BEGIN INSERT INTO log VALUES (tg_tag); END $$;
         SET search_path = app, public;
         CREATE EVENT TRIGGER \"their trigger\" ON ddl_command_end EXECUTE FUNCTION app.note()",
    );
    let e = expect_error(&mut c, &create_call("st", "SELECT id, v FROM src", "auto"));
    assert_eq!(e.message, "relation \"log\" does not exist");
    cure(&mut c, &e, "42P01", "app.note() of event trigger \"their trigger\"");
    create(&mut c, "st", "SELECT id, v FROM src");
    exec(&mut c, "INSERT INTO src VALUES (2, 2)");
    refresh(&mut c, "st");
}

#[test]
fn functions_of_the_query_with_bare_names() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, SOURCE);
    exec(
        &mut c,
        "CREATE TABLE factor (f int); INSERT INTO factor VALUES (3);
         CREATE FUNCTION helper(x int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT x * 2';
         CREATE FUNCTION reads(x int) RETURNS int LANGUAGE plpgsql STABLE AS 'BEGIN RETURN (SELECT x * f FROM factor); END';
         CREATE FUNCTION reads(x text) RETURNS int LANGUAGE plpgsql STABLE AS 'BEGIN RETURN 1; END';
         CREATE FUNCTION \"Weird (name)\"(x int) RETURNS int LANGUAGE plpgsql STABLE AS 'BEGIN RETURN helper(x); END';
         CREATE FUNCTION plain(x int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT helper(x)';
         CREATE FUNCTION casts(x int) RETURNS text LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN x::mood; END';
         CREATE DOMAIN mood AS text",
    );
    for (n, (call, sqlstate, function)) in [
        ("reads(v)", "42P01", "public.reads(integer)"),
        ("\"Weird (name)\"(v)", "42883", "public.\"Weird (name)\"(integer)"),
        ("plain(v)", "42883", "public.plain(integer)"),
        ("casts(v)", "42704", "public.casts(integer)"),
    ]
    .into_iter()
    .enumerate()
    {
        // While there are no rows, nothing calls it.
        exec(&mut c, "TRUNCATE src");
        let (name, query) = (format!("st{n}"), format!("SELECT id, {call} AS x FROM src"));
        if call.starts_with("plain") {
            // Inlined, so it fails in any case.
            exec(&mut c, "INSERT INTO src VALUES (1, 1)");
            let e = expect_error(&mut c, &create_call(&name, &query, "auto"));
            cure(&mut c, &e, sqlstate, function);
            exec(&mut c, &create_call(&name, &query, "auto"));
        } else {
            exec(&mut c, &create_call(&name, &query, "auto"));
            exec(&mut c, "INSERT INTO src VALUES (1, 1)");
            let e = expect_error(&mut c, &format!("SELECT pgtrickle.refresh_stream_table('{name}')"));
            cure(&mut c, &e, sqlstate, function);
        }
        refresh(&mut c, &name);
    }
}

#[test]
fn a_function_with_a_path_of_its_own_is_left_alone() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, SOURCE);
    exec(
        &mut c,
        "CREATE FUNCTION lost(x int) RETURNS int LANGUAGE plpgsql STABLE SET search_path = public AS
         'BEGIN RETURN (SELECT x FROM nowhere); END'",
    );
    let e = expect_error(&mut c, &create_call("st", "SELECT id, lost(v) AS x FROM src", "auto"));
    assert_eq!((e.sqlstate.as_str(), e.detail.as_str(), e.hint.as_str()), ("42P01", "", ""), "{e:?}");
    // And what the query itself names wrongly is the query's.
    let e = expect_error(&mut c, &create_call("st", "SELECT id FROM nowhere", "auto"));
    assert!(e.detail.starts_with("reason=MISSING_TABLE"), "{e:?}");
}
