//! Query text to PostgreSQL's analysed tree, and the tree to our picture of it.
//!
//! # Safety
//! Functions here that are not safe to call take nodes, descriptors or call data of PostgreSQL that are valid and of the
//! type that their names say; those that walk trees get the context that their caller passes along with them.

use std::ffi::CStr;

use pgrx::pg_sys;
use pgrx::{PgList, pg_guard};

use super::convert::{Converter, output_columns};
use super::{Analysis, OutputColumn, UseKind, uses};
use crate::dvm::support::{Construct, Unsupported};
use crate::error::{Error, Result};
use crate::model::Oid;
use crate::pg::compat;
use crate::pg::foreign;
use crate::pg::secctx::{PINNED, with_settings};
use crate::pg::spi::c_string;
use crate::sqltext;

/// A query as it is stored.
#[derive(Debug, Clone)]
pub struct Parsed {
    /// PostgreSQL's print, all names qualified.
    pub text: String,
    /// PostgreSQL's node text of the analysed, not yet rewritten query; valid in this major version.
    pub tree: String,
    pub columns: Vec<OutputColumn>,
}

impl Parsed {
    /// What is stored of a query, with its present picture.
    pub fn stored(text: &str, tree: &str, analysis: &Analysis) -> Self {
        Parsed { text: text.to_string(), tree: tree.to_string(), columns: analysis.columns.clone() }
    }
}

/// Parses and resolves `text` with the current user's rights and search_path. Errors of PostgreSQL are raised as such.
pub fn parse(text: &str) -> Result<Parsed> {
    let text = c_string(text)?;
    foreign::in_query(&text, || parse_text(&text))
}

fn parse_text(text: &CStr) -> Result<Parsed> {
    // SAFETY: PostgreSQL's own entry points in their usual order, on strings and trees of the current memory context.
    unsafe {
        let raw = PgList::<pg_sys::RawStmt>::from_pg(pg_sys::raw_parser(
            text.as_ptr(),
            pg_sys::RawParseMode::RAW_PARSE_DEFAULT,
        ));
        let statement = match (raw.len(), raw.get_ptr(0)) {
            (1, Some(statement)) => statement,
            (0, _) | (_, None) => return Err(Error::NotASelect { found: "no statement".into() }),
            (n, _) => return Err(Error::NotASelect { found: format!("{n} statements") }),
        };
        check_raw((*statement).stmt)?;
        let query = pg_sys::parse_analyze_fixedparams(
            statement,
            text.as_ptr(),
            std::ptr::null(),
            0,
            std::ptr::null_mut(),
        );
        check_analysed(query)?;
        let tree = CStr::from_ptr(pg_sys::nodeToString(query.cast())).to_string_lossy().into_owned();
        Ok(Parsed { text: print_query(query)?, tree, columns: output_columns(query)? })
    }
}

/// Type, modifier and collation of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnType {
    pub type_oid: Oid,
    pub typmod: i32,
    pub collation: Oid,
}

/// The columns of a SELECT of our own.
pub fn describe(sql: &str) -> Result<Vec<ColumnType>> {
    let text = c_string(sql)?;
    // SAFETY: as in `parse`.
    unsafe {
        let raw = PgList::<pg_sys::RawStmt>::from_pg(pg_sys::raw_parser(
            text.as_ptr(),
            pg_sys::RawParseMode::RAW_PARSE_DEFAULT,
        ));
        let statement = raw.get_ptr(0).ok_or_else(|| Error::Internal("nothing to describe".into()))?;
        let nothing = std::ptr::null_mut();
        let query = pg_sys::parse_analyze_fixedparams(statement, text.as_ptr(), std::ptr::null(), 0, nothing);
        let entries = PgList::<pg_sys::TargetEntry>::from_pg((*query).targetList);
        let shown = entries.iter_ptr().filter(|entry| !(**entry).resjunk);
        Ok(shown
            .map(|entry| {
                let expression = (*entry).expr.cast();
                ColumnType {
                    type_oid: pg_sys::exprType(expression).to_u32(),
                    typmod: pg_sys::exprTypmod(expression),
                    collation: pg_sys::exprCollation(expression).to_u32(),
                }
            })
            .collect())
    }
}

/// The text of a stored tree with the present names.
pub fn print_tree(tree: &str) -> Result<String> {
    // SAFETY: `read_tree` gives a valid query.
    unsafe { print_query(read_tree(tree)?) }
}

/// The picture of a stored tree: rewritten with the present views, for the current user.
pub fn analyse(tree: &str) -> Result<Analysis> {
    // SAFETY: `read_tree` gives a valid query of our own; the rewriter gets locked relations, as it demands.
    unsafe {
        let query = read_tree(tree)?;
        check_sources(query)?;
        let columns = output_columns(query)?;
        pg_sys::AcquireRewriteLocks(query, true, false);
        let rewritten = PgList::<pg_sys::Query>::from_pg(pg_sys::QueryRewrite(query));
        let Some(rewritten) = rewritten.get_ptr(0).filter(|_| rewritten.len() == 1) else {
            return Err(Error::Internal("the rewriter did not return one query".into()));
        };
        check_sources(rewritten)?;
        refuse_volatile(rewritten)?;
        let uses = uses::collect(rewritten);
        let mut converter = Converter::default();
        if pg_sys::contain_mutable_functions(rewritten.cast()) {
            let name = find_function(rewritten, pg_sys::PROVOLATILE_STABLE);
            converter.unsupported.push(Unsupported::new(Construct::StableFunction, name));
        }
        for column in columns.iter().filter(|c| !c.comparable) {
            converter.unsupported.push(Unsupported::new(
                Construct::TypeWithoutEquality,
                format!("column {} of type {}", sqltext::ident(&column.name), column.type_sql),
            ));
        }
        let plan = converter.convert(rewritten)?;
        debug_assert!(uses.iter().any(|u| u.kind == UseKind::Source) || plan.is_err());
        Ok(Analysis { plan, columns, uses })
    }
}

unsafe fn print_query(query: *mut pg_sys::Query) -> Result<String> {
    with_settings(PINNED, || {
        // SAFETY: a copy is printed, since printing takes locks and may touch the tree.
        let text = unsafe {
            let copy = pg_sys::copyObjectImpl(query.cast()).cast::<pg_sys::Query>();
            CStr::from_ptr(pg_sys::pg_get_querydef(copy, false)).to_string_lossy().into_owned()
        };
        Ok(text.trim().trim_end_matches(';').to_string())
    })
}

/// Prints a tree made from a stored one.
///
/// # Safety
/// `query` is valid.
pub(super) unsafe fn print_loaded(query: *mut pg_sys::Query) -> Result<String> {
    // SAFETY: per the contract.
    unsafe { print_query(query) }
}

/// A stored tree as nodes in the current memory context.
///
/// # Safety
/// The text comes from our catalog.
pub(super) unsafe fn read_tree(tree: &str) -> Result<*mut pg_sys::Query> {
    let text = c_string(tree)?;
    // SAFETY: the text was written by nodeToString of this major version and is kept where only superusers write.
    unsafe {
        let node = pg_sys::stringToNode(text.as_ptr().cast_mut()).cast::<pg_sys::Node>();
        if node.is_null() || (*node).type_ != pg_sys::NodeTag::T_Query {
            return Err(Error::Internal("a stored query is not a query tree".into()));
        }
        Ok(node.cast())
    }
}

unsafe fn check_raw(statement: *mut pg_sys::Node) -> Result<()> {
    // SAFETY: a raw statement node.
    unsafe {
        if (*statement).type_ != pg_sys::NodeTag::T_SelectStmt {
            let tag = CStr::from_ptr(pg_sys::GetCommandTagName(pg_sys::CreateCommandTag(statement)));
            return Err(Error::NotASelect { found: tag.to_string_lossy().into_owned() });
        }
        let select = statement.cast::<pg_sys::SelectStmt>();
        if !(*select).intoClause.is_null() {
            return Err(Error::NotASelect { found: "SELECT INTO".into() });
        }
        Ok(())
    }
}

unsafe fn check_analysed(query: *mut pg_sys::Query) -> Result<()> {
    // SAFETY: a valid analysed query.
    unsafe {
        if (*query).commandType != pg_sys::CmdType::CMD_SELECT || !(*query).utilityStmt.is_null() {
            return Err(Error::NotASelect { found: "another command".into() });
        }
        if (*query).hasModifyingCTE {
            return Err(Error::NotASelect { found: "a data-modifying WITH".into() });
        }
        if (*query).hasForUpdate || !(*query).rowMarks.is_null() {
            return Err(Error::NotASelect { found: "SELECT FOR UPDATE or SHARE".into() });
        }
        Ok(())
    }
}

/// Every relation of the query and of its subqueries must be one that can be watched, and every LIMIT mean something.
unsafe fn check_sources(query: *mut pg_sys::Query) -> Result<()> {
    let mut walk = SourceWalk { error: None };
    // SAFETY: the context outlives the walk.
    unsafe { compat::walk(visit_sources, query.cast(), std::ptr::from_mut(&mut walk).cast()) };
    walk.error.map_or(Ok(()), Err)
}

struct SourceWalk {
    error: Option<Error>,
}

/// # Safety
/// A tree walker callback; `context` is a `SourceWalk`.
#[pg_guard]
unsafe extern "C-unwind" fn visit_sources(node: *mut pg_sys::Node, context: *mut std::ffi::c_void) -> bool {
    if node.is_null() {
        return false;
    }
    // SAFETY: per the contract; casts follow tags.
    unsafe {
        match (*node).type_ {
            pg_sys::NodeTag::T_Query if has_bare_limit(node.cast()) => {
                (*context.cast::<SourceWalk>()).error = Some(Error::Refused {
                    reason: "LIMIT_WITHOUT_ORDER",
                    what: "LIMIT or OFFSET without ORDER BY: which rows it returns is not defined".into(),
                    hint: "Add ORDER BY over a unique set of columns, or remove LIMIT and OFFSET.".into(),
                });
                true
            }
            pg_sys::NodeTag::T_Query => pg_sys::query_tree_walker(
                node.cast(),
                Some(visit_sources),
                context,
                pg_sys::QTW_EXAMINE_RTES_BEFORE as i32,
            ),
            pg_sys::NodeTag::T_RangeTblEntry => {
                let rte = node.cast::<pg_sys::RangeTblEntry>();
                let walk = &mut *context.cast::<SourceWalk>();
                if (*rte).relid != pg_sys::InvalidOid {
                    // Not the entry's own relkind: a view's entry has lost it after rewriting.
                    let relkind = pg_sys::get_rel_relkind((*rte).relid) as u8;
                    walk.error = check_source((*rte).relid, relkind);
                }
                walk.error.is_some()
            }
            _ => pg_sys::expression_tree_walker(node, Some(visit_sources), context),
        }
    }
}

unsafe fn has_bare_limit(query: *mut pg_sys::Query) -> bool {
    // SAFETY: a valid query.
    unsafe {
        let limited = !(*query).limitCount.is_null() || !(*query).limitOffset.is_null();
        limited && (*query).sortClause.is_null()
    }
}

unsafe fn check_source(relid: pg_sys::Oid, relkind: u8) -> Option<Error> {
    // SAFETY: syscache look-ups by oid; a relation that is gone has no name and is reported so.
    let (schema, name, temporary) = unsafe {
        let name = pg_sys::get_rel_name(relid);
        if name.is_null() {
            return Some(Error::BadSource {
                source_name: format!("relation {}", relid.to_u32()),
                kind: "dropped".into(),
                reason: "SOURCE_DROPPED",
                hint: "Recreate it, or change the query with pgtrickle.alter_stream_table_query().".into(),
            });
        }
        let schema = pg_sys::get_namespace_name(pg_sys::get_rel_namespace(relid));
        let schema = if schema.is_null() {
            String::new()
        } else {
            CStr::from_ptr(schema).to_string_lossy().into_owned()
        };
        let temporary = pg_sys::get_rel_persistence(relid) as u8 == pg_sys::RELPERSISTENCE_TEMP;
        (schema, CStr::from_ptr(name).to_string_lossy().into_owned(), temporary)
    };
    let bad = |kind: &str, reason: &'static str, hint: &str| {
        Some(Error::BadSource {
            source_name: sqltext::display(&schema, &name),
            kind: kind.into(),
            reason,
            hint: hint.into(),
        })
    };
    if temporary {
        return bad("temporary", "TEMP_TABLE", "Use a permanent table.");
    }
    if relid.to_u32() < 16384 {
        return bad(
            "a system catalog",
            "SYSTEM_CATALOG",
            "Query the catalog directly, or through an ordinary view.",
        );
    }
    if schema == "pgtrickle" || schema == "pgtrickle_internal" {
        return bad("a part of pgtrickle", "OWN_CATALOG", "Query it directly, or through an ordinary view.");
    }
    match relkind {
        pg_sys::RELKIND_RELATION
        | pg_sys::RELKIND_PARTITIONED_TABLE
        | pg_sys::RELKIND_VIEW
        | pg_sys::RELKIND_MATVIEW => None,
        pg_sys::RELKIND_FOREIGN_TABLE => bad(
            "a foreign table",
            "FOREIGN_TABLE",
            "Copy it into a table first; changes made elsewhere are not seen here.",
        ),
        pg_sys::RELKIND_SEQUENCE => bad("a sequence", "SEQUENCE", "Sequences change without any row event."),
        _ => bad("not a table or view", "NOT_A_TABLE", "Use tables and views."),
    }
}

unsafe fn refuse_volatile(query: *mut pg_sys::Query) -> Result<()> {
    // SAFETY: a valid query.
    unsafe {
        if pg_sys::contain_volatile_functions(query.cast()) {
            let name = find_function(query, pg_sys::PROVOLATILE_VOLATILE);
            return Err(Error::Refused {
                reason: "VOLATILE_FUNCTION",
                what: format!("function {name} is volatile: its result differs from call to call"),
                hint: "Store the value in a column of the source when the row is written, and select that."
                    .into(),
            });
        }
        Ok(())
    }
}

struct FunctionWalk {
    volatility: u8,
    found: pg_sys::Oid,
    word: &'static str,
}

/// Name of the first function of this volatility, as far as it shows in the tree.
unsafe fn find_function(query: *mut pg_sys::Query, volatility: u8) -> String {
    let mut walk = FunctionWalk { volatility, found: pg_sys::InvalidOid, word: "" };
    // SAFETY: the context outlives the walk; the function's name is read from the syscache.
    unsafe {
        compat::walk(visit_functions, query.cast(), std::ptr::from_mut(&mut walk).cast());
        if walk.found == pg_sys::InvalidOid {
            return walk.word.to_string();
        }
        let name = pg_sys::get_func_name(walk.found);
        if name.is_null() { String::new() } else { format!("{}()", CStr::from_ptr(name).to_string_lossy()) }
    }
}

/// # Safety
/// Callback of check_functions_in_node; `context` is a `FunctionWalk`.
#[pg_guard]
unsafe extern "C-unwind" fn check_function(function: pg_sys::Oid, context: *mut std::ffi::c_void) -> bool {
    // SAFETY: per the contract.
    unsafe {
        let walk = &mut *context.cast::<FunctionWalk>();
        let hit = pg_sys::func_volatile(function) as u8 == walk.volatility;
        if hit {
            walk.found = function;
        }
        hit
    }
}

/// # Safety
/// A tree walker callback; `context` is a `FunctionWalk`.
#[pg_guard]
unsafe extern "C-unwind" fn visit_functions(node: *mut pg_sys::Node, context: *mut std::ffi::c_void) -> bool {
    if node.is_null() {
        return false;
    }
    // SAFETY: per the contract; casts follow tags.
    unsafe {
        if (*node).type_ == pg_sys::NodeTag::T_Query {
            return pg_sys::query_tree_walker(node.cast(), Some(visit_functions), context, 0);
        }
        if (*node).type_ == pg_sys::NodeTag::T_SQLValueFunction {
            let walk = &mut *context.cast::<FunctionWalk>();
            if walk.volatility == pg_sys::PROVOLATILE_STABLE {
                walk.word = "CURRENT_DATE, CURRENT_USER or the like";
                return true;
            }
        }
        if pg_sys::check_functions_in_node(node, Some(check_function), context) {
            return true;
        }
        pg_sys::expression_tree_walker(node, Some(visit_functions), context)
    }
}
