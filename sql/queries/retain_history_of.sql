-- The oldest rows of history of the stream table $4 that nothing keeps, at most $3 at once: of each status the newest $1 stay
-- if they are not older than $2 days (0: of whatever age), and the newest one in any case.
WITH ranked AS (
  SELECT h.id, h.started_at, pg_catalog.row_number() OVER (PARTITION BY h.status ORDER BY h.id DESC) AS place
  FROM pgtrickle.pgt_refresh_history h WHERE h.relid = $4
), old AS (
  SELECT r.id FROM ranked r
  WHERE r.place > $1
     OR $2 > 0 AND r.started_at < pg_catalog.now() - pg_catalog.make_interval(days => $2::integer) AND r.place > 1
  ORDER BY r.id LIMIT $3
)
SELECT o.id FROM old o
