-- Events that can concern a stream table. ALWAYS: replicas of logical replication change schemas too.
CREATE EVENT TRIGGER pgtrickle_sql_drop ON sql_drop EXECUTE FUNCTION pgtrickle._on_sql_drop();
CREATE EVENT TRIGGER pgtrickle_ddl_end ON ddl_command_end EXECUTE FUNCTION pgtrickle._on_ddl_end();
ALTER EVENT TRIGGER pgtrickle_sql_drop ENABLE ALWAYS;
ALTER EVENT TRIGGER pgtrickle_ddl_end ENABLE ALWAYS;
