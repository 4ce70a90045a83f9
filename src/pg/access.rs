//! Which side tables the running refresh may reach. The functions that read and write them are open to everybody, since
//! a refresh runs with the rights of the stream table's owner; they work for what is entered here, and for nothing else.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use pgrx::{pg_guard, pg_sys};

use crate::error::{Error, Result};
use crate::model::Oid;

/// What one refresh may reach.
#[derive(Debug, Default)]
pub struct Access {
    /// Sources whose buffers are read.
    pub sources: BTreeSet<Oid>,
    /// State tables that are read and written.
    pub states: BTreeSet<Oid>,
    /// Rows that the planner may expect of a buffer, where it plans for this refresh alone.
    pub expected: Option<f64>,
}

thread_local! {
    static ACCESS: RefCell<Option<Rc<Access>>> = const { RefCell::new(None) };
}

/// Registers the callback that ends all access with the transaction.
pub fn register() {
    // SAFETY: a function of this library, which is never unloaded.
    unsafe { pg_sys::RegisterXactCallback(Some(on_xact_end), std::ptr::null_mut()) };
}

/// # Safety
/// Called by PostgreSQL at transaction end.
#[pg_guard]
unsafe extern "C-unwind" fn on_xact_end(_event: pg_sys::XactEvent::Type, _arg: *mut std::ffi::c_void) {
    ACCESS.set(None);
}

/// Runs `f` with this access, and no other.
pub fn with_access<T>(access: Access, f: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = Restore(ACCESS.replace(Some(Rc::new(access))));
    let result = f();
    drop(before);
    result
}

/// Plain thread-local state, so safe to restore while unwinding.
struct Restore(Option<Rc<Access>>);

impl Drop for Restore {
    fn drop(&mut self) {
        ACCESS.set(self.0.take());
    }
}

/// Is this source's buffer one that the running refresh reads?
pub fn check_source(source: Oid) -> Result<()> {
    let granted = ACCESS.with_borrow(|a| a.as_ref().is_some_and(|a| a.sources.contains(&source)));
    if granted { Ok(()) } else { Err(Error::OnlyInRefresh) }
}

/// Is this state table one of the running refresh?
pub fn check_state(table: Oid) -> Result<()> {
    let granted = ACCESS.with_borrow(|a| a.as_ref().is_some_and(|a| a.states.contains(&table)));
    if granted { Ok(()) } else { Err(Error::OnlyInRefresh) }
}

/// Rows that the planner may expect of a buffer; None when the function's own estimate counts.
pub fn expected() -> Option<f64> {
    ACCESS.with_borrow(|a| a.as_ref().and_then(|a| a.expected))
}
