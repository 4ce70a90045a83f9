//! Differences between PostgreSQL 15 and 18, in one place.

use pgrx::pg_sys;

/// Callback of `mutate_children`.
pub type Mutator = unsafe extern "C-unwind" fn(*mut pg_sys::Node, *mut std::ffi::c_void) -> *mut pg_sys::Node;

/// `expression_tree_mutator`.
///
/// # Safety
/// `node` is a valid expression tree; `context` is what `f` expects.
pub unsafe fn mutate_children(
    node: *mut pg_sys::Node,
    f: Mutator,
    context: *mut std::ffi::c_void,
) -> *mut pg_sys::Node {
    #[cfg(feature = "pg15")]
    // SAFETY: PostgreSQL 15 declares the callback without arguments and calls it with (node, context).
    unsafe {
        let bare = std::mem::transmute::<Mutator, unsafe extern "C-unwind" fn() -> *mut pg_sys::Node>(f);
        pg_sys::expression_tree_mutator(node, Some(bare), context)
    }
    #[cfg(not(feature = "pg15"))]
    // SAFETY: per the contract.
    unsafe {
        pg_sys::expression_tree_mutator_impl(node, Some(f), context)
    }
}

/// `query_tree_mutator` on a copy of `query`.
///
/// # Safety
/// As `mutate_children`.
pub unsafe fn mutate_query(
    query: *mut pg_sys::Query,
    f: Mutator,
    context: *mut std::ffi::c_void,
) -> *mut pg_sys::Query {
    #[cfg(feature = "pg15")]
    // SAFETY: as above.
    unsafe {
        let bare = std::mem::transmute::<Mutator, unsafe extern "C-unwind" fn() -> *mut pg_sys::Node>(f);
        pg_sys::query_tree_mutator(query, Some(bare), context, 0)
    }
    #[cfg(not(feature = "pg15"))]
    // SAFETY: per the contract.
    unsafe {
        pg_sys::query_tree_mutator_impl(query, Some(f), context, 0)
    }
}

/// The expression with aliases of joins, and of grouping expressions (18), resolved to what they stand for.
///
/// # Safety
/// `node` is an expression (or list) of `query`.
pub unsafe fn resolve_aliases(query: *mut pg_sys::Query, node: *mut pg_sys::Node) -> *mut pg_sys::Node {
    if node.is_null() {
        return node;
    }
    // SAFETY: per the contract.
    unsafe {
        #[cfg(feature = "pg18")]
        let node = if (*query).hasGroupRTE {
            pg_sys::flatten_group_exprs(std::ptr::null_mut(), query, node)
        } else {
            node
        };
        #[cfg(feature = "pg15")]
        return pg_sys::flatten_join_alias_vars(query, node);
        #[cfg(not(feature = "pg15"))]
        return pg_sys::flatten_join_alias_vars(std::ptr::null_mut(), query, node);
    }
}

/// Does the range table entry stand for grouping expressions (18), not for rows?
///
/// # Safety
/// `rte` is valid.
pub unsafe fn is_group_rte(rte: *mut pg_sys::RangeTblEntry) -> bool {
    #[cfg(feature = "pg18")]
    // SAFETY: per the contract.
    unsafe {
        (*rte).rtekind == pg_sys::RTEKind::RTE_GROUP
    }
    #[cfg(not(feature = "pg18"))]
    {
        let _ = rte;
        false
    }
}

/// Does `query` have a range table entry for its grouping expressions (18)?
///
/// # Safety
/// `query` is valid.
pub unsafe fn has_group_rte(query: *mut pg_sys::Query) -> bool {
    #[cfg(feature = "pg18")]
    // SAFETY: per the contract.
    unsafe {
        (*query).hasGroupRTE
    }
    #[cfg(not(feature = "pg18"))]
    {
        let _ = query;
        false
    }
}

/// pqsignal under its name of the version.
///
/// # Safety
/// `handler` is async-signal-safe.
pub unsafe fn set_signal_handler(signal: i32, handler: pg_sys::pqsigfunc) {
    #[cfg(feature = "pg18")]
    // SAFETY: per the contract.
    unsafe {
        pg_sys::pqsignal_be(signal, handler);
    }
    #[cfg(not(feature = "pg18"))]
    // SAFETY: per the contract.
    unsafe {
        pg_sys::pqsignal(signal, handler);
    }
}

/// Does the current user own the database?
pub fn owns_database(database: pg_sys::Oid) -> bool {
    // SAFETY: syscache look-ups.
    unsafe {
        #[cfg(feature = "pg15")]
        return pg_sys::pg_database_ownercheck(database, pg_sys::GetUserId());
        #[cfg(not(feature = "pg15"))]
        return pg_sys::object_ownercheck(pg_sys::DatabaseRelationId, database, pg_sys::GetUserId());
    }
}

/// May the current user create databases?
pub fn may_create_databases() -> bool {
    #[cfg(not(feature = "pg15"))]
    // SAFETY: a syscache look-up.
    return unsafe { pg_sys::have_createdb_privilege() };
    #[cfg(feature = "pg15")]
    // SAFETY: the tuple is read while it is held, and given back.
    unsafe {
        let kind = pg_sys::SysCacheIdentifier::AUTHOID as i32;
        let tuple = pg_sys::SearchSysCache1(kind, pg_sys::GetUserId().into());
        if tuple.is_null() {
            return false;
        }
        let may = (*pg_sys::heap_tuple_get_struct::<pg_sys::FormData_pg_authid>(tuple)).rolcreatedb;
        pg_sys::ReleaseSysCache(tuple);
        may
    }
}

/// Attribute `index` (from 0) of a row descriptor.
///
/// # Safety
/// `desc` is valid and `index` below its natts.
pub unsafe fn descriptor_attribute(
    desc: pg_sys::TupleDesc,
    index: usize,
) -> *mut pg_sys::FormData_pg_attribute {
    // SAFETY: per the contract. From 18 on the attributes follow the compact ones in the same allocation.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        return (*desc).attrs.as_mut_ptr().add(index);
        #[cfg(feature = "pg18")]
        return (*desc)
            .compact_attrs
            .as_mut_ptr()
            .add((*desc).natts as usize)
            .cast::<pg_sys::FormData_pg_attribute>()
            .add(index);
    }
}

/// Callback of tree walkers.
pub type Walker = unsafe extern "C-unwind" fn(*mut pg_sys::Node, *mut std::ffi::c_void) -> bool;

/// Begins a walk at `node`. A callback raises errors as PostgreSQL does, by a jump to the nearest guard: called from Rust
/// it needs one, or the jump passes over all Rust frames, whoever meant to catch it among them.
///
/// # Safety
/// `node` is valid or null; `context` is what `f` expects.
pub unsafe fn walk(f: Walker, node: *mut pg_sys::Node, context: *mut std::ffi::c_void) -> bool {
    // SAFETY: per the contract; nothing in the closure needs dropping.
    unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| f(node, context)) }
}

/// Begins a mutation at `node`; see `walk`.
///
/// # Safety
/// As `walk`.
pub unsafe fn mutate(
    f: Mutator,
    node: *mut pg_sys::Node,
    context: *mut std::ffi::c_void,
) -> *mut pg_sys::Node {
    // SAFETY: per the contract; nothing in the closure needs dropping.
    unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| f(node, context)) }
}

/// Gives a relation new, empty storage.
///
/// # Safety
/// An open relation with storage, locked exclusively.
pub unsafe fn set_new_storage(rel: pg_sys::Relation) {
    // SAFETY: per the contract.
    unsafe {
        let persistence = (*(*rel).rd_rel).relpersistence;
        #[cfg(feature = "pg15")]
        pg_sys::RelationSetNewRelfilenode(rel, persistence);
        #[cfg(not(feature = "pg15"))]
        pg_sys::RelationSetNewRelfilenumber(rel, persistence);
    }
}

/// Makes the indexes of a relation and of its TOAST table anew.
///
/// # Safety
/// The relation is locked exclusively.
pub unsafe fn rebuild_indexes(relation: pg_sys::Oid) {
    let flags = pg_sys::REINDEX_REL_PROCESS_TOAST as i32;
    let mut params = pg_sys::ReindexParams::default();
    // SAFETY: per the contract.
    unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        pg_sys::reindex_relation(relation, flags, &mut params);
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        pg_sys::reindex_relation(std::ptr::null(), relation, flags, &mut params);
    }
}

/// Which indexes need an entry for a new version of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Indexing {
    None,
    All,
    /// Those that summarize blocks (BRIN).
    #[cfg(not(feature = "pg15"))]
    Summarizing,
}

/// `heap_update` that does not wait for another transaction.
///
/// # Safety
/// `place` and `tuple` belong to the open heap table `rel`.
pub unsafe fn update_row(
    rel: pg_sys::Relation,
    place: pg_sys::ItemPointer,
    tuple: pg_sys::HeapTuple,
    command: pg_sys::CommandId,
) -> (pg_sys::TM_Result::Type, Indexing) {
    let mut failure = pg_sys::TM_FailureData::default();
    let mut lock = pg_sys::LockTupleMode::LockTupleKeyShare;
    let none = std::ptr::null_mut();
    #[cfg(feature = "pg15")]
    // SAFETY: per the contract. The flag of the new version, in a header written just now, says if it has entries of its own.
    unsafe {
        let result = pg_sys::heap_update(rel, place, tuple, command, none, true, &mut failure, &mut lock);
        let heap_only = u32::from((*(*tuple).t_data).t_infomask2) & pg_sys::HEAP_ONLY_TUPLE != 0;
        (result, if heap_only { Indexing::None } else { Indexing::All })
    }
    #[cfg(not(feature = "pg15"))]
    // SAFETY: per the contract.
    unsafe {
        use pg_sys::TU_UpdateIndexes::{TU_All, TU_Summarizing};
        let mut which = pg_sys::TU_UpdateIndexes::TU_None;
        let result =
            pg_sys::heap_update(rel, place, tuple, command, none, true, &mut failure, &mut lock, &mut which);
        let indexing = match which {
            TU_All => Indexing::All,
            TU_Summarizing => Indexing::Summarizing,
            _ => Indexing::None,
        };
        (result, indexing)
    }
}

/// Inserts a row's index entries; the unique indexes that may have it twice, without waiting to know.
///
/// # Safety
/// The indexes are those of the table whose written row is in `slot`.
pub unsafe fn insert_index_entries(
    indexes: pg_sys::CatalogIndexState,
    slot: *mut pg_sys::TupleTableSlot,
    executor: *mut pg_sys::EState,
    what: Indexing,
) -> *mut pg_sys::List {
    let mut conflict = false;
    let none = std::ptr::null_mut();
    #[cfg(feature = "pg15")]
    // SAFETY: per the contract.
    unsafe {
        let _ = what;
        pg_sys::ExecInsertIndexTuples(indexes, slot, executor, false, true, &mut conflict, none)
    }
    #[cfg(not(feature = "pg15"))]
    // SAFETY: per the contract.
    unsafe {
        let summarizing = what == Indexing::Summarizing;
        pg_sys::ExecInsertIndexTuples(indexes, slot, executor, false, true, &mut conflict, none, summarizing)
    }
}
