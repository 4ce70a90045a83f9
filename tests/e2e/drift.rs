//! What tests of the account share: differences, histories and verdicts as lines that can be compared.

use crate::common::*;
use crate::support::{TestDb, bare_db, describe};
use postgres::{Client, GenericClient};
use std::collections::BTreeSet;
use std::process::Output;

/// One row of `diff_snapshots`.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub change: String,
    pub column: Option<String>,
    pub before: Option<String>,
    pub after: Option<String>,
    pub severity: String,
    pub similarity: Option<f64>,
    pub detail: String,
}

impl Row {
    /// `type_changed a: integer -> bigint (destructive)`, with `-` for what is NULL.
    pub fn line(&self) -> String {
        let or = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
        format!(
            "{} {}: {} -> {} ({})",
            self.change,
            or(&self.column),
            or(&self.before),
            or(&self.after),
            self.severity
        )
    }
}

/// What `diff_snapshots` says.
pub fn diff(c: &mut impl GenericClient, before: i64, after: i64) -> Vec<Row> {
    let sql = format!("SELECT * FROM pgtrickle.diff_snapshots({before}, {after})");
    let rows = c.query(&sql, &[]).unwrap_or_else(|e| panic!("{sql}\n{}", describe(&e)));
    let row = |r: &postgres::Row| Row {
        change: r.get(0),
        column: r.get(1),
        before: r.get(2),
        after: r.get(3),
        severity: r.get(4),
        similarity: r.get(5),
        detail: r.get(6),
    };
    rows.iter().map(row).collect()
}

/// The same as lines. That another relation is another one has oids as its values, and is left out.
pub fn lines(rows: &[Row]) -> Vec<String> {
    rows.iter().filter(|r| r.change != "relation_replaced").map(Row::line).collect()
}

/// Words of the changes.
pub fn words(rows: &[Row]) -> Vec<&str> {
    rows.iter().map(|r| r.change.as_str()).collect()
}

/// Records all tables whose shape is not recorded yet.
pub fn baseline(c: &mut impl GenericClient) {
    exec(c, "SELECT pgtrickle.capture_baseline(100000)");
}

/// The newest snapshot of a table of this name.
pub fn newest(c: &mut impl GenericClient, table: &str) -> i64 {
    let sql =
        format!("SELECT max(snapshot_id) FROM pgtrickle.schema_snapshots WHERE table_name = {}", lit(table));
    one::<Option<i64>>(c, &sql).unwrap_or_else(|| panic!("nothing is recorded of {table}"))
}

/// Records what is there, and gives back the newest snapshot of a table.
pub fn snap(c: &mut impl GenericClient, table: &str) -> i64 {
    baseline(c);
    newest(c, table)
}

/// The first and the last snapshot of a name.
pub fn ends(c: &mut impl GenericClient, table: &str) -> (i64, i64) {
    let ids: Vec<i64> = column(
        c,
        &format!(
            "SELECT snapshot_id FROM pgtrickle.schema_snapshots WHERE table_name = {} ORDER BY 1",
            lit(table)
        ),
    );
    assert!(ids.len() > 1, "{table}: {ids:?}");
    (ids[0], ids[ids.len() - 1])
}

/// What `schema_history` says: what, and by which command.
pub fn history(c: &mut impl GenericClient, table: &str) -> Vec<String> {
    column(c, &format!("SELECT what FROM pgtrickle.schema_history({})", lit(table)))
}

/// One row of the view `schema_drift`.
#[derive(Debug, Clone)]
pub struct Verdict {
    pub table: String,
    pub pairing: String,
    pub link: String,
    pub before: i64,
    pub after: i64,
    pub class: String,
    pub severity: String,
    pub gate: Option<String>,
    pub exonerated_by: Vec<String>,
    pub abstained: Vec<String>,
    pub evidence: Vec<String>,
}

/// Rows of `schema_drift` that a condition holds for.
pub fn verdicts(c: &mut impl GenericClient, condition: &str) -> Vec<Verdict> {
    let sql = format!(
        "SELECT schema_name || '.' || table_name, pairing, link, before, after, class, severity, gate, exonerated_by,
                abstained, evidence
         FROM pgtrickle.schema_drift WHERE {condition} ORDER BY pairing DESC, after, before"
    );
    let rows = c.query(&sql, &[]).unwrap_or_else(|e| panic!("{sql}\n{}", describe(&e)));
    let verdict = |r: &postgres::Row| Verdict {
        table: r.get(0),
        pairing: r.get(1),
        link: r.get(2),
        before: r.get(3),
        after: r.get(4),
        class: r.get(5),
        severity: r.get(6),
        gate: r.get(7),
        exonerated_by: r.get(8),
        abstained: r.get(9),
        evidence: r.get(10),
    };
    rows.iter().map(verdict).collect()
}

/// One row of `drift_report`.
#[derive(Debug, Clone)]
pub struct Tally {
    pub pairing: String,
    pub class: String,
    pub severity: String,
    pub gate: Option<String>,
    pub pairs: i64,
    pub relations: i64,
    pub abstained: Vec<String>,
    pub examples: Vec<String>,
}

/// What `drift_report` says.
pub fn report(c: &mut impl GenericClient, arguments: &str) -> Vec<Tally> {
    let sql = format!("SELECT * FROM pgtrickle.drift_report({arguments})");
    let rows = c.query(&sql, &[]).unwrap_or_else(|e| panic!("{sql}\n{}", describe(&e)));
    let tally = |r: &postgres::Row| Tally {
        pairing: r.get(0),
        class: r.get(1),
        severity: r.get(2),
        gate: r.get(3),
        pairs: r.get(4),
        relations: r.get(5),
        abstained: r.get(6),
        examples: r.get(7),
    };
    rows.iter().map(tally).collect()
}

/// `relation additive/additive own_ddl: 2 of 1`, for each row.
pub fn tally_lines(tallies: &[Tally]) -> Vec<String> {
    let line = |t: &Tally| {
        let gate = t.gate.as_deref().unwrap_or("-");
        format!("{} {}/{} {gate}: {} of {}", t.pairing, t.class, t.severity, t.pairs, t.relations)
    };
    tallies.iter().map(line).collect()
}

/// Dumps a database, and restores the dump into a new one.
pub fn copied(db: &TestDb) -> TestDb {
    let copy = bare_db();
    let done = |output: Output| {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let dump = done(db.cluster.command("pg_dump").args(["-d", &db.name]).output().expect("pg_dump"));
    let file = db.cluster.home().join(format!("{}.sql", copy.name));
    std::fs::write(&file, dump).expect("dump file");
    let path = file.to_str().expect("path");
    done(db.cluster.psql(&["-v", "ON_ERROR_STOP=1", "-q", "-d", &copy.name, "-f", path]));
    copy
}

/// Rows of an ordinary kind: `n` of them, with a key, a place of few values, and a name of many.
pub fn places(c: &mut Client, table: &str, columns: [&str; 3], order: &str) {
    let [id, place, name] = columns;
    exec(
        c,
        &format!(
            "CREATE TABLE {table} ({id} int, {place} text, {name} text);
             INSERT INTO {table} SELECT i, (ARRAY['Salta', 'Jujuy', 'Chaco', 'La Rioja'])[1 + i % 4],
               'n' || md5(i::text) FROM generate_series(1, 2000) i ORDER BY {order};
             ANALYZE {table}"
        ),
    );
}

/// The gates that ask for a command, where none is known.
pub const UNKNOWN_COMMAND: [&str; 3] = ["own_ddl", "heap_swap", "extension_script"];

/// What must hold of every account: the rows add up to the pairs of the view, each verdict is the worst of its changes, and
/// all of these are its evidence.
pub fn consistent(c: &mut Client) {
    let (tallies, all) = (report(c, ""), verdicts(c, "true"));
    assert_eq!(tallies.iter().map(|t| t.pairs).sum::<i64>(), all.len() as i64, "{tallies:#?}");
    for t in &tallies {
        let of_row = |v: &&Verdict| {
            (&v.pairing, &v.class, &v.severity, &v.gate) == (&t.pairing, &t.class, &t.severity, &t.gate)
        };
        let mine: Vec<&Verdict> = all.iter().filter(of_row).collect();
        assert_eq!(mine.len() as i64, t.pairs, "{t:#?}");
        let abstained: BTreeSet<&String> = mine.iter().flat_map(|v| &v.abstained).collect();
        assert_eq!(abstained, t.abstained.iter().collect(), "{t:#?}");
        assert!(t.relations >= 1 && t.relations <= t.pairs, "{t:#?}");
        assert_eq!(t.examples.is_empty(), t.class == "unchanged", "{t:#?}");
    }
    // The same pairs, counted by themselves: of one relation, of a name that changed hands, of one identity.
    for (pairing, count) in [
        (
            "relation",
            "SELECT count(same) FILTER (WHERE NOT ended) + count(*) FILTER (WHERE holder <> (origin, relation)::text) FROM (
               SELECT origin, relation, lag(snapshot_id) OVER of_relation AS same,
                      coalesce(lag(reason = 'drop') OVER of_relation, false) AS ended,
                      lag((origin, relation)::text) OVER (PARTITION BY schema_name, table_name ORDER BY snapshot_id) AS holder
               FROM pgtrickle.pgt_schema_snapshots
               WINDOW of_relation AS (PARTITION BY origin, relation ORDER BY snapshot_id)) x",
        ),
        (
            "identity",
            "SELECT count(earlier) FROM (
               SELECT lag(snapshot_id) OVER (PARTITION BY resource_identity ORDER BY snapshot_id) AS earlier
               FROM pgtrickle.pgt_schema_snapshots WHERE resource_identity IS NOT NULL) x",
        ),
    ] {
        let found = all.iter().filter(|v| v.pairing == pairing).count() as i64;
        assert_eq!(found, one::<i64>(c, count), "pairs by {pairing}: {all:#?}");
    }
    let rank = |severity: &str| {
        ["none", "additive", "compatible", "destructive"]
            .iter()
            .position(|s| *s == severity)
            .expect("a severity")
    };
    exec(c, "SET pg_trickle.rename_threshold = 1");
    for v in all {
        assert_eq!(v.gate.as_ref(), v.exonerated_by.first(), "{v:#?}");
        let told = diff(c, v.before, v.after);
        let no_change_of_shape = |r: &Row| {
            ["relation_replaced", "capture_changed"].contains(&r.change.as_str()) || r.similarity.is_some()
        };
        let shape: Vec<&Row> = told.iter().filter(|r| !no_change_of_shape(r)).collect();
        let worst = shape.iter().map(|r| rank(&r.severity)).max().unwrap_or(0);
        assert_eq!(rank(&v.severity), worst, "the maximum: {v:#?}\n{told:#?}");
        let noticed: BTreeSet<&str> =
            shape.iter().filter(|r| r.severity != "none").map(|r| r.detail.as_str()).collect();
        let evidence: BTreeSet<&str> = v.evidence.iter().map(String::as_str).collect();
        assert_eq!(evidence, noticed, "all evidence: {v:#?}");
    }
}
