//! What DDL on tables that no stream table reads pays for a thousand stream tables beside it.

use std::time::Duration;

use postgres::{Client, NoTls};

use crate::support::Cluster;
use crate::tpch::{median, ms, ratio, run, text_table, timed, times};
use crate::{create_stream_table, heading};

const STREAM_TABLES: usize = 1000;
const ROUNDS: usize = 300;
const SESSIONS: usize = 60;
const DATABASES: [&str; 2] = ["ddl_without", "ddl_with"];

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
         one with as many tables and without the extension ({ROUNDS} rounds)"
    ));
    let mut clients = DATABASES.map(|db| fill(cluster, db));
    let mut rows = Vec::new();
    let mut row = |title: &str, [without, with]: [Duration; 2], aim: &str| {
        let ratio = times(ratio(with, without));
        rows.push(vec![title.to_string(), ms(without), ms(with), ratio, aim.to_string()]);
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
    print!("{}", text_table(&["", "without", "with", "ratio", "aim"], &rows));
}

/// Both with a thousand tables and the library; one of them with the extension and a stream table on each of them.
fn fill(cluster: &Cluster, db: &str) -> Client {
    cluster.create_db(db);
    let mut client = cluster.connect(db);
    let with = db == DATABASES[1];
    if with {
        run(&mut client, "CREATE EXTENSION pgtrickle");
    }
    for n in 0..STREAM_TABLES {
        run(&mut client, &format!("CREATE TABLE s{n} (id integer PRIMARY KEY, a integer)"));
        let query = format!("SELECT a, count(*) AS n FROM s{n} GROUP BY a");
        if with {
            create_stream_table(&mut client, &format!("st{n}"), &query);
        } else {
            run(&mut client, &format!("CREATE TABLE st{n} AS {query}"));
        }
    }
    // What built them keeps plans that nobody else has.
    client = cluster.connect(db);
    run(&mut client, "VACUUM ANALYZE; LOAD 'pgtrickle'");
    client
}

/// Median of one statement, all of them running in each round.
fn repeated(clients: &mut [Client; 2], measured: usize) -> [Duration; 2] {
    let mut found: [Vec<Duration>; 2] = Default::default();
    for round in 0..ROUNDS / 3 {
        for turn in 0..2 {
            let which = (round + turn) % 2;
            for (n, (_, sql, _)) in STATEMENTS.iter().enumerate() {
                let time = timed(&mut clients[which], sql);
                // The first rounds fill caches.
                if n == measured && round >= 5 {
                    found[which].push(time);
                }
            }
        }
    }
    found.map(median)
}

fn after(clients: &mut [Client; 2], sql: &str) -> [Duration; 2] {
    let mut found: [Vec<Duration>; 2] = Default::default();
    for round in 0..ROUNDS {
        for turn in 0..2 {
            let which = (round + turn) % 2;
            run(&mut clients[which], sql);
            found[which].push(timed(&mut clients[which], STATEMENTS[0].1));
            run(&mut clients[which], "DROP TABLE u");
        }
    }
    found.map(median)
}

fn first(cluster: &Cluster) -> [Duration; 2] {
    let mut found: [Vec<Duration>; 2] = Default::default();
    for session in 0..SESSIONS {
        for turn in 0..2 {
            let which = (session + turn) % 2;
            let mut client =
                cluster.config(DATABASES[which], "postgres").connect(NoTls).expect("a connection");
            found[which].push(timed(&mut client, STATEMENTS[0].1));
            run(&mut client, "DROP TABLE u");
        }
    }
    found.map(median)
}
