//! Differential view maintenance: the operator tree and the SQL that keeps a table equal to it. Pure.
//!
//! Every operator's output columns are called `c<n>`: a scan's by attribute number, all others' by position from 1.
//! Expressions are PostgreSQL's own printed text over `r<i>.c<n>`, `i` being an input of the enclosing block.
#![forbid(unsafe_code)]

pub mod aggregate;
pub mod apply;
pub mod consolidate;
pub mod delta;
pub mod frontier;
pub mod image;
pub mod state;
pub mod support;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::model::Oid;

/// A node of the maintained query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// All rows of a table, with `only` without those of its children; `cols` are the attribute numbers read.
    Scan { rel: Oid, only: bool, cols: Vec<i16> },
    /// Select, project, inner join: one block of a query.
    Spj(Spj),
    /// GROUP BY with aggregates, or DISTINCT when there are none.
    Aggregate(Aggregate),
    /// Bag union; all inputs have the same number of columns.
    UnionAll(Vec<Op>),
}

/// An inner join of any number of inputs under a conjunction, projected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spj {
    /// Alias number `i` of `r<i>`, and the input.
    pub inputs: Vec<(u32, Op)>,
    /// Conjuncts over the inputs.
    pub quals: Vec<String>,
    /// Output expressions `c1`, `c2`, …
    pub exprs: Vec<String>,
}

/// Input columns `c1..ck` are the keys; each aggregate reads at most one further column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aggregate {
    /// Number of the node in its tree, from 1; names its state table.
    pub id: u32,
    pub input: Box<Op>,
    pub keys: usize,
    pub aggs: Vec<Agg>,
}

/// One aggregate function over input column `col`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agg {
    pub func: Func,
    pub col: usize,
}

/// How an aggregate is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Func {
    /// `count(*)`: the group's own row count.
    CountStar,
    /// `count(x)`.
    Count,
    /// `sum(x)` as sum and count of non-null values.
    Sum(Num),
    /// `avg(x)` as sum divided by count.
    Avg(Num),
    /// Extreme; recomputed for a group that loses it.
    Min,
    Max,
    /// No algebraic delta: recomputed for every affected group. The printed function name, e.g. `pg_catalog.sum`.
    Recompute(String),
}

/// Which arithmetic keeps a sum exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Num {
    /// smallint and integer: sums are bigint.
    Int,
    /// bigint: sums are numeric of scale 0.
    Big,
    /// numeric: sums are numeric; the display scale of the values is watched, since it decides how averages round.
    Numeric,
}

impl Op {
    /// Output column names.
    pub fn columns(&self) -> Vec<String> {
        match self {
            Op::Scan { cols, .. } => cols.iter().map(|c| format!("c{c}")).collect(),
            Op::Spj(s) => names(s.exprs.len()),
            Op::Aggregate(a) => names(a.keys + a.aggs.len()),
            Op::UnionAll(inputs) => inputs.first().map_or_else(Vec::new, Op::columns),
        }
    }

    /// Tables read, with the attribute numbers read of each.
    pub fn sources(&self) -> BTreeMap<Oid, BTreeSet<i16>> {
        let mut found = BTreeMap::new();
        self.visit(&mut |op| {
            if let Op::Scan { rel, cols, .. } = op {
                found.entry(*rel).or_insert_with(BTreeSet::new).extend(cols.iter().copied());
            }
        });
        found
    }

    /// Aggregates, inner before outer.
    pub fn aggregates(&self) -> Vec<&Aggregate> {
        let mut found = Vec::new();
        self.collect_aggregates(&mut found);
        found
    }

    fn collect_aggregates<'a>(&'a self, found: &mut Vec<&'a Aggregate>) {
        match self {
            Op::Scan { .. } => {}
            Op::Spj(s) => s.inputs.iter().for_each(|(_, op)| op.collect_aggregates(found)),
            Op::UnionAll(inputs) => inputs.iter().for_each(|op| op.collect_aggregates(found)),
            Op::Aggregate(a) => {
                a.input.collect_aggregates(found);
                found.push(a);
            }
        }
    }

    /// Does a change of one of `changed` reach this node?
    pub fn touches(&self, changed: &BTreeSet<Oid>) -> bool {
        self.sources().keys().any(|rel| changed.contains(rel))
    }

    /// Calls `f` on this node and all below.
    pub fn visit(&self, f: &mut impl FnMut(&Op)) {
        f(self);
        match self {
            Op::Scan { .. } => {}
            Op::Spj(s) => s.inputs.iter().for_each(|(_, op)| op.visit(f)),
            Op::UnionAll(inputs) => inputs.iter().for_each(|op| op.visit(f)),
            Op::Aggregate(a) => a.input.visit(f),
        }
    }

    /// Output columns (from 1) that no two rows share, when the tree alone proves it.
    pub fn key(&self) -> Option<Vec<usize>> {
        match self {
            Op::Scan { .. } | Op::UnionAll(_) => None,
            Op::Aggregate(a) => Some((1..=a.keys).collect()),
            Op::Spj(s) => {
                let [(alias, input)] = s.inputs.as_slice() else { return None };
                let names = input.columns();
                input
                    .key()?
                    .into_iter()
                    .map(|k| {
                        let plain = format!("r{alias}.{}", names[k - 1]);
                        s.exprs.iter().position(|e| *e == plain).map(|i| i + 1)
                    })
                    .collect()
            }
        }
    }
}

/// `c1..cn`.
pub fn names(n: usize) -> Vec<String> {
    (1..=n).map(|i| format!("c{i}")).collect()
}

/// Current names of everything that generated SQL reads or writes; made anew from the catalog for each plan.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// Source oid → how to read it.
    pub tables: BTreeMap<Oid, TableNames>,
    /// The stream table, qualified and quoted.
    pub target: String,
    /// Its columns in order, quoted.
    pub target_columns: Vec<String>,
    /// Positions of those whose values can be equal and yet print differently, from 1 on.
    pub inexact: Vec<usize>,
    /// The user has unique indexes on it.
    pub unique: bool,
    /// Aggregate → its state table.
    pub states: BTreeMap<u32, StateTable>,
}

/// One state table.
#[derive(Debug, Clone)]
pub struct StateTable {
    pub oid: Oid,
    /// Types of the columns that `aggregate::stored_columns` names, as SQL.
    pub types: Vec<String>,
    /// Positions of keys whose values can be equal and yet print differently, from 1 on.
    pub inexact_keys: Vec<usize>,
}

/// One source.
#[derive(Debug, Clone)]
pub struct TableNames {
    /// Qualified and quoted.
    pub name: String,
    /// Attribute number → quoted name.
    pub columns: BTreeMap<i16, String>,
    /// Attribute number → type, modifier and collation as SQL.
    pub types: BTreeMap<i16, String>,
}

impl Names {
    /// The state of an aggregate as `s`: `sid`, `h` and its columns; for all groups, or those with a hash in an array.
    pub fn state(&self, a: &Aggregate, hashes: Option<&str>) -> String {
        let state = &self.states[&a.id];
        let columns: Vec<String> = aggregate::stored_columns(a)
            .iter()
            .zip(&state.types)
            .map(|(name, type_sql)| format!("{name} {type_sql}"))
            .collect();
        format!(
            "pgtrickle_internal.state({}::oid, {}) AS s(sid tid, h bigint, {})",
            state.oid,
            hashes.unwrap_or("NULL"),
            columns.join(", ")
        )
    }

    /// A SELECT of how many rows of `from` (as `alias`) the state took: rows without `sid` are new, those of which `alive`
    /// does not hold, if it is given, go.
    pub fn write_state(
        &self,
        a: &Aggregate,
        alias: &str,
        from: &str,
        sid: &str,
        alive: Option<&str>,
    ) -> String {
        let columns = prefixed(alias, &aggregate::stored_columns(a)).join(", ");
        let row = format!("ROW({alias}.h, {columns})");
        let row = match alive {
            Some(alive) => format!("CASE WHEN {alive} THEN {row} END"),
            None => row,
        };
        format!(
            "SELECT count(*) - pgtrickle_internal.write_state({}::oid, {sid}, {row}) AS missed FROM {from} {alias}",
            self.states[&a.id].oid
        )
    }

    /// A subquery that reads `cols` of a source under the names `c<attnum>`.
    pub fn scan(&self, rel: Oid, only: bool, cols: &[i16]) -> String {
        let table = &self.tables[&rel];
        let list: Vec<String> = cols.iter().map(|c| format!("t.{} AS c{c}", table.columns[c])).collect();
        let only = if only { "ONLY " } else { "" };
        format!("SELECT {} FROM {only}{} t", list.join(", "), table.name)
    }
}

/// Hash of a row of expressions, by which rows are found through one bigint index whatever their types.
pub fn row_hash(exprs: &[String]) -> String {
    format!("pg_catalog.hash_record_extended(ROW({}), 0)", exprs.join(", "))
}

/// The bytes of a row of expressions, by which equal rows are told apart.
pub fn row_image(exprs: &[String]) -> String {
    format!("pgtrickle_internal.row_image(ROW({}))", exprs.join(", "))
}

/// Null-safe equality of two column lists.
pub fn same(left: &str, right: &str, columns: &[String]) -> String {
    if columns.is_empty() {
        return "true".into();
    }
    let terms: Vec<String> =
        columns.iter().map(|c| format!("{left}.{c} IS NOT DISTINCT FROM {right}.{c}")).collect();
    terms.join(" AND ")
}

/// `alias.c` for each column.
pub fn prefixed(alias: &str, columns: &[String]) -> Vec<String> {
    columns.iter().map(|c| format!("{alias}.{c}")).collect()
}
