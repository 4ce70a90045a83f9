//! What an event trigger is told, as plain values.
//!
//! # Safety
//! Functions here that are not safe to call take nodes, descriptors or call data of PostgreSQL that are valid and of the
//! type that their names say; those that walk trees get the context that their caller passes along with them.

use std::collections::BTreeSet;
use std::ffi::CStr;

use pgrx::PgList;
use pgrx::pg_sys;

use crate::error::{Error, Result};

/// The command behind an event.
#[derive(Debug, Clone, Default)]
pub struct Command {
    /// `ALTER TABLE`, `DROP SCHEMA`, …
    pub tag: String,
    /// Columns named in `ALTER COLUMN … TYPE`.
    pub retyped: BTreeSet<String>,
    /// Bare name that a function, operator, type or the like has after it, where the command gives it one.
    pub given_name: Option<String>,
    /// It creates something that can't have been there before: `CREATE`, and not `OR REPLACE`.
    pub is_new: bool,
    /// It makes a function, procedure or aggregate, or another one of that name and these arguments.
    pub makes_routine: bool,
}

/// Reads the event; an error when it is no event trigger call.
///
/// # Safety
/// `fcinfo` comes from PostgreSQL's function manager.
pub unsafe fn command(fcinfo: pg_sys::FunctionCallInfo) -> Result<Command> {
    // SAFETY: per the contract; parse tree nodes are only read.
    unsafe {
        let data = event_data(fcinfo)?;
        let tag = CStr::from_ptr(pg_sys::GetCommandTagName((*data).tag)).to_string_lossy().into_owned();
        let parsetree = (*data).parsetree;
        let is_new = tag.starts_with("CREATE") && !replaces(parsetree);
        let makes_routine =
            matches!(tag.as_str(), "CREATE FUNCTION" | "CREATE PROCEDURE" | "CREATE AGGREGATE");
        let (retyped, given_name) = (retyped_columns(parsetree), given_name(parsetree));
        Ok(Command { tag, retyped, given_name, is_new, makes_routine })
    }
}

/// The command as it was parsed; null when there is none.
///
/// # Safety
/// `fcinfo` comes from PostgreSQL's function manager.
pub unsafe fn parse_tree(fcinfo: pg_sys::FunctionCallInfo) -> Result<*mut pg_sys::Node> {
    // SAFETY: per the contract.
    unsafe { Ok((*event_data(fcinfo)?).parsetree) }
}

unsafe fn event_data(fcinfo: pg_sys::FunctionCallInfo) -> Result<*mut pg_sys::EventTriggerData> {
    // SAFETY: the context node is checked before the cast.
    unsafe {
        let context = (*fcinfo).context;
        if context.is_null() || (*context).type_ != pg_sys::NodeTag::T_EventTriggerData {
            return Err(Error::ProtectedObject {
                what: "this function can only be called as an event trigger".into(),
                hint: "It belongs to extension pgtrickle.".into(),
            });
        }
        Ok(context.cast())
    }
}

/// Does it say `OR REPLACE`?
unsafe fn replaces(parsetree: *mut pg_sys::Node) -> bool {
    use pg_sys::NodeTag::*;
    // SAFETY: casts follow tags.
    unsafe {
        if parsetree.is_null() {
            return true;
        }
        match (*parsetree).type_ {
            T_CreateFunctionStmt => (*parsetree.cast::<pg_sys::CreateFunctionStmt>()).replace,
            T_DefineStmt => (*parsetree.cast::<pg_sys::DefineStmt>()).replace,
            T_ViewStmt => (*parsetree.cast::<pg_sys::ViewStmt>()).replace,
            _ => false,
        }
    }
}

/// The last part of the name that a command gives to what is no relation. Commands on relations change their catalog rows,
/// which tell the name.
unsafe fn given_name(parsetree: *mut pg_sys::Node) -> Option<String> {
    use pg_sys::NodeTag::*;
    // SAFETY: casts follow tags; names are lists of strings.
    unsafe {
        if parsetree.is_null() {
            return None;
        }
        match (*parsetree).type_ {
            T_CreateFunctionStmt => last_part((*parsetree.cast::<pg_sys::CreateFunctionStmt>()).funcname),
            T_DefineStmt => last_part((*parsetree.cast::<pg_sys::DefineStmt>()).defnames),
            T_CreateEnumStmt => last_part((*parsetree.cast::<pg_sys::CreateEnumStmt>()).typeName),
            T_CreateRangeStmt => last_part((*parsetree.cast::<pg_sys::CreateRangeStmt>()).typeName),
            T_CreateDomainStmt => last_part((*parsetree.cast::<pg_sys::CreateDomainStmt>()).domainname),
            T_CompositeTypeStmt => {
                let variable = (*parsetree.cast::<pg_sys::CompositeTypeStmt>()).typevar;
                if variable.is_null() { None } else { text((*variable).relname) }
            }
            T_RenameStmt => text((*parsetree.cast::<pg_sys::RenameStmt>()).newname),
            T_AlterObjectSchemaStmt => {
                object_name((*parsetree.cast::<pg_sys::AlterObjectSchemaStmt>()).object)
            }
            _ => None,
        }
    }
}

/// The last part of an object's name: a list of strings, or such a list with arguments.
unsafe fn object_name(object: *mut pg_sys::Node) -> Option<String> {
    // SAFETY: casts follow tags.
    unsafe {
        if object.is_null() {
            return None;
        }
        match (*object).type_ {
            pg_sys::NodeTag::T_List => last_part(object.cast()),
            pg_sys::NodeTag::T_ObjectWithArgs => {
                last_part((*object.cast::<pg_sys::ObjectWithArgs>()).objname)
            }
            _ => None,
        }
    }
}

unsafe fn last_part(names: *mut pg_sys::List) -> Option<String> {
    // SAFETY: a list of nodes; the cast follows the tag.
    unsafe {
        let names = PgList::<pg_sys::Node>::from_pg(names);
        let last = names.tail()?;
        if (*last).type_ != pg_sys::NodeTag::T_String {
            return None;
        }
        text((*last.cast::<pg_sys::String>()).sval)
    }
}

unsafe fn text(text: *const std::ffi::c_char) -> Option<String> {
    // SAFETY: null, or NUL-terminated.
    unsafe { (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned()) }
}

unsafe fn retyped_columns(parsetree: *mut pg_sys::Node) -> BTreeSet<String> {
    let mut columns = BTreeSet::new();
    // SAFETY: casts follow tags.
    unsafe {
        if parsetree.is_null() || (*parsetree).type_ != pg_sys::NodeTag::T_AlterTableStmt {
            return columns;
        }
        let statement = parsetree.cast::<pg_sys::AlterTableStmt>();
        for command in PgList::<pg_sys::AlterTableCmd>::from_pg((*statement).cmds).iter_ptr() {
            if (*command).subtype == pg_sys::AlterTableType::AT_AlterColumnType && !(*command).name.is_null()
            {
                columns.insert(CStr::from_ptr((*command).name).to_string_lossy().into_owned());
            }
        }
    }
    columns
}

/// Text of the statement that the client sent, if any.
pub fn statement_text() -> Option<String> {
    // SAFETY: a backend variable that is null or a NUL-terminated string.
    unsafe {
        let text = pg_sys::debug_query_string;
        if text.is_null() { None } else { Some(CStr::from_ptr(text).to_string_lossy().into_owned()) }
    }
}

/// Does a backslash in a plain string take the next character along (`standard_conforming_strings` off)?
pub fn backslash_quotes() -> bool {
    // SAFETY: backend variable.
    unsafe { !pg_sys::standard_conforming_strings }
}

/// What the client calls itself.
pub fn application_name() -> Option<String> {
    // SAFETY: a backend variable that is null or a NUL-terminated string.
    unsafe {
        let name = pg_sys::application_name;
        let name = (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned());
        name.filter(|n| !n.is_empty())
    }
}

/// Does the command run inside CREATE or ALTER EXTENSION?
pub fn in_extension_script() -> bool {
    // SAFETY: backend variable.
    unsafe { pg_sys::creating_extension }
}

/// Name of the role that the session runs as, whatever rights are in force for our own work.
pub fn session_actor() -> String {
    // SAFETY: a role's oid; a name that is missing is reported as the oid.
    unsafe {
        let user = pg_sys::GetOuterUserId();
        let name = pg_sys::GetUserNameFromId(user, true);
        if name.is_null() {
            user.to_u32().to_string()
        } else {
            CStr::from_ptr(name).to_string_lossy().into_owned()
        }
    }
}
