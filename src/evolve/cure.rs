//! Resolving a stored query again, by name: when a table came back, or by `resume_stream_table()`.
#![forbid(unsafe_code)]

use crate::catalog::stream_tables::{self, StreamTable};
use crate::error::{Error, Result};
use crate::evolve::apply::resume_later;
use crate::evolve::relation_class;
use crate::evolve::tasks::is_contention;
use crate::evolve::touched::Concern;
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

/// Derives everything from the stored query as it is: what it goes through changed, and it still holds.
pub fn derive(table: &StreamTable) -> Result<()> {
    let analysis = crate::evolve::apply::analyse_as_owner(table)?;
    let parsed = crate::pg::query::Parsed {
        text: crate::pg::query::print_tree(&table.tree)?,
        tree: table.tree.clone(),
        columns: analysis.columns.clone(),
    };
    bind::bind(table.relid, &parsed, &analysis, &table.columns, table.mode)
}

/// Suspended stream tables that a command can have cured: it gave something a name that is in their query, or changed a
/// source of which they miss a column.
pub fn candidates(concern: &Concern, changed: impl Iterator<Item = Oid>) -> Result<Vec<StreamTable>> {
    let mut found = Vec::new();
    for relid in &concern.cures {
        found.extend(stream_tables::find(*relid)?.filter(|t| reason_of(t).is_some_and(Reason::is_curable)));
    }
    for source in changed {
        let users = stream_tables::users_of(relation_class(), source)?;
        found.extend(users.into_iter().filter(|t| reason_of(t) == Some(Reason::ColumnDropped)));
    }
    found.sort_by_key(|t| t.relid);
    found.dedup_by_key(|t| t.relid);
    Ok(found)
}

fn reason_of(table: &StreamTable) -> Option<Reason> {
    table.reason.as_deref().and_then(Reason::from_word).filter(|_| table.status == Status::Suspended)
}

/// Leaves those to be resumed whose query resolves now. The command may have nothing to do with the others: they stay
/// suspended, silently.
pub fn attempt(candidates: &[StreamTable]) {
    for table in candidates {
        match subxact::look(|| as_user(table.owner, Restriction::UserCode, || parse(&table.query))) {
            Ok(_) => resume_later(table),
            // It can't be told without waiting.
            Err(caught) if is_contention(&caught) => resume_later(table),
            Err(caught) => report::debug(&format!(
                "stream table {} stays suspended: {}",
                table.display(),
                caught.message
            )),
        }
    }
}
