//! How a stream table is kept, in words.
#![forbid(unsafe_code)]

use crate::catalog::dependencies;
use crate::catalog::stream_tables::StreamTable;
use crate::dvm::{Func, Op};
use crate::error::Result;
use crate::pg::query::Analysis;
use crate::pg::spi::{self, Arg, Mode};
use crate::sqltext;

/// Rows (step, detail).
pub fn explain(table: &StreamTable, analysis: &Analysis) -> Result<Vec<(String, String)>> {
    let mut rows = vec![("refresh".to_string(), summary(table))];
    rows.extend(table.full_reasons.iter().map(|r| ("why full".to_string(), r.clone())));
    if let Some(why) = &table.reinitialize {
        rows.push(("next refresh".into(), format!("reinitialize, since {why}")));
    }
    rows.extend(dependencies::opaque_functions(table.relid)?.into_iter().map(|function| {
        let why = "its body is text, so a change of what it reads or calls is not noticed";
        ("opaque function".to_string(), format!("{function}: {why}"))
    }));
    if let (true, Ok(op)) = (table.differential, &analysis.plan) {
        steps(op, &mut rows)?;
        rows.push(("apply".into(), application(op)));
    }
    Ok(rows)
}

fn summary(table: &StreamTable) -> String {
    let how = if table.differential {
        "differential: only changed rows are read from the buffers"
    } else {
        "full: the whole query is computed and the difference applied"
    };
    format!("{how} (refresh_mode {})", table.mode.word())
}

fn steps(op: &Op, rows: &mut Vec<(String, String)>) -> Result<()> {
    match op {
        Op::Scan { rel, only, cols } => {
            let names = column_names(*rel, cols)?;
            let only = if *only { "ONLY " } else { "" };
            rows.push(("scan".into(), format!("{only}{names}")));
        }
        Op::Spj(s) => {
            for (_, input) in &s.inputs {
                steps(input, rows)?;
            }
            if s.inputs.len() > 1 {
                let detail = format!(
                    "inner join of {} inputs: the delta of each changed one is joined with the others as they are",
                    s.inputs.len()
                );
                rows.push(("join".into(), detail));
            }
            if !s.quals.is_empty() {
                rows.push(("filter".into(), format!("{} conditions", s.quals.len())));
            }
        }
        Op::UnionAll(inputs) => {
            for input in inputs {
                steps(input, rows)?;
            }
            rows.push(("union all".into(), format!("{} inputs", inputs.len())));
        }
        Op::Aggregate(a) => {
            steps(&a.input, rows)?;
            let by_key = a.aggs.iter().filter(|g| matches!(g.func, Func::Recompute(_))).count();
            let detail = if a.aggs.is_empty() {
                "distinct rows with their counts are kept in a state table".to_string()
            } else {
                format!(
                    "{} keys, {} aggregates in a state table; {by_key} recomputed for each affected group, \
                     min and max only where an extreme is lost",
                    a.keys,
                    a.aggs.len()
                )
            };
            rows.push(("aggregate".into(), detail));
        }
    }
    Ok(())
}

fn application(op: &Op) -> String {
    match op.key() {
        Some(key) if !key.is_empty() => format!("by key: output columns {key:?} identify a row"),
        _ => "as a bag: rows are found by the hash of all columns".into(),
    }
}

fn column_names(rel: u32, cols: &[i16]) -> Result<String> {
    let rows = spi::run(
        "SELECT n.nspname, c.relname, (SELECT pg_catalog.string_agg(a.attname, ', ' ORDER BY a.attnum) \
         FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = ANY ($2)) \
         FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1",
        &[Arg::Oid(rel), Arg::Ints(cols)],
        Mode::Fresh,
    )?;
    Ok(match rows.first() {
        Some(mut row) => {
            let table = format!(
                "{}.{}",
                sqltext::display_ident(&row.text(0)?),
                sqltext::display_ident(&row.text(1)?)
            );
            match row.opt(2) {
                Some(columns) => format!("{table}: columns {columns}"),
                None => format!("{table}: row count only"),
            }
        }
        None => format!("relation {rel}, which is gone"),
    })
}
