-- The end of the script: privileges, then event triggers.
--
-- Nobody has any on what CREATE EXTENSION made, whatever default privileges say, but for what is listed below. Columns have
-- none of their own.
DO $$
DECLARE
  member record;
BEGIN
  FOR member IN
    SELECT CASE WHEN d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass THEN 'ROUTINE' ELSE 'TABLE' END AS kind,
           i.identity AS name, r.grantee
    FROM pg_catalog.pg_depend d
    JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid AND e.extname = 'pgtrickle'
    LEFT JOIN pg_catalog.pg_proc p ON p.oid = d.objid AND d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass
    LEFT JOIN pg_catalog.pg_class c ON c.oid = d.objid AND d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
    CROSS JOIN LATERAL pg_catalog.pg_identify_object(d.classid, d.objid, 0) i
    CROSS JOIN LATERAL (
      SELECT DISTINCT a.grantee
      FROM pg_catalog.aclexplode(CASE WHEN p.oid IS NOT NULL THEN COALESCE(p.proacl, pg_catalog.acldefault('f', p.proowner))
                                      ELSE c.relacl END) a
      WHERE a.grantee <> COALESCE(p.proowner, c.relowner)) r
    WHERE d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND d.deptype = 'e'
      AND (p.oid IS NOT NULL OR c.relkind IN ('r', 'v', 'm', 'S'))
  LOOP
    EXECUTE pg_catalog.format('REVOKE ALL ON %s %s FROM %s', member.kind, member.name,
      CASE WHEN member.grantee = 0 THEN 'PUBLIC' ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(member.grantee)) END);
  END LOOP;
  FOR member IN
    SELECT n.nspname AS name, a.grantee
    FROM pg_catalog.pg_namespace n CROSS JOIN LATERAL pg_catalog.aclexplode(n.nspacl) a
    WHERE n.nspname IN ('pgtrickle', 'pgtrickle_internal') AND a.grantee <> n.nspowner
  LOOP
    EXECUTE pg_catalog.format('REVOKE ALL ON SCHEMA %I FROM %s', member.name,
      CASE WHEN member.grantee = 0 THEN 'PUBLIC' ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(member.grantee)) END);
  END LOOP;
END $$;

GRANT USAGE ON SCHEMA pgtrickle TO PUBLIC;
-- USAGE lets a refresh, which has the rights of the stream table's owner, call the functions there; never CREATE.
GRANT USAGE ON SCHEMA pgtrickle_internal TO PUBLIC;

-- Each of these looks itself what its caller may do: the owner of a stream table what he likes, others nothing.
GRANT EXECUTE ON FUNCTION
  pgtrickle.create_stream_table, pgtrickle.refresh_stream_table, pgtrickle.drop_stream_table, pgtrickle.alter_stream_table,
  pgtrickle.alter_stream_table_query, pgtrickle.suspend_stream_table, pgtrickle.resume_stream_table,
  pgtrickle.explain_refresh, pgtrickle.health_check, pgtrickle.schema_hash
  TO PUBLIC;
-- Parts of views: whoever may read the view calls them himself. They tell no more than the views do.
GRANT EXECUTE ON FUNCTION
  pgtrickle._pending, pgtrickle._change_buffers, pgtrickle._snapshot_columns, pgtrickle._snapshot_details, pgtrickle._verdicts
  TO PUBLIC;
-- Called by the statements of a refresh, with the rights of the stream table's owner; outside of one they refuse.
GRANT EXECUTE ON FUNCTION pgtrickle_internal.changes, pgtrickle_internal.state, pgtrickle_internal.write_state TO PUBLIC;
-- Looks at nothing but its argument.
GRANT EXECUTE ON FUNCTION pgtrickle_internal.row_image TO PUBLIC;
-- PostgreSQL asks for it when it clones the trigger of a partitioned source on a partition that its owner makes or
-- attaches. The function writes only for triggers that are genuine.
GRANT EXECUTE ON FUNCTION pgtrickle._capture TO PUBLIC;
GRANT SELECT ON pgtrickle.stream_tables, pgtrickle.refresh_history, pgtrickle.change_buffers, pgtrickle.source_columns
  TO PUBLIC;

-- Events that can concern a stream table. ALWAYS: replicas of logical replication change schemas too.
CREATE EVENT TRIGGER pgtrickle_sql_drop ON sql_drop EXECUTE FUNCTION pgtrickle._on_sql_drop();
CREATE EVENT TRIGGER pgtrickle_ddl_end ON ddl_command_end EXECUTE FUNCTION pgtrickle._on_ddl_end();
CREATE EVENT TRIGGER pgtrickle_drop_start ON ddl_command_start
  WHEN TAG IN ('DROP TYPE', 'DROP DOMAIN', 'DROP COLLATION', 'DROP EXTENSION') EXECUTE FUNCTION pgtrickle._on_drop_start();
ALTER EVENT TRIGGER pgtrickle_drop_start ENABLE ALWAYS;
ALTER EVENT TRIGGER pgtrickle_sql_drop ENABLE ALWAYS;
ALTER EVENT TRIGGER pgtrickle_ddl_end ENABLE ALWAYS;
