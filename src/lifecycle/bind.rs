//! Everything that is derived from a query: dependencies, capture, state tables, index. One function makes all
//! of it, for a new stream table, for a new query, and for a query that is resolved again.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use crate::catalog::dependencies;
use crate::catalog::stream_tables::{self, Definition, StreamTable};
use crate::catalog::tasks;
use crate::cdc;
use crate::drift::account::{Moment, Why};
use crate::dvm::support::Unsupported;
use crate::error::{Error, Result};
use crate::evolve::apply::{judge_missed, record, sync_capture};
use crate::evolve::release;
use crate::model::{Oid, RefreshMode, Status};
use crate::pg::cache;
use crate::pg::lock::{LockMode, lock_tables};
use crate::pg::query::{Analysis, Parsed};
use crate::pg::snapshot::Side;
use crate::pg::spi::{self, Arg, Mode};
use crate::refresh::{create_row_index, create_state, drop_state};
use crate::scheduler::dag;
use crate::snapshot::{capture, read_shapes};
use crate::sqltext;

/// How a query is kept under a mode: differentially or not, and the reasons when not.
pub fn decide(mode: RefreshMode, analysis: &Analysis) -> Result<(bool, Vec<String>)> {
    let describe = |all: &[Unsupported]| all.iter().map(Unsupported::describe).collect::<Vec<_>>();
    match (mode, &analysis.plan) {
        (RefreshMode::Differential, Err(reasons)) => {
            Err(Error::NotDifferential { construct: describe(reasons).join("; ") })
        }
        (RefreshMode::Full, Ok(_)) => Ok((false, vec!["refresh_mode is full".into()])),
        (_, Ok(_)) => Ok((true, Vec::new())),
        (_, Err(reasons)) => Ok((false, describe(reasons))),
    }
}

/// What the owner of a stream table must be allowed to do to its sources.
pub fn require_privileges(mode: RefreshMode, analysis: &Analysis, owner: Oid) -> Result<()> {
    match (decide(mode, analysis)?, &analysis.plan) {
        ((true, _), Ok(op)) => cdc::require_trigger_privilege(op.sources().into_keys(), owner),
        _ => Ok(()),
    }
}

/// A query may not read the stream table itself, directly or through others.
pub fn refuse_cycle(relid: Oid, name: &str, analysis: &Analysis) -> Result<()> {
    let edges = dependencies::edges()?;
    let above = dag::above(relid, &edges);
    if analysis.sources().iter().any(|s| *s == relid || above.contains(s)) {
        return Err(Error::Cycle { name: name.to_string() });
    }
    Ok(())
}

/// Replaces all that is derived from the query of `relid`. The catalog row exists; contents are to be computed anew.
pub fn bind(
    relid: Oid,
    parsed: &Parsed,
    analysis: &Analysis,
    columns: &[i16],
    mode: RefreshMode,
) -> Result<()> {
    let (differential, full_reasons) = decide(mode, analysis)?;
    let old: BTreeSet<Oid> = dependencies::source_columns(relid)?.into_keys().collect();
    let definition = Definition { parsed, analysis, columns, differential, full_reasons: &full_reasons };
    stream_tables::set_query(relid, &definition)?;
    dependencies::replace(relid, &analysis.uses)?;
    // What was to be done about the old query is done with it.
    tasks::forget(relid)?;
    let new = analysis.sources();
    lock_sources(&new)?;
    for source in &new {
        judge_missed(*source, relid)?;
        sync_capture(*source)?;
    }
    for source in old.difference(&new) {
        release(*source)?;
    }
    let Some(table) = stream_tables::find(relid)? else {
        return Err(Error::Internal(format!("stream table {relid} has no catalog row")));
    };
    let shapes = read_shapes(&new.iter().copied().collect::<Vec<_>>(), Side::After)?;
    for (source, shape) in shapes.iter().filter(|(s, _)| !old.contains(s)) {
        if is_new(*source, relid)? {
            let by = capture::circumstance(Some("CREATE STREAM TABLE"), true);
            record(shape, Why::Source, Moment::Standing, &by)?;
        }
    }
    drop_state(relid)?;
    drop_row_index(&table)?;
    // What is suspended has no capture, and may have lost columns: it gets all this when it resumes.
    let active = table.status != Status::Suspended;
    if let (true, Ok(op)) = (differential && active, &analysis.plan) {
        create_state(&table, op)?;
        create_row_index(&table, op)?;
    }
    cache::definitions_changed()
}

/// All sources whose capture lacks something, at once: nobody is to wait for one of them while another is waited for.
fn lock_sources(sources: &BTreeSet<Oid>) -> Result<()> {
    let mut tables = BTreeSet::new();
    for source in sources {
        tables.extend(cdc::to_install(*source)?);
    }
    lock_tables(&tables.into_iter().collect::<Vec<_>>(), LockMode::ShareRowExclusive)
}

/// Has no other stream table read this source?
fn is_new(source: Oid, relid: Oid) -> Result<bool> {
    let users = stream_tables::users_of(crate::evolve::relation_class(), source)?;
    Ok(users.iter().all(|t| t.relid == relid))
}

/// Drops the index by which rows are found, if there is one; it depends on all columns.
pub fn drop_row_index(table: &StreamTable) -> Result<()> {
    let name = crate::refresh::row_index(table.relid);
    let exists = spi::run(
        "SELECT FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid \
         WHERE i.indrelid = $1 AND c.relname = $2",
        &[Arg::Oid(table.relid), Arg::Text(&name)],
        Mode::Fresh,
    )?;
    if exists.first().is_some() {
        let index = sqltext::qualified(&table.schema, &name);
        spi::run_once(&format!("DROP INDEX {index}"), &[], Mode::Fresh)?;
    }
    Ok(())
}
