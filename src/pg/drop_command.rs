//! What a DROP command names, found as the command itself will find it: with the search_path and the rights of whoever
//! runs it.

use pgrx::PgList;
use pgrx::pg_sys;

use crate::error::Result;
use crate::model::Oid;
use crate::pg::event;

/// One object: class and oid.
pub type Object = (Oid, Oid);

/// The types, domains, collations or extensions that a DROP without CASCADE names; none for any other command. Those that
/// do not exist are left out: saying so is the command's.
///
/// # Safety
/// `fcinfo` comes from PostgreSQL's function manager. There may be errors of PostgreSQL: a name that it can't look up.
pub unsafe fn restricted_drop(fcinfo: pg_sys::FunctionCallInfo) -> Result<Vec<Object>> {
    // SAFETY: `event::parse_tree` checks the call; casts follow tags.
    unsafe {
        let tree = event::parse_tree(fcinfo)?;
        if tree.is_null() || (*tree).type_ != pg_sys::NodeTag::T_DropStmt {
            return Ok(Vec::new());
        }
        let statement = tree.cast::<pg_sys::DropStmt>();
        if (*statement).behavior == pg_sys::DropBehavior::DROP_CASCADE {
            return Ok(Vec::new());
        }
        let named = PgList::<pg_sys::Node>::from_pg((*statement).objects);
        Ok(named.iter_ptr().filter_map(|node| find((*statement).removeType, node)).collect())
    }
}

/// # Safety
/// `node` names an object of this kind, as the grammar has it.
unsafe fn find(kind: pg_sys::ObjectType::Type, node: *mut pg_sys::Node) -> Option<Object> {
    use pg_sys::ObjectType::{OBJECT_COLLATION, OBJECT_DOMAIN, OBJECT_EXTENSION, OBJECT_TYPE};
    // SAFETY: per the contract: a type is a TypeName, a collation a list of strings, an extension a string.
    let (class, oid) = unsafe {
        match (kind, (*node).type_) {
            (OBJECT_TYPE | OBJECT_DOMAIN, pg_sys::NodeTag::T_TypeName) => {
                let name = node.cast::<pg_sys::TypeName>();
                if (*name).pct_type {
                    // Looking it up says so to the user, which the command will do as well.
                    return None;
                }
                let oid = pg_sys::LookupTypeNameOid(std::ptr::null_mut(), name, true);
                (pg_sys::TypeRelationId, oid)
            }
            (OBJECT_COLLATION, pg_sys::NodeTag::T_List) => {
                (pg_sys::CollationRelationId, pg_sys::get_collation_oid(node.cast(), true))
            }
            (OBJECT_EXTENSION, pg_sys::NodeTag::T_String) => {
                let name = (*node.cast::<pg_sys::String>()).sval;
                (pg_sys::ExtensionRelationId, pg_sys::get_extension_oid(name, true))
            }
            _ => return None,
        }
    };
    (oid != pg_sys::InvalidOid).then(|| (class.to_u32(), oid.to_u32()))
}
