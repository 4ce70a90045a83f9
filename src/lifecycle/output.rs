//! Which output columns a stream table can have without standing in the way of its sources.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::model::Oid;
use crate::pg::query::{Analysis, Parsed};
use crate::pg::secctx::as_extension;
use crate::pg::spi::{self, Arg, Mode};
use crate::sqltext;

/// A stored value of a relation's row type forbids ALTER TABLE on the relation most of what it does; one of a composite type
/// forbids ALTER TYPE to change an attribute, which is nothing new where a source stores it already.
pub fn refuse_row_types(parsed: &Parsed, analysis: &Analysis) -> Result<()> {
    let types: Vec<Oid> = parsed.columns.iter().map(|c| c.type_oid).collect();
    let sources: Vec<Oid> = analysis.sources().into_iter().collect();
    let args = [Arg::Oids(&types), Arg::Oids(&sources)];
    let found =
        as_extension(|| spi::run(include_str!("../../sql/queries/row_types.sql"), &args, Mode::Fresh))?;
    let Some(mut row) = found.first() else { return Ok(()) };
    let (position, type_name, of_relation): (usize, String, bool) =
        (row.parse(0)?, row.text(1)?, row.bool(2)?);
    let column = position
        .checked_sub(1)
        .and_then(|at| parsed.columns.get(at))
        .ok_or_else(|| Error::Internal(format!("there is no output column {position}")))?;
    let kind = if of_relation { "rows of" } else { "values of composite type" };
    Err(Error::Refused {
        reason: "ROW_TYPE_OUTPUT",
        what: format!(
            "output column {} has {kind} {type_name} in it, which could not be altered any more",
            sqltext::ident(&column.name)
        ),
        hint: "Select the columns one by one (t.*), or one value of all of them: to_jsonb(t).".into(),
    })
}
