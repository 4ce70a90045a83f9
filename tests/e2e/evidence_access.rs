//! Who sees what: values are users' data, and reach nobody but the owner of the evidence and superusers.

use crate::common::*;
use crate::evidence::*;
use crate::support::{Notices, TestDb, expect_error, fresh_db};
use postgres::Client;
use postgres::fallible_iterator::FallibleIterator;

/// A role that owns a schema with a table full of secrets, which somebody else filled, and a session of it that keeps
/// everything that it is told.
fn owner_of_secrets(db: &TestDb) -> (String, Client, Notices, Client) {
    let role = db.create_role("curious");
    let mut c = db.connect();
    exec(&mut c, &format!("CREATE SCHEMA his AUTHORIZATION \"{role}\""));
    secrets(&mut c, "his.secrets");
    let (r, notices) = db.cluster.connect_noting_as(&db.name, &role);
    (role, r, notices, c)
}

/// The values that must not be seen: as text, and as the bytes that a printed plan tree shows.
const SECRET: &str = "Xyzzy";
const SECRET_BYTES: &str = "88 121 122 122 121";

fn secrets(c: &mut Client, table: &str) {
    exec(
        c,
        &format!(
            "CREATE TABLE {table} (id int, s text); INSERT INTO {table} SELECT i, '{SECRET}' || i % 3 FROM generate_series(1, 99) i; ANALYZE {table}"
        ),
    );
}

/// Everything that PostgreSQL can be made to say to an ordinary role.
const TALKATIVE: &str = "SET client_min_messages = debug5; SET debug_print_plan = on; SET debug_print_rewritten = on;
    SET debug_print_parse = on; SET debug_pretty_print = off; SET log_parameter_max_length_on_error = -1; LISTEN pg_trickle_alert";

fn assert_silent(notices: &Notices, client: &mut Client, what: &str) -> usize {
    let said = notices.take();
    for (severity, text) in &said {
        let text = format!("{text:?}");
        assert!(!text.contains(SECRET) && !text.contains(SECRET_BYTES), "{what}: {severity}: {text:.2000}");
    }
    let mut notifications = client.notifications();
    let mut pending = notifications.iter();
    while let Some(n) = pending.next().expect("notifications") {
        assert!(!n.payload().contains(SECRET), "{what}: {}", n.payload());
    }
    said.len()
}

#[test]
fn an_ordinary_role_reaches_nothing() {
    let db = fresh_db();
    let (role, mut r, _, mut c) = owner_of_secrets(&db);
    exec(&mut c, "SELECT * FROM pgtrickle.capture_baseline(); DROP TABLE his.secrets");
    let ours: Vec<String> = column(
        &mut c,
        "SELECT 'pgtrickle.' || relname FROM pg_class WHERE relnamespace = 'pgtrickle'::regnamespace AND relkind IN ('r', 'm', 'v', 'S')
         AND relname NOT IN ('stream_tables', 'refresh_history', 'change_buffers', 'source_columns') ORDER BY 1",
    );
    assert!(ours.iter().any(|t| t == "pgtrickle.schema_snapshots") && ours.len() >= 10, "{ours:?}");
    for relation in &ours {
        assert_eq!(
            expect_error(&mut r, &format!("SELECT * FROM {relation}")).sqlstate,
            "42501",
            "{relation}"
        );
    }
    for write in [
        "DELETE FROM pgtrickle.pgt_schema_snapshots",
        "INSERT INTO pgtrickle.pgt_capture_failures SELECT",
        "INSERT INTO pgtrickle.pgt_schema_snapshots_dump SELECT",
        "TRUNCATE pgtrickle.pgt_schema_snapshots_dump",
        "REFRESH MATERIALIZED VIEW pgtrickle.pgt_schema_snapshots",
        "UPDATE pgtrickle.pgt_hash_keys SET key = ''",
        "SELECT setval('pgtrickle.pgt_uncounted_failures', 1)",
        "COPY pgtrickle.pgt_schema_snapshots TO STDOUT",
        "CREATE TRIGGER t BEFORE INSERT ON pgtrickle.pgt_schema_snapshots_dump FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    ] {
        assert_eq!(expect_error(&mut r, write).sqlstate, "42501", "{write}");
    }
    let calls = [
        "SELECT * FROM pgtrickle.capture_baseline()",
        "SELECT pgtrickle.prune_snapshots(1)",
        "SELECT pgtrickle.forget_capture_failures()",
    ];
    for call in calls {
        let e = expect_error(&mut r, call);
        assert!(
            e.sqlstate == "42501" && e.message.contains("permission denied for function"),
            "{call}: {e:?}"
        );
    }
    exec(&mut r, "CREATE TABLE his.own (x int); SELECT pgtrickle.schema_hash('his.own')");
    // Who is granted a function may call it, and sees no more for it.
    exec(
        &mut c,
        &format!(
            "GRANT EXECUTE ON FUNCTION pgtrickle.capture_baseline, pgtrickle.prune_snapshots, pgtrickle.forget_capture_failures TO \"{role}\""
        ),
    );
    for call in calls {
        exec(&mut r, call);
    }
    assert_eq!(expect_error(&mut r, "SELECT * FROM pgtrickle.schema_snapshots").sqlstate, "42501");
    assert_eq!(shots_of(&mut c, "own")[0].actor, role);
}

#[test]
fn statistics_are_as_closed_as_the_evidence() {
    // Comparing, so that nobody says that the role could see it in any case: pg_stats hides it too.
    let db = fresh_db();
    let (_, mut r, _, _c) = owner_of_secrets(&db);
    let visible: i64 = one(&mut r, "SELECT count(*) FROM pg_stats WHERE tablename = 'secrets'");
    assert_eq!(visible, 0);
}

#[test]
fn nothing_is_said_while_it_drops_what_it_can_not_read() {
    let db = fresh_db();
    let (role, mut r, notices, mut c) = owner_of_secrets(&db);
    exec(&mut r, TALKATIVE);
    assert_eq!(
        expect_error(&mut r, "SELECT * FROM his.secrets").sqlstate,
        "42501",
        "it may not read the table"
    );
    exec(&mut r, "CREATE TABLE his.a (x int); DROP TABLE his.a");
    notices.take();
    // The schema's owner may drop what others made in it.
    exec(&mut r, "DROP TABLE his.secrets");
    assert!(assert_silent(&notices, &mut r, "a plain drop") > 0, "it is told a lot");
    let shot = dropped(&mut c, "secrets");
    assert_eq!((shot.actor.as_str(), shot.values("s").len()), (role.as_str(), 3), "recorded with its values");
    exec(&mut c, "SET pg_trickle.snapshot_values = hashed");
    secrets(&mut c, "his.secrets");
    exec(&mut r, "DROP SCHEMA his CASCADE");
    assert_silent(&notices, &mut r, "a schema");
}

#[test]
fn nothing_is_said_when_capture_fails() {
    let db = fresh_db();
    let (_, mut r, notices, mut c) = owner_of_secrets(&db);
    exec(&mut r, TALKATIVE);
    // The server's own message quotes the value.
    on_store(&mut c, "fault", "pgt_schema_snapshots", "profile", "PERFORM value::int");
    exec(&mut r, "DROP TABLE his.secrets");
    assert!(assert_silent(&notices, &mut r, "a cast") > 0);
    assert_eq!(missing(&mut c), 1);
    exec(&mut c, "DROP INDEX pgtrickle.fault");
    on_store(&mut c, "raise", "pgt_schema_snapshots", "profile", "RAISE EXCEPTION '%', value");
    secrets(&mut c, "his.secrets");
    exec(&mut r, "DROP TABLE his.secrets");
    assert!(assert_silent(&notices, &mut r, "an exception") > 0);
    // Statistics of one column fail while those of another are read.
    exec(&mut c, "DROP INDEX pgtrickle.raise; CREATE TYPE mood AS ENUM ('Xyzzy1', 'Xyzzy2')");
    secrets(&mut c, "his.secrets");
    exec(
        &mut c,
        "ALTER TABLE his.secrets ADD m mood; UPDATE his.secrets SET m = 'Xyzzy1'; ANALYZE his.secrets;
         SET allow_system_table_mods = on; DELETE FROM pg_enum WHERE enumtypid = 'mood'::regtype",
    );
    exec(&mut r, "DROP TABLE his.secrets");
    assert!(assert_silent(&notices, &mut r, "an enum") > 0);
    let (_, mine) = health(&mut c);
    let (_, theirs) = health(&mut r);
    assert!(mine.contains("his.secrets") && !theirs.contains("secrets"), "{mine} | {theirs}");
}

#[test]
fn nothing_is_said_of_a_source() {
    let db = fresh_db();
    let (role, mut r, notices, mut c) = owner_of_secrets(&db);
    exec(&mut c, &format!("GRANT SELECT, TRIGGER ON his.secrets TO \"{role}\""));
    exec(&mut r, &create_call("his.s", "SELECT id, s FROM his.secrets", "auto"));
    exec(
        &mut c,
        &format!(
            "REVOKE ALL ON his.secrets FROM \"{role}\"; ALTER TABLE his.secrets OWNER TO \"{role}\"; REVOKE ALL ON his.secrets FROM \"{role}\""
        ),
    );
    exec(&mut r, TALKATIVE);
    exec(&mut r, "ALTER TABLE his.secrets ADD COLUMN x int");
    exec(&mut r, "ALTER TABLE his.secrets RENAME COLUMN s TO hidden");
    exec(&mut r, "DROP TABLE his.secrets");
    exec(&mut r, "SELECT 1");
    assert!(assert_silent(&notices, &mut r, "a source") > 0);
    assert_eq!(dropped(&mut c, "secrets").values("hidden").len(), 3);
}

#[test]
fn tables_with_row_security_leave_no_value() {
    let db = fresh_db();
    let (role, mut r, notices, mut c) = owner_of_secrets(&db);
    exec(
        &mut c,
        "ALTER TABLE his.secrets ENABLE ROW LEVEL SECURITY; CREATE POLICY few ON his.secrets USING (id < 5)",
    );
    exec(&mut c, "SELECT * FROM pgtrickle.capture_baseline()");
    exec(&mut r, TALKATIVE);
    exec(&mut r, "DROP TABLE his.secrets");
    assert_silent(&notices, &mut r, "row security");
    for shot in shots_of(&mut c, "secrets") {
        assert_eq!((shot.absent("s"), shot.stats, shot.rows), ("ROW_SECURITY", false, Some(99)));
    }
    let rows: String = one(&mut c, "SELECT string_agg(s::text, ' ') FROM pgtrickle.pgt_schema_snapshots s");
    assert!(!rows.contains(SECRET), "{rows}");
    assert_eq!(dropped(&mut c, "secrets").actor, role);
}
