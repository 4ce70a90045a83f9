//! What DDL on tables that no stream table reads pays for a thousand stream tables beside it.

use std::time::Duration;

use postgres::{Client, NoTls};

use crate::support::Cluster;
use crate::tpch::{median, ms, ratio, run, text_table, timed, times};
use crate::{create_stream_table, heading};

const STREAM_TABLES: usize = 1000;
const ROUNDS: usize = 300;
const SESSIONS: usize = 60;
/// Without the extension; with event triggers like its own that do nothing, which is what any event trigger costs; with it.
const DATABASES: [&str; 3] = ["ddl_without", "ddl_idle", "ddl_with"];
/// Rounds in a row in one database, so that each is measured with caches of its own.
const BLOCK: usize = 10;

/// Measured one after the other, in the order in which they can run.
const STATEMENTS: [(&str, &str, &str); 8] = [
    ("CREATE TABLE", "CREATE TABLE u (id integer PRIMARY KEY, a text)", AIM),
    ("ALTER TABLE ADD COLUMN", "ALTER TABLE u ADD COLUMN b integer", AIM),
    ("ALTER TABLE ALTER TYPE", "ALTER TABLE u ALTER COLUMN b TYPE bigint", AIM),
    ("CREATE VIEW", "CREATE VIEW v AS SELECT id FROM u", AIM),
    ("DROP VIEW", "DROP VIEW v", AIM),
    (
        "CREATE OR REPLACE FUNCTION",
        "CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        AIM,
    ),
    ("CREATE TEMP TABLE", "CREATE TEMP TABLE IF NOT EXISTS tt (x int) ON COMMIT DROP", AIM),
    ("DROP TABLE, with evidence", "DROP TABLE u", "1.5x or less"),
];
const AIM: &str = "1.05x or less";

/// All of it.
pub fn unrelated(cluster: &Cluster) {
    heading(&format!(
        "DDL on tables that no stream table reads, in a database with {STREAM_TABLES} stream tables on as many sources against \
         ones with as many tables and indexes of the same kind, without the extension and with event triggers that do nothing \
         ({ROUNDS} rounds)"
    ));
    let mut clients = DATABASES.map(|db| fill(cluster, db));
    let mut rows = Vec::new();
    let mut row = |title: &str, [without, idle, with]: Times, aim: &str| {
        let against = |other| times(ratio(with, other));
        rows.push(vec![
            title.to_string(),
            ms(without),
            ms(idle),
            ms(with),
            against(without),
            against(idle),
            aim.to_string(),
        ]);
    };
    for (n, (title, _, aim)) in STATEMENTS.iter().enumerate() {
        row(title, repeated(&mut clients, n), aim);
    }
    for client in &mut clients {
        run(client, "SET pg_trickle.schema_snapshots = off");
    }
    row("DROP TABLE, without evidence", repeated(&mut clients, STATEMENTS.len() - 1), AIM);
    row("CREATE TABLE after a ROLLBACK", after(&mut clients, "BEGIN; CREATE TABLE w (x int); ROLLBACK"), AIM);
    let caught = "DO $$ BEGIN RAISE EXCEPTION 'x'; EXCEPTION WHEN raise_exception THEN NULL; END $$";
    row("CREATE TABLE after a caught exception", after(&mut clients, caught), AIM);
    row("CREATE TABLE, first in its session", first(cluster), AIM);
    let columns = ["", "without", "idle triggers", "with", "to without", "to idle", "aim"];
    print!("{}", text_table(&columns, &rows));
}

/// One for each database.
type Times = [Duration; DATABASES.len()];
type Clients = [Client; DATABASES.len()];

/// All with a thousand tables and the library; one of them with the extension and a stream table on each of them, the
/// others with the relations that such a stream table has, as ordinary ones.
fn fill(cluster: &Cluster, db: &str) -> Client {
    cluster.create_db(db);
    let mut client = cluster.connect(db);
    let with = db == DATABASES[2];
    if with {
        run(&mut client, "CREATE EXTENSION pgtrickle");
    }
    for n in 0..STREAM_TABLES {
        run(&mut client, &format!("CREATE TABLE s{n} (id integer PRIMARY KEY, a integer)"));
        let query = format!("SELECT a, count(*) AS n FROM s{n} GROUP BY a");
        if with {
            create_stream_table(&mut client, &format!("st{n}"), &query);
        } else {
            run(
                &mut client,
                &format!(
                    "CREATE TABLE st{n} AS {query}; CREATE INDEX ON st{n} (hash_record_extended(ROW(a, n), 0));
                     CREATE TABLE changes{n} (xid xid8, epoch integer, w integer, image bytea);
                     CREATE TABLE state{n} (h bigint, image bytea); CREATE INDEX ON state{n} (h)"
                ),
            );
        }
    }
    if db == DATABASES[1] {
        // Any function of C that takes nothing; what it returns is not looked at.
        run(
            &mut client,
            "CREATE FUNCTION idle() RETURNS event_trigger LANGUAGE internal AS 'pg_backend_pid';
             CREATE EVENT TRIGGER idle_end ON ddl_command_end EXECUTE FUNCTION idle();
             CREATE EVENT TRIGGER idle_drop ON sql_drop EXECUTE FUNCTION idle()",
        );
    }
    // What built them keeps plans that nobody else has.
    client = cluster.connect(db);
    run(&mut client, "VACUUM ANALYZE");
    run(&mut client, "LOAD 'pgtrickle'");
    client
}

/// The databases in turns, each first as often as the others.
fn turns(rounds: usize, mut f: impl FnMut(usize, usize)) {
    let n = DATABASES.len();
    for block in 0..rounds.div_ceil(BLOCK) {
        for turn in 0..n {
            for round in 0..BLOCK {
                f((block + turn) % n, round);
            }
        }
    }
}

/// Median of one statement, all of them running in each round.
fn repeated(clients: &mut Clients, measured: usize) -> Times {
    let mut found: [Vec<Duration>; DATABASES.len()] = Default::default();
    turns(ROUNDS / 3, |which, round| {
        for (n, (_, sql, _)) in STATEMENTS.iter().enumerate() {
            let time = timed(&mut clients[which], sql);
            // The first rounds fill caches.
            if n == measured && round >= 2 {
                found[which].push(time);
            }
        }
    });
    found.map(median)
}

fn after(clients: &mut Clients, sql: &str) -> Times {
    let mut found: [Vec<Duration>; DATABASES.len()] = Default::default();
    turns(ROUNDS, |which, round| {
        run(&mut clients[which], sql);
        let time = timed(&mut clients[which], STATEMENTS[0].1);
        if round >= 2 {
            found[which].push(time);
        }
        run(&mut clients[which], "DROP TABLE u");
    });
    found.map(median)
}

fn first(cluster: &Cluster) -> Times {
    let mut found: [Vec<Duration>; DATABASES.len()] = Default::default();
    turns(SESSIONS, |which, _| {
        let mut client = cluster.config(DATABASES[which], "postgres").connect(NoTls).expect("a connection");
        found[which].push(timed(&mut client, STATEMENTS[0].1));
        run(&mut client, "DROP TABLE u");
    });
    found.map(median)
}
