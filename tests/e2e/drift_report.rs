//! `drift_report` and `schema_drift`: how often what happened, and what exonerates it.

use crate::common::*;
use crate::drift::*;
use crate::support::fresh_db;
use postgres::Client;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn an_empty_database() {
    let db = fresh_db();
    let mut c = db.connect();
    assert!(report(&mut c, "").is_empty() && verdicts(&mut c, "true").is_empty());
    // One snapshot of each table: nothing to compare.
    exec(&mut c, "CREATE TABLE a (x int); CREATE TABLE b (x int)");
    baseline(&mut c);
    assert!(report(&mut c, "").is_empty() && verdicts(&mut c, "true").is_empty());
    let e = assert_refused(&mut c, "SELECT * FROM pgtrickle.drift_report(NULL)", &["22004", "22023"]);
    assert!(e.message.contains("since"), "{e:?}");
}

#[test]
fn the_classes() {
    let db = fresh_db();
    let mut c = db.connect();
    for t in ["same", "more", "named", "less", "again", "other", "swap", "swap_new"] {
        exec(&mut c, &format!("CREATE TABLE {t} (a int, b int)"));
    }
    exec(&mut c, "ALTER TABLE swap_new ADD c int");
    baseline(&mut c);
    exec(
        &mut c,
        "ALTER TABLE more ADD c int; ALTER TABLE named RENAME a TO x; ALTER TABLE less DROP b, ADD c int, ALTER a SET NOT NULL;
         DROP TABLE same; DROP TABLE again; CREATE TABLE again (a int, b int); DROP TABLE other; CREATE TABLE other (a int, c text);
         ALTER TABLE swap RENAME TO swap_old; ALTER TABLE swap_new RENAME TO swap",
    );
    baseline(&mut c);
    let found = report(&mut c, "");
    assert_eq!(
        tally_lines(&found),
        [
            // The drops of three tables that had been recorded alike.
            "relation unchanged/none -: 3 of 3",
            "relation additive/additive -: 1 of 1",
            // One column, and two tables that were renamed.
            "relation compatible/compatible -: 3 of 3",
            "relation destructive/destructive -: 1 of 1",
            "relation recreated/none -: 1 of 1",
            "relation reshaped/destructive -: 1 of 1",
            "relation source_swapped/additive -: 1 of 1",
        ],
        "{found:#?}"
    );
    assert_eq!(found[0].abstained, Vec::<String>::new(), "nothing to exonerate");
    assert_eq!(found[1].abstained, UNKNOWN_COMMAND, "what made it is not known");
    let example = &found[3].examples[0];
    assert!(
        example.starts_with("public.less: snapshot ")
            && example.ends_with(": column \"b\" was dropped, by a command that was not recorded; 2 more")
            || example.ends_with(": column \"b\" was dropped; 2 more"),
        "the worst first: {example}"
    );
    let less = verdicts(&mut c, "table_name = 'less'");
    assert_eq!(less[0].severity, "destructive");
    assert_eq!(
        less[0].evidence,
        ["column \"a\" no longer allows NULL", "column \"b\" was dropped", "column \"c\" was added"]
    );
    consistent(&mut c);
}

#[test]
fn versions_of_one_resource_are_paired_whatever_they_are_called() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "SET pg_trickle.resource_identity = 'feed/prices'; CREATE TABLE feed_v1 (sku text, price int)",
    );
    baseline(&mut c);
    exec(&mut c, "CREATE TABLE feed_v2 (sku text, price numeric, currency text)");
    baseline(&mut c);
    exec(&mut c, "DROP TABLE feed_v1; CREATE TABLE feed_v3 (sku text, price numeric, currency text)");
    baseline(&mut c);
    exec(&mut c, "SET pg_trickle.resource_identity = 'feed/other'; CREATE TABLE elsewhere (sku text)");
    baseline(&mut c);
    exec(&mut c, "RESET pg_trickle.resource_identity; CREATE TABLE nobodys (sku text)");
    baseline(&mut c);
    let found = verdicts(&mut c, "pairing = 'identity'");
    let pairs: Vec<String> = found.iter().map(|v| format!("{} {} {}", v.table, v.link, v.class)).collect();
    assert_eq!(
        pairs,
        [
            "public.feed_v2 another reshaped",
            // Each version is followed by itself first.
            "public.feed_v1 same unchanged",
            "public.feed_v3 recreated reshaped",
        ],
        "{found:#?}"
    );
    assert_eq!(
        found[0].evidence,
        ["column \"price\" changed its type from integer to numeric", "column \"currency\" was added"]
    );
    let examples: Vec<String> =
        report(&mut c, "").into_iter().filter(|t| t.pairing == "identity").flat_map(|t| t.examples).collect();
    assert!(examples.iter().any(|e| e.contains("another table after public.feed_v1")), "{examples:#?}");
    let tallies = report(&mut c, "");
    let identity: Vec<&Tally> = tallies.iter().filter(|t| t.pairing == "identity").collect();
    assert!(identity.iter().all(|t| t.relations == 1), "one resource: {identity:#?}");
    consistent(&mut c);
}

#[test]
fn since_is_the_time_of_the_later_snapshot() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "CREATE TABLE t (a int)");
    baseline(&mut c);
    exec(&mut c, "ALTER TABLE t ADD b int");
    baseline(&mut c);
    exec(&mut c, "ALTER TABLE t DROP b");
    baseline(&mut c);
    let times: Vec<String> =
        column(&mut c, "SELECT captured_at::text FROM pgtrickle.schema_snapshots ORDER BY snapshot_id");
    let since = |c: &mut Client, argument: &str| tally_lines(&report(c, argument));
    let both = ["relation additive/additive -: 1 of 1", "relation destructive/destructive -: 1 of 1"];
    assert_eq!(since(&mut c, ""), both);
    assert_eq!(since(&mut c, "'-infinity'"), both);
    for (at, expected) in [(0, &both[..]), (1, &both[..]), (2, &both[1..])] {
        assert_eq!(since(&mut c, &lit(&times[at])), expected, "from the moment of snapshot {at} on");
        let after = format!("{}::timestamptz + interval '1 microsecond'", lit(&times[at]));
        let left = if at == 0 { &both[..] } else { &both[at..] };
        assert_eq!(since(&mut c, &after), left, "after snapshot {at}");
    }
    assert!(since(&mut c, "now() + interval '1 day'").is_empty());
    assert!(since(&mut c, "'infinity'").is_empty());
}

#[test]
fn at_most_twenty_examples_of_a_class() {
    let db = fresh_db();
    let mut c = db.connect();
    let all = |c: &mut Client, sql: &str| {
        exec(c, &format!("DO $$ BEGIN FOR i IN 1..25 LOOP EXECUTE format('{sql}', i); END LOOP; END $$"));
    };
    all(&mut c, "CREATE TABLE t%s (a int)");
    baseline(&mut c);
    all(&mut c, "ALTER TABLE t%s ADD b int");
    baseline(&mut c);
    exec(&mut c, "ALTER TABLE t1 DROP b; ALTER TABLE t2 ADD _ingested_at date");
    baseline(&mut c);
    let found = report(&mut c, "");
    assert_eq!(
        tally_lines(&found),
        [
            "relation additive/additive -: 25 of 25",
            "relation additive/additive collector_metadata: 1 of 1",
            "relation destructive/destructive -: 1 of 1"
        ]
    );
    let additive: usize = found.iter().filter(|t| t.class == "additive").map(|t| t.examples.len()).sum();
    assert_eq!(additive, 20, "of the class, not of the row");
    assert_eq!(found[2].examples.len(), 1);
    assert!(found.iter().flat_map(|t| &t.examples).all(|e| e.chars().count() <= 300));
    consistent(&mut c);
}

#[test]
fn an_account_is_of_one_moment_whatever_is_pruned_meanwhile() {
    let db = fresh_db();
    let mut c = db.connect();
    let mut other = db.connect();
    exec(
        &mut c,
        "CREATE PROCEDURE change() LANGUAGE plpgsql AS $$ BEGIN FOR i IN 1..100 LOOP
           EXECUTE format('CREATE TABLE IF NOT EXISTS t%s (a int, c0 int)', i);
           EXECUTE format('ALTER TABLE t%s ADD c%s int', i, txid_current());
         END LOOP; PERFORM pgtrickle.capture_baseline(); END $$",
    );
    exec(&mut c, "CALL change()");
    exec(&mut c, "CALL change()");
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let _end = StopAtEnd(&stop);
        s.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                other.batch_execute("CALL change()").expect("change");
                other.batch_execute("SELECT pgtrickle.prune_snapshots(1)").expect("prune");
            }
        });
        for _ in 0..60 {
            report(&mut c, "");
            verdicts(&mut c, "true");
        }
    });
}

#[test]
fn a_recreated_source_is_recognised() {
    let db = fresh_db();
    let mut c = db.connect();
    // CASE 19 and 45: the nightly drop and create.
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id, v FROM t");
    for _ in 0..3 {
        exec(&mut c, "DROP TABLE t");
        exec(&mut c, T);
    }
    baseline(&mut c);
    let found = verdicts(&mut c, "table_name = 't' AND class = 'recreated'");
    assert_eq!(found.len(), 3, "{found:#?}");
    assert!(
        found.iter().all(|v| v.link == "recreated" && v.severity == "none" && v.evidence.is_empty()),
        "{found:#?}"
    );
    let line = report(&mut c, "").into_iter().find(|t| t.class == "recreated").expect("a row");
    assert_eq!((line.pairs, line.relations), (3, 1), "one line of one name");
    consistent(&mut c);
}

#[test]
fn a_restored_database_is_not_a_recreated_one() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "CREATE TABLE t (a int); CREATE TABLE u (a int)");
    baseline(&mut c);
    drop(c);
    let copy = copied(&db);
    let mut r = copy.connect();
    exec(&mut r, "ALTER TABLE u ADD b int");
    baseline(&mut r);
    let links: Vec<String> =
        verdicts(&mut r, "true").iter().map(|v| format!("{} {} {}", v.table, v.link, v.class)).collect();
    assert_eq!(links.len(), 2, "{links:?}");
    assert!(links.contains(&"public.t restored recreated".to_string()), "{links:?}");
    assert!(links.contains(&"public.u restored reshaped".to_string()), "{links:?}");
    let told = history(&mut r, "t");
    assert!(
        told.contains(&"restored or copied from another database: no change of shape".to_string()),
        "{told:#?}"
    );
    consistent(&mut r);
}
