//! Errors and messages to the session, with DETAIL and HINT.

use std::borrow::Cow;
use std::ffi::CString;
use std::panic::AssertUnwindSafe;

use pgrx::pg_sys;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode, PgTryBuilder};

use crate::error::{Error, SqlState};
use crate::pg::foreign;
use crate::pg::subxact::Caught;

/// PostgreSQL's code.
pub fn code(state: SqlState) -> PgSqlErrorCode {
    use PgSqlErrorCode::*;
    match state {
        SqlState::FeatureNotSupported => ERRCODE_FEATURE_NOT_SUPPORTED,
        SqlState::InvalidParameterValue => ERRCODE_INVALID_PARAMETER_VALUE,
        SqlState::DependentObjectsStillExist => ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST,
        SqlState::InsufficientPrivilege => ERRCODE_INSUFFICIENT_PRIVILEGE,
        SqlState::SyntaxError => ERRCODE_SYNTAX_ERROR,
        SqlState::UndefinedObject => ERRCODE_UNDEFINED_OBJECT,
        SqlState::DuplicateTable => ERRCODE_DUPLICATE_TABLE,
        SqlState::InvalidObjectDefinition => ERRCODE_INVALID_OBJECT_DEFINITION,
        SqlState::WrongObjectType => ERRCODE_WRONG_OBJECT_TYPE,
        SqlState::ObjectNotInPrerequisiteState => ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        SqlState::ProgramLimitExceeded => ERRCODE_PROGRAM_LIMIT_EXCEEDED,
        SqlState::UndefinedColumn => ERRCODE_UNDEFINED_COLUMN,
        SqlState::SerializationFailure => ERRCODE_T_R_SERIALIZATION_FAILURE,
        SqlState::UndefinedTable => ERRCODE_UNDEFINED_TABLE,
        SqlState::LockNotAvailable => ERRCODE_LOCK_NOT_AVAILABLE,
        SqlState::QueryCanceled => ERRCODE_QUERY_CANCELED,
        SqlState::Internal => ERRCODE_INTERNAL_ERROR,
        SqlState::Native(code) => PgSqlErrorCode::from(code),
    }
}

/// What pgrx raises an error from.
pub fn report_of(error: &Error) -> ErrorReport {
    let mut report = ErrorReport::new(code(error.sqlstate()), error.to_string(), "pgtrickle");
    let (detail, hint) = (error.detail(), error.hint());
    if !detail.is_empty() {
        report = report.set_detail(detail);
    }
    if !hint.is_empty() {
        report = report.set_hint(hint);
    }
    report
}

/// WARNING with DETAIL and HINT.
pub fn warning(message: &str, detail: &str, hint: &str) {
    say(PgLogLevel::WARNING, PgSqlErrorCode::ERRCODE_WARNING, message, detail, hint);
}

/// NOTICE with DETAIL and HINT.
pub fn notice(message: &str, detail: &str, hint: &str) {
    say(PgLogLevel::NOTICE, PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION, message, detail, hint);
}

/// A line for the server log alone.
pub fn log(message: &str) {
    say(PgLogLevel::LOG, PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION, message, "", "");
}

/// A failure for the server log, with its SQLSTATE and CONTEXT.
pub fn log_failure(message: &str, caught: &Caught) {
    let detail = match &caught.detail {
        Some(detail) => format!("SQLSTATE {}: {detail}", caught.sqlstate()),
        None => format!("SQLSTATE {}.", caught.sqlstate()),
    };
    let hint = caught.hint.as_deref().unwrap_or("");
    let tell = || say(PgLogLevel::LOG, PgSqlErrorCode::from(caught.code), message, &detail, hint);
    match caught.original.as_ref().and_then(|o| o.context.as_deref()) {
        Some(context) => foreign::with_context(context, tell),
        None => tell(),
    }
}

/// A line for the server log that no client sees, whatever its client_min_messages: it may quote data.
pub fn log_server_only(message: &str) {
    say(PgLogLevel::LOG_SERVER_ONLY, PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION, message, "", "");
}

/// For whoever sets log_min_messages to debug1.
pub fn debug(message: &str) {
    say(PgLogLevel::DEBUG1, PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION, message, "", "");
}

/// An error that must not stop what the user is doing, told as a WARNING.
pub fn degraded(what: &str, caught: &Caught) {
    let detail = format!("reason=DEGRADED: {}.", caught.message);
    warning(what, &detail, "SELECT * FROM pgtrickle.health_check() tells what needs attention.");
}

fn say(level: PgLogLevel, code: PgSqlErrorCode, message: &str, detail: &str, hint: &str) {
    let text = |text: &str| match level {
        PgLogLevel::LOG_SERVER_ONLY => text.to_string(),
        _ => sayable(text).into_owned(),
    };
    let mut report = ErrorReport::new(code, text(message), "pgtrickle");
    if !detail.is_empty() {
        report = report.set_detail(text(detail));
    }
    if !hint.is_empty() {
        report = report.set_hint(text(hint));
    }
    // SAFETY: what is no error returns from here, but for a cancel that is waiting or a client that is gone: PostgreSQL
    // looks for those at the end of a report, which pgrx calls without a guard. pgrx has dropped the report by then.
    unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| report.report(level)) };
}

/// `text` as this session's client can be sent it: where its encoding does not have all characters, those beyond ASCII are
/// escaped. Sending them would be an error in the statement that is running, which need not concern that name at all.
fn sayable(text: &str) -> Cow<'_, str> {
    // SAFETY: reads backend variables; the conversion reads `length` bytes and allocates its result.
    let converts = |text: &CString| unsafe {
        let length = text.as_bytes().len() as i32;
        let converted = pg_sys::pg_server_to_client(text.as_ptr(), length);
        if !std::ptr::eq(converted, text.as_ptr()) {
            pg_sys::pfree(converted.cast());
        }
    };
    // SAFETY: reads backend variables.
    let same = unsafe { pg_sys::pg_get_client_encoding() == pg_sys::GetDatabaseEncoding() };
    if same || text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let Ok(whole) = CString::new(text) else { return Cow::Borrowed(text) };
    let can = PgTryBuilder::new(AssertUnwindSafe(|| {
        converts(&whole);
        true
    }))
    .catch_when(PgSqlErrorCode::ERRCODE_UNTRANSLATABLE_CHARACTER, |_| false)
    .execute();
    if can { Cow::Borrowed(text) } else { Cow::Owned(escaped(text)) }
}

/// Characters beyond ASCII as `\uXXXX` or `\UXXXXXXXX`, as PostgreSQL's E'' strings have them.
fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len() * 2), |mut out, c| {
        match u32::from(c) {
            0..0x80 => out.push(c),
            n @ 0x80..0x10000 => out.push_str(&format!("\\u{n:04X}")),
            n => out.push_str(&format!("\\U{n:08X}")),
        }
        out
    })
}
