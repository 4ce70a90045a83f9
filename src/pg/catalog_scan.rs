//! Reading catalog rows by an index through the active snapshot, which may be older than what the caches describe. Where a
//! statement would cost more than the rows do.

use std::ffi::CStr;

use pgrx::pg_sys;

use crate::error::{Error, Result};
use crate::model::Oid;
use crate::pg::lock::{LockMode, try_lock_relation, unlock_relation};
use crate::pg::names::own_relation;
use crate::pg::snapshot::is_serializable;

/// An index scan of a catalog for one oid.
pub struct Scan {
    table: pg_sys::Relation,
    scan: pg_sys::SysScanDesc,
}

impl Scan {
    /// Begins; [`Scan::end`] must follow, or the abort of the (sub)transaction.
    ///
    /// # Safety
    /// `index` is an index of `catalog` whose first column is `attribute` of it, an oid. There is an active snapshot.
    pub unsafe fn begin(catalog: pg_sys::Oid, index: u32, attribute: i16, oid: pg_sys::Oid) -> Scan {
        // SAFETY: per the contract.
        unsafe { Scan::begin_at(pg_sys::GetActiveSnapshot(), catalog, index, attribute, oid) }
    }

    /// The same through what is committed by now and the own transaction's commands, as PostgreSQL reads its catalogs.
    ///
    /// # Safety
    /// `index` is an index of `catalog` whose first column is `attribute` of it, an oid.
    pub unsafe fn begin_now(catalog: pg_sys::Oid, index: u32, attribute: i16, oid: pg_sys::Oid) -> Scan {
        // SAFETY: per the contract; without a snapshot the scan takes that of the catalogs.
        unsafe { Scan::begin_at(std::ptr::null_mut(), catalog, index, attribute, oid) }
    }

    unsafe fn begin_at(
        snapshot: pg_sys::Snapshot,
        catalog: pg_sys::Oid,
        index: u32,
        attribute: i16,
        oid: pg_sys::Oid,
    ) -> Scan {
        // SAFETY: per the contract; the scan copies the key.
        unsafe {
            let table = pg_sys::table_open(catalog, pg_sys::AccessShareLock as i32);
            let mut key = pg_sys::ScanKeyData::default();
            pg_sys::ScanKeyInit(
                &mut key,
                attribute,
                pg_sys::BTEqualStrategyNumber as u16,
                pg_sys::F_OIDEQ.into(),
                pg_sys::Datum::from(oid),
            );
            let scan = pg_sys::systable_beginscan(table, index.into(), true, snapshot, 1, &mut key);
            Scan { table, scan }
        }
    }

    /// The next row; it is valid until the one after it is asked for.
    pub fn next(&self) -> Option<pg_sys::HeapTuple> {
        // SAFETY: the scan is open.
        let tuple = unsafe { pg_sys::systable_getnext(self.scan) };
        (!tuple.is_null()).then_some(tuple)
    }

    /// How the catalog's rows are built.
    pub fn description(&self) -> pg_sys::TupleDesc {
        // SAFETY: the catalog is open.
        unsafe { (*self.table).rd_att }
    }

    /// Ends it.
    pub fn end(self) {
        // SAFETY: both were opened by `begin`.
        unsafe {
            pg_sys::systable_endscan(self.scan);
            pg_sys::table_close(self.table, pg_sys::AccessShareLock as i32);
        }
    }
}

/// The fixed part of a catalog's row.
///
/// # Safety
/// `tuple` is a valid row of the catalog whose struct `T` is.
pub unsafe fn fixed_part<'a, T>(tuple: pg_sys::HeapTuple) -> &'a T {
    // SAFETY: per the contract; data begin behind the header, aligned for any type.
    unsafe {
        let header = (*tuple).t_data;
        &*header.cast::<u8>().add(usize::from((*header).t_hoff)).cast::<T>()
    }
}

/// What `read` makes of the row with this oid, if the active snapshot sees one.
///
/// # Safety
/// `index` is the unique index on the oid of `catalog`, its first column; `T` is the struct of its rows.
pub unsafe fn row_by_oid<T, R>(
    catalog: pg_sys::Oid,
    index: u32,
    oid: pg_sys::Oid,
    read: impl FnOnce(&T) -> R,
) -> Option<R> {
    // SAFETY: per the contract.
    unsafe {
        let scan = Scan::begin(catalog, index, 1, oid);
        let found = scan.next().map(|tuple| read(fixed_part(tuple)));
        scan.end();
        found
    }
}

/// As `row_by_oid`, through what is committed by now.
///
/// # Safety
/// As `row_by_oid`, without a snapshot.
pub unsafe fn row_by_oid_now<T, R>(
    catalog: pg_sys::Oid,
    index: u32,
    oid: pg_sys::Oid,
    read: impl FnOnce(&T) -> R,
) -> Option<R> {
    // SAFETY: per the contract.
    unsafe {
        let scan = Scan::begin_now(catalog, index, 1, oid);
        let found = scan.next().map(|tuple| read(fixed_part(tuple)));
        scan.end();
        found
    }
}

/// Is there any row of this relation?
///
/// # Safety
/// `index` is an index of `catalog` that begins with the column of this name, an oid.
pub unsafe fn any_row(catalog: pg_sys::Oid, index: u32, column: &CStr, relation: Oid) -> bool {
    // SAFETY: per the contract.
    unsafe {
        let number = pg_sys::get_attnum(catalog, column.as_ptr());
        let scan = Scan::begin(catalog, index, number, relation.into());
        let found = scan.next().is_some();
        scan.end();
        found
    }
}

/// An attribute of a row; none when it is NULL.
///
/// # Safety
/// `tuple` is a valid row of this description.
pub unsafe fn attribute(
    tuple: pg_sys::HeapTuple,
    desc: pg_sys::TupleDesc,
    number: i16,
) -> Option<pg_sys::Datum> {
    let mut is_null = true;
    // SAFETY: per the contract.
    let datum = unsafe { pg_sys::htup::heap_getattr(tuple, number.into(), desc, &mut is_null) };
    (!is_null).then_some(datum)
}

/// The elements of an array without NULLs.
///
/// # Safety
/// `array` is a detoasted array whose elements have this type and form.
pub unsafe fn array_elements(
    array: *mut pg_sys::ArrayType,
    element: pg_sys::Oid,
    length: i32,
    by_value: bool,
    alignment: std::ffi::c_char,
) -> Vec<pg_sys::Datum> {
    let (mut values, mut nulls, mut count) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
    // SAFETY: per the contract; PostgreSQL allocates both arrays with `count` entries.
    unsafe {
        pg_sys::deconstruct_array(
            array,
            element,
            length,
            by_value,
            alignment,
            &mut values,
            &mut nulls,
            &mut count,
        );
        match usize::try_from(count) {
            Ok(count) if count > 0 => std::slice::from_raw_parts(values, count).to_vec(),
            _ => Vec::new(),
        }
    }
}

/// What `read` makes of the rows of a table of pgtrickle's own, found by the oid that an index of it begins with: as they
/// are now, whatever snapshot the transaction has. It waits for nobody, needs no transaction id, and gives its locks back.
///
/// # Safety
/// The index named is one of the table named, and begins with its column `attribute`, an oid.
pub unsafe fn own_rows<R>(
    table: &'static CStr,
    index: &'static CStr,
    attribute: i16,
    oid: Oid,
    mut read: impl FnMut(pg_sys::HeapTuple, pg_sys::TupleDesc) -> R,
) -> Result<Vec<R>> {
    let shown = |name: &CStr| format!("pgtrickle.{}", name.to_string_lossy());
    let missing = |name: &CStr| Error::OwnTableMissing { name: shown(name) };
    let relation = own_relation(table).ok_or_else(|| missing(table))?;
    let by = own_relation(index).ok_or_else(|| missing(index))?;
    if !try_lock_all(&[relation, by]) {
        return Err(Error::LockNotAvailable { what: shown(table) });
    }
    // They may have been dropped before the lock was had.
    if own_relation(table) != Some(relation) || own_relation(index) != Some(by) {
        unlock_all(&[relation, by]);
        return Err(missing(table));
    }
    let mut found = Vec::new();
    // SAFETY: both are locked and exist; the scan copies the key; a row is used before the next one is asked for. Under
    // SERIALIZABLE a snapshot that is no MVCC snapshot is taken, so that this look can make nobody fail.
    unsafe {
        let rel = pg_sys::table_open(relation.into(), pg_sys::NoLock as i32);
        let mut key = pg_sys::ScanKeyData::default();
        pg_sys::ScanKeyInit(
            &mut key,
            attribute,
            pg_sys::BTEqualStrategyNumber as u16,
            pg_sys::F_OIDEQ.into(),
            pg_sys::Datum::from(pg_sys::Oid::from(oid)),
        );
        let snapshot =
            if is_serializable() { &raw mut pg_sys::SnapshotSelfData } else { std::ptr::null_mut() };
        let scan = pg_sys::systable_beginscan(rel, by.into(), true, snapshot, 1, &mut key);
        loop {
            let tuple = pg_sys::systable_getnext(scan);
            if tuple.is_null() {
                break;
            }
            found.push(read(tuple, (*rel).rd_att));
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(rel, pg_sys::NoLock as i32);
    }
    unlock_all(&[relation, by]);
    Ok(found)
}

/// Shared locks on all of these, or on none. They are given back by `unlock_all`, or by the abort of the (sub)transaction.
fn try_lock_all(relations: &[Oid]) -> bool {
    for (taken, relation) in relations.iter().enumerate() {
        if !try_lock_relation(*relation, LockMode::AccessShare) {
            unlock_all(&relations[..taken]);
            return false;
        }
    }
    true
}

fn unlock_all(relations: &[Oid]) {
    relations.iter().for_each(|relation| unlock_relation(*relation, LockMode::AccessShare));
}
