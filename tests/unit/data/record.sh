#!/bin/sh
# Records what each DDL command of ddl_cases.txt does to a shape, as JSON lines (name, sql, before, after) on stdout.
# Usage: record.sh PSQL-OPTIONS... (a scratch database, as superuser; it drops and creates the schemas t, t2, t3 and the
# extension pgtrickle, which has to be installed)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
now="REFRESH MATERIALIZED VIEW pgtrickle.pgt_schema_snapshots WITH NO DATA;
REFRESH MATERIALIZED VIEW pgtrickle.pgt_schema_snapshots;
SELECT FROM pgtrickle.capture_baseline(1000000);
"
shape='FROM pgtrickle.pgt_schema_snapshots WHERE relation = :oid'
psql -X -q -v ON_ERROR_STOP=1 "$@" -c "SET client_min_messages = error; DROP EXTENSION IF EXISTS pgtrickle; CREATE EXTENSION pgtrickle"
while IFS='|' read -r name relation sql; do
    psql -X -q -A -t -v ON_ERROR_STOP=1 "$@" <<EOF
SET client_min_messages = error;
\\i $here/schema.sql
SELECT '$relation'::regclass::oid AS oid \\gset
SET search_path = pg_catalog, pg_temp;
$now
SELECT shape AS before $shape \\gset
$sql;
$now
SELECT shape AS after $shape \\gset
SELECT '{"name":' || to_json('$name'::text)::text || ',"sql":' || to_json(\$sql\$$sql\$sql\$::text)::text
    || ',"before":' || :'before' || ',"after":' || :'after' || '}';
EOF
done <"$here/ddl_cases.txt"
