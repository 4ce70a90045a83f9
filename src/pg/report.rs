//! Errors and messages to the session, with DETAIL and HINT.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode};

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
    let mut report = ErrorReport::new(code, message.to_string(), "pgtrickle");
    if !detail.is_empty() {
        report = report.set_detail(detail.to_string());
    }
    if !hint.is_empty() {
        report = report.set_hint(hint.to_string());
    }
    report.report(level);
}
