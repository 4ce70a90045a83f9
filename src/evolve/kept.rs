//! What hangs on columns that are made anew: comments, indexes, constraints.
#![forbid(unsafe_code)]

use crate::catalog::stream_tables::StreamTable;
use crate::error::Result;
use crate::pg::spi::{self, Arg, Mode};
use crate::pg::subxact;
use crate::sqltext;

/// Statements that bring it back.
pub struct Kept {
    statements: Vec<String>,
}

impl Kept {
    /// Of these columns of a stream table.
    pub fn of(table: &StreamTable, columns: &[String]) -> Result<Self> {
        let mut statements = Vec::new();
        if columns.is_empty() {
            return Ok(Kept { statements });
        }
        for name in columns {
            let mut comments = spi::run(
                "SELECT pg_catalog.col_description(attrelid, attnum) FROM pg_catalog.pg_attribute \
                 WHERE attrelid = $1 AND attname = $2",
                &[Arg::Oid(table.relid), Arg::Text(name)],
                Mode::Fresh,
            )?
            .into_iter();
            if let Some(comment) = comments.next().and_then(|mut row| row.opt(0)) {
                statements.push(format!(
                    "COMMENT ON COLUMN {}.{} IS {}",
                    table.quoted(),
                    sqltext::ident(name),
                    sqltext::literal(&comment)
                ));
            }
        }
        let list: Vec<String> = columns.iter().map(|c| sqltext::literal(c)).collect();
        let indexes = format!(
            "SELECT DISTINCT CASE WHEN k.oid IS NULL THEN pg_catalog.pg_get_indexdef(i.indexrelid) \
               ELSE 'ALTER TABLE ' || pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) \
                    || ' ADD CONSTRAINT ' || pg_catalog.quote_ident(k.conname) || ' ' || pg_catalog.pg_get_constraintdef(k.oid) END \
             FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indrelid \
             JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
             JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) \
             LEFT JOIN pg_catalog.pg_constraint k ON k.conindid = i.indexrelid AND k.conrelid = i.indrelid \
             WHERE i.indrelid = $1 AND a.attname IN ({})",
            list.join(", ")
        );
        for mut row in spi::run_once(&indexes, &[Arg::Oid(table.relid)], Mode::Fresh)? {
            statements.push(row.text(0)?);
        }
        Ok(Kept { statements })
    }

    /// Runs them; an index that does not fit the new columns is left out.
    pub fn restore(&self) -> Result<()> {
        for sql in &self.statements {
            if let Err(caught) = subxact::run(|| spi::run_once(sql, &[], Mode::Fresh).map(|_| ())) {
                crate::pg::report::debug(&format!("not kept: {sql}: {}", caught.message));
            }
        }
        Ok(())
    }
}
