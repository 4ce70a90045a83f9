//! What a backend keeps between statements is bounded, and goes with the stream table.

use crate::common::*;
use crate::support::{fresh_db, refresh};
use postgres::Client;

/// Anonymous memory of the session's backend, in kilobytes: PostgreSQL's contexts and our own heap.
fn resident(c: &mut Client) -> i64 {
    let pid: i32 = one(c, "SELECT pg_backend_pid()");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the backend's status");
    let line = status.lines().find(|l| l.starts_with("RssAnon:")).expect("RssAnon");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number of kilobytes")
}

/// What PostgreSQL's caches and contexts hold, in kilobytes, but for kept plans.
fn contexts(c: &mut Client) -> i64 {
    one(
        c,
        &format!(
            "SELECT (sum(total_bytes) / 1024)::bigint FROM pg_backend_memory_contexts WHERE NOT {PLANS}"
        ),
    )
}

/// What kept plans hold, in kilobytes. They are bounded as a whole: how many there are just now depends on what other
/// sessions have made invalid.
fn plans(c: &mut Client) -> i64 {
    one(c, &format!("SELECT (sum(total_bytes) / 1024)::bigint FROM pg_backend_memory_contexts WHERE {PLANS}"))
}

const PLANS: &str = "(name LIKE 'CachedPlan%' OR name = 'SPI Plan')";
/// The bound of kept plans, and the one that is made just now.
const MOST_PLANS: i64 = 34 * 1024;

const QUERY: &str = "SELECT a.grp, count(*) AS n, sum(b.v) AS v, max(a.v) AS hi FROM t a JOIN t2 b ON a.id = b.id GROUP BY a.grp";

#[test]
fn cycles_of_create_refresh_and_drop_leave_nothing() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, &format!("{T}; CREATE TABLE t2 AS SELECT id, v FROM t"));
    let cycles = |c: &mut Client, n: i32| {
        for i in 0..n {
            exec(c, &create_call("s", QUERY, "differential"));
            exec(c, &format!("UPDATE t SET v = v + {i}"));
            refresh(c, "s");
            exec(
                c,
                "UPDATE t2 SET v = v + 1 WHERE id < 4; SELECT pgtrickle.refresh_stream_table('s'); SELECT pgtrickle.drop_stream_table('s')",
            );
        }
    };
    cycles(&mut c, 20);
    let (kept, heap) = (contexts(&mut c), resident(&mut c));
    cycles(&mut c, 45);
    let (kept, heap) = (contexts(&mut c) - kept, resident(&mut c) - heap);
    println!("45 cycles: {kept} kB of contexts, {heap} kB of memory");
    assert!(kept < 4_000, "45 cycles left {kept} kB of memory contexts");
    assert!(heap < 12_000, "45 cycles left {heap} kB");
}

#[test]
fn a_session_that_creates_many_does_not_grow_with_each() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, &format!("{T}; CREATE TABLE t2 AS SELECT id, v FROM t"));
    let mut made = 0;
    let mut forty = |c: &mut Client| {
        for _ in 0..40 {
            made += 1;
            exec(c, &create_call(&format!("s{made}"), QUERY, "differential"));
            exec(c, "UPDATE t SET v = v + 1");
            exec(c, &format!("SELECT pgtrickle.refresh_stream_table('s{made}')"));
        }
    };
    forty(&mut c);
    let (kept, heap) = (contexts(&mut c), resident(&mut c));
    forty(&mut c);
    let (kept, heap) = (contexts(&mut c) - kept, resident(&mut c) - heap);
    println!("40 more stream tables: {kept} kB of contexts, {heap} kB of memory");
    // What PostgreSQL itself keeps of relations that a session has seen: a stream table has some.
    assert!(kept < 8_000, "40 stream tables took {kept} kB of memory contexts");
    forty(&mut c);
    let plans = plans(&mut c);
    assert!(plans < MOST_PLANS, "plans of 120 stream tables take {plans} kB");
}
