//! Work of our own inside a user's statement, bounded in time: it neither hangs that statement nor uses up the time that
//! the user gave it (`statement_timeout`).

use std::time::Duration;

use pgrx::pg_sys;

/// `STATEMENT_TIMEOUT` of `enum TimeoutId` in `utils/timeout.h`, which pgrx has no bindings for; the same from 15 to 18.
const STATEMENT_TIMEOUT: i32 = 3;

// SAFETY: signatures of utils/timeout.h, the same from 15 to 18. None of them raises for a timeout that is registered, as
// this one is in every backend.
unsafe extern "C-unwind" {
    fn enable_timeout_at(id: i32, finish: pg_sys::TimestampTz);
    fn disable_timeout(id: i32, keep_indicator: bool);
    fn get_timeout_active(id: i32) -> bool;
    fn get_timeout_indicator(id: i32, reset: bool) -> bool;
    fn get_timeout_finish_time(id: i32) -> pg_sys::TimestampTz;
}

/// A running deadline, which takes the place of the statement's own.
pub struct Deadline {
    begin: pg_sys::TimestampTz,
    end: pg_sys::TimestampTz,
    /// When the user's statement is to be cancelled, if it has a limit.
    users: Option<pg_sys::TimestampTz>,
}

impl Deadline {
    /// Begins: after `budget` the work is cancelled. It ends when it is dropped.
    pub fn begin(budget: Duration) -> Deadline {
        // The statement's own cancel, if it has come already, must not pass for this deadline's.
        pg_sys::check_for_interrupts!();
        // SAFETY: see the declarations.
        unsafe {
            let users =
                get_timeout_active(STATEMENT_TIMEOUT).then(|| get_timeout_finish_time(STATEMENT_TIMEOUT));
            disable_timeout(STATEMENT_TIMEOUT, false);
            let begin = pg_sys::GetCurrentTimestamp();
            let micros = i64::try_from(budget.as_micros()).unwrap_or(i64::MAX / 4);
            let end = begin.saturating_add(micros);
            enable_timeout_at(STATEMENT_TIMEOUT, end);
            Deadline { begin, end, users }
        }
    }

    /// The time is over: a cancel that comes now is this deadline's, not the user's.
    pub fn is_over(&self) -> bool {
        // SAFETY: reads the clock.
        unsafe { pg_sys::GetCurrentTimestamp() >= self.end }
    }
}

/// Ends it, also when an error comes out of what ran: and gives the statement the time back that was spent.
impl Drop for Deadline {
    fn drop(&mut self) {
        // SAFETY: see the declarations; the flag is the backend's own.
        unsafe {
            disable_timeout(STATEMENT_TIMEOUT, true);
            if get_timeout_indicator(STATEMENT_TIMEOUT, true) {
                // It fired after the last look for interrupts: nobody is to be cancelled for it any more.
                pg_sys::QueryCancelPending = 0;
            }
            if let Some(users) = self.users {
                let spent = pg_sys::GetCurrentTimestamp().saturating_sub(self.begin);
                enable_timeout_at(STATEMENT_TIMEOUT, users.saturating_add(spent));
            }
        }
    }
}
