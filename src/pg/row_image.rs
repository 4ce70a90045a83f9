//! Rows by what they print and not by what their types call equal: 1.0 and 1.00, a month and 30 days, -0 and 0 are equal and
//! differ.
//!
//! # Safety
//! Functions here that are not safe to call take call data of PostgreSQL's function manager for the functions that they
//! are the bodies of.

use pgrx::pg_sys;

use crate::dvm::image;
use crate::error::{Error, Result};
use crate::model::Oid;
use crate::pg::values::{kinds, put};

/// The body of `row_image(record)`: the bytes of its values. Two rows of one type have the same exactly when no value
/// differs in any bit.
///
/// # Safety
/// See the module's doc.
pub unsafe fn row_image(fcinfo: pg_sys::FunctionCallInfo) -> Result<Vec<u8>> {
    // SAFETY: per the contract; the function is strict, and its argument a record, which tells its own type.
    unsafe {
        let record = pgrx::pg_getarg_datum(fcinfo, 0)
            .ok_or_else(|| Error::Internal("row_image() without its argument".into()))?;
        let record = pg_sys::pg_detoast_datum(record.cast_mut_ptr()).cast::<pg_sys::HeapTupleHeaderData>();
        let identity = (*record).t_choice.t_datum;
        let desc = pg_sys::lookup_rowtype_tupdesc(identity.datum_typeid, identity.datum_typmod);
        let count = (*desc).natts as usize;
        let mut tuple = pg_sys::HeapTupleData {
            t_len: pgrx::varsize_any(record.cast()) as u32,
            t_data: record,
            ..Default::default()
        };
        let (mut values, mut nulls) = (vec![pg_sys::Datum::null(); count], vec![true; count]);
        pg_sys::heap_deform_tuple(&mut tuple, desc, values.as_mut_ptr(), nulls.as_mut_ptr());
        let mut out = Vec::new();
        for ((value, is_null), (_, kind)) in values.iter().zip(nulls).zip(kinds(desc, 0, count)) {
            if is_null {
                image::put_null(&mut out);
            } else {
                put(*value, &kind, &mut out);
            }
        }
        if (*desc).tdrefcount >= 0 {
            pg_sys::DecrTupleDescRefCount(desc);
        }
        Ok(out)
    }
}

/// Number of the support function in a B-tree's operator class (`access/nbtree.h`).
const BTEQUALIMAGE_PROC: i16 = 4;

/// Are equal values of this type always the same bits? What PostgreSQL asks before it lets an index store one of them for
/// all (`equalimage`); a numeric of fixed scale prints its values in one way too.
pub fn equal_is_identical(type_oid: Oid, typmod: i32, collation: Oid) -> bool {
    // nbtree/README: left out there by number in servers whose catalogs can't be changed any more.
    const NEVER: [pg_sys::Oid; 1] = [pg_sys::INTERVALOID];
    // SAFETY: look-ups in syscache and type cache; the support function takes the type of the operator class.
    unsafe {
        let mut typmod = typmod;
        let base = pg_sys::getBaseTypeAndTypmod(type_oid.into(), &mut typmod);
        if base == pg_sys::NUMERICOID {
            return typmod >= 0;
        }
        if NEVER.contains(&base) || base == pg_sys::BPCHAROID && typmod < 0 {
            return false;
        }
        // Of a fixed length, which all values are filled up to, they are texts.
        let base = if base == pg_sys::BPCHAROID { pg_sys::TEXTOID } else { base };
        let entry = pg_sys::lookup_type_cache(base, pg_sys::TYPECACHE_BTREE_OPFAMILY as i32);
        let (family, class_type) = ((*entry).btree_opf, (*entry).btree_opintype);
        if family == pg_sys::InvalidOid {
            return false;
        }
        let support = pg_sys::get_opfamily_proc(family, class_type, class_type, BTEQUALIMAGE_PROC);
        support != pg_sys::InvalidOid
            && pg_sys::OidFunctionCall1Coll(support, collation.into(), class_type.into()).value() != 0
    }
}
