//! What an account must not believe: digests that leave rows out, commands that did something else, snapshots that are gone.

use crate::common::*;
use crate::support::fresh_db;
use postgres::Client;

fn verdicts(c: &mut Client) -> Vec<String> {
    column(
        c,
        "SELECT concat_ws(' ', table_name, class, severity, array_to_string(evidence, ', '))
         FROM pgtrickle.schema_drift WHERE pairing = 'relation' ORDER BY after, before",
    )
}

#[test]
fn rows_that_were_computed_anew_are_no_unchanged_table() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "CREATE TABLE t (a text); INSERT INTO t VALUES ('x')");
    exec(&mut c, "SELECT * FROM pgtrickle.capture_baseline()");
    exec(&mut c, "ALTER TABLE t ALTER a TYPE text USING a || '!'; DROP TABLE t");
    let told = verdicts(&mut c);
    assert_eq!(
        told,
        ["t destructive destructive the values of column \"a\" were computed anew by ALTER TYPE ... USING"]
    );
    // What leaves the rows alone is none.
    exec(&mut c, "CREATE TABLE v (a text); INSERT INTO v VALUES ('x')");
    exec(&mut c, "SELECT * FROM pgtrickle.capture_baseline()");
    exec(&mut c, "VACUUM FULL v");
    exec(&mut c, "DROP TABLE v");
    assert_eq!(verdicts(&mut c)[1..], ["v unchanged none "]);
}

#[test]
fn equal_shapes_are_not_equal_differences() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "CREATE TABLE t (id int PRIMARY KEY, a text); INSERT INTO t VALUES (1, 'x')");
    create(&mut c, "st", "SELECT id FROM t");
    exec(&mut c, "ALTER TABLE t ALTER a SET NOT NULL");
    exec(&mut c, "ALTER TABLE t ALTER a DROP NOT NULL");
    exec(&mut c, "ALTER TABLE t ALTER a TYPE text USING a || '!', ALTER a SET NOT NULL");
    let classes: Vec<String> =
        column(&mut c, "SELECT severity FROM pgtrickle.schema_drift WHERE table_name = 't' ORDER BY after");
    assert_eq!(classes, ["compatible", "compatible", "destructive"]);
}

#[test]
fn a_command_answers_for_what_it_did_alone() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "CREATE TABLE t (id int PRIMARY KEY, a int, b int)");
    create(&mut c, "st", "SELECT id FROM t");
    exec(&mut c, "ALTER TABLE t RENAME TO u");
    exec(&mut c, "ALTER TABLE u DROP COLUMN a");
    exec(&mut c, "ALTER TABLE u ADD COLUMN c int");
    let told: Vec<String> = column(&mut c, "SELECT what FROM pgtrickle.schema_history('u')");
    assert!(told.contains(&"column \"a\" was dropped".to_string()), "{told:?}");
    exec(&mut c, "SELECT pgtrickle.prune_snapshots(1)");
    // What is left: t as it became a source, u after the last command.
    let (left, abstained): (i64, String) = (
        one(&mut c, "SELECT count(*) FROM pgtrickle.schema_snapshots"),
        one(&mut c, "SELECT abstained::text FROM pgtrickle.schema_drift"),
    );
    assert_eq!((left, abstained.as_str()), (2, "{own_ddl,heap_swap,extension_script}"));
    let told: Vec<String> = column(&mut c, "SELECT what FROM pgtrickle.schema_history('u')");
    let dropped = told.iter().find(|line| line.contains("\"a\" was dropped")).expect("told");
    assert!(dropped.ends_with("by a command that was not recorded"), "{told:?}");
}

#[test]
fn serializable_drops_of_unrelated_tables_do_not_meet() {
    let db = fresh_db();
    let (mut one_session, mut other) = (db.connect(), db.connect());
    exec(
        &mut one_session,
        "CREATE TABLE a (x int, y int GENERATED ALWAYS AS (x + 1) STORED);
         CREATE TABLE b (x int, y int GENERATED ALWAYS AS (x + 1) STORED);
         CREATE TABLE c (id int PRIMARY KEY, v int); CREATE TABLE d (id int PRIMARY KEY, v int)",
    );
    for (first, second) in [("DROP TABLE a", "DROP TABLE b"), ("CREATE TABLE e (x int)", "DROP TABLE c")] {
        for session in [&mut one_session, &mut other] {
            exec(session, "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT 1");
        }
        exec(&mut one_session, first);
        exec(&mut other, second);
        exec(&mut one_session, "COMMIT");
        exec(&mut other, "COMMIT");
    }
    assert_eq!(one::<i64>(&mut other, "SELECT count(*) FROM pgtrickle.schema_snapshots"), 3);
}

#[test]
fn an_old_default_is_told_as_it_was() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE t (id int PRIMARY KEY, v int DEFAULT 5); INSERT INTO t SELECT generate_series(1, 50)",
    );
    create(&mut c, "st", "SELECT id FROM t");
    // New statistics: so that there is a row of just before the command.
    exec(&mut c, "ANALYZE t");
    exec(&mut c, "ALTER TABLE t ALTER v SET DEFAULT 6");
    let told: Vec<String> = column(&mut c, "SELECT what FROM pgtrickle.schema_history('t')");
    assert_eq!(
        told.last().map(String::as_str),
        Some("the default of column \"v\" changed from 5 to 6"),
        "{told:?}"
    );
}

#[test]
fn another_definition_under_the_same_name_is_a_change() {
    let db = fresh_db();
    let mut c = db.connect();
    let made = |c: &mut Client, check: &str, action: &str, predicate: &str, order: &str| {
        exec(
            c,
            &format!(
                "CREATE TABLE parent (id int PRIMARY KEY);
                 CREATE TABLE t (id int, v int, CONSTRAINT c CHECK (v {check} 0),
                     CONSTRAINT f FOREIGN KEY (id) REFERENCES parent ON DELETE {action});
                 CREATE UNIQUE INDEX i ON t (id {order}) WHERE v {predicate} 1;
                 DROP TABLE t; DROP TABLE parent"
            ),
        );
    };
    let told = |c: &mut Client| -> Vec<String> {
        column(
            c,
            "SELECT unnest(evidence) FROM (SELECT * FROM pgtrickle.schema_drift WHERE table_name = 't'
             ORDER BY after DESC LIMIT 1) s",
        )
    };
    made(&mut c, ">", "CASCADE", ">", "ASC");
    // The same again, written otherwise.
    made(&mut c, " >   ", "CASCADE", "  > ", "");
    assert_eq!(told(&mut c), [""; 0]);
    made(&mut c, "<", "CASCADE", ">", "ASC");
    assert_eq!(told(&mut c), ["constraint \"c\" was changed"]);
    made(&mut c, "<", "RESTRICT", ">", "ASC");
    assert_eq!(told(&mut c), ["constraint \"f\" was changed"]);
    made(&mut c, "<", "RESTRICT", "<", "ASC");
    assert_eq!(told(&mut c), ["index \"i\" was changed"]);
    made(&mut c, "<", "RESTRICT", "<", "DESC");
    assert_eq!(told(&mut c), ["index \"i\" was changed"]);
}
