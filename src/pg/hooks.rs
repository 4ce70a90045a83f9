//! ProcessUtility hook, only when preloaded: our workers get out of the way of commands that need a database without
//! connections.
//!
//! # Safety
//! Functions here that are not safe to call take nodes, descriptors or call data of PostgreSQL that are valid and of the
//! type that their names say; those that walk trees get the context that their caller passes along with them.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

use pgrx::pg_guard;
use pgrx::pg_sys;

use crate::pg::secctx::{Restriction, as_user};
use crate::pg::spi::{self, Arg, Mode};

static INSTALLED: AtomicBool = AtomicBool::new(false);
static mut PREVIOUS: pg_sys::ProcessUtility_hook_type = None;

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

/// Name of the database whose connections the command can't bear.
unsafe fn exclusive_database(statement: *mut pg_sys::PlannedStmt) -> Option<String> {
    // SAFETY: casts follow tags; strings are NUL-terminated.
    unsafe {
        let node = (*statement).utilityStmt;
        let name = match (*node).type_ {
            pg_sys::NodeTag::T_DropdbStmt => (*node.cast::<pg_sys::DropdbStmt>()).dbname,
            pg_sys::NodeTag::T_RenameStmt => {
                let rename = node.cast::<pg_sys::RenameStmt>();
                if (*rename).renameType != pg_sys::ObjectType::OBJECT_DATABASE {
                    return None;
                }
                (*rename).subname
            }
            pg_sys::NodeTag::T_CreatedbStmt => {
                let options = (*node.cast::<pg_sys::CreatedbStmt>()).options;
                let options = pgrx::PgList::<pg_sys::DefElem>::from_pg(options);
                let template = options.iter_ptr().find(|o| CStr::from_ptr((**o).defname) == c"template")?;
                if (*template).arg.is_null() {
                    return None;
                }
                pg_sys::defGetString(template)
            }
            pg_sys::NodeTag::T_AlterDatabaseStmt => {
                let alter = node.cast::<pg_sys::AlterDatabaseStmt>();
                let options = pgrx::PgList::<pg_sys::DefElem>::from_pg((*alter).options);
                options.iter_ptr().find(|o| CStr::from_ptr((**o).defname) == c"tablespace")?;
                (*alter).dbname
            }
            _ => return None,
        };
        if name.is_null() { None } else { Some(CStr::from_ptr(name).to_string_lossy().into_owned()) }
    }
}

/// Ends our workers in a database and waits up to five seconds. The launcher starts them again, later.
fn release_database(name: &str) {
    // The launcher's workers run as superuser: whoever may drop the database need not be one.
    let bootstrap = pg_sys::BOOTSTRAP_SUPERUSERID;
    let outcome = crate::pg::subxact::run(|| {
        crate::pg::snapshot::with_transaction_snapshot(|| {
            as_user(bootstrap, Restriction::Own, || {
                spi::run_once(
                    "SELECT pg_catalog.pg_terminate_backend(pid, 5000) FROM pg_catalog.pg_stat_activity \
                     WHERE backend_type = 'pgtrickle worker' AND datname = $1",
                    &[Arg::Text(name)],
                    Mode::Fresh,
                )
            })
        })
    });
    if let Err(caught) = outcome {
        crate::pg::report::degraded("pgtrickle: its worker could not be ended", &caught);
    }
}

/// May the command run as it stands? A cheap look at the privilege, so that nobody stops workers who may do nothing.
unsafe fn may_act_on(name: &str) -> bool {
    let Ok(text) = std::ffi::CString::new(name) else { return false };
    // SAFETY: syscache look-ups.
    unsafe {
        let oid = pg_sys::get_database_oid(text.as_ptr(), true);
        if oid == pg_sys::InvalidOid {
            return false;
        }
        #[cfg(feature = "pg15")]
        return pg_sys::pg_database_ownercheck(oid, pg_sys::GetUserId()) || pg_sys::superuser();
        #[cfg(not(feature = "pg15"))]
        return pg_sys::object_ownercheck(pg_sys::DatabaseRelationId, oid, pg_sys::GetUserId())
            || pg_sys::superuser();
    }
}

/// # Safety
/// Called by PostgreSQL.
#[pg_guard]
#[allow(clippy::too_many_arguments)] // PostgreSQL's signature
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
        if context == pg_sys::ProcessUtilityContext::PROCESS_UTILITY_TOPLEVEL
            && let Some(name) = exclusive_database(statement)
            && may_act_on(&name)
        {
            release_database(&name);
        }
        match PREVIOUS {
            // A bare C function: errors that leave it must become panics here. pgrx's own bindings do that themselves.
            Some(previous) => pg_sys::ffi::pg_guard_ffi_boundary(|| {
                previous(statement, query, read_only_tree, context, params, environment, receiver, completion)
            }),
            None => pg_sys::standard_ProcessUtility(
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
