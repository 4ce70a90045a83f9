//! Applying a delta, or the difference to a full result, to the stream table with the fewest row changes.
#![forbid(unsafe_code)]

use super::{Names, names, prefixed, row_hash, row_image, same};

/// CTEs that write, and the names of those whose rows are to be counted.
pub struct Tail {
    pub ctes: Vec<(String, String)>,
    /// Scalar subqueries that count expected but missing rows.
    pub checks: Vec<String>,
    pub inserted: String,
    pub updated: String,
    pub deleted: String,
}

/// Columns in the hash by which rows are found; an index expression over many more does not fit into the catalog.
pub const MAX_HASHED: usize = 32;

/// Makes the INSERT wait for the DELETE: a unique index of the user's must see the old row gone.
const AFTER_DELETE: &str = "(SELECT count(*) FROM del) >= 0";

/// Rows that should have been inserted and were not, as when a trigger of the user's swallowed them.
const INSERTED: &str = "(SELECT coalesce(sum(w), 0) FROM z WHERE w > 0) - (SELECT count(*) FROM ins)";

/// What the checks have found together: none of them makes up for another one.
pub fn mismatches(checks: &[String]) -> String {
    let each: Vec<String> = checks.iter().map(|check| format!("abs({check})")).collect();
    each.join(" + ")
}

/// Writes the delta `top` (columns `columns` and `w`). `key`: output positions that identify a row.
pub fn apply(top: &str, columns: &[String], key: Option<Vec<usize>>, target: &Names) -> Tail {
    let outputs: Vec<String> =
        columns.iter().enumerate().map(|(i, c)| format!("t.{c} AS c{}", i + 1)).collect();
    let mut group = prefixed("t", columns);
    let image = image(target, &|p| format!("t.{}", columns[p - 1]));
    group.extend(image.clone());
    // z: net rows; equal ones that print differently are not the same.
    let z = format!(
        "MATERIALIZED (SELECT {}, {} AS img, sum(t.w)::bigint AS w FROM {top} t GROUP BY {} HAVING sum(t.w) <> 0)",
        outputs.join(", "),
        image.as_deref().unwrap_or("NULL::bytea"),
        group.join(", ")
    );
    let mut tail = match key {
        // With unique indexes of the user's, updates in place could collide on the way: two rows that swap a value.
        Some(key) if !key.is_empty() && key.len() < columns.len() && !target.unique => {
            keyed(columns.len(), &key, target)
        }
        _ => bag(columns.len(), target),
    };
    tail.ctes.insert(0, ("z".into(), z));
    tail
}

/// The bytes of those columns by which equal rows can differ, if there are any. `column` names one by its position.
fn image(target: &Names, column: &dyn Fn(usize) -> String) -> Option<String> {
    let inexact: Vec<String> = target.inexact.iter().map(|p| column(*p)).collect();
    (!inexact.is_empty()).then(|| row_image(&inexact))
}

/// `t.<column>` for the given output positions.
fn target_columns(target: &Names, positions: &[usize]) -> Vec<String> {
    positions.iter().map(|p| format!("t.{}", target.target_columns[p - 1])).collect()
}

/// Null-safe match of target row `t` and delta row `z` on `positions`, through the hash index.
fn match_target(target: &Names, positions: &[usize]) -> String {
    let columns = target_columns(target, positions);
    let deltas: Vec<String> = positions.iter().map(|p| format!("z.c{p}")).collect();
    let terms: Vec<String> =
        columns.iter().zip(&deltas).map(|(t, z)| format!("{t} IS NOT DISTINCT FROM {z}")).collect();
    let hash = |list: &[String]| row_hash(&list[..list.len().min(MAX_HASHED)]);
    format!("{} = {} AND {}", hash(&columns), hash(&deltas), terms.join(" AND "))
}

/// The columns that are in the hash by which `apply` finds rows; the stream table's index is over it.
pub fn match_positions(columns: usize, key: Option<Vec<usize>>) -> Vec<usize> {
    let mut positions = match key {
        Some(key) if !key.is_empty() && key.len() < columns => key,
        _ => (1..=columns).collect(),
    };
    positions.truncate(MAX_HASHED);
    positions
}

fn bag(n: usize, target: &Names) -> Tail {
    let all: Vec<usize> = (1..=n).collect();
    let table = &target.target;
    // The row that prints the same first, then one that is equal: a query may print either, and print another next time.
    let exact = image(target, &|p| format!("t.{}", target.target_columns[p - 1]));
    let first = exact.map_or(String::new(), |image| format!(" ORDER BY {image} = z.img DESC"));
    let found = format!(
        "MATERIALIZED (SELECT t.ctid AS tid, z.w, row_number() OVER (PARTITION BY {}, z.img{first}) AS n FROM z JOIN {table} t ON {} WHERE z.w < 0)",
        prefixed("z", &names(n)).join(", "),
        match_target(target, &all)
    );
    let delete =
        format!("(DELETE FROM {table} t USING zd WHERE t.ctid = zd.tid AND zd.n <= -zd.w RETURNING 1)");
    let insert = format!(
        "(INSERT INTO {table} ({}) SELECT {} FROM z, pg_catalog.generate_series(1, z.w) WHERE z.w > 0 AND {AFTER_DELETE} RETURNING 1)",
        target.target_columns.join(", "),
        prefixed("z", &names(n)).join(", ")
    );
    Tail {
        ctes: vec![
            ("zd".into(), found),
            ("del".into(), delete),
            ("ins".into(), insert),
            ("upd".into(), "(SELECT 1 WHERE false)".into()),
        ],
        checks: vec![
            "(SELECT coalesce(sum(-w), 0) FROM z WHERE w < 0) - (SELECT count(DISTINCT tid) FROM zd WHERE n <= -w)"
                .into(),
            INSERTED.into(),
        ],
        inserted: "ins".into(),
        updated: "upd".into(),
        deleted: "del".into(),
    }
}

fn keyed(n: usize, key: &[usize], target: &Names) -> Tail {
    let keys: Vec<String> = key.iter().map(|p| format!("c{p}")).collect();
    // Of a key, equal values that print differently are written as well.
    let rest: Vec<usize> = (1..=n).filter(|p| !key.contains(p) || target.inexact.contains(p)).collect();
    let renamed =
        |alias: &str| -> Vec<String> { rest.iter().map(|p| format!("{alias}.c{p} AS n{p}")).collect() };
    let table = &target.target;
    let matched = match_target(target, key);
    let hash = |alias: &str| row_hash(&prefixed(alias, &keys));
    let pair = format!("{} = {} AND {}", hash("n"), hash("o"), same("n", "o", &keys));
    let all = names(n);
    // zp: old keys, numbered, with the new row where one takes its place.
    let pairs = format!(
        "MATERIALIZED (SELECT row_number() OVER () AS pair, {}, n.w AS nw, {} FROM (SELECT * FROM z WHERE w < 0) o LEFT JOIN (SELECT * FROM z WHERE w > 0) n ON {pair})",
        key.iter().map(|p| format!("o.c{p}")).collect::<Vec<_>>().join(", "),
        renamed("n").join(", "),
    );
    let found = format!(
        "MATERIALIZED (SELECT t.ctid AS tid, z.pair, z.nw, {} FROM zp z JOIN {table} t ON {matched})",
        rest.iter().map(|p| format!("z.n{p}")).collect::<Vec<_>>().join(", ")
    );
    let set: Vec<String> =
        rest.iter().map(|p| format!("{} = zt.n{p}", target.target_columns[p - 1])).collect();
    let update = format!(
        "(UPDATE {table} t SET {} FROM zt WHERE t.ctid = zt.tid AND zt.nw IS NOT NULL RETURNING 1)",
        set.join(", ")
    );
    let delete =
        format!("(DELETE FROM {table} t USING zt WHERE t.ctid = zt.tid AND zt.nw IS NULL RETURNING 1)");
    let insert = format!(
        "(INSERT INTO {table} ({}) SELECT {} FROM z n WHERE n.w > 0 AND NOT EXISTS (SELECT FROM z o WHERE o.w < 0 AND {pair}) AND {AFTER_DELETE} RETURNING 1)",
        target.target_columns.join(", "),
        prefixed("n", &all).join(", ")
    );
    Tail {
        ctes: vec![
            ("zp".into(), pairs),
            ("zt".into(), found),
            ("upd".into(), update),
            ("del".into(), delete),
            ("ins".into(), insert),
        ],
        checks: vec![
            // A row that is missing and one that is there twice are two mismatches.
            "(SELECT count(*) FROM zp) - (SELECT count(DISTINCT pair) FROM zt)".into(),
            "(SELECT count(*) - count(DISTINCT pair) FROM zt)".into(),
            "(SELECT count(*) FROM z WHERE abs(w) <> 1)".into(),
            "(SELECT count(*) FROM zt WHERE nw IS NOT NULL) - (SELECT count(*) FROM upd)".into(),
            "(SELECT count(*) FROM zt WHERE nw IS NULL) - (SELECT count(*) FROM del)".into(),
            "(SELECT count(*) FROM z WHERE w > 0) - (SELECT count(*) FROM zp WHERE nw IS NOT NULL) \
             - (SELECT count(*) FROM ins)"
                .into(),
        ],
        inserted: "ins".into(),
        updated: "upd".into(),
        deleted: "del".into(),
    }
}

/// Full refresh: the net difference between `query` (columns by position) and the stream table, applied. Needs types
/// that can be hashed and compared.
pub fn full(query: &str, target: &Names) -> String {
    let n = target.target_columns.len();
    let new: Vec<String> = names(n);
    let old: Vec<String> =
        target.target_columns.iter().enumerate().map(|(i, c)| format!("t.{c} AS c{}", i + 1)).collect();
    let diff = format!(
        "(SELECT {cols}, 1 AS w FROM ({query}) q ({cols}) UNION ALL SELECT {}, -1 FROM {} t)",
        old.join(", "),
        target.target,
        cols = new.join(", "),
    );
    let tail = apply("d", &new, None, target);
    let mut ctes = vec![("d".to_string(), diff)];
    ctes.extend(tail.ctes);
    let with: Vec<String> = ctes.iter().map(|(name, sql)| format!("{name} AS {sql}")).collect();
    format!(
        "WITH {}\nSELECT (SELECT count(*) FROM ins), (SELECT count(*) FROM upd), (SELECT count(*) FROM del), {}",
        with.join(",\n"),
        mismatches(&tail.checks)
    )
}

/// Full refresh for output types without equality or hashing: rows are compared by what they are made of.
pub fn full_by_image(query: &str, target: &Names) -> String {
    let table = &target.target;
    let new = names(target.target_columns.len());
    let columns = target.target_columns.join(", ");
    let old_image = row_image(&prefixed("t", &target.target_columns));
    let new_image = row_image(&prefixed("q", &new));
    // Rows of one image are numbered on both sides: what has no partner leaves or enters.
    let partner = |of: &str, alias: &str| {
        format!("NOT EXISTS (SELECT FROM {of} x WHERE x.img = {alias}.img AND x.n = {alias}.n)")
    };
    format!(
        "WITH o AS MATERIALIZED (SELECT t.ctid AS tid, {old_image} AS img, row_number() OVER (PARTITION BY {old_image}) AS n \
           FROM {table} t), \
         q AS MATERIALIZED (SELECT q.*, {new_image} AS img, row_number() OVER (PARTITION BY {new_image}) AS n \
           FROM ({query}) q ({})), \
         del AS (DELETE FROM {table} t USING o WHERE t.ctid = o.tid AND {} RETURNING 1), \
         ins AS (INSERT INTO {table} ({columns}) SELECT {} FROM q WHERE {} AND {AFTER_DELETE} RETURNING 1)\n\
         SELECT (SELECT count(*) FROM ins), 0, (SELECT count(*) FROM del), \
           (SELECT count(*) FROM q WHERE {}) - (SELECT count(*) FROM ins)",
        new.join(", "),
        partner("q", "o"),
        prefixed("q", &new).join(", "),
        partner("o", "q"),
        partner("o", "q"),
    )
}
