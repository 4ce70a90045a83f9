//! The safety net: before each refresh the sources are compared with what they were when their users were last judged.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};

use crate::catalog::stream_tables::{self, StreamTable};
use crate::catalog::{dependencies, sources};
use crate::drift::account::{Moment, Why};
use crate::error::Result;
use crate::evolve::{apply, suspend};
use crate::model::{Oid, Reason, Status};
use crate::pg::concern::kind_and_name;
use crate::pg::objects::{self, Change, Object};
use crate::pg::snapshot::Side;
use crate::pg::spi::Mode;
use crate::refresh::create_guard;
use crate::snapshot::read_shapes;
use crate::snapshot::shape::TableShape;

/// Shapes of the sources of `table`; changes that no event told of are judged now. True: nothing was found.
pub fn verify(
    table: &StreamTable,
    wanted: &BTreeMap<Oid, BTreeSet<i16>>,
) -> Result<(BTreeMap<Oid, TableShape>, bool)> {
    let oids: Vec<Oid> = wanted.keys().copied().collect();
    let shapes = read_shapes(&oids, Side::After)?;
    let known = sources::known(&oids)?;
    let mut same = true;
    for source in &oids {
        let Some(shape) = shapes.get(source) else {
            let detail = format!("a source (oid {source}) no longer exists.");
            suspend::suspend(table, Reason::SourceDropped, &detail)?;
            same = false;
            continue;
        };
        let facts = known.get(source);
        if facts.map(|k| k.fingerprint.as_str()) != Some(shape.fingerprint()?.as_str()) {
            same = false;
            if let Some(before) = sources::shape(*source)? {
                apply::source_changed(&before, shape, None)?;
                apply::record(shape, Why::Change, Moment::Standing, &apply::unknown_author())?;
            } else {
                stream_tables::set_reinitialize(table.relid, "what its source looked like was not recorded")?;
                apply::record(shape, Why::Source, Moment::Standing, &apply::unknown_author())?;
            }
        }
        if table.differential && !facts.is_some_and(|k| k.has_buffer) {
            same = false;
            stream_tables::set_reinitialize(table.relid, "its change buffer was missing")?;
        }
    }
    // Whatever was there in place of the guard, rows may have been changed past it.
    if !stream_tables::is_guarded(table.relid, Mode::Fresh)? {
        same = false;
        stream_tables::set_reinitialize(table.relid, "its guard trigger was missing, disabled or changed")?;
        create_guard(&table.schema, &table.name)?;
    }
    for (object, change) in dependencies::changed_objects(table.relid)? {
        same = false;
        object_changed(table, object, change)?;
    }
    if !same {
        repair(table.relid, wanted)?;
    }
    Ok((shapes, same))
}

/// A view, function or type that no event told of: what the event would have meant.
fn object_changed(table: &StreamTable, object: Object, change: Option<Change>) -> Result<()> {
    let is_view = object.0 == apply::relation_class() && kind_and_name(object.1).is_some_and(|k| k.0 == 'v');
    match change {
        None => {
            let detail = format!("what its query uses (oid {}) was dropped.", object.1);
            suspend::suspend(table, Reason::ObjectChanged, &detail)?;
        }
        Some(_) if is_view => apply::view_replaced(table),
        Some(change) => apply::object_changed(table, change, &objects::identity(object)?, "changed"),
    }
    Ok(())
}

/// Makes what capture lacks; the marks that were set make the refresh start from the tables.
fn repair(relid: Oid, wanted: &BTreeMap<Oid, BTreeSet<i16>>) -> Result<()> {
    if !stream_tables::find(relid)?.is_some_and(|t| t.status != Status::Suspended && t.differential) {
        return Ok(());
    }
    for source in wanted.keys() {
        apply::sync_capture(*source)?;
    }
    Ok(())
}
