//! Code of users that runs inside our statements is not ours: its writes are guarded, captured and its DDL followed like
//! everybody's.

use crate::common::*;
use crate::support::{TestDb, assert_up_to_date, expect_error, fresh_db, refresh};
use postgres::Client;

/// `s` reads `t`, `other` reads `u`, and a function that runs `body` after each change of `s`.
fn with_trigger(body: &str) -> (TestDb, Client) {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        &format!("{T}; CREATE TABLE u (id int PRIMARY KEY, v int); INSERT INTO u VALUES (1, 1), (2, 2)"),
    );
    create_mode(&mut c, "s", "SELECT id, v FROM t", "differential");
    create_mode(&mut c, "other", "SELECT id, v FROM u", "differential");
    exec(
        &mut c,
        &format!(
            "CREATE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS
               $$ BEGIN {body}; RETURN NULL; END $$;
             CREATE TRIGGER follow AFTER INSERT OR UPDATE OR DELETE ON s FOR EACH STATEMENT EXECUTE FUNCTION follow()"
        ),
    );
    (db, c)
}

#[test]
fn a_trigger_on_a_stream_table_can_not_write_another_one() {
    for body in [
        "INSERT INTO other VALUES (100, 1)",
        "UPDATE other SET v = 0",
        "EXECUTE 'TRUNCATE other'",
        "INSERT INTO s VALUES (100, 1)",
    ] {
        let (_db, mut c) = with_trigger(body);
        exec(&mut c, "UPDATE t SET v = v + 1");
        let e = expect_error(&mut c, "SELECT pgtrickle.refresh_stream_table('s')");
        assert!(e.message.contains("can't be changed directly"), "{body}: {e:?}");
        assert_eq!(e.sqlstate, "55000", "{body}: {e:?}");
        assert_up_to_date(&mut c, "other");
        exec(&mut c, "DROP TRIGGER follow ON s");
        refresh(&mut c, "s");
    }
}

#[test]
fn a_function_of_the_query_can_not_write_a_stream_table() {
    let (_db, mut c) = with_trigger("NULL");
    exec(
        &mut c,
        "CREATE FUNCTION sly(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
           $$ BEGIN EXECUTE 'DELETE FROM public.other'; RETURN $1; END $$;
         CREATE TABLE w (id int PRIMARY KEY)",
    );
    create_mode(&mut c, "slyly", "SELECT sly(id) AS id FROM w", "differential");
    exec(&mut c, "INSERT INTO w VALUES (1)");
    expect_error(&mut c, "SELECT pgtrickle.refresh_stream_table('slyly')");
    expect_error(&mut c, "SELECT pgtrickle.refresh_stream_table('slyly', 'full')");
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM other"), 2);
    assert_up_to_date(&mut c, "other");
}

#[test]
fn what_a_trigger_on_a_stream_table_writes_to_a_source_is_captured() {
    let (_db, mut c) =
        with_trigger("INSERT INTO u SELECT 70, 7 WHERE NOT EXISTS (SELECT FROM u WHERE v = 7)");
    exec(&mut c, "UPDATE t SET v = v + 1 WHERE id < 4");
    refresh(&mut c, "s");
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM u WHERE v = 7"), 1);
    differential(&mut c, "other");
    // Also what goes back into its own source: the next refresh has it.
    exec(&mut c, "CREATE OR REPLACE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS
       $$ BEGIN IF (SELECT count(*) FROM t) < 12 THEN INSERT INTO t (id, v) SELECT max(id) + 1, 5 FROM t; END IF; RETURN NULL; END $$");
    exec(&mut c, "UPDATE t SET v = v + 1 WHERE id < 4");
    for _ in 0..2 {
        exec(&mut c, "SELECT pgtrickle.refresh_stream_table('s')");
    }
    refresh(&mut c, "s");
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM s"), 12);
}

#[test]
fn ddl_of_a_trigger_on_a_stream_table_is_followed() {
    let (_db, mut c) = with_trigger("ALTER TABLE u DROP COLUMN IF EXISTS v");
    exec(&mut c, "UPDATE t SET v = v + 1");
    refresh(&mut c, "s");
    assert_suspended(&mut c, "other", "COLUMN_DROPPED");

    let (_db, mut c) = with_trigger("DROP TABLE IF EXISTS u");
    exec(&mut c, "UPDATE t SET v = v + 1");
    refresh(&mut c, "s");
    assert_suspended(&mut c, "other", "SOURCE_DROPPED");

    let (_db, mut c) = with_trigger("ALTER TABLE IF EXISTS u RENAME TO u2");
    exec(&mut c, "UPDATE t SET v = v + 1");
    refresh(&mut c, "s");
    assert_active(&mut c, "other");
    exec(&mut c, "INSERT INTO u2 VALUES (9, 9)");
    differential(&mut c, "other");
}

#[test]
fn a_trigger_that_suspends_its_own_stream_table_ends_the_refresh() {
    for body in ["PERFORM pgtrickle.suspend_stream_table('s')", "DROP TABLE s", "ALTER TABLE t DROP COLUMN v"]
    {
        let (_db, mut c) = with_trigger(body);
        exec(&mut c, "UPDATE t SET v = v + 1");
        let e = expect_error(&mut c, "SELECT pgtrickle.refresh_stream_table('s')");
        assert!(e.sqlstate != "XX000" && e.sqlstate != "23514", "{body}: {e:?}");
        exec(&mut c, "DROP TRIGGER follow ON s");
        refresh(&mut c, "s");
    }
}

#[test]
fn a_deferred_trigger_on_a_stream_table_changes_no_other_one() {
    let (_db, mut c) = with_trigger("UPDATE other SET v = 0");
    exec(
        &mut c,
        "DROP TRIGGER follow ON s;
         CREATE CONSTRAINT TRIGGER late AFTER INSERT OR UPDATE ON s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION follow();
         UPDATE t SET v = v + 1",
    );
    let e = expect_error(&mut c, "SELECT pgtrickle.refresh_stream_table('s')");
    assert!(!e.message.is_empty(), "{e:?}");
    assert_up_to_date(&mut c, "other");
    exec(&mut c, "DROP TRIGGER late ON s");
    refresh(&mut c, "s");
}

#[test]
fn a_stream_table_has_no_rules() {
    let (_db, mut c) = with_trigger("NULL");
    for rule in ["DO INSTEAD NOTHING", "DO ALSO INSERT INTO other VALUES (50, 1)"] {
        let e = expect_error(&mut c, &format!("CREATE RULE r AS ON INSERT TO s {rule}"));
        assert!(e.message.contains("a rule of stream table"), "{e:?}");
    }
    // Where nobody looked, the guard does.
    exec(&mut c, "ALTER EVENT TRIGGER pgtrickle_ddl_end DISABLE");
    exec(&mut c, "CREATE RULE r AS ON INSERT TO s DO ALSO INSERT INTO other VALUES (50, 1)");
    exec(
        &mut c,
        "ALTER EVENT TRIGGER pgtrickle_ddl_end ENABLE ALWAYS; INSERT INTO t (id, v) VALUES (900, 1)",
    );
    expect_error(&mut c, "SELECT pgtrickle.refresh_stream_table('s')");
    assert_up_to_date(&mut c, "other");
}
