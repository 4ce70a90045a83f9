//! A query for a hint: the stored one without columns that are dropped or of another type, and without types, functions,
//! operators and collations that are gone. Output columns and conditions that used them are left out; where they can't be,
//! NULL of the type stands in. The caller checks that it really runs.
//!
//! # Safety
//! Functions here that are not safe to call take nodes, descriptors or call data of PostgreSQL that are valid and of the
//! type that their names say; those that walk trees get the context that their caller passes along with them.

use std::collections::BTreeSet;

use pgrx::pg_sys;
use pgrx::{PgList, pg_guard};

use super::parse::{print_loaded, read_tree};
use crate::error::Result;
use crate::pg::compat;

struct Gone {
    stack: Vec<*mut pg_sys::Query>,
    hit: bool,
}

/// The text of `tree` without columns that are dropped or of another type now.
pub fn without_changed_columns(tree: &str) -> Result<String> {
    let mut gone = Gone { stack: Vec::new(), hit: false };
    // SAFETY: the tree is ours alone; lists are replaced, never freed.
    unsafe {
        let query = read_tree(tree)?;
        if !compat::has_group_rte(query) && (*query).setOperations.is_null() {
            drop_targets(query, &mut gone);
            drop_conjuncts(query, &mut gone);
        }
        let replaced = compat::mutate(null_out, query.cast(), std::ptr::from_mut(&mut gone).cast());
        print_loaded(replaced.cast())
    }
}

impl Gone {
    unsafe fn uses(&mut self, query: *mut pg_sys::Query, node: *mut pg_sys::Node) -> bool {
        self.hit = false;
        self.stack.push(query);
        // SAFETY: a copy is changed and thrown away; `hit` tells whether anything matched.
        unsafe {
            let copy = pg_sys::copyObjectImpl(node.cast()).cast();
            compat::mutate(null_out, copy, std::ptr::from_mut(self).cast());
        }
        self.stack.pop();
        self.hit
    }
}

/// Removes output columns, and the grouping and ordering by them, when something remains.
unsafe fn drop_targets(query: *mut pg_sys::Query, gone: &mut Gone) {
    // SAFETY: fields of a valid query.
    unsafe {
        let targets = PgList::<pg_sys::TargetEntry>::from_pg((*query).targetList);
        let mut keep = PgList::<pg_sys::TargetEntry>::new();
        let mut dropped = BTreeSet::new();
        let windows = !(*query).windowClause.is_null();
        for te in targets.iter_ptr() {
            // A window may sort or partition by it: there NULL has to stand in.
            let pinned = windows && (*te).ressortgroupref != 0;
            if !pinned && gone.uses(query, (*te).expr.cast()) {
                dropped.insert((*te).ressortgroupref);
            } else {
                (*te).resno = keep.len() as pg_sys::AttrNumber + 1;
                keep.push(te);
            }
        }
        if keep.iter_ptr().all(|te| (*te).resjunk) {
            return;
        }
        (*query).targetList = keep.into_pg();
        for list in [&mut (*query).groupClause, &mut (*query).sortClause, &mut (*query).distinctClause] {
            let mut rest = PgList::<pg_sys::SortGroupClause>::new();
            for clause in PgList::<pg_sys::SortGroupClause>::from_pg(*list).iter_ptr() {
                if !dropped.contains(&(*clause).tleSortGroupRef) {
                    rest.push(clause);
                }
            }
            *list = rest.into_pg();
        }
    }
}

/// Removes conjuncts of the outermost WHERE.
unsafe fn drop_conjuncts(query: *mut pg_sys::Query, gone: &mut Gone) {
    // SAFETY: fields of a valid query.
    unsafe {
        let jointree = (*query).jointree;
        let quals = (*jointree).quals;
        if quals.is_null() {
            return;
        }
        if (*quals).type_ == pg_sys::NodeTag::T_BoolExpr {
            let expr = quals.cast::<pg_sys::BoolExpr>();
            if (*expr).boolop == pg_sys::BoolExprType::AND_EXPR {
                let mut keep = PgList::<pg_sys::Node>::new();
                for child in PgList::<pg_sys::Node>::from_pg((*expr).args).iter_ptr() {
                    if !gone.uses(query, child) {
                        keep.push(child);
                    }
                }
                match keep.len() {
                    0 => (*jointree).quals = std::ptr::null_mut(),
                    1 => (*jointree).quals = keep.get_ptr(0).unwrap_or(std::ptr::null_mut()),
                    _ => (*expr).args = keep.into_pg(),
                }
                return;
            }
        }
        if gone.uses(query, quals) {
            (*jointree).quals = std::ptr::null_mut();
        }
    }
}

/// # Safety
/// A tree mutator callback; `context` is a `Gone`.
#[pg_guard]
unsafe extern "C-unwind" fn null_out(
    node: *mut pg_sys::Node,
    context: *mut std::ffi::c_void,
) -> *mut pg_sys::Node {
    if node.is_null() {
        return node;
    }
    // SAFETY: per the contract; casts follow tags, levels and numbers are checked.
    unsafe {
        let gone = &mut *context.cast::<Gone>();
        match (*node).type_ {
            pg_sys::NodeTag::T_Query => {
                gone.stack.push(node.cast());
                let query = compat::mutate_query(node.cast(), null_out, context);
                (*context.cast::<Gone>()).stack.pop();
                query.cast()
            }
            pg_sys::NodeTag::T_Var => {
                let var = node.cast::<pg_sys::Var>();
                if !is_gone(gone, var) {
                    return node;
                }
                gone.hit = true;
                null_of((*var).vartype, (*var).vartypmod, (*var).varcollid)
            }
            _ if uses_gone_object(node) => {
                gone.hit = true;
                null_of(pg_sys::exprType(node), -1, pg_sys::exprCollation(node))
            }
            _ => compat::mutate_children(node, null_out, context),
        }
    }
}

unsafe fn is_gone(gone: &Gone, var: *mut pg_sys::Var) -> bool {
    // SAFETY: a valid Var; its query is found on the stack.
    unsafe {
        let Some(depth) = gone.stack.len().checked_sub(1 + (*var).varlevelsup as usize) else { return false };
        let Ok(index) = usize::try_from((*var).varno - 1) else { return false };
        let entry = PgList::<pg_sys::RangeTblEntry>::from_pg((*gone.stack[depth]).rtable).get_ptr(index);
        // A dropped column has no type.
        entry.is_some_and(|rte| {
            (*rte).rtekind == pg_sys::RTEKind::RTE_RELATION
                && (*var).varattno > 0
                && pg_sys::get_atttype((*rte).relid, (*var).varattno) != (*var).vartype
        })
    }
}

/// NULL of this type; of text where the type is gone.
unsafe fn null_of(type_oid: pg_sys::Oid, typmod: i32, collation: pg_sys::Oid) -> *mut pg_sys::Node {
    // SAFETY: syscache look-ups; the constant is of an existing type and collation.
    unsafe {
        let (type_oid, typmod) =
            if type_exists(type_oid) { (type_oid, typmod) } else { (pg_sys::TEXTOID, -1) };
        let collation =
            if collation_exists(collation) { collation } else { pg_sys::get_typcollation(type_oid) };
        pg_sys::makeNullConst(type_oid, typmod, collation).cast()
    }
}

/// Does this expression itself name a type, function, operator or collation that does not exist any more?
unsafe fn uses_gone_object(node: *mut pg_sys::Node) -> bool {
    // SAFETY: casts follow tags; only expressions get as far as the look at their types.
    unsafe {
        let known = match (*node).type_ {
            pg_sys::NodeTag::T_FuncExpr => function_exists((*node.cast::<pg_sys::FuncExpr>()).funcid),
            pg_sys::NodeTag::T_Aggref => function_exists((*node.cast::<pg_sys::Aggref>()).aggfnoid),
            pg_sys::NodeTag::T_WindowFunc => function_exists((*node.cast::<pg_sys::WindowFunc>()).winfnoid),
            pg_sys::NodeTag::T_OpExpr | pg_sys::NodeTag::T_DistinctExpr | pg_sys::NodeTag::T_NullIfExpr => {
                operator_exists((*node.cast::<pg_sys::OpExpr>()).opno)
            }
            pg_sys::NodeTag::T_ScalarArrayOpExpr => {
                operator_exists((*node.cast::<pg_sys::ScalarArrayOpExpr>()).opno)
            }
            pg_sys::NodeTag::T_CollateExpr => collation_exists((*node.cast::<pg_sys::CollateExpr>()).collOid),
            pg_sys::NodeTag::T_Const
            | pg_sys::NodeTag::T_RelabelType
            | pg_sys::NodeTag::T_CoerceViaIO
            | pg_sys::NodeTag::T_ArrayCoerceExpr
            | pg_sys::NodeTag::T_ConvertRowtypeExpr
            | pg_sys::NodeTag::T_CoerceToDomain
            | pg_sys::NodeTag::T_CaseExpr
            | pg_sys::NodeTag::T_CoalesceExpr
            | pg_sys::NodeTag::T_MinMaxExpr
            | pg_sys::NodeTag::T_ArrayExpr
            | pg_sys::NodeTag::T_RowExpr
            | pg_sys::NodeTag::T_FieldSelect
            | pg_sys::NodeTag::T_SubscriptingRef => true,
            _ => return false,
        };
        !known || !type_exists(pg_sys::exprType(node)) || !collation_exists(pg_sys::exprCollation(node))
    }
}

unsafe fn type_exists(oid: pg_sys::Oid) -> bool {
    // SAFETY: a syscache look-up.
    unsafe { pg_sys::get_typisdefined(oid) }
}

unsafe fn collation_exists(oid: pg_sys::Oid) -> bool {
    // SAFETY: a syscache look-up.
    unsafe { oid == pg_sys::InvalidOid || !pg_sys::get_collation_name(oid).is_null() }
}

unsafe fn function_exists(oid: pg_sys::Oid) -> bool {
    // SAFETY: a syscache look-up.
    unsafe { !pg_sys::get_func_name(oid).is_null() }
}

unsafe fn operator_exists(oid: pg_sys::Oid) -> bool {
    // SAFETY: a syscache look-up.
    unsafe { !pg_sys::get_opname(oid).is_null() }
}
