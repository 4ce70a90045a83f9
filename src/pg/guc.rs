//! Settings `pg_trickle.*`: private statics, getters in domain types.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::time::Duration;

use pgrx::pg_sys;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting, PostgresGucEnum, pg_guard};

use crate::drift::rename::DEFAULT_THRESHOLD;
use crate::error::{Error, Result};
use crate::snapshot::hash::identifiers;
use crate::snapshot::profile::Form;

/// Which tables' shapes are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PostgresGucEnum)]
#[allow(non_camel_case_types)]
pub enum SchemaSnapshots {
    off,
    sources,
    all,
}

/// What of column values is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PostgresGucEnum)]
#[allow(non_camel_case_types)]
enum SnapshotValues {
    plain,
    hashed,
    off,
}

static ENABLED: GucSetting<bool> = GucSetting::<bool>::new(true);
static NAPTIME_MS: GucSetting<i32> = GucSetting::<i32>::new(1000);
static MAX_WORKER_PROCESSES: GucSetting<i32> = GucSetting::<i32>::new(0);
static MAX_WORKERS: GucSetting<i32> = GucSetting::<i32>::new(2);
static LOCK_TIMEOUT_MS: GucSetting<i32> = GucSetting::<i32>::new(1000);
static REFRESH_TIMEOUT_MS: GucSetting<i32> = GucSetting::<i32>::new(0);
static SCHEMA_SNAPSHOTS: GucSetting<SchemaSnapshots> =
    GucSetting::<SchemaSnapshots>::new(SchemaSnapshots::all);
static SNAPSHOT_VALUES: GucSetting<SnapshotValues> = GucSetting::<SnapshotValues>::new(SnapshotValues::plain);
static SNAPSHOT_TIMEOUT_MS: GucSetting<i32> = GucSetting::<i32>::new(1000);
static EXCLUDED_COLUMNS: GucSetting<Option<CString>> =
    GucSetting::<Option<CString>>::new(Some(c"_source_dataset_id, _ingested_at, _source_url"));
static RESOURCE_IDENTITY: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static RENAME_THRESHOLD: GucSetting<f64> = GucSetting::<f64>::new(DEFAULT_THRESHOLD);
static SNAPSHOT_MAX_AGE_DAYS: GucSetting<i32> = GucSetting::<i32>::new(90);
static SNAPSHOT_KEEP_LAST: GucSetting<i32> = GucSetting::<i32>::new(10);
static REQUIRE_TRIGGER: GucSetting<bool> = GucSetting::<bool>::new(true);
static SNAPSHOT_MAX_DROPPED: GucSetting<i32> = GucSetting::<i32>::new(20_000);
static HISTORY_MAX_AGE_DAYS: GucSetting<i32> = GucSetting::<i32>::new(90);
static HISTORY_KEEP_LAST: GucSetting<i32> = GucSetting::<i32>::new(10_000);
static BUFFER_LIMIT_MB: GucSetting<i32> = GucSetting::<i32>::new(1024);
static SOURCE_LOCK_TIMEOUT_MS: GucSetting<i32> = GucSetting::<i32>::new(60_000);
static MAX_FAILURES: GucSetting<i32> = GucSetting::<i32>::new(10);

/// Defines all settings.
pub fn register() {
    GucRegistry::define_bool_guc(
        c"pg_trickle.enabled",
        c"Whether the scheduler refreshes stream tables.",
        c"Capture goes on when off, and refreshing by hand works.",
        &ENABLED,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pg_trickle.naptime",
        c"Time between two looks at what is due.",
        c"",
        &NAPTIME_MS,
        50,
        3_600_000,
        GucContext::Sighup,
        GucFlags::UNIT_MS,
    );
    register_workers();
    GucRegistry::define_enum_guc(
        c"pg_trickle.schema_snapshots",
        c"Which tables' shapes are recorded before they are dropped.",
        c"off, sources (of stream tables) or all (permanent tables).",
        &SCHEMA_SNAPSHOTS,
        GucContext::Suset,
        GucFlags::default(),
    );
    GucRegistry::define_bool_guc(
        c"pg_trickle.require_trigger_privilege",
        c"Whether capture asks for the TRIGGER privilege on a source, as CREATE TRIGGER does.",
        c"When off, SELECT is enough for a stream table that is refreshed differentially.",
        &REQUIRE_TRIGGER,
        GucContext::Suset,
        GucFlags::default(),
    );
    register_snapshots();
    GucRegistry::define_int_guc(
        c"pg_trickle.buffer_limit",
        c"Size of a source's change buffer above which stream tables that keep it so large are marked for computing anew.",
        c"0 sets no limit.",
        &BUFFER_LIMIT_MB,
        0,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::UNIT_MB,
    );
    GucRegistry::define_int_guc(
        c"pg_trickle.source_lock_timeout",
        c"Longest time that creating or changing a stream table tries to lock its sources.",
        c"It tries again and again, so that nobody waits behind it; a shorter lock_timeout counts instead.",
        &SOURCE_LOCK_TIMEOUT_MS,
        1,
        86_400_000,
        GucContext::Userset,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_int_guc(
        c"pg_trickle.max_consecutive_failures",
        c"Failed refreshes in a row after which the scheduler suspends a stream table.",
        c"0 never suspends.",
        &MAX_FAILURES,
        0,
        1_000_000,
        GucContext::Sighup,
        GucFlags::default(),
    );
    // SAFETY: called once, from _PG_init, after all settings of the prefix are defined.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"pg_trickle".as_ptr()) };
}

/// Settings of workers and their refreshes.
fn register_workers() {
    GucRegistry::define_int_guc(
        c"pg_trickle.max_worker_processes",
        c"Places among max_worker_processes that pgtrickle's workers take at most.",
        c"0 is half of them. Databases take turns when there are more than places.",
        &MAX_WORKER_PROCESSES,
        0,
        256,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pg_trickle.max_workers",
        c"Workers of one database at most.",
        c"A second one is started when something is due and the first is held up.",
        &MAX_WORKERS,
        1,
        64,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pg_trickle.lock_timeout",
        c"Longest wait of a scheduled refresh for one lock.",
        c"After it the stream table is tried again later, and the others go on.",
        &LOCK_TIMEOUT_MS,
        10,
        3_600_000,
        GucContext::Sighup,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_int_guc(
        c"pg_trickle.refresh_timeout",
        c"Time after which a scheduled refresh stops applying changes and computes the contents anew.",
        c"0 is twice what computing them took the last time, at least 5 s; 60 s while that is not known.",
        &REFRESH_TIMEOUT_MS,
        0,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::UNIT_MS,
    );
}

/// Settings of schema snapshots.
fn register_snapshots() {
    GucRegistry::define_enum_guc(
        c"pg_trickle.snapshot_values",
        c"What of column values is recorded with a schema snapshot.",
        c"plain values, hashed (they can be compared, not read) or off (null fraction, width and distinct count alone).",
        &SNAPSHOT_VALUES,
        GucContext::Suset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pg_trickle.snapshot_timeout",
        c"Longest time that one step of recording a table's shape may hold up its command.",
        c"After it the command goes on, the rest of it without a record, with a WARNING.",
        &SNAPSHOT_TIMEOUT_MS,
        1,
        60_000,
        GucContext::Suset,
        GucFlags::UNIT_MS,
    );
    // SAFETY: the hook is guarded.
    unsafe {
        GucRegistry::define_string_guc_with_hooks(
            c"pg_trickle.snapshot_excluded_columns",
            c"Names of columns that a collector adds; they don't count in schema_hash.",
            c"A list of names, as in search_path.",
            &EXCLUDED_COLUMNS,
            GucContext::Suset,
            GucFlags::default(),
            Some(check_identifiers),
            None,
            None,
        );
    }
    GucRegistry::define_string_guc(
        c"pg_trickle.resource_identity",
        c"What the tables of this session are copies of, recorded with their schema snapshots.",
        c"Free text, such as the name of a feed; it joins the snapshots of tables whose names differ.",
        &RESOURCE_IDENTITY,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_float_guc(
        c"pg_trickle.rename_threshold",
        c"Likeness of values from which a lost and a new column are reported as probably one, renamed.",
        c"",
        &RENAME_THRESHOLD,
        0.0,
        1.0,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pg_trickle.snapshot_max_age",
        c"Age in days after which the scheduler removes schema snapshots; 0 removes none for its age.",
        c"The newest ones of each table that is there stay: see pg_trickle.snapshot_keep_last.",
        &SNAPSHOT_MAX_AGE_DAYS,
        0,
        100_000,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pg_trickle.snapshot_keep_last",
        c"Schema snapshots of each table that the scheduler keeps whatever their age.",
        c"",
        &SNAPSHOT_KEEP_LAST,
        1,
        1_000_000,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pg_trickle.snapshot_max_dropped",
        c"Schema snapshots of tables that are gone which the scheduler keeps at most; 0 sets no limit.",
        c"",
        &SNAPSHOT_MAX_DROPPED,
        0,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pg_trickle.history_max_age",
        c"Age in days after which the scheduler removes refresh history; 0 removes none for its age.",
        c"The newest row of each stream table and status stays.",
        &HISTORY_MAX_AGE_DAYS,
        0,
        100_000,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"pg_trickle.history_keep_last",
        c"Rows of refresh history that the scheduler keeps of each stream table and status at most.",
        c"And of all stream tables that are gone together.",
        &HISTORY_KEEP_LAST,
        1,
        i32::MAX,
        GucContext::Sighup,
        GucFlags::default(),
    );
}

/// # Safety
/// Called by PostgreSQL with the new value, a C string or null.
#[pg_guard]
unsafe extern "C-unwind" fn check_identifiers(
    value: *mut *mut std::ffi::c_char,
    _extra: *mut *mut std::ffi::c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: per the contract.
    unsafe {
        let text = *value;
        text.is_null() || CStr::from_ptr(text).to_str().is_ok_and(|list| identifiers(list).is_some())
    }
}

/// Is the scheduler to refresh?
pub fn enabled() -> bool {
    ENABLED.get()
}

/// Time between two looks at what is due.
pub fn naptime() -> Duration {
    Duration::from_millis(NAPTIME_MS.get().max(50) as u64)
}

/// Places that our processes take at most.
pub fn max_worker_processes() -> usize {
    // SAFETY: a variable that is set when the server starts.
    let of_server = unsafe { pg_sys::max_worker_processes };
    let places = match MAX_WORKER_PROCESSES.get() {
        0 => (of_server / 2).max(1),
        places => places.min(of_server),
    };
    usize::try_from(places).unwrap_or(0)
}

/// Workers of one database at most.
pub fn max_workers() -> usize {
    usize::try_from(MAX_WORKERS.get()).unwrap_or(1).max(1)
}

/// Longest wait of a scheduled refresh for one lock.
pub fn lock_timeout() -> Duration {
    Duration::from_millis(LOCK_TIMEOUT_MS.get().max(10) as u64)
}

/// Time after which a scheduled refresh stops applying changes; None: derived from what computing anew takes.
pub fn refresh_timeout() -> Option<Duration> {
    u64::try_from(REFRESH_TIMEOUT_MS.get()).ok().filter(|ms| *ms > 0).map(Duration::from_millis)
}

/// Which tables' shapes are recorded.
pub fn schema_snapshots() -> SchemaSnapshots {
    SCHEMA_SNAPSHOTS.get()
}

/// Does capture of a source take the TRIGGER privilege on it?
pub fn require_trigger_privilege() -> bool {
    REQUIRE_TRIGGER.get()
}

/// Bytes above which a change buffer is too large; None: it may grow.
pub fn buffer_limit() -> Option<i64> {
    let megabytes = i64::from(BUFFER_LIMIT_MB.get());
    (megabytes > 0).then_some(megabytes << 20)
}

/// Longest time of trying to lock sources.
pub fn source_lock_timeout() -> Duration {
    Duration::from_millis(SOURCE_LOCK_TIMEOUT_MS.get().max(1) as u64)
}

/// Failed refreshes in a row before suspension; None never.
pub fn max_consecutive_failures() -> Option<u32> {
    u32::try_from(MAX_FAILURES.get()).ok().filter(|n| *n > 0)
}

/// What of values is recorded.
pub fn snapshot_values() -> Form {
    match SNAPSHOT_VALUES.get() {
        SnapshotValues::plain => Form::Plain,
        SnapshotValues::hashed => Form::Hashed,
        SnapshotValues::off => Form::Off,
    }
}

/// Longest time for recording one thing.
pub fn snapshot_timeout() -> Duration {
    Duration::from_millis(SNAPSHOT_TIMEOUT_MS.get().max(1) as u64)
}

fn text(setting: &GucSetting<Option<CString>>) -> String {
    setting.get().map(|t| t.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Columns that a collector adds.
pub fn excluded_columns() -> Result<BTreeSet<String>> {
    identifiers(&text(&EXCLUDED_COLUMNS))
        .ok_or_else(|| Error::Internal("pg_trickle.snapshot_excluded_columns is no list of names".into()))
}

/// What the session's tables are copies of, if it says so.
pub fn resource_identity() -> Option<String> {
    Some(text(&RESOURCE_IDENTITY)).filter(|identity| !identity.is_empty())
}

/// Likeness from which a column is a candidate for a rename, 0 to 1.
pub fn rename_threshold() -> f64 {
    RENAME_THRESHOLD.get()
}

/// What the scheduler keeps for a while only. Ages in days and limits: 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    pub snapshot_max_age: i32,
    /// Of each table, whatever their age.
    pub snapshot_keep_last: i32,
    /// Of tables that are gone, all together.
    pub snapshot_max_dropped: i32,
    pub history_max_age: i32,
    /// Of each stream table and status.
    pub history_keep_last: i32,
}

/// What the scheduler keeps for a while only.
pub fn retention() -> Retention {
    Retention {
        snapshot_max_age: SNAPSHOT_MAX_AGE_DAYS.get(),
        snapshot_keep_last: SNAPSHOT_KEEP_LAST.get(),
        snapshot_max_dropped: SNAPSHOT_MAX_DROPPED.get(),
        history_max_age: HISTORY_MAX_AGE_DAYS.get(),
        history_keep_last: HISTORY_KEEP_LAST.get(),
    }
}
