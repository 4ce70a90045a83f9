//! Settings `pg_trickle.*`: private statics, getters in domain types.

use std::time::Duration;

use pgrx::pg_sys;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting, PostgresGucEnum};

/// Which tables' shapes are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PostgresGucEnum)]
#[allow(non_camel_case_types)]
pub enum SchemaSnapshots {
    off,
    sources,
    all,
}

static ENABLED: GucSetting<bool> = GucSetting::<bool>::new(true);
static NAPTIME_MS: GucSetting<i32> = GucSetting::<i32>::new(1000);
static SCHEMA_SNAPSHOTS: GucSetting<SchemaSnapshots> =
    GucSetting::<SchemaSnapshots>::new(SchemaSnapshots::all);
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
    GucRegistry::define_enum_guc(
        c"pg_trickle.schema_snapshots",
        c"Which tables' shapes are recorded before they are dropped.",
        c"off, sources (of stream tables) or all (permanent tables).",
        &SCHEMA_SNAPSHOTS,
        GucContext::Suset,
        GucFlags::default(),
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

/// Is the scheduler to refresh?
pub fn enabled() -> bool {
    ENABLED.get()
}

/// Time between two looks at what is due.
pub fn naptime() -> Duration {
    Duration::from_millis(NAPTIME_MS.get().max(50) as u64)
}

/// Which tables' shapes are recorded.
pub fn schema_snapshots() -> SchemaSnapshots {
    SCHEMA_SNAPSHOTS.get()
}

/// Failed refreshes in a row before suspension; None never.
pub fn max_consecutive_failures() -> Option<u32> {
    u32::try_from(MAX_FAILURES.get()).ok().filter(|n| *n > 0)
}
