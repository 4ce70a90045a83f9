//! What the catalog tables look like that are written here, as sql/catalog.sql makes them, and what their rows must satisfy.
#![forbid(unsafe_code)]

use crate::sqltext::rows::{Column, Table};

const OID: &str = "pg_catalog.oid";
const TEXT: &str = "pg_catalog.text";
const TEXTS: &str = "pg_catalog.text[]";
const BOOL: &str = "pg_catalog.bool";
const SMALLINT: &str = "pg_catalog.int2";
const SMALLINTS: &str = "pg_catalog.int2[]";
const INTEGER: &str = "pg_catalog.int4";
const BIGINT: &str = "pg_catalog.int8";
const TIME: &str = "pg_catalog.timestamptz";
const XID: &str = "pg_catalog.xid8";

const NOW: &str = "pg_catalog.clock_timestamp()";

/// `pgtrickle.pgt_stream_tables`.
pub const STREAM_TABLES: Table = Table {
    name: "pgt_stream_tables",
    columns: &[
        Column::new("relid", OID),
        Column::new("table_schema", TEXT),
        Column::new("table_name", TEXT),
        Column::new("query", TEXT),
        Column::new("query_tree", TEXT),
        Column::new("columns", SMALLINTS),
        Column::new("schedule", "pg_catalog.interval").or_null(),
        Column::new("refresh_mode", TEXT),
        Column::new("differential", BOOL),
        Column::new("comparable", BOOL),
        Column::new("full_reasons", TEXTS).or("'{}'"),
        Column::new("status", TEXT),
        Column::new("reason", TEXT).or_null(),
        Column::new("detail", TEXT).or_null(),
        Column::new("hint", TEXT).or_null(),
        Column::new("reinitialize", TEXT).or_null(),
        Column::new("frontier", "pg_catalog.pg_snapshot").or_null(),
        Column::new("own_xid", XID).or("'0'"),
        Column::new("epoch", INTEGER).or("-1"),
        Column::new("version", BIGINT).or("1"),
        Column::new("last_refresh", TIME).or_null(),
    ],
    rule: Some(
        "refresh_mode IN ('auto', 'differential', 'full') AND status IN ('active', 'suspended', 'uninitialized') \
         AND (schedule IS NULL OR schedule > '0'::pg_catalog.interval) AND (status = 'suspended') = (reason IS NOT NULL) \
         AND (status <> 'active' OR frontier IS NOT NULL OR reinitialize IS NOT NULL)",
    ),
};

/// `pgtrickle.pgt_dependencies`.
pub const DEPENDENCIES: Table = Table {
    name: "pgt_dependencies",
    columns: &[
        Column::new("relid", OID),
        Column::new("kind", TEXT),
        Column::new("class", OID),
        Column::new("object", OID),
        Column::new("attnum", SMALLINT),
        Column::new("roles", TEXTS),
        Column::new("fingerprint", TEXT).or_null(),
    ],
    rule: Some("kind IN ('source', 'view', 'object', 'self', 'cure', 'suspended')"),
};

/// `pgtrickle.pgt_tasks`.
pub const TASKS: Table = Table {
    name: "pgt_tasks",
    columns: &[
        Column::new("id", BIGINT).or("pg_catalog.nextval('pgtrickle.pgt_tasks_id_seq')"),
        Column::new("kind", TEXT),
        Column::new("relid", OID),
        Column::new("reason", TEXT).or_null(),
        Column::new("detail", TEXT).or_null(),
        Column::new("created_at", TIME).or(NOW),
        Column::new("failure", TEXT).or_null(),
    ],
    rule: None,
};

/// `pgtrickle.pgt_alerts`.
pub const ALERTS: Table = Table {
    name: "pgt_alerts",
    columns: &[
        Column::new("id", BIGINT).or("pg_catalog.nextval('pgtrickle.pgt_alerts_id_seq')"),
        Column::new("payload", TEXT),
    ],
    rule: None,
};

/// `pgtrickle.pgt_sources`.
pub const SOURCES: Table = Table {
    name: "pgt_sources",
    columns: &[Column::new("source", OID), Column::new("fingerprint", TEXT), Column::new("shape", TEXT)],
    rule: None,
};

/// `pgtrickle.pgt_captures`.
pub const CAPTURES: Table = Table {
    name: "pgt_captures",
    columns: &[Column::new("source", OID), Column::new("columns", SMALLINTS)],
    rule: None,
};

/// `pgtrickle.pgt_refresh_history`.
pub const REFRESH_HISTORY: Table = Table {
    name: "pgt_refresh_history",
    columns: &[
        Column::new("id", BIGINT).or("pg_catalog.nextval('pgtrickle.pgt_refresh_history_id_seq')"),
        Column::new("relid", OID),
        Column::new("stream_table_name", TEXT),
        Column::new("started_at", TIME),
        Column::new("finished_at", TIME).or_null(),
        Column::new("action", TEXT).or_null(),
        Column::new("status", TEXT),
        Column::new("reason", TEXT).or_null(),
        Column::new("detail", TEXT).or_null(),
        Column::new("hint", TEXT).or_null(),
        Column::new("rows_inserted", BIGINT).or_null(),
        Column::new("rows_updated", BIGINT).or_null(),
        Column::new("rows_deleted", BIGINT).or_null(),
    ],
    rule: Some("status IN ('completed', 'failed', 'suspended', 'resumed')"),
};

/// `pgtrickle.pgt_schema_snapshots`.
pub const SCHEMA_SNAPSHOTS: Table = Table {
    name: "pgt_schema_snapshots",
    columns: &[
        Column::new("snapshot_id", BIGINT)
            .or("pg_catalog.nextval('pgtrickle.pgt_schema_snapshots_snapshot_id_seq')"),
        Column::new("origin", BIGINT),
        Column::new("relation", OID),
        Column::new("schema_name", TEXT),
        Column::new("table_name", TEXT),
        Column::new("captured_at", TIME).or(NOW),
        Column::new("reason", TEXT),
        Column::new("moment", TEXT).or_null(),
        Column::new("alive", BOOL),
        Column::new("schema_hash", TEXT),
        Column::new("digest", TEXT),
        Column::new("fingerprint", TEXT),
        Column::new("made_from", TEXT).or_null(),
        Column::new("relkind", TEXT),
        Column::new("relpersistence", TEXT),
        Column::new("retyped", TEXT).or_null(),
        Column::new("column_count", INTEGER),
        Column::new("row_estimate", BIGINT).or_null(),
        Column::new("stats_available", BOOL),
        Column::new("shape", TEXT),
        Column::new("profile", TEXT),
        Column::new("actor", TEXT),
        Column::new("command_tag", TEXT).or_null(),
        Column::new("statement", TEXT).or_null(),
        Column::new("application", TEXT).or_null(),
        Column::new("resource_identity", TEXT).or_null(),
        Column::new("own", BOOL),
        Column::new("in_extension", BOOL),
        Column::new("xid", XID).or("pg_catalog.pg_current_xact_id()"),
        Column::new("times", BIGINT).or("1"),
        Column::new("first_captured_at", TIME).or_null(),
    ],
    rule: None,
};

/// `pgtrickle.pgt_hash_keys`.
pub const HASH_KEYS: Table = Table {
    name: "pgt_hash_keys",
    columns: &[Column::new("key", TEXT), Column::new("created_at", TIME)],
    rule: None,
};

/// `pgtrickle.pgt_capture_failures`.
pub const CAPTURE_FAILURES: Table = Table {
    name: "pgt_capture_failures",
    columns: &[
        Column::new("failed_at", TIME).or(NOW),
        Column::new("what", TEXT),
        Column::new("sqlstate", TEXT),
        Column::new("number", BIGINT),
        Column::new("relations", TEXT),
        Column::new("actor", TEXT),
    ],
    rule: None,
};
