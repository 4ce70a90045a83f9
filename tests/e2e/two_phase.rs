//! Migrations in prepared transactions, and alerts that go out although.

use crate::common::*;
use crate::support::{self, Cluster, Options};
use postgres::Client;
use postgres::fallible_iterator::FallibleIterator;

const CONF: &str = "max_prepared_transactions = 5";

fn heard(listener: &mut Client) -> Vec<String> {
    let _: i32 = one(listener, "SELECT 1");
    let mut notifications = listener.notifications();
    let mut found = Vec::new();
    let mut it = notifications.iter();
    while let Ok(Some(n)) = it.next() {
        found.push(n.payload().to_string());
    }
    found
}

fn suspend_in_two_phases(cluster: &Cluster) {
    let mut c = cluster.connect("postgres");
    exec(&mut c, &format!("CREATE EXTENSION pgtrickle; {T}; CREATE TABLE u (id int)"));
    create(&mut c, "s", "SELECT id, v FROM t");
    create(&mut c, "s2", "SELECT id FROM u");
    let mut listener = cluster.connect("postgres");
    exec(&mut listener, "LISTEN pg_trickle_alert");
    for migration in
        ["ALTER TABLE t DROP COLUMN v", "DROP TABLE u", "SELECT pgtrickle.suspend_stream_table('s3')"]
    {
        if migration.contains("s3") {
            create(&mut c, "s3", "SELECT id FROM t");
        }
        exec(&mut c, &format!("BEGIN; {migration}; PREPARE TRANSACTION 'migration'"));
        assert_eq!(heard(&mut listener), [] as [String; 0], "not before it is committed: {migration}");
        exec(&mut c, "COMMIT PREPARED 'migration'");
        let mut alerts = Vec::new();
        support::wait_until("the alert comes", PATIENCE, || {
            // Where no worker runs, the next committed call of anybody sends it.
            exec(&mut c, &format!("{}; DROP TABLE probe", create_call("probe", "SELECT 1 AS x", "full")));
            alerts.extend(heard(&mut listener));
            !alerts.is_empty()
        });
        assert_eq!(alerts.len(), 1, "{alerts:?}");
        assert!(alerts[0].contains("\"event\":\"suspended\""), "{alerts:?}");
    }
    assert_suspended(&mut c, "s", "COLUMN_DROPPED");
    assert_suspended(&mut c, "s2", "SOURCE_DROPPED");
    // One that is rolled back tells nobody.
    create(&mut c, "s4", "SELECT id FROM t");
    exec(&mut c, "BEGIN; DROP TABLE t; PREPARE TRANSACTION 'migration'");
    exec(&mut c, "ROLLBACK PREPARED 'migration'");
    exec(&mut c, "SELECT pgtrickle.suspend_stream_table('s4')");
    let mut alerts = Vec::new();
    support::wait_until("the alert comes", PATIENCE, || {
        alerts.extend(heard(&mut listener));
        !alerts.is_empty()
    });
    assert!(alerts.iter().all(|a| a.contains("MANUAL")), "{alerts:?}");
}

#[test]
fn a_migration_that_suspends_can_be_prepared() {
    suspend_in_two_phases(&Cluster::start(&Options::default().with(CONF)));
}

#[test]
fn a_migration_that_suspends_can_be_prepared_where_a_worker_runs() {
    suspend_in_two_phases(&Cluster::start(
        &Options::preloaded().with(CONF).with("pg_trickle.naptime = '100ms'"),
    ));
}

#[test]
fn a_prepared_drop_of_a_stream_table_holds_up_no_writer_of_its_source() {
    let cluster = Cluster::start(&Options::default().with(CONF));
    let (mut c, mut w) = (cluster.connect("postgres"), cluster.connect("postgres"));
    exec(&mut c, &format!("CREATE EXTENSION pgtrickle; {T}"));
    create(&mut c, "s", "SELECT id, v FROM t");
    exec(&mut c, "BEGIN; DROP TABLE s; PREPARE TRANSACTION 'drop'");
    exec(&mut w, "SET lock_timeout = '20s'; INSERT INTO t VALUES (100, 1, 1)");
    exec(&mut c, "COMMIT PREPARED 'drop'");
    exec(&mut w, "INSERT INTO t VALUES (101, 1, 1)");
    create(&mut c, "s", "SELECT id FROM t");
    exec(&mut c, "DROP TABLE s");
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'pgtrickle%'"), 0);
}
