//! Suspension: five loud places, the call that resolves it, the cascade, and the return.

use crate::common::*;
use crate::support::{self, Failure, Notices, TestDb, db_error, fresh_db, refresh};
use postgres::Client;
use postgres::fallible_iterator::FallibleIterator;

const SRC: &str = "CREATE SCHEMA app; CREATE TABLE app.orders (id int PRIMARY KEY, customer int, amount numeric(10, 2), note text, unused int);
    INSERT INTO app.orders SELECT i, i % 4, i * 1.5, 'n' || i % 2, i FROM generate_series(1, 20) i";
const TOTALS: &str = "SELECT customer, count(*) AS n, sum(amount) AS total FROM app.orders GROUP BY customer";

/// All payloads that have arrived, once the server has answered a query after them.
fn alerts(listener: &mut Client) -> Vec<String> {
    // What was committed before these queries has arrived with their answers.
    for _ in 0..3 {
        let _: i32 = one(listener, "SELECT 1");
    }
    let mut out = Vec::new();
    let mut notifications = listener.notifications();
    let mut it = notifications.iter();
    while let Ok(Some(n)) = it.next() {
        assert_eq!(n.channel(), "pg_trickle_alert");
        out.push(n.payload().to_string());
    }
    out
}

/// The one warning that a DDL command brought, as the session saw it.
fn warning(notices: &Notices) -> Failure {
    let heard: Vec<_> = notices.take().into_iter().filter(|(s, _)| s == "WARNING").collect();
    assert!(!heard.is_empty(), "the session that ran the DDL was not warned");
    heard
        .iter()
        .find(|(_, n)| n.hint.contains("pgtrickle.alter_stream_table_query"))
        .unwrap_or(&heard[0])
        .1
        .clone()
}

/// Executes the exact call that a hint names, and nothing else.
fn follow(c: &mut Client, hint: &str) -> String {
    let call = extract_call(hint, "pgtrickle.alter_stream_table_query(");
    exec(c, &format!("SELECT {call}"));
    call
}

fn setup() -> (TestDb, Client, Notices) {
    let db = fresh_db();
    let (mut c, notices) = db.connect_noting();
    exec(&mut c, SRC);
    create(&mut c, "app.totals", TOTALS);
    notices.take();
    (db, c, notices)
}

#[test]
fn suspension_is_loud_in_five_places_and_its_hint_works() {
    let (db, mut c, notices) = setup();
    let mut listener = db.connect();
    exec(&mut listener, "LISTEN pg_trickle_alert");
    exec(&mut c, "UPDATE app.orders SET amount = amount + 1");
    exec(&mut c, "ALTER TABLE app.orders DROP COLUMN amount");

    // 1. The session.
    let w = warning(&notices);
    assert!(w.message.contains("totals"), "{w:?}");
    assert!(w.detail.starts_with("reason=") || w.detail.contains("COLUMN_DROPPED"), "{w:?}");
    assert!(format!("{} {}", w.message, w.detail).contains("amount"), "which column: {w:?}");
    assert!(w.hint.contains("pgtrickle.alter_stream_table_query("), "{w:?}");
    // 2. The status.
    let s = assert_suspended(&mut c, "app.totals", "COLUMN_DROPPED");
    assert!(s.why().contains("SCHEMA_INCOMPATIBLE"), "{s:?}");
    assert!(s.hint.contains("pgtrickle.alter_stream_table_query("), "{s:?}");
    // 3. The history.
    let history: Vec<String> = column(
        &mut c,
        "SELECT concat_ws(' ', reason, detail, hint) FROM pgtrickle.refresh_history
         WHERE status = 'suspended' AND stream_table::text IN ('app.totals', '\"app.totals\"')",
    );
    assert_eq!(history.len(), 1, "{history:?}");
    assert!(
        history[0].starts_with("SCHEMA_INCOMPATIBLE") && history[0].contains("COLUMN_DROPPED"),
        "{history:?}"
    );
    assert!(history[0].contains("alter_stream_table_query"), "{history:?}");
    // 4. The notification.
    let heard = alerts(&mut listener);
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert!(heard[0].contains("COLUMN_DROPPED") && heard[0].contains("totals"), "{heard:?}");
    let object: bool = c
        .query_one("SELECT jsonb_typeof($1::text::jsonb) = 'object'", &[&heard[0]])
        .expect("the payload is JSON")
        .get(0);
    assert!(object);
    // 5. Health.
    let health: Vec<String> = column(
        &mut c,
        "SELECT status || ' ' || \"check\" || ' ' || detail FROM pgtrickle.health_check()
         WHERE status <> 'OK' AND concat(\"check\", detail) LIKE '%totals%'",
    );
    assert_eq!(health.len(), 1, "{health:?}");

    // A refresh says the same, and what is there stays readable.
    let e = support::expect_error(&mut c, "SELECT pgtrickle.refresh_stream_table('app.totals')");
    assert_eq!(e.sqlstate, "55000");
    assert!(
        e.detail.starts_with("reason=SCHEMA_INCOMPATIBLE") || e.detail.contains("COLUMN_DROPPED"),
        "{e:?}"
    );
    assert!(e.hint.contains("pgtrickle.alter_stream_table_query("), "{e:?}");
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM app.totals"), 4);

    // Resuming without a cure is refused or changes nothing.
    if c.batch_execute("SELECT pgtrickle.resume_stream_table('app.totals')").is_ok() {
        assert_suspended(&mut c, "app.totals", "COLUMN_DROPPED");
    }
    // The hint, followed to the letter by a session that knows nothing else.
    let mut dba = db.connect();
    exec(&mut dba, "SET search_path = pg_catalog");
    follow(&mut dba, &w.hint);
    assert_active(&mut c, "app.totals");
    support::assert_up_to_date(&mut c, "app.totals");
    exec(&mut c, "UPDATE app.orders SET customer = 9 WHERE id < 4; DELETE FROM app.orders WHERE id = 7");
    differential(&mut c, "app.totals");
    assert_eq!(
        one::<i64>(
            &mut c,
            "SELECT count(*) FROM pgtrickle.health_check() WHERE detail LIKE '%totals%' AND status <> 'OK'"
        ),
        0
    );
    assert!(one::<bool>(&mut c, "SELECT reason IS NULL AND hint IS NULL FROM pgtrickle.stream_tables"));
}

/// DDL on `app.orders`, the precise word, and whether the hint has to name a replacement query.
const USED: &[(&str, &str)] = &[
    ("ALTER TABLE app.orders DROP COLUMN amount", "COLUMN_DROPPED"),
    ("ALTER TABLE app.orders DROP COLUMN customer", "COLUMN_DROPPED"),
    ("ALTER TABLE app.orders DROP COLUMN customer, DROP COLUMN amount", "COLUMN_DROPPED"),
    (
        "ALTER TABLE app.orders DROP COLUMN amount, ADD COLUMN amount2 numeric(10, 2), DROP COLUMN unused",
        "COLUMN_DROPPED",
    ),
    ("ALTER TABLE app.orders ALTER COLUMN amount TYPE bigint", "COLUMN_TYPE_CHANGED"),
    ("ALTER TABLE app.orders ALTER COLUMN amount TYPE numeric(12, 2)", "COLUMN_TYPE_CHANGED"),
    ("ALTER TABLE app.orders ALTER COLUMN customer TYPE text", "COLUMN_TYPE_CHANGED"),
    (
        "ALTER TABLE app.orders ALTER COLUMN amount TYPE double precision USING amount * 100",
        "COLUMN_TYPE_CHANGED",
    ),
    ("ALTER TABLE app.orders DROP CONSTRAINT orders_pkey", "KEY_CHANGED"),
    ("ALTER TABLE app.orders DROP COLUMN id", "KEY_CHANGED"),
    (
        "BEGIN; ALTER TABLE app.orders RENAME COLUMN amount TO x; ALTER TABLE app.orders RENAME TO o2; ALTER TABLE app.o2 DROP COLUMN x; COMMIT",
        "COLUMN_DROPPED",
    ),
];

#[test]
fn used_columns_and_keys_suspend_and_every_hint_can_be_followed() {
    crate::ddl::for_each_in_threads(USED, |(ddl, word)| {
        let (db, mut c, notices) = setup();
        exec(&mut c, "INSERT INTO app.orders VALUES (100, 1, 1.5, 'x', 1)");
        exec(&mut c, ddl);
        let w = warning(&notices);
        assert!(w.hint.contains("pgtrickle.alter_stream_table_query("), "{ddl}: {w:?}");
        let s = assert_suspended(&mut c, "app.totals", word);
        assert!(s.why().contains("SCHEMA_INCOMPATIBLE"), "{ddl}: {s:?}");
        let mut dba = db.connect();
        follow(&mut dba, &s.hint);
        assert_active(&mut dba, "app.totals");
        support::assert_up_to_date(&mut dba, "app.totals");
        let table: String = one(&mut dba, "SELECT sources[1]::text FROM pgtrickle.stream_tables");
        exec(&mut dba, &format!("DELETE FROM {table} WHERE ctid IN (SELECT ctid FROM {table} LIMIT 3)"));
        differential(&mut dba, "app.totals");
    });
}

#[test]
fn a_used_column_that_changes_its_type_without_a_new_value_is_nothing() {
    let (_db, mut c, notices) = setup();
    exec(
        &mut c,
        "ALTER TABLE app.orders ALTER COLUMN amount TYPE numeric(10, 2), ALTER COLUMN customer TYPE integer",
    );
    assert!(notices.take().iter().all(|(s, _)| s != "WARNING"));
    exec(&mut c, "UPDATE app.orders SET amount = 0");
    differential(&mut c, "app.totals");
    // With an expression it is a rewrite of the rows, and no row event says so.
    exec(&mut c, "ALTER TABLE app.orders ALTER COLUMN amount TYPE numeric(10, 2) USING amount + 100");
    assert_eq!(right_or_suspended(&mut c, "app.totals"), "suspended");
}

#[test]
fn case_13_a_column_dropped_and_added_again_is_another_column() {
    for ddl in [
        &[
            "ALTER TABLE app.orders DROP COLUMN amount",
            "ALTER TABLE app.orders ADD COLUMN amount numeric(10, 2) DEFAULT 7",
        ][..],
        &[
            "ALTER TABLE app.orders DROP COLUMN amount; ALTER TABLE app.orders ADD COLUMN amount numeric(10, 2) DEFAULT 7",
        ],
        &["ALTER TABLE app.orders DROP COLUMN amount, ADD COLUMN amount numeric(10, 2) DEFAULT 7"],
        &[
            "BEGIN; ALTER TABLE app.orders DROP COLUMN amount; ALTER TABLE app.orders ADD COLUMN amount bigint DEFAULT 7; COMMIT",
        ],
    ] {
        let (_db, mut c, notices) = setup();
        for one_statement in ddl {
            // ALTER TABLE refuses to drop and add one name in one statement's last form; that is its own business.
            if let Err(e) = c.batch_execute(one_statement) {
                assert_eq!(db_error(&e).sqlstate, "42701", "{one_statement}: {}", support::describe(&e));
                continue;
            }
        }
        if ddl.len() > 1 {
            warning(&notices);
        }
        // It may stay suspended until told otherwise, or bind to the new column; the old values are never kept.
        if right_or_suspended(&mut c, "app.totals") != "right" {
            let s = status(&mut c, "app.totals");
            follow(&mut c, &s.hint);
            assert_active(&mut c, "app.totals");
        } else {
            support::assert_equal(&mut c, "app.totals", TOTALS);
        }
        exec(
            &mut c,
            "UPDATE app.orders SET amount = 8 WHERE id = 1; UPDATE app.orders SET customer = 9 WHERE id = 2",
        );
        differential(&mut c, "app.totals");
    }
}

#[test]
fn case_16_only_those_who_use_the_column_are_suspended() {
    let (_db, mut c, _notices) = setup();
    create(&mut c, "app.notes", "SELECT note, count(*) AS n FROM app.orders GROUP BY note");
    exec(&mut c, "ALTER TABLE app.orders DROP COLUMN amount");
    exec(&mut c, "ALTER TABLE app.orders ADD COLUMN fresh int");
    assert_suspended(&mut c, "app.totals", "COLUMN_DROPPED");
    exec(&mut c, "UPDATE app.orders SET note = 'z', fresh = 1 WHERE id < 5");
    differential(&mut c, "app.notes");
}

#[test]
fn a_dropped_source_suspends() {
    for (ddl, reads_others) in [
        ("DROP TABLE app.orders", false),
        ("DROP TABLE app.orders CASCADE", false),
        ("DROP TABLE IF EXISTS app.nothing, app.orders", false),
        ("DROP TABLE app.orders", true),
    ] {
        let (db, mut c, notices) = setup();
        let mut listener = db.connect();
        exec(&mut listener, "LISTEN pg_trickle_alert");
        if reads_others {
            exec(
                &mut c,
                "CREATE TABLE app.customers (id int, name text); INSERT INTO app.customers VALUES (1, 'one')",
            );
            create(
                &mut c,
                "app.joined",
                "SELECT c.name, o.amount FROM app.customers c JOIN app.orders o ON o.customer = c.id",
            );
        }
        notices.take();
        exec(&mut c, ddl);
        let w = warning(&notices);
        assert!(!w.hint.is_empty() && w.message.contains("totals") || reads_others, "{w:?}");
        let s = assert_suspended(&mut c, "app.totals", "SOURCE_DROPPED");
        assert!(s.why().contains("SCHEMA_INCOMPATIBLE"), "{s:?}");
        assert!(alerts(&mut listener).iter().any(|a| a.contains("totals")), "{ddl}");
        assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM app.totals"), 4, "what was there stays readable");
        if reads_others {
            assert_suspended(&mut c, "app.joined", "SOURCE_DROPPED");
            exec(
                &mut c,
                "SELECT pgtrickle.alter_stream_table_query('app.joined', 'SELECT name FROM app.customers')",
            );
            assert_active(&mut c, "app.joined");
        }
        // Case 19: the table comes back, as another one. It is bound again if it fits, or the way out is told; never stale.
        exec(&mut c, "CREATE TABLE app.orders (id int PRIMARY KEY, customer int, amount numeric(10, 2), note text, unused int);
            INSERT INTO app.orders VALUES (1, 1, 5, 'x', 1)");
        if right_or_suspended(&mut c, "app.totals") == "suspended" {
            exec(
                &mut c,
                &format!("SELECT pgtrickle.alter_stream_table_query('app.totals', {})", lit(TOTALS)),
            );
        }
        assert_active(&mut c, "app.totals");
        support::assert_equal(&mut c, "app.totals", TOTALS);
        exec(&mut c, "INSERT INTO app.orders VALUES (2, 1, 5, 'x', 1)");
        differential(&mut c, "app.totals");
        // And it can always be dropped.
        exec(&mut c, "DROP TABLE app.orders; SELECT pgtrickle.drop_stream_table('app.totals')");
    }
}

#[test]
fn dropped_and_recreated_in_one_transaction() {
    let (_db, mut c, _notices) = setup();
    exec(&mut c, "BEGIN; DROP TABLE app.orders; CREATE TABLE app.orders (id int PRIMARY KEY, customer int, amount numeric(10, 2));
        INSERT INTO app.orders VALUES (1, 1, 1); COMMIT");
    if right_or_suspended(&mut c, "app.totals") == "right" {
        support::assert_equal(&mut c, "app.totals", TOTALS);
    }
}

#[test]
fn suspension_cascades_upwards_and_what_is_cured_resumes() {
    let (_db, mut c, notices) = setup();
    create(&mut c, "app.high", "SELECT n, count(*) AS customers FROM app.totals GROUP BY n");
    create(&mut c, "app.top", "SELECT sum(customers) AS c FROM app.high");
    create(&mut c, "app.beside", "SELECT note FROM app.orders");
    exec(&mut c, "CREATE VIEW app.v AS SELECT n FROM app.totals");
    create(&mut c, "app.through_view", "SELECT max(n) AS m FROM app.v");
    notices.take();
    exec(&mut c, "ALTER TABLE app.orders DROP COLUMN amount");
    assert_suspended(&mut c, "app.totals", "COLUMN_DROPPED");
    for above in ["app.high", "app.top", "app.through_view"] {
        let s = assert_suspended(&mut c, above, "UPSTREAM_SUSPENDED");
        assert!(format!("{} {}", s.detail, s.hint).contains("app."), "{above}: which one: {s:?}");
        let e = support::expect_error(&mut c, &format!("SELECT pgtrickle.refresh_stream_table('{above}')"));
        assert_eq!(e.sqlstate, "55000", "{e:?}");
    }
    assert_active(&mut c, "app.beside");
    exec(&mut c, "UPDATE app.orders SET note = 'q', customer = 1 WHERE id < 9");
    differential(&mut c, "app.beside");
    let hint = status(&mut c, "app.totals").hint;
    follow(&mut c, &hint);
    for name in ["app.totals", "app.high", "app.top", "app.through_view"] {
        assert_active(&mut c, name);
        refresh(&mut c, name);
    }
    support::assert_equal(&mut c, "app.top", "SELECT count(DISTINCT customer)::numeric FROM app.orders");
    let resumed: Vec<String> = column(
        &mut c,
        "SELECT DISTINCT stream_table::text FROM pgtrickle.refresh_history WHERE status = 'resumed' ORDER BY 1",
    );
    assert_eq!(resumed.len(), 4, "{resumed:?}");
}

#[test]
fn suspending_by_hand_cascades_and_resumes_as_well() {
    let (_db, mut c, _notices) = setup();
    create(&mut c, "app.high", "SELECT n, count(*) AS customers FROM app.totals GROUP BY n");
    exec(&mut c, "SELECT pgtrickle.suspend_stream_table('app.totals')");
    assert_suspended(&mut c, "app.high", "UPSTREAM_SUSPENDED");
    exec(&mut c, "UPDATE app.orders SET customer = 1");
    exec(&mut c, "SELECT pgtrickle.resume_stream_table('app.totals')");
    assert_active(&mut c, "app.high");
    refresh(&mut c, "app.high");
    // One that was suspended for itself stays so.
    exec(
        &mut c,
        "SELECT pgtrickle.suspend_stream_table('app.high'); SELECT pgtrickle.suspend_stream_table('app.totals')",
    );
    exec(&mut c, "SELECT pgtrickle.resume_stream_table('app.totals')");
    assert_active(&mut c, "app.totals");
    assert_suspended(&mut c, "app.high", "");
    exec(&mut c, "SELECT pgtrickle.resume_stream_table('app.high')");
    refresh(&mut c, "app.high");
}

#[test]
fn a_cure_by_ddl_is_noticed() {
    // The key comes back.
    let (_db, mut c, _notices) = setup();
    exec(&mut c, "ALTER TABLE app.orders DROP CONSTRAINT orders_pkey");
    assert_suspended(&mut c, "app.totals", "KEY_CHANGED");
    exec(
        &mut c,
        "UPDATE app.orders SET amount = 5 WHERE id < 4; ALTER TABLE app.orders ADD PRIMARY KEY (id)",
    );
    if status(&mut c, "app.totals").status == "suspended" {
        exec(&mut c, "SELECT pgtrickle.resume_stream_table('app.totals')");
    }
    assert_active(&mut c, "app.totals");
    refresh(&mut c, "app.totals");
    support::assert_equal(&mut c, "app.totals", TOTALS);
    exec(&mut c, "UPDATE app.orders SET amount = 6 WHERE id < 4");
    differential(&mut c, "app.totals");
}

#[test]
fn case_29_a_second_change_while_suspended_is_no_second_suspension() {
    let (db, mut c, _notices) = setup();
    exec(&mut c, "ALTER TABLE app.orders DROP COLUMN amount");
    let mut listener = db.connect();
    exec(&mut listener, "LISTEN pg_trickle_alert");
    exec(
        &mut c,
        "ALTER TABLE app.orders ADD COLUMN x int; ALTER TABLE app.orders RENAME COLUMN x TO y; CREATE INDEX ON app.orders (note)",
    );
    assert_eq!(alerts(&mut listener), Vec::<String>::new());
    exec(&mut c, "ALTER TABLE app.orders DROP COLUMN customer");
    let s = assert_suspended(&mut c, "app.totals", "COLUMN_DROPPED");
    assert!(
        one::<i64>(&mut c, "SELECT count(*) FROM pgtrickle.refresh_history WHERE status = 'suspended'") <= 2
    );
    // The hint is still one that works, now.
    follow(&mut c, &s.hint);
    assert_active(&mut c, "app.totals");
    // Resumed, and no old event suspends it again.
    exec(&mut c, "ALTER TABLE app.orders ADD COLUMN z int; UPDATE app.orders SET note = 'u'");
    assert_active(&mut c, "app.totals");
}

#[test]
fn a_rename_while_suspended_keeps_the_hint_right() {
    let (_db, mut c, _notices) = setup();
    exec(&mut c, "ALTER TABLE app.orders DROP COLUMN amount");
    exec(
        &mut c,
        "ALTER TABLE app.orders RENAME COLUMN customer TO client; ALTER TABLE app.orders RENAME TO sales; ALTER TABLE app.totals RENAME TO sums",
    );
    let s = assert_suspended(&mut c, "app.sums", "COLUMN_DROPPED");
    follow(&mut c, &s.hint);
    assert_active(&mut c, "app.sums");
    exec(&mut c, "UPDATE app.sales SET client = 1");
    differential(&mut c, "app.sums");
}

#[test]
fn a_suspension_that_rolls_back_did_not_happen() {
    let (db, mut c, notices) = setup();
    let mut listener = db.connect();
    exec(&mut listener, "LISTEN pg_trickle_alert");
    exec(&mut c, "BEGIN; ALTER TABLE app.orders DROP COLUMN amount; ROLLBACK");
    assert_active(&mut c, "app.totals");
    exec(
        &mut c,
        "BEGIN; SAVEPOINT a; DROP TABLE app.orders; ROLLBACK TO a; UPDATE app.orders SET amount = 1; COMMIT",
    );
    assert_active(&mut c, "app.totals");
    assert_eq!(alerts(&mut listener), Vec::<String>::new());
    assert_eq!(
        one::<i64>(&mut c, "SELECT count(*) FROM pgtrickle.refresh_history WHERE status = 'suspended'"),
        0
    );
    notices.take();
    differential(&mut c, "app.totals");
}

#[test]
fn hints_work_for_odd_names() {
    let db = fresh_db();
    let (mut c, notices) = db.connect_noting();
    exec(
        &mut c,
        "CREATE SCHEMA \"My Schéma.x\"; CREATE TABLE \"My Schéma.x\".\"it's a \"\"table\"\"\" (\"Id\" int PRIMARY KEY, \"the amount\" int, \"o'clock\" text);
         INSERT INTO \"My Schéma.x\".\"it's a \"\"table\"\"\" VALUES (1, 1, 'a'), (2, 2, 'b')",
    );
    let name = "\"My Schéma.x\".\"s'um (1)\"";
    create(
        &mut c,
        name,
        "SELECT \"o'clock\", 'it''s; \\ (' || \"o'clock\" AS \"q'\", sum(\"the amount\") AS \"the )sum\" FROM \"My Schéma.x\".\"it's a \"\"table\"\"\" GROUP BY 1",
    );
    notices.take();
    exec(&mut c, "ALTER TABLE \"My Schéma.x\".\"it's a \"\"table\"\"\" DROP COLUMN \"the amount\"");
    let w = warning(&notices);
    follow(&mut c, &w.hint);
    assert_active(&mut c, name);
    exec(&mut c, "INSERT INTO \"My Schéma.x\".\"it's a \"\"table\"\"\" VALUES (3, 'c')");
    differential(&mut c, name);
}

#[test]
fn hints_work_for_joins_filters_and_nested_queries() {
    let cases = [
        (
            "SELECT o.id, c.name FROM app.orders o JOIN app.c ON c.id = o.customer WHERE o.amount > 3",
            "ALTER TABLE app.orders DROP COLUMN amount",
        ),
        (
            "SELECT o.id, c.name FROM app.orders o JOIN app.c ON c.id = o.customer",
            "ALTER TABLE app.orders DROP COLUMN customer",
        ),
        ("SELECT o.id, c.name FROM app.orders o JOIN app.c USING (id)", "ALTER TABLE app.c DROP COLUMN name"),
        (
            "SELECT g.n, count(*) AS k FROM (SELECT customer, count(*) AS n, max(amount) AS m FROM app.orders GROUP BY customer) g GROUP BY g.n",
            "ALTER TABLE app.orders DROP COLUMN amount",
        ),
        (
            "SELECT note FROM app.orders UNION ALL SELECT name FROM app.c",
            "ALTER TABLE app.orders DROP COLUMN note",
        ),
        ("SELECT amount FROM app.orders", "ALTER TABLE app.orders DROP COLUMN amount"),
        ("SELECT sum(amount) AS s FROM app.orders", "ALTER TABLE app.orders DROP COLUMN amount"),
        ("SELECT DISTINCT customer, amount FROM app.orders", "ALTER TABLE app.orders DROP COLUMN amount"),
        (
            "SELECT customer, sum(amount) AS s FROM app.orders GROUP BY customer HAVING max(amount) > 2",
            "ALTER TABLE app.orders DROP COLUMN amount",
        ),
        ("SELECT * FROM app.orders", "ALTER TABLE app.orders DROP COLUMN note"),
        (
            "SELECT id, rank() OVER (ORDER BY amount) AS r FROM app.orders",
            "ALTER TABLE app.orders DROP COLUMN amount",
        ),
        (
            "SELECT id, CASE WHEN amount > 3 THEN 'much' ELSE note END AS c, amount + customer AS a FROM app.orders",
            "ALTER TABLE app.orders DROP COLUMN amount",
        ),
        (
            "SELECT id, customer FROM app.orders WHERE note LIKE 'n%'",
            "ALTER TABLE app.orders ALTER COLUMN note TYPE int USING 1",
        ),
    ];
    crate::ddl::for_each_in_threads(&cases, |(query, ddl)| {
        let db = fresh_db();
        let mut c = db.connect();
        exec(
            &mut c,
            &format!(
                "{SRC}; CREATE TABLE app.c (id int PRIMARY KEY, name text); INSERT INTO app.c SELECT i, 'c' || i FROM generate_series(0, 5) i"
            ),
        );
        create(&mut c, "app.s", query);
        exec(&mut c, ddl);
        let s = assert_suspended(&mut c, "app.s", "SCHEMA_INCOMPATIBLE");
        let call = extract_call(&s.hint, "pgtrickle.alter_stream_table_query(");
        c.batch_execute(&format!("SELECT {call}"))
            .unwrap_or_else(|e| panic!("{query} / {ddl}\n{call}\n{:?}", db_error(&e)));
        assert_active(&mut c, "app.s");
        exec(&mut c, "DELETE FROM app.orders WHERE id < 5; INSERT INTO app.c (id) VALUES (50)");
        refresh(&mut c, "app.s");
    });
}

#[test]
fn a_used_column_is_used_wherever_it_stands() {
    // Every place of a query in which a column can be; the query goes on to be differential or full, as it may.
    let queries = [
        "SELECT id, rank() OVER (ORDER BY amount) AS r FROM app.orders",
        "SELECT id, count(*) OVER (PARTITION BY amount) AS r FROM app.orders",
        "SELECT id, sum(amount) OVER () AS r FROM app.orders",
        "SELECT id FROM app.orders ORDER BY amount, id LIMIT 3",
        "SELECT DISTINCT ON (amount) id FROM app.orders ORDER BY amount, id",
        "SELECT count(*) FILTER (WHERE amount > 3) AS n FROM app.orders",
        "SELECT string_agg(note, ',' ORDER BY amount, id) AS n FROM app.orders",
        "SELECT customer FROM app.orders GROUP BY customer HAVING max(amount) > 3",
        "SELECT count(*) AS n FROM app.orders GROUP BY amount",
        "SELECT count(*) AS n FROM app.orders GROUP BY GROUPING SETS ((amount), ())",
        "SELECT o.id FROM app.orders o JOIN app.orders p ON o.amount < p.amount",
        "SELECT o.id FROM app.orders o LEFT JOIN app.orders p ON o.id = p.amount",
        "SELECT o.id FROM app.orders o JOIN app.orders p USING (amount)",
        "SELECT id FROM app.orders o WHERE EXISTS (SELECT 1 FROM app.orders p WHERE p.amount = o.id)",
        "SELECT id FROM app.orders WHERE id IN (SELECT amount::int FROM app.orders)",
        "SELECT (SELECT max(amount) FROM app.orders) AS m, id FROM app.orders",
        "SELECT id FROM app.orders WHERE CASE WHEN customer = 1 THEN amount > 2 ELSE true END",
        "SELECT id FROM app.orders EXCEPT SELECT amount::int FROM app.orders",
        "WITH x AS (SELECT id, amount FROM app.orders) SELECT id FROM x WHERE amount > 1",
        "SELECT o.id, l.m FROM app.orders o, LATERAL (SELECT max(p.amount) AS m FROM app.orders p WHERE p.id <= o.id) l",
        "SELECT id, (o).note AS n FROM (SELECT id, orders AS o FROM app.orders) x",
        "SELECT g.v FROM app.orders o, generate_series(1, o.amount::int) g(v)",
    ];
    crate::ddl::for_each_in_threads(&queries, |query| {
        let db = fresh_db();
        let mut c = db.connect();
        exec(&mut c, SRC);
        create(&mut c, "app.s", query);
        exec(&mut c, "ALTER TABLE app.orders DROP COLUMN amount");
        assert_suspended(&mut c, "app.s", "SCHEMA_INCOMPATIBLE");
    });
}

#[test]
fn capture_goes_on_for_others_while_one_is_suspended() {
    let (_db, mut c, _notices) = setup();
    create(&mut c, "app.notes", "SELECT id, note FROM app.orders");
    exec(&mut c, "ALTER TABLE app.orders DROP COLUMN amount");
    for i in 0..3 {
        exec(
            &mut c,
            &format!(
                "UPDATE app.orders SET note = 'r{i}', customer = {i}; DELETE FROM app.orders WHERE id = {i}"
            ),
        );
        differential(&mut c, "app.notes");
    }
    exec(&mut c, "DROP TABLE app.totals; UPDATE app.orders SET note = 'end'");
    differential(&mut c, "app.notes");
}
