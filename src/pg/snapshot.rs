//! MVCC snapshots: which state of data and catalogs a piece of work reads.

use std::cell::Cell;

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

thread_local! {
    /// What `with_side` starts from, where several reads are to be of one present; null: of the latest.
    static PRESENT: Cell<pg_sys::Snapshot> = const { Cell::new(std::ptr::null_mut()) };
}

/// Runs `f`, in which both sides of a command are seen from one present: what others commit between two reads is on neither,
/// or it would pass for the command's doing.
pub fn with_one_present<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    // SAFETY: a registered copy, which lives until it is given back below, or until the abort of the (sub)transaction when
    // `f` raises; the guard forgets it in either case.
    unsafe {
        let present = pg_sys::RegisterSnapshot(pg_sys::GetLatestSnapshot());
        let guard = PresentGuard(PRESENT.replace(present));
        let result = f();
        drop(guard);
        pg_sys::UnregisterSnapshot(present);
        result
    }
}

/// Plain thread-local state, so safe to restore while unwinding.
struct PresentGuard(pg_sys::Snapshot);

impl Drop for PresentGuard {
    fn drop(&mut self) {
        PRESENT.set(self.0);
    }
}

/// Runs `f` with the catalogs as of `side`; `f` must only read.
pub fn with_side<T>(side: Side, f: impl FnOnce() -> Result<T>) -> Result<T> {
    // SAFETY: a copy is pushed, so changing its command id affects nobody else; popped below, or by abort when `f` raises.
    // What it is a copy of is PostgreSQL's latest snapshot, or one that `with_one_present` keeps registered.
    unsafe {
        if side == Side::After {
            pg_sys::CommandCounterIncrement();
        }
        let present = PRESENT.get();
        pg_sys::PushCopiedSnapshot(if present.is_null() { pg_sys::GetLatestSnapshot() } else { present });
        (*pg_sys::GetActiveSnapshot()).curcid = match side {
            Side::Before(start) => start,
            Side::After => pg_sys::GetCurrentCommandId(false),
        };
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

/// Is this the number of the running transaction, or of one of its subtransactions?
pub fn is_current(xid: u32) -> bool {
    // SAFETY: reads backend state.
    unsafe { pg_sys::TransactionIdIsCurrentTransactionId(pg_sys::TransactionId::from(xid)) }
}
