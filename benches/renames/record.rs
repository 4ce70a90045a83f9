//! Makes the scenarios of `scenarios.txt` on a server and takes the profiles of both sides.

use std::collections::BTreeMap;

use postgres::Client;

use crate::evaluation::{Case, Column};
use crate::support::Cluster;
use crate::tpch::{self, run};
use pgtrickle::snapshot::profile::{ColumnProfile, Common, bounded, shares, spaced};

const MASTERS: &str = include_str!("masters.sql");
const SCENARIOS: &str = include_str!("scenarios.txt");

/// TPC-H tables get an age order as well; the key is it.
const TPCH_KEYS: [(&str, &str); 6] = [
    ("orders", "o_orderkey"),
    ("lineitem", "l_orderkey, l_linenumber"),
    ("customer", "c_custkey"),
    ("part", "p_partkey"),
    ("partsupp", "ps_partkey, ps_suppkey"),
    ("supplier", "s_suppkey"),
];

/// All cases, with profiles that were just gathered.
pub fn cases(cluster: &Cluster) -> Vec<Case> {
    cluster.create_db("renames");
    let mut client = cluster.connect("renames");
    run(&mut client, "CREATE SCHEMA tpch; SET search_path = tpch");
    tpch::load(&mut client, |_, _| {});
    run(&mut client, "SET search_path = public");
    for (table, key) in TPCH_KEYS {
        let sql = format!(
            "CREATE TABLE {table} AS SELECT row_number() OVER (ORDER BY {key}) AS seq, * FROM tpch.{table}"
        );
        run(&mut client, &sql);
    }
    run(&mut client, MASTERS);
    scenarios().iter().map(|scenario| case(&mut client, scenario)).collect()
}

/// One line of `scenarios.txt`.
struct Scenario {
    name: String,
    half: String,
    table: String,
    /// `same`, `more`, `nextday`, `never`.
    rows: String,
    alike: Vec<String>,
    steps: Vec<Step>,
}

/// What happens to one column.
enum Step {
    Renamed {
        before: String,
        after: String,
        expression: String,
    },
    Removed(String),
    Added {
        name: String,
        expression: String,
    },
    /// A name on both sides, and the column whose values it holds afterwards.
    Kept {
        name: String,
        holds: String,
    },
}

fn scenarios() -> Vec<Scenario> {
    let (mut half, mut alike, mut found) = (String::new(), Vec::new(), Vec::new());
    for line in SCENARIOS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (word, rest) = line.split_once(' ').unwrap_or_else(|| panic!("one word alone: {line}"));
        match word {
            "half" => half = rest.to_string(),
            "table" => alike.clear(),
            "alike" => alike = rest.split(' ').map(str::to_string).collect(),
            table => {
                let (rows, steps) = rest.split_once(": ").unwrap_or_else(|| panic!("no steps: {line}"));
                found.push(Scenario {
                    name: format!("{table} {}", found.len() + 1),
                    half: half.clone(),
                    table: table.to_string(),
                    rows: rows.to_string(),
                    alike: alike.clone(),
                    steps: steps.split("; ").map(step).collect(),
                });
            }
        }
    }
    found
}

fn step(text: &str) -> Step {
    let own = |text: &str| text.trim().to_string();
    // Name and expression; a name alone is its own expression.
    let loaded = |text: &str, default: Option<&str>| match text.split_once(" = ") {
        Some((name, expression)) => (own(name), own(expression)),
        None => (own(text), own(default.unwrap_or(text))),
    };
    if let Some(name) = text.strip_prefix("- ") {
        return Step::Removed(own(name));
    }
    if let Some(rest) = text.strip_prefix("+ ") {
        let (name, expression) = loaded(rest, None);
        return Step::Added { name, expression };
    }
    if let Some(name) = text.strip_prefix("= ") {
        return Step::Kept { name: own(name), holds: own(name) };
    }
    if let Some((name, holds)) = text.split_once(" <= ") {
        return Step::Kept { name: own(name), holds: own(holds) };
    }
    let (before, rest) = text.split_once(" -> ").unwrap_or_else(|| panic!("not a step: {text}"));
    let (after, expression) = loaded(rest, Some(before));
    Step::Renamed { before: own(before), after, expression }
}

fn case(client: &mut Client, scenario: &Scenario) -> Case {
    let (mut old, mut new) = (Vec::new(), Vec::new());
    for step in &scenario.steps {
        match step {
            Step::Renamed { before, after, expression } => {
                old.push((before, before));
                new.push((after, expression));
            }
            Step::Removed(name) => old.push((name, name)),
            Step::Added { name, expression } => new.push((name, expression)),
            Step::Kept { name, holds } => {
                old.push((name, name));
                new.push((name, holds));
            }
        }
    }
    let last: i64 = client
        .query_one(&format!("SELECT max(seq)::bigint FROM {}", scenario.table), &[])
        .unwrap_or_else(|e| panic!("{}: {e}", scenario.table))
        .get(0);
    let part = last / 20;
    let (from, to) = match scenario.rows.as_str() {
        "same" | "never" => ((0, last), (0, last)),
        "more" => ((0, last - part), (0, last)),
        "nextday" => ((0, last - part), (part, last)),
        other => panic!("rows: {other}"),
    };
    load(client, &scenario.table, "earlier", &old, from);
    let (rows_before, before) = profiles(client, "earlier");
    load(client, &scenario.table, "later", &new, to);
    if scenario.rows == "never" {
        run(client, "DELETE FROM pg_statistic WHERE starelid = 'later'::regclass");
        run(client, "UPDATE pg_class SET reltuples = -1 WHERE oid = 'later'::regclass");
    }
    let (rows_after, after) = profiles(client, "later");
    assemble(scenario, (rows_before, rows_after), before, after)
}

/// A table with these columns of those rows in an order of its own, analysed.
fn load(
    client: &mut Client,
    from: &str,
    table: &str,
    columns: &[(&String, &String)],
    (low, high): (i64, i64),
) {
    let list: Vec<String> = columns.iter().map(|(name, of)| format!("{of} AS {name}")).collect();
    run(
        client,
        &format!(
            "DROP TABLE IF EXISTS {table}; \
             CREATE TABLE {table} AS SELECT {} FROM {from} WHERE seq > {low} AND seq <= {high} ORDER BY random(); \
             ANALYZE {table}",
            list.join(", ")
        ),
    );
}

fn assemble(
    scenario: &Scenario,
    rows: (Option<i64>, Option<i64>),
    mut before: BTreeMap<String, Column>,
    mut after: BTreeMap<String, Column>,
) -> Case {
    let numbers: BTreeMap<String, i16> = before.iter().map(|(name, c)| (name.clone(), c.attnum)).collect();
    let mut take = |side: bool, name: &str, holds: &str, origin: Option<&str>| -> Column {
        let columns = if side { &mut after } else { &mut before };
        let mut column = columns.remove(name).unwrap_or_else(|| panic!("{}: no {name}", scenario.name));
        column.holds = holds.to_string();
        column.origin = origin.map(|origin| numbers[origin]);
        column
    };
    let mut case = Case {
        name: format!("{} {}", scenario.name, scenario.rows),
        half: scenario.half.clone(),
        rows,
        before: Vec::new(),
        after: Vec::new(),
        kept: Vec::new(),
        alike: scenario.alike.clone(),
    };
    for step in &scenario.steps {
        match step {
            Step::Renamed { before, after, .. } => {
                case.before.push(take(false, before, before, None));
                case.after.push(take(true, after, before, Some(before)));
            }
            Step::Removed(name) => case.before.push(take(false, name, name, None)),
            Step::Added { name, .. } => case.after.push(take(true, name, name, None)),
            Step::Kept { name, holds } => {
                let old = take(false, name, name, None);
                case.kept.push((old, take(true, name, holds, Some(holds))));
            }
        }
    }
    case
}

/// Rows and profiles by name of one table: the one place that knows where profiles come from.
fn profiles(client: &mut Client, table: &str) -> (Option<i64>, BTreeMap<String, Column>) {
    let sql = "
SELECT a.attnum, a.attname::text, n.nspname || '.' || t.typname, t.typtype::text,
       CASE WHEN c.reltuples >= 0 THEN c.reltuples::bigint END,
       s.null_frac, s.avg_width, s.n_distinct, s.correlation,
       s.most_common_vals::text::text[], s.most_common_freqs, s.histogram_bounds::text::text[]
FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid
JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_namespace n ON n.oid = t.typnamespace
LEFT JOIN (SELECT * FROM pg_stats WHERE schemaname = 'public' AND tablename = $1 OFFSET 0) s ON s.attname = a.attname
WHERE a.attrelid = ('public.' || quote_ident($1))::regclass AND a.attnum > 0 AND NOT a.attisdropped";
    let rows = client.query(sql, &[&table]).unwrap_or_else(|e| panic!("profiles of {table}: {e}"));
    let estimate = rows.first().and_then(|row| row.get(4));
    let column = |row: &postgres::Row| {
        let (common, common_fraction, histogram) = kept_values(
            row.get::<_, Option<Vec<String>>>(9).unwrap_or_default(),
            row.get::<_, Option<Vec<f32>>>(10).unwrap_or_default(),
            row.get::<_, Option<Vec<String>>>(11).unwrap_or_default(),
        );
        let profile = ColumnProfile {
            null_fraction: row.get::<_, Option<f32>>(5).unwrap_or_default(),
            average_width: row.get::<_, Option<i32>>(6).unwrap_or_default(),
            distinct: row.get::<_, Option<f32>>(7).unwrap_or_default(),
            correlation: row.get(8),
            common,
            common_fraction,
            histogram,
            positions: Vec::new(),
        };
        let name: String = row.get(1);
        let type_kind = row.get::<_, String>(3).chars().next().unwrap_or('b');
        let (attnum, type_name) = (row.get(0), row.get(2));
        (
            name.clone(),
            Column { attnum, name, type_name, type_kind, holds: String::new(), origin: None, profile },
        )
    };
    (estimate, rows.iter().map(column).collect())
}

/// What a profile keeps of the values that ANALYZE has.
fn kept_values(
    values: Vec<String>,
    frequencies: Vec<f32>,
    bounds: Vec<String>,
) -> (Vec<Common>, f32, Vec<String>) {
    let (common, quantiles) = shares(values.len(), bounds.len());
    let kept = values.iter().zip(&frequencies).take(common);
    // Six digits are more than a sample of 30,000 rows knows, and make the recorded file a tenth smaller.
    let rounded = |share: f32| (share * 1e6).round() / 1e6;
    let kept =
        kept.map(|(value, share)| Common { value: bounded(value).to_string(), frequency: rounded(*share) });
    let histogram = spaced(bounds.len(), quantiles).into_iter().map(|at| bounded(&bounds[at]).to_string());
    (kept.collect(), rounded(frequencies.iter().sum()), histogram.collect())
}
