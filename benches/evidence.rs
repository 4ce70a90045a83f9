//! What schema snapshots cost: a drop with them against one without, their size, the baseline pass, the account.

use std::time::Duration;

use postgres::Client;

use crate::heading;
use crate::support::Cluster;
use crate::tpch::{median, ms, run, text_table, timed};

const TABLE_OF: &str = "
CREATE FUNCTION columns_of(n integer) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(CASE i % 4
        WHEN 0 THEN format('g * %s AS c%s', i, i)
        WHEN 1 THEN format('''value number '' || g * %s AS c%s', i, i)
        WHEN 2 THEN format('timestamptz ''2026-01-01'' + g * interval ''%s min'' AS c%s', i, i)
        ELSE format('''kind '' || g %% %s AS c%s', 2 + i % 30, i) END, ', ')
    FROM generate_series(1, n) i $$;
CREATE FUNCTION make_table(name text, n integer) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TABLE %I AS SELECT %s FROM generate_series(1, 1000) g', name, columns_of(n));
    EXECUTE format('ANALYZE %I', name);
END $$;";

/// All of it.
pub fn evidence(cluster: &Cluster) {
    cluster.create_db("evidence");
    let mut client = cluster.connect("evidence");
    run(&mut client, "CREATE EXTENSION pgtrickle");
    run(&mut client, TABLE_OF);
    drops(&mut client);
    baseline(&mut client);
    account(&mut client);
}

fn drops(client: &mut Client) {
    const ROUNDS: usize = 60;
    heading(&format!("DROP TABLE of an analysed table with its snapshot and without ({ROUNDS} rounds)"));
    let mut rows = Vec::new();
    for (columns, aim) in [(13, "1 ms"), (300, "5 ms")] {
        let mut times: [Vec<Duration>; 2] = Default::default();
        for round in 0..ROUNDS + 5 {
            for turn in 0..2 {
                let which = (round + turn) % 2;
                run(client, &format!("SELECT make_table('dropped', {columns})"));
                let setting = ["off", "all"][which];
                run(client, &format!("SET pg_trickle.schema_snapshots = '{setting}'"));
                let time = timed(client, "DROP TABLE dropped");
                // The first rounds fill caches.
                if round >= 5 {
                    times[which].push(time);
                }
            }
        }
        let [without, with] = times.map(median);
        let bytes: i64 = one(
            client,
            &format!(
                "SELECT max(pg_column_size(shape) + pg_column_size(profile) + pg_column_size(statement)
                     + pg_column_size(schema_hash) + pg_column_size(digest) + 150)::bigint
                 FROM pgtrickle.pgt_schema_snapshots WHERE column_count = {columns}"
            ),
        );
        let size = if columns == 13 { "4 KB" } else { "" };
        rows.push(vec![
            format!("{columns} columns"),
            ms(without),
            ms(with),
            ms(with.saturating_sub(without)),
            aim.to_string(),
            format!("{:.1} KB", bytes as f64 / 1024.0),
            size.to_string(),
        ]);
    }
    print!("{}", text_table(&["", "without", "with", "more", "aim", "stored", "aim"], &rows));
}

fn baseline(client: &mut Client) {
    heading("Baseline pass over 300 analysed tables of 13 columns");
    run(client, "SELECT make_table('base_' || i, 13) FROM generate_series(1, 300) i");
    run(client, EMPTY);
    let plain = timed(
        client,
        "SELECT count(*) FROM (SELECT tablename, attname, most_common_vals::text::text[],
             histogram_bounds::text::text[] FROM pg_stats WHERE tablename LIKE 'base\\_%' OFFSET 0) s",
    );
    let pass = timed(client, "SELECT * FROM pgtrickle.capture_baseline()");
    let captured: i64 = one(client, "SELECT count(*) FROM pgtrickle.schema_snapshots WHERE stats_available");
    assert_eq!(captured, 300, "every table is recorded with its values");
    let again = timed(client, "SELECT * FROM pgtrickle.capture_baseline()");
    let rows = [
        vec!["capture_baseline()".into(), ms(pass), "under 500 ms".into()],
        vec!["again, with nothing new".into(), ms(again), String::new()],
        vec!["one SELECT of the same values from pg_stats".into(), ms(plain), String::new()],
    ];
    print!("{}", text_table(&["", "time", "aim"], &rows));
}

/// Nothing else takes all snapshots away.
const EMPTY: &str = "REFRESH MATERIALIZED VIEW pgtrickle.pgt_schema_snapshots WITH NO DATA;
REFRESH MATERIALIZED VIEW pgtrickle.pgt_schema_snapshots";

/// 5,000 tables that were dropped and made again twenty times each; as if restored from a dump.
const SNAPSHOTS: &str = "
SELECT make_table('pattern', 13);
DROP TABLE pattern;
CREATE TEMP TABLE made AS TABLE pgtrickle.pgt_schema_snapshots LIMIT 1;
INSERT INTO pgtrickle.pgt_schema_snapshots_dump
SELECT 1000000 + g, origin, 1000000 + g, schema_name, 'table_' || g % 5000, now() - (100001 - g) * interval '1 min', reason, moment,
    alive, schema_hash, md5(VERSION::text), md5(g::text), made_from, relkind, relpersistence, retyped, column_count, row_estimate,
    stats_available,
    regexp_replace(replace(shape, '\"c7\"', '\"c7_' || VERSION || '\"'), '^\\[1,\\d+,\"public\",\"pattern\"',
        '[1,' || 1000000 + g || ',\"public\",\"table_' || g % 5000 || '\"'),
    profile, actor, command_tag, statement, application, resource_identity, own, in_extension, xid
FROM made, generate_series(1, 100000) g;
DROP TABLE made;
ANALYZE pgtrickle.pgt_schema_snapshots";

fn account(client: &mut Client) {
    heading("drift_report() over 100,000 snapshots of 5,000 tables");
    let mut rows = Vec::new();
    for (title, version, aim) in [
        ("each table goes between two shapes", "(g % 5000 * 2 + g / 5000 % 2)", "under 2 s"),
        ("no shape ever returns", "g", ""),
    ] {
        run(client, EMPTY);
        run(client, &SNAPSHOTS.replace("VERSION", version));
        let report = "SELECT sum(pairs)::bigint FROM pgtrickle.drift_report() WHERE pairing = 'relation'";
        let pairs: i64 = one(client, report);
        assert_eq!(pairs, 95_000, "every pair of neighbours counts");
        let time = median((0..3).map(|_| timed(client, report)).collect());
        rows.push(vec![title.to_string(), ms(time), aim.to_string()]);
    }
    print!("{}", text_table(&["", "time", "aim"], &rows));
}

fn one(client: &mut Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).unwrap_or_else(|e| panic!("{sql}: {}", crate::support::describe(&e))).get(0)
}
