//! The present names of what generated SQL reads and writes.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use crate::catalog::stream_tables::StreamTable;
use crate::cdc;
use crate::dvm::{Names, TableNames};
use crate::error::{Error, Result};
use crate::model::{Oid, Reason};
use crate::pg::spi::{self, Arg, Mode};
use crate::pg::types::column_type;
use crate::snapshot::shape::TableShape;
use crate::sqltext;

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
    Ok(Names {
        tables,
        target: table.quoted(),
        target_columns: target_columns(table)?,
        unique: has_unique_index(table.relid)?,
        state_prefix: format!("{}.{}", sqltext::ident(cdc::INTERNAL_SCHEMA), state_base(table.relid)),
    })
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
    let mut by_number: BTreeMap<i16, String> = BTreeMap::new();
    for mut row in spi::run(
        "SELECT attnum, attname FROM pg_catalog.pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped",
        &[Arg::Oid(table.relid)],
        Mode::Fresh,
    )? {
        by_number.insert(row.parse(0)?, sqltext::ident(&row.text(1)?));
    }
    table
        .columns
        .iter()
        .map(|n| {
            by_number.get(n).cloned().ok_or_else(|| Error::Refused {
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
