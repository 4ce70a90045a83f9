-- The oldest rows of history that nothing keeps, at most $3 at once. Of each stream table and status the
-- newest $1 stay if they are not older than $2 days (0: of whatever age), and the newest one in any case; of all stream
-- tables that are gone together the newest $1 that are not older.
WITH ranked AS (
  SELECT h.id, h.started_at, s.relid IS NOT NULL AS alive,
         CASE WHEN s.relid IS NOT NULL
              THEN pg_catalog.row_number() OVER (PARTITION BY h.relid, h.status ORDER BY h.id DESC)
              ELSE pg_catalog.row_number() OVER (PARTITION BY s.relid IS NULL ORDER BY h.id DESC) END AS place
  FROM pgtrickle.pgt_refresh_history h LEFT JOIN pgtrickle.pgt_stream_tables s ON s.relid = h.relid
), old AS (
  SELECT r.id FROM ranked r
  WHERE r.place > $1
     OR $2 > 0 AND r.started_at < pg_catalog.now() - pg_catalog.make_interval(days => $2::integer)
        AND (r.place > 1 OR NOT r.alive)
  ORDER BY r.id LIMIT $3
)
SELECT o.id FROM old o
