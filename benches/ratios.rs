//! `make bench`: what pgtrickle saves and what it costs, as ratios of medians. Everything that is compared runs in
//! one process, one after the other and many times over, because a machine is never equally busy for long.

mod ddl;
mod evidence;
mod hot;
#[path = "../tests/support/mod.rs"]
mod support;
mod tpch;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use postgres::Client;
use support::{Cluster, Options, assert_up_to_date};
use tpch::{
    Change, INDEXES, STREAM_TABLES, change, median, ms, ratio, run, seconds, text_table, timed,
    timed_refresh, times,
};

type Part = fn(&Cluster);

fn main() {
    let begin = Instant::now();
    let cluster = Cluster::start(
        &Options::preloaded()
            .with("shared_buffers = 256MB")
            .with("max_wal_size = 4GB")
            // A checkpoint in the middle of one of two things that are compared would be unfair.
            .with("checkpoint_timeout = 1h")
            .with("autovacuum = off"),
    );
    println!("{}", machine(&cluster));
    println!("fsync off, autovacuum off. Times are medians as the client sees them over a unix socket.");
    // `cargo bench --bench ratios -- writes` runs that part alone.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let parts: [(&str, Part); 5] = [
        ("refreshes", refreshes),
        ("writes", writes),
        ("ddl", ddl::unrelated),
        ("evidence", evidence::evidence),
        ("hot", hot::hot),
    ];
    for (name, part) in parts {
        if wanted.is_empty() || wanted.iter().any(|arg| arg == name) {
            part(&cluster);
        }
    }
    println!("\nall of it took {}", seconds(begin.elapsed()));
}

fn machine(cluster: &Cluster) -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let of = |key: &'static str| cpuinfo.lines().filter(move |line| line.starts_with(key));
    let model =
        of("model name").next().and_then(|line| line.split(": ").nth(1)).unwrap_or("unknown processor");
    let version: String =
        cluster.connect("postgres").query_one("SHOW server_version", &[]).expect("SHOW").get(0);
    format!("PostgreSQL {version} on {} x {model}", of("processor").count())
}

fn heading(text: &str) {
    println!("\n{text}\n");
}

fn create_stream_table(client: &mut Client, name: &str, query: &str) {
    client
        .execute(
            "SELECT pgtrickle.create_stream_table($1::text, $2::text, schedule => NULL)",
            &[&name, &query],
        )
        .unwrap_or_else(|e| panic!("create_stream_table {name}: {}", support::describe(&e)));
}

// ---------------------------------------------------------------------------------------------------------------
// Refresh
// ---------------------------------------------------------------------------------------------------------------

fn refreshes(cluster: &Cluster) {
    const ROUNDS: u32 = 7;
    cluster.create_db("tpch");
    let mut client = cluster.connect("tpch");
    tpch::load(&mut client, |_, _| {});
    run(&mut client, "CREATE EXTENSION pgtrickle");
    for defined in &STREAM_TABLES {
        create_stream_table(&mut client, defined.name, defined.query);
        run(&mut client, &format!("CREATE MATERIALIZED VIEW mv_{} AS {}", defined.name, defined.query));
    }
    run(&mut client, INDEXES);
    run(&mut client, "VACUUM ANALYZE");

    let mut round = 0;
    for (title, one_in, aim) in [("0.1 %", 1000, "10x or more"), ("1 %", 100, "")] {
        heading(&format!(
            "Refresh after {title} of orders and lineitem was inserted, deleted and updated, against REFRESH \
             MATERIALIZED VIEW ({ROUNDS} rounds)"
        ));
        let mut times_of: BTreeMap<&str, (Vec<Duration>, Vec<Duration>, String)> = BTreeMap::new();
        for _ in 0..ROUNDS {
            round += 1;
            change(&mut client, Change::Mixed, one_in, round);
            for defined in &STREAM_TABLES {
                let (action, differential) = timed_refresh(&mut client, defined.name);
                let full = timed(&mut client, &format!("REFRESH MATERIALIZED VIEW mv_{}", defined.name));
                let entry = times_of.entry(defined.name).or_default();
                entry.0.push(differential);
                entry.1.push(full);
                entry.2 = action;
            }
        }
        let mut rows = Vec::new();
        for defined in &STREAM_TABLES {
            assert_up_to_date(&mut client, defined.name);
            let (differential, full, action) = times_of.remove(defined.name).expect("measured above");
            let (differential, full) = (median(differential), median(full));
            rows.push(vec![
                defined.name.to_string(),
                action,
                ms(differential),
                ms(full),
                times(ratio(full, differential)),
                aim.to_string(),
            ]);
        }
        let header = ["stream table", "action", "refresh", "materialized view", "faster", "aim"];
        print!("{}", text_table(&header, &rows));
    }

    heading("Refresh with nothing to do (200 rounds, or three seconds)");
    let mut rows = Vec::new();
    let trip = median((0..200).map(|_| timed(&mut client, "SELECT 1")).collect());
    for defined in &STREAM_TABLES {
        let statement = client
            .prepare("SELECT action FROM pgtrickle.refresh_stream_table($1::text::regclass)")
            .expect("PREPARE");
        let mut idle = Vec::new();
        let mut action = String::new();
        let first = Instant::now();
        while idle.len() < 200 && first.elapsed() < Duration::from_secs(3) {
            let begin = Instant::now();
            action = client.query_one(&statement, &[&defined.name]).expect("refresh").get(0);
            idle.push(begin.elapsed());
        }
        rows.push(vec![defined.name.to_string(), action, ms(median(idle)), "under 1 ms".to_string()]);
    }
    rows.push(vec!["(SELECT 1)".to_string(), String::new(), ms(trip), String::new()]);
    print!("{}", text_table(&["stream table", "action", "time", "aim"], &rows));
}

// ---------------------------------------------------------------------------------------------------------------
// Writes
// ---------------------------------------------------------------------------------------------------------------

/// The obvious alternative to capture in Rust: statement triggers in PL/pgSQL that copy the transition tables, with
/// the same rows as result: a weight, the writer's transaction and the columns in use.
const PLPGSQL_CAPTURE: &str = "
CREATE TABLE w_plpgsql_buffer (xid xid8, weight smallint, customer integer, amount numeric);
CREATE FUNCTION w_capture_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO w_plpgsql_buffer SELECT pg_current_xact_id(), 1, customer, amount FROM new_rows;
    RETURN NULL;
END $$;
CREATE FUNCTION w_capture_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO w_plpgsql_buffer SELECT pg_current_xact_id(), -1, customer, amount FROM old_rows
        UNION ALL SELECT pg_current_xact_id(), 1, customer, amount FROM new_rows;
    RETURN NULL;
END $$;
CREATE FUNCTION w_capture_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO w_plpgsql_buffer SELECT pg_current_xact_id(), -1, customer, amount FROM old_rows;
    RETURN NULL;
END $$;
CREATE TRIGGER i AFTER INSERT ON w_plpgsql REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION w_capture_insert();
CREATE TRIGGER u AFTER UPDATE ON w_plpgsql REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION w_capture_update();
CREATE TRIGGER d AFTER DELETE ON w_plpgsql REFERENCING OLD TABLE AS old_rows
    FOR EACH STATEMENT EXECUTE FUNCTION w_capture_delete();
";

fn writes(cluster: &Cluster) {
    const ROUNDS: usize = 15;
    const TABLES: [&str; 3] = ["w_plain", "w_pgtrickle", "w_plpgsql"];
    const BASE: u32 = 100_000;
    heading(&format!(
        "Writes to a table with a primary key and five columns, two of them in use by one stream table ({ROUNDS} \
         rounds)"
    ));
    cluster.create_db("writes");
    let mut client = cluster.connect("writes");
    run(&mut client, "CREATE EXTENSION pgtrickle");
    for table in TABLES {
        run(
            &mut client,
            &format!(
                "CREATE TABLE {table} (id integer PRIMARY KEY, customer integer NOT NULL, amount numeric(12,2) NOT NULL,
                     placed date NOT NULL, note text);
                 INSERT INTO {table} SELECT i, i % 1000, i, date '2026-01-01' + i % 365, 'note ' || i
                     FROM generate_series(1, {BASE}) i"
            ),
        );
    }
    create_stream_table(
        &mut client,
        "w_totals",
        "SELECT customer, count(*) AS n, sum(amount) AS total FROM w_pgtrickle GROUP BY customer",
    );
    run(&mut client, PLPGSQL_CAPTURE);
    run(&mut client, "VACUUM ANALYZE");

    let first = BASE + 1;
    let last = BASE + 10_000;
    let operations: [(&str, &str, String); 5] = [
        (
            "1,000 single-row INSERTs in a server-side loop",
            "1.35x or less",
            format!(
                "DO $$ BEGIN FOR i IN {} .. {} LOOP
                     INSERT INTO TABLE_NAME VALUES (i, i % 1000, i, date '2026-01-01' + i % 365, 'note ' || i);
                 END LOOP; END $$",
                last + 1,
                last + 1000
            ),
        ),
        (
            "INSERT of 10,000 rows",
            "1.6x or less",
            format!(
                "INSERT INTO TABLE_NAME SELECT i, i % 1000, i, date '2026-01-01' + i % 365, 'note ' || i
                 FROM generate_series({first}, {last}) i"
            ),
        ),
        (
            "UPDATE of 10,000 rows",
            "1.6x or less",
            format!("UPDATE TABLE_NAME SET amount = amount + 1 WHERE id BETWEEN {first} AND {last}"),
        ),
        (
            "UPDATE of 10,000 rows, of a column that is not in use",
            "",
            format!("UPDATE TABLE_NAME SET note = note || '.' WHERE id BETWEEN {first} AND {last}"),
        ),
        (
            "DELETE of 10,000 rows",
            "3.6x or less",
            format!("DELETE FROM TABLE_NAME WHERE id BETWEEN {first} AND {last}"),
        ),
    ];
    let mut measured: BTreeMap<(usize, &str), Vec<Duration>> = BTreeMap::new();
    for round in 0..=ROUNDS {
        for (n, (_, _, sql)) in operations.iter().enumerate() {
            // Each goes first as often as the others.
            for turn in 0..TABLES.len() {
                let table = TABLES[(round + turn) % TABLES.len()];
                let time = timed(&mut client, &sql.replace("TABLE_NAME", table));
                if round > 0 {
                    measured.entry((n, table)).or_default().push(time);
                }
            }
        }
        // Back to where the round began, with empty buffers and without dead rows.
        for table in TABLES {
            run(&mut client, &format!("DELETE FROM {table} WHERE id > {BASE}"));
        }
        timed_refresh(&mut client, "w_totals");
        run(&mut client, "TRUNCATE w_plpgsql_buffer");
        run(&mut client, "VACUUM");
    }
    assert_up_to_date(&mut client, "w_totals");
    let mut rows = Vec::new();
    for (n, (title, aim, _)) in operations.iter().enumerate() {
        let [plain, rust, plpgsql] =
            TABLES.map(|table| median(measured.remove(&(n, table)).expect("measured above")));
        rows.push(vec![
            (*title).to_string(),
            ms(plain),
            ms(rust),
            times(ratio(rust, plain)),
            (*aim).to_string(),
            times(ratio(plpgsql, plain)),
        ]);
    }
    let header = ["", "without", "pgtrickle", "ratio", "aim", "PL/pgSQL triggers"];
    print!("{}", text_table(&header, &rows));
}

// ---------------------------------------------------------------------------------------------------------------
// Unrelated DDL
// ---------------------------------------------------------------------------------------------------------------
