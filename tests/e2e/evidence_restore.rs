//! Snapshots are dumped by pg_dump and come back usable.

use crate::common::*;
use crate::evidence::*;
use crate::support::{TestDb, bare_db, fresh_db};
use postgres::Client;
use std::path::PathBuf;
use std::process::Output;

fn worked(output: Output, what: &str) {
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
}

fn dump(db: &TestDb, format: &str) -> PathBuf {
    let file = db.cluster.home().join(format!("{}.{format}", db.name));
    let output = db
        .cluster
        .command("pg_dump")
        .args(["-F", format, "-d", &db.name, "-f"])
        .arg(&file)
        .output()
        .expect("pg_dump");
    worked(output, "pg_dump");
    file
}

/// A new database from a dump.
fn restored(dumped: &PathBuf, format: &str) -> TestDb {
    let db = bare_db();
    let output = match format {
        "p" => db
            .cluster
            .command("psql")
            .args(["-X", "-v", "ON_ERROR_STOP=1", "-d", &db.name, "-f"])
            .arg(dumped)
            .output(),
        _ => db.cluster.command("pg_restore").args(["--exit-on-error", "-d", &db.name]).arg(dumped).output(),
    };
    worked(output.expect("restore"), "restore");
    db
}

/// All rows as they are stored.
fn rows(c: &mut Client) -> Vec<String> {
    column(c, "SELECT s::text FROM pgtrickle.pgt_schema_snapshots s ORDER BY snapshot_id")
}

/// A database with snapshots of every kind, dead and alive, in plain and hashed form.
fn original() -> (TestDb, Client) {
    let db = fresh_db();
    let mut c = db.connect();
    people(&mut c, "alive");
    people(&mut c, "gone");
    people(&mut c, "hashed");
    exec(
        &mut c,
        "CREATE TABLE export (\"\u{feff}id\" int, \"tab\tand\\backslash\" text DEFAULT E'a\\tb\\nc''d'); SELECT * FROM pgtrickle.capture_baseline()",
    );
    exec(&mut c, "SET pg_trickle.resource_identity = E'two\\nlines\\t\\\\N'");
    exec(&mut c, "DROP TABLE gone, export");
    exec(&mut c, "SET pg_trickle.snapshot_values = hashed; DROP TABLE hashed");
    create(&mut c, "s", "SELECT id, city FROM alive");
    exec(&mut c, "ALTER TABLE alive ADD COLUMN more int");
    (db, c)
}

#[test]
fn all_of_it_comes_back() {
    let (db, mut c) = original();
    let (kept, shown) = (rows(&mut c), format!("{:#?}", shots(&mut c, "true")));
    assert!(kept.len() >= 9, "{}", kept.len());
    for format in ["c", "p"] {
        let copy = restored(&dump(&db, format), format);
        let mut r = copy.connect();
        assert_eq!(rows(&mut r), kept, "{format}");
        assert_eq!(format!("{:#?}", shots(&mut r, "true")), shown, "{format}");
        assert_eq!(missing(&mut r), 0);
        // Numbers go on.
        let last = shots(&mut r, "true").last().map(|s| s.id).expect("some");
        exec(&mut r, "CREATE TABLE fresh (x int); DROP TABLE fresh");
        assert!(dropped(&mut r, "fresh").id > last, "{format}");
        // Digests of then and now can be compared.
        people(&mut r, "again");
        exec(&mut r, "SET pg_trickle.snapshot_values = hashed; DROP TABLE again");
        assert_eq!(
            dropped(&mut r, "again").values("city"),
            dropped(&mut r, "hashed").values("city"),
            "{format}"
        );
        // Once more: a dump of what was restored.
        let third = restored(&dump(&copy, format), format);
        let mut t = third.connect();
        assert_eq!(rows(&mut t), rows(&mut r));
        people(&mut t, "again2");
        exec(&mut t, "SET pg_trickle.snapshot_values = hashed; DROP TABLE again2");
        assert_eq!(dropped(&mut t, "again2").values("city"), dropped(&mut t, "hashed").values("city"));
    }
}

#[test]
fn oids_of_the_old_database_are_not_taken_for_new_ones() {
    let (db, mut c) = original();
    let copy = restored(&dump(&db, "c"), "c");
    let mut r = copy.connect();
    let tables: i64 = one(
        &mut r,
        "SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace",
    );
    let (captured, skipped): (i32, i32) = {
        let row = r.query_one("SELECT * FROM pgtrickle.capture_baseline()", &[]).expect("baseline");
        (row.get(0), row.get(1))
    };
    assert_eq!((i64::from(captured), skipped), (tables, 0), "none of them was recorded here");
    // Nor is a generation expression of another table that happens to have had this oid.
    let foreign: i64 = one(&mut r, "SELECT count(DISTINCT origin) FROM pgtrickle.pgt_schema_snapshots");
    assert_eq!(foreign, 2);
    let old: Vec<u32> = column(
        &mut c,
        "SELECT DISTINCT relation FROM pgtrickle.pgt_schema_snapshots WHERE table_name = 'alive'",
    );
    assert!(shots_of(&mut r, "alive").iter().any(|s| old.contains(&s.relation) && s.reason == "source"));
    // Retention holds restored snapshots by name alone.
    exec(&mut r, "SELECT pgtrickle.prune_snapshots(1)");
    for table in ["alive", "gone", "hashed", "export"] {
        assert_eq!(shots_of(&mut r, table).len(), 1, "{table}");
    }
}

#[test]
fn a_copy_by_template_has_them_too() {
    let (db, mut c) = original();
    let kept = rows(&mut c);
    drop(c);
    let name = format!("{}_copy", db.name);
    exec(&mut db.cluster.connect("postgres"), &format!("CREATE DATABASE {name} TEMPLATE {}", db.name));
    let copy = TestDb { cluster: db.cluster, name };
    let mut r = copy.connect();
    assert_eq!(rows(&mut r), kept);
    // Oids are the same here, and still of another database.
    let skipped: i32 = one(&mut r, "SELECT skipped FROM pgtrickle.capture_baseline()");
    assert_eq!(skipped, 0);
    let skipped: i32 = one(&mut r, "SELECT skipped FROM pgtrickle.capture_baseline()");
    assert_eq!(skipped, 2);
}

#[test]
fn restored_over_itself() {
    let (db, mut c) = original();
    let kept = rows(&mut c);
    let file = dump(&db, "c");
    let output = db
        .cluster
        .command("pg_restore")
        .args(["--clean", "--if-exists", "-d", &db.name])
        .arg(&file)
        .output()
        .expect("pg_restore");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(rows(&mut db.connect()), kept, "{said}");
}

#[test]
fn rows_restored_without_triggers_are_taken_over() {
    let (db, mut c) = original();
    let kept = rows(&mut c);
    let file = dump(&db, "c");
    let copy = bare_db();
    let mut r = copy.connect();
    exec(&mut r, "CREATE EXTENSION pgtrickle");
    let output = copy
        .cluster
        .command("pg_restore")
        .args(["--data-only", "--disable-triggers", "-t", "pgt_schema_snapshots_dump", "-d", &copy.name])
        .arg(&file)
        .output()
        .expect("pg_restore");
    worked(output, "restore");
    assert_eq!(count(&mut r), 0);
    exec(&mut r, "SELECT * FROM pgtrickle.capture_baseline()");
    assert_eq!(rows(&mut r), kept);
    assert_eq!(one::<i64>(&mut r, "SELECT count(*) FROM pgtrickle.pgt_schema_snapshots_dump"), 0);
}
