//! Whose rights and which settings a piece of work runs with. On error the (sub)transaction's abort restores both, so
//! the guards need no unwinding code.

use pgrx::pg_sys;

use crate::error::Result;
use crate::model::Oid;
pub use crate::pg::settings::{PINNED, with_settings};
use crate::pg::settings::{foreign_code, pinned};

/// The user whose rights are in force.
pub fn current_user() -> Oid {
    // SAFETY: reads a backend variable.
    unsafe { pg_sys::GetUserId() }.to_u32()
}

/// Has `user` all rights of `role`?
pub fn has_rights_of(user: Oid, role: Oid) -> bool {
    // SAFETY: syscache look-ups.
    unsafe { pg_sys::has_privs_of_role(pg_sys::Oid::from(user), pg_sys::Oid::from(role)) }
}

/// May `user` create triggers on this relation? True of one that is gone: others see to that.
pub fn may_create_triggers(user: Oid, relation: Oid) -> bool {
    has_privilege(user, relation, pg_sys::ACL_TRIGGER)
}

/// May `user` read all of this relation?
pub fn may_read(user: Oid, relation: Oid) -> bool {
    has_privilege(user, relation, pg_sys::ACL_SELECT)
}

fn has_privilege(user: Oid, relation: Oid, privilege: u32) -> bool {
    let mut missing = false;
    // SAFETY: syscache look-ups; the out pointer is valid.
    let result = unsafe {
        pg_sys::pg_class_aclcheck_ext(
            pg_sys::Oid::from(relation),
            pg_sys::Oid::from(user),
            pg_sys::AclMode::from(privilege),
            &mut missing,
        )
    };
    missing || result == pg_sys::AclResult::ACLCHECK_OK
}

/// What a switched context may do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Restriction {
    /// Our own statements.
    Own,
    /// Statements with users' expressions in them: no SET ROLE, no temporary objects, no deferred work for others.
    UserCode,
}

/// Runs `f` with the rights of `user`.
pub fn as_user<T>(user: Oid, restriction: Restriction, f: impl FnOnce() -> Result<T>) -> Result<T> {
    let mut saved = pg_sys::InvalidOid;
    let mut flags = 0;
    let extra = match restriction {
        Restriction::Own => pg_sys::SECURITY_LOCAL_USERID_CHANGE,
        Restriction::UserCode => pg_sys::SECURITY_LOCAL_USERID_CHANGE | pg_sys::SECURITY_RESTRICTED_OPERATION,
    };
    // SAFETY: plain backend state; restored below, or by abort when `f` raises.
    unsafe {
        pg_sys::GetUserIdAndSecContext(&mut saved, &mut flags);
        pg_sys::SetUserIdAndSecContext(pg_sys::Oid::from(user), flags | extra as i32);
    }
    let result = match restriction {
        Restriction::Own => f(),
        Restriction::UserCode => foreign_code(f),
    };
    // SAFETY: as above.
    unsafe { pg_sys::SetUserIdAndSecContext(saved, flags) };
    result
}

/// The owner of the extension: owns catalogs, buffers and state. A superuser, as the control file demands.
pub fn extension_owner() -> Result<Oid> {
    crate::pg::cache::extension_owner()
}

/// Runs `f` with the rights of the extension's owner and pinned settings.
pub fn as_extension<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    let owner = extension_owner()?;
    pinned(|| as_user(owner, Restriction::Own, f))
}
