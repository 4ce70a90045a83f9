//! Types and collations that columns of stream tables have: the user's DDL on them goes through as if the stream table
//! were not there, and of its contents only what the command itself takes away is lost.

use crate::common::*;
use crate::support::{TestDb, assert_up_to_date, db_error, describe, expect_error, fresh_db, refresh};
use postgres::Client;

/// A source with an enum and other columns, and a stream table of it that is computed as a whole: it has no side table.
const MOODS: &str = "CREATE SCHEMA app; CREATE TYPE app.mood AS ENUM ('sad', 'ok', 'happy');
    CREATE TABLE app.people (id int PRIMARY KEY, name text, mood app.mood, moods app.mood[]);
    INSERT INTO app.people SELECT i, 'n' || i, CASE i % 3 WHEN 0 THEN 'sad' WHEN 1 THEN 'ok' END::app.mood,
      ARRAY['ok', 'happy']::app.mood[] FROM generate_series(1, 9) i";
const ALL: &str = "SELECT id, mood, name, moods FROM app.people";

/// What Prisma, Sequelize, TypeORM and Alembic write to take a value out of an enum.
const MIGRATION: &str = "BEGIN;
    ALTER TYPE app.mood RENAME TO mood_old;
    CREATE TYPE app.mood AS ENUM ('sad', 'ok', 'glad');
    UPDATE app.people SET moods = '{ok}';
    ALTER TABLE app.people ALTER COLUMN mood TYPE app.mood USING mood::text::app.mood,
      ALTER COLUMN moods TYPE app.mood[] USING moods::text[]::app.mood[];
    DROP TYPE app.mood_old;
    COMMIT";

fn db(sql: &str) -> (TestDb, Client) {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, sql);
    (db, c)
}

/// Columns with their types, in the table's order.
fn columns(c: &mut Client, table: &str) -> Vec<String> {
    column(
        c,
        &format!(
            "SELECT attname || ' ' || format_type(atttypid, atttypmod) FROM pg_attribute
             WHERE attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        ),
    )
}

/// Executes the call that the hint of a suspended stream table names, and checks what came of it.
fn follow(c: &mut Client, table: &str) {
    let s = status(c, table);
    let call = extract_call(&s.hint, "pgtrickle.alter_stream_table_query(");
    c.batch_execute(&format!("SELECT {call}")).unwrap_or_else(|e| panic!("{call}: {}", describe(&e)));
    assert_active(c, table);
    assert_up_to_date(c, table);
}

/// Nothing that looks at a suspended stream table may stumble over a column that is gone.
fn everything_answers(c: &mut Client, table: &str) {
    exec(c, "SELECT * FROM pgtrickle.stream_tables; SELECT * FROM pgtrickle.refresh_history");
    exec(c, "SELECT * FROM pgtrickle.health_check(); SELECT * FROM pgtrickle.source_columns");
    let calls = [
        format!("SELECT * FROM pgtrickle.explain_refresh('{table}')"),
        format!("SELECT pgtrickle.resume_stream_table('{table}')"),
        format!("SELECT * FROM pgtrickle.refresh_stream_table('{table}')"),
    ];
    for call in calls {
        if let Err(e) = c.batch_execute(&call) {
            let told = describe(&e);
            assert!(!told.starts_with("XX000"), "{call}: {told}");
            assert!(e.as_db_error().is_some_and(|e| e.hint().is_some()), "{call}: {told}");
        }
    }
}

/// (what is there first, the query, the command, what DETAIL names, columns that stay).
type Cascade = (&'static str, &'static str, &'static str, &'static [&'static str], &'static [&'static str]);

const CASCADES: &[Cascade] = &[
    (
        MOODS,
        ALL,
        "DROP TYPE app.mood CASCADE",
        &["app.mood", "mood", "moods"],
        &["id integer", "name text"],
    ),
    (
        MOODS,
        "SELECT id, name, CASE WHEN id > 3 THEN 'ok' ELSE 'sad' END::app.mood AS guess FROM app.people",
        "DROP TYPE app.mood CASCADE",
        &["app.mood", "guess"],
        &["id integer", "name text"],
    ),
    (
        MOODS,
        "SELECT id, name, mood, mood < 'ok' AS low FROM app.people WHERE 'sad' = ANY (moods) OR mood IS DISTINCT FROM 'happy'",
        "DROP TYPE app.mood CASCADE",
        &["app.mood", "column mood"],
        &["id integer", "name text", "low boolean"],
    ),
    (
        "CREATE SCHEMA app; CREATE DOMAIN app.tag AS text CHECK (value <> ''); CREATE TABLE app.people (id int PRIMARY KEY, name app.tag, nick text);
         INSERT INTO app.people SELECT i, 'n' || i, 'm' || i FROM generate_series(1, 9) i",
        "SELECT name, id, nick::app.tag AS nick FROM app.people",
        "DROP DOMAIN app.tag CASCADE",
        &["app.tag", "name", "nick"],
        &["id integer"],
    ),
    (
        "CREATE SCHEMA app; CREATE COLLATION app.c FROM \"C\"; CREATE TABLE app.people (id int PRIMARY KEY, name text COLLATE app.c);
         INSERT INTO app.people SELECT i, 'n' || i FROM generate_series(1, 9) i",
        "SELECT id, name FROM app.people",
        "DROP COLLATION app.c CASCADE",
        &["app.c", "name"],
        &["id integer"],
    ),
    (
        "CREATE SCHEMA app; CREATE SCHEMA kinds; CREATE TYPE kinds.\"Odd type\" AS ENUM ('a'); CREATE TABLE app.people (id int PRIMARY KEY, \"The kind\" kinds.\"Odd type\");
         INSERT INTO app.people SELECT i, 'a' FROM generate_series(1, 9) i",
        "SELECT id, \"The kind\" AS \"Kind of it\" FROM app.people",
        "DROP SCHEMA kinds CASCADE",
        &["kinds", "Kind of it"],
        &["id integer"],
    ),
    (
        "CREATE SCHEMA app; CREATE TYPE app.pair AS (a int, b int); CREATE TABLE app.people (id int PRIMARY KEY, p app.pair);
         INSERT INTO app.people SELECT i, ROW(i, i)::app.pair FROM generate_series(1, 9) i",
        "SELECT id, p, ARRAY[p] AS ps FROM app.people",
        "DROP TYPE app.pair CASCADE",
        &["app.pair", "ps"],
        &["id integer"],
    ),
];

fn cascades(mode: &str) {
    crate::ddl::for_each_in_threads(CASCADES, |(setup, query, command, named, stay)| {
        let (_db, mut c) = db(setup);
        create_mode(&mut c, "app.s", query, mode);
        let rows: i64 = one(&mut c, "SELECT count(*) FROM app.s");
        c.batch_execute(command).unwrap_or_else(|e| panic!("{command}: {}", describe(&e)));
        let s = assert_suspended(&mut c, "app.s", "OUTPUT_COLUMN_DROPPED");
        for name in *named {
            assert!(s.detail.contains(name), "{command}: {s:?}");
        }
        assert_eq!(columns(&mut c, "app.s"), *stay);
        assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM (SELECT DISTINCT id FROM app.s) x"), rows);
        everything_answers(&mut c, "app.s");
        follow(&mut c, "app.s");
        exec(&mut c, "DELETE FROM app.people WHERE id = 1");
        refresh(&mut c, "app.s");
    });
}

#[test]
fn a_cascade_takes_columns_and_nothing_else() {
    cascades("full");
}

#[test]
fn a_cascade_takes_columns_of_a_differential_stream_table() {
    cascades("auto");
}

#[test]
fn a_stream_table_that_loses_every_column_can_get_others() {
    let (_db, mut c) = db(MOODS);
    create_mode(&mut c, "app.s", "SELECT mood FROM app.people", "full");
    exec(&mut c, "DROP TYPE app.mood CASCADE");
    assert_suspended(&mut c, "app.s", "OUTPUT_COLUMN_DROPPED");
    assert_eq!(columns(&mut c, "app.s"), Vec::<String>::new());
    everything_answers(&mut c, "app.s");
    exec(&mut c, "SELECT pgtrickle.alter_stream_table_query('app.s', 'SELECT name FROM app.people')");
    assert_active(&mut c, "app.s");
    refresh(&mut c, "app.s");
    exec(&mut c, "SELECT pgtrickle.drop_stream_table('app.s')");
}

#[test]
fn one_that_lost_a_column_can_be_dropped_renamed_and_given_away() {
    let (db, mut c) = db(MOODS);
    create_mode(&mut c, "app.s", ALL, "full");
    exec(&mut c, "CREATE VIEW app.v AS SELECT id FROM app.people");
    create_mode(&mut c, "app.over", "SELECT v.id, p.mood FROM app.v JOIN app.people p USING (id)", "full");
    let other = db.create_role("other");
    exec(&mut c, "DROP TYPE app.mood CASCADE");
    exec(&mut c, "CREATE OR REPLACE VIEW app.v AS SELECT id FROM app.people WHERE id > 2");
    exec(&mut c, "ALTER VIEW app.v RENAME TO w; ALTER TABLE app.people RENAME TO folk");
    exec(&mut c, &format!("ALTER TABLE app.s OWNER TO {other}; ALTER TABLE app.s RENAME TO t"));
    everything_answers(&mut c, "app.t");
    everything_answers(&mut c, "app.over");
    exec(&mut c, "SELECT pgtrickle.drop_stream_table('app.t'); DROP TABLE app.over");
    let left: i64 = one(&mut c, "SELECT count(*) FROM pgtrickle.stream_tables");
    assert_eq!(left, 0);
}

#[test]
fn columns_of_a_stream_table_are_still_not_for_alter_table() {
    let (_db, mut c) = db(MOODS);
    create_mode(&mut c, "app.s", ALL, "full");
    for what in [
        "DROP COLUMN mood",
        "DROP COLUMN mood CASCADE",
        "ADD COLUMN x int",
        "ALTER COLUMN name TYPE varchar(30)",
        "RENAME COLUMN name TO title",
    ] {
        let e = expect_error(&mut c, &format!("ALTER TABLE app.s {what}"));
        assert!(e.detail.contains("PROTECTED_OBJECT"), "{what}: {e:?}");
    }
    // Neither inside a larger command, nor where a cascade has gone before.
    let e = expect_error(
        &mut c,
        "DO $$ BEGIN DROP TYPE app.mood CASCADE; ALTER TABLE app.s DROP COLUMN name; END $$",
    );
    assert!(e.detail.contains("PROTECTED_OBJECT"), "{e:?}");
    assert_active(&mut c, "app.s");
    refresh(&mut c, "app.s");
}

#[test]
fn those_above_follow_a_cascade() {
    let (_db, mut c) = db(MOODS);
    create_mode(&mut c, "app.s", ALL, "full");
    create_mode(&mut c, "app.above", "SELECT mood, count(*) AS n FROM app.s GROUP BY mood", "full");
    create_mode(&mut c, "app.apart", "SELECT name FROM app.s", "full");
    exec(&mut c, "DROP TYPE app.mood CASCADE");
    for table in ["app.s", "app.above"] {
        assert_suspended(&mut c, table, "OUTPUT_COLUMN_DROPPED");
        everything_answers(&mut c, table);
    }
    assert_suspended(&mut c, "app.apart", "UPSTREAM_SUSPENDED");
    follow(&mut c, "app.s");
    assert_active(&mut c, "app.apart");
    follow(&mut c, "app.above");
    exec(&mut c, "DELETE FROM app.people WHERE id = 1");
    for table in ["app.s", "app.above", "app.apart"] {
        refresh(&mut c, table);
    }
}

#[test]
fn drop_owned_and_drop_extension_go_through() {
    let (db, mut c) = db("CREATE SCHEMA app");
    let role = db.create_role("owner");
    exec(
        &mut c,
        &format!(
            "CREATE TYPE app.mood AS ENUM ('a'); ALTER TYPE app.mood OWNER TO {role}; CREATE TABLE app.t (id int PRIMARY KEY, m app.mood); INSERT INTO app.t VALUES (1, 'a')"
        ),
    );
    create_mode(&mut c, "app.s", "SELECT id, m FROM app.t", "full");
    exec(&mut c, &format!("DROP OWNED BY {role} CASCADE"));
    assert_suspended(&mut c, "app.s", "OUTPUT_COLUMN_DROPPED");
    follow(&mut c, "app.s");
    let Some((extension, literal)) = extension(&mut c) else { return };
    exec(
        &mut c,
        &format!(
            "CREATE EXTENSION {extension} SCHEMA app; CREATE TABLE app.e (id int PRIMARY KEY, v app.{extension}); INSERT INTO app.e VALUES (1, '{literal}')"
        ),
    );
    create_mode(&mut c, "app.x", "SELECT id, v FROM app.e", "full");
    exec(&mut c, &format!("DROP EXTENSION {extension} CASCADE"));
    let s = assert_suspended(&mut c, "app.x", "OUTPUT_COLUMN_DROPPED");
    assert!(s.detail.contains(extension), "{s:?}");
    follow(&mut c, "app.x");
    refresh(&mut c, "app.x");
}

/// An extension of this server with a type of its own name, and a value of it.
fn extension(c: &mut Client) -> Option<(&'static str, &'static str)> {
    [("citext", "One"), ("vector", "[1,2]")].into_iter().find(|(name, _)| {
        one::<bool>(c, &format!("SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = '{name}')"))
    })
}

/// After the migration of `MOODS`: what was there is readable as it was printed, and the call of the hint resolves it.
fn migrated(c: &mut Client, table: &str, before: &[String]) {
    let s = status(c, table);
    assert!(s.why().contains("mood_old") && s.why().contains("text"), "{s:?}");
    let after: Vec<String> = column(c, &format!("SELECT s::text FROM {table} s ORDER BY id"));
    assert_eq!(after, before, "contents are kept as they were printed");
    everything_answers(c, table);
    follow(c, table);
    assert!(columns(c, table).contains(&"mood app.mood".to_string()), "{:?}", columns(c, table));
    exec(c, "UPDATE app.people SET mood = 'glad' WHERE id < 4");
    refresh(c, table);
}

fn enum_migration(mode: &str) {
    let (_db, mut c) = db(MOODS);
    create_mode(&mut c, "app.s", ALL, mode);
    let before: Vec<String> = column(&mut c, "SELECT s::text FROM app.s s ORDER BY id");
    exec(&mut c, MIGRATION);
    assert_suspended(&mut c, "app.s", "SCHEMA_INCOMPATIBLE");
    assert_eq!(columns(&mut c, "app.s"), ["id integer", "mood text", "name text", "moods text"]);
    migrated(&mut c, "app.s", &before);
    assert_eq!(columns(&mut c, "app.s"), ["id integer", "mood app.mood", "name text", "moods app.mood[]"]);
}

#[test]
fn the_enum_migration_of_the_orms_goes_through() {
    enum_migration("full");
}

#[test]
fn the_enum_migration_goes_through_for_a_differential_stream_table() {
    enum_migration("differential");
}

#[test]
fn one_statement_at_a_time_and_with_the_search_path_of_the_user() {
    let (_db, mut c) = db(MOODS);
    create_mode(&mut c, "app.s", ALL, "full");
    let before: Vec<String> = column(&mut c, "SELECT s::text FROM app.s s ORDER BY id");
    exec(&mut c, "SET search_path = app");
    for statement in MIGRATION.replace("app.", "").split(';') {
        exec(&mut c, statement);
    }
    exec(&mut c, "RESET search_path");
    migrated(&mut c, "app.s", &before);
}

#[test]
fn indexes_comments_grants_and_names_survive() {
    let (db, mut c) = db(MOODS);
    let reader = db.create_role("reader");
    create_mode(&mut c, "app.\"S é\"", ALL, "full");
    exec(
        &mut c,
        &format!(
            "CREATE UNIQUE INDEX by_id ON app.\"S é\" (id); CREATE INDEX by_mood ON app.\"S é\" (mood, id); COMMENT ON COLUMN app.\"S é\".mood IS 'how they are';
             GRANT SELECT (mood) ON app.\"S é\" TO {reader}; GRANT USAGE ON SCHEMA app TO {reader}; COMMENT ON INDEX app.by_mood IS 'fast'"
        ),
    );
    let kept = |c: &mut Client| -> Vec<String> {
        column(
            c,
            "SELECT concat_ws(' ', i.indexrelid::regclass, obj_description(i.indexrelid), i.indisvalid,
               col_description(i.indrelid, 2), (SELECT attacl FROM pg_attribute WHERE attrelid = i.indrelid AND attnum = 2))
             FROM pg_index i WHERE i.indrelid = 'app.\"S é\"'::regclass AND i.indexrelid::regclass::text LIKE '%by_%' ORDER BY 1",
        )
    };
    let before = kept(&mut c);
    assert_eq!(before.len(), 2, "{before:?}");
    exec(&mut c, MIGRATION);
    assert_eq!(kept(&mut c), before);
    let mut r = db.connect_as(&reader);
    assert_eq!(one::<i64>(&mut r, "SELECT count(mood) FROM app.\"S é\""), 6);
    follow(&mut c, "app.\"S é\"");
    assert_eq!(kept(&mut c), before);
}

#[test]
fn a_chain_follows_the_enum_migration() {
    let (_db, mut c) = db(MOODS);
    create_mode(&mut c, "app.s", ALL, "full");
    create_mode(&mut c, "app.above", "SELECT id, mood FROM app.s WHERE id > 2", "full");
    exec(&mut c, MIGRATION);
    assert_suspended(&mut c, "app.above", "");
    assert_eq!(columns(&mut c, "app.above"), ["id integer", "mood text"]);
    follow(&mut c, "app.s");
    assert_suspended(&mut c, "app.above", "");
    follow(&mut c, "app.above");
    assert_eq!(columns(&mut c, "app.above"), ["id integer", "mood app.mood"]);
    exec(&mut c, "UPDATE app.people SET mood = 'glad'");
    refresh(&mut c, "app.above");
}

/// (what is there first, the query, what changes the source, the drop, the stream table's columns after it).
type Replaced = (&'static str, &'static str, &'static str, &'static str, &'static [&'static str]);

#[test]
fn domains_collations_ranges_and_composites_are_dropped_as_ever() {
    let cases: &[Replaced] = &[
        (
            "CREATE SCHEMA app; CREATE DOMAIN app.tag AS text CHECK (value <> ''); CREATE TABLE app.people (id int PRIMARY KEY, name app.tag, names app.tag[])",
            "SELECT id, name, names FROM app.people",
            "ALTER TABLE app.people ALTER name TYPE text, ALTER names TYPE text[]",
            "DROP DOMAIN app.tag",
            &["id integer", "name text", "names text"],
        ),
        (
            "CREATE SCHEMA app; CREATE DOMAIN app.tag AS bool; CREATE DOMAIN app.tags AS app.tag; CREATE TABLE app.people (id int PRIMARY KEY, a app.tag, b app.tags)",
            "SELECT id, a, b FROM app.people",
            "ALTER TABLE app.people ALTER a TYPE bool, ALTER b TYPE bool",
            "DROP DOMAIN IF EXISTS app.tags, app.nothing, app.tag",
            &["id integer", "a text", "b text"],
        ),
        (
            "CREATE SCHEMA app; CREATE COLLATION app.c FROM \"C\"; CREATE TABLE app.people (id int PRIMARY KEY, name varchar(9) COLLATE app.c, note text)",
            "SELECT id, name, note FROM app.people",
            "ALTER TABLE app.people ALTER name TYPE varchar(9) COLLATE \"POSIX\"",
            "DROP COLLATION app.c",
            &["id integer", "name text", "note text"],
        ),
        (
            "CREATE SCHEMA app; CREATE TYPE app.span AS RANGE (subtype = int, multirange_type_name = app.spans); CREATE TABLE app.people (id int PRIMARY KEY, a app.span, b app.spans)",
            "SELECT id, a, b, ARRAY[a] AS c FROM app.people",
            "ALTER TABLE app.people ALTER a TYPE text, ALTER b TYPE text",
            "DROP TYPE app.span",
            &["id integer", "a text", "b text", "c text"],
        ),
        (
            "CREATE SCHEMA app; CREATE TYPE app.pair AS (a int, b int); CREATE TABLE app.people (id int PRIMARY KEY, p app.pair)",
            "SELECT id, p FROM app.people",
            "ALTER TABLE app.people ALTER p TYPE text",
            "DROP TYPE app.pair RESTRICT",
            &["id integer", "p text"],
        ),
    ];
    crate::ddl::for_each_in_threads(cases, |(setup, query, change, drop, after)| {
        let (_db, mut c) = db(setup);
        exec(&mut c, "INSERT INTO app.people (id) SELECT generate_series(1, 5)");
        create_mode(&mut c, "app.s", query, "full");
        exec(&mut c, change);
        assert_suspended(&mut c, "app.s", "COLUMN_TYPE_CHANGED");
        c.batch_execute(drop).unwrap_or_else(|e| panic!("{drop}: {}", describe(&e)));
        assert_eq!(columns(&mut c, "app.s"), *after, "{drop}");
        everything_answers(&mut c, "app.s");
        assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM app.s"), 5);
        exec(
            &mut c,
            "SELECT pgtrickle.alter_stream_table_query('app.s', 'SELECT * FROM app.people'); INSERT INTO app.people (id) VALUES (9)",
        );
        assert_active(&mut c, "app.s");
        refresh(&mut c, "app.s");
    });
}

#[test]
fn an_extension_is_dropped_as_ever() {
    let (_db, mut c) = db("CREATE SCHEMA app");
    let Some((extension, literal)) = extension(&mut c) else { return };
    exec(
        &mut c,
        &format!(
            "CREATE EXTENSION {extension}; CREATE TABLE app.e (id int PRIMARY KEY, v {extension}); INSERT INTO app.e VALUES (1, '{literal}')"
        ),
    );
    create_mode(&mut c, "app.x", "SELECT id, v FROM app.e", "full");
    exec(&mut c, "CREATE INDEX ON app.x (v); ALTER TABLE app.e ALTER v TYPE text");
    exec(&mut c, &format!("DROP EXTENSION {extension}"));
    assert_eq!(columns(&mut c, "app.x"), ["id integer", "v text"]);
    assert_eq!(one::<String>(&mut c, "SELECT v FROM app.x"), literal);
    follow(&mut c, "app.x");
    refresh(&mut c, "app.x");
}

/// Values are kept as their type prints them, by nobody's cast and with nobody's rights but the owner's.
#[test]
fn a_cast_of_the_users_is_not_run() {
    let (_db, mut c) = db(MOODS);
    exec(
        &mut c,
        "CREATE TABLE app.ran (by text); GRANT INSERT ON app.ran TO PUBLIC; CREATE FUNCTION app.trap(app.mood) RETURNS text LANGUAGE plpgsql AS
           $$ BEGIN INSERT INTO app.ran VALUES (current_user); RETURN 'trapped'; END $$;
         CREATE CAST (app.mood AS text) WITH FUNCTION app.trap(app.mood) AS ASSIGNMENT",
    );
    create_mode(&mut c, "app.s", "SELECT id, mood FROM app.people WHERE mood IS NOT NULL", "full");
    exec(
        &mut c,
        "ALTER TABLE app.people DROP COLUMN moods, ALTER COLUMN mood TYPE text USING 'x'; DROP CAST (app.mood AS text); DROP FUNCTION app.trap(app.mood)",
    );
    exec(
        &mut c,
        "CREATE FUNCTION app.trap(app.mood) RETURNS text LANGUAGE plpgsql AS
           $$ BEGIN INSERT INTO app.ran VALUES (current_user); RETURN 'trapped'; END $$;
         CREATE FUNCTION app.format(text, app.mood) RETURNS text LANGUAGE sql AS $$ SELECT app.trap($2) $$; SET search_path = app, pg_catalog",
    );
    exec(&mut c, "DROP FUNCTION app.format, app.trap; DROP TYPE app.mood; RESET search_path");
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM app.ran"), 0);
    assert_eq!(one::<i64>(&mut c, "SELECT count(*) FROM app.s WHERE mood IN ('sad', 'ok')"), 6);
}

/// Before it says what depends on a type, PostgreSQL locks each of them: nobody is waited for that would not be anyhow.
#[test]
fn it_waits_for_readers_as_the_command_itself_does() {
    let (db, mut c) = db(MOODS);
    create_mode(&mut c, "app.s", ALL, "full");
    exec(&mut c, "CREATE TABLE app.plain (id int, mood app.mood)");
    exec(&mut c, "ALTER TABLE app.people ALTER moods TYPE text, ALTER COLUMN mood TYPE text");
    let (mut reader, mut watcher) = (db.connect(), db.connect());
    for (table, outcome) in [("plain", "2BP01"), ("s", "done")] {
        exec(&mut reader, &format!("BEGIN; SELECT count(*) FROM app.{table}"));
        let backend = pid(&mut c);
        let told = std::thread::scope(|scope| {
            let drop = scope.spawn(|| match c.batch_execute("DROP TYPE app.mood") {
                Ok(()) => "done".to_string(),
                Err(e) => db_error(&e).sqlstate,
            });
            let _watched = Watched { watcher: &mut db.connect(), pid: backend };
            wait_for_lock_wait(&mut watcher, backend);
            exec(&mut reader, "COMMIT");
            drop.join().expect("the session that drops")
        });
        assert_eq!(told, outcome, "{table}");
        exec(&mut watcher, "DROP TABLE IF EXISTS app.plain");
    }
    follow(&mut c, "app.s");
}

#[test]
fn what_stands_in_the_way_of_the_drop_is_postgresqls_own_error() {
    let db = fresh_db();
    let (mut c, notices) = db.connect_noting();
    exec(&mut c, MOODS);
    create_mode(&mut c, "app.s", ALL, "full");
    // An active stream table uses it, as any table may.
    let e = expect_error(&mut c, "DROP TYPE app.mood");
    assert_eq!(e.sqlstate, "2BP01", "{e:?}");
    assert_active(&mut c, "app.s");
    // Another table has it: nothing of the stream table's is touched.
    exec(
        &mut c,
        "CREATE TABLE app.other (m app.mood); ALTER TABLE app.people ALTER mood TYPE text, ALTER moods TYPE text",
    );
    let before = columns(&mut c, "app.s");
    notices.take();
    let e = expect_error(&mut c, "DROP TYPE app.mood");
    assert_eq!(e.sqlstate, "2BP01", "{e:?}");
    assert_eq!(notices.take(), [], "nothing was said of what did not happen");
    assert_eq!(columns(&mut c, "app.s"), before);
    exec(&mut c, "DROP TABLE app.other");
    // A view of the user's shows the column: its type can't change.
    exec(&mut c, "CREATE VIEW app.v AS SELECT mood FROM app.s");
    let e = expect_error(&mut c, "DROP TYPE app.mood");
    assert_eq!(e.sqlstate, "2BP01", "{e:?}");
    assert_eq!(columns(&mut c, "app.s"), before);
    exec(&mut c, "DROP VIEW app.v");
    // What does not exist, and what may not be seen, is PostgreSQL's to say.
    for (sql, code) in [
        ("DROP TYPE app.nothing", "42704"),
        ("DROP TYPE nowhere.nothing", "3F000"),
        ("DROP TYPE a.b.c.d", "42601"),
        ("DROP EXTENSION nothing", "42704"),
        ("DROP COLLATION app.nothing", "42704"),
        ("DROP DOMAIN app.mood", "42809"),
    ] {
        assert_eq!(expect_error(&mut c, sql).sqlstate, code, "{sql}");
    }
    exec(&mut c, "DROP TYPE IF EXISTS nowhere.nothing");
    exec(&mut c, "BEGIN; DROP TYPE app.mood; ROLLBACK");
    assert_eq!(columns(&mut c, "app.s"), before);
    exec(&mut c, "BEGIN; SAVEPOINT a; DROP TYPE app.mood; ROLLBACK TO a; COMMIT");
    assert_eq!(columns(&mut c, "app.s"), before);
    exec(&mut c, "DROP TYPE app.mood");
    follow(&mut c, "app.s");
}

#[test]
fn a_column_of_a_row_type_is_refused_by_name() {
    let (_db, mut c) = db(
        "CREATE SCHEMA app; CREATE TABLE app.t (id int PRIMARY KEY, v int); CREATE VIEW app.v AS SELECT * FROM app.t;
         CREATE DOMAIN app.rowish AS app.t; CREATE TYPE app.box AS (label text, t app.t); CREATE TYPE app.pair AS (a int, b int);
         CREATE TABLE app.p (id int PRIMARY KEY, p app.pair, ps app.pair[]);
         CREATE MATERIALIZED VIEW app.m AS SELECT * FROM app.t; INSERT INTO app.t VALUES (1, 1), (2, 2)",
    );
    let refused = [
        ("SELECT t FROM app.t", "t"),
        ("SELECT id, array_agg(t) AS all_of_it FROM app.t GROUP BY id", "all_of_it"),
        ("SELECT w AS \"The row\" FROM app.v w", "The row"),
        ("SELECT m FROM app.m", "m"),
        ("SELECT t::app.rowish AS r, id FROM app.t", "r"),
        ("SELECT ROW('x', t)::app.box AS b FROM app.t", "b"),
        ("SELECT ARRAY[ROW('x', t)::app.box] AS bs FROM app.t", "bs"),
        ("SELECT id, NULL::app.t[] AS nothing FROM app.t", "nothing"),
        // Nothing stores this type but the stream table.
        ("SELECT ROW(id, v)::app.pair AS pair FROM app.t", "pair"),
    ];
    create(&mut c, "app.fine", "SELECT id, v FROM app.t");
    for mode in ["full", "auto"] {
        for (query, name) in refused {
            let e = assert_refused(&mut c, &create_call("app.s", query, mode), &["0A000"]);
            assert!(e.detail.contains("ROW_TYPE_OUTPUT"), "{query}: {e:?}");
            assert!(e.message.contains(name), "{query}: {e:?}");
            assert!(e.hint.contains("to_jsonb"), "{query}: {e:?}");
        }
    }
    for (query, _) in refused {
        let e = assert_refused(
            &mut c,
            &format!("SELECT pgtrickle.alter_stream_table_query('app.fine', {})", lit(query)),
            &["0A000"],
        );
        assert!(e.detail.contains("ROW_TYPE_OUTPUT"), "{query}: {e:?}");
    }
    refresh(&mut c, "app.fine");
    // What the hint says, and what a source stores itself, is welcome.
    let welcome = [
        "SELECT t.* FROM app.t",
        "SELECT to_jsonb(t) AS t FROM app.t",
        "SELECT (t).v AS v FROM app.t",
        "SELECT count(t) AS n FROM app.t",
        "SELECT id, p, ps FROM app.p",
        "SELECT id, ROW(id, id)::app.pair AS other FROM app.p",
    ];
    for (i, query) in welcome.iter().enumerate() {
        create_mode(&mut c, &format!("app.w{i}"), query, "full");
    }
    exec(&mut c, "INSERT INTO app.p VALUES (1, (1, 2), '{\"(1,2)\"}'); INSERT INTO app.t VALUES (3, 3)");
    exec(
        &mut c,
        "ALTER TABLE app.t ADD COLUMN more int DEFAULT 7, ADD COLUMN late timestamptz DEFAULT clock_timestamp()",
    );
    for i in 0..welcome.len() {
        refresh(&mut c, &format!("app.w{i}"));
    }
    // A row that the query makes has NULL there.
    exec(&mut c, "ALTER TYPE app.pair ADD ATTRIBUTE c int");
    for i in 0..welcome.len() {
        refresh(&mut c, &format!("app.w{i}"));
    }
}
