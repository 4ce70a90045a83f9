//! The time of day, as PostgreSQL has it.

use pgrx::pg_sys;

/// Microseconds; only differences count.
pub type Micros = i64;

/// Now.
pub fn now() -> Micros {
    // SAFETY: reads the clock.
    unsafe { pg_sys::GetCurrentTimestamp() }
}
