//! Which of PostgreSQL's settings count for our own work: the one list of what is pinned. A setting may be changed for a
//! database, a role or a session; what pgtrickle parses, prints, plans, sees and writes must not depend on that.
//!
//! Not pinned, on purpose: `TimeZone` and `lc_*`, which say what a user's own expression means; memory, cost constants,
//! parallelism and `synchronous_commit`, which say how much a refresh may use; time limits and messages of a session that
//! calls us, which are its own. And a query's text is read as its author's session reads it, as in CREATE VIEW.

use std::cell::Cell;
use std::ffi::CStr;

use pgrx::pg_sys;

use crate::error::Result;

/// Name and value, in the form that the setting is shown in without its unit.
pub type Setting = (&'static CStr, &'static CStr);

/// In force in every piece of work of ours. Names that this version of PostgreSQL does not know are passed over.
pub const PINNED: &[Setting] = &[
    // Parsing.
    (c"search_path", c"pg_catalog, pg_temp"),
    (c"standard_conforming_strings", c"on"),
    (c"backslash_quote", c"safe_encoding"),
    (c"transform_null_equals", c"off"),
    (c"array_nulls", c"on"),
    (c"xmloption", c"content"),
    // Printing.
    (c"quote_all_identifiers", c"off"),
    (c"DateStyle", c"ISO, MDY"),
    (c"IntervalStyle", c"postgres"),
    (c"extra_float_digits", c"1"),
    (c"bytea_output", c"hex"),
    (c"xmlbinary", c"base64"),
    // What is seen, and what fires.
    (c"row_security", c"on"),
    (c"session_replication_role", c"origin"),
    (c"gin_fuzzy_search_limit", c"0"),
    (c"lo_compat_privileges", c"off"),
    (c"restrict_nonsystem_relation_kind", c""),
    (c"zero_damaged_pages", c"off"),
    (c"ignore_checksum_failure", c"off"),
    // Writing.
    (c"check_function_bodies", c"on"),
    (c"default_tablespace", c""),
    (c"temp_tablespaces", c""),
    (c"default_table_access_method", c"heap"),
    (c"default_toast_compression", c"pglz"),
    // Planning.
    (c"plan_cache_mode", c"auto"),
    (c"constraint_exclusion", c"partition"),
    (c"cursor_tuple_fraction", c"0.1"),
    (c"from_collapse_limit", c"8"),
    (c"join_collapse_limit", c"8"),
    (c"recursive_worktable_factor", c"10"),
    (c"geqo", c"on"),
    (c"geqo_threshold", c"12"),
    (c"geqo_effort", c"5"),
    (c"geqo_generations", c"0"),
    (c"geqo_pool_size", c"0"),
    (c"geqo_seed", c"0"),
    (c"geqo_selection_bias", c"2"),
    (c"jit", c"off"),
    (c"synchronize_seqscans", c"on"),
    (c"parallel_leader_participation", c"on"),
    (c"force_parallel_mode", c"off"),
    (c"debug_parallel_query", c"off"),
    (c"enable_async_append", c"on"),
    (c"enable_bitmapscan", c"on"),
    (c"enable_distinct_reordering", c"on"),
    (c"enable_gathermerge", c"on"),
    (c"enable_group_by_reordering", c"on"),
    (c"enable_hashagg", c"on"),
    (c"enable_hashjoin", c"on"),
    (c"enable_incremental_sort", c"on"),
    (c"enable_indexonlyscan", c"on"),
    (c"enable_indexscan", c"on"),
    (c"enable_material", c"on"),
    (c"enable_memoize", c"on"),
    (c"enable_mergejoin", c"on"),
    (c"enable_nestloop", c"on"),
    (c"enable_parallel_append", c"on"),
    (c"enable_parallel_hash", c"on"),
    (c"enable_partition_pruning", c"on"),
    (c"enable_partitionwise_aggregate", c"off"),
    (c"enable_partitionwise_join", c"off"),
    (c"enable_presorted_aggregate", c"on"),
    (c"enable_self_join_elimination", c"on"),
    (c"enable_seqscan", c"on"),
    (c"enable_sort", c"on"),
    (c"enable_tidscan", c"on"),
];

/// For our own processes on top of that, which are nobody's session: no limit but ours, no other role, and they write.
const WORKER: &[Setting] = &[
    (c"role", c"none"),
    (c"default_transaction_read_only", c"off"),
    (c"default_transaction_isolation", c"read committed"),
    (c"default_transaction_deferrable", c"off"),
    (c"statement_timeout", c"0"),
    (c"lock_timeout", c"0"),
    (c"idle_in_transaction_session_timeout", c"0"),
    (c"idle_session_timeout", c"0"),
    (c"transaction_timeout", c"0"),
    (c"client_min_messages", c"notice"),
    (c"exit_on_error", c"off"),
    (c"ignore_system_indexes", c"off"),
    (c"event_triggers", c"on"),
    (c"stats_fetch_consistency", c"cache"),
];

/// Differential plans exist only where no policy applies: if one does, it is an error.
pub const NO_POLICIES: &[Setting] = &[(c"row_security", c"off")];

/// Pins everything in this process, before it connects to a database: what is set for the database or the role later
/// counts for less, as in autovacuum.
pub fn pin_process() {
    for (name, value) in PINNED.iter().chain(WORKER) {
        if current(name).is_some() {
            set_override(name, value);
        }
    }
}

/// Longest wait for one lock from now on, in a process of ours.
pub fn set_lock_timeout(timeout: std::time::Duration) {
    if let Ok(text) = std::ffi::CString::new(timeout.as_millis().max(1).to_string()) {
        set_override(c"lock_timeout", &text);
    }
}

fn set_override(name: &CStr, value: &CStr) {
    // SAFETY: both are NUL-terminated and copied. The context allows what can be set only when a process starts.
    unsafe {
        pg_sys::SetConfigOption(
            name.as_ptr(),
            value.as_ptr(),
            pg_sys::GucContext::PGC_POSTMASTER,
            pg_sys::GucSource::PGC_S_OVERRIDE,
        );
    }
}

/// The setting as it is, if it exists.
fn current(name: &CStr) -> Option<&CStr> {
    // SAFETY: a look-up; what it returns is read before the next one.
    unsafe {
        let value = pg_sys::GetConfigOption(name.as_ptr(), true, false);
        if value.is_null() { None } else { Some(CStr::from_ptr(value)) }
    }
}

thread_local! {
    /// All of `PINNED` is in force, and nobody else's code has run since.
    static IN_FORCE: Cell<bool> = const { Cell::new(false) };
}

/// Plain thread-local state, so safe to restore while unwinding.
struct InForce(bool);

impl Drop for InForce {
    fn drop(&mut self) {
        IN_FORCE.set(self.0);
    }
}

/// Runs `f` with everything pinned.
pub fn pinned<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    if IN_FORCE.get() {
        return f();
    }
    with_settings(PINNED, || {
        let guard = InForce(IN_FORCE.replace(true));
        let result = f();
        drop(guard);
        result
    })
}

/// Runs `f`, which runs users' code: what that sets ends with it, as in an index's function.
pub fn foreign_code<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    let guard = InForce(IN_FORCE.replace(false));
    let result = with_settings(&[], f);
    drop(guard);
    result
}

/// Runs `f` with settings that end with it, and with all that `f` set by itself. Those that have the value already are
/// left alone, which is nearly always all of them.
pub fn with_settings<T>(settings: &[Setting], f: impl FnOnce() -> Result<T>) -> Result<T> {
    // SAFETY: a GUC nest level of our own, closed below, or by abort when `f` raises.
    let nest = unsafe { pg_sys::NewGUCNestLevel() };
    for (name, value) in settings {
        if current(name).is_some_and(|now| now != *value) {
            set_saving(name, value);
        }
    }
    let guard = InForce(IN_FORCE.replace(IN_FORCE.get() && settings.iter().all(|s| !changes_pinned(s))));
    let result = f();
    drop(guard);
    // SAFETY: closes the level opened above. False: what was set meanwhile goes as well.
    unsafe { pg_sys::AtEOXact_GUC(false, nest) };
    result
}

/// Is it another value than the pinned one?
fn changes_pinned((name, value): &Setting) -> bool {
    PINNED.iter().any(|(pinned, at)| pinned == name && at != value)
}

fn set_saving(name: &CStr, value: &CStr) {
    // SAFETY: both are NUL-terminated and copied; a nest level is open.
    unsafe {
        pg_sys::set_config_option(
            name.as_ptr(),
            value.as_ptr(),
            pg_sys::GucContext::PGC_SUSET,
            pg_sys::GucSource::PGC_S_SESSION,
            pg_sys::GucAction::GUC_ACTION_SAVE,
            true,
            0,
            false,
        );
    }
}
