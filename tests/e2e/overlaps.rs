//! All pairs of what can overlap on one stream table: a refresh, DDL on what it reads, suspension and its end, changes of
//! its definition, its end. One of two sessions is held in the middle, by an open transaction or by a function in the
//! query that waits; the other one runs until it ends or waits. Afterwards nothing that was committed is lost: the
//! stream table equals its query after a refresh, or is visibly suspended, or is gone.

use crate::common::*;
use crate::support::{self, Failure, TestDb, db_error, fresh_db, try_refresh};
use postgres::Client;
use std::thread;

/// What one session does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Refresh,
    ReplaceFunction,
    RenameSchema,
    DropColumn,
    RenameColumn,
    AttachPartition,
    Suspend,
    Resume,
    AlterQuery,
    AlterMode,
    RenameStreamTable,
    Drop,
}

use Deed::*;

const DEEDS: [Deed; 12] = [
    Refresh,
    ReplaceFunction,
    RenameSchema,
    DropColumn,
    RenameColumn,
    AttachPartition,
    Suspend,
    Resume,
    AlterQuery,
    AlterMode,
    RenameStreamTable,
    Drop,
];

/// A function that waits while somebody holds advisory lock 7.
fn function(factor: i32) -> String {
    format!(
        "CREATE OR REPLACE FUNCTION fs.f(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
         'BEGIN PERFORM pg_advisory_lock_shared(7); PERFORM pg_advisory_unlock_shared(7); RETURN $1 * {factor}; END'"
    )
}

impl Deed {
    fn sql(self) -> String {
        match self {
            Refresh => "SELECT pgtrickle.refresh_stream_table('x.s')".into(),
            ReplaceFunction => function(-7),
            RenameSchema => "ALTER SCHEMA src RENAME TO src2".into(),
            DropColumn => "ALTER TABLE src.t DROP COLUMN v".into(),
            RenameColumn => "ALTER TABLE src.t RENAME COLUMN v TO value".into(),
            AttachPartition => {
                "ALTER TABLE src.t ATTACH PARTITION src.more FOR VALUES FROM (100) TO (200)".into()
            }
            Suspend => "SELECT pgtrickle.suspend_stream_table('x.s')".into(),
            Resume => "SELECT pgtrickle.resume_stream_table('x.s')".into(),
            AlterQuery => {
                "SELECT pgtrickle.alter_stream_table_query('x.s', 'SELECT id, id * 3 AS marker FROM src.t')"
                    .into()
            }
            AlterMode => "SELECT pgtrickle.alter_stream_table('x.s', NULL, 'full')".into(),
            RenameStreamTable => "ALTER TABLE x.s RENAME TO renamed".into(),
            Drop => "SELECT pgtrickle.drop_stream_table('x.s')".into(),
        }
    }

    /// DDL of somebody who need not know of the stream table: it never fails because of it.
    fn is_users(self) -> bool {
        matches!(self, ReplaceFunction | RenameSchema | DropColumn | RenameColumn | AttachPartition)
    }
}

/// How the stream table is before the two meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Active,
    Suspended,
    Uninitialized,
}

struct Stage<'a> {
    db: &'a TestDb,
    /// Who is held in the middle, and who comes then.
    first: Client,
    second: Client,
    /// Holds the function's lock.
    gate: Client,
    watcher: Client,
}

type Ended = Result<(), Failure>;

fn run(c: &mut Client, sql: &str) -> Ended {
    c.batch_execute(sql).map_err(|e| db_error(&e))
}

/// A refresh tells of a suspension or of tasks by how it ends; an error in an open transaction ends what it did.
fn finish(c: &mut Client, done: Ended, end: &str) -> bool {
    match done {
        Ok(()) if end == "COMMIT" => run(c, "COMMIT").is_ok(),
        _ => {
            exec(c, "ROLLBACK");
            false
        }
    }
}

impl<'a> Stage<'a> {
    fn new(db: &'a TestDb) -> Stage<'a> {
        // What waits for ever is a failure, and must not take the other pairs with it.
        let connect = || {
            let mut c = db.connect();
            exec(&mut c, "SET statement_timeout = '20s'");
            c
        };
        Stage { db, first: connect(), second: connect(), gate: connect(), watcher: connect() }
    }

    fn set(&mut self, start: Start) -> u32 {
        let c = &mut self.watcher;
        exec(
            c,
            "SET client_min_messages = error; DROP SCHEMA IF EXISTS x, fs, src, src2 CASCADE; CREATE SCHEMA x; CREATE SCHEMA fs; CREATE SCHEMA src;
             CREATE TABLE src.t (id int, v int) PARTITION BY RANGE (id);
             CREATE TABLE src.p PARTITION OF src.t FOR VALUES FROM (0) TO (100);
             CREATE TABLE src.more (id int, v int); INSERT INTO src.more VALUES (100, 1), (101, 2);
             INSERT INTO src.t SELECT i, i * 10 FROM generate_series(1, 10) i",
        );
        exec(c, &function(1));
        let initialize = start != Start::Uninitialized;
        exec(
            c,
            &format!(
                "SELECT pgtrickle.create_stream_table('x.s', 'SELECT id % 3 AS g, sum(fs.f(v)) AS v FROM src.t GROUP BY 1',
                 schedule => NULL, initialize => {initialize})"
            ),
        );
        exec(c, "UPDATE src.t SET v = v + 1 WHERE id < 5");
        if start == Start::Suspended {
            exec(c, "SELECT pgtrickle.suspend_stream_table('x.s')");
        }
        one(c, "SELECT 'x.s'::regclass::oid")
    }

    /// The first one is held by its open transaction. Who has committed: first, second.
    fn open(&mut self, a: Deed, b: Deed, end: &str) -> (bool, bool) {
        let (sql_a, sql_b) = (a.sql(), b.sql());
        exec(&mut self.first, "BEGIN");
        let done = run(&mut self.first, &sql_a);
        let pid = pid(&mut self.second);
        let (first, second) = (&mut self.first, &mut self.second);
        thread::scope(|s| {
            let other = s.spawn(move || run(second, &sql_b));
            let watched = Watched { watcher: &mut self.watcher, pid };
            waits_or_ends(watched.watcher, pid, || other.is_finished());
            let a_done = finish(first, done, end);
            let ended = other.join().expect("the second session");
            assert_ended(b, a, &ended);
            (a_done, ended.is_ok())
        })
    }

    /// The first one, a refresh, is held by a function of its query. The second one's transaction stays open until the
    /// refresh waits for it or ends, if `open`.
    fn gated(&mut self, b: Deed, open: Option<&str>) -> (bool, bool) {
        exec(&mut self.gate, "SELECT pg_advisory_lock(7)");
        let (pid_a, pid_b) = (pid(&mut self.first), pid(&mut self.second));
        let (first, second, gate, watcher) =
            (&mut self.first, &mut self.second, &mut self.gate, &mut self.watcher);
        thread::scope(|s| {
            let _gate_opens = OpenAtEnd(&mut *gate);
            let refresh = s.spawn(|| run(first, &Refresh.sql()));
            waits_or_ends(watcher, pid_a, || refresh.is_finished());
            let other = s.spawn(|| {
                if open.is_some() {
                    exec(second, "BEGIN");
                }
                let done = run(second, &b.sql());
                (done, second)
            });
            waits_or_ends(watcher, pid_b, || other.is_finished());
            drop(_gate_opens);
            if !other.is_finished() {
                // It waits for the refresh, or did for the function.
                let ended = refresh.join().expect("the refresh");
                let (done, second) = other.join().expect("the second session");
                assert_ended(b, Refresh, &done);
                let b_done = match open {
                    Some(end) => finish(second, done, end),
                    None => done.is_ok(),
                };
                return (ended.is_ok(), b_done);
            }
            let (done, second) = other.join().expect("the second session");
            assert_ended(b, Refresh, &done);
            let b_done = match open {
                Some(end) => {
                    waits_or_ends(watcher, pid_a, || refresh.is_finished());
                    finish(second, done, end)
                }
                None => done.is_ok(),
            };
            let ended = refresh.join().expect("the refresh");
            assert_ended(Refresh, b, &ended);
            (ended.is_ok(), b_done)
        })
    }

    /// What must hold afterwards.
    fn check(&mut self, oid: u32, start: Start, done: &[Deed]) {
        let c = &mut self.watcher;
        let has = |deed: Deed| done.contains(&deed);
        let gone = one::<bool>(
            c,
            &format!("SELECT NOT EXISTS (SELECT FROM pgtrickle.stream_tables WHERE stream_table = {oid})"),
        );
        assert_eq!(gone, has(Drop), "gone?");
        if gone {
            return;
        }
        let name: String = one(c, &format!("SELECT {oid}::regclass::text"));
        assert_eq!(name, if has(RenameStreamTable) { "x.renamed" } else { "x.s" });
        let refreshed = try_refresh(c, &name, "auto");
        let now = status(c, &name);
        if now.status == "active" {
            refreshed.unwrap_or_else(|e| panic!("active and not refreshed: {}", support::describe(&e)));
            exec(c, if has(RenameSchema) { "SET search_path = src2" } else { "SET search_path = src" });
            exec(
                c,
                "UPDATE t SET id = id + 3 WHERE id = 1; INSERT INTO t (id) VALUES (50); RESET search_path",
            );
            try_refresh(c, &name, "auto").unwrap_or_else(|e| panic!("{}", support::describe(&e)));
        } else {
            assert_eq!(now.status, "suspended");
            assert!(!now.reason.is_empty() && !now.hint.is_empty(), "{now:?}");
        }
        let query: String =
            one(c, &format!("SELECT query FROM pgtrickle.stream_tables WHERE stream_table = {oid}"));
        assert_eq!(query.contains("marker"), has(AlterQuery), "{query}");
        let mode: String =
            one(c, &format!("SELECT refresh_mode FROM pgtrickle.stream_tables WHERE stream_table = {oid}"));
        assert_eq!(mode, if has(AlterMode) { "full" } else { "auto" });
        let suspended = start == Start::Suspended || has(Suspend);
        let ended = has(Resume) || has(AlterQuery);
        let broken = has(DropColumn) && !has(AlterQuery);
        if broken || (suspended && !ended) {
            assert_eq!(now.status, "suspended", "{now:?}");
        }
        if !broken && !suspended {
            assert_eq!(now.status, "active", "{now:?}");
        }
        let task: Option<String> = one(
            c,
            "SELECT string_agg(kind || coalesce(' ' || failure, ''), ', ') FROM pgtrickle.pgt_tasks WHERE failure IS NOT NULL",
        );
        assert_eq!(task, None, "a task failed");
    }

    fn play(
        &mut self,
        what: &str,
        start: Start,
        deeds: [Deed; 2],
        f: impl FnOnce(&mut Self) -> (bool, bool),
    ) -> Option<String> {
        let oid = self.set(start);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let (a, b) = f(self);
            let done: Vec<Deed> =
                deeds.iter().zip([a, b]).filter_map(|(deed, done)| done.then_some(*deed)).collect();
            let checked =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.check(oid, start, &done)));
            checked.map_err(|e| format!("{} (committed: {done:?})", words(e.as_ref())))
        }));
        let why = match outcome {
            Ok(Ok(())) => return None,
            Ok(Err(why)) => why,
            Err(e) => words(e.as_ref()),
        };
        // Their sessions are in the middle of something.
        *self = Stage::new(self.db);
        Some(format!("{:?} x {:?}, {what}, {start:?}: {why}", deeds[0], deeds[1]))
    }
}

fn words(e: &(dyn std::any::Any + Send)) -> String {
    e.downcast_ref::<String>()
        .cloned()
        .or_else(|| e.downcast_ref::<&str>().map(|s| (*s).to_string()))
        .unwrap_or_default()
}

/// Lets the function go on, when a test panics too.
struct OpenAtEnd<'a>(&'a mut Client);

impl std::ops::Drop for OpenAtEnd<'_> {
    fn drop(&mut self) {
        let _ = self.0.batch_execute("SELECT pg_advisory_unlock_all()");
    }
}

/// Only what concerns the stream table itself may fail, and then for a reason that its caller can do something about.
fn assert_ended(deed: Deed, other: Deed, ended: &Ended) {
    let Err(e) = ended else { return };
    // Two who change the same thing: what the one has taken away, the other one does not find.
    let theirs = ["42703", "42804", "42809", "42P01", "3F000"].contains(&e.sqlstate.as_str());
    let concurrent = e.message == "tuple concurrently updated";
    let gone = other == RenameSchema && theirs;
    if gone || deed.is_users() && other.is_users() && (theirs || concurrent) {
        return;
    }
    assert!(!deed.is_users(), "{deed:?} failed beside {other:?}: {e:?}");
    let known = ["55000", "42809", "42P01", "42704", "40001", "42703"];
    assert!(known.contains(&e.sqlstate.as_str()), "{deed:?} beside {other:?}: {e:?}");
}

fn starts(deeds: [Deed; 2]) -> Start {
    if deeds.contains(&Resume) { Start::Suspended } else { Start::Active }
}

fn assert_none(failed: &[String]) {
    assert!(failed.is_empty(), "{} pairs:\n{}", failed.len(), failed.join("\n"));
}

/// Every pair whose first one is held by an open transaction.
fn all_after(first: &[Deed]) {
    let db = fresh_db();
    let mut stage = Stage::new(&db);
    let mut failed = Vec::new();
    for a in first {
        for b in DEEDS {
            for end in ["COMMIT", "ROLLBACK"] {
                let deeds = [*a, b];
                failed.extend(stage.play(end, starts(deeds), deeds, |s| s.open(*a, b, end)));
            }
        }
    }
    assert_none(&failed);
}

#[test]
fn i5_nothing_is_lost_beside_an_open_refresh_suspension_or_alteration() {
    all_after(&[Refresh, Suspend, Resume, AlterQuery, AlterMode]);
}

#[test]
fn i5_nothing_is_lost_beside_open_ddl() {
    all_after(&[
        ReplaceFunction,
        RenameSchema,
        DropColumn,
        RenameColumn,
        AttachPartition,
        RenameStreamTable,
        Drop,
    ]);
}

#[test]
fn i5_nothing_is_lost_that_comes_during_a_refresh() {
    let db = fresh_db();
    let mut stage = Stage::new(&db);
    let mut failed = Vec::new();
    for b in DEEDS {
        let deeds = [Refresh, b];
        let starts =
            if b == Resume { vec![Start::Suspended] } else { vec![Start::Active, Start::Uninitialized] };
        for start in starts {
            failed.extend(stage.play("during", start, deeds, |s| s.gated(b, None)));
            for end in ["COMMIT", "ROLLBACK"] {
                let what = format!("during, {end} at its end");
                failed.extend(stage.play(&what, start, deeds, |s| s.gated(b, Some(end))));
            }
        }
    }
    assert_none(&failed);
}
