//! The safety net: before each refresh the sources are compared with what they were when their users were last judged.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};

use crate::catalog::snapshots::Why;
use crate::catalog::sources;
use crate::catalog::stream_tables::{self, StreamTable};
use crate::cdc;
use crate::error::Result;
use crate::evolve::{apply, suspend};
use crate::model::{Oid, Reason, Status};
use crate::pg::snapshot::Side;
use crate::snapshot::read_shapes;
use crate::snapshot::shape::TableShape;

/// Shapes of the sources of `table`; changes that no event told of are judged now.
pub fn verify(
    table: &StreamTable,
    wanted: &BTreeMap<Oid, BTreeSet<i16>>,
) -> Result<BTreeMap<Oid, TableShape>> {
    let oids: Vec<Oid> = wanted.keys().copied().collect();
    let shapes = read_shapes(&oids, Side::After)?;
    for source in &oids {
        let Some(shape) = shapes.get(source) else {
            let detail = format!("a source (oid {source}) no longer exists.");
            suspend::suspend(table, Reason::SourceDropped, &detail)?;
            continue;
        };
        let recorded = sources::fingerprint(*source)?;
        if recorded.as_deref() != Some(shape.fingerprint()?.as_str()) {
            if let Some(before) = sources::shape(*source)? {
                apply::source_changed(&before, shape, None)?;
                apply::record(shape, Why::Change, "noticed before a refresh")?;
            } else {
                stream_tables::set_reinitialize(table.relid, "what its source looked like was not recorded")?;
                apply::record(shape, Why::Source, "noticed before a refresh")?;
            }
        }
        if table.differential && !cdc::buffer_exists(*source)? {
            stream_tables::set_reinitialize(table.relid, "its change buffer was missing")?;
        }
    }
    let Some(now) = stream_tables::find(table.relid)?.filter(|t| t.status != Status::Suspended) else {
        return Ok(shapes);
    };
    if now.differential {
        // Repairs what is missing; the marks above make the refresh start from the tables.
        for source in shapes.keys() {
            apply::sync_capture(*source)?;
        }
        if now.reinitialize.is_some() {
            cdc::grant_buffers(wanted, &apply::owner_name(now.owner)?)?;
        }
    }
    Ok(shapes)
}
