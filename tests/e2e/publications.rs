//! Publications of all tables and of schemas: buffers and state are in none of them, and hold up nobody.

use crate::common::*;
use crate::support::{Cluster, Options, refresh, wait_until};
use postgres::Client;

const TABLES: &str = "CREATE TABLE t (id int PRIMARY KEY, grp int, v int)";

fn published_internals(c: &mut Client) -> i64 {
    one(c, "SELECT count(*) FROM pg_publication_tables WHERE schemaname = 'pgtrickle_internal'")
}

/// Creates, writes, and refreshes each way.
fn work(c: &mut Client, from: i32) {
    exec(c, &format!("INSERT INTO t SELECT i, i % 3, i FROM generate_series({from}, {}) i", from + 9));
    for s in ["p", "g"] {
        differential(c, s);
    }
    exec(c, &format!("UPDATE t SET v = v + 1 WHERE id >= {from}; DELETE FROM t WHERE id = {from}"));
    for s in ["p", "g"] {
        differential(c, s);
        exec(c, &format!("SELECT pgtrickle.refresh_stream_table('{s}', 'full')"));
    }
    exec(c, "TRUNCATE t; INSERT INTO t VALUES (1, 1, 1)");
    for s in ["p", "g"] {
        refresh(c, s);
    }
    exec(c, "DELETE FROM t");
    for s in ["p", "g"] {
        differential(c, s);
    }
}

fn create_both(c: &mut Client) {
    create(c, "p", "SELECT id, v FROM t");
    create(c, "g", "SELECT grp, count(*) AS n, max(v) AS hi FROM t GROUP BY grp");
}

#[test]
fn buffers_and_state_are_in_no_publication() {
    let cluster = Cluster::start(&Options::default().with("wal_level = logical"));
    for (db, before) in [("early", true), ("late", false)] {
        cluster.create_db(db);
        let mut c = cluster.connect(db);
        let publish = "CREATE PUBLICATION everything FOR ALL TABLES; CREATE PUBLICATION schemas FOR TABLES IN SCHEMA public";
        exec(&mut c, TABLES);
        if before {
            exec(&mut c, publish);
        }
        exec(&mut c, "CREATE EXTENSION pgtrickle");
        create_both(&mut c);
        if !before {
            exec(&mut c, publish);
        }
        // In the schema itself there is nothing to publish either.
        exec(&mut c, "CREATE PUBLICATION ours FOR TABLES IN SCHEMA pgtrickle_internal");
        assert_eq!(published_internals(&mut c), 0, "{db}");
        work(&mut c, 1);
        create(&mut c, "again", "SELECT v, count(*) AS n FROM t GROUP BY v");
        exec(&mut c, "SELECT pgtrickle.drop_stream_table('again')");
        work(&mut c, 100);
        assert_eq!(published_internals(&mut c), 0, "{db}");
    }
}

#[test]
fn a_live_subscriber_gets_tables_and_stream_tables_alone() {
    let publisher = Cluster::start(&Options::default().with("wal_level = logical"));
    let subscriber = Cluster::start(&Options::default());
    let mut c = publisher.connect("postgres");
    exec(
        &mut c,
        &format!(
            "{TABLES}; CREATE EXTENSION pgtrickle; CREATE PUBLICATION all_of_it FOR TABLES IN SCHEMA public, pgtrickle_internal"
        ),
    );
    create_both(&mut c);
    let mut s = subscriber.connect("postgres");
    exec(
        &mut s,
        &format!("{TABLES}; CREATE TABLE p (id int, v int); CREATE TABLE g (grp int, n bigint, hi int)"),
    );
    exec(
        &mut s,
        &format!(
            "CREATE SUBSCRIPTION sub CONNECTION 'host={} port=5432 dbname=postgres user=postgres' PUBLICATION all_of_it",
            publisher.home().display()
        ),
    );
    work(&mut c, 1);
    exec(
        &mut c,
        "INSERT INTO t SELECT i, i % 3, i FROM generate_series(1, 50) i; UPDATE t SET v = v + 1 WHERE id < 9",
    );
    for table in ["p", "g"] {
        differential(&mut c, table);
    }
    for table in ["t", "p", "g"] {
        let sql = format!("SELECT coalesce(string_agg(x::text, ' ' ORDER BY x::text), '') FROM {table} x");
        let wanted: String = one(&mut c, &sql);
        wait_until(&format!("{table} at the subscriber"), PATIENCE, || one::<String>(&mut s, &sql) == wanted);
    }
    let errors: i64 = one(
        &mut s,
        "SELECT coalesce(sum(apply_error_count + sync_error_count), 0)::bigint FROM pg_stat_subscription_stats",
    );
    assert_eq!(errors, 0, "{}", subscriber.log());
    exec(&mut s, "DROP SUBSCRIPTION sub");
}
