//! Internal subtransactions: the only way to survive an error of the server.

use std::panic::AssertUnwindSafe;

use pgrx::PgTryBuilder;
use pgrx::pg_sys;
use pgrx::pg_sys::panic::CaughtError;

/// What went wrong in a subtransaction that was rolled back.
#[derive(Debug, Clone)]
pub struct Caught {
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
    /// Packed SQLSTATE.
    pub code: i32,
}

/// Runs `f` in a subtransaction. An error rolls it back and is returned; a query cancel or shutdown is raised on.
pub fn run<T>(f: impl FnOnce() -> crate::error::Result<T>) -> Result<T, Caught> {
    // SAFETY: context and resource owner are saved before and restored after the subtransaction, as PL/pgSQL does.
    let (context, owner) = unsafe {
        let saved = (pg_sys::CurrentMemoryContext, pg_sys::CurrentResourceOwner);
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::MemoryContextSwitchTo(saved.0);
        saved
    };
    let mut f = Some(f);
    let outcome = PgTryBuilder::new(AssertUnwindSafe(|| match f.take() {
        Some(f) => f().map_err(|e| Stop::Caught(Caught::from(e))),
        None => {
            Err(Stop::Caught(crate::error::Error::Internal("subtransaction body ran twice".into()).into()))
        }
    }))
    .catch_others(|error| Err(stop(error)))
    .execute();
    // SAFETY: ends the subtransaction begun above, then restores what was saved; before anything is raised on, since
    // nobody else would end it.
    unsafe {
        if outcome.is_ok() {
            pg_sys::ReleaseCurrentSubTransaction();
        } else {
            pg_sys::RollbackAndReleaseCurrentSubTransaction();
        }
        pg_sys::MemoryContextSwitchTo(context);
        pg_sys::CurrentResourceOwner = owner;
    }
    match outcome {
        Ok(value) => Ok(value),
        Err(Stop::Caught(caught)) => Err(caught),
        Err(Stop::Raise(error)) => error.rethrow(),
    }
}

/// What an error means for whoever runs a subtransaction.
enum Stop {
    Caught(Caught),
    /// Not ours to survive: cancel, shutdown, a panic.
    Raise(CaughtError),
}

fn stop(error: CaughtError) -> Stop {
    use pgrx::PgSqlErrorCode::*;
    match &error {
        CaughtError::PostgresError(report) | CaughtError::ErrorReport(report) => {
            let code = report.sql_error_code();
            if matches!(code, ERRCODE_QUERY_CANCELED | ERRCODE_ADMIN_SHUTDOWN | ERRCODE_CRASH_SHUTDOWN) {
                return Stop::Raise(error);
            }
            Stop::Caught(Caught {
                message: report.message().to_string(),
                detail: report.detail().map(str::to_string),
                hint: report.hint().map(str::to_string),
                code: code as i32,
            })
        }
        CaughtError::RustPanic { .. } => Stop::Raise(error),
    }
}

impl From<crate::error::Error> for Caught {
    fn from(error: crate::error::Error) -> Self {
        let code = crate::pg::report::code(error.sqlstate()) as i32;
        Caught { message: error.to_string(), detail: Some(error.detail()), hint: Some(error.hint()), code }
    }
}
