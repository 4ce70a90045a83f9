//! Change capture: a buffer per source with the columns that are used, and the triggers that fill it.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use crate::catalog::stream_tables::StreamTable;
use crate::catalog::{captures, dependencies, stream_tables};
use crate::dvm::frontier::Frontier;
use crate::error::Result;
pub use crate::model::{INTERNAL_SCHEMA, buffer_name};
use crate::model::{Oid, Status};
use crate::pg::inheritance::with_descendants;
use crate::pg::lock::{LockMode, Ours, lock_relation, lock_tables, try_lock_ours};
use crate::pg::spi::{self, Arg, Mode};
use crate::pg::{route, side};
use crate::sqltext;

mod privilege;
mod triggers;

pub use privilege::{require_trigger_privilege, revoke_all};
pub use triggers::all_faults;

/// Makes capture of `source` what its users need now: created, widened, or removed. Gets writers in flight out of the way
/// when something changes, so that whoever takes a snapshot afterwards sees all that was not captured.
///
/// False: nobody who uses the source may have triggers on it any more, so those that are missing stay so; each refresh says it.
pub fn sync(source: Oid) -> Result<bool> {
    match dependencies::captured_columns(source)? {
        Some(columns) => ensure(source, &columns),
        None => remove(source).map(|()| true),
    }
}

fn ensure(source: Oid, columns: &BTreeSet<i16>) -> Result<bool> {
    let lacking = Lacking::of(source, columns)?;
    if lacking.is_nothing() {
        return Ok(true);
    }
    if !privilege::somebody_may_capture(source)? {
        return Ok(false);
    }
    let (tables, mode) = lacking.locks(source)?;
    lock_tables(&tables.into_iter().collect::<Vec<_>>(), mode)?;
    if side::buffer(source)?.is_none() {
        create_buffer(source)?;
        distrust_users(source)?;
    }
    // What was captured goes on: others may have narrower images, not this source's users later on.
    let all = captures::columns(source)?.unwrap_or_default().union(columns).copied().collect();
    captures::record(source, &all)?;
    route::changed(source);
    triggers::put_right(source)?;
    Ok(true)
}

/// What the users of a source had still to consume went with the buffer that is no longer there: not only he who noticed
/// has missed it.
fn distrust_users(source: Oid) -> Result<()> {
    for table in stream_tables::users_of(pgrx::pg_sys::RelationRelationId.to_u32(), source)? {
        if table.differential && table.status != Status::Suspended {
            stream_tables::set_reinitialize(table.relid, "its change buffer was missing")?;
        }
    }
    Ok(())
}

/// What capture of a source lacks.
struct Lacking {
    /// The buffer, or columns in it.
    images: bool,
    triggers: Vec<triggers::Fault>,
}

impl Lacking {
    fn of(source: Oid, columns: &BTreeSet<i16>) -> Result<Lacking> {
        let narrow = captures::columns(source)?.is_none_or(|known| !columns.is_subset(&known));
        let images = narrow || side::buffer(source)?.is_none();
        Ok(Lacking { images, triggers: triggers::faults(&[source])? })
    }

    fn is_nothing(&self) -> bool {
        !self.images && self.triggers.is_empty()
    }

    /// All of the source's tree, or the partitions alone where nothing else lacks anything; and how.
    fn locks(&self, source: Oid) -> Result<(BTreeSet<Oid>, LockMode)> {
        let (mut tables, mode) = triggers::locks(&self.triggers)?;
        if self.images {
            tables.extend(with_descendants(source)?);
        }
        Ok((tables, mode))
    }
}

/// Tables that installing what capture of a source lacks has to lock; whoever installs several locks all at once.
pub fn to_install(source: Oid) -> Result<BTreeSet<Oid>> {
    match dependencies::captured_columns(source)? {
        Some(columns) => Ok(Lacking::of(source, &columns)?.locks(source)?.0),
        None => Ok(BTreeSet::new()),
    }
}

/// Makes the buffer, in place of what may bear its name.
fn create_buffer(source: Oid) -> Result<()> {
    let name = buffer_name(source);
    drop_internal_table(&name)?;
    // No index and no statistics to keep: it is written by every write of the source and read whole.
    create_side_table(
        &name,
        "xid xid8, epoch integer, w integer, image bytea",
        "autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, \
         autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000",
    )
}

/// A relation that only this library writes: see `pg::side`.
pub fn create_side_table(name: &str, columns: &str, options: &str) -> Result<()> {
    let table = sqltext::qualified(INTERNAL_SCHEMA, name);
    let create = format!(
        "CREATE MATERIALIZED VIEW {table} USING heap WITH ({options}) AS \
         SELECT r.* FROM pgtrickle_internal.own_rows({}, {}) AS r({columns})",
        sqltext::literal(INTERNAL_SCHEMA),
        sqltext::literal(name)
    );
    spi::run_once(&create, &[], Mode::Fresh)?;
    revoke_all(&table)?;
    spi::run_once(&format!("ALTER EXTENSION pgtrickle ADD MATERIALIZED VIEW {table}"), &[], Mode::Fresh)?;
    Ok(())
}

/// Removes triggers and buffer.
fn remove(source: Oid) -> Result<()> {
    triggers::remove(source)?;
    captures::forget(source)?;
    drop_internal_table(&buffer_name(source))
}

/// Drops one of our tables, if it exists.
pub fn drop_internal_table(name: &str) -> Result<()> {
    let exists = spi::run(
        "SELECT c.relkind = 'm' FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = $1 AND c.relname = $2",
        &[Arg::Text(INTERNAL_SCHEMA), Arg::Text(name)],
        Mode::Fresh,
    )?;
    if let Some(mut row) = exists.first() {
        let kind = if row.bool(0)? { "MATERIALIZED VIEW" } else { "TABLE" };
        let table = sqltext::qualified(INTERNAL_SCHEMA, name);
        spi::run_once(&format!("ALTER EXTENSION pgtrickle DROP {kind} {table}"), &[], Mode::Fresh)?;
        spi::run_once(&format!("DROP {kind} {table}"), &[], Mode::Fresh)?;
    }
    Ok(())
}

/// While all users of a source are suspended nothing consumes its buffer: it is dropped, so that it can't grow. The
/// triggers stay, as no-ops; resuming makes the buffer anew and computes contents anew.
pub fn drop_unused_buffer(source: Oid) -> Result<()> {
    if dependencies::captured_columns(source)?.is_none() {
        captures::forget(source)?;
        drop_internal_table(&buffer_name(source))?;
    }
    Ok(())
}

/// Unconsumed changes of a source for a frontier: number of rows, and of marks among them.
pub fn pending(source: Oid, frontier: &Frontier) -> Result<(i64, i64)> {
    let (mut rows, mut marks) = (0, 0);
    side::scan(source, |change| {
        if !frontier.has_passed(change.xid, change.epoch) {
            rows += change.rows();
            marks += i64::from(change.is_mark());
        }
        Ok(())
    })?;
    Ok((rows, marks))
}

/// `$1` snapshot, `$2` xid8, `$3` epoch of the maintenance statement.
pub fn frontier_args<'a>(frontier: &'a str, own_xid: &'a str, epoch: &'a str) -> [Arg<'a>; 3] {
    [
        Arg::Text(frontier),
        Arg::Literal(pgrx::pg_sys::XID8OID, own_xid),
        Arg::Literal(pgrx::pg_sys::INT4OID, epoch),
    ]
}

/// Keeps the buffers of these sources as they are until the end of the transaction: who rewrites one, as REFRESH does, has
/// done so before our snapshot, or waits.
pub fn hold_buffers(sources: impl IntoIterator<Item = Oid>) -> Result<()> {
    for source in sources {
        if let Some(buffer) = side::buffer(source)? {
            lock_relation(buffer, LockMode::AccessShare);
        }
    }
    Ok(())
}

/// Does the buffer exist?
pub fn buffer_exists(source: Oid) -> Result<bool> {
    Ok(side::buffer(source)?.is_some())
}

/// Deletes what every user of the source has consumed. Only rows that are in all frontiers: a late commit stays.
pub fn trim(source: Oid) -> Result<()> {
    if !try_lock_ours(Ours::Buffer(source))? {
        return Ok(());
    }
    let readers = readers(source)?;
    if readers.is_empty() { Ok(()) } else { delete_consumed(source, &readers) }
}

/// Who has still to consume rows of a buffer, and from where on.
fn readers(source: Oid) -> Result<Vec<(StreamTable, Frontier)>> {
    let mut readers = Vec::new();
    for table in stream_tables::users_of(pgrx::pg_sys::RelationRelationId.to_u32(), source)? {
        // Others read the table first, not the buffer, and start from there.
        let reads = table.differential && table.status != Status::Suspended && table.reinitialize.is_none();
        if let Some(frontier) = table.frontier()?.filter(|_| reads) {
            readers.push((table, frontier));
        }
    }
    Ok(readers)
}

fn delete_consumed(source: Oid, readers: &[(StreamTable, Frontier)]) -> Result<()> {
    side::delete(source, |change| readers.iter().all(|(_, f)| f.has_passed(change.xid, change.epoch)))
}

/// Those for whom a buffer keeps more than `limit` bytes of rows. The buffer's lock, exclusive, is to be held.
pub fn slow_readers(source: Oid, limit: i64) -> Result<Vec<StreamTable>> {
    let readers = readers(source)?;
    let mut kept = vec![0i64; readers.len()];
    side::scan(source, |change| {
        for ((_, frontier), kept) in readers.iter().zip(&mut kept) {
            if !frontier.has_passed(change.xid, change.epoch) {
                *kept = kept.saturating_add(change.stored_size());
            }
        }
        Ok(())
    })?;
    Ok(readers.into_iter().zip(kept).filter(|(_, kept)| *kept > limit).map(|((table, _), _)| table).collect())
}

/// Deletes what nobody has still to consume; all that is visible, if nobody reads the buffer: whoever will start from the
/// table does so at a snapshot of later. The buffer's lock, exclusive, is to be held since before this snapshot.
pub fn trim_unread(source: Oid) -> Result<()> {
    delete_consumed(source, &readers(source)?)
}
