//! Contents of an operator now, computed from the tables alone: what `full` reads and what state tables start from.
#![forbid(unsafe_code)]

use super::aggregate::{init_select, output_exprs};
use super::{Names, Op, prefixed};

/// A SELECT of all rows of `op` at the statement's snapshot.
pub fn contents(op: &Op, names: &Names) -> String {
    match op {
        Op::Scan { rel, only, cols } => names.scan(*rel, *only, cols),
        Op::Spj(s) => {
            let from: Vec<(u32, String)> =
                s.inputs.iter().map(|(alias, input)| (*alias, contents(input, names))).collect();
            spj_select(&named(&s.exprs), &s.quals, &from)
        }
        Op::UnionAll(inputs) => {
            let parts: Vec<String> = inputs.iter().map(|i| positional(i, &contents(i, names))).collect();
            parts.join(" UNION ALL ")
        }
        Op::Aggregate(a) => {
            let inner = init_select(a, &contents(&a.input, names), "");
            format!("SELECT {} FROM ({inner}) s", named(&output_exprs(a, "s")))
        }
    }
}

/// The expressions as a select list `e1 AS c1, …`.
pub fn named(exprs: &[String]) -> String {
    let list: Vec<String> = exprs.iter().enumerate().map(|(i, e)| format!("{e} AS c{}", i + 1)).collect();
    list.join(", ")
}

/// `SELECT list FROM (input) r<i>, … WHERE quals`.
pub fn spj_select(list: &str, quals: &[String], from: &[(u32, String)]) -> String {
    let tables: Vec<String> = from.iter().map(|(alias, sql)| format!("({sql}) r{alias}")).collect();
    let mut sql = format!("SELECT {list} FROM {}", tables.join(", "));
    if !quals.is_empty() {
        let all: Vec<String> = quals.iter().map(|q| format!("({q})")).collect();
        sql.push_str(&format!(" WHERE {}", all.join(" AND ")));
    }
    sql
}

/// Renames the columns of a subquery to `c1…` by position, so that union inputs line up.
pub fn positional(op: &Op, sql: &str) -> String {
    format!("SELECT {} FROM ({sql}) u", named(&prefixed("u", &op.columns())))
}
