//! Nobody gains a right: whatever a role plants into a search_path, or hangs on what is its own, runs with its own rights.

use crate::common::*;
use crate::support::{Cluster, Options, expect_error, fresh_db, refresh, wait_until};
use postgres::Client;

/// Operators that shadow those of PostgreSQL, or stand where it has none of these very types: (left, right, a comparison
/// that says the same).
const OPERATORS: &[(&str, &str, &str)] = &[
    ("name", "name", "$1::pg_catalog.text OPERATOR(pg_catalog.=) $2::pg_catalog.text"),
    ("name", "text", "$1::pg_catalog.text OPERATOR(pg_catalog.=) $2"),
    ("regclass", "oid", "$1::pg_catalog.oid OPERATOR(pg_catalog.=) $2"),
    ("oid", "regclass", "$1 OPERATOR(pg_catalog.=) $2::pg_catalog.oid"),
    ("oid", "oid", "$1 OPERATOR(pg_catalog.=) $2"),
    ("oid", "bigint", "$1::pg_catalog.int8 OPERATOR(pg_catalog.=) $2"),
    ("text", "text", "$1 OPERATOR(pg_catalog.=) $2"),
    ("int4", "int4", "$1 OPERATOR(pg_catalog.=) $2"),
    ("int8", "int8", "$1 OPERATOR(pg_catalog.=) $2"),
    ("int2", "int8", "$1 OPERATOR(pg_catalog.=) $2"),
    ("xid8", "xid8", "$1 OPERATOR(pg_catalog.=) $2"),
    ("\"char\"", "text", "$1::pg_catalog.text OPERATOR(pg_catalog.=) $2"),
    ("\"char\"", "\"char\"", "$1 OPERATOR(pg_catalog.=) $2"),
    ("bool", "bool", "$1 OPERATOR(pg_catalog.=) $2"),
];

/// Functions with names that our statements call: (signature, result, body).
const FUNCTIONS: &[(&str, &str, &str)] = &[
    ("format(text, VARIADIC text[])", "text", "pg_catalog.format($1, VARIADIC $2)"),
    ("format(text, text, text)", "text", "pg_catalog.format($1, $2, $3)"),
    ("quote_ident(text)", "text", "pg_catalog.quote_ident($1)"),
    ("quote_ident(name)", "text", "pg_catalog.quote_ident($1::pg_catalog.text)"),
    ("quote_literal(text)", "text", "pg_catalog.quote_literal($1)"),
    ("lower(text)", "text", "pg_catalog.lower($1)"),
    ("parse_ident(text)", "text[]", "pg_catalog.parse_ident($1)"),
    ("pg_notify(text, text)", "void", "pg_catalog.pg_notify($1, $2)"),
    ("current_schema()", "name", "pg_catalog.current_schema()"),
    ("current_schemas(bool)", "name[]", "pg_catalog.current_schemas($1)"),
    ("current_setting(text)", "text", "pg_catalog.current_setting($1)"),
    ("has_table_privilege(oid, text)", "bool", "pg_catalog.has_table_privilege($1, $2)"),
    ("pg_has_role(oid, text)", "bool", "pg_catalog.pg_has_role($1, $2)"),
    ("starts_with(text, text)", "bool", "pg_catalog.starts_with($1, $2)"),
    ("clock_timestamp()", "timestamptz", "pg_catalog.clock_timestamp()"),
    ("pg_relation_size(regclass)", "bigint", "pg_catalog.pg_relation_size($1)"),
    ("pg_current_snapshot()", "pg_snapshot", "pg_catalog.pg_current_snapshot()"),
    ("pg_visible_in_snapshot(xid8, pg_snapshot)", "bool", "pg_catalog.pg_visible_in_snapshot($1, $2)"),
    ("text(name)", "text", "$1::pg_catalog.text"),
    ("oid(regclass)", "oid", "$1::pg_catalog.oid"),
];

/// Everything above in one schema; each writes into the server's log as whom it ran, which no rollback takes back.
fn planted(schema: &str) -> String {
    let tell = |what: &str| format!("RAISE LOG 'PLANTED {schema}.{what} AS <%>', current_user;");
    let mut sql = format!("CREATE SCHEMA IF NOT EXISTS {schema}; GRANT USAGE ON SCHEMA {schema} TO PUBLIC;");
    for (i, (left, right, result)) in OPERATORS.iter().enumerate() {
        let tell = tell(&format!("= {} {}", left.replace('"', ""), right.replace('"', "")));
        sql += &format!(
            "CREATE FUNCTION {schema}.same_{i}({left}, {right}) RETURNS boolean LANGUAGE plpgsql
               AS $$ BEGIN {tell} RETURN {result}; END $$;
             CREATE OPERATOR {schema}.= (leftarg = {left}, rightarg = {right}, function = {schema}.same_{i});"
        );
    }
    for (signature, result, body) in FUNCTIONS {
        let tell = tell(signature);
        let body = if *result == "void" { format!("PERFORM {body};") } else { format!("RETURN {body};") };
        sql += &format!(
            "CREATE FUNCTION {schema}.{signature} RETURNS {result} LANGUAGE plpgsql AS $$ BEGIN {tell} {body} END $$;"
        );
    }
    let step = tell("count");
    sql + &format!(
        "CREATE FUNCTION {schema}.count_step(bigint) RETURNS bigint LANGUAGE plpgsql
           AS $$ BEGIN {step} RETURN $1 OPERATOR(pg_catalog.+) 1; END $$;
         CREATE AGGREGATE {schema}.count(*) (sfunc = {schema}.count_step, stype = bigint, initcond = '0');"
    )
}

/// Lines of the log in which something planted ran with the rights of another than its planter.
fn gained(cluster: &Cluster) -> Vec<String> {
    let log = cluster.log();
    let own = |line: &str| line.contains("AS <mallory>");
    log.lines()
        .filter(|l| l.contains("PLANTED") && !own(l) && !l.contains("RAISE LOG"))
        .map(str::to_string)
        .collect()
}

/// Every function, view, trigger and event trigger of ours, once.
fn walk(c: &mut Client, stem: &str) {
    let (s, g) = (format!("public.{stem}_s"), format!("public.{stem}_g"));
    exec(
        c,
        "CREATE TABLE public.scratch (id int PRIMARY KEY, v int); ALTER TABLE public.scratch ADD COLUMN w int",
    );
    exec(c, &create_call(&s, "SELECT id, v FROM public.src", "differential"));
    exec(c, &create_call(&g, "SELECT v, pg_catalog.count(*) AS n FROM public.src GROUP BY v", "auto"));
    exec(c, &create_call(&format!("public.{stem}_p"), "SELECT k, v FROM public.parts", "auto"));
    exec(
        c,
        &create_call(&format!("public.{stem}_f"), &format!("SELECT v FROM {s} ORDER BY v LIMIT 1"), "full"),
    );
    exec(
        c,
        "INSERT INTO public.src VALUES (pg_catalog.random() OPERATOR(pg_catalog.*) 1e9, 1); UPDATE public.src SET v = 3;
         INSERT INTO public.parts VALUES (1, 1), (11, 2); UPDATE public.parts SET v = 5;
         TRUNCATE public.parts_1, public.parts_2",
    );
    for t in ["s", "g", "p", "f"] {
        exec(c, &format!("SELECT * FROM pgtrickle.refresh_stream_table('public.{stem}_{t}')"));
    }
    for view in ["stream_tables", "refresh_history", "change_buffers", "source_columns"] {
        exec(c, &format!("TABLE pgtrickle.{view}"));
    }
    exec(
        c,
        &format!(
            "SELECT * FROM pgtrickle.health_check(); SELECT * FROM pgtrickle.explain_refresh('{s}');
             SELECT pgtrickle.schema_hash('public.src');
             SELECT pgtrickle.alter_stream_table('{s}', '1 hour', 'auto');
             SELECT pgtrickle.suspend_stream_table('{s}'); SELECT pgtrickle.resume_stream_table('{s}');
             SELECT * FROM pgtrickle.alter_stream_table_query('{g}', 'SELECT id, v, 1 AS one FROM public.src');
             ALTER TABLE public.src ADD COLUMN more int; ALTER TABLE public.src RENAME v TO v2;
             ALTER TABLE public.src RENAME v2 TO v; ALTER TABLE public.src DROP COLUMN more;
             ALTER SCHEMA shop RENAME TO shop2; ALTER SCHEMA shop2 RENAME TO shop;
             DROP TABLE public.scratch"
        ),
    );
    for query in [
        "SELECT pgtrickle.create_stream_table('nowhere.x', 'SELECT 1 AS one')",
        "SELECT pgtrickle.create_stream_table('public.x', 'SELECT nothing FROM public.src')",
        &format!("INSERT INTO {s} VALUES (1, 2)"),
        &format!("ALTER TABLE {s} ADD COLUMN x int"),
        &format!("SELECT pgtrickle.drop_stream_table('{s}')"),
    ] {
        expect_error(c, query);
    }
    exec(c, &format!("SELECT pgtrickle.drop_stream_table('{s}', true); DROP TABLE {g}"));
    exec(c, &format!("SELECT pgtrickle.drop_stream_table('public.{stem}_p')"));
}

/// What only superusers may call.
fn walk_evidence(c: &mut Client) {
    exec(
        c,
        "SELECT * FROM pgtrickle.capture_baseline(); SELECT pgtrickle.prune_snapshots(1, '0 s');
         SELECT pgtrickle.forget_capture_failures(); SELECT * FROM pgtrickle.drift_report();
         SELECT * FROM pgtrickle.schema_history('public.src'); SELECT * FROM pgtrickle.schema_history('src');
         TABLE pgtrickle.schema_snapshots; TABLE pgtrickle.schema_drift; TABLE pgtrickle.baseline_progress;
         SELECT pgtrickle.diff_snapshots(pg_catalog.min(snapshot_id), pg_catalog.max(snapshot_id)) FROM pgtrickle.schema_snapshots",
    );
}

#[test]
fn nothing_that_is_planted_in_a_path_runs_with_other_rights_than_its_planters() {
    let options = Options::preloaded().with("pg_trickle.naptime = '50ms'");
    let cluster = Cluster::start(&options);
    let mut root = cluster.connect("postgres");
    exec(&mut root, "CREATE ROLE mallory LOGIN CREATEDB; CREATE ROLE victim LOGIN");
    let mut m = cluster.connect_as("postgres", "mallory");
    // One database with the extension, one without: the worker looks into both.
    for name in ["den", "bare"] {
        exec(&mut m, &format!("CREATE DATABASE {name} TEMPLATE template0"));
        let mut planter = cluster.connect_as(name, "mallory");
        exec(&mut planter, &planted("evil"));
        // Behind pg_catalog, where only operators without an exact match are looked for.
        exec(&mut planter, &planted("behind"));
        exec(&mut m, &format!("ALTER DATABASE {name} SET search_path = evil, pg_catalog, behind"));
    }
    exec(&mut m, "ALTER ROLE mallory SET search_path = evil, pg_catalog, behind");

    let mut c = cluster.connect("den");
    exec(&mut cluster.connect_as("den", "mallory"), "CREATE SCHEMA pgtrickle");
    let e = expect_error(&mut c, "CREATE EXTENSION pgtrickle");
    assert!(e.message.contains("schema") && !e.hint.is_empty(), "a schema of somebody else: {e:?}");
    exec(&mut cluster.connect_as("den", "mallory"), "DROP SCHEMA pgtrickle");
    exec(&mut c, "CREATE EXTENSION pgtrickle; GRANT CREATE ON DATABASE den TO victim");
    assert_eq!(gained(&cluster), Vec::<String>::new(), "CREATE EXTENSION");

    exec(
        &mut c,
        "CREATE SCHEMA shop; GRANT ALL ON SCHEMA public, shop TO PUBLIC;
         CREATE TABLE public.src (id bigint PRIMARY KEY, v int);
         CREATE TABLE public.parts (k int, v int, PRIMARY KEY (k)) PARTITION BY RANGE (k);
         CREATE TABLE public.parts_1 PARTITION OF public.parts FOR VALUES FROM (0) TO (10);
         CREATE TABLE public.parts_2 PARTITION OF public.parts FOR VALUES FROM (10) TO (20);
         INSERT INTO public.src VALUES (1, 1), (2, 1), (3, 2)",
    );
    for path in ["evil, pg_catalog, behind", "pg_catalog, evil, behind", "behind, public"] {
        exec(&mut c, &format!("SET search_path = {path}"));
        walk(&mut c, "w");
        walk_evidence(&mut c);
        assert_eq!(gained(&cluster), Vec::<String>::new(), "search_path {path}");
    }
    // Writers of a partitioned source, who know nothing of any of this.
    exec(&mut c, &create_call("public.kept", "SELECT k, v FROM public.parts", "differential"));
    exec(&mut c, "GRANT ALL ON public.src, public.parts, public.parts_1, public.parts_2 TO victim");
    let mut v = cluster.connect_as("den", "victim");
    exec(&mut v, "INSERT INTO public.parts VALUES (2, 2), (12, 3); TRUNCATE public.parts_1");
    exec(&mut v, "SET search_path = pg_catalog, behind; INSERT INTO public.parts VALUES (3, 2), (13, 3)");
    exec(&mut c, "ALTER TABLE public.src OWNER TO victim; ALTER SCHEMA shop OWNER TO victim");
    walk(&mut v, "v");
    assert_eq!(gained(&cluster), Vec::<String>::new(), "writers");

    // The worker's rounds, with a stream table to keep.
    exec(
        &mut c,
        "SELECT pgtrickle.create_stream_table('public.timed', 'SELECT id, v FROM public.src', '1 second');
         INSERT INTO public.src VALUES (77, 7)",
    );
    let mut plain = cluster.connect("den");
    exec(&mut plain, "SET search_path = pg_catalog");
    wait_until("a refresh by schedule", PATIENCE, || {
        one::<i64>(&mut plain, "SELECT count(*) FROM public.timed WHERE id = 77") == 1
    });
    assert_eq!(gained(&cluster), Vec::<String>::new(), "the worker");

    // Commands that the hook looks at, from a session with that path.
    let mut m = cluster.connect_as("den", "mallory");
    exec(&mut m, "DROP DATABASE bare");
    drop((c, v, plain, m));
    let mut m = cluster.connect_as("postgres", "mallory");
    wait_until("a copy of the database", PATIENCE, || {
        m.batch_execute("CREATE DATABASE copy TEMPLATE den").is_ok()
    });
    exec(&mut m, "ALTER DATABASE copy RENAME TO copied");
    assert_eq!(gained(&cluster), Vec::<String>::new(), "the hook");
    let mut copied = cluster.connect("copied");
    exec(&mut copied, "DROP EXTENSION pgtrickle CASCADE");
    assert_eq!(gained(&cluster), Vec::<String>::new(), "DROP EXTENSION");
}

/// What a stream table's owner hangs on it, or has in the types of its columns, runs with no more than his rights.
#[test]
fn code_of_a_stream_tables_owner_never_runs_with_our_rights() {
    let db = fresh_db();
    let mut c = db.connect();
    let role = db.create_role("author");
    exec(
        &mut c,
        &format!(
            "CREATE SCHEMA own AUTHORIZATION \"{role}\"; CREATE TABLE public.ran (what text, who text DEFAULT current_user);
             GRANT INSERT ON public.ran TO PUBLIC"
        ),
    );
    let mut a = db.connect_as(&role);
    exec(
        &mut a,
        "CREATE FUNCTION own.tell() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN INSERT INTO public.ran VALUES (TG_OP || ' ' || TG_WHEN); RETURN NULL; END $$;
         CREATE FUNCTION own.apart(float8, float8) RETURNS float8 IMMUTABLE LANGUAGE plpgsql AS
           $$ BEGIN RAISE LOG 'APART <%>', current_user; RETURN $1 - $2; END $$;
         CREATE TYPE own.span AS RANGE (subtype = float8, subtype_diff = own.apart);
         CREATE TABLE own.t (id int PRIMARY KEY, v int, s own.span);
         INSERT INTO own.t SELECT i, i % 3, own.span(i, i + 1) FROM generate_series(1, 400) i",
    );
    exec(&mut a, &create_call("own.st", "SELECT id, v FROM own.t", "differential"));
    exec(
        &mut a,
        &create_call("own.spans", "SELECT s, count(*) AS n, max(v) AS v FROM own.t GROUP BY s", "auto"),
    );
    exec(
        &mut a,
        "CREATE TRIGGER tell_truncate AFTER TRUNCATE ON own.st FOR EACH STATEMENT EXECUTE FUNCTION own.tell();
         CREATE TRIGGER tell_before BEFORE TRUNCATE ON own.st FOR EACH STATEMENT EXECUTE FUNCTION own.tell();
         CREATE TRIGGER tell_rows AFTER INSERT OR UPDATE OR DELETE ON own.st FOR EACH STATEMENT EXECUTE FUNCTION own.tell()",
    );
    exec(&mut c, "UPDATE own.t SET v = v + 1");
    refresh(&mut c, "own.st");
    refresh(&mut c, "own.spans");
    exec(&mut a, "SELECT pgtrickle.alter_stream_table_query('own.st', 'SELECT id, v, 1 AS one FROM own.t')");
    exec(&mut c, "SELECT pgtrickle.alter_stream_table_query('own.st', 'SELECT id, v::text AS v FROM own.t')");
    exec(&mut c, "SELECT * FROM pgtrickle.refresh_stream_table('own.st', 'full'); TRUNCATE own.t");
    refresh(&mut c, "own.st");
    // As autovacuum does it, with the rights of the table's owner.
    let internal: Vec<String> = column(
        &mut c,
        "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'pgtrickle_internal'::regnamespace AND relkind = 'r'",
    );
    exec(&mut a, "INSERT INTO own.t SELECT i, i % 3, own.span(i, i + 1) FROM generate_series(1, 400) i");
    refresh(&mut c, "own.spans");
    for table in internal {
        exec(&mut c, &format!("ANALYZE {table}"));
    }
    let others: Vec<String> = column(
        &mut c,
        &format!("SELECT DISTINCT what || ' as ' || who FROM public.ran WHERE who <> '{role}'"),
    );
    assert!(others.is_empty(), "triggers of the stream table's owner ran with other rights: {others:?}");
    let log = db.cluster.log();
    let others: Vec<&str> = log
        .lines()
        .filter(|l| {
            l.contains("APART <")
                && l.contains(&format!(" {} ", db.name))
                && !l.contains(&format!("<{role}>"))
        })
        .collect();
    assert!(others.is_empty(), "a function of a type ran with other rights: {:?}", others.first());
}
