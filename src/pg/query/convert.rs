//! The rewritten query as `dvm::Op`. What has no rule is named, all of it, not only the first.
//!
//! # Safety
//! Functions here that are not safe to call take nodes, descriptors or call data of PostgreSQL that are valid and of the
//! type that their names say; those that walk trees get the context that their caller passes along with them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;

use pgrx::pg_sys;
use pgrx::{PgList, pg_guard};

use super::OutputColumn;
use super::print::Printer;
use crate::dvm::support::{Construct, Unsupported};
use crate::dvm::{Agg, Aggregate, Func, Num, Op, Spj};
use crate::error::{Error, Result};
use crate::pg::compat;
use crate::pg::spi::{self, Arg, Mode};

#[derive(Default)]
pub struct Converter {
    pub unsupported: Vec<Unsupported>,
    /// Enclosing queries, outermost first; CTEs are looked up here.
    stack: Vec<*mut pg_sys::Query>,
    aggregates: u32,
}

type Node = *mut pg_sys::Node;

impl Converter {
    /// The tree, or everything that forbids one.
    ///
    /// # Safety
    /// `query` is a valid rewritten query.
    pub unsafe fn convert(
        mut self,
        query: *mut pg_sys::Query,
    ) -> Result<std::result::Result<Op, Vec<Unsupported>>> {
        // SAFETY: per the contract.
        let op = unsafe { self.query(query)? };
        self.unsupported.sort_by_key(|u| u.construct);
        self.unsupported.dedup();
        Ok(match op {
            Some(op) if self.unsupported.is_empty() => Ok(op),
            _ => Err(self.unsupported),
        })
    }

    fn no(&mut self, construct: Construct) {
        self.unsupported.push(Unsupported::new(construct, ""));
    }

    fn no_what(&mut self, construct: Construct, what: impl Into<String>) {
        self.unsupported.push(Unsupported::new(construct, what));
    }

    unsafe fn query(&mut self, q: *mut pg_sys::Query) -> Result<Option<Op>> {
        // SAFETY: `q` is valid; the stack is popped on every path that does not fail.
        unsafe {
            self.stack.push(q);
            let op = self.query_body(q)?;
            self.stack.pop();
            Ok(op)
        }
    }

    unsafe fn query_body(&mut self, q: *mut pg_sys::Query) -> Result<Option<Op>> {
        // SAFETY: fields of a valid query.
        unsafe {
            let before = self.unsupported.len();
            for (present, construct) in [
                ((*q).hasSubLinks, Construct::Sublink),
                ((*q).hasWindowFuncs, Construct::Window),
                (!(*q).limitCount.is_null() || !(*q).limitOffset.is_null(), Construct::Limit),
                ((*q).hasDistinctOn, Construct::DistinctOn),
                (!(*q).groupingSets.is_null(), Construct::GroupingSets),
                ((*q).hasRecursive, Construct::RecursiveCte),
                ((*q).hasTargetSRFs, Construct::SetReturning),
                ((*q).hasRowSecurity, Construct::RowSecurity),
            ] {
                if present {
                    self.no(construct);
                }
            }
            let op = if (*q).setOperations.is_null() { self.block(q)? } else { self.set_operation(q)? };
            let op = match op {
                Some(op) if !(*q).distinctClause.is_null() => self.distinct(q, op)?,
                other => other,
            };
            Ok(op.filter(|_| self.unsupported.len() == before))
        }
    }

    unsafe fn distinct(&mut self, q: *mut pg_sys::Query, input: Op) -> Result<Option<Op>> {
        // SAFETY: fields of a valid query.
        unsafe {
            for te in target_entries(q) {
                self.check_comparable((*te).expr.cast())?;
            }
        }
        let keys = input.columns().len();
        Ok(Some(self.aggregate(input, keys, Vec::new())))
    }

    fn aggregate(&mut self, input: Op, keys: usize, aggs: Vec<Agg>) -> Op {
        self.aggregates += 1;
        Op::Aggregate(Aggregate { id: self.aggregates, input: Box::new(input), keys, aggs })
    }

    /// UNION and UNION ALL, nested as they are.
    unsafe fn set_operation(&mut self, q: *mut pg_sys::Query) -> Result<Option<Op>> {
        // SAFETY: fields of a valid query.
        unsafe { self.set_node(q, (*q).setOperations) }
    }

    unsafe fn set_node(&mut self, q: *mut pg_sys::Query, node: Node) -> Result<Option<Op>> {
        // SAFETY: a node of a set operation tree: SetOperationStmt or RangeTblRef to a subquery.
        unsafe {
            if (*node).type_ == pg_sys::NodeTag::T_RangeTblRef {
                let rte = range_table_entry(q, (*node.cast::<pg_sys::RangeTblRef>()).rtindex)?;
                return self.query((*rte).subquery);
            }
            let set = node.cast::<pg_sys::SetOperationStmt>();
            if (*set).op != pg_sys::SetOperation::SETOP_UNION {
                self.no(Construct::SetOperation);
                return Ok(None);
            }
            let left = self.set_input(q, (*set).larg, set)?;
            let right = self.set_input(q, (*set).rarg, set)?;
            let (Some(left), Some(right)) = (left, right) else { return Ok(None) };
            let union = Op::UnionAll(vec![left, right]);
            if (*set).all {
                return Ok(Some(union));
            }
            let columns = union.columns().len();
            for (type_oid, collation) in oids((*set).colTypes).zip(oids((*set).colCollations)) {
                self.check_type_comparable(type_oid, collation);
            }
            Ok(Some(self.aggregate(union, columns, Vec::new())))
        }
    }

    /// An input of a set operation, its columns cast to the operation's types.
    unsafe fn set_input(
        &mut self,
        q: *mut pg_sys::Query,
        node: Node,
        set: *mut pg_sys::SetOperationStmt,
    ) -> Result<Option<Op>> {
        // SAFETY: as `set_node`.
        unsafe {
            let Some(op) = self.set_node(q, node)? else { return Ok(None) };
            let have: Vec<pg_sys::Oid> = if (*node).type_ == pg_sys::NodeTag::T_RangeTblRef {
                let rte = range_table_entry(q, (*node.cast::<pg_sys::RangeTblRef>()).rtindex)?;
                target_entries((*rte).subquery).map(|te| pg_sys::exprType((*te).expr.cast())).collect()
            } else {
                oids((*node.cast::<pg_sys::SetOperationStmt>()).colTypes).collect()
            };
            let want: Vec<pg_sys::Oid> = oids((*set).colTypes).collect();
            if have == want {
                return Ok(Some(op));
            }
            let exprs = op
                .columns()
                .iter()
                .zip(have.iter().zip(&want))
                .map(|(c, (have, want))| {
                    if have == want {
                        format!("r1.{c}")
                    } else {
                        format!("CAST(r1.{c} AS {})", type_sql(*want, -1))
                    }
                })
                .collect();
            Ok(Some(Op::Spj(Spj { inputs: vec![(1, op)], quals: Vec::new(), exprs })))
        }
    }

    /// SELECT … FROM … WHERE … GROUP BY … HAVING.
    unsafe fn block(&mut self, q: *mut pg_sys::Query) -> Result<Option<Op>> {
        // SAFETY: fields of a valid query; expressions are copied before they are changed.
        unsafe {
            let targets: Vec<Node> = target_entries(q)
                .map(|te| compat::resolve_aliases(q, pg_sys::copyObjectImpl((*te).expr.cast()).cast()))
                .collect();
            let having = compat::resolve_aliases(q, pg_sys::copyObjectImpl((*q).havingQual.cast()).cast());
            let mut from = From::default();
            self.from(q, (*q).jointree.cast(), &mut from)?;
            if from.inputs.is_empty() {
                self.no(Construct::NoTable);
                return Ok(None);
            }
            let aggregated = (*q).hasAggs || !(*q).groupClause.is_null() || !(*q).havingQual.is_null();
            let grouped = if aggregated { Some(self.grouping(q, &targets, having)?) } else { None };

            let mut used = Vars::default();
            let whole = targets.iter().copied().chain([having]).chain(from.quals.iter().copied());
            for node in whole.chain(grouped.iter().flat_map(|g| g.keys.iter().copied())) {
                used.collect(node);
            }
            self.check_vars(&used);
            let inputs = self.inputs(q, &from, &used)?;
            if !self.unsupported.is_empty() {
                return Ok(None);
            }
            let printer = Printer::new(q, grouped.as_ref().map_or(0, |g| g.keys.len() + g.aggrefs.len()));
            let quals = print_all(&printer, &from.quals)?;
            let Some(grouped) = grouped else {
                return Ok(Some(Op::Spj(Spj { inputs, quals, exprs: print_all(&printer, &targets)? })));
            };
            self.grouped_block(q, &printer, inputs, quals, grouped, &targets, having)
        }
    }

    #[allow(clippy::too_many_arguments)] // the parts of one block, used once
    unsafe fn grouped_block(
        &mut self,
        q: *mut pg_sys::Query,
        printer: &Printer,
        inputs: Vec<(u32, Op)>,
        quals: Vec<String>,
        grouped: Grouping,
        targets: &[Node],
        having: Node,
    ) -> Result<Option<Op>> {
        // SAFETY: all nodes belong to `q` or copies of its parts.
        unsafe {
            let mut exprs = print_all(printer, &grouped.keys)?;
            let keys = exprs.len();
            let mut aggs = Vec::new();
            for aggref in &grouped.aggrefs {
                let Some((func, argument)) = self.aggregate_function(printer, *aggref)? else {
                    return Ok(None);
                };
                let col = match argument {
                    None => 0,
                    Some(text) => match exprs[keys..].iter().position(|e| *e == text) {
                        Some(i) => keys + i + 1,
                        None => {
                            exprs.push(text);
                            exprs.len()
                        }
                    },
                };
                aggs.push(Agg { func, col });
            }
            if exprs.is_empty() {
                // count(*) alone reads no column; a block needs one.
                exprs.push("true".into());
            }
            let input = Op::Spj(Spj { inputs, quals, exprs });
            let above = list_length((*q).rtable) as u32 + 1;
            let agg = self.aggregate(input, keys, aggs);
            let lift = |node: Node| grouped.lift(node, above);
            let exprs = targets.iter().map(|t| printer.print(lift(*t))).collect::<Result<Vec<_>>>()?;
            let mut conjuncts = Vec::new();
            split_conjuncts(having, &mut conjuncts);
            let quals = conjuncts.into_iter().map(|c| printer.print(lift(c))).collect::<Result<Vec<_>>>()?;
            Ok(Some(Op::Spj(Spj { inputs: vec![(above, agg)], quals, exprs })))
        }
    }

    /// Grouping keys and aggregate calls of a block.
    unsafe fn grouping(&mut self, q: *mut pg_sys::Query, targets: &[Node], having: Node) -> Result<Grouping> {
        // SAFETY: fields of a valid query.
        unsafe {
            let mut grouping = Grouping::default();
            for clause in PgList::<pg_sys::SortGroupClause>::from_pg((*q).groupClause).iter_ptr() {
                let entry = pg_sys::get_sortgroupclause_tle(clause, (*q).targetList);
                let key = compat::resolve_aliases(q, pg_sys::copyObjectImpl((*entry).expr.cast()).cast());
                self.check_comparable(key)?;
                grouping.keys.push(key);
            }
            for node in targets.iter().copied().chain([having]) {
                compat::walk(visit_grouping, node, std::ptr::from_mut(&mut grouping).cast());
            }
            // Columns that depend on a grouped primary key: grouping by them too changes nothing.
            for var in std::mem::take(&mut grouping.loose) {
                if !grouping.keys.iter().any(|k| pg_sys::equal((*k).cast(), var.cast())) {
                    self.check_comparable(var)?;
                    grouping.keys.push(var);
                }
            }
            if grouping.grouping_func {
                self.no(Construct::Grouping);
            }
            Ok(grouping)
        }
    }

    unsafe fn from(&mut self, q: *mut pg_sys::Query, node: Node, from: &mut From) -> Result<()> {
        // SAFETY: a node of the join tree.
        unsafe {
            if node.is_null() {
                return Ok(());
            }
            match (*node).type_ {
                pg_sys::NodeTag::T_RangeTblRef => {
                    from.inputs.push((*node.cast::<pg_sys::RangeTblRef>()).rtindex)
                }
                pg_sys::NodeTag::T_FromExpr => {
                    let expr = node.cast::<pg_sys::FromExpr>();
                    for child in PgList::<pg_sys::Node>::from_pg((*expr).fromlist).iter_ptr() {
                        self.from(q, child, from)?;
                    }
                    split_conjuncts(resolved_copy(q, (*expr).quals), &mut from.quals);
                }
                pg_sys::NodeTag::T_JoinExpr => {
                    let join = node.cast::<pg_sys::JoinExpr>();
                    if (*join).jointype != pg_sys::JoinType::JOIN_INNER {
                        self.no(Construct::OuterJoin);
                    }
                    self.from(q, (*join).larg, from)?;
                    self.from(q, (*join).rarg, from)?;
                    split_conjuncts(resolved_copy(q, (*join).quals), &mut from.quals);
                }
                other => return Err(Error::Internal(format!("unexpected node {other:?} in FROM"))),
            }
            Ok(())
        }
    }

    unsafe fn inputs(&mut self, q: *mut pg_sys::Query, from: &From, used: &Vars) -> Result<Vec<(u32, Op)>> {
        let mut inputs = Vec::new();
        for index in &from.inputs {
            // SAFETY: a range table index of `q`.
            let op = unsafe { self.input(q, *index, used)? };
            if let Some(op) = op {
                inputs.push((*index as u32, op));
            }
        }
        Ok(inputs)
    }

    unsafe fn input(&mut self, q: *mut pg_sys::Query, index: i32, used: &Vars) -> Result<Option<Op>> {
        // SAFETY: which fields of an entry are set depends on its kind.
        unsafe {
            let rte = range_table_entry(q, index)?;
            if !(*rte).securityQuals.is_null() && (*rte).rtekind == pg_sys::RTEKind::RTE_RELATION {
                self.no(Construct::RowSecurity);
            }
            match (*rte).rtekind {
                pg_sys::RTEKind::RTE_RELATION => {
                    if !(*rte).tablesample.is_null() {
                        self.no(Construct::TableSample);
                    }
                    let cols = used.columns.get(&index).cloned().unwrap_or_else(BTreeSet::new);
                    let (rel, only) = ((*rte).relid.to_u32(), !(*rte).inh);
                    self.check_table(rel, only, &cols)?;
                    Ok(Some(Op::Scan { rel, only, cols: cols.into_iter().collect() }))
                }
                pg_sys::RTEKind::RTE_SUBQUERY => {
                    if (*rte).lateral && pg_sys::contain_vars_of_level((*rte).subquery.cast(), 1) {
                        self.no(Construct::Lateral);
                    }
                    self.query((*rte).subquery)
                }
                pg_sys::RTEKind::RTE_CTE => self.cte(rte),
                pg_sys::RTEKind::RTE_VALUES => {
                    self.no(Construct::Values);
                    Ok(None)
                }
                _ => {
                    self.no(Construct::FromFunction);
                    Ok(None)
                }
            }
        }
    }

    /// A reference to WITH: as if its query stood there. Volatile functions are refused before, so it means the same.
    unsafe fn cte(&mut self, rte: *mut pg_sys::RangeTblEntry) -> Result<Option<Op>> {
        // SAFETY: the level is checked against the stack, names are compared as C strings.
        unsafe {
            let level = (*rte).ctelevelsup as usize;
            let depth = self.stack.len().checked_sub(1 + level);
            let Some(depth) = depth else {
                return Err(Error::Internal("a WITH reference leaves the query".into()));
            };
            let name = CStr::from_ptr((*rte).ctename);
            let list = PgList::<pg_sys::CommonTableExpr>::from_pg((*self.stack[depth]).cteList);
            let Some(cte) = list.iter_ptr().find(|c| CStr::from_ptr((**c).ctename) == name) else {
                return Err(Error::Internal("a WITH reference without its query".into()));
            };
            if (*cte).cterecursive {
                self.no(Construct::RecursiveCte);
                return Ok(None);
            }
            let above = self.stack.split_off(depth + 1);
            let op = self.query((*cte).ctequery.cast())?;
            self.stack.extend(above);
            Ok(op)
        }
    }

    /// Can the table be captured, and may the present user read what is needed directly?
    fn check_table(&mut self, rel: u32, only: bool, cols: &BTreeSet<i16>) -> Result<()> {
        let attnums: Vec<i16> = cols.iter().copied().collect();
        let Some(mut row) = spi::run(
            include_str!("../../../sql/queries/source_facts.sql"),
            &[Arg::Oid(rel), Arg::Ints(&attnums)],
            Mode::Fresh,
        )?
        .first() else {
            return Err(Error::Internal(format!("relation {rel} has vanished")));
        };
        let name = row.text(0)?;
        for (i, construct) in [
            (1, Construct::MaterializedView),
            (2, Construct::Unlogged),
            (3, Construct::Inheritance),
            (4, Construct::ForeignPartition),
            (5, Construct::VirtualColumn),
            (6, Construct::ViewPrivilege),
            (7, Construct::OnlyPartitioned),
        ] {
            // Which of these hold of a table by itself, and which with its children or without them.
            let reads_so = match construct {
                Construct::Inheritance | Construct::ForeignPartition => !only,
                Construct::OnlyPartitioned => only,
                _ => true,
            };
            if row.bool(i)? && reads_so {
                self.no_what(construct, name.clone());
            }
        }
        Ok(())
    }

    fn check_vars(&mut self, used: &Vars) {
        if used.whole_row {
            self.no(Construct::WholeRow);
        }
        if used.system {
            self.no(Construct::SystemColumn);
        }
        if used.outer {
            self.no(Construct::Lateral);
        }
    }

    unsafe fn check_comparable(&mut self, node: Node) -> Result<()> {
        // SAFETY: an expression.
        let (type_oid, collation) = unsafe { (pg_sys::exprType(node), pg_sys::exprCollation(node)) };
        self.check_type_comparable(type_oid, collation);
        Ok(())
    }

    fn check_type_comparable(&mut self, type_oid: pg_sys::Oid, collation: pg_sys::Oid) {
        // SAFETY: look-ups by oid.
        unsafe {
            if collation != pg_sys::InvalidOid && !pg_sys::get_collation_isdeterministic(collation) {
                self.no(Construct::Collation);
            }
            if !type_comparable(type_oid) {
                self.no_what(Construct::TypeWithoutEquality, type_sql(type_oid, -1));
            }
        }
    }

    /// How one aggregate call is kept, and the printed expression it reads (None for `count(*)`).
    unsafe fn aggregate_function(
        &mut self,
        printer: &Printer,
        aggref: *mut pg_sys::Aggref,
    ) -> Result<Option<(Func, Option<String>)>> {
        // SAFETY: a valid Aggref.
        unsafe {
            let oid = (*aggref).aggfnoid;
            let name = CStr::from_ptr(pg_sys::get_func_name(oid)).to_string_lossy().into_owned();
            if !(*aggref).aggdistinct.is_null() || !(*aggref).aggorder.is_null() {
                self.no_what(Construct::AggregateModifier, format!("{name}()"));
                return Ok(None);
            }
            let builtin = oid.to_u32() < 16384 && (*aggref).aggkind as u8 == b'n';
            let filter = if (*aggref).aggfilter.is_null() {
                None
            } else {
                Some(printer.print((*aggref).aggfilter.cast())?)
            };
            let arguments = PgList::<pg_sys::TargetEntry>::from_pg((*aggref).args);
            if builtin && (*aggref).aggstar && name == "count" {
                let counted = filter.map(|f| format!("CASE WHEN {f} THEN true END"));
                return Ok(Some((counted.as_ref().map_or(Func::CountStar, |_| Func::Count), counted)));
            }
            let (Some(argument), 1) = (arguments.get_ptr(0), arguments.len()) else {
                self.no_what(Construct::Aggregate, format!("{name}()"));
                return Ok(None);
            };
            let argument: Node = (*argument).expr.cast();
            let Some(func) = known_aggregate(&name, pg_sys::exprType(argument)).filter(|_| builtin) else {
                self.no_what(Construct::Aggregate, format!("{name}()"));
                return Ok(None);
            };
            let mut text = printer.print(argument)?;
            if func == Func::Count {
                text = format!("CASE WHEN ({text}) IS DISTINCT FROM NULL THEN true END");
            } else {
                self.check_type_comparable(pg_sys::exprType(argument), pg_sys::exprCollation(argument));
            }
            if let Some(filter) = filter {
                text = format!("CASE WHEN {filter} THEN {text} END");
            }
            Ok(Some((func, Some(text))))
        }
    }
}

/// The rule for a built-in aggregate by name and argument type.
fn known_aggregate(name: &str, argument: pg_sys::Oid) -> Option<Func> {
    let num = match argument {
        pg_sys::INT2OID | pg_sys::INT4OID => Some(Num::Int),
        pg_sys::INT8OID => Some(Num::Big),
        pg_sys::NUMERICOID => Some(Num::Numeric),
        _ => None,
    };
    let float = matches!(argument, pg_sys::FLOAT4OID | pg_sys::FLOAT8OID);
    let ordered = num.is_some()
        || matches!(
            argument,
            pg_sys::DATEOID
                | pg_sys::TIMESTAMPOID
                | pg_sys::TIMESTAMPTZOID
                | pg_sys::TIMEOID
                | pg_sys::TEXTOID
        );
    match name {
        "count" => Some(Func::Count),
        "sum" => num.map(Func::Sum).or(float.then(|| Func::Recompute("pg_catalog.sum".into()))),
        "avg" => num.map(Func::Avg).or(float.then(|| Func::Recompute("pg_catalog.avg".into()))),
        "min" if float => Some(Func::Recompute("pg_catalog.min".into())),
        "max" if float => Some(Func::Recompute("pg_catalog.max".into())),
        "min" => ordered.then_some(Func::Min),
        "max" => ordered.then_some(Func::Max),
        _ => None,
    }
}

#[derive(Default)]
struct From {
    inputs: Vec<i32>,
    quals: Vec<Node>,
}

/// Columns of the block's own range table entries that expressions use.
#[derive(Default)]
struct Vars {
    columns: BTreeMap<i32, BTreeSet<i16>>,
    whole_row: bool,
    system: bool,
    outer: bool,
}

impl Vars {
    unsafe fn collect(&mut self, node: Node) {
        // SAFETY: the context outlives the walk.
        unsafe { compat::walk(visit_vars, node, std::ptr::from_mut(self).cast()) };
    }
}

/// # Safety
/// A tree walker callback; `context` is a `Vars`.
#[pg_guard]
unsafe extern "C-unwind" fn visit_vars(node: Node, context: *mut std::ffi::c_void) -> bool {
    if node.is_null() {
        return false;
    }
    // SAFETY: per the contract.
    unsafe {
        if (*node).type_ == pg_sys::NodeTag::T_Var {
            let var = node.cast::<pg_sys::Var>();
            let vars = &mut *context.cast::<Vars>();
            match (*var).varattno {
                _ if (*var).varlevelsup > 0 => vars.outer = true,
                0 => vars.whole_row = true,
                n if n < 0 => vars.system = true,
                n => {
                    vars.columns.entry((*var).varno).or_default().insert(n);
                }
            }
            return false;
        }
        pg_sys::expression_tree_walker(node, Some(visit_vars), context)
    }
}

#[derive(Default)]
struct Grouping {
    keys: Vec<Node>,
    aggrefs: Vec<*mut pg_sys::Aggref>,
    loose: Vec<Node>,
    grouping_func: bool,
}

impl Grouping {
    /// A copy of `node` in which keys and aggregate calls are columns of entry `above`.
    unsafe fn lift(&self, node: Node, above: u32) -> Node {
        let mut lift = Lift { grouping: self, above };
        // SAFETY: the context outlives the mutation.
        unsafe { compat::mutate(lift_node, node, std::ptr::from_mut(&mut lift).cast()) }
    }
}

struct Lift<'a> {
    grouping: &'a Grouping,
    above: u32,
}

/// # Safety
/// A tree walker callback; `context` is a `Grouping`.
#[pg_guard]
unsafe extern "C-unwind" fn visit_grouping(node: Node, context: *mut std::ffi::c_void) -> bool {
    if node.is_null() {
        return false;
    }
    // SAFETY: per the contract.
    unsafe {
        let grouping = &mut *context.cast::<Grouping>();
        if grouping.keys.iter().any(|k| pg_sys::equal((*k).cast(), node.cast())) {
            return false;
        }
        match (*node).type_ {
            pg_sys::NodeTag::T_Aggref => {
                if !grouping.aggrefs.iter().any(|a| pg_sys::equal((*a).cast(), node.cast())) {
                    grouping.aggrefs.push(node.cast());
                }
                false
            }
            pg_sys::NodeTag::T_GroupingFunc => {
                grouping.grouping_func = true;
                false
            }
            pg_sys::NodeTag::T_Var => {
                grouping.loose.push(node);
                false
            }
            _ => pg_sys::expression_tree_walker(node, Some(visit_grouping), context),
        }
    }
}

/// # Safety
/// A tree mutator callback; `context` is a `Lift`.
#[pg_guard]
unsafe extern "C-unwind" fn lift_node(node: Node, context: *mut std::ffi::c_void) -> Node {
    if node.is_null() {
        return node;
    }
    // SAFETY: per the contract; the new Var has the type of what it replaces.
    unsafe {
        let lift = &*context.cast::<Lift>();
        let keys = &lift.grouping.keys;
        let position = keys.iter().position(|k| pg_sys::equal((*k).cast(), node.cast())).or_else(|| {
            let aggs = &lift.grouping.aggrefs;
            ((*node).type_ == pg_sys::NodeTag::T_Aggref)
                .then(|| aggs.iter().position(|a| pg_sys::equal((*a).cast(), node.cast())))
                .flatten()
                .map(|i| keys.len() + i)
        });
        match position {
            Some(i) => pg_sys::makeVar(
                lift.above as _,
                i as pg_sys::AttrNumber + 1,
                pg_sys::exprType(node),
                pg_sys::exprTypmod(node),
                pg_sys::exprCollation(node),
                0,
            )
            .cast(),
            None => compat::mutate_children(node, lift_node, context),
        }
    }
}

unsafe fn print_all(printer: &Printer, nodes: &[Node]) -> Result<Vec<String>> {
    // SAFETY: expressions over the printer's range table.
    nodes.iter().map(|n| unsafe { printer.print(*n) }).collect()
}

unsafe fn resolved_copy(q: *mut pg_sys::Query, node: Node) -> Node {
    // SAFETY: an expression of `q`, or null.
    unsafe { compat::resolve_aliases(q, pg_sys::copyObjectImpl(node.cast()).cast()) }
}

unsafe fn split_conjuncts(node: Node, out: &mut Vec<Node>) {
    // SAFETY: an expression or null, or a list of conjuncts.
    unsafe {
        if node.is_null() {
            return;
        }
        if (*node).type_ == pg_sys::NodeTag::T_BoolExpr {
            let expr = node.cast::<pg_sys::BoolExpr>();
            if (*expr).boolop == pg_sys::BoolExprType::AND_EXPR {
                for child in PgList::<pg_sys::Node>::from_pg((*expr).args).iter_ptr() {
                    split_conjuncts(child, out);
                }
                return;
            }
        }
        out.push(node);
    }
}

unsafe fn range_table_entry(q: *mut pg_sys::Query, index: i32) -> Result<*mut pg_sys::RangeTblEntry> {
    // SAFETY: `q` is valid; the index is checked.
    unsafe {
        usize::try_from(index - 1)
            .ok()
            .and_then(|i| PgList::<pg_sys::RangeTblEntry>::from_pg((*q).rtable).get_ptr(i))
            .ok_or_else(|| Error::Internal(format!("no range table entry {index}")))
    }
}

/// Output entries, without those that only ORDER BY or GROUP BY need.
unsafe fn target_entries(q: *mut pg_sys::Query) -> impl Iterator<Item = *mut pg_sys::TargetEntry> {
    // SAFETY: `q` is valid.
    let all: Vec<_> = unsafe {
        PgList::<pg_sys::TargetEntry>::from_pg((*q).targetList)
            .iter_ptr()
            .filter(|te| !(**te).resjunk)
            .collect()
    };
    all.into_iter()
}

unsafe fn oids(list: *mut pg_sys::List) -> impl Iterator<Item = pg_sys::Oid> {
    // SAFETY: a list of oids.
    let all: Vec<_> = unsafe { PgList::<pg_sys::Oid>::from_pg(list).iter_oid().collect() };
    all.into_iter()
}

unsafe fn list_length(list: *mut pg_sys::List) -> usize {
    // SAFETY: a list or null.
    unsafe { PgList::<pg_sys::Node>::from_pg(list).len() }
}

/// Has the type an equality of PostgreSQL's own and a hash, so that rows are found by value whatever the search_path?
fn type_comparable(type_oid: pg_sys::Oid) -> bool {
    // SAFETY: the entry lives in the type cache for good.
    unsafe {
        let flags = pg_sys::TYPECACHE_EQ_OPR | pg_sys::TYPECACHE_HASH_EXTENDED_PROC;
        let entry = pg_sys::lookup_type_cache(type_oid, flags as i32);
        let equality = (*entry).eq_opr.to_u32();
        equality != 0 && equality < 16384 && (*entry).hash_extended_proc != pg_sys::InvalidOid
    }
}

fn type_sql(type_oid: pg_sys::Oid, typmod: i32) -> String {
    let flags = pg_sys::FORMAT_TYPE_TYPEMOD_GIVEN | pg_sys::FORMAT_TYPE_FORCE_QUALIFY;
    // SAFETY: a type that exists; the text is copied.
    unsafe {
        CStr::from_ptr(pg_sys::format_type_extended(type_oid, typmod, flags as u16))
            .to_string_lossy()
            .into_owned()
    }
}

/// Output columns of an analysed query.
///
/// # Safety
/// `query` is valid.
pub unsafe fn output_columns(query: *mut pg_sys::Query) -> Result<Vec<OutputColumn>> {
    // SAFETY: per the contract.
    unsafe {
        let columns: Vec<OutputColumn> = target_entries(query)
            .map(|te| {
                let expr: Node = (*te).expr.cast();
                let type_oid = pg_sys::exprType(expr);
                let typmod = pg_sys::exprTypmod(expr);
                let collation = pg_sys::exprCollation(expr);
                let plain =
                    collation == pg_sys::InvalidOid || pg_sys::get_collation_isdeterministic(collation);
                OutputColumn {
                    name: if (*te).resname.is_null() {
                        "?column?".into()
                    } else {
                        CStr::from_ptr((*te).resname).to_string_lossy().into_owned()
                    },
                    type_oid: type_oid.to_u32(),
                    typmod,
                    collation: collation.to_u32(),
                    type_sql: type_sql(type_oid, typmod),
                    comparable: plain && type_comparable(type_oid),
                }
            })
            .collect();
        if columns.is_empty() {
            return Err(Error::Refused {
                reason: "NO_COLUMNS",
                what: "it has no output column".into(),
                hint: "Select at least one column.".into(),
            });
        }
        Ok(columns)
    }
}
