//! Work at the end of a transaction, just before it commits: what then is locked is held only for the commit itself, and
//! what is notified can be, since a transaction that commits like that is not prepared.

use std::cell::Cell;
use std::sync::OnceLock;

use pgrx::pg_guard;
use pgrx::pg_sys;

static WORK: OnceLock<fn()> = OnceLock::new();

thread_local! {
    static WANTED: Cell<bool> = const { Cell::new(false) };
}

/// Registers the callback and says what is to be done; once, when the library is loaded. `work` survives its own errors.
pub fn register(work: fn()) {
    WORK.get_or_init(|| work);
    // SAFETY: the callback is a function of this library, which is never unloaded.
    unsafe { pg_sys::RegisterXactCallback(Some(on_xact_event), std::ptr::null_mut()) };
}

/// There is something to do before this transaction commits.
pub fn want() {
    WANTED.set(true);
}

/// # Safety
/// Called by PostgreSQL at transaction end.
#[pg_guard]
unsafe extern "C-unwind" fn on_xact_event(event: pg_sys::XactEvent::Type, _arg: *mut std::ffi::c_void) {
    // What is prepared is left as it is: whoever comes next finds it in our tables. Taken before it runs, so that nothing
    // that it does can want it again.
    if WANTED.replace(false)
        && event == pg_sys::XactEvent::XACT_EVENT_PRE_COMMIT
        && let Some(work) = WORK.get()
    {
        work();
    }
}
