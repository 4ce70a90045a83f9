//! What has to hold when all sessions have ended.

use std::collections::BTreeMap;
use std::time::Duration;

use postgres::Client;

use crate::Soak;
use crate::support::{self, describe, wait_until};
use crate::world::STREAM_TABLES;

/// How long the workers may take to finish what is due.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a worker's private memory may grow by between two looks, in KiB: more than noise, less than a leak of an hour.
const GROWTH: u64 = 8 * 1024;

/// Private memory of the processes that refresh, by pid, in KiB.
pub fn memory_of_workers(soak: &Soak) -> BTreeMap<i32, u64> {
    let mut c = soak.cluster.connect("postgres");
    let rows = c
        .query("SELECT pid FROM pg_stat_activity WHERE backend_type = 'pgtrickle worker'", &[])
        .expect("pg_stat_activity");
    rows.iter()
        .filter_map(|row| {
            let pid: i32 = row.get(0);
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:"))?;
            Some((pid, line.trim().trim_end_matches(" kB").parse().ok()?))
        })
        .collect()
}

/// Workers that are still there and have grown.
pub fn grown(before: &BTreeMap<i32, u64>, after: &BTreeMap<i32, u64>) -> Vec<String> {
    before
        .iter()
        .filter_map(|(pid, old)| {
            let new = after.get(pid)?;
            (*new > old + GROWTH).then(|| format!("a worker's memory grew from {old} to {new} KiB"))
        })
        .collect()
}

/// All faults.
pub fn check(soak: &Soak) -> Vec<String> {
    let mut c = soak.cluster.connect("postgres");
    let mut faults = Vec::new();
    finish_prepared(&mut c);
    wait_until("the tasks are done", PATIENCE, || count(&mut c, TASKS) == 0);
    for (name, _, _) in STREAM_TABLES {
        if let Err(fault) = check_one(&mut c, name) {
            faults.push(fault);
        }
    }
    let lives = c
        .query(
            "SELECT stream_table::text FROM pgtrickle.stream_tables WHERE stream_table::text LIKE 'life%'",
            &[],
        )
        .expect("stream_tables");
    for row in lives {
        if let Err(fault) = check_one(&mut c, row.get(0)) {
            faults.push(fault);
        }
    }
    for (what, sql) in LEFTOVERS {
        let n = count(&mut c, sql);
        if n != 0 {
            faults.push(format!("{n} {what} left"));
        }
    }
    let log = soak.cluster.log();
    for bad in ["panicked at", "was terminated by signal", "TRAP:", "WARNING:  snapshot reference leak"] {
        if log.contains(bad) {
            faults.push(format!("the server's log has {bad:?}"));
            let lines = log.lines().filter(|l| ["FATAL", "PANIC", bad].iter().any(|w| l.contains(w)));
            faults.extend(lines.take(5).map(str::to_string));
        }
    }
    faults
}

const TASKS: &str = "SELECT count(*) FROM pgtrickle.pgt_tasks";

/// What nobody may leave behind.
const LEFTOVERS: [(&str, &str); 4] = [
    ("tasks", TASKS),
    ("advisory locks", "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"),
    (
        "side tables of nothing",
        "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'pgtrickle_internal'
         WHERE c.relkind IN ('r', 'm') AND NOT EXISTS (SELECT FROM pgtrickle.pgt_dependencies d
           WHERE c.relname = 'changes_' || d.object) AND NOT EXISTS (SELECT FROM pgtrickle.pgt_stream_tables s
           WHERE c.relname LIKE 'state\\_' || s.relid || '\\_%')",
    ),
    (
        "capture triggers of nothing",
        "SELECT count(*) FROM pg_trigger t WHERE t.tgname LIKE 'pgtrickle\\_capture\\_%' AND NOT EXISTS (
           SELECT FROM pgtrickle.pgt_dependencies d
           WHERE t.tgname IN ('pgtrickle_capture_' || d.object, 'pgtrickle_capture_truncate_' || d.object))",
    ),
];

fn count(c: &mut Client, sql: &str) -> i64 {
    c.query_one(sql, &[]).unwrap_or_else(|e| panic!("{sql}\n{}", describe(&e))).get(0)
}

fn finish_prepared(c: &mut Client) {
    for row in c.query("SELECT gid FROM pg_prepared_xacts", &[]).expect("pg_prepared_xacts") {
        let gid: String = row.get(0);
        c.batch_execute(&format!("ROLLBACK PREPARED '{gid}'")).expect("ROLLBACK PREPARED");
    }
}

/// Suspensions that the soak causes, by stream table.
const CAUSED: [(&str, &[&str]); 4] = [
    ("notes", &["COLUMN_DROPPED"]),
    ("life", &["MANUAL"]),
    // A label was added to the enum that they group by.
    ("by_kind", &["UNCLASSIFIED"]),
    ("kinds", &["UNCLASSIFIED"]),
];

/// Equal to its query after a refresh, or suspended for something that the soak did to it.
fn check_one(c: &mut Client, name: &str) -> Result<(), String> {
    let row = c
        .query_one(
            "SELECT status, coalesce(reason, ''), coalesce(detail, '') FROM pgtrickle.stream_tables WHERE stream_table = $1::text::regclass",
            &[&name],
        )
        .map_err(|e| format!("{name}: {}", describe(&e)))?;
    let (status, reason, detail): (String, String, String) = (row.get(0), row.get(1), row.get(2));
    if status == "suspended" {
        let caused = CAUSED
            .iter()
            .any(|(table, reasons)| name.starts_with(table) && reasons.contains(&reason.as_str()));
        return if caused { Ok(()) } else { Err(format!("{name} is suspended: {reason}: {detail}")) };
    }
    let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| support::refresh(c, name)));
    checked.map(|_| ()).map_err(|_| format!("{name} can't be refreshed or is not equal to its query"))
}
