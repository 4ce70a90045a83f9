//! What exonerates a difference, and what is none.

use crate::common::*;
use crate::drift::*;
use crate::support::{expect_error, fresh_db};
use postgres::Client;

#[test]
fn gate_own_ddl() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "below", "SELECT id, v FROM t");
    create(&mut c, "above", "SELECT id FROM below");
    exec(&mut c, "SELECT pgtrickle.alter_stream_table_query('below', 'SELECT id, v, grp FROM t')");
    let found = verdicts(&mut c, "table_name = 'below' AND class <> 'unchanged'");
    assert_eq!(found.len(), 1, "{found:#?}");
    // The index by which rows are found is over all columns, so it is made anew.
    assert_eq!((found[0].class.as_str(), found[0].gate.as_deref()), ("compatible", Some("own_ddl")));
    assert_eq!(found[0].abstained, Vec::<String>::new());
    // Capture triggers come and go with the stream tables.
    exec(&mut c, "SELECT pgtrickle.drop_stream_table('above'); SELECT pgtrickle.drop_stream_table('below')");
    baseline(&mut c);
    let harmless = verdicts(&mut c, "table_name = 't' AND class <> 'unchanged'");
    assert!(harmless.is_empty(), "{harmless:#?}");
    consistent(&mut c);
}

#[test]
fn gate_extension_script() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id FROM t");
    // What an extension's script does to a source, by way of somebody's event trigger.
    let extension = another_extension(&mut c);
    let ddl = format!(
        "CREATE FUNCTION also() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
           IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'by_script') THEN
             ALTER TABLE t ADD by_script int;
           END IF; END $$;
         CREATE EVENT TRIGGER also ON ddl_command_end WHEN TAG IN ('CREATE FUNCTION') EXECUTE FUNCTION also();
         CREATE EXTENSION {extension}; DROP EVENT TRIGGER also; ALTER TABLE t ADD by_user int"
    );
    exec(&mut c, &ddl);
    let found = verdicts(&mut c, "table_name = 't'");
    let gates: Vec<(Option<&str>, &str)> =
        found.iter().map(|v| (v.gate.as_deref(), v.evidence[0].as_str())).collect();
    assert_eq!(
        gates,
        [
            (Some("extension_script"), "column \"by_script\" was added"),
            (None, "column \"by_user\" was added")
        ]
    );
    assert!(found.iter().all(|v| v.abstained.is_empty()), "both commands are known: {found:#?}");
    consistent(&mut c);
}

#[test]
fn gate_collector_metadata() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "CREATE TABLE a (x int); CREATE TABLE b (x int); CREATE TABLE d (x int)");
    baseline(&mut c);
    exec(
        &mut c,
        "ALTER TABLE a ADD _ingested_at timestamptz, ADD _source_url text; ALTER TABLE b ADD _ingested_at timestamptz, ADD y int;
         ALTER TABLE d ADD \"Loaded\" int; DROP TABLE a; CREATE TABLE a (x int, _ingested_at timestamptz, _source_url text)",
    );
    baseline(&mut c);
    let gate_of = |c: &mut Client, t: &str| -> Vec<(String, Vec<String>)> {
        verdicts(c, &format!("table_name = '{t}' AND class <> 'unchanged'"))
            .into_iter()
            .map(|v| (format!("{} {}", v.class, v.gate.unwrap_or_else(|| "-".into())), v.abstained))
            .collect()
    };
    let unknown = || UNKNOWN_COMMAND.map(String::from).to_vec();
    assert_eq!(
        gate_of(&mut c, "a"),
        [("additive collector_metadata".to_string(), unknown()), ("recreated -".to_string(), unknown())]
    );
    assert_eq!(gate_of(&mut c, "b"), [("additive -".to_string(), unknown())], "one of two is not enough");
    assert_eq!(gate_of(&mut c, "d"), [("additive -".to_string(), unknown())]);
    exec(&mut c, "SET pg_trickle.snapshot_excluded_columns = '\"Loaded\", y'");
    assert_eq!(gate_of(&mut c, "a")[0].0, "additive -", "other names are set");
    assert_eq!(gate_of(&mut c, "d")[0].0, "additive collector_metadata");
    let e = expect_error(&mut c, "SET pg_trickle.snapshot_excluded_columns = 'a b'");
    assert_eq!(e.sqlstate, "22023");
    consistent(&mut c);
}

#[test]
fn heap_swaps_are_no_drift() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        &format!("{T}; CREATE MATERIALIZED VIEW m AS SELECT id, v FROM t; CREATE UNIQUE INDEX ON m (id)"),
    );
    create(&mut c, "s", "SELECT id, v FROM t");
    for command in [
        "CLUSTER t USING t_pkey",
        "VACUUM FULL t",
        "REINDEX TABLE t",
        "REFRESH MATERIALIZED VIEW m",
        "REFRESH MATERIALIZED VIEW CONCURRENTLY m",
    ] {
        exec(&mut c, command);
    }
    baseline(&mut c);
    exec(&mut c, "ALTER TABLE t ADD more int");
    let found = verdicts(&mut c, "table_name = 't' AND class <> 'unchanged'");
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].evidence, ["column \"more\" was added"]);
    consistent(&mut c);
}

#[test]
fn capture_that_somebody_switches_off_is_drift() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, T);
    create(&mut c, "s", "SELECT id, v FROM t");
    exec(&mut c, "ALTER TABLE t DISABLE TRIGGER ALL");
    let found = verdicts(&mut c, "table_name = 't' AND class <> 'unchanged'");
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!((found[0].class.as_str(), found[0].gate.as_deref()), ("destructive", None), "{found:#?}");
    let rows = diff(&mut c, found[0].before, found[0].after);
    assert!(
        rows.iter().all(|r| r.change == "capture_changed" && r.after.as_deref() == Some("disabled")),
        "{rows:#?}"
    );
    assert_ne!(right_or_suspended(&mut c, "s"), "refused");
}
