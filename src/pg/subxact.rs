//! Internal subtransactions: the only way to survive an error of the server.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use pgrx::PgTryBuilder;
use pgrx::pg_sys;
use pgrx::pg_sys::panic::{CaughtError, ErrorReportWithLevel};

use crate::error::SqlState;
use crate::model::original::{Original, sqlstate};
use crate::pg::deadline::Deadline;
use crate::pg::foreign;

/// What went wrong in a subtransaction that was rolled back.
#[derive(Debug, Clone)]
pub struct Caught {
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
    /// Packed SQLSTATE.
    pub code: i32,
    /// The error as it was raised, if PostgreSQL or users' code raised it.
    pub original: Option<Box<Original>>,
}

/// Runs `f` in a subtransaction. An error rolls it back and is returned; a query cancel or shutdown is raised on.
pub fn run<T>(f: impl FnOnce() -> crate::error::Result<T>) -> Result<T, Caught> {
    match attempt(f, raises_on) {
        Ok(value) => Ok(value),
        Err(Stop::Caught(caught)) => Err(caught),
        Err(Stop::Raise(error)) => error.rethrow(),
    }
}

/// Runs `f`, which only looks at something, in a subtransaction that is rolled back in any case: the locks that it took on
/// the way go with it.
pub fn look<T>(f: impl FnOnce() -> crate::error::Result<T>) -> Result<T, Caught> {
    let mut seen = None;
    let outcome = run(|| {
        seen = Some(f()?);
        Err::<(), _>(crate::error::Error::Internal("rolled back as it was meant to be".into()))
    });
    match (seen, outcome) {
        (Some(seen), _) => Ok(seen),
        (None, Err(caught)) => Err(caught),
        (None, Ok(())) => Err(crate::error::Error::Internal("nothing was looked at".into()).into()),
    }
}

/// Runs `f` in a subtransaction for at most `budget`. Whatever goes wrong is returned, a bug and the end of the time among
/// it: only the user's own cancel and a shutdown are raised on.
pub fn run_within<T>(budget: Duration, f: impl FnOnce() -> crate::error::Result<T>) -> Result<T, Caught> {
    let deadline = Deadline::begin(budget);
    let is_bug = |error: &CaughtError| matches!(error, CaughtError::RustPanic { .. });
    let outcome =
        attempt(f, |error| raises_on(error) && !is_bug(error) && !(is_cancel(error) && deadline.is_over()));
    drop(deadline);
    match outcome {
        Ok(value) => Ok(value),
        Err(Stop::Caught(caught)) => Err(caught),
        Err(Stop::Raise(error)) => error.rethrow(),
    }
}

/// As `run`, with a limit if there is one: then the end of the time is returned like other errors.
pub fn run_limited<T>(
    limit: Option<Duration>,
    f: impl FnOnce() -> crate::error::Result<T>,
) -> Result<T, Caught> {
    let Some(limit) = limit else { return run(f) };
    let deadline = Deadline::begin(limit);
    let outcome = attempt(f, |error| raises_on(error) && !(is_cancel(error) && deadline.is_over()));
    drop(deadline);
    match outcome {
        Ok(value) => Ok(value),
        Err(Stop::Caught(caught)) => Err(caught),
        Err(Stop::Raise(error)) => error.rethrow(),
    }
}

/// What an error means for whoever runs a subtransaction.
enum Stop {
    Caught(Caught),
    /// Not to be survived; the subtransaction has been rolled back.
    Raise(CaughtError),
}

fn attempt<T>(
    f: impl FnOnce() -> crate::error::Result<T>,
    raises: impl Fn(&CaughtError) -> bool,
) -> Result<T, Stop> {
    // SAFETY: context and resource owner are saved before and restored after the subtransaction, as PL/pgSQL does.
    let (context, owner) = unsafe {
        let saved = (pg_sys::CurrentMemoryContext, pg_sys::CurrentResourceOwner);
        pg_sys::BeginInternalSubTransaction(std::ptr::null());
        pg_sys::MemoryContextSwitchTo(saved.0);
        saved
    };
    let mut f = Some(f);
    let raises = AssertUnwindSafe(raises);
    let outcome = PgTryBuilder::new(AssertUnwindSafe(|| match f.take() {
        Some(f) => {
            let value = f().map_err(|e| Stop::Caught(Caught::from(e)))?;
            // SAFETY: the subtransaction begun above. In here, since ending it processes invalidations, in the middle of
            // which a cancel can come: then it is still open, and has to be rolled back like any other.
            unsafe { pg_sys::ReleaseCurrentSubTransaction() };
            Ok(value)
        }
        None => {
            Err(Stop::Caught(crate::error::Error::Internal("subtransaction body ran twice".into()).into()))
        }
    }))
    .catch_others(|error| Err(if raises(&error) { Stop::Raise(error) } else { Stop::Caught(caught(error)) }))
    .execute();
    // SAFETY: ends the subtransaction begun above if it failed, then restores what was saved; before anything is raised on,
    // since nobody else would end it.
    unsafe {
        if outcome.is_err() {
            pg_sys::RollbackAndReleaseCurrentSubTransaction();
        }
        pg_sys::MemoryContextSwitchTo(context);
        pg_sys::CurrentResourceOwner = owner;
    }
    outcome
}

/// What `run` must not survive: a cancel, a shutdown, a panic.
fn raises_on(error: &CaughtError) -> bool {
    use pgrx::PgSqlErrorCode::*;
    match error {
        CaughtError::PostgresError(report) | CaughtError::ErrorReport(report) => {
            is_cancel(error)
                || matches!(report.sql_error_code(), ERRCODE_ADMIN_SHUTDOWN | ERRCODE_CRASH_SHUTDOWN)
        }
        CaughtError::RustPanic { .. } => true,
    }
}

fn is_cancel(error: &CaughtError) -> bool {
    match error {
        CaughtError::PostgresError(report) | CaughtError::ErrorReport(report) => {
            report.sql_error_code() == pgrx::PgSqlErrorCode::ERRCODE_QUERY_CANCELED
        }
        CaughtError::RustPanic { .. } => false,
    }
}

/// An error as it is kept.
pub(super) fn caught(error: CaughtError) -> Caught {
    match error {
        CaughtError::PostgresError(report)
        | CaughtError::ErrorReport(report)
        | CaughtError::RustPanic { ereport: report, .. } => Caught::from(&report),
    }
}

impl From<foreign::Failure> for Caught {
    fn from(failure: foreign::Failure) -> Self {
        match failure {
            foreign::Failure::Own(error) => error.into(),
            foreign::Failure::Server(caught) => caught,
            foreign::Failure::Raised(error) => caught(error),
        }
    }
}

impl From<&ErrorReportWithLevel> for Caught {
    fn from(report: &ErrorReportWithLevel) -> Self {
        let original = foreign::original_of(report).map(Box::new);
        Caught {
            message: report.message().to_string(),
            detail: report.detail().map(str::to_string),
            hint: report.hint().map(str::to_string),
            code: original.as_ref().map_or(report.sql_error_code() as i32, |o| o.code),
            original,
        }
    }
}

impl std::fmt::Display for Caught {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl Caught {
    /// It was cancelled.
    pub fn is_cancel(&self) -> bool {
        self.code == pgrx::PgSqlErrorCode::ERRCODE_QUERY_CANCELED as i32
    }

    /// A lock could not be had in time, or two waited for each other.
    pub fn is_lock(&self) -> bool {
        use pgrx::PgSqlErrorCode::{ERRCODE_LOCK_NOT_AVAILABLE, ERRCODE_T_R_DEADLOCK_DETECTED};
        self.code == ERRCODE_LOCK_NOT_AVAILABLE as i32 || self.code == ERRCODE_T_R_DEADLOCK_DETECTED as i32
    }

    /// Our own check of what is buffered or kept: it is of other types than the columns have now.
    pub fn is_stale_image(&self) -> bool {
        self.code == pgrx::PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE as i32
            && self.detail.as_deref().is_some_and(|detail| detail.starts_with("reason=STALE_IMAGE"))
    }

    /// The five characters of the SQLSTATE.
    pub fn sqlstate(&self) -> String {
        sqlstate(self.code)
    }
}

impl From<crate::error::Error> for Caught {
    fn from(error: crate::error::Error) -> Self {
        let code = match error.sqlstate() {
            SqlState::Native(code) => code,
            state => crate::pg::report::code(state) as i32,
        };
        Caught {
            message: error.to_string(),
            detail: Some(error.detail()).filter(|d| !d.is_empty()),
            hint: Some(error.hint()).filter(|h| !h.is_empty()),
            code,
            original: error.original().map(|o| Box::new(o.clone())),
        }
    }
}
