-- What has to be so before anything is made, and the schemas. The one with its own name exists by now.
-- Names of this script are PostgreSQL's, whatever the schema or the database has in its path.
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
-- Before anything is made: names and values are UTF-8 in here, and a database of another encoding has others.
CREATE FUNCTION pgtrickle._require_utf8() RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'require_utf8_wrapper';
SELECT pgtrickle._require_utf8();
DROP FUNCTION pgtrickle._require_utf8();

-- Whoever owns the schema can drop what is in it.
DO $$
DECLARE
  other name := (SELECT pg_catalog.pg_get_userbyid(n.nspowner) FROM pg_catalog.pg_namespace n
                 WHERE n.nspname = 'pgtrickle' AND n.nspowner <> (SELECT r.oid FROM pg_catalog.pg_roles r
                                                                  WHERE r.rolname = current_user));
BEGIN
  IF other IS NOT NULL THEN
    RAISE EXCEPTION 'schema pgtrickle belongs to role %', pg_catalog.quote_ident(other)
      USING ERRCODE = 'duplicate_schema', DETAIL = 'reason=SCHEMA_TAKEN.', HINT = 'Drop or rename it: CREATE EXTENSION makes its own.';
  END IF;
END $$;
CREATE SCHEMA pgtrickle_internal;
