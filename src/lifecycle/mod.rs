//! Beginning and end of a stream table.
#![forbid(unsafe_code)]

pub mod bind;
mod blame;
mod create;
mod drop;
mod output;

pub use blame::{hint_of, refreshing, run_as_caller};
pub use create::{Request, create};
pub use drop::{drop_stream_table, forget};
pub use output::refuse_row_types;

use crate::catalog::stream_tables::{self, StreamTable};
use crate::error::{Error, Result};
use crate::model::{Oid, RefreshMode, Status};
use crate::pg::cache;
use crate::pg::lock::{Ours, lock_ours};
use crate::pg::secctx::{PINNED, Restriction, as_extension, as_user, with_settings};

/// Runs `f` on the present row of a stream table, which is claimed, while nobody else refreshes or changes it.
pub fn locked<T>(relid: Oid, f: impl FnOnce(&StreamTable) -> Result<T>) -> Result<T> {
    as_extension(|| {
        lock_ours(Ours::StreamTable(relid), true)?;
        let table = stream_tables::find(relid)?
            .ok_or_else(|| Error::NotAStreamTable { name: format!("relation {relid}") })?;
        if table.has_tasks {
            cache::maintenance(|| crate::evolve::tasks::run_for(relid))?;
        }
        let table = stream_tables::claim_present(relid)?;
        cache::maintenance(|| f(&table))
    })
}

/// `alter_stream_table()`: schedule and mode; another mode can mean another plan, and capture or none.
pub fn alter(table: &StreamTable, schedule: Option<&str>, mode: RefreshMode) -> Result<()> {
    locked(table.relid, |table| {
        stream_tables::set_options(table.relid, schedule, mode)?;
        if mode != table.mode && table.status != Status::Suspended {
            let tree = table.tree.clone();
            let analysis = with_settings(PINNED, || {
                as_user(table.owner, Restriction::UserCode, || crate::pg::query::analyse(&tree))
            })?;
            let (differential, _) = bind::decide(mode, &analysis)?;
            bind::require_privileges(mode, &analysis, table.owner)?;
            if differential != table.differential {
                let parsed = crate::pg::query::Parsed::stored(&table.query, &tree, &analysis);
                bind::bind(table.relid, &parsed, &analysis, &table.columns, mode)?;
            }
        }
        cache::definitions_changed()
    })
}
