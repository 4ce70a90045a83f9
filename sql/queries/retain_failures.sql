-- Notes of failed snapshots (places) that become one: all but the newest $1, if these are more than one.
SELECT o.place
FROM (SELECT x.ctid AS place, pg_catalog.row_number() OVER (ORDER BY x.failed_at DESC) AS number
      FROM pgtrickle.pgt_capture_failures x) o
WHERE o.number > $1 AND (SELECT pg_catalog.count(*) FROM pgtrickle.pgt_capture_failures) > $1 + 1
