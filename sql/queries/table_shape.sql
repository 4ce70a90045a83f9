-- The shape of each relation in $1 (oid[]): one row (oid, JSON text) per relation that the snapshot sees. The JSON is
-- what src/snapshot/shape.rs reads.
--
-- It also runs under a snapshot older than the present, where the system caches describe another time. So everything
-- is read from the catalogs, names of types and relations are joined, and pg_get_expr is called only for an expression
-- that exists now (pg_describe_object answers NULL for a missing one): printing one that refers to a dropped column or
-- function fails. Expressions are compared by the digest of their stored form, which renames leave alone.
--
-- Run it with search_path = pg_catalog, pg_temp: its operators are not qualified, and printed expressions depend on it.
SELECT c.oid,
       pg_catalog.json_build_object(
         'version', 1,
         'oid', c.oid::pg_catalog.int8,
         'schema', (SELECT n.nspname FROM pg_catalog.pg_namespace n WHERE n.oid = c.relnamespace),
         'name', c.relname,
         'kind', c.relkind,
         'persistence', c.relpersistence,
         'owner', (SELECT r.rolname FROM pg_catalog.pg_roles r WHERE r.oid = c.relowner),
         'row_estimate', CASE WHEN c.reltuples >= 0 THEN c.reltuples::pg_catalog.int8 END,
         'filenode', c.relfilenode::pg_catalog.int8,
         'columns', (
           SELECT pg_catalog.json_agg(x)
           FROM (
             SELECT a.attnum,
                    a.attname AS name,
                    a.atttypid::pg_catalog.int8 AS type_oid,
                    (SELECT n.nspname FROM pg_catalog.pg_namespace n WHERE n.oid = t.typnamespace)
                      || '.' || t.typname AS type_name,
                    t.typtype AS type_kind,
                    a.atttypmod AS typmod,
                    a.attndims AS dims,
                    a.attcollation::pg_catalog.int8 AS collation_oid,
                    CASE WHEN a.attcollation <> 0 THEN (
                      SELECT n.nspname || '.' || l.collname
                      FROM pg_catalog.pg_collation l
                      JOIN pg_catalog.pg_namespace n ON n.oid = l.collnamespace
                      WHERE l.oid = a.attcollation) END AS collation_name,
                    a.attnotnull AS not_null,
                    CASE WHEN a.atthasdef THEN (
                      SELECT pg_catalog.json_build_object(
                               'oid', d.oid::pg_catalog.int8,
                               'text', CASE WHEN pg_catalog.pg_describe_object(2604, d.oid, 0) IS NOT NULL
                                            THEN pg_catalog.pg_get_expr(d.adbin, d.adrelid) END,
                               'digest', pg_catalog.hashtextextended(d.adbin::pg_catalog.text COLLATE "C", 0)::pg_catalog.text)
                      FROM pg_catalog.pg_attrdef d
                      WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum) END AS expression,
                    a.atthasmissing AS missing,
                    a.attidentity AS identity,
                    a.attgenerated AS generated,
                    a.xmin::pg_catalog.text || a.ctid::pg_catalog.text AS stored
             FROM pg_catalog.pg_attribute a
             -- LATERAL and OFFSET 0: one index probe a column, never a scan of all types. LEFT: a missing type is an error
             -- for the reader, not a missing column.
             LEFT JOIN LATERAL (
               SELECT y.typname, y.typtype, y.typnamespace
               FROM pg_catalog.pg_type y
               WHERE y.oid = a.atttypid
               OFFSET 0) t ON true
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
             ORDER BY a.attnum) x),
         'indexes', CASE WHEN c.relhasindex THEN (
           SELECT pg_catalog.json_agg(x)
           FROM (
             SELECT i.indexrelid::pg_catalog.int8 AS oid,
                    (SELECT ic.relname FROM pg_catalog.pg_class ic WHERE ic.oid = i.indexrelid) AS name,
                    i.indkey::pg_catalog.int2[] AS attnums,
                    i.indnkeyatts AS key_count,
                    i.indisunique AS "unique",
                    i.indisprimary AS "primary",
                    i.indisvalid AS valid,
                    i.indisreplident AS replica_identity,
                    i.indexprs IS NOT NULL AS expressions,
                    i.indpred IS NOT NULL AS partial
             FROM pg_catalog.pg_index i
             WHERE i.indrelid = c.oid
             ORDER BY i.indexrelid) x) END,
         -- Without NOT NULL constraints (rows of their own since PostgreSQL 18): the columns say it.
         'constraints', (
           SELECT pg_catalog.json_agg(x)
           FROM (
             SELECT k.oid::pg_catalog.int8 AS oid,
                    k.conname AS name,
                    k.contype AS kind,
                    k.conkey AS attnums,
                    k.convalidated AS validated
             FROM pg_catalog.pg_constraint k
             WHERE k.conrelid = c.oid AND k.contype <> 'n'
             ORDER BY k.oid) x),
         'replica_identity', c.relreplident,
         'row_security', c.relrowsecurity,
         'force_row_security', c.relforcerowsecurity,
         'policies', (
           SELECT pg_catalog.json_agg(x)
           FROM (
             SELECT p.polname AS name,
                    pg_catalog.hashtextextended(
                      pg_catalog.concat_ws('|', p.polcmd, p.polpermissive, p.polroles::pg_catalog.text,
                        COALESCE(p.polqual::pg_catalog.text, '-'), COALESCE(p.polwithcheck::pg_catalog.text, '-'))
                      COLLATE "C", 0)::pg_catalog.text AS digest
             FROM pg_catalog.pg_policy p
             WHERE p.polrelid = c.oid
             ORDER BY p.polname) x),
         'partitioning', CASE WHEN c.relkind = 'p' THEN (
           SELECT pg_catalog.json_build_object(
                    'strategy', pt.partstrat,
                    'attnums', pt.partattrs::pg_catalog.int2[],
                    'expressions', pt.partexprs IS NOT NULL)
           FROM pg_catalog.pg_partitioned_table pt
           WHERE pt.partrelid = c.oid) END,
         'is_partition', c.relispartition,
         'parents', (
           SELECT pg_catalog.json_agg(i.inhparent::pg_catalog.int8 ORDER BY i.inhseqno)
           FROM pg_catalog.pg_inherits i
           WHERE i.inhrelid = c.oid AND NOT i.inhdetachpending),
         -- Partitions and inheritance children of any depth. One whose DETACH CONCURRENTLY is pending is no member:
         -- queries skip it already.
         'members', CASE WHEN c.relhassubclass THEN (
           WITH RECURSIVE m(member, parent) AS (
             SELECT i.inhrelid, i.inhparent
             FROM pg_catalog.pg_inherits i
             WHERE i.inhparent = c.oid AND NOT i.inhdetachpending
             UNION
             SELECT i.inhrelid, i.inhparent
             FROM m
             JOIN pg_catalog.pg_inherits i ON i.inhparent = m.member
             WHERE NOT i.inhdetachpending)
           SELECT pg_catalog.json_agg(x)
           FROM (
             SELECT mc.oid::pg_catalog.int8 AS oid,
                    m.parent::pg_catalog.int8 AS parent,
                    (SELECT n.nspname FROM pg_catalog.pg_namespace n WHERE n.oid = mc.relnamespace) AS schema,
                    mc.relname AS name,
                    mc.relkind AS kind,
                    mc.relispartition AS partition,
                    mc.relpersistence AS persistence,
                    mc.relfilenode::pg_catalog.int8 AS filenode,
                    CASE WHEN mc.relhastriggers THEN (
                      SELECT pg_catalog.json_agg(g)
                      FROM (
                        SELECT tg.tgname AS name, tg.tgenabled AS enabled, tg.tgfoid::pg_catalog.int8 AS function
                        FROM pg_catalog.pg_trigger tg
                        WHERE tg.tgrelid = mc.oid AND tg.tgname LIKE 'pgtrickle\_capture%'
                        ORDER BY tg.tgname) g) END AS capture
             FROM m
             JOIN pg_catalog.pg_class mc ON mc.oid = m.member
             ORDER BY mc.oid, m.parent) x) END,
         'capture', CASE WHEN c.relhastriggers THEN (
           SELECT pg_catalog.json_agg(g)
           FROM (
             SELECT tg.tgname AS name, tg.tgenabled AS enabled, tg.tgfoid::pg_catalog.int8 AS function
             FROM pg_catalog.pg_trigger tg
             WHERE tg.tgrelid = c.oid AND tg.tgname LIKE 'pgtrickle\_capture%'
             ORDER BY tg.tgname) g) END
       )::pg_catalog.text AS shape
FROM pg_catalog.pg_class c
WHERE c.oid = ANY ($1)
