//! Capture triggers that are still there and no longer do their work: replaced by a role with the TRIGGER privilege,
//! switched off, renamed or emptied by the table's owner, with our event triggers and without them.

use crate::common::*;
use crate::support::{TestDb, describe, fresh_db, quote_ident, refresh};
use postgres::Client;

/// What whoever has the TRIGGER privilege can do to the triggers of `src`: `{row}` and `{truncate}` are their names, `{oid}` is
/// the source's.
const BY_TRIGGER_PRIVILEGE: &[&str] = &[
    "CREATE OR REPLACE TRIGGER {row} AFTER INSERT OR UPDATE OR DELETE ON shop.src FOR EACH ROW WHEN (false) EXECUTE FUNCTION pgtrickle._capture('{oid}')",
    "CREATE OR REPLACE TRIGGER {row} AFTER INSERT OR UPDATE OF id OR DELETE ON shop.src FOR EACH ROW EXECUTE FUNCTION pgtrickle._capture('{oid}')",
    "CREATE OR REPLACE TRIGGER {row} AFTER INSERT OR UPDATE OR DELETE ON shop.src FOR EACH ROW EXECUTE FUNCTION pgtrickle._capture('{oid}')",
    "CREATE OR REPLACE TRIGGER {row} AFTER INSERT ON shop.src FOR EACH ROW EXECUTE FUNCTION pgtrickle._capture('{oid}')",
    "CREATE OR REPLACE TRIGGER {row} AFTER UPDATE OR DELETE ON shop.src FOR EACH ROW EXECUTE FUNCTION pgtrickle._capture('{oid}')",
    "CREATE OR REPLACE TRIGGER {row} BEFORE INSERT OR UPDATE OR DELETE ON shop.src FOR EACH ROW EXECUTE FUNCTION pass()",
    "CREATE OR REPLACE TRIGGER {row} AFTER INSERT OR UPDATE OR DELETE ON shop.src FOR EACH STATEMENT EXECUTE FUNCTION pgtrickle._capture('{oid}')",
    "CREATE OR REPLACE TRIGGER {row} AFTER TRUNCATE ON shop.src FOR EACH STATEMENT EXECUTE FUNCTION pgtrickle._capture('{oid}')",
    "CREATE OR REPLACE TRIGGER {row} AFTER INSERT OR UPDATE OR DELETE ON shop.src FOR EACH ROW EXECUTE FUNCTION pgtrickle._capture('1')",
    "CREATE OR REPLACE TRIGGER {row} AFTER INSERT OR UPDATE OR DELETE ON shop.src FOR EACH ROW EXECUTE FUNCTION pgtrickle._capture('{oid}', 'x')",
    "CREATE OR REPLACE TRIGGER {row} AFTER INSERT OR UPDATE OR DELETE ON shop.src FOR EACH ROW EXECUTE FUNCTION pgtrickle._capture()",
    "CREATE OR REPLACE TRIGGER {row} AFTER INSERT ON shop.src REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION pgtrickle._capture('{oid}')",
    "CREATE OR REPLACE TRIGGER {row} AFTER INSERT OR UPDATE OR DELETE ON shop.src FOR EACH ROW EXECUTE FUNCTION pass()",
    "CREATE OR REPLACE TRIGGER {truncate} AFTER TRUNCATE ON shop.src FOR EACH STATEMENT WHEN (false) EXECUTE FUNCTION pgtrickle._capture('{oid}')",
    "CREATE OR REPLACE TRIGGER {truncate} BEFORE TRUNCATE ON shop.src FOR EACH STATEMENT EXECUTE FUNCTION pgtrickle._capture('{oid}')",
    "CREATE OR REPLACE TRIGGER {truncate} AFTER TRUNCATE ON shop.src FOR EACH STATEMENT EXECUTE FUNCTION pass()",
    "CREATE OR REPLACE TRIGGER {truncate} AFTER TRUNCATE ON shop.src FOR EACH STATEMENT EXECUTE FUNCTION pgtrickle._capture('1')",
    "CREATE OR REPLACE TRIGGER {truncate} AFTER UPDATE ON shop.src FOR EACH STATEMENT EXECUTE FUNCTION pgtrickle._capture('{oid}')",
    // On a partitioned table this one is cloned, over the TRUNCATE triggers of all partitions.
    "CREATE OR REPLACE TRIGGER {truncate} AFTER INSERT ON shop.src FOR EACH ROW EXECUTE FUNCTION pass()",
];

/// What takes the table's owner.
const BY_OWNER: &[&str] = &[
    "ALTER TABLE shop.src DISABLE TRIGGER {row}",
    "ALTER TABLE shop.src ENABLE REPLICA TRIGGER {row}",
    "ALTER TABLE shop.src ENABLE TRIGGER {row}",
    "ALTER TABLE shop.src DISABLE TRIGGER {truncate}",
    "ALTER TABLE shop.src ENABLE REPLICA TRIGGER {truncate}",
    "ALTER TRIGGER {row} ON shop.src RENAME TO mine",
    "ALTER TRIGGER {truncate} ON shop.src RENAME TO mine_too",
    "DROP TRIGGER {row} ON shop.src",
    "DROP TRIGGER {truncate} ON shop.src",
    "CREATE OR REPLACE TRIGGER {row} AFTER INSERT OR UPDATE OR DELETE ON shop.src FOR EACH ROW WHEN (false) EXECUTE FUNCTION pgtrickle._capture('{oid}');
     ALTER TABLE shop.src ENABLE ALWAYS TRIGGER {row}",
    "CREATE OR REPLACE TRIGGER {truncate} AFTER TRUNCATE ON shop.src FOR EACH STATEMENT EXECUTE FUNCTION pass();
     ALTER TABLE shop.src ENABLE ALWAYS TRIGGER {truncate}",
    // Changed, used, and changed back.
    "ALTER TABLE shop.src DISABLE TRIGGER {row}; INSERT INTO shop.src VALUES (7, 7); ALTER TABLE shop.src ENABLE ALWAYS TRIGGER {row}",
    "BEGIN; ALTER TABLE shop.src DISABLE TRIGGER {row}; INSERT INTO shop.src VALUES (7, 7); ALTER TABLE shop.src ENABLE ALWAYS TRIGGER {row}; COMMIT",
    // A constraint trigger can't be replaced. Where ours is back at once, there is no room for it.
    "DO $$ BEGIN DROP TRIGGER {row} ON shop.src;
       CREATE CONSTRAINT TRIGGER {row} AFTER INSERT OR UPDATE OR DELETE ON shop.src DEFERRABLE FOR EACH ROW EXECUTE FUNCTION pgtrickle._capture('{oid}');
     EXCEPTION WHEN duplicate_object THEN NULL; END $$",
];

/// The same on partitions of `src`.
const ON_PARTITIONS: &[&str] = &[
    "ALTER TABLE shop.src1 DISABLE TRIGGER {row}",
    "ALTER TABLE shop.src2a ENABLE REPLICA TRIGGER {row}",
    "ALTER TABLE shop.src1 DISABLE TRIGGER ALL",
    "ALTER TABLE ONLY shop.src DISABLE TRIGGER {row}",
    "ALTER TABLE shop.src2 DISABLE TRIGGER {truncate}",
    "ALTER TRIGGER {truncate} ON shop.src2a RENAME TO mine_again",
    "DROP TRIGGER {truncate} ON shop.src1",
    "CREATE OR REPLACE TRIGGER {truncate} AFTER TRUNCATE ON shop.src1 FOR EACH STATEMENT WHEN (false) EXECUTE FUNCTION pgtrickle._capture('{oid}')",
    "CREATE OR REPLACE TRIGGER {truncate} AFTER INSERT ON shop.src2 FOR EACH ROW EXECUTE FUNCTION pass()",
    "DO $$ BEGIN DROP TRIGGER {truncate} ON shop.src1;
       CREATE CONSTRAINT TRIGGER {truncate} AFTER INSERT ON shop.src1 FOR EACH ROW EXECUTE FUNCTION pass();
     EXCEPTION WHEN duplicate_object THEN NULL; END $$",
    "ALTER TABLE shop.src DETACH PARTITION shop.src1;
     ALTER TABLE shop.src ATTACH PARTITION shop.src1 FOR VALUES FROM (0) TO (100);
     ALTER TABLE shop.src1 DISABLE TRIGGER {row}",
];

const PLAIN: &str = "CREATE TABLE shop.src (id int PRIMARY KEY, v int)";
const PARTITIONED: &str = "CREATE TABLE shop.src (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);
    CREATE TABLE shop.src1 PARTITION OF shop.src FOR VALUES FROM (0) TO (100);
    CREATE TABLE shop.src2 PARTITION OF shop.src FOR VALUES FROM (100) TO (200) PARTITION BY RANGE (id);
    CREATE TABLE shop.src2a PARTITION OF shop.src2 FOR VALUES FROM (100) TO (200)";

struct Stage {
    db: TestDb,
    c: Client,
    owner: String,
    meddler: String,
    oid: u32,
}

impl Stage {
    fn new(source: &str, events: bool) -> Stage {
        let db = fresh_db();
        let mut c = db.connect();
        let (owner, meddler) = (db.create_role("owner"), db.create_role("meddler"));
        let (o, m) = (quote_ident(&owner), quote_ident(&meddler));
        exec(
            &mut c,
            &format!(
                "CREATE SCHEMA shop AUTHORIZATION {o};
                 CREATE FUNCTION public.pass() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN coalesce(new, old); END'"
            ),
        );
        exec(
            &mut db.connect_as(&owner),
            &format!(
                "{source}; GRANT USAGE ON SCHEMA shop TO {m}; GRANT TRIGGER ON ALL TABLES IN SCHEMA shop TO {m}"
            ),
        );
        create_mode(&mut c, "st", "SELECT id, v FROM shop.src", "differential");
        create_mode(
            &mut c,
            "sums",
            "SELECT v % 2 AS odd, sum(v) AS v FROM shop.src GROUP BY v % 2",
            "differential",
        );
        let off = if events { "ENABLE ALWAYS" } else { "DISABLE" };
        let names: Vec<String> =
            column(&mut c, "SELECT evtname::text FROM pg_event_trigger WHERE evtname LIKE 'pgtrickle%'");
        for name in names {
            exec(&mut c, &format!("ALTER EVENT TRIGGER {name} {off}"));
        }
        let oid = one(&mut c, "SELECT 'shop.src'::regclass::oid");
        Stage { db, c, owner, meddler, oid }
    }

    fn capture_health(&mut self) -> (String, String) {
        let row = self
            .c
            .query_one("SELECT status, detail FROM pgtrickle.health_check() WHERE \"check\" = 'capture'", &[])
            .expect("a row about capture");
        (row.get(0), row.get(1))
    }

    /// Somebody writes, and both stream tables are right after the next refresh: differentially where `kept`.
    fn write_and_refresh(&mut self, write: &str, kept: bool) {
        exec(&mut self.c, write);
        for st in ["st", "sums"] {
            if kept {
                differential(&mut self.c, st);
            } else {
                refresh(&mut self.c, st);
                assert_active(&mut self.c, st);
            }
        }
    }

    fn meddle(&mut self, who: &str, sql: &str, events: bool) {
        let what = format!("{who}, event triggers {}: {sql}", if events { "on" } else { "off" });
        eprintln!("{what}");
        let sql = sql
            .replace("{row}", &format!("pgtrickle_capture_{}", self.oid))
            .replace("{truncate}", &format!("pgtrickle_capture_truncate_{}", self.oid))
            .replace("{oid}", &self.oid.to_string());
        let mut session = self.db.connect_as(who);
        // Without preload, what a DROP touched is not known where it is the first command of a session.
        exec(&mut session, "CREATE TEMP TABLE warm ()");
        session.batch_execute(&sql).unwrap_or_else(|e| panic!("{what}\n{}", describe(&e)));
        if events {
            assert_eq!(
                self.capture_health().0,
                "OK",
                "put right at once: {what}: {}",
                self.capture_health().1
            );
        }
        self.write_and_refresh(
            "INSERT INTO shop.src VALUES (1, 1), (2, 2), (150, 3); UPDATE shop.src SET v = v + 1 WHERE id = 2; DELETE FROM shop.src WHERE id = 1",
            false,
        );
        assert_eq!(self.capture_health().0, "OK", "{what}: {}", self.capture_health().1);
        // It does its work again, for rows and for TRUNCATE.
        self.write_and_refresh(
            "UPDATE shop.src SET v = v + 10; INSERT INTO shop.src VALUES (3, 3), (151, 3)",
            true,
        );
        for truncate in ["shop.src1", "shop.src2", "shop.src2a", "shop.src"] {
            let exists: bool = one(&mut self.c, &format!("SELECT to_regclass('{truncate}') IS NOT NULL"));
            if exists {
                self.write_and_refresh(&format!("TRUNCATE {truncate}"), false);
                self.write_and_refresh(
                    "INSERT INTO shop.src VALUES (4, 4), (152, 4); DELETE FROM shop.src WHERE id IN (4, 152)",
                    false,
                );
            }
        }
        exec(&mut self.c, "DELETE FROM shop.src");
        for st in ["st", "sums"] {
            refresh(&mut self.c, st);
        }
    }

    fn all(source: &str, lists: &[&[&str]], events: bool) {
        let mut stage = Stage::new(source, events);
        let (owner, meddler) = (stage.owner.clone(), stage.meddler.clone());
        for sql in lists.iter().flat_map(|l| l.iter()) {
            stage.meddle(&owner, sql, events);
        }
        for sql in BY_TRIGGER_PRIVILEGE {
            stage.meddle(&meddler, sql, events);
        }
        // Nothing stays behind, also of what was renamed.
        let names: Vec<String> = column(
            &mut stage.c,
            "SELECT evtname::text FROM pg_event_trigger WHERE evtname LIKE 'pgtrickle%'",
        );
        for name in names {
            exec(&mut stage.c, &format!("ALTER EVENT TRIGGER {name} ENABLE ALWAYS"));
        }
        for st in ["st", "sums"] {
            exec(&mut stage.c, &format!("SELECT pgtrickle.drop_stream_table('{st}')"));
        }
        let left: Vec<String> = column(
            &mut stage.c,
            "SELECT tgname::text FROM pg_trigger WHERE tgfoid = 'pgtrickle._capture()'::regprocedure",
        );
        assert_eq!(left, Vec::<String>::new());
    }
}

#[test]
fn on_a_plain_source_it_is_put_right_at_once() {
    Stage::all(PLAIN, &[BY_OWNER, BY_TRIGGER_PRIVILEGE], true);
}

#[test]
fn on_a_plain_source_without_event_triggers_the_next_refresh_notices() {
    Stage::all(PLAIN, &[BY_OWNER, BY_TRIGGER_PRIVILEGE], false);
}

#[test]
fn on_a_partitioned_source_it_is_put_right_at_once() {
    Stage::all(PARTITIONED, &[ON_PARTITIONS, BY_OWNER, BY_TRIGGER_PRIVILEGE], true);
}

#[test]
fn on_a_partitioned_source_without_event_triggers_the_next_refresh_notices() {
    Stage::all(PARTITIONED, &[ON_PARTITIONS, BY_OWNER, BY_TRIGGER_PRIVILEGE], false);
}

#[test]
fn a_trigger_that_came_from_above_is_in_the_way_and_goes() {
    for events in [true, false] {
        let mut s = Stage::new(PARTITIONED, events);
        // A partition is a source of its own, and whoever has its parent replaces the triggers of it by clones of his.
        create_mode(&mut s.c, "part", "SELECT id, v FROM shop.src2", "differential");
        let oid: u32 = one(&mut s.c, "SELECT 'shop.src2'::regclass::oid");
        let mut meddler = s.db.connect_as(&s.meddler.clone());
        for name in [format!("pgtrickle_capture_{oid}"), format!("pgtrickle_capture_truncate_{oid}")] {
            exec(
                &mut meddler,
                &format!(
                    "CREATE OR REPLACE TRIGGER {name} AFTER INSERT ON shop.src FOR EACH ROW EXECUTE FUNCTION pass()"
                ),
            );
            exec(&mut s.c, "INSERT INTO shop.src VALUES (110, 1), (111, 1)");
            refresh(&mut s.c, "part");
            assert_active(&mut s.c, "part");
            assert_eq!(s.capture_health().0, "OK", "{}", s.capture_health().1);
            exec(&mut s.c, "DELETE FROM shop.src WHERE id = 110");
            differential(&mut s.c, "part");
            exec(&mut s.c, "TRUNCATE shop.src");
            refresh(&mut s.c, "part");
        }
    }
}

#[test]
fn health_names_what_is_wrong_until_it_is_put_right() {
    let mut s = Stage::new(PARTITIONED, false);
    let row = format!("pgtrickle_capture_{}", s.oid);
    exec(
        &mut s.c,
        &format!(
            "CREATE OR REPLACE TRIGGER {row} AFTER INSERT ON shop.src FOR EACH ROW WHEN (new.v > 100) EXECUTE FUNCTION pgtrickle._capture('{}');
             ALTER TABLE shop.src ENABLE ALWAYS TRIGGER {row}",
            s.oid
        ),
    );
    let (status, detail) = s.capture_health();
    assert_eq!(status, "FAIL", "{detail}");
    assert!(
        detail.contains(&format!("shop.src.{row}")) && detail.contains(&format!("shop.src2a.{row}")),
        "{detail}"
    );
    refresh(&mut s.c, "st");
    assert_eq!(s.capture_health().0, "OK", "{}", s.capture_health().1);
}

/// What would take the guard off a stream table.
const GUARD: &[&str] = &[
    "CREATE OR REPLACE TRIGGER pgtrickle_guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON st FOR EACH STATEMENT WHEN (false) EXECUTE FUNCTION pgtrickle._guard()",
    "CREATE OR REPLACE TRIGGER pgtrickle_guard BEFORE DELETE ON st FOR EACH STATEMENT EXECUTE FUNCTION pgtrickle._guard()",
    "CREATE OR REPLACE TRIGGER pgtrickle_guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON st FOR EACH STATEMENT EXECUTE FUNCTION pass()",
    "ALTER TRIGGER pgtrickle_guard ON st RENAME TO other; ALTER TABLE st DISABLE TRIGGER other",
    "DROP TRIGGER pgtrickle_guard ON st",
    "ALTER TABLE st DISABLE TRIGGER pgtrickle_guard",
];

#[test]
fn the_guard_of_a_stream_table_is_not_replaced_by_another_one_of_its_name() {
    let mut s = Stage::new(PLAIN, true);
    for sql in GUARD {
        let e = crate::support::expect_error(&mut s.c, sql);
        assert_eq!(e.sqlstate, "55000", "{sql}: {e:?}");
    }
    let mut s = Stage::new(PLAIN, false);
    for sql in GUARD {
        exec(&mut s.c, sql);
        if sql.starts_with("CREATE") {
            exec(&mut s.c, "ALTER TABLE st ENABLE ALWAYS TRIGGER pgtrickle_guard");
        }
        exec(&mut s.c, "INSERT INTO shop.src VALUES (1, 1)");
        exec(&mut s.c, "INSERT INTO st VALUES (666, 6)");
        refresh(&mut s.c, "st");
        assert_active(&mut s.c, "st");
        let e = crate::support::expect_error(&mut s.c, "INSERT INTO st VALUES (667, 6)");
        assert!(e.detail.contains("DIRECT_WRITE") || e.sqlstate == "55000", "{sql}: {e:?}");
        exec(&mut s.c, "DROP TRIGGER IF EXISTS other ON st; DELETE FROM shop.src");
    }
}
