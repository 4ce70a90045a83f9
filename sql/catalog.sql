-- Catalog of pgtrickle. Oids here are derived state: they are looked up again by name after a restore.
CREATE SCHEMA pgtrickle_internal;
GRANT USAGE ON SCHEMA pgtrickle TO PUBLIC;
-- USAGE lets a stream table's owner reach its own state and buffers, which are granted one by one; never CREATE.
GRANT USAGE ON SCHEMA pgtrickle_internal TO PUBLIC;

CREATE TABLE pgtrickle.pgt_stream_tables (
  relid oid PRIMARY KEY,
  table_schema text NOT NULL,
  table_name text NOT NULL,
  query text NOT NULL,
  query_tree text NOT NULL,
  -- Attribute number in the stream table of each output column, in the query's order.
  columns smallint[] NOT NULL,
  schedule interval CHECK (schedule > interval '0'),
  refresh_mode text NOT NULL CHECK (refresh_mode IN ('auto', 'differential', 'full')),
  differential boolean NOT NULL,
  comparable boolean NOT NULL,
  full_reasons text[] NOT NULL DEFAULT '{}',
  status text NOT NULL CHECK (status IN ('active', 'suspended', 'uninitialized')),
  reason text,
  detail text,
  hint text,
  -- Why the next refresh must compute everything anew; NULL when it need not.
  reinitialize text,
  frontier pg_snapshot,
  own_xid xid8 NOT NULL DEFAULT '0',
  epoch integer NOT NULL DEFAULT -1,
  -- Changes with every change of definition; plans are cached by it.
  version bigint NOT NULL DEFAULT 1,
  -- The owner whose state and buffers privileges were given to; another one now means to give them again.
  granted_to oid NOT NULL DEFAULT 0,
  last_refresh timestamptz,
  CHECK ((status = 'suspended') = (reason IS NOT NULL)),
  CHECK (status <> 'active' OR frontier IS NOT NULL OR reinitialize IS NOT NULL)
);

CREATE TABLE pgtrickle.pgt_dependencies (
  relid oid NOT NULL REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
  kind text NOT NULL CHECK (kind IN ('source', 'view', 'object')),
  class oid NOT NULL,
  object oid NOT NULL,
  -- 0 is the object itself; a source's columns have their attribute numbers.
  attnum smallint NOT NULL,
  roles text[] NOT NULL,
  PRIMARY KEY (relid, class, object, attnum)
);
CREATE INDEX pgt_dependencies_object ON pgtrickle.pgt_dependencies (object, class);

CREATE TABLE pgtrickle.pgt_sources (
  source oid PRIMARY KEY,
  -- Of the shape that all users of the source were judged by.
  fingerprint text NOT NULL,
  shape text NOT NULL
);

CREATE TABLE pgtrickle.pgt_refresh_history (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  relid oid NOT NULL,
  stream_table_name text NOT NULL,
  started_at timestamptz NOT NULL,
  finished_at timestamptz,
  action text,
  status text NOT NULL CHECK (status IN ('completed', 'failed', 'suspended', 'resumed')),
  reason text,
  detail text,
  hint text,
  rows_inserted bigint,
  rows_updated bigint,
  rows_deleted bigint
);
CREATE INDEX pgt_refresh_history_relid ON pgtrickle.pgt_refresh_history (relid, id);

CREATE TABLE pgtrickle.pgt_schema_snapshots (
  snapshot_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  relation oid NOT NULL,
  schema_name text NOT NULL,
  table_name text NOT NULL,
  captured_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
  reason text NOT NULL CHECK (reason IN ('source', 'change', 'drop')),
  alive boolean NOT NULL,
  column_count integer NOT NULL,
  row_estimate bigint,
  shape jsonb NOT NULL,
  actor text NOT NULL,
  command_tag text,
  statement text,
  application text,
  xid xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id()
);
CREATE INDEX pgt_schema_snapshots_relation ON pgtrickle.pgt_schema_snapshots (relation, snapshot_id);
CREATE INDEX pgt_schema_snapshots_name ON pgtrickle.pgt_schema_snapshots (schema_name, table_name, snapshot_id);

REVOKE ALL ON ALL TABLES IN SCHEMA pgtrickle FROM PUBLIC;
