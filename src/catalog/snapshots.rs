//! `pgtrickle.pgt_schema_snapshots`: what tables looked like, and who changed them.
#![forbid(unsafe_code)]

use crate::error::Result;
use crate::pg::spi::{self, Arg, Mode};
use crate::snapshot::shape::TableShape;

/// Why a shape is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It became a source.
    Source,
    /// It is a source and was changed; the shape is the one after.
    Change,
    /// It is about to be gone.
    Drop,
}

impl Why {
    fn word(self) -> &'static str {
        match self {
            Why::Source => "source",
            Why::Change => "change",
            Why::Drop => "drop",
        }
    }
}

/// Who does it, by which command. Read while the session's user is still in force.
#[derive(Debug, Clone)]
pub struct Circumstance {
    pub actor: String,
    pub command_tag: String,
    pub statement: Option<String>,
}

/// Adds a snapshot.
pub fn insert(shape: &TableShape, why: Why, by: &Circumstance) -> Result<()> {
    let columns = i64::try_from(shape.columns.len()).unwrap_or(i64::MAX);
    let estimate = shape.row_estimate.map(|n| n.to_string());
    spi::run(
        "INSERT INTO pgtrickle.pgt_schema_snapshots (relation, schema_name, table_name, reason, alive, column_count, \
         row_estimate, shape, actor, command_tag, statement, application) \
         VALUES ($1, $2, $3, $4, $5, $6::integer, $7::bigint, $8::jsonb, $9, $10, $11, \
         pg_catalog.current_setting('application_name'))",
        &[
            Arg::Oid(shape.oid),
            Arg::Text(&shape.schema),
            Arg::Text(&shape.name),
            Arg::Text(why.word()),
            Arg::Bool(why != Why::Drop),
            Arg::Int(columns),
            Arg::OptText(estimate.as_deref()),
            Arg::Text(&shape.to_json()?),
            Arg::Text(&by.actor),
            Arg::Text(&by.command_tag),
            Arg::OptText(by.statement.as_deref()),
        ],
        Mode::Fresh,
    )?;
    Ok(())
}
