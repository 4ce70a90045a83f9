-- Relations that the running DDL command names, and what hangs on them: tables of its indexes, triggers, policies and rules,
-- partitions and children. For when invalidations have lost count.
WITH RECURSIVE named (oid) AS (
  SELECT c.objid FROM pg_catalog.pg_event_trigger_ddl_commands() c WHERE c.classid = 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid
  UNION
  SELECT i.indrelid FROM pg_catalog.pg_event_trigger_ddl_commands() c JOIN pg_catalog.pg_index i ON i.indexrelid = c.objid
  UNION
  SELECT t.tgrelid FROM pg_catalog.pg_event_trigger_ddl_commands() c JOIN pg_catalog.pg_trigger t ON t.oid = c.objid
  UNION
  SELECT p.polrelid FROM pg_catalog.pg_event_trigger_ddl_commands() c JOIN pg_catalog.pg_policy p ON p.oid = c.objid
  UNION
  SELECT r.ev_class FROM pg_catalog.pg_event_trigger_ddl_commands() c JOIN pg_catalog.pg_rewrite r ON r.oid = c.objid
), tree (oid) AS (
  SELECT n.oid FROM named n
  UNION
  SELECT i.inhrelid FROM tree t JOIN pg_catalog.pg_inherits i ON i.inhparent = t.oid
)
SELECT t.oid FROM tree t
