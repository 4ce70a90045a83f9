-- Everything whose change can concern a stream table: (kind, class, object, source). Members of a source's partition
-- tree count as the source.
WITH RECURSIVE tree (source, member) AS (
  SELECT DISTINCT d.object, d.object FROM pgtrickle.pgt_dependencies d WHERE d.kind = 'source'
  UNION
  SELECT t.source, i.inhrelid FROM tree t JOIN pg_catalog.pg_inherits i ON i.inhparent = t.member
)
SELECT 'source', 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid, member, source FROM tree
UNION ALL
SELECT DISTINCT d.kind, d.class, d.object, 0::pg_catalog.oid FROM pgtrickle.pgt_dependencies d WHERE d.kind <> 'source'
UNION ALL
SELECT 'stream table', 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid, s.relid, 0::pg_catalog.oid
FROM pgtrickle.pgt_stream_tables s
UNION ALL
SELECT 'curable', 0::pg_catalog.oid, 0::pg_catalog.oid, 0::pg_catalog.oid
WHERE EXISTS (SELECT FROM pgtrickle.pgt_stream_tables WHERE status = 'suspended' AND reason IN ('SOURCE_DROPPED', 'COLUMN_DROPPED', 'OBJECT_CHANGED'))
UNION ALL
SELECT 'suspended', 0::pg_catalog.oid, 0::pg_catalog.oid, 0::pg_catalog.oid
WHERE EXISTS (SELECT FROM pgtrickle.pgt_stream_tables WHERE status = 'suspended')
