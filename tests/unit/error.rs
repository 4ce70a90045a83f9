//! Every error: its SQLSTATE, a DETAIL that begins with its reason word, a HINT that says what to type.

use pgtrickle::error::{Error, SqlState};
use pgtrickle::model::original::{Original, sqlstate};

/// One of each variant, with its SQLSTATE.
fn every() -> Vec<(Error, SqlState)> {
    use SqlState::*;
    let s = String::from;
    let hint = || s("Do this.");
    vec![
        (Error::NotAStreamTable { name: s("\"t\"") }, WrongObjectType),
        (
            Error::Suspended { name: s("\"t\""), reason: s("COLUMN_DROPPED"), detail: s("x"), hint: hint() },
            ObjectNotInPrerequisiteState,
        ),
        (Error::Refused { reason: "VOLATILE", what: s("x"), hint: hint() }, FeatureNotSupported),
        (Error::NotDifferential { construct: s("x") }, FeatureNotSupported),
        (Error::BadArgument { argument: "schedule", value: s("x"), hint: hint() }, InvalidParameterValue),
        (Error::NotASelect { found: s("x") }, SyntaxError),
        (Error::ReservedSchema { schema: s("\"pg_catalog\"") }, InsufficientPrivilege),
        (Error::NameTaken { name: s("\"t\"") }, DuplicateTable),
        (
            Error::BadSource { source_name: s("\"t\""), kind: s("a view"), reason: "FOREIGN", hint: hint() },
            FeatureNotSupported,
        ),
        (Error::Cycle { name: s("\"t\"") }, InvalidObjectDefinition),
        (Error::Privilege { what: s("x"), hint: hint() }, InsufficientPrivilege),
        (Error::DirectWrite { name: s("\"it's\"") }, ObjectNotInPrerequisiteState),
        (Error::ProtectedObject { what: s("x"), hint: hint() }, ObjectNotInPrerequisiteState),
        (Error::Dependents { name: s("\"t\""), dependents: s("x") }, DependentObjectsStillExist),
        (Error::Diverged { name: s("\"t\""), detail: s("x") }, ObjectNotInPrerequisiteState),
        (Error::Internal(s("x")), Internal),
        (
            Error::Query {
                message: s("x"),
                code: 7,
                reason: "UNDEFINED_TABLE",
                detail: None,
                hint: hint(),
                original: None,
            },
            Native(7),
        ),
        (Error::TooManyColumns { columns: 1601, limit: 1600 }, ProgramLimitExceeded),
        (Error::LockNotAvailable { what: s("x") }, LockNotAvailable),
        (Error::OutOfTime, QueryCanceled),
        (Error::OwnTableMissing { name: s("pgtrickle.t") }, UndefinedTable),
        (Error::NoSnapshot { id: 7 }, UndefinedObject),
        (Error::NoHistory { name: s("\"t\"") }, UndefinedTable),
        (Error::AmbiguousName { name: s("t"), found: s("a.t, b.t") }, InvalidParameterValue),
        (Error::OnlyInRefresh, InsufficientPrivilege),
        (Error::StaleImage { what: s("x") }, ObjectNotInPrerequisiteState),
        (Error::SideTableMissing { name: s("x") }, ObjectNotInPrerequisiteState),
        (Error::Encoding { found: s("LATIN1") }, FeatureNotSupported),
        (Error::SourceLocked { name: s("t"), holders: s("process 7") }, LockNotAvailable),
        (Error::ConcurrentChange { what: s("x") }, SerializationFailure),
        (Error::OwnTableChanged { name: s("pgtrickle.t") }, UndefinedColumn),
    ]
}

/// Position in the list above. A new variant does not compile without a place in it.
fn place(error: &Error) -> usize {
    match error {
        Error::NotAStreamTable { .. } => 0,
        Error::Suspended { .. } => 1,
        Error::Refused { .. } => 2,
        Error::NotDifferential { .. } => 3,
        Error::BadArgument { .. } => 4,
        Error::NotASelect { .. } => 5,
        Error::ReservedSchema { .. } => 6,
        Error::NameTaken { .. } => 7,
        Error::BadSource { .. } => 8,
        Error::Cycle { .. } => 9,
        Error::Privilege { .. } => 10,
        Error::DirectWrite { .. } => 11,
        Error::ProtectedObject { .. } => 12,
        Error::Dependents { .. } => 13,
        Error::Diverged { .. } => 14,
        Error::Internal(_) => 15,
        Error::Query { .. } => 16,
        Error::TooManyColumns { .. } => 17,
        Error::LockNotAvailable { .. } => 18,
        Error::OutOfTime => 19,
        Error::OwnTableMissing { .. } => 20,
        Error::NoSnapshot { .. } => 21,
        Error::NoHistory { .. } => 22,
        Error::AmbiguousName { .. } => 23,
        Error::OnlyInRefresh => 24,
        Error::StaleImage { .. } => 25,
        Error::SideTableMissing { .. } => 26,
        Error::Encoding { .. } => 27,
        Error::SourceLocked { .. } => 28,
        Error::ConcurrentChange { .. } => 29,
        Error::OwnTableChanged { .. } => 30,
        // It has the words of whoever raised it.
        Error::Passed(_) => usize::MAX,
    }
}

#[test]
fn every_error_has_its_state_reason_and_hint() {
    for (i, (error, state)) in every().iter().enumerate() {
        assert_eq!(place(error), i, "{error:?}");
        assert_eq!(error.sqlstate(), *state, "{error:?}");
        let detail = error.detail();
        let word = detail.strip_prefix("reason=").unwrap_or_else(|| panic!("{detail}"));
        let end = word.find(|c: char| !c.is_ascii_uppercase() && c != '_').unwrap_or(word.len());
        assert!(end > 2, "no reason word: {detail}");
        let hint = error.hint();
        assert!(hint.ends_with('.') && hint.len() > 5, "{error:?}: {hint}");
        let message = error.to_string();
        assert!(!message.is_empty() && !message.ends_with('.'), "{message}");
    }
}

#[test]
fn hints_quote_names() {
    let hint = Error::DirectWrite { name: "\"it's\"".into() }.hint();
    assert!(hint.contains("refresh_stream_table('\"it''s\"')"), "{hint}");
}

#[test]
fn an_error_that_passes_keeps_its_words() {
    let original =
        Original { code: 7, message: "no".into(), detail: Some("d".into()), ..Original::default() };
    let error = Error::Passed(Box::new(original.clone()));
    assert_eq!((error.to_string().as_str(), error.detail().as_str(), error.hint().as_str()), ("no", "d", ""));
    assert_eq!((error.sqlstate(), error.original()), (SqlState::Native(7), Some(&original)));
}

#[test]
fn our_own_statements_are_not_quoted() {
    let sql = "SELECT 1\nFROM t";
    let quoted = format!("SQL statement \"{sql}\"");
    for (context, left) in [
        (quoted.clone(), None),
        (format!("first\n{quoted}"), Some("first")),
        (format!("{quoted}\nlast"), Some("last")),
        (format!("first\n{quoted}\nlast"), Some("first\nlast")),
        ("first\nSQL statement \"SELECT 1\"".into(), Some("first\nSQL statement \"SELECT 1\"")),
    ] {
        let mut original = Original {
            context: Some(context),
            internal_query: Some(sql.into()),
            internal_position: 3,
            ..Original::default()
        };
        original.without_statement(sql);
        assert_eq!(original.context.as_deref(), left);
        assert_eq!((original.internal_query, original.internal_position), (None, 0));
    }
}

#[test]
fn sqlstates_are_unpacked() {
    // MAKE_SQLSTATE('P','T','1','2','3')
    let packed =
        |text: &str| text.bytes().enumerate().map(|(i, b)| i32::from((b - b'0') & 0x3f) << (6 * i)).sum();
    assert_eq!(sqlstate(packed("PT123")), "PT123");
    assert_eq!(sqlstate(packed("22012")), "22012");
}
