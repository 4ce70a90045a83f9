//! Change buffers as they are.
#![forbid(unsafe_code)]

use crate::catalog::dependencies;
use crate::catalog::stream_tables::StreamTable;
use crate::cdc;
use crate::error::Result;
use crate::model::Oid;
use crate::pg::side;
use crate::pg::spi::{self, Arg, Mode};

/// One buffer.
pub struct Buffer {
    pub source: Oid,
    pub rows: i64,
    pub bytes: i64,
    /// xid8 of the oldest buffered transaction.
    pub oldest: Option<u64>,
}

/// Buffers of the sources that `user` can read.
pub fn list(user: Oid) -> Result<Vec<Buffer>> {
    let rows = spi::run(
        "SELECT s.source FROM pgtrickle.pgt_sources s JOIN pg_catalog.pg_class c ON c.oid = s.source \
         WHERE pg_catalog.has_table_privilege($1, s.source, 'SELECT') ORDER BY s.source",
        &[Arg::Oid(user)],
        Mode::Fresh,
    )?;
    let mut buffers = Vec::new();
    for mut row in rows {
        let source: Oid = row.parse(0)?;
        if !cdc::buffer_exists(source)? {
            continue;
        }
        let mut buffer = Buffer { source, rows: 0, bytes: side::size(source)?, oldest: None };
        side::scan(source, |change| {
            buffer.rows += change.rows();
            buffer.oldest = Some(buffer.oldest.map_or(change.xid, |oldest| oldest.min(change.xid)));
            Ok(())
        })?;
        buffers.push(buffer);
    }
    Ok(buffers)
}

/// Is anything unconsumed for this stream table? One that must be computed anew counts as pending.
pub fn pending(table: &StreamTable) -> Result<bool> {
    let Some(frontier) = table.frontier()? else { return Ok(true) };
    for source in dependencies::source_columns(table.relid)?.into_keys() {
        if !cdc::buffer_exists(source)? {
            return Ok(true);
        }
        if cdc::pending(source, &frontier)?.0 > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}
