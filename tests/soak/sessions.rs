//! The sessions. Each draws one step after the other until the soak ends.

use std::sync::atomic::Ordering;
use std::time::Duration;

use postgres::Client;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::Soak;
use crate::support::describe;
use crate::world::STREAM_TABLES;

type Body = fn(&Soak, u64);

pub const ALL: [(&str, Body); 12] = [
    ("writer 1", writer),
    ("writer 2", writer),
    ("writer of partitions", partition_writer),
    ("preparer", preparer),
    ("schema", schema_changes),
    ("types and functions", object_changes),
    ("partitions", partition_changes),
    ("refresher 1", refresher),
    ("refresher 2", refresher),
    ("life of stream tables", lives),
    ("temporary tables", temporary),
    ("canceller and vacuum", canceller),
];

/// A session with its random numbers.
struct Session<'a> {
    soak: &'a Soak,
    client: Client,
    random: ChaCha8Rng,
}

/// A cancel, which the soak sends to everybody.
const CANCELLED: &str = "57014";
/// A refresh of a stream table that is suspended.
const SUSPENDED: &str = "55000";
/// What a schema change left to be done first needs a lock that another session has just now.
const LOCKED: &str = "55P03";
/// What a session reads was renamed, dropped or changed by another one.
const GONE: [&str; 3] = ["42P01", "42703", "42704"];

impl<'a> Session<'a> {
    fn open(soak: &'a Soak, number: u64, name: &str) -> Self {
        let mut client = soak.cluster.connect("postgres");
        client.batch_execute(&format!("SET application_name = 'soak {name}'")).expect("SET");
        Session { soak, client, random: ChaCha8Rng::seed_from_u64(soak.seed.wrapping_add(number)) }
    }

    /// Runs statements as one message: one transaction, unless they say otherwise. True when they went through.
    fn run(&mut self, sql: &str, allowed: &[&str]) -> bool {
        let error = match self.client.batch_execute(sql) {
            Ok(()) => {
                self.soak.done.fetch_add(1, Ordering::Relaxed);
                return true;
            }
            Err(error) => error,
        };
        let code = error.as_db_error().map_or("", |e| e.code().code());
        if code == CANCELLED || allowed.contains(&code) {
            self.soak.expected.fetch_add(1, Ordering::Relaxed);
        } else {
            self.soak.complain(format!("{sql}\n      {}", describe(&error)));
        }
        // Cancelled or not, an open transaction block ends here.
        while let Err(error) = self.client.batch_execute("ROLLBACK") {
            if error.as_db_error().is_none() {
                let log = self.soak.cluster.log();
                let last: Vec<&str> =
                    log.lines().filter(|l| l.contains("FATAL") || l.contains("PANIC")).collect();
                panic!("the connection is lost: {error:?}\n{sql}\n{}", last.join("\n"));
            }
        }
        false
    }

    fn pick(&mut self, n: u32) -> u32 {
        self.random.random_range(0..n)
    }

    fn pause(&mut self, most: u64) {
        let time = self.random.random_range(0..most);
        std::thread::sleep(Duration::from_millis(time));
    }
}

/// Rows of tables that several sessions write are locked in the order of their keys, so that writers can't deadlock.
fn writer(soak: &Soak, number: u64) {
    let mut s = Session::open(soak, number, "writer");
    while soak.running() {
        let (a, b) = (s.pick(200) + 1, s.pick(200) + 1);
        let (low, high) = (a.min(b), a.max(b));
        let id = 1000 + s.pick(500);
        let sql = match s.pick(9) {
            0 => format!("UPDATE accounts SET balance = balance + {a} WHERE id = {b}"),
            1 => format!(
                "BEGIN; UPDATE accounts SET balance = balance - 5 WHERE id = {low};
                 UPDATE accounts SET balance = balance + 5 WHERE id = {high}; COMMIT"
            ),
            2 => format!(
                "INSERT INTO accounts VALUES ({id}, {a} % 5 + 1, {b}, 'new') ON CONFLICT (id) DO UPDATE SET balance = {a}"
            ),
            3 => format!("DELETE FROM accounts WHERE id = {id}"),
            4 => format!(
                "BEGIN; UPDATE accounts SET balance = 0 WHERE id = {a}; SAVEPOINT s;
                 UPDATE accounts SET balance = -1 WHERE id = {a}; ROLLBACK TO s; COMMIT"
            ),
            5 => format!("BEGIN; UPDATE accounts SET balance = 1 WHERE id = {a}; ROLLBACK"),
            6 => format!("UPDATE branches SET name = 'branch {b}' WHERE id = {a} % 5 + 1"),
            7 => format!(
                "DO $$ BEGIN UPDATE accounts SET balance = 2 WHERE id = {a}; RAISE unique_violation;
                 EXCEPTION WHEN unique_violation THEN NULL; END $$"
            ),
            _ => format!("UPDATE queue SET payload = jsonb_build_object('n', {a}) WHERE id = {b} % 50 + 1"),
        };
        s.run(&sql, &[]);
        s.pause(8);
    }
}

fn partition_writer(soak: &Soak, number: u64) {
    let mut s = Session::open(soak, number, "partition writer");
    while soak.running() {
        let n = s.pick(1000);
        let sql = match s.pick(5) {
            0 | 1 => format!("INSERT INTO ledger (account, kind, amount, part) VALUES ({n} % 200 + 1, 'busy', {n}, {n} % 2)"),
            2 => format!("UPDATE ledger SET part = 1 - part WHERE id = {n} AND part < 2"),
            3 => format!("DELETE FROM ledger WHERE id = {n}"),
            _ => "BEGIN; SAVEPOINT s; TRUNCATE ledger_1; ROLLBACK TO s; INSERT INTO ledger (account, kind, amount, part) VALUES (1, 'calm', 1, 1); COMMIT".into(),
        };
        s.run(&sql, &[]);
        s.pause(10);
    }
}

fn preparer(soak: &Soak, number: u64) {
    let mut s = Session::open(soak, number, "preparer");
    let mut count = 0;
    while soak.running() {
        count += 1;
        let id = 2000 + s.pick(100);
        let begun = match s.pick(3) {
            0 => {
                format!("BEGIN; INSERT INTO queue VALUES ({id}, '{{\"n\": 1}}') ON CONFLICT (id) DO NOTHING")
            }
            1 => "BEGIN; CREATE TABLE prepared_one (x int); DROP TABLE prepared_one".into(),
            _ => format!("BEGIN; DELETE FROM queue WHERE id = {id}"),
        };
        if s.run(&format!("{begun}; PREPARE TRANSACTION 'soak {count}'"), &[]) {
            s.pause(60);
            let end = if s.pick(2) == 0 { "COMMIT" } else { "ROLLBACK" };
            while !s.run(&format!("{end} PREPARED 'soak {count}'"), &[]) && soak.running() {}
        }
        s.pause(100);
    }
}

fn schema_changes(soak: &Soak, number: u64) {
    let mut s = Session::open(soak, number, "schema");
    while soak.running() {
        let n = s.pick(1000);
        let sql = match s.pick(10) {
            0 => "ALTER TABLE accounts ADD COLUMN extra int DEFAULT 5; ALTER TABLE accounts DROP COLUMN extra".into(),
            1 => "BEGIN; ALTER TABLE branches RENAME TO offices; ALTER TABLE offices RENAME TO branches; COMMIT".into(),
            2 => format!("CREATE TABLE unrelated_{n} (a int, b text); DROP TABLE unrelated_{n}"),
            3 => "BEGIN; SAVEPOINT s; ALTER TABLE accounts DROP COLUMN note CASCADE; ROLLBACK TO s; COMMIT".into(),
            4 => "ALTER TABLE accounts DROP COLUMN note; ALTER TABLE accounts ADD COLUMN note text DEFAULT 'again'".into(),
            5 => "CREATE INDEX soak_index ON accounts (branch); DROP INDEX soak_index".into(),
            6 => "ALTER TABLE accounts RENAME COLUMN balance TO money; ALTER TABLE accounts RENAME COLUMN money TO balance".into(),
            7 => "COMMENT ON TABLE accounts IS 'of the soak'; ALTER TABLE accounts ALTER note SET STATISTICS 50".into(),
            8 => format!("DO $$ BEGIN CREATE TABLE caught_{n} (x int); RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN NULL; END $$"),
            _ => "TRUNCATE queue".into(),
        };
        s.run(&sql, &[]);
        // Dropping a column that is used suspends; the call of its hint makes it right again.
        s.run(
            "SELECT pgtrickle.alter_stream_table_query('notes', 'SELECT id, note FROM accounts')
             FROM pgtrickle.stream_tables WHERE stream_table = 'notes'::regclass AND status = 'suspended'",
            &[],
        );
        s.pause(300);
    }
}

fn object_changes(soak: &Soak, number: u64) {
    let mut s = Session::open(soak, number, "objects");
    let mut value = 0;
    while soak.running() {
        value += 1;
        let n = s.pick(9) + 1;
        let sql = match s.pick(5) {
            0 => format!(
                "CREATE OR REPLACE FUNCTION fee(n numeric) RETURNS numeric LANGUAGE sql IMMUTABLE AS 'SELECT n * 0.0{n}'"
            ),
            1 => format!("ALTER TYPE mood ADD VALUE 'mood {value}'"),
            2 => format!(
                "CREATE OR REPLACE VIEW rich AS SELECT id, branch, balance FROM accounts WHERE balance > {n}00"
            ),
            3 => format!(
                "CREATE FUNCTION other_{value}() RETURNS int LANGUAGE sql AS 'SELECT 1'; DROP FUNCTION other_{value}()"
            ),
            _ => "CREATE OR REPLACE VIEW unrelated_view AS SELECT id FROM queue".into(),
        };
        s.run(&sql, &[]);
        s.run(
            "SELECT pgtrickle.resume_stream_table(stream_table) FROM pgtrickle.stream_tables
             WHERE stream_table::text IN ('by_kind', 'kinds') AND status = 'suspended' AND reason = 'UNCLASSIFIED'",
            &[],
        );
        s.pause(500);
    }
}

fn partition_changes(soak: &Soak, number: u64) {
    let mut s = Session::open(soak, number, "partitions");
    while soak.running() {
        let n = s.pick(100);
        s.run("ALTER TABLE ledger ATTACH PARTITION ledger_2 FOR VALUES IN (2)", &["42809"]);
        s.run(
            &format!("INSERT INTO ledger (account, kind, amount, part) VALUES ({n}, 'busy', {n}, 2)"),
            &["23514"],
        );
        s.pause(400);
        s.run("ALTER TABLE ledger DETACH PARTITION ledger_2", &[GONE[0]]);
        s.run(&format!("UPDATE ledger_2 SET amount = amount + {n}"), &[]);
        s.pause(400);
        // A cancelled step leaves it attached or not: begin from where it is.
        s.run(
            "DO $$ BEGIN IF (SELECT relispartition FROM pg_class WHERE oid = 'ledger_2'::regclass)
             THEN ALTER TABLE ledger DETACH PARTITION ledger_2; END IF; END $$",
            &[],
        );
    }
}

fn refresher(soak: &Soak, number: u64) {
    let mut s = Session::open(soak, number, "refresher");
    while soak.running() {
        let (name, _, _) = STREAM_TABLES[s.pick(STREAM_TABLES.len() as u32) as usize];
        let call = format!("SELECT pgtrickle.refresh_stream_table('{name}')");
        let sql = match s.pick(4) {
            0 => format!("BEGIN ISOLATION LEVEL REPEATABLE READ; {call}; COMMIT"),
            1 => format!("BEGIN; SAVEPOINT s; {call}; ROLLBACK TO s; COMMIT"),
            _ => call,
        };
        s.run(&sql, &[SUSPENDED, LOCKED, "40001"]);
        s.pause(200);
    }
}

fn lives(soak: &Soak, number: u64) {
    let mut s = Session::open(soak, number, "lives");
    let mut count = 0;
    while soak.running() {
        count += 1;
        let name = format!("life_{}", count % 3);
        s.run(
            &format!("SELECT pgtrickle.create_stream_table('{name}', 'SELECT branch, count(*) AS n FROM accounts GROUP BY branch', '1 second')"),
            &["42P07"],
        );
        s.run("UPDATE accounts SET balance = balance + 1 WHERE id = 7", &[]);
        for step in [
            format!("SELECT pgtrickle.refresh_stream_table('{name}')"),
            format!("SELECT pgtrickle.suspend_stream_table('{name}')"),
            format!("SELECT pgtrickle.resume_stream_table('{name}')"),
            format!(
                "SELECT pgtrickle.alter_stream_table_query('{name}', 'SELECT branch, sum(balance) AS n FROM accounts GROUP BY branch')"
            ),
            "SELECT count(*) FROM pgtrickle.health_check(); SELECT count(*) FROM pgtrickle.stream_tables"
                .into(),
        ] {
            s.run(&step, &[SUSPENDED, LOCKED, GONE[0]]);
            s.pause(100);
        }
        let drop = if s.pick(2) == 0 {
            format!("SELECT pgtrickle.drop_stream_table('{name}')")
        } else {
            format!("DROP TABLE {name}")
        };
        s.run(&drop, &[GONE[0]]);
        s.pause(300);
    }
}

fn temporary(soak: &Soak, number: u64) {
    let mut s = Session::open(soak, number, "temporary");
    while soak.running() {
        let sql = match s.pick(5) {
            0 => "CREATE TEMP TABLE tt AS SELECT * FROM accounts; ALTER TABLE tt ADD x int; DROP TABLE tt",
            1 => "BEGIN; CREATE TEMP TABLE tt (a int) ON COMMIT DROP; INSERT INTO tt VALUES (1); COMMIT",
            2 => "DISCARD ALL",
            3 => "CREATE TEMP VIEW tv AS SELECT id FROM branches; DROP VIEW tv",
            _ => {
                "DO $$ BEGIN CREATE TEMP TABLE tt (a int); RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN NULL; END $$"
            }
        };
        if sql == "DISCARD ALL" {
            s.run(sql, &[]);
            s.run("SET application_name = 'soak temporary'", &[]);
        } else {
            s.run(sql, &["42P07"]);
            s.run("DROP TABLE IF EXISTS pg_temp.tt; DROP VIEW IF EXISTS pg_temp.tv", &[]);
        }
        s.pause(60);
    }
}

/// Cancels others, and keeps house: VACUUM and ANALYZE, sometimes FULL.
fn canceller(soak: &Soak, number: u64) {
    let mut s = Session::open(soak, number, "house");
    while soak.running() {
        let sql = match s.pick(12) {
            0 => "VACUUM",
            1 => "VACUUM FULL branches",
            2 => "ANALYZE",
            3 => "CLUSTER queue USING queue_pkey",
            _ => {
                "SELECT pg_cancel_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'soak %'
                   AND state = 'active' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1) one"
            }
        };
        s.run(sql, &[]);
        s.pause(250);
    }
}
