-- The oldest snapshots, at most $1, that the next one of their name tells as well (itself, the one that stays, how many drops it
-- stands for, and since when in microseconds): drops, one after the other, of tables of the same name, shape and persistence, of which
-- nothing else is recorded, and that belong to no resource.
WITH named AS (
  SELECT s.snapshot_id, s.schema_name, s.table_name, s.times, COALESCE(s.first_captured_at, s.captured_at) AS first_captured_at,
         s.reason = 'drop' AND s.resource_identity IS NULL
           AND pg_catalog.count(*) OVER (PARTITION BY s.origin, s.relation) = 1 AS alone,
         ROW(s.origin, s.digest, s.schema_hash, s.relkind, s.relpersistence, s.stats_available, s.own, s.in_extension, s.actor)::text AS what
  FROM pgtrickle.pgt_schema_snapshots s
), followed AS (
  SELECT n.*, n.alone AND pg_catalog.lead(n.alone) OVER w AND n.what = pg_catalog.lead(n.what) OVER w AS folds
  FROM named n
  WINDOW w AS (PARTITION BY n.schema_name, n.table_name ORDER BY n.snapshot_id)
), staying AS (
  SELECT f.*, pg_catalog.min(f.snapshot_id) FILTER (WHERE f.folds IS NOT TRUE)
                OVER (PARTITION BY f.schema_name, f.table_name ORDER BY f.snapshot_id
                      ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS stays
  FROM followed f
)
SELECT s.snapshot_id, s.stays, s.times, (pg_catalog.date_part('epoch', s.first_captured_at) * 1000000)::bigint
FROM staying s WHERE s.folds ORDER BY s.snapshot_id LIMIT $1
