//! Reading shapes and value profiles through the active snapshot, so that the caller chooses the side of a command.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use super::hash::schema_hash;
use super::profile::{Absent, Column, Form, MAX_PROFILED_COLUMNS, PROFILE_VERSION, TableProfile, hashed};
use super::shape::{ColumnShape, TableShape};
use crate::catalog::{hash_keys, snapshots};
use crate::error::Result;
use crate::model::Oid;
use crate::pg::columns::Names;
use crate::pg::guc::{excluded_columns, snapshot_values};
use crate::pg::relation;
use crate::pg::secctx::current_user;
use crate::pg::settings::{Setting, with_settings};
use crate::pg::snapshot::{Side, is_serializable, with_side};
use crate::pg::spi::{self, Arg, Mode};
use crate::pg::statistics::{self, Rows};
use crate::pg::subxact::{self, Caught};

/// Under these settings a value always prints the same.
const PRINTING: &[Setting] = &[
    (c"DateStyle", c"ISO, YMD"),
    (c"IntervalStyle", c"postgres"),
    (c"TimeZone", c"UTC"),
    (c"extra_float_digits", c"1"),
    (c"bytea_output", c"hex"),
    (c"lc_monetary", c"C"),
];

/// Shapes of the relations that exist for `side`. Needs the pinned search_path.
pub(crate) fn read_shapes(relations: &[Oid], side: Side) -> Result<BTreeMap<Oid, TableShape>> {
    if relations.is_empty() {
        return Ok(BTreeMap::new());
    }
    with_side(side, || {
        let mut names = Names::default();
        let (mut shapes, mut surrounded, mut with_expressions) = (BTreeMap::new(), Vec::new(), Vec::new());
        for oid in relations {
            let Some(found) = relation::read(*oid, &mut names)? else { continue };
            shapes.insert(*oid, found.shape);
            surrounded.extend(found.has_surroundings.then_some(*oid));
            with_expressions.extend(found.has_expressions.then_some(*oid));
        }
        let surroundings = include_str!("../../sql/queries/surroundings.sql");
        enter_each(surroundings, &surrounded, &mut shapes, TableShape::surround)?;
        let expressions = include_str!("../../sql/queries/expressions.sql");
        enter_each(expressions, &with_expressions, &mut shapes, TableShape::enter_expressions)?;
        Ok(shapes)
    })
}

/// Enters what a statement tells of some of the relations: rows (oid, JSON).
fn enter_each(
    sql: &str,
    relations: &[Oid],
    shapes: &mut BTreeMap<Oid, TableShape>,
    enter: fn(&mut TableShape, &str) -> Result<()>,
) -> Result<()> {
    if relations.is_empty() {
        return Ok(());
    }
    for mut row in spi::run(sql, &[Arg::Oids(relations)], Mode::Read)? {
        if let Some(shape) = shapes.get_mut(&row.parse(0)?) {
            enter(shape, &row.text(1)?)?;
        }
    }
    Ok(())
}

/// Prints the expressions of a table that is gone, as far as that can be done. What stays unprinted is told apart by its
/// digest all the same.
pub(crate) fn print_expressions(shape: &mut TableShape, side: Side) {
    // An error here is one more expression without a text; one that hangs is the caller's deadline's.
    if unprinted(shape).next().is_some() {
        let printed = subxact::run(|| defaults_of(shape, None, side));
        // An expression whose function is gone as well must not take the others along.
        let printed = printed.unwrap_or_else(|_| {
            let one = |attnum| subxact::run(|| defaults_of(shape, Some(attnum), side)).unwrap_or_default();
            unprinted(shape).flat_map(one).collect()
        });
        enter(shape, printed);
    }
    if unprinted(shape).next().is_some()
        && let Ok(printed) = subxact::run(|| recorded_expressions(shape))
    {
        enter(shape, printed);
    }
}

fn enter(shape: &mut TableShape, mut printed: BTreeMap<i16, String>) {
    for column in shape.columns.iter_mut().filter(|c| is_unprinted(c)) {
        if let Some(expression) = &mut column.expression {
            expression.text = printed.remove(&column.attnum);
        }
    }
}

fn unprinted(shape: &TableShape) -> impl Iterator<Item = i16> {
    shape.columns.iter().filter(|c| is_unprinted(c)).map(|c| c.attnum)
}

fn is_unprinted(column: &ColumnShape) -> bool {
    column.expression.as_ref().is_some_and(|e| e.text.is_none())
}

/// PostgreSQL prints an expression of a missing table only where it names no column, as no default does; a sequence that
/// went with the table shows as its oid, which the catalogs of `side` still have a name for.
fn defaults_of(shape: &TableShape, only: Option<i16>, side: Side) -> Result<BTreeMap<i16, String>> {
    with_side(side, || {
        let args = [Arg::Oid(shape.oid), Arg::Int(only.unwrap_or(0).into())];
        spi::run(include_str!("../../sql/queries/dropped_defaults.sql"), &args, Mode::Read)?
            .into_iter()
            .map(|mut row| Ok((row.parse(0)?, row.text(1)?)))
            .collect()
    })
}

/// The same expressions as they were printed when the table was recorded last.
fn recorded_expressions(shape: &TableShape) -> Result<BTreeMap<i16, String>> {
    // Reading what others add to can make a SERIALIZABLE transaction fail.
    if is_serializable() {
        return Ok(BTreeMap::new());
    }
    let Some(recorded) = snapshots::newest_shape(crate::pg::origin(), shape.oid)? else {
        return Ok(BTreeMap::new());
    };
    let same = |column: &ColumnShape| {
        let now = column.expression.as_ref()?;
        let then = recorded.column(column.attnum)?.expression.as_ref()?;
        (now.digest == then.digest).then(|| Some((column.attnum, then.text.clone()?)))?
    };
    Ok(shape.columns.iter().filter_map(same).collect())
}

/// The present shape of one relation, if it exists.
pub(crate) fn shape_now(relation: Oid) -> Result<Option<TableShape>> {
    Ok(read_shapes(&[relation], Side::After)?.remove(&relation))
}

/// The value profile of a table as of `side`, and the error that kept columns of it from being read, if there was one.
pub(crate) fn read_profile(shape: &TableShape, side: Side) -> Result<(TableProfile, Option<Caught>)> {
    let form = snapshot_values();
    let attnums = || shape.columns.iter().map(|c| c.attnum);
    let none = |why| Ok((TableProfile::without(attnums(), form, why), None));
    if shape.columns.len() > MAX_PROFILED_COLUMNS {
        return none(Absent::TooWide);
    }
    if shape.row_security {
        return none(Absent::RowSecurity);
    }
    if !statistics::readable_by(current_user()) {
        return none(Absent::NoPrivilege);
    }
    let rows = if shape.kind == 'p' { Rows::WithMembers } else { Rows::Own };
    let read = |only| {
        with_settings(PRINTING, || {
            with_side(side, || statistics::read(shape.oid, rows, form != Form::Off, only))
        })
    };
    let (mut found, mut trouble) = (BTreeMap::new(), None);
    match subxact::run(|| read(None)) {
        Ok(all) => found = all,
        // One value that does not print must not take the other columns along.
        Err(caught) => {
            trouble = Some(caught);
            for attnum in attnums() {
                match subxact::run(|| read(Some(attnum))) {
                    Ok(mut one) => found.append(&mut one),
                    Err(_) => {
                        found.insert(attnum, Column::Absent(Absent::Unreadable));
                    }
                }
            }
        }
    }
    let columns = attnums()
        .map(|attnum| (attnum, found.remove(&attnum).unwrap_or(Column::Absent(Absent::NeverAnalysed))))
        .collect();
    let mut profile = TableProfile { version: PROFILE_VERSION, form, columns };
    if form == Form::Hashed && profile.is_available() {
        let key = hash_keys::key()?;
        profile.columns.iter_mut().for_each(|(_, column)| {
            if let Column::Known(known) = column {
                hashed(known, &key);
            }
        });
    }
    Ok((profile, trouble))
}

/// `schema_hash` of a relation as it is now.
pub(crate) fn schema_hash_of(relation: Oid) -> Result<String> {
    let names = spi::run(
        "SELECT attname FROM pg_catalog.pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped",
        &[Arg::Oid(relation)],
        Mode::Fresh,
    )?
    .into_iter()
    .map(|mut row| row.text(0))
    .collect::<Result<Vec<_>>>()?;
    Ok(schema_hash(names.iter().map(String::as_str), &excluded_columns()?))
}
