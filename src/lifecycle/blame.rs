//! Whose error it is: the query's, which gets a reason word and a next step; or that of a function of somebody's, which
//! passes as it was raised, but for names that it does not find because search_path is pinned around it.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::model::original::Original;
use crate::pg::spi::{self, Arg, Mode};
use crate::pg::subxact::{self, Caught};
use crate::sqltext;

/// Runs something that PostgreSQL may refuse, and gives its error our DETAIL and HINT. Our own errors pass as they are.
pub fn run_as_caller<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    survive(f, native)
}

/// Runs refreshes. Errors of the functions in their queries pass as they were raised.
pub fn refreshing<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    survive(f, |caught| match caught.original {
        Some(original) => Error::Passed(original),
        None => native(caught),
    })
}

fn survive<T>(f: impl FnOnce() -> Result<T>, otherwise: impl FnOnce(Caught) -> Error) -> Result<T> {
    let mut own = None;
    let outcome = subxact::run(|| f().inspect_err(|e| own = Some(e.clone())));
    match (outcome, own) {
        (Ok(value), _) => Ok(value),
        // What a refresh passes on is the server's, or that of a function, as what is raised.
        (Err(caught), None | Some(Error::Passed(_))) => Err(blame(caught, otherwise)?),
        (Err(_), Some(error)) => Err(error),
    }
}

fn blame(caught: Caught, otherwise: impl FnOnce(Caught) -> Error) -> Result<Error> {
    let Some(original) = caught.original.as_deref() else { return Ok(otherwise(caught)) };
    let Some(function) = culprit(original)? else { return Ok(otherwise(caught)) };
    Ok(match function.unresolved(caught.code) {
        Some((detail, hint)) => Error::Query {
            message: caught.message,
            code: caught.code,
            reason: "FOREIGN_CODE",
            detail: Some(detail),
            hint,
            original: caught.original,
        },
        None => Error::Passed(Box::new(original.clone())),
    })
}

/// HINT for an error that was caught in a transaction that has ended, if it is one of names in somebody's function.
pub fn hint_of(caught: &Caught) -> Result<Option<String>> {
    let Some(original) = &caught.original else { return Ok(None) };
    Ok(culprit(original)?.and_then(|function| function.unresolved(caught.code)).map(|(_, hint)| hint))
}

/// PostgreSQL's error with a reason word and a next step.
fn native(caught: Caught) -> Error {
    let (reason, hint) = reason_of(caught.code);
    Error::Query {
        message: caught.message,
        code: caught.code,
        reason,
        detail: caught.detail,
        hint: caught.hint.unwrap_or_else(|| hint.to_string()),
        original: caught.original,
    }
}

fn reason_of(code: i32) -> (&'static str, &'static str) {
    use pgrx::PgSqlErrorCode::*;
    let is = |c: pgrx::PgSqlErrorCode| code == c as i32;
    if is(ERRCODE_SYNTAX_ERROR) {
        ("SYNTAX_ERROR", "Run the query by itself until it works.")
    } else if is(ERRCODE_UNDEFINED_TABLE) || is(ERRCODE_INVALID_SCHEMA_NAME) {
        ("MISSING_TABLE", "Check the name, and search_path, or qualify it with its schema.")
    } else if is(ERRCODE_UNDEFINED_COLUMN) {
        ("MISSING_COLUMN", "Check the column's name.")
    } else if is(ERRCODE_UNDEFINED_FUNCTION) {
        ("MISSING_FUNCTION", "Check the name and the argument types.")
    } else if is(ERRCODE_UNDEFINED_PARAMETER) {
        ("PARAMETER", "Write the value itself: a stored query has no parameters.")
    } else if is(ERRCODE_INSUFFICIENT_PRIVILEGE) {
        ("PRIVILEGE", "SELECT on every source and CREATE on the schema are needed: GRANT them.")
    } else if is(ERRCODE_DUPLICATE_COLUMN) {
        ("DUPLICATE_COLUMN", "Give each output column a name of its own with AS.")
    } else if is(ERRCODE_DUPLICATE_TABLE) {
        ("NAME_TAKEN", "Choose another name.")
    } else {
        ("INVALID_QUERY", "Run the query by itself until it works.")
    }
}

/// A function in which an error was raised.
struct Function {
    /// As people read it.
    shown: String,
    /// The event triggers that call it.
    event_triggers: Option<String>,
    /// ALTER FUNCTION that gives it a search_path, if it is known which function of that name it is.
    alter: Option<String>,
    own_path: bool,
}

impl Function {
    /// DETAIL and HINT, if it did not find a name in the search_path that is pinned around it.
    fn unresolved(&self, code: i32) -> Option<(String, String)> {
        use pgrx::PgSqlErrorCode::*;
        let names = [ERRCODE_UNDEFINED_TABLE, ERRCODE_UNDEFINED_FUNCTION, ERRCODE_UNDEFINED_OBJECT];
        if self.own_path || !names.iter().any(|name| *name as i32 == code) {
            return None;
        }
        let of = self.event_triggers.as_ref().map_or_else(String::new, |e| format!(" of event trigger {e}"));
        let detail = format!(
            "the error is in function {}{of}, not in the query; search_path is pinned to pg_catalog, pg_temp around it.",
            self.shown
        );
        let hint = match &self.alter {
            Some(alter) => {
                format!("Qualify the names in the function, or give it a search_path of its own: {alter};")
            }
            None => "Qualify the names in the function, or give it a search_path of its own with ALTER FUNCTION ... SET search_path.".into(),
        };
        Some((detail, hint))
    }
}

/// The function nearest to the error, found in its CONTEXT and in the catalog.
fn culprit(original: &Original) -> Result<Option<Function>> {
    for line in original.context.as_deref().unwrap_or("").lines() {
        if let Some(named) = function_of(line)
            && let Some(function) = look_up(&named)?
        {
            return Ok(Some(function));
        }
    }
    Ok(None)
}

/// How a line of CONTEXT names a function.
struct Named {
    name: String,
    /// `schema.name(types)`, where it is given.
    signature: Option<String>,
}

/// The function that a line of CONTEXT is about. These lines are translated, but names of languages, signatures and
/// quotes stay; what is no function is not found in the catalog.
fn function_of(line: &str) -> Option<Named> {
    let language = line.find("PL/").or_else(|| line.find("SQL"))?;
    let is_pl = line[language..].starts_with("PL/");
    if is_pl && let Some(open) = outside_quotes(line, '(') {
        let start = start_of_name(&line[..open]);
        let end = open + outside_quotes(&line[open..], ')')? + 1;
        let name = last_part(&line[start..open]);
        return Some(Named { name, signature: Some(line[start..end].to_string()) });
    }
    let start = language + line[language..].find('"')? + 1;
    let end = line.rfind('"').filter(|end| *end > start)?;
    Some(Named { name: line[start..end].to_string(), signature: None })
}

/// Where the possibly qualified and quoted name begins that `text` ends with.
fn start_of_name(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = bytes.len();
    loop {
        if at > 0 && bytes[at - 1] == b'"' {
            at -= 1;
            // Back to the opening quote; a doubled one is part of the name.
            while at > 0 {
                at -= 1;
                if bytes[at] == b'"' {
                    if at > 0 && bytes[at - 1] == b'"' {
                        at -= 1;
                    } else {
                        break;
                    }
                }
            }
        } else {
            while at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_') {
                at -= 1;
            }
        }
        if at > 0 && bytes[at - 1] == b'.' {
            at -= 1;
        } else {
            return at;
        }
    }
}

/// Where a character is that is no part of a quoted name.
fn outside_quotes(text: &str, wanted: char) -> Option<usize> {
    let mut quoted = false;
    text.char_indices().find_map(|(at, c)| {
        quoted ^= c == '"';
        (c == wanted && !quoted).then_some(at)
    })
}

/// The last part of a qualified name, without quotes.
fn last_part(name: &str) -> String {
    let mut start = 0;
    while let Some(dot) = outside_quotes(&name[start..], '.') {
        start += dot + 1;
    }
    let last = &name[start..];
    match last.strip_prefix('"').and_then(|inner| inner.strip_suffix('"')) {
        Some(inner) => inner.replace("\"\"", "\""),
        None => last.to_string(),
    }
}

fn look_up(named: &Named) -> Result<Option<Function>> {
    // Printed under the pinned path, so qualified, as every statement of ours.
    let rows = spi::run(
        "SELECT p.oid::pg_catalog.regprocedure, pg_catalog.quote_ident(n.nspname), p.prokind, \
           EXISTS (SELECT FROM pg_catalog.unnest(p.proconfig) AS s (setting) \
                   WHERE pg_catalog.starts_with(s.setting, 'search_path=')), \
           (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(e.evtname), ', ' ORDER BY e.evtname) \
            FROM pg_catalog.pg_event_trigger e WHERE e.evtfoid = p.oid) \
         FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace \
         WHERE p.proname = $1::pg_catalog.name",
        &[Arg::Text(&named.name)],
        Mode::Fresh,
    )?;
    let mut found = rows.into_iter().map(|mut row| candidate(&mut row)).collect::<Result<Vec<_>>>()?;
    if let Some(signature) = &named.signature {
        let behind = format!(".{signature}");
        if let Some(exact) = found.iter().position(|f| f.shown == *signature || f.shown.ends_with(&behind)) {
            let unique = found.iter().filter(|f| f.shown.ends_with(&behind)).count() <= 1;
            if unique || found[exact].shown == *signature {
                return Ok(Some(found.swap_remove(exact)));
            }
        }
    }
    let shown = named.signature.clone().unwrap_or_else(|| sqltext::display_ident(&named.name));
    Ok(match found.len() {
        0 => None,
        1 => found.pop(),
        _ => Some(Function { shown, event_triggers: None, alter: None, own_path: false }),
    })
}

fn candidate(row: &mut spi::Row) -> Result<Function> {
    let (shown, schema, kind) = (row.text(0)?, row.text(1)?, row.text(2)?);
    let what = if kind == "p" { "PROCEDURE" } else { "FUNCTION" };
    Ok(Function {
        alter: Some(format!("ALTER {what} {shown} SET search_path = {schema}, pg_temp")),
        own_path: row.bool(3)?,
        event_triggers: row.opt(4),
        shown,
    })
}
