-- What stands in the way of dropping these objects (classes and oids) without CASCADE: columns of suspended stream tables
-- (relation, number, name, type), and everything else together as one row of NULLs.
WITH RECURSIVE gone (class, object) AS (
  SELECT u.class, u.object FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2)) AS u (class, object)
  UNION
  -- What goes along of itself: array types, members of an extension, the row type's relation.
  SELECT d.classid, d.objid FROM gone g JOIN pg_catalog.pg_depend d ON d.refclassid = g.class AND d.refobjid = g.object
  WHERE d.deptype IN ('a', 'i', 'e', 'x', 'P', 'S') AND d.objsubid = 0
), user_of AS (
  SELECT DISTINCT d.classid, d.objid, d.objsubid
  FROM gone g JOIN pg_catalog.pg_depend d ON d.refclassid = g.class AND d.refobjid = g.object
  WHERE d.deptype = 'n' AND NOT EXISTS (SELECT FROM gone x WHERE x.class = d.classid AND x.object = d.objid)
), stream_table AS (
  SELECT s.relid FROM pgtrickle.pgt_stream_tables s WHERE s.status = 'suspended'
), found AS (
  SELECT s.relid, a.attnum, a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod) AS type
  FROM user_of u
  LEFT JOIN stream_table s ON u.classid = $3 AND u.objid = s.relid AND u.objsubid > 0
  LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = s.relid AND a.attnum = u.objsubid
  -- An index of theirs is made anew with its column.
  WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_index i JOIN stream_table t ON t.relid = i.indrelid
                    WHERE u.classid = $3 AND i.indexrelid = u.objid)
)
SELECT DISTINCT relid, attnum, attname, type FROM found ORDER BY relid, attnum
