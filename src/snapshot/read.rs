//! Reading shapes through the active snapshot, so that the caller chooses the side of a command.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use super::shape::TableShape;
use crate::error::Result;
use crate::model::Oid;
use crate::pg::snapshot::{Side, with_side};
use crate::pg::spi::{self, Arg, Mode};

/// Shapes of the relations that exist for `side`. Needs the pinned search_path.
pub(crate) fn read_shapes(relations: &[Oid], side: Side) -> Result<BTreeMap<Oid, TableShape>> {
    if relations.is_empty() {
        return Ok(BTreeMap::new());
    }
    with_side(side, || {
        spi::run(include_str!("../../sql/queries/table_shape.sql"), &[Arg::Oids(relations)], Mode::Read)?
            .into_iter()
            .map(|mut row| Ok((row.parse(0)?, TableShape::from_json(&row.text(1)?)?)))
            .collect()
    })
}

/// The present shape of one relation, if it exists.
pub(crate) fn shape_now(relation: Oid) -> Result<Option<TableShape>> {
    Ok(read_shapes(&[relation], Side::After)?.remove(&relation))
}
