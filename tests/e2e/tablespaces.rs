//! Sources and stream tables in tablespaces other than the database's own.

use crate::common::*;
use crate::support::{TestDb, fresh_db, refresh};
use postgres::Client;

/// A tablespace for this test alone.
fn tablespace(db: &TestDb, c: &mut Client, stem: &str) -> String {
    let name = format!("{}_{stem}", db.name);
    exec(c, "SET allow_in_place_tablespaces = on");
    exec(c, &format!("CREATE TABLESPACE {name} LOCATION ''"));
    name
}

fn tablespace_of(c: &mut Client, relation: &str) -> String {
    one(
        c,
        &format!(
            "SELECT coalesce((SELECT t.spcname::text FROM pg_class c JOIN pg_tablespace t ON t.oid = c.reltablespace
                              WHERE c.oid = '{relation}'::regclass), 'default')"
        ),
    )
}

/// After a move: everything that was not consumed yet arrives, and so does what is written afterwards.
fn goes_on(c: &mut Client, stream_tables: &[&str]) {
    for s in stream_tables {
        refresh(c, s);
        assert_active(c, s);
    }
    exec(c, "UPDATE t SET v = v + 1; DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (2, 2, 2)");
    for s in stream_tables {
        differential(c, s);
    }
}

#[test]
fn sources_and_stream_tables_move_between_tablespaces() {
    let db = fresh_db();
    let mut c = db.connect();
    let (one_space, other) = (tablespace(&db, &mut c, "one"), tablespace(&db, &mut c, "other"));
    exec(
        &mut c,
        &format!(
            "CREATE TABLE t (id int PRIMARY KEY USING INDEX TABLESPACE {other}, grp int, v int) TABLESPACE {one_space};
             INSERT INTO t SELECT i, i % 3, i FROM generate_series(1, 10) i"
        ),
    );
    create_mode(&mut c, "s", "SELECT id, v FROM t", "differential");
    create_mode(
        &mut c,
        "g",
        "SELECT grp, count(*) AS n, sum(v) AS v, max(v) AS hi FROM t GROUP BY grp",
        "differential",
    );
    assert_eq!(tablespace_of(&mut c, "s"), "default");
    goes_on(&mut c, &["s", "g"]);
    // The source moves amid what is not consumed; another storage alone is no new contents.
    for to in [other.as_str(), "pg_default", one_space.as_str()] {
        exec(&mut c, &format!("UPDATE t SET v = v + 10 WHERE id < 4; ALTER TABLE t SET TABLESPACE {to}"));
        goes_on(&mut c, &["s", "g"]);
    }
    exec(&mut c, &format!("ALTER INDEX t_pkey SET TABLESPACE {one_space}"));
    goes_on(&mut c, &["s", "g"]);
    // So do stream tables, with the indexes that refreshes use.
    for st in ["s", "g"] {
        exec(&mut c, &format!("ALTER TABLE {st} SET TABLESPACE {one_space}"));
        assert_eq!(tablespace_of(&mut c, st), one_space);
    }
    exec(
        &mut c,
        &format!("ALTER INDEX ALL IN TABLESPACE pg_default OWNED BY postgres SET TABLESPACE {other}"),
    );
    goes_on(&mut c, &["s", "g"]);
    // All at once, and a refresh that computes everything leaves them where they are.
    exec(&mut c, &format!("ALTER TABLE ALL IN TABLESPACE {one_space} SET TABLESPACE {other}"));
    goes_on(&mut c, &["s", "g"]);
    for st in ["s", "g"] {
        crate::support::try_refresh(&mut c, st, "full").expect("full");
        assert_eq!(tablespace_of(&mut c, st), other);
        exec(&mut c, &format!("SELECT pgtrickle.drop_stream_table('{st}')"));
    }
}

#[test]
fn a_default_tablespace_of_a_session_or_database_is_no_place_for_what_we_make() {
    let db = fresh_db();
    let mut c = db.connect();
    let space = tablespace(&db, &mut c, "chosen");
    let role = db.create_role("author");
    exec(
        &mut c,
        &format!(
            "{T}; CREATE SCHEMA own AUTHORIZATION \"{role}\"; GRANT SELECT, TRIGGER ON t TO \"{role}\";
             ALTER DATABASE \"{}\" SET default_tablespace = {space}",
            db.name
        ),
    );
    // Set for the session, and for the database, where the role may not even use it.
    exec(&mut c, &format!("SET default_tablespace = {space}"));
    create_mode(&mut c, "s", "SELECT id, v FROM t", "differential");
    create_mode(&mut c, "g", "SELECT grp, sum(v) AS v FROM t GROUP BY grp", "differential");
    let mut a = db.connect_as(&role);
    exec(&mut a, &create_call("own.s", "SELECT id, v FROM t", "differential"));
    exec(&mut c, "CREATE TABLE mine (); UPDATE t SET v = v + 1");
    for st in ["s", "g", "own.s"] {
        differential(&mut c, st);
        crate::support::try_refresh(&mut c, st, "full").expect("full");
    }
    let there: Vec<String> = column(
        &mut c,
        "SELECT oid::regclass::text FROM pg_class WHERE reltablespace = (SELECT oid FROM pg_tablespace WHERE spcname = current_setting('default_tablespace'))",
    );
    assert_eq!(there, ["mine"]);
}
