-- What the buffer $3 of source $1 lacks for columns $2: (the table is missing, attnum, type as SQL, a stale column is there)
WITH buffer AS (
  SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = 'pgtrickle_internal' AND c.relname = $3
)
SELECT true, NULL::smallint, NULL::text, NULL::boolean WHERE NOT EXISTS (SELECT FROM buffer)
UNION ALL
SELECT false, a.attnum,
       pg_catalog.format_type(a.atttypid, a.atttypmod)
         || CASE WHEN a.attcollation <> 0 AND a.attcollation <> t.typcollation
                 THEN ' COLLATE ' || pg_catalog.quote_ident(cn.nspname) || '.' || pg_catalog.quote_ident(co.collname)
                 ELSE '' END,
       b.attnum IS NOT NULL
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_catalog.pg_collation co ON co.oid = a.attcollation
LEFT JOIN pg_catalog.pg_namespace cn ON cn.oid = co.collnamespace
LEFT JOIN pg_catalog.pg_attribute b
  ON b.attrelid = (SELECT oid FROM buffer) AND b.attname = 'c' || a.attnum AND NOT b.attisdropped
WHERE a.attrelid = $1 AND a.attnum = ANY ($2) AND NOT a.attisdropped
  AND (b.attnum IS NULL OR b.atttypid <> a.atttypid OR b.atttypmod <> a.atttypmod OR b.attcollation <> a.attcollation)
