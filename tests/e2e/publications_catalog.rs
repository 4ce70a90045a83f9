//! Publications, and whoever replicates or rewrites everything: pgtrickle's own tables are in no publication, nothing of them
//! is sent, and they are written by nobody else.

use std::time::Duration;

use postgres::Client;

use crate::common::*;
use crate::evidence::people;
use crate::support::{Cluster, Options, assert_up_to_date, expect_error, fresh_db, refresh, wait_until};

const PATIENCE: Duration = Duration::from_secs(60);

/// Two databases of one cluster: `pub` publishes, `sub` has the tables of the users, and no extension.
struct Pair {
    cluster: Cluster,
    publisher: Client,
    subscriber: Client,
}

/// The users' tables. On the subscriber that are also the stream table, and one that comes and goes.
const TABLES: &str =
    "CREATE TABLE t (id int PRIMARY KEY, k int, v int); CREATE TABLE later (id int PRIMARY KEY)";
const CONTENTS: &str = "SELECT id, k, v + 1 AS v FROM t WHERE k < 2";

impl Pair {
    fn start() -> Pair {
        let conf = "wal_level = logical\nmax_worker_processes = 20\nlog_min_messages = warning";
        let cluster = Cluster::start(&Options::preloaded().with(conf));
        cluster.create_db("pub");
        cluster.create_db("sub");
        let (mut publisher, mut subscriber) = (cluster.connect("pub"), cluster.connect("sub"));
        exec(&mut publisher, TABLES);
        exec(&mut subscriber, &format!("{TABLES}; CREATE TABLE s (id int, k int, v int)"));
        people(&mut subscriber, "gone");
        Pair { cluster, publisher, subscriber }
    }

    /// A subscription to publication `p`, with the rows that are there.
    fn subscribe(&mut self) {
        exec(&mut self.publisher, "SELECT pg_create_logical_replication_slot('sub', 'pgoutput')");
        let home = self.cluster.home().display();
        exec(
            &mut self.subscriber,
            &format!(
                "CREATE SUBSCRIPTION sub CONNECTION 'host={home} port=5432 user=postgres dbname=pub'
                 PUBLICATION p WITH (create_slot = false)"
            ),
        );
        self.synchronized();
    }

    fn synchronized(&mut self) {
        wait_until("the first copy", PATIENCE, || {
            one(&mut self.subscriber, "SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel")
        });
    }

    /// Both sides have the same rows in a table.
    fn arrived(&mut self, table: &str) {
        let sql = format!("SELECT coalesce(string_agg(r::text, ' ' ORDER BY r::text), '') FROM {table} r");
        let wanted: String = one(&mut self.publisher, &sql);
        wait_until(&format!("the rows of {table}"), PATIENCE, || {
            one::<String>(&mut self.subscriber, &sql) == wanted
        });
    }

    /// Writes of users, refreshes, schema changes with evidence, suspension and its end.
    fn live(&mut self) {
        let p = &mut self.publisher;
        for round in 0..3 {
            exec(
                p,
                &format!(
                    "INSERT INTO t SELECT {round}00 + i, i % 3, i FROM generate_series(1, 20) i;
                     UPDATE t SET v = v + 1 WHERE id % 5 = {round}; DELETE FROM t WHERE id % 7 = {round}"
                ),
            );
            refresh(p, "s");
            refresh(p, "s");
            assert_up_to_date(p, "s");
        }
        exec(p, "SELECT * FROM pgtrickle.capture_baseline()");
        people(p, "gone");
        exec(p, "DROP TABLE gone; ALTER TABLE t ADD COLUMN more int; ALTER TABLE t DROP COLUMN more");
        exec(p, "SELECT pgtrickle.suspend_stream_table('s')");
        exec(p, "SELECT pgtrickle.resume_stream_table('s')");
        refresh(p, "s");
        assert_up_to_date(p, "s");
        exec(p, "SELECT pgtrickle.prune_snapshots(1); INSERT INTO later VALUES (1)");
    }

    /// Everything got there, and nobody had anything to say.
    fn end(mut self) {
        exec(&mut self.subscriber, "ALTER SUBSCRIPTION sub REFRESH PUBLICATION");
        self.synchronized();
        exec(&mut self.publisher, "INSERT INTO t VALUES (-1, 1, 1)");
        refresh(&mut self.publisher, "s");
        for table in ["t", "s", "later"] {
            self.arrived(table);
        }
        let log = self.cluster.log();
        let errors: Vec<&str> = log.lines().filter(|l| l.contains("ERROR")).collect();
        assert!(errors.is_empty(), "{}", errors.join("\n"));
        exec(&mut self.subscriber, "DROP SUBSCRIPTION sub");
    }
}

/// Our tables among the published ones.
fn published(c: &mut Client) -> Vec<String> {
    column(
        c,
        "SELECT DISTINCT schemaname || '.' || tablename FROM pg_publication_tables WHERE schemaname LIKE 'pgtrickle%'",
    )
}

fn stream_table(c: &mut Client) {
    create(c, "s", CONTENTS);
}

#[test]
fn a_subscriber_of_all_tables_sees_nothing_of_a_later_extension() {
    let mut pair = Pair::start();
    exec(&mut pair.publisher, "CREATE PUBLICATION p FOR ALL TABLES; INSERT INTO t VALUES (1000, 1, 1)");
    pair.subscribe();
    exec(&mut pair.publisher, "CREATE EXTENSION pgtrickle");
    stream_table(&mut pair.publisher);
    pair.live();
    assert_eq!(published(&mut pair.publisher), Vec::<String>::new());
    pair.end();
}

#[test]
fn a_later_publication_of_all_tables_has_nothing_of_the_extension() {
    let mut pair = Pair::start();
    exec(&mut pair.publisher, "CREATE EXTENSION pgtrickle; INSERT INTO t VALUES (1000, 1, 1)");
    stream_table(&mut pair.publisher);
    exec(&mut pair.publisher, "CREATE PUBLICATION p FOR ALL TABLES");
    pair.subscribe();
    pair.live();
    assert_eq!(published(&mut pair.publisher), Vec::<String>::new());
    pair.end();
}

#[test]
fn a_publication_of_schemas_has_nothing_of_the_extension() {
    let mut pair = Pair::start();
    exec(
        &mut pair.publisher,
        "CREATE PUBLICATION p FOR TABLES IN SCHEMA public; CREATE EXTENSION pgtrickle;
         CREATE PUBLICATION ours FOR TABLES IN SCHEMA pgtrickle; INSERT INTO t VALUES (1000, 1, 1)",
    );
    stream_table(&mut pair.publisher);
    pair.subscribe();
    pair.live();
    assert_eq!(published(&mut pair.publisher), Vec::<String>::new());
    pair.end();
}

#[test]
fn refreshes_need_no_replica_identity_of_the_users() {
    // Without a subscriber it is PostgreSQL itself that refuses UPDATE and DELETE of what is published without one.
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, TABLES);
    create(&mut c, "before", CONTENTS);
    exec(
        &mut c,
        "CREATE PUBLICATION p FOR ALL TABLES; INSERT INTO t SELECT i, i % 3, i FROM generate_series(1, 20) i",
    );
    create(&mut c, "after", CONTENTS);
    for name in ["before", "after"] {
        refresh(&mut c, name);
        exec(&mut c, "UPDATE t SET v = v + 1; DELETE FROM t WHERE k = 2 AND id < 10");
        refresh(&mut c, name);
        assert_up_to_date(&mut c, name);
        exec(&mut c, &format!("SELECT pgtrickle.suspend_stream_table('{name}')"));
        exec(
            &mut c,
            &format!(
                "SELECT pgtrickle.resume_stream_table('{name}'); SELECT pgtrickle.drop_stream_table('{name}')"
            ),
        );
    }
}

/// Every table of the catalog.
fn own_tables(c: &mut Client) -> Vec<String> {
    let tables = column(
        c,
        "SELECT format('pgtrickle.%I', relname) FROM pg_class
         WHERE relnamespace = 'pgtrickle'::regnamespace AND relkind IN ('r', 'm') AND relname NOT LIKE '%\\_dump' ORDER BY 1",
    );
    assert!(tables.len() >= 7, "{tables:?}");
    tables
}

/// All rows of the catalog. The version of a definition is none of its contents: it counts looks at it.
fn contents(c: &mut Client) -> Vec<String> {
    let count =
        |t: &String| format!("SELECT format('%s: %s', '{t}', to_jsonb(r) - 'version') AS row FROM {t} r");
    let all: Vec<String> = own_tables(c).iter().map(count).collect();
    column(c, &format!("SELECT row FROM ({}) x ORDER BY 1", all.join(" UNION ALL ")))
}

/// The catalog is as it was.
fn same(c: &mut Client, before: &[String]) {
    let after = contents(c);
    let gone: Vec<_> = before.iter().filter(|row| !after.contains(row)).collect();
    let new: Vec<_> = after.iter().filter(|row| !before.contains(row)).collect();
    assert!(after == before, "gone: {gone:#?}\nnew: {new:#?}");
}

/// A database with something in each of the tables.
fn filled() -> (crate::support::TestDb, Client) {
    let db = fresh_db();
    let mut c = db.connect();
    people(&mut c, "p");
    create(&mut c, "s", "SELECT city, count(*) AS n FROM p GROUP BY city");
    exec(&mut c, "DELETE FROM p WHERE id < 10; SELECT * FROM pgtrickle.capture_baseline()");
    refresh(&mut c, "s");
    (db, c)
}

#[test]
fn nobody_writes_the_catalog_by_sql() {
    let (_db, mut c) = filled();
    let before = contents(&mut c);
    for table in own_tables(&mut c) {
        for sql in [
            format!("INSERT INTO {table} SELECT * FROM {table}"),
            format!("DELETE FROM {table}"),
            format!("TRUNCATE {table}"),
            format!("COPY {table} FROM '/dev/null'"),
            format!("SELECT FROM {table} FOR UPDATE"),
        ] {
            assert_eq!(expect_error(&mut c, &sql).sqlstate, "42809", "{sql}");
        }
    }
    assert_eq!(expect_error(&mut c, "UPDATE pgtrickle.pgt_stream_tables SET query = ''").sqlstate, "42809");
    same(&mut c, &before);
}

#[test]
fn rewriting_all_materialized_views_takes_nothing_away() {
    let (_db, mut c) = filled();
    let before = contents(&mut c);
    for table in own_tables(&mut c) {
        exec(&mut c, &format!("REFRESH MATERIALIZED VIEW {table}"));
        same(&mut c, &before);
        exec(&mut c, &format!("VACUUM (FULL, ANALYZE) {table}"));
    }
    exec(&mut c, "REFRESH MATERIALIZED VIEW CONCURRENTLY pgtrickle.pgt_stream_tables");
    same(&mut c, &before);
    exec(&mut c, "REINDEX SCHEMA pgtrickle");
    exec(&mut c, "INSERT INTO p (id, city) VALUES (-1, 'x')");
    refresh(&mut c, "s");
    exec(&mut c, "ALTER TABLE p DROP COLUMN city");
    assert_suspended(&mut c, "s", "COLUMN_DROPPED");
}

#[test]
fn its_own_functions_are_no_way_in() {
    let (db, mut c) = filled();
    let user = db.create_role("nobody");
    let mut u = db.connect_as(&user);
    for sql in [
        "SELECT * FROM pgtrickle_internal.own_rows('pgtrickle', 'pgt_hash_keys') AS r (key text, created_at timestamptz)",
        "INSERT INTO pgtrickle.pgt_hash_keys_dump VALUES ('x', now())",
        "REFRESH MATERIALIZED VIEW pgtrickle.pgt_stream_tables",
    ] {
        assert_eq!(expect_error(&mut u, sql).sqlstate, "42501", "{sql}");
    }
    exec(&mut c, "CREATE TABLE pgt_hash_keys_dump (key text, created_at timestamptz)");
    exec(
        &mut c,
        "CREATE TRIGGER r BEFORE INSERT ON pgt_hash_keys_dump FOR EACH ROW EXECUTE FUNCTION pgtrickle._restore()",
    );
    let e = expect_error(&mut c, "INSERT INTO pgt_hash_keys_dump VALUES ('x', now())");
    assert!(e.detail.contains("PROTECTED_OBJECT"), "{e:?}");
    // Rows of another form than the table's are refused, not read.
    let e = expect_error(
        &mut c,
        "SELECT * FROM pgtrickle_internal.own_rows('pgtrickle', 'pgt_hash_keys') AS r (key bigint, created_at text)",
    );
    assert!(e.detail.contains("PROTECTED_OBJECT"), "{e:?}");
}

#[test]
fn the_catalog_survives_a_crash() {
    let cluster = Cluster::start(&Options::default());
    let mut c = cluster.connect("postgres");
    exec(&mut c, "CREATE EXTENSION pgtrickle");
    people(&mut c, "p");
    create(&mut c, "s", "SELECT city, count(*) AS n FROM p GROUP BY city");
    exec(&mut c, "CHECKPOINT; SELECT * FROM pgtrickle.capture_baseline(); DELETE FROM p WHERE id < 10");
    refresh(&mut c, "s");
    let before = contents(&mut c);
    let mut open = cluster.connect("postgres");
    exec(&mut open, "BEGIN; SELECT pgtrickle.suspend_stream_table('s'); DROP TABLE IF EXISTS nothing");
    cluster.kill9_postmaster();
    drop((c, open));
    cluster.start_again();
    let mut c = cluster.connect("postgres");
    same(&mut c, &before);
    exec(&mut c, "DELETE FROM p WHERE id < 20");
    refresh(&mut c, "s");
    assert_up_to_date(&mut c, "s");
    exec(&mut c, "DROP TABLE p CASCADE");
}

#[test]
fn a_row_that_somebody_is_changing_is_not_waited_for() {
    let (db, mut c) = filled();
    let mut other = db.connect();
    exec(&mut other, "BEGIN; SELECT pgtrickle.suspend_stream_table('s')");
    // The object lock of the stream table, or the row itself: told at once, or waited for until the other one is done.
    exec(&mut c, "SET lock_timeout = '1s'");
    let e = expect_error(&mut c, "SELECT pgtrickle.refresh_stream_table('s')");
    assert_eq!(e.sqlstate, "55P03", "{e:?}");
    exec(&mut other, "ROLLBACK");
    refresh(&mut c, "s");
    assert_up_to_date(&mut c, "s");
}
