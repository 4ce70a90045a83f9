//! Aggregates: their state columns, how a delta changes them, and when a group must be computed anew.
//!
//! A state table has `h` (hash of the keys) and, as an image, the keys `c1..ck`, `cnt` (rows in the group) and per aggregate `i`:
//! `n<i>` non-null values, `s<i>` their sum, `lo<i>`/`hi<i>` the smallest and largest display scale among them, `m<i>`
//! an extreme or a recomputed value.
#![forbid(unsafe_code)]

use super::{Agg, Aggregate, Func, Num, names, row_hash};

/// One state column: its name and the expression that computes it from all input rows `i` of a group.
struct Part {
    name: String,
    init: String,
}

fn parts(n: usize, agg: &Agg) -> Vec<Part> {
    let c = format!("i.c{}", agg.col);
    let part = |name: &str, init: String| Part { name: format!("{name}{n}"), init };
    let count = || part("n", format!("count({c})"));
    match &agg.func {
        Func::CountStar => vec![],
        Func::Count => vec![count()],
        Func::Sum(Num::Int) | Func::Avg(Num::Int) => {
            vec![count(), part("s", format!("coalesce(sum({c}::bigint), 0)::bigint"))]
        }
        Func::Sum(Num::Big) | Func::Avg(Num::Big) => {
            vec![count(), part("s", format!("coalesce(sum({c}::numeric), 0)"))]
        }
        Func::Sum(Num::Numeric) | Func::Avg(Num::Numeric) => vec![
            count(),
            part("s", format!("coalesce(sum({c}), 0)")),
            part("lo", format!("min(scale({c}))")),
            part("hi", format!("max(scale({c}))")),
        ],
        Func::Min => vec![part("m", format!("min({c})"))],
        Func::Max => vec![part("m", format!("max({c})"))],
        Func::Recompute(call) => vec![part("m", format!("{call}({c})"))],
    }
}

/// Names of all state columns after the keys and `cnt`.
pub fn state_columns(a: &Aggregate) -> Vec<String> {
    a.aggs.iter().enumerate().flat_map(|(n, agg)| parts(n, agg)).map(|p| p.name).collect()
}

/// Names of the columns that a state table stores of a group: the keys, `cnt`, and those of the aggregates.
pub fn stored_columns(a: &Aggregate) -> Vec<String> {
    names(a.keys).into_iter().chain(std::iter::once("cnt".to_string())).chain(state_columns(a)).collect()
}

/// Keys, `cnt` and state columns for all groups of `input`; `join` restricts the groups.
pub fn init_select(a: &Aggregate, input: &str, join: &str) -> String {
    let keys: Vec<String> = names(a.keys).iter().map(|c| format!("i.{c}")).collect();
    let mut list: Vec<String> = names(a.keys).iter().map(|c| format!("i.{c} AS {c}")).collect();
    list.push("count(*) AS cnt".into());
    for (n, agg) in a.aggs.iter().enumerate() {
        list.extend(parts(n, agg).into_iter().map(|p| format!("{} AS {}", p.init, p.name)));
    }
    let group = if keys.is_empty() { String::new() } else { format!(" GROUP BY {}", keys.join(", ")) };
    format!("SELECT {} FROM ({input}) i{join}{group}", list.join(", "))
}

/// The select list that fills a state table from `init_select(..) s`.
pub fn fill_list(a: &Aggregate) -> String {
    let keys: Vec<String> = names(a.keys).iter().map(|c| format!("s.{c}")).collect();
    let mut list = vec![format!("{} AS h", key_hash(&keys))];
    list.extend(keys);
    list.push("s.cnt".into());
    list.extend(state_columns(a).iter().map(|c| format!("s.{c}")));
    list.join(", ")
}

/// Hash of the keys; of none, a constant.
pub fn key_hash(keys: &[String]) -> String {
    if keys.is_empty() { "0::bigint".into() } else { row_hash(keys) }
}

/// Output expressions from a row `alias` that has keys and state columns under their own names.
pub fn output_exprs(a: &Aggregate, alias: &str) -> Vec<String> {
    output_exprs_by(a, &|c| format!("{alias}.{c}"))
}

/// Output expressions, state columns being reached through `col`.
pub fn output_exprs_by(a: &Aggregate, col: &dyn Fn(&str) -> String) -> Vec<String> {
    let keys = names(a.keys).into_iter().map(|c| col(&c));
    let aggs = a.aggs.iter().enumerate().map(|(n, agg)| {
        let (num, sum, value) = (col(&format!("n{n}")), col(&format!("s{n}")), col(&format!("m{n}")));
        match &agg.func {
            Func::CountStar => col("cnt"),
            Func::Count => num,
            Func::Sum(_) => format!("CASE WHEN {num} > 0 THEN {sum} END"),
            Func::Avg(_) => format!("CASE WHEN {num} > 0 THEN {sum}::numeric / {num}::numeric END"),
            Func::Min | Func::Max | Func::Recompute(_) => value,
        }
    });
    keys.chain(aggs).collect()
}

/// What one aggregate contributes to the maintenance statement.
pub struct Step {
    /// Columns of the per-group delta, over net input rows `i` with weight `i.w`.
    pub delta: Vec<String>,
    /// (state column, its new value) over `g` (delta) and `s` (old state, all NULL for a new group).
    pub new: Vec<(String, String)>,
    /// Condition over `g` and `s` under which `new` can't be trusted and the group is computed anew.
    pub recompute: Option<String>,
}

/// The step of aggregate number `n`.
pub fn step(n: usize, agg: &Agg) -> Step {
    let c = format!("i.c{}", agg.col);
    let count = format!("(sum(i.w) FILTER (WHERE {c} IS NOT NULL))::bigint AS n{n}");
    let new_count = format!("coalesce(s.n{n}, 0) + coalesce(g.n{n}, 0)");
    let new_sum = format!("coalesce(s.s{n}, 0) + coalesce(g.s{n}, 0)");
    match &agg.func {
        Func::CountStar => Step { delta: vec![], new: vec![], recompute: None },
        Func::Count => Step { delta: vec![count], new: vec![(format!("n{n}"), new_count)], recompute: None },
        Func::Sum(num @ (Num::Int | Num::Big)) | Func::Avg(num @ (Num::Int | Num::Big)) => {
            let sum = match num {
                Num::Int => format!("sum({c}::bigint * i.w)::bigint AS s{n}"),
                _ => format!("sum({c}::numeric * i.w) AS s{n}"),
            };
            Step {
                delta: vec![count, sum],
                new: vec![(format!("n{n}"), new_count), (format!("s{n}"), new_sum)],
                recompute: None,
            }
        }
        Func::Sum(Num::Numeric) | Func::Avg(Num::Numeric) => {
            let empty = format!("{new_count} = 0");
            Step {
                delta: vec![
                    count,
                    format!("sum({c} * i.w) AS s{n}"),
                    format!("min(scale({c})) AS lo{n}"),
                    format!("max(scale({c})) AS hi{n}"),
                    format!("bool_or(i.w < 0 AND {c} IS NOT NULL) AS neg{n}"),
                ],
                new: vec![
                    (format!("n{n}"), new_count.clone()),
                    (format!("s{n}"), format!("CASE WHEN {empty} THEN 0 ELSE {new_sum} END")),
                    (
                        format!("lo{n}"),
                        format!("CASE WHEN {empty} THEN NULL ELSE least(s.lo{n}, g.lo{n}) END"),
                    ),
                    (
                        format!("hi{n}"),
                        format!("CASE WHEN {empty} THEN NULL ELSE greatest(s.hi{n}, g.hi{n}) END"),
                    ),
                ],
                // The sum's display scale is that of its widest value, and NaN or infinity can't be
                // subtracted: with a loss among values of mixed scale, only the values themselves tell.
                recompute: Some(format!(
                    "g.neg{n} AND {new_count} <> 0 AND (least(s.lo{n}, g.lo{n}) <> greatest(s.hi{n}, g.hi{n}) \
                     OR s.s{n} IS NOT NULL AND scale(s.s{n}) IS NULL OR g.s{n} IS NOT NULL AND scale(g.s{n}) IS NULL)"
                )),
            }
        }
        Func::Min | Func::Max => {
            let (f, pick, beats) = match agg.func {
                Func::Min => ("min", "least", "<="),
                _ => ("max", "greatest", ">="),
            };
            Step {
                delta: vec![
                    format!("{f}({c}) FILTER (WHERE i.w > 0) AS ins{n}"),
                    format!("{f}({c}) FILTER (WHERE i.w < 0) AS del{n}"),
                ],
                new: vec![(format!("m{n}"), format!("{pick}(s.m{n}, g.ins{n})"))],
                recompute: Some(format!(
                    "g.del{n} {beats} s.m{n} AND (g.ins{n} IS NULL OR NOT g.ins{n} {beats} s.m{n})"
                )),
            }
        }
        Func::Recompute(_) => Step {
            delta: vec![],
            new: vec![(format!("m{n}"), format!("s.m{n}"))],
            recompute: Some("true".into()),
        },
    }
}
