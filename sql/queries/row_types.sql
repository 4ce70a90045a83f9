-- Of these types, by position: those with the row type of a relation in them, however deep, or with a composite type that
-- no column of these tables has. A column of such a type would forbid ALTER TABLE and ALTER TYPE what they may do now.
WITH RECURSIVE inside (position, type) AS (
  SELECT u.position, u.type FROM pg_catalog.unnest($1) WITH ORDINALITY AS u (type, position)
  UNION
  SELECT -1, a.atttypid FROM pg_catalog.pg_attribute a
  WHERE a.attrelid = ANY ($2) AND a.attnum > 0 AND NOT a.attisdropped
  UNION
  SELECT i.position, part.type FROM inside i
  JOIN pg_catalog.pg_type t ON t.oid = i.type
  CROSS JOIN LATERAL (
    SELECT t.typelem UNION ALL SELECT t.typbasetype
    UNION ALL SELECT r.rngsubtype FROM pg_catalog.pg_range r WHERE t.oid IN (r.rngtypid, r.rngmultitypid)
    UNION ALL SELECT a.atttypid FROM pg_catalog.pg_attribute a
              WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
  ) AS part (type)
  WHERE part.type <> 0
)
SELECT i.position, pg_catalog.format_type(t.oid, NULL), c.relkind <> 'c'
FROM inside i
JOIN pg_catalog.pg_type t ON t.oid = i.type
JOIN pg_catalog.pg_class c ON c.oid = t.typrelid
WHERE i.position > 0
  AND (c.relkind <> 'c' OR NOT EXISTS (SELECT FROM inside s WHERE s.position = -1 AND s.type = i.type))
ORDER BY 1, 3 DESC, 2 LIMIT 1
