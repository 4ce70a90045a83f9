//! What ANALYZE gathered, read from `pg_statistic` through the active snapshot: a few index probes, and no more values
//! printed than are kept. The view pg_stats would print all of them.

use std::collections::BTreeMap;
use std::ffi::CStr;

use pgrx::pg_sys;
use pgrx::{FromDatum, PgMemoryContexts};

use crate::error::{Error, Result};
use crate::model::Oid;
use crate::pg::catalog_scan::{Scan, array_elements, attribute, fixed_part, row_by_oid};
use crate::snapshot::profile::{Absent, Column, ColumnProfile, Common, bounded, rounded, shares, spaced};

/// Which of the two sets of statistics of a table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// Of its own rows.
    Own,
    /// Of its rows and those of its partitions and children.
    WithMembers,
}

/// Profiles of the columns of `relation` that have statistics, by attnum, with values as they print now; of column `only`
/// alone where it is given. Needs settings that make printing stable.
pub fn read(relation: Oid, rows: Rows, values: bool, only: Option<i16>) -> Result<BTreeMap<i16, Column>> {
    let mut found = BTreeMap::new();
    let mut context = PgMemoryContexts::new("pgtrickle statistics");
    // SAFETY: a tuple is used before the next one is fetched; the fixed part of a row of pg_statistic has this layout; what
    // was allocated goes with the context, which outlives the scan.
    unsafe {
        context.switch_to(|_| {
            let (catalog, index) = (pg_sys::StatisticRelationId, pg_sys::StatisticRelidAttnumInhIndexId);
            let scan = Scan::begin(catalog, index, 1, relation.into());
            let desc = scan.description();
            while let Some(tuple) = scan.next() {
                let fixed: &pg_sys::FormData_pg_statistic = fixed_part(tuple);
                let wanted = fixed.stainherit == (rows == Rows::WithMembers);
                if wanted && only.is_none_or(|only| only == fixed.staattnum) {
                    found.insert(fixed.staattnum, column(tuple, desc, fixed, values)?);
                }
            }
            scan.end();
            Ok(())
        })?;
    }
    Ok(found)
}

/// # Safety
/// `tuple` is a tuple of pg_statistic of this description, `fixed` its fixed part.
unsafe fn column(
    tuple: pg_sys::HeapTuple,
    desc: pg_sys::TupleDesc,
    fixed: &pg_sys::FormData_pg_statistic,
    values: bool,
) -> Result<Column> {
    let mut profile = ColumnProfile {
        null_fraction: rounded(fixed.stanullfrac),
        average_width: fixed.stawidth,
        distinct: rounded(fixed.stadistinct),
        correlation: None,
        common: Vec::new(),
        common_fraction: 0.0,
        histogram: Vec::new(),
        positions: Vec::new(),
    };
    let kinds = [fixed.stakind1, fixed.stakind2, fixed.stakind3, fixed.stakind4, fixed.stakind5];
    let slot = |kind: u32| kinds.iter().position(|k| u32::try_from(*k) == Ok(kind));
    // SAFETY: per the contract; a slot that is in use has the attributes of its kind.
    unsafe {
        if let Some(at) = slot(pg_sys::STATISTIC_KIND_CORRELATION) {
            profile.correlation = numbers(tuple, desc, at).first().map(|c| rounded(*c));
        }
        if !values {
            return Ok(Column::Known(profile));
        }
        let (common, histogram) = (slot(pg_sys::STATISTIC_KIND_MCV), slot(pg_sys::STATISTIC_KIND_HISTOGRAM));
        let array = |at: Option<usize>| at.map(|at| ValueArray::read(tuple, desc, at)).transpose();
        let (common_values, quantiles) = match (array(common), array(histogram)) {
            (Ok(common), Ok(histogram)) => (common.flatten(), histogram.flatten()),
            (Err(TypeIsGone), _) | (_, Err(TypeIsGone)) => return Ok(Column::Absent(Absent::TypeDropped)),
        };
        let count = |array: &Option<ValueArray>| array.as_ref().map_or(0, |a| a.elements.len());
        let (kept, kept_quantiles) = shares(count(&common_values), count(&quantiles));
        if let (Some(at), Some(array)) = (common, common_values) {
            let frequencies = numbers(tuple, desc, at);
            profile.common_fraction = rounded(frequencies.iter().sum());
            for (value, frequency) in array.elements.iter().zip(&frequencies).take(kept) {
                let value = array.printer.print(*value)?;
                profile.common.push(Common { value, frequency: rounded(*frequency) });
            }
        }
        if let Some(array) = quantiles {
            for i in spaced(array.elements.len(), kept_quantiles) {
                profile.histogram.push(array.printer.print(array.elements[i])?);
            }
        }
    }
    Ok(Column::Known(profile))
}

/// The array of a slot; `first` is the attribute of the first one. None when it is NULL.
///
/// # Safety
/// `tuple` is a tuple of pg_statistic of this description; slots count from 0.
unsafe fn slot_array(
    tuple: pg_sys::HeapTuple,
    desc: pg_sys::TupleDesc,
    first: u32,
    slot: usize,
) -> Option<*mut pg_sys::ArrayType> {
    let number = i16::try_from(first as usize + slot).ok()?;
    // SAFETY: per the contract; all attributes asked for are arrays.
    unsafe {
        attribute(tuple, desc, number).map(|datum| pg_sys::pg_detoast_datum(datum.cast_mut_ptr()).cast())
    }
}

/// # Safety
/// As `slot_array`.
unsafe fn numbers(tuple: pg_sys::HeapTuple, desc: pg_sys::TupleDesc, slot: usize) -> Vec<f32> {
    // SAFETY: per the contract; stanumbers are arrays of float4.
    unsafe {
        match slot_array(tuple, desc, pg_sys::Anum_pg_statistic_stanumbers1, slot) {
            Some(array) => array_elements(array, pg_sys::FLOAT4OID, 4, true, b'i' as std::ffi::c_char)
                .into_iter()
                .filter_map(|datum| f32::from_datum(datum, false))
                .collect(),
            None => Vec::new(),
        }
    }
}

/// The type of the values was dropped, and it is of a kind that can't be printed without its row in pg_type.
struct TypeIsGone;

/// Values of one slot, and how they are printed.
struct ValueArray {
    elements: Vec<pg_sys::Datum>,
    printer: Printer,
}

impl ValueArray {
    /// # Safety
    /// As `slot_array`. The elements live as long as the memory context.
    unsafe fn read(
        tuple: pg_sys::HeapTuple,
        desc: pg_sys::TupleDesc,
        slot: usize,
    ) -> std::result::Result<Option<ValueArray>, TypeIsGone> {
        // SAFETY: per the contract; length and alignment are those of the array's own element type.
        unsafe {
            let Some(array) = slot_array(tuple, desc, pg_sys::Anum_pg_statistic_stavalues1, slot) else {
                return Ok(None);
            };
            let (form, printer) = Printer::of((*array).elemtype).ok_or(TypeIsGone)?;
            let elements =
                array_elements(array, (*array).elemtype, form.length.into(), form.by_value, form.alignment);
            Ok(Some(ValueArray { elements, printer }))
        }
    }
}

/// How values of a type lie in an array.
struct Layout {
    length: i16,
    by_value: bool,
    alignment: std::ffi::c_char,
}

/// How values of a type are printed.
enum Printer {
    /// By its output function.
    Output(Box<pg_sys::FmgrInfo>),
    /// An enum whose type went with the table: its labels are still there for the snapshot.
    Labels,
}

impl Printer {
    /// None when the type is gone and nothing else can print its values.
    ///
    /// A command that drops a schema drops the types of its tables too. The catalogs' caches don't know them any more, the
    /// active snapshot does: enough to go from a domain to its base type, and from an enum's value to its label.
    fn of(mut kind: pg_sys::Oid) -> Option<(Layout, Printer)> {
        // Domains over domains end soon; a circle is impossible.
        for _ in 0..32 {
            if let Some(found) = Printer::known(kind) {
                return Some(found);
            }
            // SAFETY: the fixed part of a row of pg_type has this layout.
            let (category, base) = unsafe {
                row_by_oid(
                    pg_sys::TypeRelationId,
                    pg_sys::TypeOidIndexId,
                    kind,
                    |row: &pg_sys::FormData_pg_type| (row.typtype as u8, row.typbasetype),
                )?
            };
            match category {
                pg_sys::TYPTYPE_DOMAIN => kind = base,
                pg_sys::TYPTYPE_ENUM => {
                    let layout = Layout { length: 4, by_value: true, alignment: b'i' as std::ffi::c_char };
                    return Some((layout, Printer::Labels));
                }
                _ => return None,
            }
        }
        None
    }

    /// Of a type that is alive.
    fn known(kind: pg_sys::Oid) -> Option<(Layout, Printer)> {
        let mut info = pg_sys::FmgrInfo::default();
        let mut layout = Layout { length: 0, by_value: false, alignment: 0 };
        // SAFETY: a syscache look-up guards those that follow, which raise for a type that is missing.
        unsafe {
            let cache = pg_sys::SysCacheIdentifier::TYPEOID as i32;
            let tuple = pg_sys::SearchSysCache1(cache, pg_sys::Datum::from(kind));
            if tuple.is_null() {
                return None;
            }
            pg_sys::ReleaseSysCache(tuple);
            pg_sys::get_typlenbyvalalign(
                kind,
                &mut layout.length,
                &mut layout.by_value,
                &mut layout.alignment,
            );
            let (mut output, mut varlena) = (pg_sys::InvalidOid, false);
            pg_sys::getTypeOutputInfo(kind, &mut output, &mut varlena);
            pg_sys::fmgr_info(output, &mut info);
        }
        Some((layout, Printer::Output(Box::new(info))))
    }

    /// # Safety
    /// `value` is a value of the printer's type.
    unsafe fn print(&self, value: pg_sys::Datum) -> Result<String> {
        // SAFETY: per the contract; an output function gives a C string, and a label is one.
        unsafe {
            match self {
                Printer::Output(info) => {
                    let mut info = **info;
                    kept(CStr::from_ptr(pg_sys::OutputFunctionCall(&mut info, value)))
                }
                Printer::Labels => {
                    let label = pg_sys::Oid::from(value.value() as u32);
                    let (catalog, index) = (pg_sys::EnumRelationId, pg_sys::EnumOidIndexId);
                    row_by_oid(catalog, index, label, |row: &pg_sys::FormData_pg_enum| {
                        kept(CStr::from_ptr(row.enumlabel.data.as_ptr()))
                    })
                    .unwrap_or_else(|| {
                        Err(Error::Internal(format!("enum value {} has no label", label.to_u32())))
                    })
                }
            }
        }
    }
}

fn kept(text: &CStr) -> Result<String> {
    let text = text.to_str().map_err(|_| {
        Error::Internal("a value is not valid UTF-8; pgtrickle needs server encoding UTF8".into())
    })?;
    Ok(bounded(text).to_string())
}

/// May this role read the statistics of every table?
pub fn readable_by(role: Oid) -> bool {
    // SAFETY: syscache look-ups.
    unsafe {
        let role = pg_sys::Oid::from(role);
        pg_sys::superuser_arg(role) || pg_sys::has_privs_of_role(role, pg_sys::ROLE_PG_READ_ALL_DATA.into())
    }
}
