-- Which of the relations $1 (oid[]) are sources of a stream table, or members of a source's partition or inheritance tree.
WITH RECURSIVE up (member, relation) AS (
  SELECT o, o FROM pg_catalog.unnest($1) o
  UNION
  SELECT u.member, i.inhparent FROM up u JOIN pg_catalog.pg_inherits i ON i.inhrelid = u.relation
)
SELECT DISTINCT u.member FROM up u JOIN pgtrickle.pgt_dependencies d ON d.object = u.relation AND d.kind = 'source'
