-- All that the objects ($1 classes, $2 oids: functions, operators, types, collations) are made of, they among it: what
-- PostgreSQL has recorded of SQL-standard bodies, operators, aggregates, domains, arrays, ranges and composite types.
WITH RECURSIVE used (class, object) AS (
  SELECT u.class, u.object FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2)) AS u (class, object)
  UNION
  SELECT n.class, n.object
  FROM used u
  CROSS JOIN LATERAL (
    SELECT d.refclassid, d.refobjid FROM pg_catalog.pg_depend d
    WHERE d.classid = u.class AND d.objid = u.object AND d.deptype <> 'e'
    UNION ALL
    SELECT d.refclassid, d.refobjid
    FROM pg_catalog.pg_constraint k
    JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass AND d.objid = k.oid
    WHERE u.class = 'pg_catalog.pg_type'::pg_catalog.regclass AND k.contypid = u.object
    UNION ALL
    SELECT 'pg_catalog.pg_class'::pg_catalog.regclass, t.typrelid
    FROM pg_catalog.pg_type t JOIN pg_catalog.pg_class c ON c.oid = t.typrelid AND c.relkind = 'c'
    WHERE u.class = 'pg_catalog.pg_type'::pg_catalog.regclass AND t.oid = u.object
  ) AS n (class, object)
  WHERE n.object >= 16384
    AND (n.class IN ('pg_catalog.pg_proc'::pg_catalog.regclass, 'pg_catalog.pg_type'::pg_catalog.regclass,
                     'pg_catalog.pg_operator'::pg_catalog.regclass, 'pg_catalog.pg_collation'::pg_catalog.regclass)
         OR n.class = 'pg_catalog.pg_class'::pg_catalog.regclass
            AND EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = n.object AND c.relkind = 'c'))
)
SELECT u.class, u.object FROM used u ORDER BY 1, 2
