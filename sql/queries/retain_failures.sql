-- All but the newest $1 notes of failed snapshots become one, which has their number.
WITH gone AS (
  DELETE FROM pgtrickle.pgt_capture_failures f
  USING (SELECT x.ctid AS row, pg_catalog.row_number() OVER (ORDER BY x.failed_at DESC) AS place
         FROM pgtrickle.pgt_capture_failures x) o
  WHERE f.ctid = o.row AND o.place > $1
    AND (SELECT pg_catalog.count(*) FROM pgtrickle.pgt_capture_failures) > $1 + 1
  RETURNING f.failed_at, f.sqlstate, f.number
)
INSERT INTO pgtrickle.pgt_capture_failures (failed_at, what, sqlstate, number, relations, actor)
SELECT pg_catalog.max(failed_at), 'older failures together',
       (pg_catalog.array_agg(sqlstate ORDER BY failed_at DESC))[1], pg_catalog.sum(number)::bigint, '', ''
FROM gone HAVING pg_catalog.count(*) > 0
