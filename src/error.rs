//! Every error that pgtrickle raises: what happened, a stable reason word, and the next command to type.
#![forbid(unsafe_code)]

use thiserror::Error;

use crate::model::original::Original;

/// SQLSTATEs in use, by PostgreSQL's own condition names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SqlState {
    /// 0A000
    FeatureNotSupported,
    /// 22023
    InvalidParameterValue,
    /// 2BP01
    DependentObjectsStillExist,
    /// 42501
    InsufficientPrivilege,
    /// 42601
    SyntaxError,
    /// 42704
    UndefinedObject,
    /// 42P07
    DuplicateTable,
    /// 42P17
    InvalidObjectDefinition,
    /// 42809
    WrongObjectType,
    /// 55000
    ObjectNotInPrerequisiteState,
    /// 54000
    ProgramLimitExceeded,
    /// 42703
    UndefinedColumn,
    /// 40001
    SerializationFailure,
    /// 42P01
    UndefinedTable,
    /// 55P03
    LockNotAvailable,
    /// 57014
    QueryCanceled,
    /// XX000
    Internal,
    /// PostgreSQL's own code of an error that is passed on, in its packed form.
    Native(i32),
}

/// One error. `Display` is the message; names in it are already quoted by the caller with `sqltext`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// The relation is not a stream table.
    #[error("{name} is not a stream table")]
    NotAStreamTable { name: String },
    /// Refresh of a suspended stream table.
    #[error("stream table {name} is suspended")]
    Suspended { name: String, reason: String, detail: String, hint: String },
    /// A construct that no mode can keep right.
    #[error("the defining query can't be kept: {what}")]
    Refused { reason: &'static str, what: String, hint: String },
    /// PostgreSQL refused the query.
    #[error("{message}")]
    Query {
        message: String,
        code: i32,
        reason: &'static str,
        detail: Option<String>,
        hint: String,
        /// As PostgreSQL raised it: its CONTEXT, names and place stay.
        original: Option<Box<Original>>,
    },
    /// An error that is not ours and passes as it is.
    #[error("{}", .0.message)]
    Passed(Box<Original>),
    /// Wider than can be kept.
    #[error("the defining query has {columns} columns, at most {limit} can be kept")]
    TooManyColumns { columns: usize, limit: usize },
    /// refresh_mode `differential` was asked for, and the query has a construct that needs `full`.
    #[error("the defining query can't be refreshed differentially: {construct}")]
    NotDifferential { construct: String },
    /// An argument outside its domain.
    #[error("invalid value for {argument}: {value}")]
    BadArgument { argument: &'static str, value: String, hint: String },
    /// The text is not one plain SELECT.
    #[error("the defining query must be a single SELECT")]
    NotASelect { found: String },
    /// The schema belongs to PostgreSQL or to pgtrickle.
    #[error("a stream table can't be created in schema {schema}")]
    ReservedSchema { schema: String },
    /// The name is taken.
    #[error("relation {name} already exists")]
    NameTaken { name: String },
    /// A source that can't be watched.
    #[error("{source_name} can't be the source of a stream table: it is {kind}")]
    BadSource { source_name: String, kind: String, reason: &'static str, hint: String },
    /// The query reads the stream table itself, directly or through others.
    #[error("the defining query of {name} would read {name} itself")]
    Cycle { name: String },
    /// Privilege missing.
    #[error("permission denied: {what}")]
    Privilege { what: String, hint: String },
    /// A write to a stream table other than by a refresh.
    #[error("stream table {name} can't be changed directly")]
    DirectWrite { name: String },
    /// DDL that would break a stream table's own shape or our internals.
    #[error("{what}")]
    ProtectedObject { what: String, hint: String },
    /// Other stream tables read this one.
    #[error("can't drop stream table {name}: other stream tables read it")]
    Dependents { name: String, dependents: String },
    /// The contents did not match what the maintenance state says.
    #[error("stream table {name} has diverged from its maintenance state")]
    Diverged { name: String, detail: String },
    /// A function that only a running refresh may call.
    #[error("this function reads what belongs to a refresh")]
    OnlyInRefresh,
    /// A buffered row can't be computed with any more.
    #[error("buffered changes can't be used: {what}")]
    StaleImage { what: String },
    /// A buffer or state table that was there a moment ago.
    #[error("side table {name} is missing")]
    SideTableMissing { name: String },
    /// Somebody holds a lock that is not waited for.
    #[error("could not obtain a lock on {what}")]
    LockNotAvailable { what: String },
    /// A table of the user's that is locked by others for too long.
    #[error("could not obtain a lock on {name} within the time for it")]
    SourceLocked { name: String, holders: String },
    /// Somebody has changed a row of ours since this transaction began to look.
    #[error("could not serialize access to {what} due to a concurrent change")]
    ConcurrentChange { what: String },
    /// Work of our own inside a user's command took too long.
    #[error("the time for it is over")]
    OutOfTime,
    /// A table of pgtrickle's own is missing.
    #[error("relation {name} does not exist")]
    OwnTableMissing { name: String },
    /// Somebody has renamed a column of a table of pgtrickle's own, or made another one in its place.
    #[error("relation {name} does not have the columns that it was created with")]
    OwnTableChanged { name: String },
    /// There is no schema snapshot of this number.
    #[error("there is no schema snapshot {id}")]
    NoSnapshot { id: i64 },
    /// Nothing was ever recorded of such a table.
    #[error("nothing is recorded of {name}")]
    NoHistory { name: String },
    /// Tables of several schemas fit.
    #[error("{name} is the name of several tables")]
    AmbiguousName { name: String, found: String },
    /// The texts of another encoding are no strings of ours.
    #[error("pgtrickle needs a database with encoding UTF8, this one has {found}")]
    Encoding { found: String },
    /// A bug, or a catalog that somebody edited.
    #[error("pgtrickle internal error: {0}")]
    Internal(String),
}

impl Error {
    /// SQLSTATE of the condition.
    pub fn sqlstate(&self) -> SqlState {
        use SqlState::*;
        match self {
            Error::NotAStreamTable { .. } => WrongObjectType,
            Error::Suspended { .. } | Error::DirectWrite { .. } | Error::Diverged { .. } => {
                ObjectNotInPrerequisiteState
            }
            Error::Refused { .. }
            | Error::NotDifferential { .. }
            | Error::BadSource { .. }
            | Error::Encoding { .. } => FeatureNotSupported,
            Error::BadArgument { .. } => InvalidParameterValue,
            Error::NotASelect { .. } => SyntaxError,
            Error::ReservedSchema { .. } | Error::Privilege { .. } | Error::OnlyInRefresh => {
                InsufficientPrivilege
            }
            Error::StaleImage { .. } | Error::SideTableMissing { .. } => ObjectNotInPrerequisiteState,
            Error::NameTaken { .. } => DuplicateTable,
            Error::Cycle { .. } => InvalidObjectDefinition,
            Error::ProtectedObject { .. } => ObjectNotInPrerequisiteState,
            Error::Dependents { .. } => DependentObjectsStillExist,
            Error::Query { code, .. } => Native(*code),
            Error::Passed(original) => Native(original.code),
            Error::TooManyColumns { .. } => ProgramLimitExceeded,
            Error::LockNotAvailable { .. } | Error::SourceLocked { .. } => LockNotAvailable,
            Error::ConcurrentChange { .. } => SerializationFailure,
            Error::OutOfTime => QueryCanceled,
            Error::OwnTableMissing { .. } | Error::NoHistory { .. } => UndefinedTable,
            Error::OwnTableChanged { .. } => UndefinedColumn,
            Error::NoSnapshot { .. } => UndefinedObject,
            Error::AmbiguousName { .. } => InvalidParameterValue,
            Error::Internal(_) => Internal,
        }
    }

    /// The error that it was made of, if PostgreSQL or users' code raised one.
    pub fn original(&self) -> Option<&Original> {
        match self {
            Error::Query { original, .. } => original.as_deref(),
            Error::Passed(original) => Some(original),
            _ => None,
        }
    }

    /// DETAIL, empty for none: starts with the stable word `reason=...`.
    pub fn detail(&self) -> String {
        match self {
            Error::NotAStreamTable { .. } => "reason=NOT_A_STREAM_TABLE.".into(),
            Error::Suspended { reason, detail, .. } => format!("reason={reason}: {detail}"),
            Error::Refused { reason, .. } => format!("reason={reason}."),
            Error::NotDifferential { construct } => format!("reason=NOT_DIFFERENTIAL: {construct}."),
            Error::BadArgument { .. } => "reason=BAD_ARGUMENT.".into(),
            Error::NotASelect { found } => format!("reason=NOT_A_SELECT: found {found}."),
            Error::ReservedSchema { .. } => "reason=RESERVED_SCHEMA.".into(),
            Error::NameTaken { .. } => "reason=NAME_TAKEN.".into(),
            Error::BadSource { reason, .. } => format!("reason={reason}."),
            Error::Cycle { .. } => "reason=CYCLE.".into(),
            Error::Privilege { .. } => "reason=PRIVILEGE.".into(),
            Error::DirectWrite { .. } => {
                "reason=DIRECT_WRITE: its contents are the result of its query.".into()
            }
            Error::ProtectedObject { .. } => "reason=PROTECTED_OBJECT.".into(),
            Error::Dependents { dependents, .. } => format!("reason=DEPENDENTS: {dependents}."),
            Error::Diverged { detail, .. } => format!("reason=DIVERGED: {detail}"),
            Error::Query { reason, detail, .. } => match detail {
                Some(detail) => format!("reason={reason}: {detail}"),
                None => format!("reason={reason}."),
            },
            Error::Passed(original) => original.detail.clone().unwrap_or_else(String::new),
            Error::TooManyColumns { .. } => "reason=TOO_MANY_COLUMNS.".into(),
            Error::OnlyInRefresh => "reason=ONLY_IN_REFRESH.".into(),
            Error::StaleImage { .. } => "reason=STALE_IMAGE.".into(),
            Error::SideTableMissing { .. } => "reason=SIDE_TABLE_MISSING.".into(),
            Error::LockNotAvailable { .. } => "reason=LOCK_NOT_AVAILABLE.".into(),
            Error::SourceLocked { holders, .. } => {
                format!("reason=LOCK_NOT_AVAILABLE: it is held by {holders}.")
            }
            Error::ConcurrentChange { .. } => "reason=CONCURRENT_CHANGE.".into(),
            Error::OutOfTime => "reason=OUT_OF_TIME.".into(),
            Error::OwnTableMissing { .. } => "reason=OWN_TABLE_MISSING.".into(),
            Error::OwnTableChanged { .. } => "reason=OWN_TABLE_CHANGED.".into(),
            Error::NoSnapshot { .. } => "reason=SNAPSHOT_NOT_FOUND.".into(),
            Error::NoHistory { .. } => "reason=NO_HISTORY.".into(),
            Error::AmbiguousName { found, .. } => format!("reason=AMBIGUOUS_NAME: {found}."),
            Error::Encoding { .. } => "reason=ENCODING.".into(),
            Error::Internal(_) => "reason=INTERNAL.".into(),
        }
    }

    /// HINT, empty for none: the next command to type.
    pub fn hint(&self) -> String {
        match self {
            Error::NotAStreamTable { .. } => "List them with SELECT * FROM pgtrickle.stream_tables.".into(),
            Error::Suspended { hint, .. }
            | Error::Refused { hint, .. }
            | Error::BadArgument { hint, .. }
            | Error::BadSource { hint, .. }
            | Error::Privilege { hint, .. }
            | Error::Query { hint, .. }
            | Error::ProtectedObject { hint, .. } => hint.clone(),
            Error::Passed(original) => original.hint.clone().unwrap_or_else(String::new),
            Error::TooManyColumns { .. } => "Select fewer columns.".into(),
            Error::NotDifferential { .. } => {
                "Use refresh_mode => 'auto' or 'full', or rewrite the query without it.".into()
            }
            Error::NotASelect { .. } => {
                "Pass one SELECT statement, without a trailing second statement, INTO, FOR UPDATE or parameters.".into()
            }
            Error::ReservedSchema { .. } => "Choose a schema of your own.".into(),
            Error::NameTaken { .. } => {
                "Choose another name, or change the query of a stream table with pgtrickle.alter_stream_table_query().".into()
            }
            Error::Cycle { .. } => "Remove the reference from the query.".into(),
            Error::DirectWrite { name } => format!(
                "Change its sources and call SELECT pgtrickle.refresh_stream_table({}).",
                crate::sqltext::regclass_literal(name)
            ),
            Error::Dependents { name, .. } => format!(
                "Use SELECT pgtrickle.drop_stream_table({}, cascade => true) to drop them too.",
                crate::sqltext::regclass_literal(name)
            ),
            Error::Diverged { name, .. } => format!(
                "Call SELECT pgtrickle.refresh_stream_table({}, mode => 'full') to rebuild it.",
                crate::sqltext::regclass_literal(name)
            ),
            Error::OnlyInRefresh => {
                "Read the stream table; SELECT * FROM pgtrickle.change_buffers shows what is buffered.".into()
            }
            Error::StaleImage { .. } | Error::SideTableMissing { .. } => {
                "Nothing needs to be done: the next refresh computes the contents anew.".into()
            }
            Error::LockNotAvailable { .. } => {
                "Try again; SELECT * FROM pg_locks shows who holds it.".into()
            }
            Error::SourceLocked { .. } => {
                "Try again when that transaction has ended, or raise pg_trickle.source_lock_timeout.".into()
            }
            Error::ConcurrentChange { .. } => "Repeat the transaction.".into(),
            Error::OutOfTime => "See pg_trickle.snapshot_timeout.".into(),
            Error::OwnTableMissing { .. } | Error::OwnTableChanged { .. } => "Restore it from a dump, or create the extension anew.".into(),
            Error::NoSnapshot { .. } => {
                "List them with SELECT snapshot_id, schema_name, table_name, captured_at FROM pgtrickle.schema_snapshots.".into()
            }
            Error::NoHistory { .. } => {
                "SELECT DISTINCT schema_name, table_name FROM pgtrickle.schema_snapshots lists what is recorded; \
                 SELECT * FROM pgtrickle.capture_baseline() records the tables that are there now.".into()
            }
            Error::AmbiguousName { .. } => "Pass the name with its schema.".into(),
            Error::Encoding { .. } => {
                "Dump it and restore it into a database made with CREATE DATABASE ... TEMPLATE template0 ENCODING 'UTF8'.".into()
            }
            Error::Internal(_) => "Please report it with the statement that led to it.".into(),
        }
    }
}

/// Result of everything in pgtrickle that can fail.
pub type Result<T> = std::result::Result<T, Error>;
