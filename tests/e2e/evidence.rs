//! What tests of recorded schema snapshots share: snapshots as the view shows them, and what `health_check()` counts.

use crate::common::*;
use crate::support::{Failure, Notices};
use postgres::{Client, GenericClient};
use serde_json::Value;

/// One row of `pgtrickle.schema_snapshots`.
#[derive(Debug, Clone)]
pub struct Shot {
    pub id: i64,
    pub schema: String,
    pub table: String,
    pub relation: u32,
    pub reason: String,
    pub moment: Option<String>,
    pub alive: bool,
    pub hash: String,
    pub column_count: i32,
    pub rows: Option<i64>,
    pub stats: bool,
    pub columns: Value,
    pub details: Value,
    pub actor: String,
    pub tag: Option<String>,
    pub statement: Option<String>,
    pub application: Option<String>,
    pub identity: Option<String>,
}

impl Shot {
    /// Names of the columns, in order.
    pub fn names(&self) -> Vec<&str> {
        self.columns
            .as_array()
            .expect("columns are an array")
            .iter()
            .map(|c| c["name"].as_str().expect("a name"))
            .collect()
    }

    /// One column.
    pub fn column(&self, name: &str) -> &Value {
        let all = self.columns.as_array().expect("columns are an array");
        all.iter().find(|c| c["name"] == name).unwrap_or_else(|| panic!("no column {name}: {self:#?}"))
    }

    /// The profile of one column, which must have one.
    pub fn profile(&self, name: &str) -> &Value {
        let column = self.column(name);
        assert!(column["profile"].is_object(), "{name} has no profile: {column:#}");
        &column["profile"]
    }

    /// Why a column has no profile.
    pub fn absent(&self, name: &str) -> &str {
        let column = self.column(name);
        column["profile_absent"].as_str().unwrap_or_else(|| panic!("{name} has a profile: {column:#}"))
    }

    /// All values that are kept of one column.
    pub fn values(&self, name: &str) -> Vec<&str> {
        let profile = self.profile(name);
        ["most_common_values", "histogram"].iter().flat_map(|key| texts(&profile[*key])).collect()
    }
}

/// Texts of a JSON array; none when it is absent.
pub fn texts(array: &Value) -> Vec<&str> {
    array.as_array().into_iter().flatten().map(|v| v.as_str().expect("a text")).collect()
}

/// Snapshots that a condition holds for, oldest first.
pub fn shots(c: &mut impl GenericClient, condition: &str) -> Vec<Shot> {
    let sql = format!(
        "SELECT snapshot_id, schema_name, table_name, relation, reason, moment, alive, schema_hash, column_count,
                row_estimate, stats_available, columns::text, details::text, actor, command_tag, statement, application,
                resource_identity
         FROM pgtrickle.schema_snapshots WHERE {condition} ORDER BY snapshot_id"
    );
    let rows = c.query(&sql, &[]).unwrap_or_else(|e| panic!("{sql}\n{}", crate::support::describe(&e)));
    let json = |text: String| serde_json::from_str(&text).expect("JSON");
    rows.iter()
        .map(|r| Shot {
            id: r.get(0),
            schema: r.get(1),
            table: r.get(2),
            relation: r.get(3),
            reason: r.get(4),
            moment: r.get(5),
            alive: r.get(6),
            hash: r.get(7),
            column_count: r.get(8),
            rows: r.get(9),
            stats: r.get(10),
            columns: json(r.get(11)),
            details: json(r.get(12)),
            actor: r.get(13),
            tag: r.get(14),
            statement: r.get(15),
            application: r.get(16),
            identity: r.get(17),
        })
        .collect()
}

/// Snapshots of tables with this name, oldest first.
pub fn shots_of(c: &mut impl GenericClient, table: &str) -> Vec<Shot> {
    shots(c, &format!("table_name = {}", lit(table)))
}

/// The one snapshot of a drop of a table with this name.
pub fn dropped(c: &mut impl GenericClient, table: &str) -> Shot {
    let mut found = shots(c, &format!("table_name = {} AND reason = 'drop'", lit(table)));
    assert_eq!(found.len(), 1, "drops of {table}: {found:#?}");
    let shot = found.remove(0);
    assert!(!shot.alive, "{shot:#?}");
    shot
}

/// Names of all tables of which a drop is recorded, in order of their names.
pub fn all_dropped(c: &mut impl GenericClient) -> Vec<String> {
    column(
        c,
        "SELECT schema_name || '.' || table_name FROM pgtrickle.schema_snapshots WHERE reason = 'drop' ORDER BY 1",
    )
}

/// How many snapshots there are.
pub fn count(c: &mut impl GenericClient) -> i64 {
    one(c, "SELECT count(*) FROM pgtrickle.pgt_schema_snapshots")
}

/// Is there a table of this name?
pub fn exists(c: &mut impl GenericClient, table: &str) -> bool {
    one(c, &format!("SELECT to_regclass({}) IS NOT NULL", lit(table)))
}

/// Status and detail of the line about snapshots in `health_check()`.
pub fn health(c: &mut impl GenericClient) -> (String, String) {
    let row = c
        .query_one(
            "SELECT status, detail FROM pgtrickle.health_check() WHERE \"check\" = 'schema snapshots'",
            &[],
        )
        .unwrap_or_else(|e| panic!("health_check: {}", crate::support::describe(&e)));
    (row.get(0), row.get(1))
}

/// How many missing snapshots `health_check()` counts.
pub fn missing(c: &mut impl GenericClient) -> i64 {
    let (status, detail) = health(c);
    let number = detail.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    assert_eq!(status == "OK", number == 0, "{status} {detail}");
    number
}

/// WARNINGs that a snapshot is missing, since the last call. There must be no others, but for those about stream tables.
pub fn warnings(notices: &Notices) -> Vec<Failure> {
    let all = notices.take().into_iter();
    all.filter(|(severity, w)| severity == "WARNING" && !w.message.starts_with("stream table "))
        .map(|(_, warning)| {
            assert!(warning.detail.starts_with("reason=SNAPSHOT_FAILED: "), "{warning:?}");
            assert!(warning.hint.contains("health_check()"), "{warning:?}");
            warning
        })
        .collect()
}

/// The one WARNING that a snapshot is missing.
pub fn warning(notices: &Notices) -> Failure {
    let mut all = warnings(notices);
    assert_eq!(all.len(), 1, "one WARNING: {all:#?}");
    all.remove(0)
}

/// A table whose columns have statistics of every kind: few common values, a histogram, NULLs.
pub fn people(c: &mut Client, name: &str) {
    exec(
        c,
        &format!(
            "CREATE TABLE {name} (id int PRIMARY KEY, city text NOT NULL, born date, weight float8);
             INSERT INTO {name} SELECT i, (ARRAY['Oslo', 'Lima', 'Quito', 'Perth'])[1 + i % 4],
               CASE WHEN i % 5 > 0 THEN date '1990-01-01' + i END, i / 7.0 FROM generate_series(1, 400) i;
             ANALYZE {name}"
        ),
    );
}

/// Runs `body` (PL/pgSQL) whenever a row of a table of ours is stored; `value` is its text in `column`. Such a table has no
/// triggers, but an index over an expression is computed for each row. DROP INDEX ends it.
pub fn on_store(c: &mut Client, name: &str, table: &str, column: &str, body: &str) {
    exec(
        c,
        &format!(
            "CREATE FUNCTION {name}(value text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $fault$ BEGIN
               -- Not for the rows that are there when the index is made.
               IF EXISTS (SELECT FROM pg_catalog.pg_indexes WHERE indexname = '{name}') THEN {body}; END IF;
               RETURN true; END $fault$;
             CREATE INDEX {name} ON pgtrickle.{table} ({name}({column}))"
        ),
    );
}

/// Begins a transaction that has a table of ours all to itself.
pub fn lock_out(c: &mut Client, tables: &[&str]) {
    exec(c, "BEGIN");
    for table in tables {
        exec(c, &format!("ALTER MATERIALIZED VIEW pgtrickle.{table} OWNER TO CURRENT_USER"));
    }
}

/// Takes all rows of a table of ours away.
pub fn empty(c: &mut Client, table: &str) {
    exec(
        c,
        &format!(
            "REFRESH MATERIALIZED VIEW pgtrickle.{table} WITH NO DATA; REFRESH MATERIALIZED VIEW pgtrickle.{table}"
        ),
    );
}
