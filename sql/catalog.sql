-- Catalog of pgtrickle. Oids here are derived state: they are looked up again by name after a restore.
--
-- Its tables are materialized views whose rows only the library writes (src/pg/own_rows.rs): publications have permanent tables
-- of all kinds in them, and never one of these. Each one's query is its own rows, so that REFRESH MATERIALIZED VIEW does no
-- harm. What a row must satisfy is in src/catalog/tables.rs, which has the same columns.

CREATE MATERIALIZED VIEW pgtrickle.pgt_stream_tables USING heap AS
SELECT r.* FROM pgtrickle_internal.own_rows('pgtrickle', 'pgt_stream_tables') AS r (
  relid oid,
  table_schema text,
  table_name text,
  query text,
  query_tree text,
  -- Attribute number in the stream table of each output column, in the query's order.
  columns smallint[],
  schedule interval,
  refresh_mode text,
  differential boolean,
  comparable boolean,
  full_reasons text[],
  status text,
  reason text,
  detail text,
  hint text,
  -- Why the next refresh must compute everything anew; NULL when it need not.
  reinitialize text,
  frontier pg_snapshot,
  own_xid xid8,
  epoch integer,
  -- Changes with every change of definition; plans are cached by it.
  version bigint,
  last_refresh timestamptz
);
CREATE UNIQUE INDEX pgt_stream_tables_pkey ON pgtrickle.pgt_stream_tables (relid);

-- Also what every DDL command looks into, by `object`: whether its own objects concern anybody. For that there is a row for
-- each stream table itself ('self', class 0), one while it is suspended ('suspended', class 0, object 0), and if that is for
-- something that is missing one for each name in its query ('cure', class 0): the object is a digest of the name.
CREATE MATERIALIZED VIEW pgtrickle.pgt_dependencies USING heap AS
SELECT r.* FROM pgtrickle_internal.own_rows('pgtrickle', 'pgt_dependencies') AS r (
  relid oid,
  kind text,
  class oid,
  object oid,
  -- 0 is the object itself; a source's columns have their attribute numbers. -1 for a name, -2 for a suspension.
  attnum smallint,
  roles text[],
  -- Of views and other objects: what they were when the query was last resolved.
  fingerprint text
);
CREATE UNIQUE INDEX pgt_dependencies_pkey ON pgtrickle.pgt_dependencies (relid, class, object, attnum);
CREATE INDEX pgt_dependencies_object ON pgtrickle.pgt_dependencies (object, class);

-- What a command of somebody could not do without waiting: for the worker, or whoever calls next.
CREATE SEQUENCE pgtrickle.pgt_tasks_id_seq;
CREATE MATERIALIZED VIEW pgtrickle.pgt_tasks USING heap AS
SELECT r.* FROM pgtrickle_internal.own_rows('pgtrickle', 'pgt_tasks') AS r (
  id bigint,
  kind text,
  -- A stream table; a source for 'check' and 'capture'.
  relid oid,
  reason text,
  detail text,
  created_at timestamptz,
  -- Why it failed when it was tried, if that was not a lock.
  failure text
);
CREATE UNIQUE INDEX pgt_tasks_pkey ON pgtrickle.pgt_tasks (id);

-- Notifications that are to be sent: a transaction that notifies can't be prepared.
CREATE SEQUENCE pgtrickle.pgt_alerts_id_seq;
CREATE MATERIALIZED VIEW pgtrickle.pgt_alerts USING heap AS
SELECT r.* FROM pgtrickle_internal.own_rows('pgtrickle', 'pgt_alerts') AS r (
  id bigint,
  payload text
);
CREATE UNIQUE INDEX pgt_alerts_pkey ON pgtrickle.pgt_alerts (id);

CREATE MATERIALIZED VIEW pgtrickle.pgt_sources USING heap AS
SELECT r.* FROM pgtrickle_internal.own_rows('pgtrickle', 'pgt_sources') AS r (
  source oid,
  -- Of the shape that all users of the source were judged by.
  fingerprint text,
  shape text
);
CREATE UNIQUE INDEX pgt_sources_pkey ON pgtrickle.pgt_sources (source);

-- Columns of each source that its triggers capture.
CREATE MATERIALIZED VIEW pgtrickle.pgt_captures USING heap AS
SELECT r.* FROM pgtrickle_internal.own_rows('pgtrickle', 'pgt_captures') AS r (
  source oid,
  columns smallint[]
);
CREATE UNIQUE INDEX pgt_captures_pkey ON pgtrickle.pgt_captures (source);

CREATE SEQUENCE pgtrickle.pgt_refresh_history_id_seq;
CREATE MATERIALIZED VIEW pgtrickle.pgt_refresh_history USING heap AS
SELECT r.* FROM pgtrickle_internal.own_rows('pgtrickle', 'pgt_refresh_history') AS r (
  id bigint,
  relid oid,
  stream_table_name text,
  started_at timestamptz,
  finished_at timestamptz,
  action text,
  status text,
  reason text,
  detail text,
  hint text,
  rows_inserted bigint,
  rows_updated bigint,
  rows_deleted bigint
);
CREATE UNIQUE INDEX pgt_refresh_history_pkey ON pgtrickle.pgt_refresh_history (id);
CREATE INDEX pgt_refresh_history_relid ON pgtrickle.pgt_refresh_history (relid, id);
CREATE INDEX pgt_refresh_history_computed ON pgtrickle.pgt_refresh_history (relid, id)
  WHERE action IN ('full', 'reinitialize');

CREATE SEQUENCE pgtrickle.pgt_schema_snapshots_snapshot_id_seq;
CREATE MATERIALIZED VIEW pgtrickle.pgt_schema_snapshots USING heap
-- Cutting off empty pages at the end locks the table, for which a snapshot of just then would not wait.
WITH (vacuum_truncate = false, toast.vacuum_truncate = false) AS
SELECT r.* FROM pgtrickle_internal.own_rows('pgtrickle', 'pgt_schema_snapshots') AS r (
  snapshot_id bigint,
  -- Server and database that `relation` is an oid of: restored snapshots keep theirs.
  origin bigint,
  relation oid,
  schema_name text,
  table_name text,
  captured_at timestamptz,
  reason text,
  -- Which side of a command it shows; NULL when no command is behind it.
  moment text,
  alive boolean,
  schema_hash text,
  -- Of the shape without oids: snapshots with equal digests have no difference.
  digest text,
  -- Of the shape with all evidence. And the digest of what the command began with: another one before it is not its doing.
  fingerprint text,
  made_from text,
  relkind text,
  relpersistence text,
  -- Columns that the command named in ALTER COLUMN ... TYPE, as JSON; NULL where no command is known.
  retyped text,
  column_count integer,
  row_estimate bigint,
  stats_available boolean,
  -- The stored forms of src/snapshot/stored.rs.
  shape text,
  profile text,
  actor text,
  command_tag text,
  statement text,
  application text,
  resource_identity text,
  -- The command was pgtrickle's own; it ran inside CREATE or ALTER EXTENSION.
  own boolean,
  in_extension boolean,
  xid xid8,
  -- So many drops of tables of one name and shape, one after the other, are told by this row; when the first of them was, where it tells more than one.
  times bigint,
  first_captured_at timestamptz
);
CREATE UNIQUE INDEX pgt_schema_snapshots_pkey ON pgtrickle.pgt_schema_snapshots (snapshot_id);
CREATE INDEX pgt_schema_snapshots_relation ON pgtrickle.pgt_schema_snapshots (relation, snapshot_id);
CREATE INDEX pgt_schema_snapshots_name ON pgtrickle.pgt_schema_snapshots (table_name, schema_name, snapshot_id);
-- A profile of 300 columns compresses in a third of the time that pglz takes, where the server was built with it.
DO $$ BEGIN
  ALTER MATERIALIZED VIEW pgtrickle.pgt_schema_snapshots
    ALTER shape SET COMPRESSION lz4, ALTER profile SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN NULL;
END $$;

-- Key of the digests that stand for values under pg_trickle.snapshot_values = hashed. The oldest one counts, so that a
-- restored key takes the place of the one that CREATE EXTENSION made.
CREATE MATERIALIZED VIEW pgtrickle.pgt_hash_keys USING heap AS
SELECT r.* FROM pgtrickle_internal.own_rows('pgtrickle', 'pgt_hash_keys') AS r (
  key text,
  created_at timestamptz
);
CREATE UNIQUE INDEX pgt_hash_keys_pkey ON pgtrickle.pgt_hash_keys (key);

-- Snapshots that could not be taken, whole or in part: those of one command. Never a reason for the drop to fail.
CREATE MATERIALIZED VIEW pgtrickle.pgt_capture_failures USING heap AS
SELECT r.* FROM pgtrickle_internal.own_rows('pgtrickle', 'pgt_capture_failures') AS r (
  failed_at timestamptz,
  what text,
  sqlstate text,
  number bigint,
  -- The first few of them.
  relations text,
  actor text
);
-- Sequences are no part of a transaction: they count where a row can't be written, and are read while one runs.
CREATE SEQUENCE pgtrickle.pgt_uncounted_failures;
CREATE SEQUENCE pgtrickle.pgt_baseline_total MINVALUE 0;
CREATE SEQUENCE pgtrickle.pgt_baseline_done MINVALUE 0;

-- What a dump carries, because nothing can compute it again. pg_dump reads no rows of a materialized view: it dumps a table that
-- is always empty, with a condition that brings in the rows of the view, and what is restored into that table goes into
-- the view. Publications pass over tables that are not logged, and a crash can't take what is not there.
CREATE UNLOGGED TABLE pgtrickle.pgt_schema_snapshots_dump (
  snapshot_id bigint NOT NULL,
  origin bigint NOT NULL,
  relation oid NOT NULL,
  schema_name text NOT NULL,
  table_name text NOT NULL,
  captured_at timestamptz NOT NULL,
  reason text NOT NULL,
  moment text,
  alive boolean NOT NULL,
  schema_hash text NOT NULL,
  digest text NOT NULL,
  fingerprint text NOT NULL,
  made_from text,
  relkind text NOT NULL,
  relpersistence text NOT NULL,
  retyped text,
  column_count integer NOT NULL,
  row_estimate bigint,
  stats_available boolean NOT NULL,
  shape text NOT NULL,
  profile text NOT NULL,
  actor text NOT NULL,
  command_tag text,
  statement text,
  application text,
  resource_identity text,
  own boolean NOT NULL,
  in_extension boolean NOT NULL,
  xid xid8 NOT NULL,
  times bigint NOT NULL,
  first_captured_at timestamptz
);
CREATE UNLOGGED TABLE pgtrickle.pgt_hash_keys_dump (
  key text NOT NULL,
  created_at timestamptz NOT NULL
);
CREATE TRIGGER restore BEFORE INSERT ON pgtrickle.pgt_schema_snapshots_dump
  FOR EACH ROW EXECUTE FUNCTION pgtrickle._restore();
CREATE TRIGGER restore BEFORE INSERT ON pgtrickle.pgt_hash_keys_dump
  FOR EACH ROW EXECUTE FUNCTION pgtrickle._restore();
ALTER TABLE pgtrickle.pgt_schema_snapshots_dump ENABLE ALWAYS TRIGGER restore;
ALTER TABLE pgtrickle.pgt_hash_keys_dump ENABLE ALWAYS TRIGGER restore;
SELECT pg_catalog.pg_extension_config_dump('pgtrickle.pgt_schema_snapshots_dump',
  'WHERE false UNION ALL TABLE pgtrickle.pgt_schema_snapshots');
SELECT pg_catalog.pg_extension_config_dump('pgtrickle.pgt_schema_snapshots_snapshot_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('pgtrickle.pgt_hash_keys_dump',
  'WHERE false UNION ALL TABLE pgtrickle.pgt_hash_keys');
INSERT INTO pgtrickle.pgt_hash_keys_dump
VALUES (pg_catalog.gen_random_uuid()::text || pg_catalog.gen_random_uuid()::text, pg_catalog.clock_timestamp());
