//! The present names of what generated SQL reads and writes.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use crate::catalog::stream_tables::StreamTable;
use crate::dvm::delta::state_tables;
use crate::dvm::{Names, Op, StateTable, TableNames};
use crate::error::{Error, Result};
use crate::model::{Oid, Reason};
use crate::pg::query::{ColumnType, describe};
use crate::pg::row_image::equal_is_identical;
use crate::pg::side;
use crate::pg::spi::{self, Arg, Mode};
use crate::pg::types::column_type;
use crate::snapshot::shape::TableShape;
use crate::sqltext;

/// Name of the state table of an aggregate.
pub fn state_name(relid: Oid, id: u32) -> String {
    format!("{}_{id}", state_base(relid))
}

/// Name of a stream table's state tables without the node's number.
pub fn state_base(relid: Oid) -> String {
    format!("state_{relid}")
}

/// Names for `table` over the shapes of its sources.
pub fn names(table: &StreamTable, sources: &BTreeMap<Oid, TableShape>) -> Result<Names> {
    let tables = sources
        .iter()
        .map(|(oid, shape)| {
            let columns = shape.columns.iter().map(|c| (c.attnum, sqltext::ident(&c.name))).collect();
            let name = sqltext::qualified(&shape.schema, &shape.name);
            let types = shape
                .columns
                .iter()
                .map(|c| Ok((c.attnum, column_type(c.type_oid, c.typmod, c.collation_oid)?)))
                .collect::<Result<_>>()?;
            Ok((*oid, TableNames { name, columns, types }))
        })
        .collect::<Result<_>>()?;
    let columns = columns_of(table)?;
    Ok(Names {
        tables,
        target: table.quoted(),
        target_columns: columns.iter().map(|c| c.name.clone()).collect(),
        inexact: inexact(columns.iter().map(|c| &c.column_type)),
        unique: has_unique_index(table.relid)?,
        states: BTreeMap::new(),
    })
}

/// Adds the state tables of a plan, which exist.
pub fn add_states(names: &mut Names, table: &StreamTable, op: &Op) -> Result<()> {
    let types = state_types(table, op, names)?;
    for (a, columns) in op.aggregates().into_iter().zip(types.iter()) {
        let name = state_name(table.relid, a.id);
        let oid = side::find(&name)?.ok_or(Error::SideTableMissing { name })?;
        let inexact_keys = inexact(columns.iter().take(a.keys));
        let types = columns.iter().map(|c| column_type(c.type_oid, c.typmod, c.collation));
        names.states.insert(a.id, StateTable { oid, types: types.collect::<Result<_>>()?, inexact_keys });
    }
    Ok(())
}

/// Types of the stored columns of each state table of a plan.
type StateTypes = Rc<Vec<Vec<ColumnType>>>;

thread_local! {
    /// Stream table → of one version of its definition.
    static STATE_TYPES: RefCell<HashMap<Oid, (i64, StateTypes)>> = RefCell::new(HashMap::new());
}

/// More than so many are forgotten, all at once.
const MAX_KNOWN: usize = 1000;

fn state_types(table: &StreamTable, op: &Op, names: &Names) -> Result<StateTypes> {
    let known = STATE_TYPES.with_borrow(|all| all.get(&table.relid).cloned());
    if let Some((_, types)) = known.filter(|(version, _)| *version == table.version) {
        return Ok(types);
    }
    let types = state_tables(op, names)
        .into_iter()
        // Behind the hash.
        .map(|(_, select)| Ok(describe(&select)?.split_off(1)))
        .collect::<Result<Vec<_>>>()?;
    let types = Rc::new(types);
    STATE_TYPES.with_borrow_mut(|all| {
        if all.len() >= MAX_KNOWN {
            all.clear();
        }
        all.insert(table.relid, (table.version, types.clone()));
    });
    Ok(types)
}

/// Positions of types whose values can be equal and yet print differently, from 1 on.
fn inexact<'a>(types: impl Iterator<Item = &'a ColumnType>) -> Vec<usize> {
    let identical = |t: &ColumnType| equal_is_identical(t.type_oid, t.typmod, t.collation);
    types.enumerate().filter(|(_, t)| !identical(t)).map(|(i, _)| i + 1).collect()
}

fn has_unique_index(relid: Oid) -> Result<bool> {
    let rows = spi::run(
        "SELECT FROM pg_catalog.pg_index WHERE indrelid = $1 AND (indisunique OR indisexclusion) LIMIT 1",
        &[Arg::Oid(relid)],
        Mode::Fresh,
    )?;
    Ok(rows.first().is_some())
}

/// The stream table's columns in the query's order, quoted.
pub fn target_columns(table: &StreamTable) -> Result<Vec<String>> {
    Ok(columns_of(table)?.into_iter().map(|c| c.name).collect())
}

/// A column of a stream table.
struct TargetColumn {
    /// Quoted.
    name: String,
    column_type: ColumnType,
}

fn columns_of(table: &StreamTable) -> Result<Vec<TargetColumn>> {
    let mut by_number: BTreeMap<i16, TargetColumn> = BTreeMap::new();
    for mut row in spi::run(
        "SELECT attnum, attname, atttypid, atttypmod, attcollation FROM pg_catalog.pg_attribute \
         WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped",
        &[Arg::Oid(table.relid)],
        Mode::Fresh,
    )? {
        let name = sqltext::ident(&row.text(1)?);
        let column_type =
            ColumnType { type_oid: row.parse(2)?, typmod: row.parse(3)?, collation: row.parse(4)? };
        by_number.insert(row.parse(0)?, TargetColumn { name, column_type });
    }
    table
        .columns
        .iter()
        .map(|n| {
            by_number.remove(n).ok_or_else(|| Error::Refused {
                reason: Reason::OutputColumnDropped.word(),
                what: format!("stream table {} has lost column number {n}", table.display()),
                hint: format!(
                    "SELECT pgtrickle.alter_stream_table_query({}, {});",
                    sqltext::regclass_literal(&table.display()),
                    sqltext::dollar_quoted(&table.query)
                ),
            })
        })
        .collect()
}
