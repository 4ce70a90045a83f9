//! What a role may read of a relation now.

use std::collections::BTreeSet;

use pgrx::pg_sys;

use crate::model::Oid;

/// May `role` select these columns (0: the whole row; none: any)? The rule of PostgreSQL's executor.
pub fn may_select(relation: Oid, columns: &BTreeSet<i16>, role: Oid) -> bool {
    let (relation, role) = (pg_sys::Oid::from(relation), pg_sys::Oid::from(role));
    let mode = pg_sys::AclMode::from(pg_sys::ACL_SELECT);
    // SAFETY: syscache look-ups; the caller has locked the relation, so it exists.
    unsafe {
        if pg_sys::pg_class_aclcheck(relation, role, mode) == pg_sys::AclResult::ACLCHECK_OK {
            return true;
        }
        let every = |how| {
            pg_sys::pg_attribute_aclcheck_all(relation, role, mode, how) == pg_sys::AclResult::ACLCHECK_OK
        };
        if columns.is_empty() {
            return every(pg_sys::AclMaskHow::ACLMASK_ANY);
        }
        columns.iter().all(|column| match column {
            0 => every(pg_sys::AclMaskHow::ACLMASK_ALL),
            column => {
                pg_sys::pg_attribute_aclcheck(relation, *column, role, mode) == pg_sys::AclResult::ACLCHECK_OK
            }
        })
    }
}

/// Does row security hide rows of the relation from `role`?
pub fn row_security_applies(relation: Oid, role: Oid) -> bool {
    // SAFETY: syscache look-ups; without an error of its own where row security is off.
    let enabled = unsafe { pg_sys::check_enable_rls(relation.into(), role.into(), true) };
    enabled == pg_sys::CheckEnableRlsResult::RLS_ENABLED as i32
}
