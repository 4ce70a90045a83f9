-- What surrounds each relation in $1 (oid[]): one row (oid, JSON text) per relation that the snapshot sees. The JSON is what
-- src/snapshot/shape.rs reads.
-- Capture triggers are those for this relation itself: those of what it is a part of come and go with that.
--
-- It also runs under a snapshot older than the present, where the system caches describe another time: everything is read from
-- the catalogs.
--
-- Run it with search_path = pg_catalog, pg_temp: its operators are not qualified.
SELECT c.oid,
       pg_catalog.json_build_object(
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
                        SELECT tg.tgname AS name, tg.tgenabled AS enabled, tg.tgfoid::pg_catalog.int8 AS function,
                               pg_catalog.hashtextextended(
                                 pg_catalog.concat_ws('|', tg.tgtype, tg.tgnargs, pg_catalog.encode(tg.tgargs, 'hex'), tg.tgattr,
                                   COALESCE(tg.tgqual::pg_catalog.text, '-'), COALESCE(tg.tgoldtable, '-'), COALESCE(tg.tgnewtable, '-'),
                                   tg.tgparentid <> 0, tg.tgconstraint <> 0, tg.tgconstrrelid, tg.tgdeferrable, tg.tginitdeferred)
                                 COLLATE "C", 0)::pg_catalog.text AS definition,
                               tg.xmin::pg_catalog.text AS version
                        FROM pg_catalog.pg_trigger tg
                        WHERE tg.tgrelid = mc.oid AND tg.tgname IN (('pgtrickle_capture_' || c.oid)::name, ('pgtrickle_capture_truncate_' || c.oid)::name)
                        ORDER BY tg.tgname) g) END AS capture
             FROM m
             JOIN pg_catalog.pg_class mc ON mc.oid = m.member
             ORDER BY mc.oid, m.parent) x) END,
         'capture', CASE WHEN c.relhastriggers THEN (
           SELECT pg_catalog.json_agg(g)
           FROM (
             SELECT tg.tgname AS name, tg.tgenabled AS enabled, tg.tgfoid::pg_catalog.int8 AS function,
                    pg_catalog.hashtextextended(
                      pg_catalog.concat_ws('|', tg.tgtype, tg.tgnargs, pg_catalog.encode(tg.tgargs, 'hex'), tg.tgattr,
                        COALESCE(tg.tgqual::pg_catalog.text, '-'), COALESCE(tg.tgoldtable, '-'), COALESCE(tg.tgnewtable, '-'),
                        tg.tgparentid <> 0, tg.tgconstraint <> 0, tg.tgconstrrelid, tg.tgdeferrable, tg.tginitdeferred)
                      COLLATE "C", 0)::pg_catalog.text AS definition,
                    tg.xmin::pg_catalog.text AS version
             FROM pg_catalog.pg_trigger tg
             WHERE tg.tgrelid = c.oid AND tg.tgname IN (('pgtrickle_capture_' || c.oid)::name, ('pgtrickle_capture_truncate_' || c.oid)::name)
             ORDER BY tg.tgname) g) END
       )::pg_catalog.text
FROM pg_catalog.pg_class c
WHERE c.oid = ANY ($1)
