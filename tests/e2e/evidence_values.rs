//! Value profiles: what is kept of values and in what form.

use crate::common::*;
use crate::evidence::*;
use crate::support::{Failure, expect_error, fresh_db};
use postgres::Client;
use serde_json::Value;

/// Under these settings the values of a profile print, whatever the session's are.
const CANONICAL: &str = "SET datestyle = 'ISO, YMD'; SET intervalstyle = postgres; SET timezone = 'UTC'; SET extra_float_digits = 1;
    SET bytea_output = hex; SET lc_monetary = 'C'";
/// Others, all of which change how something prints.
const ODD: &str = "SET datestyle = 'German'; SET intervalstyle = sql_standard; SET timezone = 'Asia/Kathmandu'; SET extra_float_digits = -5;
    SET bytea_output = escape; SET search_path = odd, public, pg_catalog";

/// Columns of many types; `name` twice has the same statistics.
fn assorted(c: &mut Client, name: &str) {
    exec(
        c,
        &format!(
            "CREATE TABLE {name} (i int, t text, f float8, r real, n numeric, d date, ts timestamp, tz timestamptz, iv interval,
               b bytea, bo boolean, u uuid, ip inet, a int[], j jsonb, o oid, rc regclass, m money, e mood, dm code, rg int4range);
             INSERT INTO {name} SELECT i, 'text ' || i % 4 || ', \"q\" {{}} \\ größe', i / 7.0, i / 3.0, i * 1.10, date '1999-12-31' + i,
               timestamp '2001-02-03 04:05:06.789' + i * interval '1 hour', timestamptz '2001-02-03 04:05:06+05' + i * interval '1 day',
               i * interval '1 mon 2 days 03:04:05', decode(lpad(to_hex(i), 6, '0'), 'hex'), i % 3 = 0, lpad(to_hex(i), 32, '0')::uuid,
               inet '10.0.0.0' + i, ARRAY[i, NULL, i % 2], jsonb_build_object('k', i % 5), 1259,
               'pg_class'::regclass, (i * 1000.5)::money, (ARRAY['sad', 'glad'])[1 + i % 2]::mood, 'c' || i % 3, int4range(i, i + 2)
             FROM generate_series(1, 60) i;
             SET default_statistics_target = 8; ANALYZE {name}; RESET default_statistics_target"
        ),
    );
}

#[test]
fn they_are_those_of_pg_stats() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE DOMAIN code AS varchar(9)");
    assorted(&mut c, "t");
    exec(&mut c, CANONICAL);
    let stats = c
        .query(
            "SELECT attname::text, null_frac, avg_width, n_distinct, correlation,
                    coalesce(most_common_vals::text::text[], '{}'), coalesce(histogram_bounds::text::text[], '{}'),
                    coalesce(most_common_freqs, '{}')
             FROM pg_stats WHERE tablename = 't' AND schemaname = 'public'",
            &[],
        )
        .expect("pg_stats");
    assert_eq!(stats.len(), 21);
    exec(&mut c, "DROP TABLE t");
    let shot = dropped(&mut c, "t");
    for row in &stats {
        let name: String = row.get(0);
        let p = shot.profile(&name);
        let (common, bounds): (Vec<String>, Vec<String>) = (row.get(5), row.get(6));
        assert_eq!(texts(&p["most_common_values"]), common, "{name}");
        assert_eq!(texts(&p["histogram"]), bounds, "{name}");
        assert_eq!(p["average_width"], row.get::<_, i32>(2), "{name}");
        close(&p["null_fraction"], row.get(1), &name);
        close(&p["distinct"], row.get(3), &name);
        if let Some(correlation) = row.get(4) {
            close(&p["correlation"], correlation, &name);
        }
        let frequencies: Vec<f32> = row.get(7);
        let kept = p["most_common_frequencies"].as_array().cloned().unwrap_or_default();
        assert_eq!(kept.len(), frequencies.len(), "{name}");
        kept.iter().zip(&frequencies).for_each(|(kept, given)| close(kept, *given, &name));
        if !frequencies.is_empty() {
            close(&p["common_fraction"], frequencies.iter().sum(), &name);
        }
    }
    assert!(
        shot.values("t").iter().any(|v| v.contains("größe") && v.contains("\"q\" {} \\")),
        "{:?}",
        shot.values("t")
    );
}

/// Equal to four significant digits.
fn close(kept: &Value, given: f32, what: &str) {
    let kept = kept.as_f64().unwrap_or_else(|| panic!("{what}: {kept} is no number"));
    let given = f64::from(given);
    assert!((kept - given).abs() <= given.abs() * 6e-4, "{what}: {kept} for {given}");
}

#[test]
fn they_do_not_depend_on_the_session() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE DOMAIN code AS varchar(9);
         CREATE SCHEMA odd; CREATE TABLE odd.pg_class (oid oid, relname text); CREATE TABLE odd.pg_statistic (x int);
         CREATE FUNCTION odd.format(text, name, name) RETURNS text LANGUAGE sql AS 'SELECT ''wrong'''",
    );
    assorted(&mut c, "plain");
    assorted(&mut c, "strange");
    exec(&mut c, "DROP TABLE plain");
    exec(&mut c, ODD);
    exec(&mut c, "DROP TABLE strange");
    for (setting, value) in [
        ("datestyle", "German, DMY"),
        ("timezone", "Asia/Kathmandu"),
        ("search_path", "odd, public, pg_catalog"),
    ] {
        assert_eq!(one::<String>(&mut c, &format!("SHOW {setting}")), value, "the session keeps its own");
    }
    exec(&mut c, "RESET ALL");
    let (plain, strange) = (dropped(&mut c, "plain"), dropped(&mut c, "strange"));
    for name in plain.names() {
        assert_eq!(plain.column(name), strange.column(name), "{name}");
    }
    assert!(
        plain.values("tz").iter().all(|v| v.ends_with("+00") && v.starts_with("2001-")),
        "{:?}",
        plain.values("tz")
    );
    assert!(plain.values("b").iter().all(|v| v.starts_with("\\x")), "{:?}", plain.values("b"));
}

#[test]
fn at_most_twenty_of_a_column_of_at_most_120_characters() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE t (id int, many text, mixed text, few text, long text);
         INSERT INTO t SELECT i, 'm' || i % 60, CASE WHEN i % 2 = 0 THEN 'c' || i % 12 ELSE 'u' || i END, 'f' || i % 3,
           repeat('ü', 119) || '数' || i FROM generate_series(1, 3000) i;
         INSERT INTO t SELECT NULL, NULL, NULL, NULL, NULL FROM generate_series(1, 1000); ANALYZE t; DROP TABLE t",
    );
    let shot = dropped(&mut c, "t");
    for name in shot.names() {
        let values = shot.values(name);
        assert!(values.len() <= 20, "{name}: {}", values.len());
        assert!(values.iter().all(|v| v.chars().count() <= 120), "{name}");
    }
    let bounds = texts(&shot.profile("id")["histogram"]);
    assert_eq!(
        (bounds.first().copied(), bounds.last().copied()),
        (Some("1"), Some("3000")),
        "both ends are kept"
    );
    assert_eq!(shot.values("many").len(), 20);
    let mixed = shot.profile("mixed");
    assert!(
        !texts(&mixed["most_common_values"]).is_empty() && !texts(&mixed["histogram"]).is_empty(),
        "{mixed:#}"
    );
    assert_eq!(shot.values("few").len(), 3);
    let long = shot.values("long");
    assert!(
        !long.is_empty() && long.iter().all(|v| *v == format!("{}数", "ü".repeat(119))),
        "cut between characters"
    );
    assert_eq!(shot.profile("long")["null_fraction"], 0.25);
    assert_eq!(shot.profile("few")["distinct"], 3.0);
    // Room for all that the bounds allow.
    let size: i32 = one(
        &mut c,
        "SELECT pg_column_size(shape) + pg_column_size(profile) FROM pgtrickle.pgt_schema_snapshots",
    );
    assert!(size < 4096, "{size} bytes as stored");
}

/// The whole stored row, and the whole shown one.
fn whole(c: &mut Client, table: &str) -> String {
    one(
        c,
        &format!(
            "SELECT s::text || v::text FROM pgtrickle.pgt_schema_snapshots s JOIN pgtrickle.schema_snapshots v USING (snapshot_id)
             WHERE s.table_name = '{table}'"
        ),
    )
}

const PLAIN_VALUES: &[&str] = &["Oslo", "Lima", "Quito", "Perth", "1990-", "57.1428"];

#[test]
fn hashed_values_can_be_compared_and_not_read() {
    let db = fresh_db();
    let mut c = db.connect();
    people(&mut c, "one");
    people(&mut c, "two");
    people(&mut c, "plain");
    exec(&mut c, "DROP TABLE plain; SET pg_trickle.snapshot_values = hashed");
    exec(&mut c, "DROP TABLE one");
    exec(&mut c, "DROP TABLE two");
    let (plain_row, hashed_row) = (whole(&mut c, "plain"), whole(&mut c, "one"));
    for value in PLAIN_VALUES {
        assert!(plain_row.contains(value), "the search finds what is there: {value}");
        assert!(!hashed_row.contains(value), "{value} is in the row: {hashed_row}");
    }
    let (plain, one_, two) = (dropped(&mut c, "plain"), dropped(&mut c, "one"), dropped(&mut c, "two"));
    for name in ["id", "city", "born", "weight"] {
        let digests = one_.values(name);
        assert_eq!(digests, two.values(name), "equal values have equal digests: {name}");
        assert_eq!(digests.len(), plain.values(name).len());
        assert!(
            digests.iter().all(|d| d.len() == 16 && d.chars().all(|c| c.is_ascii_hexdigit())),
            "{digests:?}"
        );
        let mut distinct = digests.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), digests.len(), "different values have different ones: {name}");
        let (p, h) = (plain.profile(name), one_.profile(name));
        for key in ["null_fraction", "distinct", "average_width", "most_common_frequencies", "correlation"] {
            assert_eq!(p.get(key), h.get(key), "{name} {key}");
        }
        assert_eq!((&p["values"], &h["values"]), (&Value::from("plain"), &Value::from("hashed")));
    }
    // Where each quantile lies between the ends, for numbers.
    let positions: Vec<f64> = one_.profile("id")["positions"]
        .as_array()
        .expect("positions")
        .iter()
        .filter_map(Value::as_f64)
        .collect();
    assert_eq!((positions.first(), positions.last(), positions.len()), (Some(&0.0), Some(&1.0), 20));
    assert!(positions.is_sorted());
    assert!(plain.profile("id").get("positions").is_none());
    // The key is the database's own: nobody looks digests up in a table made elsewhere.
    let other = fresh_db();
    let mut o = other.connect();
    people(&mut o, "one");
    exec(&mut o, "SET pg_trickle.snapshot_values = hashed; DROP TABLE one");
    assert_ne!(dropped(&mut o, "one").values("city"), one_.values("city"));
}

#[test]
fn without_values_the_numbers_stay() {
    let db = fresh_db();
    let mut c = db.connect();
    people(&mut c, "kept");
    people(&mut c, "t");
    exec(&mut c, "DROP TABLE kept; SET pg_trickle.snapshot_values = off");
    exec(&mut c, "DROP TABLE t");
    let row = whole(&mut c, "t");
    PLAIN_VALUES.iter().for_each(|v| assert!(!row.contains(v), "{v} is in the row: {row}"));
    let (kept, shot) = (dropped(&mut c, "kept"), dropped(&mut c, "t"));
    assert!(shot.stats);
    for name in ["id", "city", "born", "weight"] {
        for key in ["null_fraction", "distinct", "average_width", "correlation"] {
            assert_eq!(kept.profile(name).get(key), shot.profile(name).get(key), "{name} {key}");
        }
        assert!(shot.values(name).is_empty());
    }
    assert_eq!(shot.profile("born")["null_fraction"], 0.2);
    assert_eq!(shot.profile("city")["distinct"], 4.0);
}

fn hash(c: &mut Client, table: &str) -> String {
    one(c, &format!("SELECT pgtrickle.schema_hash({})", lit(table)))
}

fn refused(c: &mut Client, sql: &str) -> Failure {
    let e = expect_error(c, sql);
    assert_eq!(e.sqlstate, "22023", "{sql}: {e:?}");
    e
}

#[test]
fn schema_hash_is_of_the_set_of_names() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(
        &mut c,
        "CREATE TABLE ab (a int, b text); CREATE TABLE ba (b date, x int, a bigint NOT NULL); ALTER TABLE ba DROP x;
         CREATE TABLE one (\"a|b\" int); CREATE TABLE \"A\" (\"A\" int, b int); CREATE TABLE comma (\"a,b\" int);
         CREATE TABLE collected (a int, b int, _ingested_at timestamptz, _source_url text, _source_dataset_id uuid);
         CREATE TABLE more (a int, b int, loaded_at date, \"Batch No\" int); CREATE TABLE nothing ()",
    );
    let ab = hash(&mut c, "ab");
    assert!(ab.starts_with("v1:") && ab.len() == 67, "a version tag and SHA-256: {ab}");
    assert_eq!(hash(&mut c, "ba"), ab, "neither order, types nor dropped columns count");
    assert_eq!(hash(&mut c, "collected"), ab, "columns of the collector don't count");
    let mut all = vec![ab.clone()];
    for other in ["one", "\"A\"", "comma", "more", "nothing"] {
        all.push(hash(&mut c, other));
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 6, "names are told apart, however they are joined");
    // Settable.
    exec(&mut c, "SET pg_trickle.snapshot_excluded_columns = 'Loaded_At, \"Batch No\"'");
    assert_eq!(hash(&mut c, "more"), ab);
    assert_ne!(hash(&mut c, "collected"), ab);
    exec(&mut c, "DROP TABLE more; SET pg_trickle.snapshot_excluded_columns = ''");
    assert_eq!(dropped(&mut c, "more").hash, ab, "the stored one is the same");
    let collected = hash(&mut c, "collected");
    assert_ne!(collected, ab);
    exec(&mut c, "DROP TABLE collected");
    assert_eq!(dropped(&mut c, "collected").hash, collected);
    for bad in ["a,", "a b", ",", "\"a", "\"\"", "a,,b"] {
        refused(&mut c, &format!("SET pg_trickle.snapshot_excluded_columns = {}", lit(bad)));
    }
    assert_eq!(one::<Option<String>>(&mut c, "SELECT pgtrickle.schema_hash(NULL)"), None);
    assert_eq!(expect_error(&mut c, "SELECT pgtrickle.schema_hash('missing')").sqlstate, "42P01");
}
