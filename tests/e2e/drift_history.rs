//! `schema_history`: the life of a table in words, by whatever name it is asked for.

use crate::common::*;
use crate::drift::*;
use crate::support::{expect_error, fresh_db};
use postgres::Client;

/// `table | command | what`, with `-` where no command is known.
fn told(c: &mut Client, name: &str) -> Vec<String> {
    column(
        c,
        &format!(
            "SELECT concat_ws(' | ', table_name, coalesce(command, '-'), what) FROM pgtrickle.schema_history({})",
            lit(name)
        ),
    )
}

#[test]
fn the_life_of_a_table() {
    let db = fresh_db();
    let role = db.create_role("loader");
    let mut c = db.connect();
    exec(&mut c, "CREATE SCHEMA shop; CREATE TABLE shop.orders (id int, note varchar(20))");
    baseline(&mut c);
    exec(
        &mut c,
        "INSERT INTO shop.orders SELECT i, 'n' || i FROM generate_series(1, 1234) i; ANALYZE shop.orders",
    );
    // By commands that nobody watches: the table is no source yet.
    exec(&mut c, "ALTER TABLE shop.orders ADD total numeric(10,2) DEFAULT 0, ALTER id SET NOT NULL");
    baseline(&mut c);
    create(&mut c, "s", "SELECT id, note FROM shop.orders");
    exec(&mut c, "ALTER TABLE shop.orders ADD PRIMARY KEY (id), ALTER total DROP DEFAULT");
    exec(&mut c, "ALTER TABLE shop.orders RENAME note TO remark");
    exec(&mut c, "ALTER TABLE shop.orders RENAME TO purchases");
    exec(&mut c, "SELECT pgtrickle.drop_stream_table('s')");
    exec(&mut c, &format!("GRANT ALL ON SCHEMA shop TO {role}; ALTER TABLE shop.purchases OWNER TO {role}"));
    let mut his = db.connect_as(&role);
    exec(&mut his, "SET search_path = shop; DROP TABLE shop.purchases");
    exec(&mut his, "CREATE TABLE shop.purchases (id int PRIMARY KEY, remark text)");
    baseline(&mut c);
    exec(&mut his, "DROP TABLE shop.purchases");
    let expected = [
        "shop.orders | - | seen by the baseline pass with 2 columns, never analysed",
        "shop.orders | - | seen by the baseline pass with 3 columns, about 1,234 rows",
        "shop.orders | - | column \"id\" no longer allows NULL, by a command that was not recorded",
        "shop.orders | - | column \"total\" was added, by a command that was not recorded",
        "shop.orders | CREATE STREAM TABLE | became a source with 3 columns, about 1,234 rows",
        "shop.orders | ALTER TABLE | the default of column \"total\" changed from 0 to none",
        "shop.orders | ALTER TABLE | the primary key (\"id\") was added",
        "shop.orders | ALTER TABLE | index \"orders_pkey\" was added",
        "shop.orders | ALTER TABLE | column \"note\" was renamed to \"remark\"",
        "shop.purchases | ALTER TABLE | the table was renamed from \"orders\" to \"purchases\"",
        "shop.purchases | DROP TABLE | dropped with 3 columns, about 1,234 rows",
        &format!(
            "shop.purchases | DROP TABLE | its owner changed from \"postgres\" to \"{role}\", by a command that was not recorded"
        ),
        "shop.purchases | - | seen by the baseline pass with 2 columns, never analysed",
        "shop.purchases | - | made again as another table",
        "shop.purchases | - | column \"remark\" changed its type from varchar(20) to text",
        "shop.purchases | - | column \"total\" was dropped",
        "shop.purchases | - | constraint \"orders_pkey\" was renamed to \"purchases_pkey\"",
        "shop.purchases | - | index \"orders_pkey\" was removed",
        "shop.purchases | - | index \"purchases_pkey\" was added",
        "shop.purchases | DROP TABLE | dropped with 2 columns, never analysed",
    ];
    assert_eq!(told(&mut c, "shop.purchases"), expected);
}

#[test]
fn who_and_when() {
    let db = fresh_db();
    let role = db.create_role("loader");
    let mut c = db.connect();
    exec(&mut c, "CREATE TABLE t (a int)");
    exec(&mut c, &format!("ALTER TABLE t OWNER TO {role}"));
    baseline(&mut c);
    exec(&mut db.connect_as(&role), "DROP TABLE t");
    exec(&mut c, &format!("SET ROLE {role}; RESET ROLE; CREATE TABLE t (a int, b int)"));
    baseline(&mut c);
    let rows = c
        .query(
            "SELECT actor, h.captured_at = s.captured_at, h.captured_at <= clock_timestamp(), h.snapshot_id = s.snapshot_id
             FROM pgtrickle.schema_history('t') WITH ORDINALITY h (captured_at, actor, what, command, table_name, snapshot_id, n)
             JOIN pgtrickle.schema_snapshots s USING (snapshot_id, actor) ORDER BY n",
            &[],
        )
        .expect("history");
    let actors: Vec<String> = rows.iter().map(|r| r.get(0)).collect();
    // Seen, dropped; then seen again, another table, another owner, another column.
    assert_eq!(actors, ["postgres", &role, "postgres", "postgres", "postgres", "postgres"]);
    assert!(
        rows.iter().all(|r| r.get(1) && r.get(2) && r.get(3)),
        "the time and the number are the snapshot's own"
    );
    let in_order: bool = one(
        &mut c,
        "SELECT bool_and(snapshot_id >= before AND captured_at >= earlier) FROM
           (SELECT snapshot_id, captured_at, lag(snapshot_id, 1, 0::bigint) OVER (ORDER BY n) AS before,
                   lag(captured_at, 1, '-infinity') OVER (ORDER BY n) AS earlier
            FROM pgtrickle.schema_history('t') WITH ORDINALITY h (captured_at, actor, what, command, table_name, snapshot_id, n)) x",
    );
    assert!(in_order);
}

#[test]
fn every_snapshot_has_a_line() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, &format!("{T}; ANALYZE t"));
    create(&mut c, "s", "SELECT id FROM t");
    exec(
        &mut c,
        "ALTER TABLE t ADD x int; UPDATE t SET x = 1; ANALYZE t; ALTER TABLE t DROP x, ADD y int, ADD z int; ALTER TABLE t SET UNLOGGED",
    );
    exec(&mut c, "DROP TABLE t CASCADE; CREATE TABLE t (id int); DROP TABLE t");
    let without: i64 = one(
        &mut c,
        "SELECT count(*) FROM pgtrickle.schema_snapshots s WHERE table_name = 't'
           AND NOT EXISTS (SELECT FROM pgtrickle.schema_history('t') h WHERE h.snapshot_id = s.snapshot_id)",
    );
    assert_eq!(without, 0);
    let told = history(&mut c, "t");
    for line in [
        "column \"x\" was added",
        "stood before ALTER TABLE with 5 columns, about 10 rows",
        "column \"x\" was dropped",
        "column \"y\" was added",
        "column \"z\" was added",
        "public.t became unlogged where it was permanent",
        "made again as another table",
    ] {
        assert_eq!(told.iter().filter(|what| *what == line).count(), 1, "{line}: {told:#?}");
    }
}

#[test]
fn a_table_is_found_by_any_way_to_write_its_name() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE SCHEMA \"Shop.eu\"; CREATE TABLE \"Shop.eu\".\"Order \"\"x\"\"\" (a int); CREATE TABLE \"Größe 量\" (a int);
         CREATE TABLE U&\"\\FEFFid\" (U&\"\\FEFFcol\" int); CREATE TABLE plain (a int); CREATE TABLE \"it's\" (a int)",
    );
    baseline(&mut c);
    for (name, shown) in [
        ("\"Shop.eu\".\"Order \"\"x\"\"\"", "\"Shop.eu\".\"Order \"\"x\"\"\""),
        ("\"Order \"\"x\"\"\"", "\"Shop.eu\".\"Order \"\"x\"\"\""),
        ("\"Größe 量\"", "public.\"Größe 量\""),
        ("public.\"Größe 量\"", "public.\"Größe 量\""),
        ("\"\u{feff}id\"", "public.U&\"\\FEFFid\""),
        ("plain", "public.plain"),
        ("PLAIN", "public.plain"),
        ("  public . plain ", "public.plain"),
        ("\"public\".\"plain\"", "public.plain"),
        ("\"it's\"", "public.\"it's\""),
    ] {
        let tables: Vec<String> =
            column(&mut c, &format!("SELECT table_name FROM pgtrickle.schema_history({})", lit(name)));
        assert_eq!(tables, [shown], "{name}");
    }
    // A column that hides something is shown so that one sees it.
    exec(&mut c, "DROP TABLE U&\"\\FEFFid\"; CREATE TABLE U&\"\\FEFFid\" (id int)");
    baseline(&mut c);
    let told = history(&mut c, "\"\u{feff}id\"");
    assert!(told.contains(&"column U&\"\\FEFFcol\" was dropped".to_string()), "{told:#?}");
}

#[test]
fn a_bare_name_means_what_the_callers_search_path_says() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE SCHEMA a; CREATE SCHEMA b; CREATE SCHEMA c; CREATE TABLE a.t (in_a int); CREATE TABLE b.t (x int, in_b int);
         CREATE TABLE c.only (x int)",
    );
    baseline(&mut c);
    let tables = |c: &mut Client, path: &str, name: &str| -> Vec<String> {
        exec(c, &format!("SET search_path = {path}"));
        column(c, &format!("SELECT DISTINCT table_name FROM pgtrickle.schema_history({})", lit(name)))
    };
    assert_eq!(tables(&mut c, "a, b", "t"), ["a.t"]);
    assert_eq!(tables(&mut c, "b, a", "t"), ["b.t"]);
    assert_eq!(tables(&mut c, "c, b", "t"), ["b.t"]);
    assert_eq!(tables(&mut c, "a", "b.t"), ["b.t"]);
    assert_eq!(tables(&mut c, "a", "only"), ["c.only"], "there is but one");
    assert_eq!(tables(&mut c, "''", "only"), ["c.only"]);
    exec(&mut c, "SET search_path = c, public");
    let e = assert_refused(&mut c, "SELECT * FROM pgtrickle.schema_history('t')", &["22023"]);
    assert_eq!(e.detail, "reason=AMBIGUOUS_NAME: a.t, b.t.");
    assert_eq!(e.message, "t is the name of several tables");
    // Also when they are gone.
    exec(&mut c, "DROP SCHEMA a, b CASCADE");
    let e = expect_error(&mut c, "SELECT * FROM pgtrickle.schema_history('t')");
    assert_eq!(e.detail, "reason=AMBIGUOUS_NAME: a.t, b.t.");
    let gone = history(&mut c, "a.t");
    assert_eq!(gone.last().map(String::as_str), Some("dropped with 1 column, never analysed"), "{gone:#?}");
}

#[test]
fn names_of_which_nothing_is_recorded_and_no_names() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "CREATE TABLE t (a int)");
    baseline(&mut c);
    exec(&mut c, "CREATE TABLE later (a int)");
    for (name, shown) in [
        ("missing", "missing"),
        ("public.missing", "public.missing"),
        ("other.t", "other.t"),
        ("later", "later"),
        ("\"T\"", "\"T\""),
    ] {
        let e = assert_refused(
            &mut c,
            &format!("SELECT * FROM pgtrickle.schema_history({})", lit(name)),
            &["42P01"],
        );
        assert_eq!(e.detail, "reason=NO_HISTORY.", "{name}");
        assert_eq!(e.message, format!("nothing is recorded of {shown}"));
        assert!(e.hint.contains("capture_baseline"), "{e:?}");
    }
    for name in ["", " ", ".", "a.", ".a", "\"a", "a b", "a.b.c", "a;b", "1a", "\"\"", "'t'", "t--"] {
        let e = assert_refused(
            &mut c,
            &format!("SELECT * FROM pgtrickle.schema_history({})", lit(name)),
            &["22023"],
        );
        assert_eq!(e.detail, "reason=BAD_ARGUMENT.", "{name}");
    }
    let e = assert_refused(&mut c, "SELECT * FROM pgtrickle.schema_history(NULL)", &["22004", "22023"]);
    assert!(e.message.contains("relation"), "{e:?}");
}

#[test]
fn a_renamed_table_is_found_by_both_names_and_a_table_made_again_by_its_own() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id FROM t");
    exec(&mut c, "ALTER TABLE t RENAME TO renamed");
    let all = told(&mut c, "renamed");
    assert_eq!(
        all,
        [
            "public.t | CREATE STREAM TABLE | became a source with 4 columns, never analysed",
            "public.renamed | ALTER TABLE | the table was renamed from \"t\" to \"renamed\"",
        ]
    );
    assert_eq!(told(&mut c, "t"), all);
    exec(&mut c, "CREATE SCHEMA aside; ALTER TABLE renamed SET SCHEMA aside");
    assert_eq!(told(&mut c, "aside.renamed").len(), 3);
    assert_eq!(told(&mut c, "t"), told(&mut c, "aside.renamed"));
    // Three lives of one name.
    exec(
        &mut c,
        "CREATE TABLE x (a int); DROP TABLE x; CREATE TABLE x (a int); DROP TABLE x; CREATE TABLE x (a int, b int); DROP TABLE x",
    );
    assert_eq!(
        told(&mut c, "x"),
        [
            "public.x | DROP TABLE | dropped with 1 column, never analysed",
            "public.x | DROP TABLE | dropped with 1 column, never analysed",
            "public.x | DROP TABLE | made again as another table: no change of shape",
            "public.x | DROP TABLE | dropped with 2 columns, never analysed",
            "public.x | DROP TABLE | made again as another table",
            "public.x | DROP TABLE | column \"b\" was added",
        ]
    );
}

/// CASE 27: the name goes to another table.
fn swapped(commands: &[&str]) {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "CREATE TABLE t (a int PRIMARY KEY); CREATE TABLE fresh (a int PRIMARY KEY, b int)");
    create(&mut c, "s", "SELECT a FROM t");
    baseline(&mut c);
    commands.iter().for_each(|command| exec(&mut c, command));
    baseline(&mut c);
    let all = told(&mut c, "t");
    let swap = "the name went to another table, which was public.fresh before (source_swapped)";
    assert!(all.iter().any(|line| line.contains(swap)), "{all:#?}");
    assert!(
        all.iter().any(|line| line.ends_with("the table that had the name was public.old after that")),
        "{all:#?}"
    );
    assert!(
        all.iter()
            .any(|line| line.ends_with("compared with the table that had the name: column \"b\" was added")),
        "{all:#?}"
    );
    let found = verdicts(&mut c, "class = 'source_swapped'");
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!((found[0].table.as_str(), found[0].link.as_str()), ("public.t", "swapped"));
    // Neither is a table made again.
    assert!(verdicts(&mut c, "class IN ('recreated', 'reshaped')").is_empty());
    assert!(
        told(&mut c, "old").iter().any(|line| line.ends_with("the table was renamed from \"t\" to \"old\""))
    );
}

#[test]
fn case_27_a_swap_in_one_transaction() {
    swapped(&["BEGIN; ALTER TABLE t RENAME TO old; ALTER TABLE fresh RENAME TO t; COMMIT"]);
}

#[test]
fn case_27_a_swap_in_two_transactions() {
    swapped(&["ALTER TABLE t RENAME TO old", "ALTER TABLE fresh RENAME TO t"]);
}

#[test]
fn case_27_a_swap_in_one_block() {
    swapped(&["DO $$ BEGIN ALTER TABLE t RENAME TO old; ALTER TABLE fresh RENAME TO t; END $$"]);
}

#[test]
fn columns_that_only_follow_a_rewritten_one_are_not_in_it() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE t (id int, unused int, a text, b text); INSERT INTO t VALUES (1, 2, 'a', 'b'); CREATE TABLE k () INHERITS (t)",
    );
    create(&mut c, "s", "SELECT id, a FROM ONLY t");
    exec(&mut c, "ALTER TABLE t ALTER unused TYPE bigint");
    exec(&mut c, "VACUUM FULL t");
    exec(&mut c, "ALTER TABLE t ADD more int");
    assert_eq!(
        told(&mut c, "t"),
        [
            "public.t | CREATE STREAM TABLE | became a source with 4 columns, never analysed",
            "public.t | ALTER TABLE | column \"unused\" changed its type from integer to bigint",
            "public.t | ALTER TABLE | column \"more\" was added",
        ]
    );
    assert!(verdicts(&mut c, "true").iter().all(|v| !v.evidence.join(" ").contains("computed anew")));
}
