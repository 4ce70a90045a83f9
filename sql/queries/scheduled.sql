-- (relid, name, schedule and age of the last refresh in seconds, at most as old as the server has run) of stream tables that
-- are refreshed by schedule, and whether the user who asks, $1, has the owner's rights.
SELECT s.relid, pg_catalog.format('%I.%I', n.nspname, c.relname), pg_catalog.date_part('epoch', s.schedule),
       LEAST(coalesce(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - s.last_refresh), 'infinity'),
             pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - pg_catalog.pg_postmaster_start_time())),
       pg_catalog.pg_has_role($1, c.relowner, 'USAGE')
FROM pgtrickle.pgt_stream_tables s
JOIN pg_catalog.pg_class c ON c.oid = s.relid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE s.schedule IS NOT NULL AND s.status <> 'suspended'
  AND (pg_catalog.pg_has_role($1, c.relowner, 'USAGE') OR pg_catalog.has_table_privilege($1, c.oid, 'SELECT'))
ORDER BY s.relid
