-- Which snapshots are to go: those beyond the newest $1 of their table that are older than $2 (an interval as text; NULL: of
-- any age). A table is its name: one that is dropped and made again every night has a new oid each time. The newest snapshot of
-- every relation that is alive stays as well, under whatever name it was taken. $3: origin of oids.
SELECT r.snapshot_id
FROM (
  SELECT s.snapshot_id, s.captured_at,
         pg_catalog.row_number() OVER (PARTITION BY s.schema_name, s.table_name ORDER BY s.snapshot_id DESC) AS place,
         s.origin = $3 AND s.snapshot_id = pg_catalog.max(s.snapshot_id) OVER (PARTITION BY s.origin, s.relation)
           AND EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = s.relation) AS newest_of_living
  FROM pgtrickle.pgt_schema_snapshots s
) r
WHERE r.place > $1 AND NOT r.newest_of_living
  AND ($2 IS NULL OR r.captured_at < pg_catalog.now() - $2::pg_catalog.interval)
