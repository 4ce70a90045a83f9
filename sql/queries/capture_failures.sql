-- (status, detail) of schema snapshots that could not be taken. $1: tables may be named.
SELECT CASE WHEN f.n + u.n = 0 THEN 'OK' ELSE 'WARN' END,
       CASE WHEN f.n + u.n = 0 THEN 'none failed'
            ELSE f.n + u.n || ' could not be taken, whole or in part'
              || COALESCE(', the last at ' || f.last_at || ' (SQLSTATE ' || f.last_state || ')', '')
              || CASE WHEN $1 THEN COALESCE(' of ' || f.last_tables, '') ELSE '' END
              || '. SELECT pgtrickle.forget_capture_failures(); when looked into' END
FROM (
  SELECT COALESCE(pg_catalog.sum(number), 0) AS n,
         pg_catalog.to_char(pg_catalog.max(failed_at), 'YYYY-MM-DD HH24:MI:SS OF') AS last_at,
         (pg_catalog.array_agg(sqlstate ORDER BY failed_at DESC))[1] AS last_state,
         (pg_catalog.array_agg(relations ORDER BY failed_at DESC))[1] AS last_tables
  FROM pgtrickle.pgt_capture_failures) f
CROSS JOIN (SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS n FROM pgtrickle.pgt_uncounted_failures) u
