-- Who holds a lock that a refresh of stream table $1 needs, oldest transaction first: (process, what it is, relation or NULL).
WITH RECURSIVE needed AS (
  SELECT d.object AS relid FROM pgtrickle.pgt_dependencies d WHERE d.relid = $1 AND d.kind = 'source'
  UNION
  SELECT i.inhrelid FROM needed d JOIN pg_catalog.pg_inherits i ON i.inhparent = d.relid
), holders AS (
  SELECT DISTINCT l.pid, CASE WHEN l.locktype = 'relation' THEN l.relation END AS relation
  FROM pg_catalog.pg_locks l
  JOIN pg_catalog.pg_database db ON db.oid = l.database AND db.datname = pg_catalog.current_database()
  LEFT JOIN pg_catalog.pg_class c ON c.oid = l.relation
  LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE l.granted AND (
    l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock' AND l.relation IN (SELECT relid FROM needed)
    OR l.locktype = 'relation' AND (l.relation = $1 OR n.nspname IN ('pgtrickle', 'pgtrickle_internal'))
       AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
    OR l.locktype = 'object' AND l.mode = 'ExclusiveLock' AND l.objid = $1 AND l.objsubid = 0
       AND l.classid = 'pgtrickle.pgt_stream_tables'::pg_catalog.regclass::pg_catalog.oid)
)
SELECT h.pid,
       CASE WHEN h.pid IS NULL THEN 'a prepared transaction'
            ELSE pg_catalog.format('process %s (role %s, application %s, %s)', h.pid, coalesce(a.usename, '-'),
                                   coalesce(nullif(a.application_name, ''), '-'), coalesce(a.state, a.backend_type, '-')) END,
       h.relation::pg_catalog.regclass::text
FROM holders h LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = h.pid
WHERE a.backend_type IS DISTINCT FROM 'pgtrickle worker'
ORDER BY a.xact_start NULLS LAST, h.relation
LIMIT 3
