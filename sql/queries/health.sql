-- (check, status, detail); $1: the library is preloaded; $2: the user who asks, who is told of the stream tables that he can
-- read or owns. What shared memory knows of workers and lateness is added by src/monitor/.
WITH st AS (
  SELECT s.*, pg_catalog.format('%I.%I', s.table_schema, s.table_name) AS name,
         -- Details can quote what the query read: for whoever has the owner's rights.
         COALESCE(pg_catalog.pg_has_role($2, c.relowner, 'USAGE'), false) AS own
  FROM pgtrickle.pgt_stream_tables s
  LEFT JOIN pg_catalog.pg_class c ON c.oid = s.relid
  WHERE c.oid IS NULL OR pg_catalog.pg_has_role($2, c.relowner, 'USAGE') OR pg_catalog.has_table_privilege($2, c.oid, 'SELECT')
)
SELECT 'library preloaded', CASE WHEN $1 THEN 'OK' ELSE 'WARN' END,
       CASE WHEN $1 THEN 'pgtrickle is in shared_preload_libraries'
            ELSE 'pgtrickle is not in shared_preload_libraries: nothing is refreshed by schedule' END
UNION ALL
SELECT 'event triggers', CASE WHEN count(*) FILTER (WHERE evtenabled = 'A') = 2 THEN 'OK' ELSE 'FAIL' END,
       CASE WHEN count(*) FILTER (WHERE evtenabled = 'A') = 2 THEN 'schema changes are seen as they happen'
            ELSE 'ALTER EVENT TRIGGER pgtrickle_ddl_end ENABLE ALWAYS; ALTER EVENT TRIGGER pgtrickle_sql_drop ENABLE ALWAYS; '
                 || 'until then changes are noticed only before a refresh' END
FROM pg_catalog.pg_event_trigger WHERE evtname IN ('pgtrickle_ddl_end', 'pgtrickle_sql_drop')
UNION ALL
SELECT 'stream tables suspended', 'OK', 'none' WHERE NOT EXISTS (SELECT FROM st WHERE status = 'suspended')
UNION ALL
SELECT 'stream table ' || name, CASE WHEN reason = 'MANUAL' THEN 'WARN' ELSE 'FAIL' END,
       name || ' is suspended: ' || reason || CASE WHEN own THEN ': ' || detail || ' ' || hint ELSE '' END
FROM st WHERE status = 'suspended'
UNION ALL
SELECT 'stream table ' || name, 'WARN', 'the next refresh computes ' || name || ' anew, since ' || reinitialize
FROM st WHERE status = 'active' AND reinitialize IS NOT NULL
UNION ALL
SELECT 'stream table ' || name, 'WARN', 'the last refresh of ' || name || ' by schedule failed' || CASE WHEN own THEN ': ' || h.detail ELSE '' END
FROM st CROSS JOIN LATERAL (
  SELECT r.status, r.detail FROM pgtrickle.pgt_refresh_history r WHERE r.relid = st.relid ORDER BY r.id DESC LIMIT 1
) h WHERE st.status <> 'suspended' AND h.status = 'failed'
UNION ALL
-- A TRUNCATE is somebody's doing each time; all else that keeps happening costs a computation of everything for nothing.
SELECT 'stream table ' || name, 'WARN',
       h.unplanned || ' of the last ' || h.all_of_them || ' refreshes of ' || name || ' computed it anew where its changes were to be applied ('
       || h.reasons || '): pgtrickle.refresh_history says why'
FROM st CROSS JOIN LATERAL (
  SELECT count(*) AS all_of_them, count(*) FILTER (WHERE last.reason <> 'TRUNCATED') AS unplanned,
         pg_catalog.string_agg(DISTINCT last.reason, ', ') FILTER (WHERE last.reason <> 'TRUNCATED') AS reasons
  FROM (SELECT r.reason FROM pgtrickle.pgt_refresh_history r
        WHERE r.relid = st.relid AND r.status = 'completed' ORDER BY r.id DESC LIMIT 10) last
) h WHERE h.unplanned >= 3
UNION ALL
SELECT 'stream table ' || name, 'WARN',
       name || ' had diverged from its query and was computed anew, ' || count(*) || ' times, the last at ' || max(r.finished_at)
       || '; it is right again, and the history keeps this. Please report it if you know of no manual change to it'
FROM st JOIN pgtrickle.pgt_refresh_history r ON r.relid = st.relid AND r.status = 'completed' AND r.reason = 'DIVERGED'
GROUP BY name
UNION ALL
SELECT 'change buffers', CASE WHEN coalesce(sum(pg_catalog.pg_relation_size(c.oid)), 0) < 1073741824 THEN 'OK' ELSE 'WARN' END,
       pg_catalog.pg_size_pretty(coalesce(sum(pg_catalog.pg_relation_size(c.oid)), 0)::bigint) || ' in ' || count(*) || ' buffers'
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'pgtrickle_internal' AND c.relname LIKE 'changes\_%' AND c.relkind = 'm'
UNION ALL
SELECT 'tasks', CASE WHEN count(*) = 0 THEN 'OK' ELSE 'WARN' END,
       CASE WHEN count(*) = 0 THEN 'nothing is left to do'
            ELSE count(*) || ' left to do, since ' || min(t.created_at) || ': '
                 || pg_catalog.string_agg(DISTINCT t.kind || coalesce(' ' || st.name, '') || coalesce(' (' || t.failure || ')', ''), ', ')
                 || '; the worker tries again, and so does the next call' END
FROM pgtrickle.pgt_tasks t LEFT JOIN st ON st.relid = t.relid
