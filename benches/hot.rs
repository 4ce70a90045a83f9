//! Rows that are updated all the time: pgbench with stream tables over its tellers and branches. What the writers lose, and
//! how old the stream tables get.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::heading;
use crate::support::Cluster;
use crate::tpch::{run, text_table, times};

/// How long pgbench runs, without and with stream tables.
const SECONDS: u32 = 60;
/// Branches: ten tellers each, so that every transaction updates one of few rows.
const SCALE: u32 = 5;

/// Stream tables at a schedule of one second.
const STREAM_TABLES: [(&str, &str); 3] = [
    (
        "teller_rows",
        "SELECT t.tid, t.tbalance, b.bid, b.bbalance FROM pgbench_tellers t JOIN pgbench_branches b ON b.bid = t.bid",
    ),
    (
        "branch_sums",
        "SELECT b.bid, sum(t.tbalance) AS tellers, max(b.bbalance) AS branch FROM pgbench_branches b
         JOIN pgbench_tellers t ON t.bid = b.bid GROUP BY b.bid",
    ),
    ("history_sums", "SELECT tid, count(*) AS n, sum(delta) AS total FROM pgbench_history GROUP BY tid"),
];

/// All of it.
pub fn hot(cluster: &Cluster) {
    heading(&format!(
        "pgbench for {SECONDS} s with 2 clients over {SCALE} branches, without stream tables and with {} at a schedule of one second",
        STREAM_TABLES.len()
    ));
    let mut rows = Vec::new();
    let without = throughput(cluster, "hot_without", false);
    let with = throughput(cluster, "hot_with", true);
    rows.push(vec![
        "transactions a second".to_string(),
        format!("{:.0}", without.tps),
        format!("{:.0}", with.tps),
        times(with.tps / without.tps),
        "0.7x or more".to_string(),
    ]);
    rows.push(vec![
        "greatest staleness".to_string(),
        String::new(),
        format!("{:.1} s", with.stalest.as_secs_f64()),
        String::new(),
        "3 s or less".to_string(),
    ]);
    print!("{}", text_table(&["", "without", "with", "ratio", "aim"], &rows));
}

struct Measured {
    tps: f64,
    stalest: Duration,
}

fn throughput(cluster: &Cluster, db: &str, with: bool) -> Measured {
    cluster.create_db(db);
    let mut client = cluster.connect(db);
    let scale = SCALE.to_string();
    let filled =
        cluster.command("pgbench").args(["-q", "-i", "-s", &scale, db]).output().expect("pgbench -i");
    assert!(filled.status.success(), "{}", String::from_utf8_lossy(&filled.stderr));
    if with {
        run(&mut client, "CREATE EXTENSION pgtrickle");
        for (name, query) in STREAM_TABLES {
            run(
                &mut client,
                &format!("SELECT pgtrickle.create_stream_table('{name}', $${query}$$, '1 second')"),
            );
        }
    }
    // autovacuum is off for the other parts; here versions of hot rows pile up, as in life they don't.
    configure(&mut client, ["SET autovacuum = on", "SET autovacuum_naptime = '5s'"]);
    let pgbench = cluster
        .command("pgbench")
        .args(["-n", "-c", "2", "-j", "1", "-M", "prepared", "-T", &SECONDS.to_string(), db])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("pgbench");
    let stalest = if with { watch(&mut client) } else { Duration::ZERO };
    let output = pgbench.wait_with_output().expect("pgbench's output");
    let text = String::from_utf8_lossy(&output.stdout);
    let tps = text
        .lines()
        .find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok())
        .unwrap_or_else(|| panic!("pgbench tells no tps: {text}"));
    configure(&mut client, ["RESET autovacuum", "RESET autovacuum_naptime"]);
    if with {
        for (name, _) in STREAM_TABLES {
            crate::tpch::timed_refresh(&mut client, name);
            crate::support::assert_up_to_date(&mut client, name);
        }
    }
    Measured { tps, stalest }
}

fn configure(client: &mut postgres::Client, settings: [&str; 2]) {
    for setting in settings {
        run(client, &format!("ALTER SYSTEM {setting}"));
    }
    run(client, "SELECT pg_reload_conf()");
}

/// The greatest age of any stream table while pgbench runs, by the time of its last refresh: without looking into buffers,
/// which would be a load of its own.
fn watch(client: &mut postgres::Client) -> Duration {
    let begin = Instant::now();
    let mut stalest = Duration::ZERO;
    while begin.elapsed() < Duration::from_secs(u64::from(SECONDS)) {
        std::thread::sleep(Duration::from_millis(200));
        let age: f64 = client
            .query_one(
                "SELECT max(extract(epoch FROM clock_timestamp() - last_refresh))::float8 FROM pgtrickle.stream_tables",
                &[],
            )
            .expect("stream_tables")
            .get(0);
        stalest = stalest.max(Duration::from_secs_f64(age.max(0.0)));
    }
    stalest
}
