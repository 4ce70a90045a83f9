-- A digest of each of the objects ($1 classes, $2 oids) that the snapshot sees: of what can change a query's result, not of
-- names, owners, privileges or costs, nor of where in its statement each part stood. Of a composite type it is its attributes
-- themselves, as JSON: type, modifier, collation and name by number. One that only gets more of them can still be read.
--
-- It also runs under a snapshot older than the present, where the system caches describe another time: everything is read
-- from the catalogs.
WITH o (class, object) AS (
  SELECT u.class, u.object FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2)) AS u (class, object)
)
SELECT f.class, f.object,
       CASE WHEN f.content LIKE '{%' THEN f.content ELSE pg_catalog.hashtextextended(pg_catalog.regexp_replace(f.content,
         ' :(location|stmt_location|stmt_len) -?\d+', '', 'g') COLLATE "C", 0)::pg_catalog.text END
FROM (
  SELECT o.class, o.object,
         ROW(p.prolang, p.prokind, p.prosecdef, CASE WHEN p.prosecdef THEN p.proowner END, p.proisstrict, p.proretset,
             p.provolatile, p.provariadic, p.prorettype, p.proargtypes, p.proallargtypes, p.proargmodes, p.protrftypes,
             p.prosrc, p.probin, p.prosqlbody, p.proconfig,
             (SELECT ROW(a.aggkind, a.aggnumdirectargs, a.aggtransfn::pg_catalog.oid, a.aggfinalfn::pg_catalog.oid,
                         a.aggcombinefn::pg_catalog.oid, a.aggserialfn::pg_catalog.oid, a.aggdeserialfn::pg_catalog.oid,
                         a.aggmtransfn::pg_catalog.oid, a.aggminvtransfn::pg_catalog.oid, a.aggmfinalfn::pg_catalog.oid,
                         a.aggfinalextra, a.aggmfinalextra, a.aggsortop, a.aggtranstype, a.aggmtranstype,
                         a.agginitval, a.aggminitval)
              FROM pg_catalog.pg_aggregate a WHERE a.aggfnoid = p.oid))::pg_catalog.text AS content
  FROM o JOIN pg_catalog.pg_proc p ON p.oid = o.object
  WHERE o.class = 'pg_catalog.pg_proc'::pg_catalog.regclass
  UNION ALL
  SELECT o.class, o.object, ROW(p.oprleft, p.oprright, p.oprresult, p.oprcode::pg_catalog.oid)::pg_catalog.text
  FROM o JOIN pg_catalog.pg_operator p ON p.oid = o.object
  WHERE o.class = 'pg_catalog.pg_operator'::pg_catalog.regclass
  UNION ALL
  SELECT o.class, o.object,
         ROW(t.typtype, t.typlen, t.typbyval, t.typdelim, t.typelem, t.typinput::pg_catalog.oid, t.typoutput::pg_catalog.oid,
             t.typbasetype, t.typtypmod, t.typnotnull, t.typcollation,
             (SELECT pg_catalog.array_agg(e.enumlabel ORDER BY e.enumsortorder) FROM pg_catalog.pg_enum e
              WHERE e.enumtypid = t.oid),
             (SELECT pg_catalog.array_agg(k.conbin::pg_catalog.text ORDER BY k.oid) FROM pg_catalog.pg_constraint k
              WHERE k.contypid = t.oid),
             (SELECT ROW(r.rngsubtype, r.rngcollation, r.rngsubopc, r.rngcanonical::pg_catalog.oid,
                         r.rngsubdiff::pg_catalog.oid)
              FROM pg_catalog.pg_range r WHERE r.rngtypid = t.oid))::pg_catalog.text
  FROM o JOIN pg_catalog.pg_type t ON t.oid = o.object
  WHERE o.class = 'pg_catalog.pg_type'::pg_catalog.regclass
  UNION ALL
  -- The version that the library has now, beside the recorded one.
  SELECT o.class, o.object,
         'collation ' || (pg_catalog.to_jsonb(c) - '{collname,collnamespace,collowner}'::pg_catalog.text[])::pg_catalog.text
           || COALESCE(pg_catalog.pg_collation_actual_version(c.oid), '')
  FROM o JOIN pg_catalog.pg_collation c ON c.oid = o.object
  WHERE o.class = 'pg_catalog.pg_collation'::pg_catalog.regclass
  UNION ALL
  -- Views, with whose rights they read; and composite types.
  SELECT o.class, o.object,
         CASE c.relkind
           WHEN 'v' THEN ROW(c.reloptions, c.relowner,
                             (SELECT w.ev_action FROM pg_catalog.pg_rewrite w
                              WHERE w.ev_class = c.oid AND w.ev_type = '1'))::pg_catalog.text
           WHEN 'c' THEN COALESCE(
             (SELECT pg_catalog.jsonb_object_agg(a.attnum, pg_catalog.jsonb_build_array(a.atttypid::pg_catalog.int8,
                                                   a.atttypmod, a.attcollation::pg_catalog.int8, a.attname))::pg_catalog.text
              FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), '{}')
         END
  FROM o JOIN pg_catalog.pg_class c ON c.oid = o.object
  WHERE o.class = 'pg_catalog.pg_class'::pg_catalog.regclass AND c.relkind IN ('v', 'c')
) AS f
