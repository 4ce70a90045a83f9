//! Capture puts triggers on sources, so it takes the privilege that CREATE TRIGGER takes.

use crate::common::*;
use crate::support::{TestDb, expect_error, fresh_db, quote_ident, refresh, try_refresh};
use postgres::Client;

/// A role with SELECT on `t`, and a schema of its own.
fn reader(db: &TestDb, c: &mut Client) -> (String, Client) {
    let role = db.create_role("reader");
    exec(c, &format!("{T}; CREATE SCHEMA own AUTHORIZATION \"{role}\"; GRANT SELECT ON t TO \"{role}\""));
    let a = db.connect_as(&role);
    (quote_ident(&role), a)
}

fn triggers(c: &mut Client, table: &str) -> i64 {
    one(
        c,
        &format!(
            "SELECT count(*) FROM pg_trigger WHERE tgrelid = '{table}'::regclass AND tgname LIKE 'pgtrickle%'"
        ),
    )
}

#[test]
fn creation_asks_for_the_trigger_privilege_and_says_what_to_grant() {
    let db = fresh_db();
    let mut c = db.connect();
    let (role, mut a) = reader(&db, &mut c);
    for mode in ["auto", "differential"] {
        let e = expect_error(&mut a, &create_call("own.s", "SELECT id, v FROM t", mode));
        assert_eq!(e.sqlstate, "42501", "{e:?}");
        assert!(e.detail.starts_with("reason=PRIVILEGE"), "{e:?}");
        assert!(e.message.contains("TRIGGER") && e.hint.contains("'full'"), "{e:?}");
        assert_eq!(triggers(&mut c, "t"), 0);
    }
    exec(&mut a, &create_call("own.f", "SELECT id, v FROM t", "full"));
    assert_eq!(triggers(&mut c, "t"), 0);
    let e = expect_error(&mut a, "SELECT pgtrickle.alter_stream_table('own.f', NULL, 'auto')");
    assert_eq!(e.sqlstate, "42501", "{e:?}");
    // The HINT's first sentence runs as printed.
    let grant = e.hint.split(';').next().unwrap_or_default().to_string();
    exec(&mut c, &grant);
    exec(&mut a, "SELECT pgtrickle.alter_stream_table('own.f', NULL, 'auto')");
    exec(&mut a, &create_call("own.s", "SELECT id, v FROM t", "differential"));
    exec(&mut c, "UPDATE t SET v = v + 1");
    differential(&mut a, "own.s");
    // Another source, by another query.
    exec(
        &mut c,
        &format!(
            "CREATE TABLE \"Second One\" (id int PRIMARY KEY); GRANT SELECT ON \"Second One\" TO {role}"
        ),
    );
    let call = "SELECT pgtrickle.alter_stream_table_query('own.s', 'SELECT id FROM \"Second One\"')";
    let e = expect_error(&mut a, call);
    assert_eq!(e.sqlstate, "42501", "{e:?}");
    exec(&mut c, e.hint.split(';').next().unwrap_or_default());
    exec(&mut a, call);
}

#[test]
fn the_root_of_a_partitioned_source_counts_and_the_setting_relaxes_it() {
    let db = fresh_db();
    let mut c = db.connect();
    let (role, mut a) = reader(&db, &mut c);
    exec(
        &mut c,
        &format!(
            "CREATE TABLE p (k int PRIMARY KEY, v int) PARTITION BY RANGE (k);
             CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
             GRANT SELECT ON p TO {role}; GRANT TRIGGER ON p1 TO {role}"
        ),
    );
    let e = expect_error(&mut a, &create_call("own.p", "SELECT k, v FROM p", "auto"));
    assert_eq!(e.sqlstate, "42501", "{e:?}");
    let e = expect_error(&mut a, "SET pg_trickle.require_trigger_privilege = off");
    assert_eq!(e.sqlstate, "42501");
    exec(&mut c, &format!("ALTER DATABASE \"{}\" SET pg_trickle.require_trigger_privilege = off", db.name));
    let mut a = db.connect_as(role.trim_matches('"'));
    exec(&mut a, &create_call("own.p", "SELECT k, v FROM p", "auto"));
    exec(&mut c, &format!("ALTER DATABASE \"{}\" RESET pg_trickle.require_trigger_privilege", db.name));
    let mut a = db.connect_as(role.trim_matches('"'));
    assert_eq!(expect_error(&mut a, "SELECT pgtrickle.refresh_stream_table('own.p')").sqlstate, "42501");
    exec(
        &mut c,
        &format!(
            "REVOKE TRIGGER ON p1 FROM {role}; GRANT TRIGGER ON p TO {role}; INSERT INTO p VALUES (1, 1)"
        ),
    );
    differential(&mut a, "own.p");
}

#[test]
fn a_revoked_trigger_privilege_stops_refreshes_and_leaves_the_source_to_its_owner() {
    let db = fresh_db();
    let mut c = db.connect();
    let (role, mut a) = reader(&db, &mut c);
    exec(&mut c, &format!("GRANT TRIGGER ON t TO {role}"));
    exec(&mut a, &create_call("own.s", "SELECT id, v FROM t", "auto"));
    exec(&mut c, &format!("REVOKE TRIGGER ON t FROM {role}; UPDATE t SET v = v + 1"));
    let e = expect_error(&mut a, "SELECT pgtrickle.refresh_stream_table('own.s')");
    assert_eq!(e.sqlstate, "42501", "{e:?}");
    // Whoever owns the source gets rid of the triggers, and they do not come back by themselves.
    let names: Vec<String> = column(
        &mut c,
        "SELECT tgname::text FROM pg_trigger WHERE tgrelid = 't'::regclass AND tgname LIKE 'pgtrickle%'",
    );
    assert_eq!(names.len(), 2);
    for name in &names {
        exec(&mut c, &format!("DROP TRIGGER {name} ON t"));
    }
    assert_eq!(triggers(&mut c, "t"), 0);
    exec(&mut c, "UPDATE t SET v = v + 1; ALTER TABLE t ADD COLUMN unused int");
    assert_eq!(triggers(&mut c, "t"), 0);
    assert!(try_refresh(&mut c, "own.s", "auto").is_err());
    assert_eq!(triggers(&mut c, "t"), 0);
    exec(&mut c, "DELETE FROM t WHERE id = 1");
    // Given back, capture is made again and contents are computed anew.
    exec(&mut c, &format!("GRANT TRIGGER ON t TO {role}"));
    refresh(&mut c, "own.s");
    assert_eq!(triggers(&mut c, "t"), 2);
    exec(&mut c, "UPDATE t SET v = 0 WHERE id = 2");
    differential(&mut c, "own.s");
}

#[test]
fn resuming_and_a_new_owner_need_it_too() {
    let db = fresh_db();
    let mut c = db.connect();
    let (role, mut a) = reader(&db, &mut c);
    let heir = db.create_role("heir");
    exec(
        &mut c,
        &format!(
            "GRANT TRIGGER ON t TO {role}; GRANT SELECT ON t TO \"{heir}\"; GRANT ALL ON SCHEMA own TO \"{heir}\""
        ),
    );
    exec(&mut a, &create_call("own.s", "SELECT id, v FROM t", "auto"));
    exec(&mut c, &format!("ALTER TABLE own.s OWNER TO \"{heir}\"; UPDATE t SET v = 1"));
    let e = expect_error(&mut c, "SELECT pgtrickle.refresh_stream_table('own.s')");
    assert!(e.sqlstate == "42501" && e.hint.contains(&heir), "{e:?}");
    exec(&mut c, "SELECT pgtrickle.suspend_stream_table('own.s')");
    let e = expect_error(&mut c, "SELECT pgtrickle.resume_stream_table('own.s')");
    assert_eq!(e.sqlstate, "42501", "{e:?}");
    exec(&mut c, e.hint.split(';').next().unwrap_or_default());
    exec(&mut c, "SELECT pgtrickle.resume_stream_table('own.s')");
    refresh(&mut c, "own.s");
}
