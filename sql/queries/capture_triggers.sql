-- What is wrong with the capture triggers of the sources $1 (oid[]) over their partition trees; $2 and $3 are the names of row and
-- TRUNCATE triggers without the source's oid. One row for each trigger that is missing, not as it is made, or not ENABLE ALWAYS:
-- (where it is put right: oid and name; relation that it is on; for rows; as it is made; table whose trigger is in the way: oid
-- and name). PostgreSQL clones the row trigger of the root, so a clone is put right there; TRUNCATE triggers it does not clone.
WITH RECURSIVE tree (source, oid, parent) AS (
  SELECT s.source, s.source, NULL::pg_catalog.oid FROM pg_catalog.unnest($1) AS s (source)
  UNION ALL
  SELECT t.source, i.inhrelid, t.oid FROM tree t
  JOIN pg_catalog.pg_inherits i ON i.inhparent = t.oid
  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relispartition
), wanted AS (
  -- tgtype: for each row 1, INSERT 4, DELETE 8, UPDATE 16, TRUNCATE 32; neither BEFORE nor INSTEAD.
  SELECT tree.*, w.for_rows, w.prefix || tree.source::pg_catalog.text AS name, w.type, w.for_rows AND tree.parent IS NOT NULL AS clone
  FROM tree CROSS JOIN (VALUES (true, $2, 29), (false, $3, 32)) AS w (for_rows, prefix, type)
), found AS (
  SELECT w.*, t.oid AS trigger, t.tgenabled,
         COALESCE(t.tgtype = w.type AND t.tgfoid = 'pgtrickle._capture()'::pg_catalog.regprocedure::pg_catalog.oid
           AND t.tgnargs = 1 AND t.tgargs = pg_catalog.convert_to(w.source::pg_catalog.text, 'SQL_ASCII') || '\x00'::pg_catalog.bytea
           AND t.tgattr::pg_catalog.text = '' AND t.tgqual IS NULL AND t.tgoldtable IS NULL AND t.tgnewtable IS NULL
           AND t.tgconstraint = 0 AND t.tgconstrrelid = 0 AND NOT t.tgdeferrable AND NOT t.tginitdeferred
           AND t.tgparentid = CASE WHEN w.clone THEN (
                 SELECT p.oid FROM pg_catalog.pg_trigger p WHERE p.tgrelid = w.parent AND p.tgname = w.name) ELSE 0 END, false) AS made,
         -- A constraint trigger is not replaced, and a clone only along with what it was cloned from.
         CASE WHEN t.tgconstraint <> 0 OR (t.tgparentid <> 0 AND NOT w.clone) THEN (
           WITH RECURSIVE up (relation, parent) AS (
             SELECT t.tgrelid, t.tgparentid
             UNION ALL
             SELECT p.tgrelid, p.tgparentid FROM up JOIN pg_catalog.pg_trigger p ON p.oid = up.parent)
           SELECT up.relation FROM up WHERE up.parent = 0) END AS obstacle
  FROM wanted w
  LEFT JOIN pg_catalog.pg_trigger t ON t.tgrelid = w.oid AND t.tgname = w.name
), faults AS (
  SELECT f.*, CASE WHEN f.for_rows AND NOT f.made THEN f.source ELSE f.oid END AS place
  FROM found f WHERE NOT f.made OR f.tgenabled <> 'A'
), names AS (
  SELECT c.oid, pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) AS name
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
)
SELECT f.name, f.source, f.place, place.name, relation.name, f.for_rows, f.made, f.obstacle, obstacle.name
FROM faults f
JOIN names place ON place.oid = f.place
JOIN names relation ON relation.oid = f.oid
LEFT JOIN names obstacle ON obstacle.oid = f.obstacle
ORDER BY f.source, f.parent IS NOT NULL, f.oid, f.for_rows
