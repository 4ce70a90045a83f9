-- The oldest schema snapshots that nothing keeps, at most $5 at once.
-- Of relations that are gone, the newest $4 stay (0: all of them). Older than $2 days (0: of any age none), those beyond the newest $1
-- of their table go, and of a name that no table has any more all. The newest of every living relation stays, under
-- whatever name it was taken. $3: origin of oids.
WITH recorded AS (
  SELECT s.snapshot_id, s.captured_at, s.schema_name, s.table_name, c.oid IS NOT NULL AS alive,
         c.oid IS NOT NULL AND s.snapshot_id = pg_catalog.max(s.snapshot_id) OVER (PARTITION BY s.origin, s.relation) AS newest
  FROM pgtrickle.pgt_schema_snapshots s
  LEFT JOIN pg_catalog.pg_class c ON c.oid = s.relation AND s.origin = $3
), ranked AS (
  SELECT r.snapshot_id, r.captured_at, r.alive, r.newest, l.schema_name IS NOT NULL AS named,
         pg_catalog.row_number() OVER (PARTITION BY r.schema_name, r.table_name ORDER BY r.snapshot_id DESC) AS place,
         pg_catalog.row_number() OVER (PARTITION BY r.alive ORDER BY r.snapshot_id DESC) AS place_of_all
  FROM recorded r
  LEFT JOIN (SELECT n.nspname::text AS schema_name, c.relname::text AS table_name
             FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace) l
    ON l.schema_name = r.schema_name AND l.table_name = r.table_name
), old AS (
  SELECT r.snapshot_id FROM ranked r
  WHERE NOT r.newest
    AND (NOT r.alive AND $4 > 0 AND r.place_of_all > $4
      OR $2 > 0 AND r.captured_at < pg_catalog.now() - pg_catalog.make_interval(days => $2::integer)
         AND (r.place > $1 OR NOT r.named))
  ORDER BY r.snapshot_id LIMIT $5
)
SELECT o.snapshot_id FROM old o
