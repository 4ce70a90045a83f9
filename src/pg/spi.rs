//! SPI: the one way to run a statement of ours, with its search_path pinned. Results are copied out as text before SPI
//! ends, so nothing of the server's memory outlives the call; plans of statements that repeat are kept (`pg/plans.rs`).

use std::ffi::{CStr, CString};
use std::str::FromStr;

use pgrx::pg_sys;
use pgrx::{FromDatum, IntoDatum};

use crate::error::{Error, Result};
use crate::pg::{foreign, plans};

/// A parameter value.
#[derive(Clone, Copy)]
pub enum Arg<'a> {
    Oid(u32),
    Int(i64),
    Bool(bool),
    Text(&'a str),
    OptText(Option<&'a str>),
    Oids(&'a [u32]),
    Ints(&'a [i16]),
    BigInts(&'a [i64]),
    /// Any type, through its input function: type oid and text form.
    Literal(pg_sys::Oid, &'a str),
}

impl Arg<'_> {
    fn type_oid(&self) -> pg_sys::Oid {
        match self {
            Arg::Oid(_) => pg_sys::OIDOID,
            Arg::Int(_) => pg_sys::INT8OID,
            Arg::Bool(_) => pg_sys::BOOLOID,
            Arg::Text(_) | Arg::OptText(_) => pg_sys::TEXTOID,
            Arg::Oids(_) => pg_sys::OIDARRAYOID,
            Arg::Ints(_) => pg_sys::INT2ARRAYOID,
            Arg::BigInts(_) => pg_sys::INT8ARRAYOID,
            Arg::Literal(oid, _) => *oid,
        }
    }

    fn datum(&self) -> Result<Option<pg_sys::Datum>> {
        Ok(match self {
            Arg::Oid(v) => pg_sys::Oid::from(*v).into_datum(),
            Arg::Int(v) => v.into_datum(),
            Arg::Bool(v) => v.into_datum(),
            Arg::Text(v) => v.into_datum(),
            Arg::OptText(v) => v.and_then(IntoDatum::into_datum),
            Arg::Oids(v) => v.iter().map(|o| pg_sys::Oid::from(*o)).collect::<Vec<_>>().into_datum(),
            Arg::Ints(v) => v.to_vec().into_datum(),
            Arg::BigInts(v) => v.to_vec().into_datum(),
            Arg::Literal(oid, text) => {
                let text = c_string(text)?;
                let mut input = pg_sys::InvalidOid;
                let mut param = pg_sys::InvalidOid;
                // SAFETY: both out pointers are valid, `text` is a NUL-terminated copy that outlives the call.
                unsafe {
                    pg_sys::getTypeInputInfo(*oid, &mut input, &mut param);
                    Some(pg_sys::OidInputFunctionCall(input, text.as_ptr().cast_mut(), param, -1))
                }
            }
        })
    }
}

/// A text that PostgreSQL can take; NUL bytes can't.
pub fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::BadArgument {
        argument: "text",
        value: "a text with a NUL byte".into(),
        hint: "Remove the NUL byte.".into(),
    })
}

/// Rows of a result, as text.
pub struct Rows {
    rows: Vec<Vec<Option<String>>>,
}

/// One row.
pub struct Row(Vec<Option<String>>);

impl Rows {
    /// First row, if any.
    pub fn first(self) -> Option<Row> {
        self.rows.into_iter().next().map(Row)
    }
}

impl IntoIterator for Rows {
    type Item = Row;
    type IntoIter = std::iter::Map<std::vec::IntoIter<Vec<Option<String>>>, fn(Vec<Option<String>>) -> Row>;

    fn into_iter(self) -> Self::IntoIter {
        self.rows.into_iter().map(Row as fn(Vec<Option<String>>) -> Row)
    }
}

impl Row {
    /// Column `i` from 0; NULL is None.
    pub fn opt(&mut self, i: usize) -> Option<String> {
        self.0.get_mut(i).and_then(Option::take)
    }

    /// Column `i`, which must not be NULL.
    pub fn text(&mut self, i: usize) -> Result<String> {
        self.opt(i).ok_or_else(|| Error::Internal(format!("unexpected NULL in result column {i}")))
    }

    /// Column `i` parsed; must not be NULL.
    pub fn parse<T: FromStr>(&mut self, i: usize) -> Result<T> {
        let text = self.text(i)?;
        text.parse().map_err(|_| Error::Internal(format!("unexpected value {text:?} in result column {i}")))
    }

    /// Column `i` as boolean; NULL is an error.
    pub fn bool(&mut self, i: usize) -> Result<bool> {
        Ok(self.text(i)? == "t")
    }
}

/// How a statement runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Reads through the active snapshot as it is; any write is an error.
    Read,
    /// Takes a new snapshot as a top-level statement would: sees all that is committed, and own changes.
    Fresh,
    /// Reads and writes, but reads through the active snapshot (own changes included).
    InSnapshot,
}

/// Runs a statement whose plan is kept: texts of which there are few.
pub fn run(sql: &str, args: &[Arg], mode: Mode) -> Result<Rows> {
    run_into(sql, args, mode, copy_rows)
}

/// The same, for what is to be done with the rows as they are: `take` gets SPI's table of them, which is null
/// for a statement without a result, while SPI is connected.
pub(in crate::pg) fn run_into<T>(
    sql: &str,
    args: &[Arg],
    mode: Mode,
    take: impl FnOnce(*mut pg_sys::SPITupleTable) -> Result<T>,
) -> Result<T> {
    connected(sql, || {
        let types: Vec<pg_sys::Oid> = args.iter().map(Arg::type_oid).collect();
        let plan = plans::kept(sql, || prepare(sql, types, pg_sys::CURSOR_OPT_GENERIC_PLAN))?;
        execute(plan.pointer(), args, mode)?;
        // SAFETY: SPI's own variable; the table lives until SPI is finished.
        take(unsafe { pg_sys::SPI_tuptable })
    })
}

/// Runs a statement once.
pub fn run_once(sql: &str, args: &[Arg], mode: Mode) -> Result<Rows> {
    connected(sql, || {
        let types = args.iter().map(Arg::type_oid).collect();
        execute(prepare(sql, types, 0)?, args, mode)?;
        // SAFETY: as above.
        copy_rows(unsafe { pg_sys::SPI_tuptable })
    })
}

pub use plans::forget as forget_plans;

/// The path of every statement that runs through here: names, functions and operators are PostgreSQL's, whatever the
/// caller's path has before or behind them. Operators and functions are never looked for in pg_temp, and with only these
/// two an operator without an exact match is PostgreSQL's next best one, not somebody's exact one.
const PATH: &CStr = c"pg_catalog, pg_temp";

/// Connects to SPI for `sql` with a pinned search_path and leaves both as they were. An error that is raised ends in the abort of
/// the (sub)transaction, which does the same.
fn connected<T>(sql: &str, f: impl FnOnce() -> Result<T>) -> Result<T> {
    // SAFETY: SPI is connected and finished here, the level of settings is opened and closed here; the setting is a
    // NUL-terminated string or null.
    unsafe {
        let path = pg_sys::namespace_search_path;
        let pinned = !path.is_null() && CStr::from_ptr(path) == PATH;
        let nest = (!pinned).then(|| {
            let nest = pg_sys::NewGUCNestLevel();
            pg_sys::set_config_option(
                c"search_path".as_ptr(),
                PATH.as_ptr(),
                pg_sys::GucContext::PGC_SUSET,
                pg_sys::GucSource::PGC_S_SESSION,
                pg_sys::GucAction::GUC_ACTION_SAVE,
                true,
                0,
                false,
            );
            nest
        });
        check(pg_sys::SPI_connect(), "SPI_connect")?;
        let result = foreign::in_statement(sql, f);
        check(pg_sys::SPI_finish(), "SPI_finish")?;
        if let Some(nest) = nest {
            pg_sys::AtEOXact_GUC(true, nest);
        }
        result
    }
}

/// Plans a statement, for this connection to SPI.
fn prepare(sql: &str, mut types: Vec<pg_sys::Oid>, options: u32) -> Result<pg_sys::SPIPlanPtr> {
    let text = c_string(sql)?;
    // SAFETY: text and types live until the call returns, and it copies what it keeps.
    unsafe {
        let plan =
            pg_sys::SPI_prepare_cursor(text.as_ptr(), types.len() as i32, types.as_mut_ptr(), options as i32);
        if plan.is_null() {
            let code = pg_sys::SPI_result;
            return Err(Error::Internal(format!("SPI_prepare failed with {code}")));
        }
        Ok(plan)
    }
}

/// Runs a plan; SPI is connected.
fn execute(plan: pg_sys::SPIPlanPtr, args: &[Arg], mode: Mode) -> Result<()> {
    let mut values = Vec::with_capacity(args.len());
    let mut nulls = Vec::with_capacity(args.len());
    for arg in args {
        let datum = arg.datum()?;
        nulls.push(if datum.is_some() { b' ' } else { b'n' } as std::ffi::c_char);
        values.push(datum.unwrap_or(pg_sys::Datum::null()));
    }
    // SAFETY: the plan is valid: just prepared, or kept and in use. Arrays have an entry for each parameter.
    unsafe {
        let code = match mode {
            Mode::Read => pg_sys::SPI_execute_plan(plan, values.as_mut_ptr(), nulls.as_ptr(), true, 0),
            Mode::Fresh => pg_sys::SPI_execute_plan(plan, values.as_mut_ptr(), nulls.as_ptr(), false, 0),
            Mode::InSnapshot => pg_sys::SPI_execute_snapshot(
                plan,
                values.as_mut_ptr(),
                nulls.as_ptr(),
                pg_sys::GetActiveSnapshot(),
                std::ptr::null_mut(),
                false,
                true,
                0,
            ),
        };
        check(code, "SPI_execute_plan")
    }
}

fn check(code: i32, what: &str) -> Result<()> {
    if code < 0 { Err(Error::Internal(format!("{what} failed with {code}"))) } else { Ok(()) }
}

/// The result of the last statement as text.
fn copy_rows(table: *mut pg_sys::SPITupleTable) -> Result<Rows> {
    // SAFETY: called while SPI is connected: tuple table and descriptor are SPI's own and live until SPI_finish; the table is
    // null when the last statement had no rows to return.
    unsafe {
        if table.is_null() {
            return Ok(Rows { rows: Vec::new() });
        }
        let desc = (*table).tupdesc;
        let width = (*desc).natts;
        let mut rows = Vec::with_capacity((*table).numvals as usize);
        for r in 0..(*table).numvals as usize {
            let tuple = *(*table).vals.add(r);
            let mut row = Vec::with_capacity(width as usize);
            for c in 1..=width {
                let value = pg_sys::SPI_getvalue(tuple, desc, c);
                row.push(if value.is_null() {
                    None
                } else {
                    let text = CStr::from_ptr(value).to_str().map_err(|_| {
                        Error::Internal(
                            "a result is not valid UTF-8; pgtrickle needs server encoding UTF8".into(),
                        )
                    })?;
                    Some(text.to_string())
                });
            }
            rows.push(row);
        }
        Ok(Rows { rows })
    }
}

/// Reads a text[] in PostgreSQL's output form; used for small arrays of numbers and names.
pub fn text_array(literal: &str) -> Result<Vec<String>> {
    // SAFETY: `array_in` is called on a NUL-terminated copy, and the datum is read at once.
    unsafe {
        let text = c_string(literal)?;
        let mut input = pg_sys::InvalidOid;
        let mut param = pg_sys::InvalidOid;
        pg_sys::getTypeInputInfo(pg_sys::TEXTARRAYOID, &mut input, &mut param);
        let datum = pg_sys::OidInputFunctionCall(input, text.as_ptr().cast_mut(), param, -1);
        Vec::<String>::from_datum(datum, false).ok_or_else(|| Error::Internal("unexpected NULL array".into()))
    }
}
