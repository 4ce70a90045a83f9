//! State tables: rows of a hash and an image, found by an index on the hash, and the functions by which a refresh reads
//! and writes them. What a statement writes it does not see, as with data-modifying CTEs.
//!
//! # Safety
//! Functions here that are not safe to call take call data of PostgreSQL's function manager for the functions that they
//! are the bodies of, or relations and tuples of state tables.

use std::collections::BTreeSet;

use pgrx::pg_sys;
use pgrx::{PgList, PgMemoryContexts};

use crate::dvm::image::{self, Values};
use crate::error::{Error, Result};
use crate::model::Oid;
use crate::pg::catalog_scan::array_elements;
use crate::pg::values::{Kind, Output, kinds, put};
use crate::pg::{access, side};

/// Types of a state table's columns.
const STATE: [pg_sys::Oid; 2] = [pg_sys::INT8OID, pg_sys::BYTEAOID];

/// The body of `state(table, hashes)`: where each row is, its hash, and its columns; all rows, or those with one of the
/// hashes.
///
/// # Safety
/// See the module's doc.
pub unsafe fn read(fcinfo: pg_sys::FunctionCallInfo) -> Result<()> {
    // SAFETY: per the contract; the arguments have these types.
    unsafe {
        let table: pg_sys::Oid = pgrx::pg_getarg(fcinfo, 0).ok_or(Error::OnlyInRefresh)?;
        access::check_state(table.to_u32())?;
        let hashes = pgrx::pg_getarg_datum(fcinfo, 1).map(|array| hashes(array));
        let out = Output::new(fcinfo, &[pg_sys::TIDOID, pg_sys::INT8OID], &[])?;
        let columns: Vec<_> = (1..).zip(out.types()).collect();
        let mut reader = Reader { header: image::header(&columns), out };
        let rel = side::open_table(table.to_u32(), &STATE, pg_sys::AccessShareLock)?;
        let snapshot = pg_sys::GetActiveSnapshot();
        let read = match hashes {
            None => side::each(rel, snapshot, |tuple| reader.put(tuple)),
            // Looking up a row by the index costs about as much as reading a page.
            Some(hashes) if hashes.len() > blocks(rel) => side::each(rel, snapshot, |tuple| {
                if hashes.contains(&hash_of(tuple)) { reader.put(tuple) } else { Ok(()) }
            }),
            Some(hashes) => {
                let index = index(rel)?;
                hashes.into_iter().try_for_each(|hash| probe(rel, index, snapshot, hash, &mut reader))
            }
        };
        pg_sys::table_close(rel, pg_sys::NoLock as i32);
        read
    }
}

struct Reader {
    header: Vec<u8>,
    out: Output,
}

impl Reader {
    /// # Safety
    /// A row of a state table.
    unsafe fn put(&mut self, tuple: pg_sys::HeapTuple) -> Result<()> {
        // SAFETY: per the contract; behind the hash stands the image, which needs no padding there. The copy, if one had to
        // be made, is freed with the function's memory context, or here.
        unsafe {
            let stored = data(tuple)?.add(8).cast::<pg_sys::varlena>();
            let plain = pg_sys::pg_detoast_datum_packed(stored);
            let (header, values) = image::split(pgrx::varlena::varlena_to_byte_slice(plain))?;
            if header != self.header {
                return Err(Error::StaleImage {
                    what: "the state of a group has columns of other types".into(),
                });
            }
            let tid = pg_sys::Datum::from(&raw mut (*tuple).t_self);
            self.out.put(&[tid, hash_of(tuple).into()], Values(values), &[])?;
            if plain != stored {
                pg_sys::pfree(plain.cast());
            }
            Ok(())
        }
    }
}

/// # Safety
/// An array of bigint, without NULLs.
unsafe fn hashes(array: pg_sys::Datum) -> BTreeSet<i64> {
    // SAFETY: per the contract.
    unsafe {
        let array = pg_sys::pg_detoast_datum(array.cast_mut_ptr()).cast();
        array_elements(array, pg_sys::INT8OID, 8, true, b'd' as std::ffi::c_char)
            .into_iter()
            .map(|hash| hash.value() as i64)
            .collect()
    }
}

unsafe fn blocks(rel: pg_sys::Relation) -> usize {
    // SAFETY: an open relation with storage.
    unsafe { pg_sys::RelationGetNumberOfBlocksInFork(rel, pg_sys::ForkNumber::MAIN_FORKNUM) as usize }
}

/// The index on the hash.
unsafe fn index(rel: pg_sys::Relation) -> Result<pg_sys::Oid> {
    // SAFETY: an open relation; the list is of oids.
    let list = unsafe { PgList::<pg_sys::Oid>::from_pg(pg_sys::RelationGetIndexList(rel)) };
    list.get_oid(0).ok_or_else(|| Error::Internal("a state table has lost its index".into()))
}

unsafe fn probe(
    rel: pg_sys::Relation,
    index: pg_sys::Oid,
    snapshot: pg_sys::Snapshot,
    hash: i64,
    reader: &mut Reader,
) -> Result<()> {
    // SAFETY: an index of the relation on its first column, a bigint; the scan copies the key, and is ended here, or by
    // abort.
    unsafe {
        let mut key = pg_sys::ScanKeyData::default();
        let equal = pg_sys::BTEqualStrategyNumber as u16;
        pg_sys::ScanKeyInit(&mut key, 1, equal, pg_sys::F_INT8EQ.into(), hash.into());
        let scan = pg_sys::systable_beginscan(rel, index, true, snapshot, 1, &mut key);
        let mut read = Ok(());
        loop {
            let tuple = pg_sys::systable_getnext(scan);
            if tuple.is_null() || read.is_err() {
                break;
            }
            read = reader.put(tuple);
        }
        pg_sys::systable_endscan(scan);
        read
    }
}

/// # Safety
/// A row of a state table.
unsafe fn data(tuple: pg_sys::HeapTuple) -> Result<*mut u8> {
    // SAFETY: per the contract.
    unsafe {
        let header = (*tuple).t_data;
        if u32::from((*header).t_infomask) & pg_sys::HEAP_HASNULL != 0 {
            return Err(Error::Internal("a row of a state table has a NULL".into()));
        }
        Ok(header.cast::<u8>().add(usize::from((*header).t_hoff)))
    }
}

/// # Safety
/// A row of a state table.
unsafe fn hash_of(tuple: pg_sys::HeapTuple) -> i64 {
    // SAFETY: per the contract; the hash is the first column, which is never NULL.
    unsafe {
        let header = (*tuple).t_data;
        header.cast::<u8>().add(usize::from((*header).t_hoff)).cast::<i64>().read_unaligned()
    }
}

/// What the aggregate that writes keeps between its rows.
struct Writer {
    rel: pg_sys::Relation,
    indexes: pg_sys::CatalogIndexState,
    /// The aggregate's own.
    context: pg_sys::MemoryContext,
    /// How the records are built, from the first one on.
    layout: Option<Layout>,
    rows: i64,
}

/// The columns of the records that are written; the first is the hash.
struct Layout {
    desc: pg_sys::TupleDesc,
    kinds: Vec<Kind>,
    header: Vec<u8>,
    values: Vec<pg_sys::Datum>,
    nulls: Vec<bool>,
}

/// The transition of the aggregate `write_state(table, tid, record)`: a new row without a tid, a changed one, or without a
/// record one that goes. The record is the hash and the columns. The answer is a pointer to its `Writer`.
///
/// # Safety
/// See the module's doc.
pub unsafe fn write(fcinfo: pg_sys::FunctionCallInfo) -> Result<i64> {
    // SAFETY: per the contract; the arguments have these types, and the first is what this function returned before.
    unsafe {
        let writer = match pgrx::pg_getarg_datum(fcinfo, 0) {
            Some(writer) => writer.cast_mut_ptr::<Writer>(),
            None => {
                let table: Option<pg_sys::Oid> = pgrx::pg_getarg(fcinfo, 1);
                let table =
                    table.ok_or_else(|| Error::Internal("write_state() without its arguments".into()))?;
                Writer::open(fcinfo, table.to_u32())?
            }
        };
        let tid = pgrx::pg_getarg_datum(fcinfo, 2).map(|tid| *tid.cast_mut_ptr::<pg_sys::ItemPointerData>());
        let record = pgrx::pg_getarg_datum(fcinfo, 3).map(|record| {
            pg_sys::pg_detoast_datum(record.cast_mut_ptr()).cast::<pg_sys::HeapTupleHeaderData>()
        });
        (*writer).write(tid, record)?;
        Ok(writer as i64)
    }
}

/// The end of `write_state`: how many rows it got.
///
/// # Safety
/// See the module's doc.
pub unsafe fn written(fcinfo: pg_sys::FunctionCallInfo) -> i64 {
    // SAFETY: per the contract; the argument is what `write` returned, if there was any row.
    unsafe {
        let Some(writer) = pgrx::pg_getarg_datum(fcinfo, 0) else { return 0 };
        let writer = writer.cast_mut_ptr::<Writer>();
        pg_sys::CatalogCloseIndexes((*writer).indexes);
        pg_sys::table_close((*writer).rel, pg_sys::NoLock as i32);
        (*writer).rows
    }
}

impl Writer {
    /// # Safety
    /// Called as an aggregate's transition.
    unsafe fn open(fcinfo: pg_sys::FunctionCallInfo, table: Oid) -> Result<*mut Writer> {
        access::check_state(table)?;
        let mut context = std::ptr::null_mut();
        // SAFETY: per the contract. What lives as long as the aggregate is made in its memory context; the relation is
        // closed at its end, or by abort.
        unsafe {
            if pg_sys::AggCheckCallContext(fcinfo, &mut context) == 0 {
                return Err(Error::OnlyInRefresh);
            }
            let before = pg_sys::MemoryContextSwitchTo(context);
            let rel = side::open_table(table, &STATE, pg_sys::RowExclusiveLock)?;
            let indexes = pg_sys::CatalogOpenIndexes(rel);
            pg_sys::MemoryContextSwitchTo(before);
            let writer = Writer { rel, indexes, context, layout: None, rows: 0 };
            Ok(PgMemoryContexts::For(context).leak_and_drop_on_delete(writer))
        }
    }

    /// # Safety
    /// The tid is that of a row of the table, and all records are of one type.
    unsafe fn write(
        &mut self,
        tid: Option<pg_sys::ItemPointerData>,
        record: Option<*mut pg_sys::HeapTupleHeaderData>,
    ) -> Result<()> {
        self.rows += 1;
        // SAFETY: per the contract; the tuple has the columns of a state table, as `open_table` checked.
        unsafe {
            let tuple = record.map(|record| self.form(record)).transpose()?;
            match (tid, tuple) {
                (None, None) => {}
                (Some(mut tid), None) => pg_sys::CatalogTupleDelete(self.rel, &mut tid),
                (None, Some(tuple)) => pg_sys::CatalogTupleInsertWithInfo(self.rel, tuple, self.indexes),
                (Some(mut tid), Some(tuple)) => {
                    pg_sys::CatalogTupleUpdateWithInfo(self.rel, &mut tid, tuple, self.indexes);
                }
            }
        }
        Ok(())
    }

    /// A row of the table, in the aggregate's memory context of one input row.
    unsafe fn form(&mut self, record: *mut pg_sys::HeapTupleHeaderData) -> Result<pg_sys::HeapTuple> {
        // SAFETY: a record of the type that the layout is of, in the form that a tuple has; values point into it.
        unsafe {
            let layout = match &mut self.layout {
                Some(layout) => layout,
                none => none.insert(Layout::of(record, self.context)),
            };
            let mut tuple = pg_sys::HeapTupleData {
                t_len: pgrx::varsize_any(record.cast()) as u32,
                t_data: record,
                ..Default::default()
            };
            let (all, nulls) = (&mut layout.values, &mut layout.nulls);
            pg_sys::heap_deform_tuple(&mut tuple, layout.desc, all.as_mut_ptr(), nulls.as_mut_ptr());
            let (Some((hash, values)), Some((false, nulls))) = (all.split_first(), nulls.split_first())
            else {
                return Err(Error::Internal("a group without its hash".into()));
            };
            // The varlena header of the image first.
            let mut image = vec![0; 4];
            image.extend_from_slice(&layout.header);
            for ((value, is_null), kind) in values.iter().zip(nulls).zip(&layout.kinds) {
                if *is_null {
                    image::put_null(&mut image);
                } else {
                    put(*value, kind, &mut image);
                }
            }
            let bytes = pg_sys::palloc(image.len()).cast::<u8>();
            std::ptr::copy_nonoverlapping(image.as_ptr(), bytes, image.len());
            pgrx::varlena::set_varsize_4b(bytes.cast(), image.len() as i32);
            let mut values = [*hash, pg_sys::Datum::from(bytes)];
            let mut nulls = [false; 2];
            Ok(pg_sys::heap_form_tuple((*self.rel).rd_att, values.as_mut_ptr(), nulls.as_mut_ptr()))
        }
    }
}

impl Layout {
    /// # Safety
    /// A record whose first column is a bigint; the context lives as long as the layout is used.
    unsafe fn of(record: *mut pg_sys::HeapTupleHeaderData, context: pg_sys::MemoryContext) -> Layout {
        // SAFETY: per the contract.
        unsafe {
            let identity = (*record).t_choice.t_datum;
            let before = pg_sys::MemoryContextSwitchTo(context);
            let desc = pg_sys::lookup_rowtype_tupdesc_copy(identity.datum_typeid, identity.datum_typmod);
            pg_sys::MemoryContextSwitchTo(before);
            let count = (*desc).natts as usize;
            let (types, kinds): (Vec<_>, Vec<_>) = kinds(desc, 1, count).into_iter().unzip();
            let columns: Vec<_> = (1..).zip(types).collect();
            let (values, nulls) = (vec![pg_sys::Datum::null(); count], vec![true; count]);
            Layout { desc, kinds, header: image::header(&columns), values, nulls }
        }
    }
}
