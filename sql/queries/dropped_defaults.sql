-- (attnum, text) of the defaults of table $1, which is gone but for the snapshot; of column $2 alone unless it is 0. Numbers
-- that stand for a relation that is gone as well get its name of then, as regclass would print it.
SELECT d.adnum, COALESCE(named.text, printed.text)
FROM pg_catalog.pg_attrdef d
JOIN pg_catalog.pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum AND a.attgenerated = ''
CROSS JOIN LATERAL (SELECT pg_catalog.pg_get_expr(d.adbin, 0) AS text OFFSET 0) printed
LEFT JOIN LATERAL (
  SELECT pg_catalog.replace(printed.text, '''' || number || '''::regclass',
           pg_catalog.quote_literal(pg_catalog.format('%I.%I', n.nspname, c.relname)) || '::regclass') AS text
  FROM (SELECT pg_catalog.substring(printed.text, '''(\d+)''::regclass') AS number) found
  JOIN pg_catalog.pg_class c ON c.oid = number::pg_catalog.oid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  OFFSET 0) named ON true
WHERE d.adrelid = $1 AND ($2 = 0 OR d.adnum = $2)
