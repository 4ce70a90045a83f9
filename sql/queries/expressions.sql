-- Defaults and generation expressions of each relation in $1 (oid[]): one row (oid, JSON text by attnum) per relation that has
-- any.
--
-- It also runs under a snapshot older than the present, where the system caches describe another time: pg_get_expr is
-- called only for an expression that exists now (pg_describe_object answers NULL for a missing one), because printing one
-- that refers to a dropped column or function fails. Expressions are compared by the digest of their stored form, which
-- renames leave alone.
--
-- Run it with search_path = pg_catalog, pg_temp: printed expressions depend on it.
SELECT d.adrelid, pg_catalog.json_object_agg(d.adnum, pg_catalog.json_build_object(
         'oid', d.oid::pg_catalog.int8,
         -- Printing locks the table that is named with it; a default has no column in it that would need one.
         'text', CASE WHEN pg_catalog.pg_describe_object(2604, d.oid, 0) IS NOT NULL
                      THEN pg_catalog.pg_get_expr(d.adbin, CASE WHEN a.attgenerated <> '' THEN d.adrelid ELSE 0 END)
                 END,
         -- Where in its statement each part stood is no part of the expression.
         'digest', pg_catalog.hashtextextended(pg_catalog.regexp_replace(
           d.adbin::pg_catalog.text, ' :location -?\d+', '', 'g') COLLATE "C", 0)::pg_catalog.text))
FROM pg_catalog.pg_attrdef d
JOIN pg_catalog.pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
WHERE d.adrelid = ANY ($1)
GROUP BY d.adrelid
