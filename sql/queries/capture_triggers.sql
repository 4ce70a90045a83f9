-- Capture triggers of source $1 (row $2, truncate $3) that are missing or not ENABLE ALWAYS, over its partition tree:
-- (table, is the row trigger, exists, oid). The row trigger is created on the root alone; PostgreSQL clones it.
WITH RECURSIVE tree (oid, root) AS (
  SELECT $1::pg_catalog.oid, true
  UNION ALL
  SELECT i.inhrelid, false FROM tree t
  JOIN pg_catalog.pg_inherits i ON i.inhparent = t.oid
  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relispartition
)
SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname), w.for_rows, t.oid IS NOT NULL,
       c.oid
FROM tree
JOIN pg_catalog.pg_class c ON c.oid = tree.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN (VALUES (true, $2), (false, $3)) AS w (for_rows, name)
LEFT JOIN pg_catalog.pg_trigger t ON t.tgrelid = c.oid AND t.tgname = w.name
WHERE (t.oid IS NULL AND (tree.root OR NOT w.for_rows)) OR t.tgenabled <> 'A'
ORDER BY tree.root DESC, 1, 2
