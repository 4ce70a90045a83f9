//! Printing expressions by PostgreSQL over neutral names: range table entry `i` is `r<i>`, its attribute `n` is `c<n>`.

use std::ffi::{CStr, CString};

use pgrx::PgList;
use pgrx::pg_sys;

use crate::error::{Error, Result};

/// A range table whose entries have neutral names, to print expressions over.
pub struct Printer {
    rtable: PgList<pg_sys::RangeTblEntry>,
}

/// The column alias under which an expression is printed; cut off again.
const LABEL: &CStr = c"pgtrickle_printed_expression";

impl Printer {
    /// Entries have as many columns as those of `query`; one more with `extra` columns follows (an aggregate's output).
    ///
    /// # Safety
    /// `query` is a valid analysed query.
    pub unsafe fn new(query: *mut pg_sys::Query, extra: usize) -> Self {
        // SAFETY: per the contract; new nodes are allocated in the current memory context.
        unsafe {
            let original = PgList::<pg_sys::RangeTblEntry>::from_pg((*query).rtable);
            let widths = original.iter_ptr().map(|rte| {
                let eref = (*rte).eref;
                if eref.is_null() { 0 } else { PgList::<pg_sys::Node>::from_pg((*eref).colnames).len() }
            });
            let mut rtable = PgList::new();
            for (i, width) in widths.chain(std::iter::once(extra)).enumerate() {
                rtable.push(neutral_entry(i + 1, width));
            }
            Printer { rtable }
        }
    }

    /// The expression's text.
    ///
    /// # Safety
    /// `node` is an expression over the range table given to `new`.
    pub unsafe fn print(&self, node: *mut pg_sys::Node) -> Result<String> {
        // SAFETY: a fresh query node around a copy of the expression; pg_get_querydef does not keep it.
        let text = unsafe {
            let query = new_node::<pg_sys::Query>(pg_sys::NodeTag::T_Query);
            (*query).commandType = pg_sys::CmdType::CMD_SELECT;
            (*query).rtable = self.rtable.as_ptr();
            (*query).jointree = pg_sys::makeFromExpr(std::ptr::null_mut(), std::ptr::null_mut());
            let expr = pg_sys::copyObjectImpl(node.cast()).cast::<pg_sys::Expr>();
            let entry = pg_sys::makeTargetEntry(expr, 1, LABEL.as_ptr().cast_mut(), false);
            let mut list = PgList::<pg_sys::TargetEntry>::new();
            list.push(entry);
            (*query).targetList = list.into_pg();
            let text = pg_sys::pg_get_querydef(query, false);
            CStr::from_ptr(text).to_string_lossy().into_owned()
        };
        let label = LABEL.to_string_lossy();
        text.trim()
            .strip_prefix("SELECT")
            .and_then(|t| t.trim_end().strip_suffix(&*label))
            .and_then(|t| t.trim_end().strip_suffix("AS"))
            .map(|t| t.trim().to_string())
            .ok_or_else(|| Error::Internal(format!("unexpected printed form of an expression: {text}")))
    }
}

/// A zeroed node with its tag, as makeNode does.
///
/// # Safety
/// `T` is the struct of `tag`.
pub unsafe fn new_node<T>(tag: pg_sys::NodeTag) -> *mut T {
    // SAFETY: palloc0 gives zeroed memory of the size; every node begins with its tag.
    unsafe {
        let node = pg_sys::palloc0(size_of::<T>()).cast::<T>();
        *node.cast::<pg_sys::NodeTag>() = tag;
        node
    }
}

/// # Safety
/// Allocates in the current memory context.
unsafe fn neutral_entry(index: usize, width: usize) -> *mut pg_sys::RangeTblEntry {
    // SAFETY: fresh nodes; strings are copied by makeString's pstrdup.
    unsafe {
        let rte = new_node::<pg_sys::RangeTblEntry>(pg_sys::NodeTag::T_RangeTblEntry);
        // VALUES: no lock is taken for it and its names come from eref alone.
        (*rte).rtekind = pg_sys::RTEKind::RTE_VALUES;
        let name = pstrdup(&format!("r{index}"));
        let mut columns = PgList::<pg_sys::Node>::new();
        for c in 1..=width {
            columns.push(pg_sys::makeString(pstrdup(&format!("c{c}"))).cast());
        }
        (*rte).alias = pg_sys::makeAlias(name, std::ptr::null_mut());
        (*rte).eref = pg_sys::makeAlias(name, columns.into_pg());
        rte
    }
}

/// A copy of `text` in the current memory context. `text` has no NUL byte.
pub fn pstrdup(text: &str) -> *mut std::ffi::c_char {
    let owned = CString::new(text).unwrap_or_else(|_| c"?".to_owned());
    // SAFETY: a NUL-terminated string, copied.
    unsafe { pg_sys::pstrdup(owned.as_ptr()) }
}
