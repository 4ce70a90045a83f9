//! Resolving a stored query again, by name: when a table came back, or by `resume_stream_table()`.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use crate::catalog::dependencies;
use crate::catalog::stream_tables::{self, StreamTable};
use crate::error::{Error, Result};
use crate::evolve::suspend::resolve_and_resume;
use crate::lifecycle::bind;
use crate::model::{Oid, Reason, Status};
use crate::pg::query::{analyse, parse};
use crate::pg::secctx::{Restriction, as_user};
use crate::pg::spi::{self, Arg, Mode};
use crate::pg::{cache, report, subxact};
use crate::sqltext;

/// Resolves the stored query again and makes everything that follows from it anew. The output must be what the table has.
pub fn rebind(table: &StreamTable) -> Result<()> {
    let (parsed, analysis) = as_user(table.owner, Restriction::UserCode, || {
        let parsed = parse(&table.query)?;
        let analysis = analyse(&parsed.tree)?;
        Ok((parsed, analysis))
    })?;
    let have = table_columns(table)?;
    let fits = parsed.columns.len() == have.len()
        && parsed.columns.iter().zip(&have).all(|(c, have)| (c.type_oid, c.typmod) == *have);
    if !fits {
        return Err(Error::Refused {
            reason: "SHAPE_DIFFERS",
            what: "its output columns have other types now".into(),
            hint: format!(
                "SELECT pgtrickle.alter_stream_table_query({}, {});",
                sqltext::regclass_literal(&table.display()),
                sqltext::dollar_quoted(&parsed.text)
            ),
        });
    }
    bind::refuse_cycle(table.relid, &table.display(), &analysis)?;
    bind::require_privileges(table.mode, &analysis, table.owner)?;
    cache::maintenance(|| bind::bind(table.relid, &parsed, &analysis, &table.columns, table.mode))
}

/// Types of the stream table's columns in the query's order.
fn table_columns(table: &StreamTable) -> Result<Vec<(Oid, i32)>> {
    let rows = spi::run(
        "SELECT a.atttypid, a.atttypmod FROM pg_catalog.unnest($2) WITH ORDINALITY AS u (attnum, n) \
         JOIN pg_catalog.pg_attribute a ON a.attrelid = $1 AND a.attnum = u.attnum AND NOT a.attisdropped ORDER BY u.n",
        &[Arg::Oid(table.relid), Arg::Ints(&table.columns)],
        Mode::Fresh,
    )?;
    rows.into_iter().map(|mut row| Ok((row.parse(0)?, row.parse(1)?))).collect()
}

/// Suspended stream tables that a later command may have cured.
pub fn candidates() -> Result<Vec<StreamTable>> {
    let curable = [Reason::SourceDropped, Reason::ColumnDropped, Reason::ObjectChanged];
    Ok(stream_tables::all()?
        .into_iter()
        .filter(|t| {
            t.status == Status::Suspended
                && t.reason.as_deref().is_some_and(|r| curable.iter().any(|c| c.word() == r))
        })
        .collect())
}

/// Tries each candidate that the command can have cured; those whose query does not resolve stay suspended.
pub fn attempt(candidates: &[StreamTable], tag: &str, touched: &BTreeSet<Oid>) -> Result<()> {
    for table in candidates {
        let may = match table.reason.as_deref() {
            Some(r) if r == Reason::ColumnDropped.word() => {
                dependencies::source_columns(table.relid)?.keys().any(|s| touched.contains(s))
            }
            _ => tag.starts_with("CREATE") || tag.starts_with("ALTER") || tag.starts_with("SELECT INTO"),
        };
        if !may {
            continue;
        }
        // The command may have nothing to do with it: then its query still does not resolve, silently.
        let resolves = subxact::run(|| resolve_and_resume(table));
        match resolves {
            Ok(()) => report::notice(
                &format!("stream table {} is active again", table.display()),
                "reason=CURED: what its query needs is there again; contents are computed anew at the next refresh.",
                "",
            ),
            Err(caught) => report::debug(&format!(
                "stream table {} stays suspended: {}",
                table.display(),
                caught.message
            )),
        }
    }
    Ok(())
}
