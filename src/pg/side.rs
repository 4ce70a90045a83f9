//! Side tables as they are stored: materialized views that only this library writes. Buffers have rows of transaction,
//! epoch, kind of change and image (`dvm::image`); for state tables see `pg::state`. Publications, the executor's DML and
//! TRUNCATE pass such relations by, and nothing else does: they are logged, vacuumed, copied and upgraded like tables.
//!
//! # Safety
//! Functions here that are not safe to call get relations, tuples and values that are valid and of the type that their
//! names say.

use pgrx::pg_sys;

use crate::dvm::image;
use crate::error::{Error, Result};
use crate::model::{INTERNAL_SCHEMA, Oid, buffer_name};
use crate::pg::compat::{descriptor_attribute, rebuild_indexes, set_new_storage};
use crate::pg::spi::c_string;

/// Types of a buffer's columns.
const BUFFER: [pg_sys::Oid; 4] = [pg_sys::XID8OID, pg_sys::INT4OID, pg_sys::INT4OID, pg_sys::BYTEAOID];

/// What happened to a row: `w` of a buffer.
pub mod kind {
    pub const INSERTED: i32 = 1;
    pub const DELETED: i32 = -1;
    /// The image is a pair: of the row before and after.
    pub const UPDATED: i32 = 2;
    /// Rows left without being seen.
    pub const MARK: i32 = 0;
}

/// One buffered change, valid while the scan stands on it.
pub struct Change {
    pub xid: u64,
    pub epoch: i32,
    kind: i32,
    image: *mut pg_sys::varlena,
    tid: pg_sys::ItemPointerData,
}

impl Change {
    /// Bytes that the row takes, wherever its image is stored.
    pub fn stored_size(&self) -> i64 {
        /// Its line pointer, header and fixed columns.
        const FIXED: i64 = 44;
        // SAFETY: the scan stands on the row; looks at the header of the image only.
        let image = unsafe { pg_sys::toast_datum_size(pg_sys::Datum::from(self.image)) };
        FIXED.saturating_add(i64::try_from(image).unwrap_or(i64::MAX))
    }

    /// It says that rows left without being seen.
    pub fn is_mark(&self) -> bool {
        self.kind == kind::MARK
    }

    /// Rows that left or came by it; a mark counts as one.
    pub fn rows(&self) -> i64 {
        if self.kind == kind::UPDATED { 2 } else { 1 }
    }

    /// Calls `f` for each row that left (weight -1) or came (1), with its image.
    pub fn each_row(&self, mut f: impl FnMut(&[u8], i64) -> Result<()>) -> Result<()> {
        self.with_image(|image| match self.kind {
            kind::INSERTED => f(image, 1),
            kind::DELETED => f(image, -1),
            kind::UPDATED => {
                let (before, after) = image::split_pair(image)?;
                f(before, -1)?;
                f(after, 1)
            }
            kind::MARK => Ok(()),
            other => Err(Error::Internal(format!("a buffered change of unknown kind {other}"))),
        })
    }

    fn with_image<T>(&self, f: impl FnOnce(&[u8]) -> T) -> T {
        // SAFETY: the scan stands on the row; a copy is made and given back where it is stored compressed or elsewhere.
        unsafe {
            let plain = pg_sys::pg_detoast_datum_packed(self.image);
            let result = f(pgrx::varlena::varlena_to_byte_slice(plain));
            if plain != self.image {
                pg_sys::pfree(plain.cast());
            }
            result
        }
    }
}

/// Relation of this name in our internal schema, if there is one.
pub fn find(name: &str) -> Result<Option<Oid>> {
    let schema = c_string(INTERNAL_SCHEMA)?;
    let name = c_string(name)?;
    // SAFETY: syscache look-ups by name.
    let oid = unsafe {
        let schema = pg_sys::get_namespace_oid(schema.as_ptr(), true);
        if schema == pg_sys::InvalidOid { schema } else { pg_sys::get_relname_relid(name.as_ptr(), schema) }
    };
    Ok((oid != pg_sys::InvalidOid).then(|| oid.to_u32()))
}

/// The buffer of a source, if it is there and whole: somebody may have replaced or emptied it.
pub fn buffer(source: Oid) -> Result<Option<Oid>> {
    let Some(oid) = find(&buffer_name(source))? else { return Ok(None) };
    // SAFETY: opened without a lock, to look at its description only, and closed.
    unsafe {
        let rel = pg_sys::RelationIdGetRelation(pg_sys::Oid::from(oid));
        if rel.is_null() {
            return Ok(None);
        }
        let whole = has_columns(rel, &BUFFER) && (*(*rel).rd_rel).relispopulated;
        pg_sys::RelationClose(rel);
        Ok(whole.then_some(oid))
    }
}

unsafe fn has_columns(rel: pg_sys::Relation, types: &[pg_sys::Oid]) -> bool {
    // SAFETY: an open relation; attributes below natts.
    unsafe {
        let desc = (*rel).rd_att;
        (*(*rel).rd_rel).relkind as u8 == pg_sys::RELKIND_MATVIEW
            && (*desc).natts as usize == types.len()
            && types.iter().enumerate().all(|(i, t)| (*descriptor_attribute(desc, i)).atttypid == *t)
    }
}

/// Calls `f` for each row of a source's buffer that the active snapshot sees.
pub fn scan(source: Oid, mut f: impl FnMut(&Change) -> Result<()>) -> Result<()> {
    let rel = open(source, pg_sys::AccessShareLock)?;
    // SAFETY: the relation is open and a buffer; the active snapshot outlives the scan; both are closed here, or by abort.
    unsafe {
        let result = each(rel, pg_sys::GetActiveSnapshot(), |tuple| f(&change(tuple)?));
        pg_sys::table_close(rel, pg_sys::NoLock as i32);
        result
    }
}

/// Deletes the rows of a buffer that are visible and that `wanted` wants gone. One that somebody else has deleted already
/// is left to him.
pub fn delete(source: Oid, mut wanted: impl FnMut(&Change) -> bool) -> Result<()> {
    let rel = open(source, pg_sys::RowExclusiveLock)?;
    // SAFETY: as in `scan`; the row to delete is one of this relation, named by where it is.
    unsafe {
        let command = pg_sys::GetCurrentCommandId(true);
        let result = each(rel, pg_sys::GetActiveSnapshot(), |tuple| {
            let change = change(tuple)?;
            if wanted(&change) {
                let mut tid = change.tid;
                let mut failure = pg_sys::TM_FailureData::default();
                pg_sys::heap_delete(rel, &mut tid, command, std::ptr::null_mut(), false, &mut failure, false);
            }
            Ok(())
        });
        pg_sys::table_close(rel, pg_sys::NoLock as i32);
        result
    }
}

/// Takes all rows away, as TRUNCATE does: the relation gets new storage, and the old one goes at commit.
pub fn truncate(oid: Oid) {
    // SAFETY: relations of ours with storage, closed here; their locks stay until the end of the transaction.
    unsafe {
        let renew = |oid: pg_sys::Oid| {
            let rel = pg_sys::relation_open(oid, pg_sys::AccessExclusiveLock as i32);
            let toast = (*(*rel).rd_rel).reltoastrelid;
            set_new_storage(rel);
            pg_sys::relation_close(rel, pg_sys::NoLock as i32);
            toast
        };
        let toast = renew(oid.into());
        if toast != pg_sys::InvalidOid {
            renew(toast);
        }
        rebuild_indexes(oid.into());
    }
}

/// Bytes that the buffer takes, with its TOAST table.
pub fn size(source: Oid) -> Result<i64> {
    let Some(oid) = buffer(source)? else { return Ok(0) };
    // SAFETY: a function of PostgreSQL that takes an oid and answers with a bigint, or NULL for a relation that is gone.
    let size = unsafe {
        pgrx::direct_function_call::<i64>(
            pg_sys::pg_total_relation_size,
            &[Some(pg_sys::Datum::from(pg_sys::Oid::from(oid)))],
        )
    };
    Ok(size.unwrap_or(0))
}

fn open(source: Oid, lock: u32) -> Result<pg_sys::Relation> {
    let missing = Error::SideTableMissing { name: buffer_name(source) };
    open_table(buffer(source)?.ok_or(missing)?, &BUFFER, lock)
}

/// Opens one of our tables that has columns of these types.
pub(super) fn open_table(oid: Oid, types: &[pg_sys::Oid], lock: u32) -> Result<pg_sys::Relation> {
    let gone = || Error::SideTableMissing { name: oid.to_string() };
    // SAFETY: it may be gone by now; then there is no relation.
    let rel = unsafe { pg_sys::try_table_open(pg_sys::Oid::from(oid), lock as i32) };
    if rel.is_null() {
        return Err(gone());
    }
    // SAFETY: an open relation.
    if unsafe { has_columns(rel, types) } { Ok(rel) } else { Err(gone()) }
}

/// Calls `f` for each row that the snapshot sees.
///
/// # Safety
/// An open relation and a snapshot that outlives the call; the row is valid while `f` runs.
pub(super) unsafe fn each(
    rel: pg_sys::Relation,
    snapshot: pg_sys::Snapshot,
    mut f: impl FnMut(pg_sys::HeapTuple) -> Result<()>,
) -> Result<()> {
    // SAFETY: per the contract; the scan is ended here, or by abort.
    unsafe {
        let scan = pg_sys::table_beginscan(rel, snapshot, 0, std::ptr::null_mut());
        let mut result = Ok(());
        loop {
            let tuple = pg_sys::heap_getnext(scan, pg_sys::ScanDirection::ForwardScanDirection);
            if tuple.is_null() {
                break;
            }
            result = f(tuple);
            if result.is_err() {
                break;
            }
        }
        pg_sys::table_endscan(scan);
        result
    }
}

unsafe fn change(tuple: pg_sys::HeapTuple) -> Result<Change> {
    // SAFETY: a row of a buffer. Without NULLs its columns lie where their types put them: 8, 4 and 4 bytes, and the image
    // behind them, which needs no padding there.
    unsafe {
        let header = (*tuple).t_data;
        if u32::from((*header).t_infomask) & pg_sys::HEAP_HASNULL != 0 {
            return Err(Error::Internal("a buffered row has a NULL".into()));
        }
        let data = header.cast::<u8>().add(usize::from((*header).t_hoff));
        Ok(Change {
            xid: data.cast::<u64>().read_unaligned(),
            epoch: data.add(8).cast::<i32>().read_unaligned(),
            kind: data.add(12).cast::<i32>().read_unaligned(),
            image: data.add(16).cast(),
            tid: (*tuple).t_self,
        })
    }
}
