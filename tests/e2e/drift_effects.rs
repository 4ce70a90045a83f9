//! Each attribute of a column, by real commands: what is recorded of the change, and whom it concerns. The edge and test
//! cases are those of the specification of precise invalidation.

use crate::common::*;
use crate::drift::*;
use crate::support::{TestDb, fresh_db, refresh};
use postgres::Client;

/// `t(id, used, unused)` with a stream table of `used`, one of `unused`, and one of everything.
fn sources(columns: &str) -> (TestDb, Client) {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, &format!("CREATE TABLE t ({columns})"));
    exec(&mut c, "INSERT INTO t (id) SELECT generate_series(1, 5)");
    create(&mut c, "uses", "SELECT id, used FROM t");
    create(&mut c, "spares", "SELECT id, unused FROM t");
    create(&mut c, "everything", "SELECT * FROM t");
    (db, c)
}

/// What one command changed, as it was recorded.
fn recorded(c: &mut Client, command: &str) -> Vec<String> {
    let before = newest(c, "t");
    exec(c, command);
    let after = newest(c, "t");
    assert_eq!(
        one::<i64>(
            c,
            &format!(
                "SELECT count(*) FROM pgtrickle.schema_snapshots WHERE snapshot_id > {before} AND moment = 'after'"
            )
        ),
        i64::from(after != before),
        "{command}"
    );
    if after == before { Vec::new() } else { lines(&diff(c, before, after)) }
}

fn suspended(c: &mut Client) -> Vec<String> {
    column(c, "SELECT stream_table::text FROM pgtrickle.stream_tables WHERE status = 'suspended' ORDER BY 1")
}

const PLAIN: &str = "id int PRIMARY KEY, used int, unused int";

#[test]
fn case_1_a_column_that_nobody_selects_is_added() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, &format!("CREATE TABLE t ({PLAIN}); INSERT INTO t VALUES (1, 2, 3)"));
    create(&mut c, "s", "SELECT id, used FROM t");
    assert_eq!(recorded(&mut c, "ALTER TABLE t ADD more int"), ["added more: - -> more (additive)"]);
    assert_active(&mut c, "s");
    exec(&mut c, "UPDATE t SET used = 7");
    differential(&mut c, "s");
}

#[test]
fn case_2_a_column_is_added_where_everything_is_selected() {
    let (_db, mut c) = sources(PLAIN);
    assert_eq!(
        recorded(&mut c, "ALTER TABLE t ADD more int DEFAULT 4"),
        ["added more: - -> more (additive)"]
    );
    // It is in the query of then, or visibly not; the others are not concerned.
    assert_ne!(right_or_suspended(&mut c, "everything"), "refused");
    assert!(suspended(&mut c).iter().all(|s| s == "everything"));
    exec(&mut c, "UPDATE t SET used = 7");
    differential(&mut c, "uses");
    refresh(&mut c, "spares");
}

#[test]
fn case_3_nullability_concerns_nobody() {
    let (_db, mut c) = sources("id int PRIMARY KEY, used int DEFAULT 1 NOT NULL, unused int");
    assert_eq!(
        recorded(&mut c, "ALTER TABLE t ALTER used DROP NOT NULL"),
        ["nullability_changed used: NOT NULL -> NULL (compatible)"]
    );
    assert_eq!(
        recorded(&mut c, "ALTER TABLE t ALTER used SET NOT NULL"),
        ["nullability_changed used: NULL -> NOT NULL (compatible)"]
    );
    assert_eq!(
        recorded(&mut c, "ALTER TABLE t ALTER used SET DEFAULT 2"),
        ["default_changed used: 1 -> 2 (compatible)"]
    );
    assert!(suspended(&mut c).is_empty());
    exec(&mut c, "UPDATE t SET used = 7");
    for s in ["uses", "everything"] {
        differential(&mut c, s);
    }
}

#[test]
fn case_4_another_type_concerns_those_who_select_the_column() {
    // Edge case 2: within the same family of types too.
    for (first, next, line) in [
        ("int", "bigint", "type_changed used: integer -> bigint (destructive)"),
        ("varchar(50)", "varchar(100)", "type_changed used: varchar(50) -> varchar(100) (destructive)"),
        ("int[]", "int[][]", "type_changed used: 1 -> 2 (destructive)"),
        (
            "text",
            "text COLLATE \"C\"",
            "collation_changed used: pg_catalog.default -> pg_catalog.C (destructive)",
        ),
        ("int", "int USING used * 2", "rewritten used: - -> - (destructive)"),
    ] {
        let (_db, mut c) = sources(&format!("id int PRIMARY KEY, used {first}, unused int"));
        assert_eq!(recorded(&mut c, &format!("ALTER TABLE t ALTER used TYPE {next}")), [line]);
        assert_eq!(suspended(&mut c), ["everything", "uses"], "{next}");
        assert_suspended(&mut c, "uses", "COLUMN_TYPE_CHANGED");
        exec(&mut c, "UPDATE t SET unused = 7");
        differential(&mut c, "spares");
    }
}

#[test]
fn case_5_another_key_concerns_everybody() {
    let (_db, mut c) = sources("id int PRIMARY KEY, used int DEFAULT 1 NOT NULL, unused int");
    assert_eq!(
        recorded(&mut c, "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (used, id)"),
        [
            "key_changed -: (\"id\") -> (\"used\", \"id\") (destructive)",
            "index_changed -: t_pkey -> t_pkey (compatible)"
        ]
    );
    assert_eq!(suspended(&mut c), ["everything", "spares", "uses"]);
    for s in ["everything", "uses", "spares"] {
        assert_suspended(&mut c, s, "KEY_CHANGED");
    }
}

#[test]
fn case_6_another_name_is_known_as_one() {
    let (_db, mut c) = sources(PLAIN);
    assert_eq!(
        recorded(&mut c, "ALTER TABLE t RENAME used TO other"),
        ["renamed used: used -> other (compatible)"]
    );
    // Better than invalidation: the names of the stream table's columns stay.
    for s in ["uses", "spares"] {
        assert_active(&mut c, s);
    }
    exec(&mut c, "UPDATE t SET other = 7");
    differential(&mut c, "uses");
    // Edge case 1: renamed to a name that there was before.
    exec(&mut c, "ALTER TABLE t RENAME unused TO gone");
    assert_eq!(
        recorded(&mut c, "ALTER TABLE t RENAME gone TO used"),
        ["renamed gone: gone -> used (compatible)"]
    );
    assert_active(&mut c, "spares");
    exec(&mut c, "UPDATE t SET used = 8");
    differential(&mut c, "spares");
}

#[test]
fn edge_case_1_a_column_in_the_place_of_another_concerns_the_users_of_both() {
    let (_db, mut c) = sources(PLAIN);
    exec(&mut c, "ALTER TABLE t DROP used");
    assert_suspended(&mut c, "uses", "COLUMN_DROPPED");
    assert_eq!(
        recorded(&mut c, "ALTER TABLE t RENAME unused TO used"),
        ["renamed unused: unused -> used (compatible)"]
    );
    let (first, last) = ends(&mut c, "t");
    assert_eq!(
        lines(&diff(&mut c, first, last)),
        ["removed used: used -> - (destructive)", "renamed unused: unused -> used (compatible)"]
    );
    // Its query means the other column now, and is computed anew; whoever used that one goes on with it.
    assert_eq!(right_or_suspended(&mut c, "uses"), "right");
    assert_active(&mut c, "spares");
    exec(&mut c, "UPDATE t SET used = 7");
    refresh(&mut c, "uses");
    differential(&mut c, "spares");
}

#[test]
fn edge_case_3_one_of_several_changes_is_enough() {
    let (_db, mut c) = sources(PLAIN);
    assert_eq!(
        recorded(
            &mut c,
            "ALTER TABLE t ADD more int, ALTER id SET DEFAULT 1, ALTER used TYPE bigint, ALTER unused SET DEFAULT 5"
        ),
        [
            "default_changed id: - -> 1 (compatible)",
            "type_changed used: integer -> bigint (destructive)",
            "default_changed unused: - -> 5 (compatible)",
            "added more: - -> more (additive)",
        ]
    );
    assert_eq!(suspended(&mut c), ["everything", "uses"]);
    let verdict = verdicts(&mut c, "table_name = 't'").pop().expect("a verdict");
    assert_eq!((verdict.severity.as_str(), verdict.evidence.len()), ("destructive", 4), "{verdict:#?}");
}

#[test]
fn edge_case_4_everything_is_concerned_by_a_lost_column() {
    let (_db, mut c) = sources(PLAIN);
    assert_eq!(recorded(&mut c, "ALTER TABLE t DROP unused"), ["removed unused: unused -> - (destructive)"]);
    assert_eq!(suspended(&mut c), ["everything", "spares"]);
}

#[test]
fn generated_and_no_longer_generated() {
    let (_db, mut c) =
        sources("id int PRIMARY KEY, used int GENERATED ALWAYS AS (id * 2) STORED, unused int");
    assert_eq!(
        recorded(&mut c, "ALTER TABLE t ALTER used DROP EXPRESSION"),
        ["generated_changed used: (id * 2) stored -> - (destructive)"]
    );
    assert_eq!(suspended(&mut c), ["everything", "uses"]);
    assert_suspended(&mut c, "uses", "GENERATION_CHANGED");
}

#[test]
fn another_kind_of_type_by_the_same_name() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TYPE mood AS ENUM ('sad'); CREATE TABLE t (id int PRIMARY KEY, used mood, unused int);
         INSERT INTO t VALUES (1, 'sad', 2)",
    );
    create(&mut c, "uses", "SELECT id, used FROM t");
    create(&mut c, "spares", "SELECT id, unused FROM t");
    exec(
        &mut c,
        "ALTER TYPE mood RENAME TO old_mood; CREATE DOMAIN mood AS text; ALTER TABLE t ALTER used TYPE mood USING used::text",
    );
    let (first, last) = ends(&mut c, "t");
    let rows = diff(&mut c, first, last);
    assert_eq!(words(&rows), ["type_changed"], "{rows:#?}");
    assert_eq!(rows[0].severity, "destructive");
    assert_eq!(suspended(&mut c), ["uses"]);
}
