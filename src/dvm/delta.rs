//! The maintenance statement: one SQL text that turns the buffered changes of some sources into changes of the state
//! tables and of the stream table. One statement, so one snapshot.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};

use super::aggregate::{
    fill_list, init_select, key_hash, output_exprs, output_exprs_by, state_columns, step,
};
use super::state::{contents, named, positional, spj_select};
use super::{Aggregate, Func, Names, Op, Spj, apply, names, prefixed, row_image, same};
use crate::model::Oid;

/// More changed inputs in one join block than this, and a full refresh is cheaper than 2^n - 1 terms.
pub const MAX_CHANGED_INPUTS: usize = 5;

/// Changed sources reach more than `MAX_CHANGED_INPUTS` inputs of one join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyChangedInputs(pub usize);

/// The statement for `changed` sources. Parameters: `$1` text (snapshot of the frontier), `$2` xid8 and `$3` integer (own
/// transaction and epoch already consumed). Result: one row (inserted, updated, deleted, mismatches); mismatches other
/// than 0 mean that contents or state had diverged.
pub fn maintenance(op: &Op, names: &Names, changed: &BTreeSet<Oid>) -> Result<String, TooManyChangedInputs> {
    let mut builder =
        Builder { names, changed, ctes: Vec::new(), checks: Vec::new(), memo: BTreeMap::new(), next: 0 };
    builder.source_deltas(op);
    let top = builder.delta(op)?;
    let tail = apply::apply(&top, &op.columns(), op.key(), names);
    builder.ctes.extend(tail.ctes);
    builder.checks.extend(tail.checks);
    let with: Vec<String> = builder.ctes.iter().map(|(name, sql)| format!("{name} AS {sql}")).collect();
    Ok(format!(
        "WITH {}\nSELECT (SELECT count(*) FROM {}), (SELECT count(*) FROM {}), (SELECT count(*) FROM {}), {}",
        with.join(",\n"),
        tail.inserted,
        tail.updated,
        tail.deleted,
        apply::mismatches(&builder.checks)
    ))
}

struct Builder<'a> {
    names: &'a Names,
    changed: &'a BTreeSet<Oid>,
    ctes: Vec<(String, String)>,
    /// Scalar subqueries that count mismatches.
    checks: Vec<String>,
    /// Deltas already emitted, by node address: a node is visited once, but a join refers to it in many terms.
    memo: BTreeMap<usize, String>,
    next: usize,
}

impl Builder<'_> {
    fn source_deltas(&mut self, op: &Op) {
        for (rel, cols) in op.sources() {
            if self.changed.contains(&rel) {
                let types = &self.names.tables[&rel].types;
                let mut list: Vec<String> = cols.iter().map(|c| format!("c{c} {}", types[c])).collect();
                list.push("w bigint".into());
                let sql = format!(
                    "(SELECT b.* FROM pgtrickle_internal.changes({rel}::oid, $1, $2, $3) AS b({}))",
                    list.join(", ")
                );
                self.ctes.push((format!("s{rel}"), sql));
            }
        }
    }

    /// Name of a CTE with the node's columns and `w`.
    fn delta(&mut self, op: &Op) -> Result<String, TooManyChangedInputs> {
        let address = std::ptr::from_ref(op).addr();
        if let Some(name) = self.memo.get(&address) {
            return Ok(name.clone());
        }
        let name = match op {
            Op::Scan { rel, .. } => format!("s{rel}"),
            Op::Spj(s) => {
                let sql = self.spj_delta(s)?;
                self.cte(sql)
            }
            Op::UnionAll(inputs) => {
                let mut parts = Vec::new();
                for input in inputs.iter().filter(|i| i.touches(self.changed)) {
                    let delta = self.delta(input)?;
                    let list = named(&prefixed("u", &input.columns()));
                    parts.push(format!("SELECT {list}, u.w FROM {delta} u"));
                }
                self.cte(format!("({})", parts.join(" UNION ALL ")))
            }
            Op::Aggregate(a) => self.aggregate_delta(a)?,
        };
        self.memo.insert(address, name.clone());
        Ok(name)
    }

    fn cte(&mut self, sql: String) -> String {
        self.next += 1;
        let name = format!("d{}", self.next);
        self.ctes.push((name.clone(), sql));
        name
    }

    /// Sum over the non-empty sets U of changed inputs: (-1)^(|U|+1) times the deltas of U joined with the new
    /// contents of the others. Written over new states only, so unchanged and changed tables alike are read as they are.
    fn spj_delta(&mut self, s: &Spj) -> Result<String, TooManyChangedInputs> {
        let hit: Vec<usize> = (0..s.inputs.len()).filter(|i| s.inputs[*i].1.touches(self.changed)).collect();
        if hit.len() > MAX_CHANGED_INPUTS {
            return Err(TooManyChangedInputs(hit.len()));
        }
        let mut deltas = BTreeMap::new();
        for i in &hit {
            deltas.insert(*i, self.delta(&s.inputs[*i].1)?);
        }
        let mut terms = Vec::new();
        for set in 1..(1usize << hit.len()) {
            let chosen: Vec<usize> =
                hit.iter().enumerate().filter(|(b, _)| set >> b & 1 == 1).map(|(_, i)| *i).collect();
            let from: Vec<(u32, String)> = s
                .inputs
                .iter()
                .enumerate()
                .map(|(i, (alias, input))| match deltas.get(&i).filter(|_| chosen.contains(&i)) {
                    Some(delta) => (*alias, format!("SELECT * FROM {delta}")),
                    None => (*alias, self.current(input)),
                })
                .collect();
            let weights: Vec<String> = chosen.iter().map(|i| format!("r{}.w", s.inputs[*i].0)).collect();
            let sign = if chosen.len().is_multiple_of(2) { "-" } else { "" };
            let list = format!("{}, {sign}({}) AS w", named(&s.exprs), weights.join(" * "));
            terms.push(spj_select(&list, &s.quals, &from));
        }
        Ok(format!("({})", terms.join("\nUNION ALL ")))
    }

    /// Contents after the changes. An aggregate whose delta was computed takes its unchanged groups from its state.
    fn current(&self, op: &Op) -> String {
        match op {
            Op::Scan { .. } => contents(op, self.names),
            Op::Spj(s) => {
                let from: Vec<(u32, String)> =
                    s.inputs.iter().map(|(alias, input)| (*alias, self.current(input))).collect();
                spj_select(&named(&s.exprs), &s.quals, &from)
            }
            Op::UnionAll(inputs) => {
                let parts: Vec<String> = inputs.iter().map(|i| positional(i, &self.current(i))).collect();
                parts.join(" UNION ALL ")
            }
            Op::Aggregate(a) => {
                let old = named(&output_exprs(a, "s"));
                let state = self.names.state(a, None);
                if !op.touches(self.changed) {
                    return format!("SELECT {old} FROM {state}");
                }
                let new = named(&output_exprs(a, "x"));
                let id = a.id;
                let alive = if a.keys == 0 { "true" } else { "x.cnt > 0" };
                format!(
                    "SELECT {old} FROM {state} WHERE NOT EXISTS (SELECT FROM x{id} x WHERE x.sid = s.sid) \
                     UNION ALL SELECT {new} FROM x{id} x WHERE {alive}"
                )
            }
        }
    }

    fn aggregate_delta(&mut self, a: &Aggregate) -> Result<String, TooManyChangedInputs> {
        let input = self.delta(&a.input)?;
        let id = a.id;
        let keys = names(a.keys);
        let steps: Vec<_> = a.aggs.iter().enumerate().map(|(n, agg)| step(n, agg)).collect();
        self.group_deltas(a, &input, steps.iter().flat_map(|s| s.delta.iter()).cloned().collect());

        // o: old state beside new values, one row per touched group.
        let parts = state_columns(a);
        let mut list = vec!["g.h".to_string(), "s.sid".into()];
        list.extend(prefixed("g", &keys));
        let inexact = self.inexact_keys(a);
        list.extend(inexact.iter().map(|k| format!("s.{k} AS o_{k}")));
        list.push("coalesce(s.cnt, 0) AS o_cnt".into());
        list.push("coalesce(s.cnt, 0) + g.dn AS cnt".into());
        list.extend(parts.iter().map(|c| format!("s.{c} AS o_{c}")));
        list.extend(steps.iter().flat_map(|s| s.new.iter()).map(|(c, e)| format!("{e} AS {c}")));
        let mut recompute: Vec<String> = steps
            .iter()
            .filter_map(|s| s.recompute.as_ref())
            .map(|c| format!("coalesce({c}, false)"))
            .collect();
        if !inexact.is_empty() {
            // Only the rows that a group has now tell which of the equal values it can show.
            recompute = vec!["true".into()];
        }
        let flag = if recompute.is_empty() { "false".to_string() } else { recompute.join(" OR ") };
        list.push(format!("({flag}) AS redo"));
        let state = self.names.state(a, Some(&format!("ARRAY(SELECT t.h FROM g{id} t)")));
        let matched =
            if keys.is_empty() { "true".into() } else { format!("s.h = g.h AND {}", same("s", "g", &keys)) };
        self.ctes.push((
            format!("o{id}"),
            format!("MATERIALIZED (SELECT {} FROM g{id} g LEFT JOIN {state} ON {matched})", list.join(", ")),
        ));
        let source = if recompute.is_empty() { format!("o{id}") } else { self.recomputed(a, &parts) };
        self.ctes.push((format!("x{id}"), format!("MATERIALIZED (SELECT * FROM {source})")));
        self.write_state(a);
        self.checks.push(format!(
            "(SELECT count(*) FROM x{id} WHERE cnt < 0 OR sid IS NULL AND cnt <= 0 AND {})",
            a.keys == 0
        ));
        Ok(self.changed_groups(a))
    }

    /// g: the delta summed per group, over rows that are netted first where an extreme or a recomputation depends on it.
    fn group_deltas(&mut self, a: &Aggregate, input: &str, aggregates: Vec<String>) {
        let id = a.id;
        let keys = names(a.keys);
        let columns = a.input.columns();
        let net = a.aggs.iter().any(|g| matches!(g.func, Func::Min | Func::Max | Func::Recompute(_)));
        let rows = if net {
            // Values that are equal but print differently must not cancel out.
            let plain = prefixed("n", &columns);
            let image = row_image(&plain);
            let group: Vec<String> = plain.into_iter().chain([image]).collect();
            format!(
                "(SELECT {}, sum(n.w)::bigint AS w FROM {input} n GROUP BY {} HAVING sum(n.w) <> 0)",
                prefixed("n", &columns).join(", "),
                group.join(", ")
            )
        } else {
            input.to_string()
        };
        let qualified = prefixed("i", &keys);
        let mut list = vec![format!("{} AS h", key_hash(&qualified))];
        list.extend(qualified.iter().cloned());
        list.push("coalesce(sum(i.w), 0)::bigint AS dn".into());
        list.extend(aggregates);
        let group =
            if keys.is_empty() { String::new() } else { format!(" GROUP BY {}", qualified.join(", ")) };
        self.ctes.push((
            format!("g{id}"),
            format!("MATERIALIZED (SELECT {} FROM {rows} i{group})", list.join(", ")),
        ));
    }

    /// r: the groups that must be computed anew, from the input's present contents; and the merge of both.
    fn recomputed(&mut self, a: &Aggregate, parts: &[String]) -> String {
        let id = a.id;
        let keys = names(a.keys);
        let input = self.current(&a.input);
        // A group that is gone needs no values; the one group without keys never is.
        let redo = if keys.is_empty() { "o.redo" } else { "o.redo AND o.cnt > 0" };
        let flagged = format!("(SELECT EXISTS (SELECT FROM o{id} o WHERE {redo}))");
        let sql = if keys.is_empty() {
            init_select(a, &input, &format!(" WHERE {flagged}"))
        } else {
            // Equality first, which indexes and hash joins serve; keys with NULLs in a branch of their own that
            // is not entered when there are none.
            let equal: Vec<String> = keys.iter().map(|k| format!("i.{k} = k.{k}")).collect();
            let nulls: Vec<String> =
                keys.iter().map(|k| format!("o.{k} IS NOT DISTINCT FROM NULL")).collect();
            let some_null = nulls.join(" OR ");
            let wanted = format!("SELECT {} FROM o{id} o WHERE {redo}", prefixed("o", &keys).join(", "));
            let plain = format!(" JOIN ({wanted}) k ON {} WHERE {flagged}", equal.join(" AND "));
            let with_null = format!(
                " JOIN ({wanted} AND ({some_null})) k ON {} WHERE (SELECT EXISTS (SELECT FROM o{id} o WHERE {redo} AND ({some_null})))",
                same("i", "k", &keys)
            );
            format!("{}\nUNION ALL {}", init_select(a, &input, &plain), init_select(a, &input, &with_null))
        };
        self.ctes.push((format!("r{id}"), format!("MATERIALIZED ({sql})")));
        let mut out = vec!["o.h".to_string(), "o.sid".into()];
        let inexact = self.inexact_keys(a);
        out.extend(keys.iter().map(|k| {
            if inexact.contains(k) {
                format!("CASE WHEN {redo} THEN r.{k} ELSE o.{k} END AS {k}")
            } else {
                format!("o.{k}")
            }
        }));
        out.extend(inexact.iter().map(|k| format!("o.o_{k}")));
        out.push("o.o_cnt".into());
        out.push("o.cnt".into());
        out.extend(parts.iter().map(|c| format!("o.o_{c}")));
        out.extend(
            parts
                .iter()
                .map(|c| format!("CASE WHEN {redo} THEN r.{c} WHEN o.redo THEN NULL ELSE o.{c} END AS {c}")),
        );
        let matched = if keys.is_empty() { "true".to_string() } else { same("r", "o", &keys) };
        // Joined on the hash so that many groups don't cost a nested loop.
        let hashed = if keys.is_empty() {
            format!("r{id} r")
        } else {
            format!("(SELECT {} AS h, q.* FROM r{id} q) r", key_hash(&prefixed("q", &keys)))
        };
        let by_hash = if keys.is_empty() { String::new() } else { "r.h = o.h AND ".into() };
        format!("(SELECT {} FROM o{id} o LEFT JOIN {hashed} ON {by_hash}{matched}) y", out.join(", "))
    }

    /// Keys whose values can be equal and yet print differently.
    fn inexact_keys(&self, a: &Aggregate) -> Vec<String> {
        self.names.states[&a.id].inexact_keys.iter().map(|k| format!("c{k}")).collect()
    }

    fn write_state(&mut self, a: &Aggregate) {
        let id = a.id;
        // The one group of a query without keys stays when it is empty.
        let alive = (a.keys > 0).then_some("x.cnt > 0");
        let sql = self.names.write_state(a, "x", &format!("x{id}"), "x.sid", alive);
        self.ctes.push((format!("sw{id}"), format!("({sql})")));
        self.checks.push(format!("(SELECT missed FROM sw{id})"));
    }

    /// The aggregate's own delta: old output rows leave, new ones enter, where they differ in any bit.
    fn changed_groups(&mut self, a: &Aggregate) -> String {
        let id = a.id;
        let inexact = self.inexact_keys(a);
        let old = output_exprs_by(a, &|c| {
            let is_key = c != "cnt" && c.starts_with('c');
            if is_key && !inexact.iter().any(|k| k == c) { format!("x.{c}") } else { format!("x.o_{c}") }
        });
        let new = output_exprs(a, "x");
        let (had, has) = if a.keys == 0 { ("true", "true") } else { ("x.o_cnt > 0", "x.cnt > 0") };
        let unchanged = format!(
            "({had} AND {has} AND ROW({})::record OPERATOR(pg_catalog.*=) ROW({})::record)",
            old.join(", "),
            new.join(", ")
        );
        self.cte(format!(
            "(SELECT {}, -1 AS w FROM x{id} x WHERE {had} AND NOT {unchanged} \
             UNION ALL SELECT {}, 1 FROM x{id} x WHERE {has} AND NOT {unchanged})",
            named(&old),
            named(&new)
        ))
    }
}

/// What the state tables hold at the present contents of the sources: for each aggregate the SELECT of the hashes and the
/// stored columns of its groups.
pub fn state_tables<'a>(op: &'a Op, names: &Names) -> Vec<(&'a Aggregate, String)> {
    op.aggregates()
        .into_iter()
        .map(|a| {
            let inner = init_select(a, &contents(&a.input, names), "");
            (a, format!("SELECT {} FROM ({inner}) s", fill_list(a)))
        })
        .collect()
}
