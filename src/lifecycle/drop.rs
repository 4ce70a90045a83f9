//! The end of a stream table, by our function or by a plain DROP.
#![forbid(unsafe_code)]

use crate::catalog::dependencies;
use crate::catalog::stream_tables::{self, StreamTable};
use crate::catalog::tasks;
use crate::error::{Error, Result};
use crate::evolve::{relation_class, release};
use crate::lifecycle::run_as_caller;
use crate::model::Oid;
use crate::pg::cache;
use crate::pg::secctx::{PINNED, as_extension, with_settings};
use crate::pg::spi::{self, Mode};
use crate::refresh::drop_state;
use crate::scheduler::dag;

/// Drops the table as the caller; the event trigger cleans up. With `cascade` also what depends on it.
pub fn drop_stream_table(table: &StreamTable, cascade: bool) -> Result<()> {
    let above = as_extension(|| {
        let edges = dependencies::edges()?;
        let mut above: Vec<Oid> =
            dag::order(&dag::above(table.relid, &edges).into_iter().collect::<Vec<_>>(), &edges)
                .map_err(|_| Error::Internal("stream tables read each other in a circle".into()))?;
        above.reverse();
        above.into_iter().filter_map(|oid| stream_tables::find(oid).transpose()).collect::<Result<Vec<_>>>()
    })?;
    if !cascade && !above.is_empty() {
        let dependents: Vec<String> = above.iter().map(StreamTable::display).collect();
        return Err(Error::Dependents { name: table.display(), dependents: dependents.join(", ") });
    }
    let word = if cascade { " CASCADE" } else { "" };
    for one in above.iter().filter(|t| t.relid != table.relid).chain([table]) {
        let sql = format!("DROP TABLE {}{word}", one.quoted());
        cache::own_command(|| {
            run_as_caller(|| with_settings(PINNED, || spi::run_once(&sql, &[], Mode::Fresh)))
        })?;
    }
    Ok(())
}

/// Removes everything that was kept for a stream table that is gone.
pub fn forget(relid: Oid) -> Result<()> {
    cache::maintenance(|| {
        let sources = dependencies::source_columns(relid)?;
        for above in stream_tables::users_of(relation_class(), relid)? {
            crate::evolve::suspend_for_drop(&above, relid)?;
        }
        stream_tables::delete(relid)?;
        drop_state(relid)?;
        for source in sources.into_keys() {
            release(source)?;
        }
        crate::refresh::forget(relid);
        tasks::forget(relid)?;
        cache::definitions_changed()
    })
}
