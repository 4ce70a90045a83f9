-- Catalog of pgtrickle. Oids here are derived state: they are looked up again by name after a restore.
-- Names of this script are PostgreSQL's, whatever the schema or the database has in its path.
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
-- Before anything is made: names and values are UTF-8 in here, and a database of another encoding has others.
CREATE FUNCTION pgtrickle._require_utf8() RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'require_utf8_wrapper';
SELECT pgtrickle._require_utf8();
DROP FUNCTION pgtrickle._require_utf8();

-- Whoever owns the schema can drop what is in it.
DO $$
DECLARE
  other name := (SELECT pg_catalog.pg_get_userbyid(n.nspowner) FROM pg_catalog.pg_namespace n
                 WHERE n.nspname = 'pgtrickle' AND n.nspowner <> (SELECT r.oid FROM pg_catalog.pg_roles r
                                                                  WHERE r.rolname = current_user));
BEGIN
  IF other IS NOT NULL THEN
    RAISE EXCEPTION 'schema pgtrickle belongs to role %', pg_catalog.quote_ident(other)
      USING ERRCODE = 'duplicate_schema', DETAIL = 'reason=SCHEMA_TAKEN.', HINT = 'Drop or rename it: CREATE EXTENSION makes its own.';
  END IF;
END $$;
CREATE SCHEMA pgtrickle_internal;

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
  last_refresh timestamptz,
  CHECK ((status = 'suspended') = (reason IS NOT NULL)),
  CHECK (status <> 'active' OR frontier IS NOT NULL OR reinitialize IS NOT NULL)
);

-- Also what every DDL command looks into, by `object`: whether its own objects concern anybody. For that there is a row for
-- each stream table itself ('self', class 0), one while it is suspended ('suspended', class 0, object 0), and if that is for
-- something that is missing one for each name in its query ('cure', class 0): the object is a digest of the name.
CREATE TABLE pgtrickle.pgt_dependencies (
  relid oid NOT NULL REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
  kind text NOT NULL CHECK (kind IN ('source', 'view', 'object', 'self', 'cure', 'suspended')),
  class oid NOT NULL,
  object oid NOT NULL,
  -- 0 is the object itself; a source's columns have their attribute numbers. -1 for a name, -2 for a suspension.
  attnum smallint NOT NULL,
  roles text[] NOT NULL,
  PRIMARY KEY (relid, class, object, attnum)
);
CREATE INDEX pgt_dependencies_object ON pgtrickle.pgt_dependencies (object, class);

-- What a command of somebody could not do without waiting: for the worker, or whoever calls next.
CREATE TABLE pgtrickle.pgt_tasks (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind text NOT NULL CHECK (kind IN ('suspend', 'reinitialize', 'reprint', 'rebind', 'resume', 'forget', 'check', 'capture')),
  -- A stream table; a source for 'check' and 'capture'.
  relid oid NOT NULL,
  reason text,
  detail text,
  created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
  -- Why it failed when it was tried, if that was not a lock.
  failure text
);

-- Notifications that are to be sent: a transaction that notifies can't be prepared.
CREATE TABLE pgtrickle.pgt_alerts (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  payload text NOT NULL
);

CREATE TABLE pgtrickle.pgt_sources (
  source oid PRIMARY KEY,
  -- Of the shape that all users of the source were judged by.
  fingerprint text NOT NULL,
  shape text NOT NULL
);

-- Columns of each source that its triggers capture.
CREATE TABLE pgtrickle.pgt_captures (
  source oid PRIMARY KEY,
  columns smallint[] NOT NULL
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
CREATE INDEX pgt_refresh_history_computed ON pgtrickle.pgt_refresh_history (relid, id)
  WHERE action IN ('full', 'reinitialize');

CREATE TABLE pgtrickle.pgt_schema_snapshots (
  snapshot_id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  -- Server and database that `relation` is an oid of: restored snapshots keep theirs.
  origin bigint NOT NULL,
  relation oid NOT NULL,
  schema_name text NOT NULL,
  table_name text NOT NULL,
  captured_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
  reason text NOT NULL CHECK (reason IN ('source', 'change', 'drop', 'baseline')),
  -- Which side of a command it shows; NULL when no command is behind it.
  moment text CHECK (moment IN ('before', 'after')),
  alive boolean NOT NULL,
  schema_hash text NOT NULL,
  -- Of the shape without oids: snapshots with equal digests have no difference.
  digest text NOT NULL,
  -- Of the shape with all evidence. And the digest of what the command began with: another one before it is not its doing.
  fingerprint text NOT NULL,
  made_from text,
  relkind text NOT NULL,
  relpersistence text NOT NULL,
  -- Columns that the command named in ALTER COLUMN ... TYPE, as JSON; NULL where no command is known.
  retyped text,
  column_count integer NOT NULL,
  row_estimate bigint,
  stats_available boolean NOT NULL,
  -- The stored forms of src/snapshot/stored.rs.
  shape text NOT NULL,
  profile text NOT NULL,
  actor text NOT NULL,
  command_tag text,
  statement text,
  application text,
  resource_identity text,
  -- The command was pgtrickle's own; it ran inside CREATE or ALTER EXTENSION.
  own boolean NOT NULL,
  in_extension boolean NOT NULL,
  xid xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id()
);
-- Cutting off empty pages at the end locks the table, for which a snapshot of just then would not wait.
ALTER TABLE pgtrickle.pgt_schema_snapshots SET (vacuum_truncate = false, toast.vacuum_truncate = false);
CREATE INDEX pgt_schema_snapshots_relation ON pgtrickle.pgt_schema_snapshots (relation, snapshot_id);
CREATE INDEX pgt_schema_snapshots_name ON pgtrickle.pgt_schema_snapshots (table_name, schema_name, snapshot_id);
-- A profile of 300 columns compresses in a third of the time that pglz takes, where the server was built with it.
DO $$ BEGIN
  ALTER TABLE pgtrickle.pgt_schema_snapshots ALTER shape SET COMPRESSION lz4, ALTER profile SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN NULL;
END $$;

-- Key of the digests that stand for values under pg_trickle.snapshot_values = hashed. The oldest one counts, so that a
-- restored key takes the place of the one that CREATE EXTENSION made.
CREATE TABLE pgtrickle.pgt_hash_keys (
  key text PRIMARY KEY DEFAULT pg_catalog.gen_random_uuid()::text || pg_catalog.gen_random_uuid()::text,
  created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
INSERT INTO pgtrickle.pgt_hash_keys DEFAULT VALUES;

-- Snapshots that could not be taken, whole or in part: those of one command. Never a reason for the drop to fail.
CREATE TABLE pgtrickle.pgt_capture_failures (
  failed_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
  what text NOT NULL,
  sqlstate text NOT NULL,
  number bigint NOT NULL,
  -- The first few of them.
  relations text NOT NULL,
  actor text NOT NULL
);
-- Sequences are no part of a transaction: they count where a row can't be written, and are read while one runs.
CREATE SEQUENCE pgtrickle.pgt_uncounted_failures;
CREATE SEQUENCE pgtrickle.pgt_baseline_total MINVALUE 0;
CREATE SEQUENCE pgtrickle.pgt_baseline_done MINVALUE 0;

-- What a dump carries, because nothing can compute it again.
SELECT pg_catalog.pg_extension_config_dump('pgtrickle.pgt_schema_snapshots', '');
SELECT pg_catalog.pg_extension_config_dump('pgtrickle.pgt_schema_snapshots_snapshot_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('pgtrickle.pgt_hash_keys', '');
