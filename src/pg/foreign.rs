//! Errors that are not ours and pass through Rust: complete, as they were raised, with the lines that we have to add.
//!
//! pgrx turns an error of the server into a panic that knows only message, DETAIL, HINT and those SQLSTATEs that pgrx has a
//! name for, and raises another error from it. So whoever calls us from C ([`boundary`]) puts a callback on PostgreSQL's error
//! context stack, which sees each error as it is raised and keeps a copy. An error that leaves us is raised by pgrx, again
//! with such a callback in place: it puts back what pgrx left out.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::AssertUnwindSafe;

use pgrx::pg_sys;
use pgrx::pg_sys::panic::{CaughtError, ErrorReport, ErrorReportWithLevel};
use pgrx::{PgLogLevel, PgSqlErrorCode, PgTryBuilder};

use crate::error::{Error, Result};
use crate::model::original::Original;
use crate::pg::report::report_of;
use crate::pg::subxact::Caught;

/// The C functions themselves, for callbacks that PostgreSQL runs while it raises an error: those of pgrx are guarded,
/// and a guard may not catch there.
mod bare {
    use super::{c_char, c_int};
    use pgrx::pg_sys::ErrorData;

    // SAFETY: signatures of utils/elog.h, the same from 15 to 18.
    unsafe extern "C-unwind" {
        pub fn CopyErrorData() -> *mut ErrorData;
        pub fn FreeErrorData(data: *mut ErrorData);
        pub fn errcode(code: c_int) -> c_int;
        pub fn errdetail_log(format: *const c_char, ...) -> c_int;
        pub fn errcontext_msg(format: *const c_char, ...) -> c_int;
        pub fn geterrcode() -> c_int;
        pub fn geterrposition() -> c_int;
        pub fn errposition(position: c_int) -> c_int;
        pub fn internalerrposition(position: c_int) -> c_int;
        pub fn internalerrquery(query: *const c_char) -> c_int;
        pub fn err_generic_string(field: c_int, value: *const c_char) -> c_int;
    }
}

/// Errors that are kept of those seen: enough to know one again that was caught and raised once more, by PL/pgSQL for instance.
const KEPT: usize = 16;

thread_local! {
    /// How many [`attempt`]s are running, each inside the one before.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// Errors seen by the attempt of that depth, oldest first.
    static SEEN: RefCell<Vec<(usize, Original)>> = const { RefCell::new(Vec::new()) };
    /// The innermost statement of our own that is running.
    static RUNNING: Cell<*const Running> = const { Cell::new(std::ptr::null()) };
    /// Our innermost entry on PostgreSQL's error context stack.
    static ENTRIES: Cell<*const Entry> = const { Cell::new(std::ptr::null()) };
    /// What the error that is on its way is to be completed with.
    static COMPLETION: Cell<*mut Completion> = const { Cell::new(std::ptr::null_mut()) };
}

/// How a piece of work failed.
pub enum Failure {
    /// An error of ours.
    Own(Error),
    /// An error of the server or of users' code.
    Server(Caught),
    /// A bug, or an error that is raised by us.
    Raised(CaughtError),
}

/// Runs an SQL-callable function. What it returns as an error, or lets pass, is raised complete.
pub fn boundary<T>(f: impl FnOnce() -> Result<T>) -> std::result::Result<T, ErrorReport> {
    attempt(f).map_err(|failure| match failure {
        Failure::Own(error) => {
            if let Some(original) = error.original() {
                complete_next(original);
            }
            report_of(&error)
        }
        Failure::Server(caught) => pass_on(&caught),
        Failure::Raised(error) => error.rethrow(),
    })
}

/// Runs `f` and returns how it failed. The transaction is as the error left it: the caller raises it on, or aborts.
pub fn attempt<T>(f: impl FnOnce() -> Result<T>) -> std::result::Result<T, Failure> {
    let depth = Depth::enter();
    let run = || with_callback(see, depth.0 as *mut c_void, || f().map_err(Failure::Own));
    PgTryBuilder::new(AssertUnwindSafe(run))
        .catch_others(|error| {
            Err(match error {
                CaughtError::PostgresError(report) => Failure::Server(Caught::from(&report)),
                other => Failure::Raised(other),
            })
        })
        .execute()
}

/// Runs `f`; what is reported in it has this CONTEXT.
pub fn with_context<T>(context: &str, f: impl FnOnce() -> T) -> T {
    // Names and texts of PostgreSQL's, which have no NUL byte.
    let text: Vec<u8> = context.bytes().filter(|byte| *byte != 0).chain([0]).collect();
    with_callback(say, text.as_ptr().cast_mut().cast(), f)
}

/// Runs `f`, which reads the query `text`: the place of an error in it is not one in the statement that the client sent.
pub fn in_query<T>(text: &CStr, f: impl FnOnce() -> Result<T>) -> Result<T> {
    with_callback(locate, text.as_ptr().cast_mut().cast(), f)
}

/// Runs `f`, which executes our own statement `sql`: errors don't quote it.
pub fn in_statement<T>(sql: &str, f: impl FnOnce() -> T) -> T {
    let running = Running { sql, outer: RUNNING.get() };
    struct End(*const Running);
    impl Drop for End {
        fn drop(&mut self) {
            RUNNING.set(self.0);
        }
    }
    let _end = End(running.outer);
    RUNNING.set(&running);
    f()
}

/// The whole of an error that pgrx has caught.
pub(super) fn original_of(report: &ErrorReportWithLevel) -> Option<Original> {
    let depth = DEPTH.get();
    SEEN.with_borrow(|seen| {
        let same = |o: &Original| {
            PgSqlErrorCode::from(o.code) == report.sql_error_code()
                && o.message == report.message()
                && o.line == report.line_number()
                && o.file == report.file()
        };
        seen.iter().rev().find(|(d, o)| *d == depth && same(o)).map(|(_, o)| o.clone())
    })
}

fn pass_on(caught: &Caught) -> ErrorReport {
    if let Some(original) = &caught.original {
        complete_next(original);
    }
    let mut report = ErrorReport::new(PgSqlErrorCode::from(caught.code), caught.message.clone(), "pgtrickle");
    if let Some(detail) = &caught.detail {
        report = report.set_detail(detail.as_str());
    }
    if let Some(hint) = &caught.hint {
        report = report.set_hint(hint.as_str());
    }
    report
}

/// A running attempt; ended also by unwinding.
struct Depth(usize);

impl Depth {
    fn enter() -> Depth {
        let depth = DEPTH.get() + 1;
        DEPTH.set(depth);
        Depth(depth)
    }
}

impl Drop for Depth {
    fn drop(&mut self) {
        DEPTH.set(self.0 - 1);
        SEEN.with_borrow_mut(|seen| seen.retain(|(depth, _)| *depth < self.0));
    }
}

struct Running {
    sql: *const str,
    outer: *const Running,
}

type Callback = unsafe extern "C-unwind" fn(*mut c_void);

/// An entry of ours on PostgreSQL's error context stack.
struct Entry {
    callback: pg_sys::ErrorContextCallback,
    outer: *const Entry,
}

/// The first entry of the error context stack, from this one on, that is not of ours.
pub(super) fn below_ours(mut entry: *mut pg_sys::ErrorContextCallback) -> *mut pg_sys::ErrorContextCallback {
    let mut ours = ENTRIES.get();
    // SAFETY: entries are valid while they are on the stack; ours are in the order of the stack, innermost first.
    unsafe {
        while !ours.is_null() && !entry.is_null() {
            if std::ptr::eq(&raw const (*ours).callback, entry) {
                entry = (*entry).previous;
            }
            ours = (*ours).outer;
        }
    }
    entry
}

/// Runs `f` with an entry on PostgreSQL's error context stack.
fn with_callback<T>(callback: Callback, arg: *mut c_void, f: impl FnOnce() -> T) -> T {
    struct Pop(*mut pg_sys::ErrorContextCallback, *const Entry);
    impl Drop for Pop {
        fn drop(&mut self) {
            ENTRIES.set(self.1);
            // SAFETY: a backend variable, set to what it was before.
            unsafe { pg_sys::error_context_stack = self.0 };
        }
    }
    // SAFETY: a backend variable; the entry lives in this frame, which is left by return or by unwinding alone: pgrx
    // turns each longjmp into unwinding. Either takes the entry off the stack.
    unsafe {
        let previous = pg_sys::error_context_stack;
        let callback = pg_sys::ErrorContextCallback { previous, callback: Some(callback), arg };
        let mut entry = Entry { callback, outer: ENTRIES.get() };
        let _pop = Pop(previous, entry.outer);
        ENTRIES.set(&raw const entry);
        pg_sys::error_context_stack = &raw mut entry.callback;
        f()
    }
}

/// # Safety
/// Called by PostgreSQL when something is reported; `arg` is a C string.
unsafe extern "C-unwind" fn say(arg: *mut c_void) {
    // SAFETY: per the contract.
    unsafe { bare::errcontext_msg(c"%s".as_ptr(), arg.cast::<c_char>()) };
}

/// # Safety
/// Called by PostgreSQL when something is reported; `arg` is the text that is read, a C string.
unsafe extern "C-unwind" fn locate(arg: *mut c_void) {
    // SAFETY: per the contract; as SPI does it for the texts that it is given.
    unsafe {
        let position = bare::geterrposition();
        if position > 0 {
            bare::errposition(0);
            bare::internalerrposition(position);
            bare::internalerrquery(arg.cast());
        }
    }
}

/// # Safety
/// Called by PostgreSQL when something is reported; `arg` is the depth of the attempt. What is raised in here leaves by
/// longjmp, so nothing on this frame needs dropping.
unsafe extern "C-unwind" fn see(arg: *mut c_void) {
    // SAFETY: per the contract. The copy is made in a context that lives on, and freed at once.
    unsafe {
        let context = pg_sys::CurrentMemoryContext;
        pg_sys::CurrentMemoryContext = pg_sys::TopMemoryContext;
        let data = bare::CopyErrorData();
        pg_sys::CurrentMemoryContext = context;
        if (*data).elevel == PgLogLevel::ERROR as c_int {
            keep(arg as usize, data);
        }
        bare::FreeErrorData(data);
    }
}

/// Calls nothing of PostgreSQL's, and does not panic.
///
/// # Safety
/// `data` is valid.
unsafe fn keep(depth: usize, data: *const pg_sys::ErrorData) {
    // SAFETY: per the contract; running statements are alive while they run.
    let original = unsafe {
        let mut original = copy(&*data);
        let mut running = RUNNING.get();
        while !running.is_null() {
            original.without_statement(&*(*running).sql);
            running = (*running).outer;
        }
        original
    };
    SEEN.with(|seen| {
        if let Ok(mut seen) = seen.try_borrow_mut() {
            if seen.len() >= KEPT {
                seen.remove(0);
            }
            seen.push((depth, original));
        }
    });
}

/// # Safety
/// The strings of `data` are valid or null.
unsafe fn copy(data: &pg_sys::ErrorData) -> Original {
    let text = |text: *const c_char| {
        // SAFETY: per the contract.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    Original {
        code: data.sqlerrcode,
        // As pgrx has it, by which the error is known again.
        message: text(data.message).unwrap_or_else(|| "<null error message>".into()),
        detail: text(data.detail),
        detail_log: text(data.detail_log),
        hint: text(data.hint),
        context: text(data.context),
        schema: text(data.schema_name),
        table: text(data.table_name),
        column: text(data.column_name),
        datatype: text(data.datatype_name),
        constraint: text(data.constraint_name),
        internal_position: data.internalpos,
        internal_query: text(data.internalquery),
        file: text(data.filename).unwrap_or_else(|| "<null filename>".into()),
        line: u32::try_from(data.lineno).unwrap_or(0),
    }
}

/// What pgrx does not raise of an error, in C's form, and the entry of the error context stack by which it is added.
struct Completion {
    entry: pg_sys::ErrorContextCallback,
    /// The code that pgrx raises it with.
    reduced: c_int,
    code: c_int,
    detail_log: Option<CString>,
    context: Option<CString>,
    names: Vec<(c_int, CString)>,
    internal_position: c_int,
    internal_query: Option<CString>,
}

/// The error that is raised next is `original`: completes it.
fn complete_next(original: &Original) {
    // No NUL byte is in what was a C string.
    let text = |text: &Option<String>| text.as_deref().and_then(|text| CString::new(text).ok());
    let names = [
        (pg_sys::PG_DIAG_SCHEMA_NAME, &original.schema),
        (pg_sys::PG_DIAG_TABLE_NAME, &original.table),
        (pg_sys::PG_DIAG_COLUMN_NAME, &original.column),
        (pg_sys::PG_DIAG_DATATYPE_NAME, &original.datatype),
        (pg_sys::PG_DIAG_CONSTRAINT_NAME, &original.constraint),
    ];
    let completion = Box::into_raw(Box::new(Completion {
        entry: pg_sys::ErrorContextCallback::default(),
        reduced: PgSqlErrorCode::from(original.code) as c_int,
        code: original.code,
        detail_log: text(&original.detail_log),
        context: text(&original.context),
        names: names.iter().filter_map(|(field, name)| Some((c_int::from(*field), text(name)?))).collect(),
        internal_position: original.internal_position,
        internal_query: text(&original.internal_query),
    }));
    let old = COMPLETION.replace(completion);
    // SAFETY: the old one belongs to an error that was raised before, and whose catcher has set the stack back. The new one
    // lives until the next error of this kind; whoever catches the error sets the stack back.
    unsafe {
        if !old.is_null() {
            drop(Box::from_raw(old));
        }
        (*completion).entry = pg_sys::ErrorContextCallback {
            previous: pg_sys::error_context_stack,
            callback: Some(complete),
            arg: completion.cast(),
        };
        pg_sys::error_context_stack = &raw mut (*completion).entry;
    }
}

/// # Safety
/// Called by PostgreSQL when an error is raised; `arg` is its completion.
unsafe extern "C-unwind" fn complete(arg: *mut c_void) {
    // SAFETY: per the contract; PostgreSQL copies the strings that it is given.
    unsafe {
        let completion = &*arg.cast::<Completion>();
        if bare::geterrcode() != completion.reduced {
            return;
        }
        bare::errcode(completion.code);
        if let Some(detail) = &completion.detail_log {
            bare::errdetail_log(c"%s".as_ptr(), detail.as_ptr());
        }
        if let Some(context) = &completion.context {
            bare::errcontext_msg(c"%s".as_ptr(), context.as_ptr());
        }
        for (field, name) in &completion.names {
            bare::err_generic_string(*field, name.as_ptr());
        }
        if let Some(query) = &completion.internal_query {
            bare::internalerrposition(completion.internal_position);
            bare::internalerrquery(query.as_ptr());
        }
    }
}
