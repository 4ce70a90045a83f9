//! Partitions and children of a table, and what it is one of.

use std::collections::BTreeSet;

use pgrx::pg_sys;

use crate::error::Result;
use crate::model::Oid;
use crate::pg::catalog_scan::{Scan, fixed_part};
use crate::pg::snapshot::{Side, with_side};

/// pg_inherits and its indexes, which pgrx has no names for; their numbers never change.
const INHERITS: pg_sys::Oid = pg_sys::Oid::from_u32(2611);
const BY_CHILD: (u32, i16) = (2680, 1);
const BY_PARENT: (u32, i16) = (2187, 2);

/// A row of pg_inherits, as far as it is used.
#[repr(C)]
struct Inherits {
    inhrelid: pg_sys::Oid,
    inhparent: pg_sys::Oid,
}

/// The relation and all that it is a partition or child of, on either side of a command with this start: a detached one is
/// no member any more.
pub fn with_ancestors(relation: Oid, start: Option<pg_sys::CommandId>) -> Result<BTreeSet<Oid>> {
    let up = || Ok(walk(relation, BY_CHILD, |row| row.inhparent));
    let mut found = with_side(Side::After, up)?;
    if let Some(start) = start {
        found.append(&mut with_side(Side::Before(start), up)?);
    }
    Ok(found)
}

/// The relation and all its partitions and children, of any depth.
pub fn with_descendants(relation: Oid) -> Result<BTreeSet<Oid>> {
    with_side(Side::After, || Ok(walk(relation, BY_PARENT, |row| row.inhrelid)))
}

fn walk(from: Oid, (index, attribute): (u32, i16), next: fn(&Inherits) -> pg_sys::Oid) -> BTreeSet<Oid> {
    let mut found = BTreeSet::from([from]);
    let mut open = vec![from];
    while let Some(relation) = open.pop() {
        // SAFETY: pg_inherits and an index of it that begins with this column; there is an active snapshot; a row is used
        // before the next one is asked for.
        unsafe {
            let scan = Scan::begin(INHERITS, index, attribute, relation.into());
            while let Some(tuple) = scan.next() {
                let other = next(fixed_part::<Inherits>(tuple)).to_u32();
                if found.insert(other) {
                    open.push(other);
                }
            }
            scan.end();
        }
    }
    found
}
