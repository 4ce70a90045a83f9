//! MVCC snapshots: which state of data and catalogs a piece of work reads.

use pgrx::pg_sys;

use crate::error::Result;

/// Runs `f` with a fresh snapshot active (the transaction's own under REPEATABLE READ).
pub fn with_transaction_snapshot<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    // SAFETY: pushed here and popped below; abort pops it when `f` raises.
    unsafe {
        pg_sys::CommandCounterIncrement();
        pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
    }
    let result = f();
    // SAFETY: as above.
    unsafe { pg_sys::PopActiveSnapshot() };
    result
}

/// The command id at which the running statement began, if it has a snapshot.
pub fn statement_start() -> Option<pg_sys::CommandId> {
    // SAFETY: reads the active snapshot only when there is one.
    unsafe { if pg_sys::ActiveSnapshotSet() { Some((*pg_sys::GetActiveSnapshot()).curcid) } else { None } }
}

/// Which side of a command a catalog read sees.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// As it was when the command with this start began, with everything others had committed by now.
    Before(pg_sys::CommandId),
    /// As the command left it.
    After,
}

/// Runs `f` with the catalogs as of `side`; `f` must only read.
pub fn with_side<T>(side: Side, f: impl FnOnce() -> Result<T>) -> Result<T> {
    // SAFETY: a copy of the latest snapshot is pushed, so changing its command id affects nobody else; popped below,
    // or by abort when `f` raises.
    unsafe {
        if side == Side::After {
            pg_sys::CommandCounterIncrement();
        }
        pg_sys::PushCopiedSnapshot(pg_sys::GetLatestSnapshot());
        if let Side::Before(start) = side {
            (*pg_sys::GetActiveSnapshot()).curcid = start;
        }
    }
    let result = f();
    // SAFETY: as above.
    unsafe { pg_sys::PopActiveSnapshot() };
    result
}

/// Does the whole transaction read through one snapshot (REPEATABLE READ and SERIALIZABLE)?
pub fn is_fixed() -> bool {
    // SAFETY: backend variable.
    unsafe { pg_sys::XactIsoLevel >= pg_sys::XACT_REPEATABLE_READ as i32 }
}

/// Is this a SERIALIZABLE transaction? Then what it reads of a table that others write can make it fail.
pub fn is_serializable() -> bool {
    // SAFETY: backend variable.
    unsafe { pg_sys::XactIsoLevel >= pg_sys::XACT_SERIALIZABLE as i32 }
}

/// Top-level xid of this transaction as text, assigning none; "0" when there is none.
pub fn own_xid() -> String {
    // SAFETY: reads backend state.
    let full = unsafe { pg_sys::GetTopFullTransactionIdIfAny() };
    full.value.to_string()
}
