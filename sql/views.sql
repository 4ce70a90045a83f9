-- What users see. Rows are limited to what the caller may know: the stream tables that the caller can read or owns.
CREATE VIEW pgtrickle.stream_tables WITH (security_barrier) AS
SELECT s.relid::regclass AS stream_table,
       s.query,
       s.schedule,
       s.refresh_mode,
       s.status,
       s.reason,
       -- They can quote what the query read: for whoever has the owner's rights.
       CASE WHEN pg_catalog.pg_has_role(c.relowner, 'USAGE') THEN s.detail END AS detail,
       CASE WHEN pg_catalog.pg_has_role(c.relowner, 'USAGE') THEN s.hint END AS hint,
       ARRAY(SELECT d.object::regclass FROM pgtrickle.pgt_dependencies d
             WHERE d.relid = s.relid AND d.kind = 'source' AND d.attnum = 0 ORDER BY d.object) AS sources,
       s.last_refresh,
       CASE WHEN s.status = 'active' AND s.differential AND s.reinitialize IS NULL AND NOT pgtrickle._pending(s.relid)
            THEN interval '0'
            ELSE pg_catalog.clock_timestamp() - s.last_refresh END AS staleness,
       CASE WHEN s.differential THEN 'differential' ELSE 'full' END AS refreshed_as,
       s.reinitialize
FROM pgtrickle.pgt_stream_tables s
JOIN pg_catalog.pg_class c ON c.oid = s.relid
WHERE pg_catalog.pg_has_role(c.relowner, 'USAGE') OR pg_catalog.has_table_privilege(c.oid, 'SELECT');

CREATE VIEW pgtrickle.refresh_history WITH (security_barrier) AS
SELECT h.relid::regclass AS stream_table, h.started_at, h.finished_at, h.action, h.status, h.reason,
       CASE WHEN c.oid IS NULL OR pg_catalog.pg_has_role(c.relowner, 'USAGE') THEN h.detail END AS detail,
       CASE WHEN c.oid IS NULL OR pg_catalog.pg_has_role(c.relowner, 'USAGE') THEN h.hint END AS hint,
       h.rows_inserted, h.rows_updated, h.rows_deleted, h.stream_table_name, h.id
FROM pgtrickle.pgt_refresh_history h
LEFT JOIN pg_catalog.pg_class c ON c.oid = h.relid
WHERE pg_catalog.pg_has_role(c.relowner, 'USAGE') OR pg_catalog.has_table_privilege(c.oid, 'SELECT')
   OR c.oid IS NULL AND pg_catalog.current_setting('is_superuser') = 'on';

CREATE VIEW pgtrickle.change_buffers WITH (security_barrier) AS
SELECT b.source::regclass AS source, b.rows, b.bytes, b.oldest
FROM pgtrickle._change_buffers() b
WHERE pg_catalog.has_table_privilege(b.source, 'SELECT');

-- Which columns of which sources each stream table uses, and for what.
CREATE VIEW pgtrickle.source_columns WITH (security_barrier) AS
SELECT d.relid::regclass AS stream_table, d.object::regclass AS source, a.attname AS column_name, d.roles
FROM pgtrickle.pgt_dependencies d
JOIN pg_catalog.pg_class c ON c.oid = d.relid
JOIN pg_catalog.pg_attribute a ON a.attrelid = d.object AND a.attnum = d.attnum
WHERE d.kind = 'source' AND d.attnum > 0 AND NOT a.attisdropped
  AND (pg_catalog.pg_has_role(c.relowner, 'USAGE') OR pg_catalog.has_table_privilege(c.oid, 'SELECT'));

-- Shapes can hold default expressions and statements: for the owner of the evidence, and superusers.
CREATE VIEW pgtrickle.schema_snapshots AS
SELECT snapshot_id, schema_name, table_name, relation, captured_at, reason, moment, alive, schema_hash, column_count,
       row_estimate, stats_available, pgtrickle._snapshot_columns(shape, profile) AS columns,
       pgtrickle._snapshot_details(shape) AS details, actor, command_tag, statement, application, resource_identity, times,
       COALESCE(first_captured_at, captured_at) AS first_captured_at
FROM pgtrickle.pgt_schema_snapshots;

-- Consecutive snapshots of one relation, and of one resource identity, each pair with its verdict: the worst of its changes,
-- with all of them as evidence.
CREATE VIEW pgtrickle.schema_drift AS SELECT * FROM pgtrickle._verdicts();

-- The running baseline pass, seen from other sessions by its lock and by sequences, which are no part of its transaction.
CREATE VIEW pgtrickle.baseline_progress AS
SELECT l.pid, a.query_start AS started_at, t.last_value AS total, LEAST(d.last_value, t.last_value) AS done
FROM pg_catalog.pg_locks l
JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
CROSS JOIN pgtrickle.pgt_baseline_total t
CROSS JOIN pgtrickle.pgt_baseline_done d
WHERE l.locktype = 'object' AND l.granted AND l.database = a.datid AND a.datname = pg_catalog.current_database()
  AND l.classid = 'pgtrickle.pgt_stream_tables'::regclass AND l.objid = 0 AND l.objsubid = 2;
