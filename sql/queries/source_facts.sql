-- What decides whether a source ($1) can be captured, and whether the present user may read its columns ($2) directly.
SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname),
       c.relkind = 'm',
       c.relpersistence = 'u',
       c.relkind = 'r' AND EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid),
       c.relkind = 'p' AND EXISTS (SELECT FROM pg_catalog.pg_partition_tree(c.oid) p
                                   JOIN pg_catalog.pg_class m ON m.oid = p.relid WHERE m.relkind = 'f'),
       EXISTS (SELECT FROM pg_catalog.pg_attribute a
               WHERE a.attrelid = c.oid AND a.attnum = ANY ($2) AND a.attgenerated = 'v'),
       NOT (pg_catalog.has_table_privilege(c.oid, 'SELECT')
            OR (pg_catalog.has_schema_privilege(c.relnamespace, 'USAGE')
                AND pg_catalog.cardinality($2) > 0
                AND NOT EXISTS (SELECT FROM pg_catalog.unnest($2) AS u (attnum)
                                WHERE NOT pg_catalog.has_column_privilege(c.oid, u.attnum, 'SELECT'))))
         OR NOT pg_catalog.has_schema_privilege(c.relnamespace, 'USAGE'),
       c.relkind = 'p'
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = $1
