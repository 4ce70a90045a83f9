-- Permanent tables, those without a snapshot first and of these the youngest first. $1: origin; $2: only sources of stream
-- tables.
SELECT c.oid
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN LATERAL (
  SELECT true AS recorded FROM pgtrickle.pgt_schema_snapshots s
  WHERE s.relation = c.oid AND s.origin = $1
  LIMIT 1) s ON true
WHERE c.relkind IN ('r', 'p')
  AND c.relpersistence <> 't'
  AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast', 'pgtrickle', 'pgtrickle_internal')
  AND (NOT $2 OR EXISTS (SELECT FROM pgtrickle.pgt_sources k WHERE k.source = c.oid))
ORDER BY s.recorded IS NOT NULL, c.oid DESC
