#!/bin/sh
# Records what each DDL command of ddl_cases.txt does to a shape, as JSON lines (name, sql, before, after) on stdout.
# Usage: record.sh PSQL-OPTIONS... (a scratch database, as superuser; it drops and creates the schemas t, t2, t3)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
query=$(sed 's/\$1/ARRAY[:oid]::oid[]/' "$here/../../../sql/queries/table_shape.sql")
while IFS='|' read -r name relation sql; do
    psql -X -q -A -t -v ON_ERROR_STOP=1 "$@" <<EOF
SET client_min_messages = error;
\\i $here/schema.sql
SELECT '$relation'::regclass::oid AS oid \\gset
SET search_path = pg_catalog, pg_temp;
SELECT replace(shape, chr(10), '') AS before FROM ($query) s \\gset
$sql;
SELECT replace(shape, chr(10), '') AS after FROM ($query) s \\gset
SELECT '{"name":' || to_json('$name'::text)::text || ',"sql":' || to_json(\$sql\$$sql\$sql\$::text)::text
    || ',"before":' || :'before' || ',"after":' || :'after' || '}';
EOF
done <"$here/ddl_cases.txt" | sed -e 's/" : /":/g' -e 's/, "/,"/g' -e 's/},  {/},{/g'
