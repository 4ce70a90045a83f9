//! What a query depends on: columns of tables with their roles, views, functions, operators, types; through views.
//!
//! # Safety
//! Functions here that are not safe to call take nodes, descriptors or call data of PostgreSQL that are valid and of the
//! type that their names say; those that walk trees get the context that their caller passes along with them.

use std::collections::{BTreeMap, BTreeSet};

use pgrx::pg_sys;
use pgrx::{PgList, pg_guard};

use super::{Role, Use, UseKind};
use crate::model::Oid;
use crate::pg::compat;

/// Objects made by initdb need no watching: they change only with the server.
const FIRST_NORMAL_OID: Oid = 16384;
/// Collations whose order is the database's or the bytes'; their numbers never change.
const DEFAULT_COLLATION: Oid = 100;
const C_COLLATION: Oid = 950;
const POSIX_COLLATION: Oid = 951;

#[derive(Default)]
struct Collector {
    found: BTreeMap<(UseKind, Oid, Oid, i16), BTreeSet<Role>>,
    stack: Vec<*mut pg_sys::Query>,
    role: Option<Role>,
}

/// All uses of the rewritten `query`.
///
/// # Safety
/// `query` is a valid rewritten query.
pub unsafe fn collect(query: *mut pg_sys::Query) -> Vec<Use> {
    let mut collector = Collector::default();
    // SAFETY: per the contract.
    unsafe { collector.query(query) };
    collector
        .found
        .into_iter()
        .map(|((kind, class, object, attnum), roles)| Use { kind, class, object, attnum, roles })
        .collect()
}

impl Collector {
    fn add(&mut self, kind: UseKind, class: Oid, object: Oid, attnum: i16, role: Option<Role>) {
        self.found.entry((kind, class, object, attnum)).or_default().extend(role);
    }

    fn object(&mut self, class: pg_sys::Oid, object: pg_sys::Oid) {
        let object = object.to_u32();
        if object >= FIRST_NORMAL_OID {
            self.add(UseKind::Object, class.to_u32(), object, 0, None);
        }
    }

    unsafe fn query(&mut self, q: *mut pg_sys::Query) {
        // SAFETY: `q` is a valid query, and so are its parts.
        unsafe {
            self.stack.push(q);
            for rte in PgList::<pg_sys::RangeTblEntry>::from_pg((*q).rtable).iter_ptr() {
                self.range_table_entry(rte);
            }
            for cte in PgList::<pg_sys::CommonTableExpr>::from_pg((*q).cteList).iter_ptr() {
                self.query((*cte).ctequery.cast());
            }
            for clauses in [(*q).groupClause, (*q).sortClause, (*q).distinctClause] {
                self.operators_of(clauses);
            }
            let grouped = sort_group_refs((*q).groupClause);
            let ordered = sort_group_refs((*q).sortClause);
            let distinct = sort_group_refs((*q).distinctClause);
            for te in PgList::<pg_sys::TargetEntry>::from_pg((*q).targetList).iter_ptr() {
                let reference = (*te).ressortgroupref;
                let by = |set: &BTreeSet<u32>| reference != 0 && set.contains(&reference);
                let sorted = by(&grouped) || by(&distinct) || by(&ordered);
                let roles = [
                    (!(*te).resjunk, Role::Output),
                    (by(&grouped) || by(&distinct), Role::Group),
                    (by(&ordered), Role::Order),
                    // What else needs an entry that is not shown: PARTITION BY and ORDER BY of a window.
                    ((*te).resjunk && !sorted, Role::Window),
                ];
                for (_, role) in roles.into_iter().filter(|(applies, _)| *applies) {
                    self.walk((*te).expr.cast(), role);
                }
            }
            self.jointree((*q).jointree.cast());
            self.walk((*q).havingQual, Role::Filter);
            self.walk((*q).limitCount, Role::Filter);
            self.walk((*q).limitOffset, Role::Filter);
            self.walk((*q).setOperations, Role::Output);
            self.walk((*q).windowClause.cast(), Role::Window);
            self.stack.pop();
        }
    }

    /// How values are grouped and sorted.
    unsafe fn operators_of(&mut self, clauses: *mut pg_sys::List) {
        // SAFETY: a list of SortGroupClause.
        unsafe {
            for clause in PgList::<pg_sys::SortGroupClause>::from_pg(clauses).iter_ptr() {
                self.operator((*clause).eqop);
                self.operator((*clause).sortop);
            }
        }
    }

    fn operator(&mut self, operator: pg_sys::Oid) {
        self.object(pg_sys::OperatorRelationId, operator);
        if operator.to_u32() >= FIRST_NORMAL_OID {
            // SAFETY: a syscache look-up by oid.
            self.object(pg_sys::ProcedureRelationId, unsafe { pg_sys::get_opcode(operator) });
        }
    }

    /// The type and the collation of an expression; collations of initdb's that a library sorts by are watched too.
    unsafe fn value(&mut self, node: *mut pg_sys::Node) {
        // SAFETY: an expression.
        unsafe {
            self.object(pg_sys::TypeRelationId, pg_sys::exprType(node));
            for collation in [pg_sys::exprCollation(node), pg_sys::exprInputCollation(node)] {
                if ![0, DEFAULT_COLLATION, C_COLLATION, POSIX_COLLATION].contains(&collation.to_u32()) {
                    let class = pg_sys::CollationRelationId.to_u32();
                    self.add(UseKind::Object, class, collation.to_u32(), 0, None);
                }
            }
        }
    }

    unsafe fn range_table_entry(&mut self, rte: *mut pg_sys::RangeTblEntry) {
        // SAFETY: `rte` is valid; which of its fields are set depends on its kind.
        unsafe {
            let relid = (*rte).relid.to_u32();
            let class = pg_sys::RelationRelationId.to_u32();
            // A view leaves its oid in an entry of its own: of its rule's query (15), or of the subquery (16 on).
            if relid != 0 && pg_sys::get_rel_relkind((*rte).relid) as u8 == pg_sys::RELKIND_VIEW {
                self.add(UseKind::View, class, relid, 0, None);
            } else if (*rte).rtekind == pg_sys::RTEKind::RTE_RELATION {
                let role = if (*rte).inh { Some(Role::Children) } else { None };
                self.add(UseKind::Source, class, relid, 0, role);
            }
            match (*rte).rtekind {
                pg_sys::RTEKind::RTE_SUBQUERY => self.query((*rte).subquery),
                pg_sys::RTEKind::RTE_FUNCTION => self.walk((*rte).functions.cast(), Role::Output),
                pg_sys::RTEKind::RTE_VALUES => self.walk((*rte).values_lists.cast(), Role::Output),
                pg_sys::RTEKind::RTE_TABLEFUNC => self.walk((*rte).tablefunc.cast(), Role::Output),
                _ => {}
            }
            self.walk((*rte).securityQuals.cast(), Role::Filter);
        }
    }

    unsafe fn jointree(&mut self, node: *mut pg_sys::Node) {
        // SAFETY: a node of a join tree: FromExpr, JoinExpr or RangeTblRef.
        unsafe {
            if node.is_null() {
                return;
            }
            match (*node).type_ {
                pg_sys::NodeTag::T_FromExpr => {
                    let from = node.cast::<pg_sys::FromExpr>();
                    for child in PgList::<pg_sys::Node>::from_pg((*from).fromlist).iter_ptr() {
                        self.jointree(child);
                    }
                    self.walk((*from).quals, Role::Filter);
                }
                pg_sys::NodeTag::T_JoinExpr => {
                    let join = node.cast::<pg_sys::JoinExpr>();
                    self.jointree((*join).larg);
                    self.jointree((*join).rarg);
                    self.walk((*join).quals, Role::Join);
                }
                _ => {}
            }
        }
    }

    unsafe fn walk(&mut self, node: *mut pg_sys::Node, role: Role) {
        let saved = self.role.replace(role);
        // SAFETY: the context pointer is this collector, which outlives the walk.
        unsafe { compat::walk(visit, node, std::ptr::from_mut(self).cast()) };
        self.role = saved;
    }

    unsafe fn var(&mut self, var: *mut pg_sys::Var) {
        // SAFETY: a Var of the innermost query on the stack; its level and number are checked against the stack.
        unsafe {
            let Some(depth) = self.stack.len().checked_sub(1 + (*var).varlevelsup as usize) else { return };
            let query = self.stack[depth];
            let Ok(index) = usize::try_from((*var).varno - 1) else { return };
            let Some(rte) = PgList::<pg_sys::RangeTblEntry>::from_pg((*query).rtable).get_ptr(index) else {
                return;
            };
            let class = pg_sys::RelationRelationId.to_u32();
            if (*rte).rtekind == pg_sys::RTEKind::RTE_RELATION {
                let role = if (*var).varattno == 0 { Some(Role::WholeRow) } else { self.role };
                self.add(UseKind::Source, class, (*rte).relid.to_u32(), (*var).varattno, role);
            } else if (*rte).rtekind == pg_sys::RTEKind::RTE_SUBQUERY && (*var).varattno > 0 {
                // What a view's or subquery's column is used for, its own columns are used for too.
                let targets = PgList::<pg_sys::TargetEntry>::from_pg((*(*rte).subquery).targetList);
                if let Some(te) = targets.get_ptr((*var).varattno as usize - 1) {
                    let above = self.stack.split_off(depth + 1);
                    self.stack.push((*rte).subquery);
                    compat::walk(visit, (*te).expr.cast(), std::ptr::from_mut(self).cast());
                    self.stack.truncate(depth + 1);
                    self.stack.extend(above);
                }
            } else if (*rte).rtekind == pg_sys::RTEKind::RTE_JOIN || compat::is_group_rte(rte) {
                let resolved = compat::resolve_aliases(query, pg_sys::copyObjectImpl(var.cast()).cast());
                if (*resolved).type_ != pg_sys::NodeTag::T_Var || resolved_differs(resolved.cast(), var) {
                    let above = self.stack.split_off(depth + 1);
                    compat::walk(visit, resolved, std::ptr::from_mut(self).cast());
                    self.stack.extend(above);
                }
            }
        }
    }
}

unsafe fn resolved_differs(a: *mut pg_sys::Var, b: *mut pg_sys::Var) -> bool {
    // SAFETY: both are valid Vars.
    unsafe { (*a).varno != (*b).varno || (*a).varattno != (*b).varattno }
}

unsafe fn sort_group_refs(list: *mut pg_sys::List) -> BTreeSet<u32> {
    // SAFETY: a list of SortGroupClause.
    unsafe {
        PgList::<pg_sys::SortGroupClause>::from_pg(list).iter_ptr().map(|c| (*c).tleSortGroupRef).collect()
    }
}

/// # Safety
/// A tree walker callback; `context` is a `Collector`.
#[pg_guard]
unsafe extern "C-unwind" fn visit(node: *mut pg_sys::Node, context: *mut std::ffi::c_void) -> bool {
    if node.is_null() {
        return false;
    }
    // SAFETY: per the contract; each cast follows the node's tag.
    unsafe {
        let collector = &mut *context.cast::<Collector>();
        let procs = pg_sys::ProcedureRelationId;
        match (*node).type_ {
            pg_sys::NodeTag::T_Var => {
                let var = node.cast::<pg_sys::Var>();
                collector.value(node);
                collector.var(var);
                return false;
            }
            pg_sys::NodeTag::T_Query => {
                collector.query(node.cast());
                return false;
            }
            pg_sys::NodeTag::T_FuncExpr => {
                collector.object(procs, (*node.cast::<pg_sys::FuncExpr>()).funcid);
                collector.value(node);
            }
            pg_sys::NodeTag::T_OpExpr | pg_sys::NodeTag::T_DistinctExpr | pg_sys::NodeTag::T_NullIfExpr => {
                collector.operator((*node.cast::<pg_sys::OpExpr>()).opno);
                collector.value(node);
            }
            pg_sys::NodeTag::T_ScalarArrayOpExpr => {
                collector.operator((*node.cast::<pg_sys::ScalarArrayOpExpr>()).opno);
            }
            pg_sys::NodeTag::T_RowCompareExpr => {
                let operators = (*node.cast::<pg_sys::RowCompareExpr>()).opnos;
                for operator in PgList::<pg_sys::Oid>::from_pg(operators).iter_oid() {
                    collector.operator(operator);
                }
            }
            pg_sys::NodeTag::T_Aggref => {
                let e = node.cast::<pg_sys::Aggref>();
                collector.object(procs, (*e).aggfnoid);
                collector.operators_of((*e).aggorder);
                collector.operators_of((*e).aggdistinct);
                collector.value(node);
            }
            pg_sys::NodeTag::T_WindowFunc => {
                collector.object(procs, (*node.cast::<pg_sys::WindowFunc>()).winfnoid);
                collector.value(node);
            }
            pg_sys::NodeTag::T_WindowClause => {
                let e = node.cast::<pg_sys::WindowClause>();
                collector.operators_of((*e).partitionClause);
                collector.operators_of((*e).orderClause);
            }
            pg_sys::NodeTag::T_SetOperationStmt => {
                collector.operators_of((*node.cast::<pg_sys::SetOperationStmt>()).groupClauses);
            }
            pg_sys::NodeTag::T_Const
            | pg_sys::NodeTag::T_CoerceToDomain
            | pg_sys::NodeTag::T_CoerceViaIO
            | pg_sys::NodeTag::T_RelabelType
            | pg_sys::NodeTag::T_ArrayCoerceExpr
            | pg_sys::NodeTag::T_ConvertRowtypeExpr
            | pg_sys::NodeTag::T_CollateExpr
            | pg_sys::NodeTag::T_ArrayExpr
            | pg_sys::NodeTag::T_RowExpr
            | pg_sys::NodeTag::T_FieldSelect
            | pg_sys::NodeTag::T_SubscriptingRef
            | pg_sys::NodeTag::T_MinMaxExpr => collector.value(node),
            _ => {}
        }
        pg_sys::expression_tree_walker(node, Some(visit), context)
    }
}
