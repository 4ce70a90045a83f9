//! ProcessUtility hook, only when preloaded: our workers get out of the way of commands that need a database without
//! connections.
//!
//! All utility commands of all databases of the server pass here, and all their errors. What is no business of ours goes to
//! the next hook by a plain call: an error leaves this frame by longjmp, as it would leave one of C, untouched. So there is
//! nothing on that frame that would have to be dropped, and no guard of pgrx around it: that would catch the error and
//! raise another with less in it. Our own work is done before, in a guarded function of its own.
//!
//! # Safety
//! Functions here that are not safe to call take nodes, descriptors or call data of PostgreSQL that are valid and of the
//! type that their names say; those that walk trees get the context that their caller passes along with them.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pgrx::pg_guard;
use pgrx::pg_sys;

use crate::model::Oid;
use crate::pg::{compat, names, shmem, worker};

static INSTALLED: AtomicBool = AtomicBool::new(false);
static mut PREVIOUS: pg_sys::ProcessUtility_hook_type = None;

/// The C functions themselves: pgrx's bindings of the same names are guarded.
mod bare {
    use pgrx::pg_sys;

    // SAFETY: the signature of tcop/utility.h, the same from 15 to 18.
    unsafe extern "C-unwind" {
        #[allow(clippy::too_many_arguments)] // PostgreSQL's signature
        pub fn standard_ProcessUtility(
            statement: *mut pg_sys::PlannedStmt,
            query: *const std::ffi::c_char,
            read_only_tree: bool,
            context: pg_sys::ProcessUtilityContext::Type,
            params: pg_sys::ParamListInfo,
            environment: *mut pg_sys::QueryEnvironment,
            receiver: *mut pg_sys::DestReceiver,
            completion: *mut pg_sys::QueryCompletion,
        );
    }
}

/// Was the hook set while the postmaster loaded the library?
pub fn installed() -> bool {
    INSTALLED.load(Ordering::Relaxed)
}

/// Sets the hook; once, in the postmaster.
pub fn install() {
    // SAFETY: the postmaster is single-threaded and loads libraries before it forks.
    unsafe {
        PREVIOUS = pg_sys::ProcessUtility_hook;
        pg_sys::ProcessUtility_hook = Some(process_utility);
    }
    INSTALLED.store(true, Ordering::Relaxed);
}

/// # Safety
/// Called by PostgreSQL. Without `#[pg_guard]`, and to be kept without anything that needs dropping: see the module's doc.
unsafe extern "C-unwind" fn process_utility(
    statement: *mut pg_sys::PlannedStmt,
    query: *const std::ffi::c_char,
    read_only_tree: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    params: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    receiver: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion,
) {
    // SAFETY: arguments are passed on as they came; the previous hook is the one saved at installation.
    unsafe {
        if drops_extension(statement)
            || context == pg_sys::ProcessUtilityContext::PROCESS_UTILITY_TOPLEVEL
                && concerns_database(statement)
        {
            make_way(statement);
        }
        match PREVIOUS {
            Some(previous) => {
                previous(statement, query, read_only_tree, context, params, environment, receiver, completion)
            }
            None => bare::standard_ProcessUtility(
                statement,
                query,
                read_only_tree,
                context,
                params,
                environment,
                receiver,
                completion,
            ),
        }
    }
}

/// May it be a command that can't bear connections to a database? By its tag alone: nothing is allocated or called.
unsafe fn concerns_database(statement: *const pg_sys::PlannedStmt) -> bool {
    // SAFETY: the cast follows the tag.
    unsafe {
        let node = (*statement).utilityStmt;
        match (*node).type_ {
            pg_sys::NodeTag::T_DropdbStmt
            | pg_sys::NodeTag::T_CreatedbStmt
            | pg_sys::NodeTag::T_AlterDatabaseStmt => true,
            pg_sys::NodeTag::T_RenameStmt => {
                (*node.cast::<pg_sys::RenameStmt>()).renameType == pg_sys::ObjectType::OBJECT_DATABASE
            }
            _ => false,
        }
    }
}

/// May it be a command that takes the extension away, object by object? Our workers take their locks in another order.
unsafe fn drops_extension(statement: *const pg_sys::PlannedStmt) -> bool {
    // SAFETY: the cast follows the tag.
    unsafe {
        let node = (*statement).utilityStmt;
        (*node).type_ == pg_sys::NodeTag::T_DropStmt
            && (*node.cast::<pg_sys::DropStmt>()).removeType == pg_sys::ObjectType::OBJECT_EXTENSION
    }
}

/// # Safety
/// `statement` holds a utility command.
#[pg_guard]
unsafe extern "C-unwind" fn make_way(statement: *mut pg_sys::PlannedStmt) {
    // SAFETY: per the contract.
    unsafe {
        if drops_extension(statement) {
            if names_extension(statement) && names::may_drop_extension(c"pgtrickle") {
                release(pg_sys::MyDatabaseId.to_u32(), HOLD_EXTENSION);
            }
        } else if let Some(command) = exclusive_database(statement)
            && may_act_on(&command)
        {
            release_database(&command.database);
        }
    }
}

/// A command that can't bear connections to a database.
struct Exclusive {
    database: String,
    /// It needs CREATEDB on top of owning the database.
    makes_database: bool,
}

/// The command, if it is one that can't bear connections.
unsafe fn exclusive_database(statement: *mut pg_sys::PlannedStmt) -> Option<Exclusive> {
    // SAFETY: casts follow tags; strings are NUL-terminated.
    unsafe {
        let node = (*statement).utilityStmt;
        let name = match (*node).type_ {
            pg_sys::NodeTag::T_DropdbStmt => (*node.cast::<pg_sys::DropdbStmt>()).dbname,
            pg_sys::NodeTag::T_RenameStmt => (*node.cast::<pg_sys::RenameStmt>()).subname,
            pg_sys::NodeTag::T_CreatedbStmt => {
                let options = (*node.cast::<pg_sys::CreatedbStmt>()).options;
                let template = option_named(options, c"template")?;
                if (*template).arg.is_null() {
                    return None;
                }
                pg_sys::defGetString(template)
            }
            pg_sys::NodeTag::T_AlterDatabaseStmt => {
                let alter = node.cast::<pg_sys::AlterDatabaseStmt>();
                option_named((*alter).options, c"tablespace")?;
                (*alter).dbname
            }
            _ => return None,
        };
        let makes_database =
            matches!((*node).type_, pg_sys::NodeTag::T_CreatedbStmt | pg_sys::NodeTag::T_RenameStmt);
        (!name.is_null()).then(|| Exclusive {
            database: CStr::from_ptr(name).to_string_lossy().into_owned(),
            makes_database,
        })
    }
}

/// Is pgtrickle among the extensions that the command drops?
unsafe fn names_extension(statement: *mut pg_sys::PlannedStmt) -> bool {
    // SAFETY: a DROP EXTENSION, whose objects are strings; the cast follows the tag.
    unsafe {
        let drop = (*statement).utilityStmt.cast::<pg_sys::DropStmt>();
        pgrx::PgList::<pg_sys::Node>::from_pg((*drop).objects).iter_ptr().any(|node| {
            (*node).type_ == pg_sys::NodeTag::T_String
                && CStr::from_ptr((*node.cast::<pg_sys::String>()).sval) == c"pgtrickle"
        })
    }
}

/// The option of that name in a list of `DefElem`.
unsafe fn option_named(options: *mut pg_sys::List, name: &CStr) -> Option<*mut pg_sys::DefElem> {
    // SAFETY: the list's members are options, whose names are NUL-terminated.
    unsafe {
        let options = pgrx::PgList::<pg_sys::DefElem>::from_pg(options);
        options.iter_ptr().find(|o| CStr::from_ptr((**o).defname) == name)
    }
}

/// How long no process of ours connects to a database that a command wants to itself, in microseconds.
const HOLD: i64 = 10_000_000;
/// As long as that for DROP EXTENSION: it may be made again at once, and its worker is to come soon then.
const HOLD_EXTENSION: i64 = 2_000_000;

/// Ends our processes in a database and waits for that, five seconds at most. Asks the catalogs for nothing but the oid.
fn release_database(name: &str) {
    let Ok(text) = std::ffi::CString::new(name) else { return };
    // SAFETY: a syscache look-up.
    let database = unsafe { pg_sys::get_database_oid(text.as_ptr(), true) }.to_u32();
    if database == 0 {
        return;
    }
    release(database, HOLD);
}

fn release(database: Oid, hold: i64) {
    shmem::evacuate(database, hold);
    let begun = Instant::now();
    while !shmem::is_vacant(database) && begun.elapsed() < Duration::from_secs(5) {
        worker::wait(Duration::from_millis(10));
    }
}

/// May the command run as it stands? A cheap look at the privilege, so that nobody stops workers who may do nothing.
unsafe fn may_act_on(command: &Exclusive) -> bool {
    let Ok(text) = std::ffi::CString::new(command.database.as_str()) else { return false };
    // SAFETY: syscache look-ups.
    unsafe {
        let oid = pg_sys::get_database_oid(text.as_ptr(), true);
        if oid == pg_sys::InvalidOid {
            return false;
        }
        if pg_sys::superuser() {
            return true;
        }
        compat::owns_database(oid) && (!command.makes_database || compat::may_create_databases())
    }
}
