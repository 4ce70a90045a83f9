//! Columns that are probably the same under another name, because their values are alike.

use crate::common::*;
use crate::drift::*;
use crate::support::{expect_error, fresh_db};
use postgres::Client;

/// Rows that rest on likeness, as lines, and the change words of all the others but the first.
fn guessed(rows: &[Row]) -> (Vec<String>, Vec<&str>) {
    let (likely, known): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|r| r.similarity.is_some());
    for r in &likely {
        let likeness = r.similarity.expect("a likeness");
        assert!(likeness > 0.0 && likeness <= 1.0, "{r:#?}");
        assert!(r.detail.contains(&format!("likeness {likeness:.2}")), "{r:#?}");
        assert_eq!(r.severity, "destructive", "who reads the old name breaks: {r:#?}");
    }
    let known = known.into_iter().map(|r| r.change.as_str()).filter(|w| *w != "relation_replaced").collect();
    (likely.into_iter().map(Row::line).collect(), known)
}

/// The difference between the table's drop and its next shape.
fn again(c: &mut Client, table: &str) -> Vec<Row> {
    baseline(c);
    let (before, after) = ends(c, table);
    diff(c, before, after)
}

#[test]
fn a_rename_that_keeps_the_values_is_no_loss_and_no_gain() {
    let db = fresh_db();
    let mut c = db.connect();
    // SC-003, with a key and a name of many values, loaded in another order and analysed again.
    places(&mut c, "t", ["id", "provincia", "nombre"], "i");
    exec(&mut c, "DROP TABLE t");
    places(&mut c, "t", ["codigo", "jurisdiccion", "denominacion"], "md5(i::text || 'x')");
    let rows = again(&mut c, "t");
    assert_eq!(
        guessed(&rows),
        (
            vec![
                "rename_candidate id: id -> codigo (destructive)".to_string(),
                "rename_candidate provincia: provincia -> jurisdiccion (destructive)".to_string(),
                "rename_candidate nombre: nombre -> denominacion (destructive)".to_string(),
            ],
            vec![]
        ),
        "{rows:#?}"
    );
    assert!(
        rows.iter().any(|r| r.detail.starts_with("column \"provincia\" is probably \"jurisdiccion\" now"))
    );
    let told = history(&mut c, "t");
    assert!(
        told.iter().any(|what| what.starts_with("column \"provincia\" is probably \"jurisdiccion\" now")),
        "{told:#?}"
    );
}

#[test]
fn no_evidence_is_no_likeness() {
    let db = fresh_db();
    let mut c = db.connect();
    // FR-014: never analysed, on either side or on both.
    let make = |t: &str, column: &str| {
        format!(
            "CREATE TABLE {t} ({column} text); INSERT INTO {t} SELECT 'v' || i % 5 FROM generate_series(1, 500) i"
        )
    };
    for (n, (first, next)) in [("", ""), ("ANALYZE", ""), ("", "ANALYZE")].into_iter().enumerate() {
        let t = format!("t{n}");
        exec(&mut c, &make(&t, "a"));
        if !first.is_empty() {
            exec(&mut c, &format!("ANALYZE {t}"));
        }
        exec(&mut c, &format!("DROP TABLE {t}"));
        exec(&mut c, &make(&t, "b"));
        if !next.is_empty() {
            exec(&mut c, &format!("ANALYZE {t}"));
        }
        let rows = again(&mut c, &t);
        assert_eq!(guessed(&rows), (vec![], vec!["removed", "added"]), "{first}/{next}");
    }
    // Analysed, and nothing but NULLs.
    exec(
        &mut c,
        "CREATE TABLE n (a text); INSERT INTO n SELECT NULL FROM generate_series(1, 500); ANALYZE n; DROP TABLE n",
    );
    exec(
        &mut c,
        "CREATE TABLE n (b text); INSERT INTO n SELECT NULL FROM generate_series(1, 500); ANALYZE n",
    );
    assert_eq!(guessed(&again(&mut c, "n")), (vec![], vec!["removed", "added"]));
    // Analysed while empty.
    exec(&mut c, "CREATE TABLE e (a text); ANALYZE e; DROP TABLE e; CREATE TABLE e (b text); ANALYZE e");
    assert_eq!(guessed(&again(&mut c, "e")), (vec![], vec!["removed", "added"]));
}

#[test]
fn other_values_are_another_column() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE t (a int, x text); INSERT INTO t SELECT i, 'word ' || i % 7 FROM generate_series(1, 1000) i; ANALYZE t; DROP TABLE t;
         CREATE TABLE t (a int, y date, z float8, w text);
         INSERT INTO t SELECT i, date '2000-01-01' + i % 300, sqrt(i), md5(i::text) FROM generate_series(1, 1000) i; ANALYZE t",
    );
    let rows = again(&mut c, "t");
    assert_eq!(guessed(&rows).0, Vec::<String>::new(), "{rows:#?}");
    assert_eq!(lines(&rows).len(), 4);
}

#[test]
fn look_alikes_are_ambiguous() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE t (id int, home text); INSERT INTO t SELECT i, 'c' || i % 8 FROM generate_series(1, 2000) i; ANALYZE t; DROP TABLE t;
         CREATE TABLE t (id int, origin text, target text);
         INSERT INTO t SELECT i, 'c' || i % 8, 'c' || (i + 3) % 8 FROM generate_series(1, 2000) i; ANALYZE t",
    );
    let rows = again(&mut c, "t");
    assert_eq!(
        lines(&rows),
        [
            "removed home: home -> - (destructive)",
            "added origin: - -> origin (additive)",
            "added target: - -> target (additive)",
            "rename_ambiguous home: home -> origin (destructive)",
            "rename_ambiguous home: home -> target (destructive)",
        ]
    );
    assert_eq!(guessed(&rows).0.len(), 2);
    assert!(rows.iter().any(|r| r.detail.contains("but others fit equally well")), "{rows:#?}");
    // Two were lost, and one can be either of them.
    exec(
        &mut c,
        "CREATE TABLE u (id int, a text, b text); INSERT INTO u SELECT i, 'c' || i % 8, 'c' || (i + 3) % 8 FROM generate_series(1, 2000) i; ANALYZE u;
         DROP TABLE u; CREATE TABLE u (id int, c text); INSERT INTO u SELECT i, 'c' || i % 8 FROM generate_series(1, 2000) i; ANALYZE u",
    );
    let rows = again(&mut c, "u");
    let ambiguous: Vec<&str> = words(&rows).into_iter().filter(|w| *w == "rename_ambiguous").collect();
    assert_eq!(ambiguous.len(), 2, "{rows:#?}");
}

#[test]
fn a_rename_that_changes_the_type_too() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE t (k int, amount int); INSERT INTO t SELECT i, (i * i) % 5000 FROM generate_series(1, 3000) i; ANALYZE t; DROP TABLE t;
         CREATE TABLE t (k int, total numeric(12,2)); INSERT INTO t SELECT i, (i * i) % 5000 FROM generate_series(1, 3000) i; ANALYZE t",
    );
    let rows = again(&mut c, "t");
    assert_eq!(lines(&rows), ["rename_candidate amount: amount -> total (destructive)"]);
    let told = &rows.last().expect("a row").detail;
    assert!(told.ends_with("; its type changed from integer to numeric(12,2)"), "{told}");
}

#[test]
fn names_that_were_exchanged() {
    let db = fresh_db();
    let mut c = db.connect();
    let make = |a: &str, b: &str| {
        format!(
            "CREATE TABLE t (id int, {a} text, {b} text);
             INSERT INTO t SELECT i, 'city ' || i % 9, md5(i::text) FROM generate_series(1, 2000) i; ANALYZE t"
        )
    };
    exec(&mut c, &make("city", "token"));
    exec(&mut c, "DROP TABLE t");
    exec(&mut c, &make("token", "city"));
    let rows = again(&mut c, "t");
    assert_eq!(
        guessed(&rows),
        (
            vec![
                "rename_candidate city: city -> token (destructive)".to_string(),
                "rename_candidate token: token -> city (destructive)".to_string()
            ],
            vec!["reordered"]
        ),
        "{rows:#?}"
    );
    // The same with the same order of names: by names nothing happened.
    exec(&mut c, "DROP TABLE t");
    exec(
        &mut c,
        &make("city", "token").replace("'city ' || i % 9, md5(i::text)", "md5(i::text), 'city ' || i % 9"),
    );
    let (first, last) = ends(&mut c, "t");
    let now = snap(&mut c, "t");
    assert!(now > last && first < last);
    let rows = diff(&mut c, first, now);
    assert_eq!(guessed(&rows).0.len(), 2, "{rows:#?}");
    let told = |c: &mut Client| {
        let told = history(c, "t");
        let exchanged = "the values of column \"city\" are probably those of \"token\" now";
        told.iter().filter(|what| what.starts_with(exchanged)).count()
    };
    assert_eq!(told(&mut c), 1, "the third shape has the values of the second under the same names");
    // Back again: a table made again that looks just like the one before.
    exec(&mut c, "DROP TABLE t");
    exec(&mut c, &make("city", "token"));
    baseline(&mut c);
    let told_of = history(&mut c, "t");
    assert_eq!(told(&mut c), 2, "{told_of:#?}");
    assert!(told_of.contains(&"made again as another table: no change of shape".to_string()), "{told_of:#?}");
}

#[test]
fn of_one_relation_names_are_known_and_nothing_is_guessed() {
    let db = fresh_db();
    let mut c = db.connect();
    places(&mut c, "t", ["id", "provincia", "nombre"], "i");
    let before = snap(&mut c, "t");
    exec(&mut c, "ALTER TABLE t RENAME provincia TO jurisdiccion");
    let after = snap(&mut c, "t");
    let rows = diff(&mut c, before, after);
    assert_eq!(lines(&rows), ["renamed provincia: provincia -> jurisdiccion (compatible)"]);
    assert_eq!(rows[0].similarity, None);
    // Copied to a new column, and the old one dropped: another column, probably with its values.
    exec(
        &mut c,
        "ALTER TABLE t ADD lugar text; UPDATE t SET lugar = jurisdiccion; ALTER TABLE t DROP jurisdiccion; ANALYZE t",
    );
    let last = snap(&mut c, "t");
    let rows = diff(&mut c, after, last);
    assert_eq!(
        guessed(&rows).0,
        ["rename_candidate jurisdiccion: jurisdiccion -> lugar (destructive)"],
        "{rows:#?}"
    );
}

#[test]
fn the_threshold_is_settable() {
    let db = fresh_db();
    let mut c = db.connect();
    baseline(&mut c);
    assert_eq!(one::<String>(&mut c, "SHOW pg_trickle.rename_threshold"), "0.65");
    // The same values; and some that have little in common.
    exec(
        &mut c,
        "CREATE TABLE same (a text); INSERT INTO same SELECT 'v' || i % 6 FROM generate_series(1, 600) i; ANALYZE same; DROP TABLE same;
         CREATE TABLE same (b text); INSERT INTO same SELECT 'v' || i % 6 FROM generate_series(1, 600) i; ANALYZE same;
         CREATE TABLE near (a int); INSERT INTO near SELECT i FROM generate_series(1, 1000) i; ANALYZE near; DROP TABLE near;
         CREATE TABLE near (b int); INSERT INTO near SELECT i FROM generate_series(300, 1300) i; ANALYZE near;
         CREATE TABLE far (a int); INSERT INTO far SELECT i FROM generate_series(1, 1000) i; ANALYZE far; DROP TABLE far;
         CREATE TABLE far (b text); INSERT INTO far SELECT 'some words ' || md5(i::text) FROM generate_series(1, 1000) i; ANALYZE far",
    );
    let mut candidate = |threshold: &str, t: &str| {
        exec(&mut c, &format!("SET pg_trickle.rename_threshold = {threshold}"));
        words(&again(&mut c, t)).contains(&"rename_candidate")
    };
    assert!(candidate("1.0", "same"), "equal profiles");
    assert!(!candidate("1.0", "near") && !candidate("0.65", "near"));
    assert!(candidate("0", "near"), "anything in common");
    assert!(!candidate("0", "far"), "nothing in common is no rename at any threshold");
    for bad in ["1.5", "-0.1", "'x'"] {
        let e = expect_error(&mut c, &format!("SET pg_trickle.rename_threshold = {bad}"));
        assert_eq!(e.sqlstate, "22023", "{bad}: {e:?}");
    }
}

#[test]
fn hashed_values_are_compared_and_not_shown() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "SET pg_trickle.snapshot_values = hashed");
    places(&mut c, "t", ["id", "provincia", "nombre"], "i");
    exec(&mut c, "DROP TABLE t");
    places(&mut c, "t", ["codigo", "jurisdiccion", "denominacion"], "md5(i::text)");
    let rows = again(&mut c, "t");
    assert!(
        guessed(&rows)
            .0
            .contains(&"rename_candidate provincia: provincia -> jurisdiccion (destructive)".to_string()),
        "{rows:#?}"
    );
    for value in ["Salta", "Jujuy", "Chaco", "Rioja"] {
        assert!(!format!("{rows:?}").contains(value), "{rows:#?}");
        let kept: bool = one(
            &mut c,
            &format!("SELECT bool_or(s::text LIKE '%{value}%') FROM pgtrickle.pgt_schema_snapshots s"),
        );
        assert!(!kept, "{value}: the statement that loaded it is no drop's");
    }
    // Plain values and digests have nothing in common.
    exec(&mut c, "DROP TABLE t; SET pg_trickle.snapshot_values = plain");
    places(&mut c, "t", ["id", "provincia", "nombre"], "i");
    let now = snap(&mut c, "t");
    let dropped = now - 1;
    assert_eq!(guessed(&diff(&mut c, dropped, now)).0, Vec::<String>::new());
}

#[test]
fn what_was_hashed_can_be_compared_after_a_restore() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "SET pg_trickle.snapshot_values = hashed");
    places(&mut c, "t", ["id", "provincia", "nombre"], "i");
    let before = snap(&mut c, "t");
    drop(c);
    let copy = copied(&db);
    let mut r = copy.connect();
    exec(&mut r, "SET pg_trickle.snapshot_values = hashed; DROP TABLE t");
    places(&mut r, "t", ["id", "jurisdiccion", "nombre"], "md5(i::text)");
    let after = snap(&mut r, "t");
    let rows = diff(&mut r, before, after);
    assert_eq!(
        guessed(&rows),
        (vec!["rename_candidate provincia: provincia -> jurisdiccion (destructive)".to_string()], vec![]),
        "{rows:#?}"
    );
}

#[test]
fn without_values_there_are_no_candidates() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "SET pg_trickle.snapshot_values = off");
    places(&mut c, "t", ["id", "provincia", "nombre"], "i");
    exec(&mut c, "DROP TABLE t");
    places(&mut c, "t", ["codigo", "jurisdiccion", "denominacion"], "i");
    let rows = again(&mut c, "t");
    assert_eq!(guessed(&rows).0, Vec::<String>::new());
    assert_eq!(lines(&rows).len(), 6, "{rows:#?}");
}

#[test]
fn row_security_leaves_nothing_to_compare() {
    let db = fresh_db();
    let mut c = db.connect();
    places(&mut c, "t", ["id", "provincia", "nombre"], "i");
    exec(&mut c, "ALTER TABLE t ENABLE ROW LEVEL SECURITY; DROP TABLE t");
    places(&mut c, "t", ["id", "jurisdiccion", "nombre"], "i");
    exec(&mut c, "ALTER TABLE t ENABLE ROW LEVEL SECURITY");
    let rows = again(&mut c, "t");
    assert_eq!(guessed(&rows), (vec![], vec!["removed", "added"]), "{rows:#?}");
}
