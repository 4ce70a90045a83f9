-- Which of these objects (classes and oids) the user may drop: as their owner, or as that of their schema.
SELECT count(*) = pg_catalog.array_length($2, 1)
FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2)) AS u (class, object)
LEFT JOIN pg_catalog.pg_type t ON u.class = 'pg_catalog.pg_type'::pg_catalog.regclass::pg_catalog.oid AND t.oid = u.object
LEFT JOIN pg_catalog.pg_collation c
  ON u.class = 'pg_catalog.pg_collation'::pg_catalog.regclass::pg_catalog.oid AND c.oid = u.object
LEFT JOIN pg_catalog.pg_extension e
  ON u.class = 'pg_catalog.pg_extension'::pg_catalog.regclass::pg_catalog.oid AND e.oid = u.object
LEFT JOIN pg_catalog.pg_namespace n ON n.oid = coalesce(t.typnamespace, c.collnamespace)
WHERE pg_catalog.pg_has_role($3, coalesce(t.typowner, c.collowner, e.extowner), 'USAGE')
   OR pg_catalog.pg_has_role($3, n.nspowner, 'USAGE')
