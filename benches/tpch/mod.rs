//! What the demo and the ratios have in common: TPC-H tables, six queries over them, changes to orders and lineitem,
//! and plain text tables.

// Both programs include this file, and each uses its own part of it.
#![allow(dead_code)]

use std::fmt::Write as _;
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use postgres::{Client, GenericClient};

use crate::support::describe;

/// A stream table and the query it is kept equal to.
pub struct Defined {
    pub name: &'static str,
    pub about: &'static str,
    pub query: &'static str,
}

/// In an order in which each comes after those it reads.
pub const STREAM_TABLES: [Defined; 6] = [
    Defined {
        name: "pricing_summary",
        about: "TPC-H query 1: eight aggregates over nearly all of lineitem",
        query: "SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price, \
                sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price, \
                sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge, \
                avg(l_quantity) AS avg_qty, avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc, \
                count(*) AS count_order \
                FROM lineitem WHERE l_shipdate <= date '1998-12-01' - interval '90 days' \
                GROUP BY l_returnflag, l_linestatus",
    },
    Defined {
        name: "forecast_revenue",
        about: "TPC-H query 6: one sum under a narrow filter",
        query: "SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem \
                WHERE l_shipdate >= date '1994-01-01' AND l_shipdate < date '1995-01-01' \
                AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
    },
    Defined {
        name: "revenue_by_nation",
        about: "customer, orders, lineitem and nation joined, by nation",
        query: "SELECT n_name, count(*) AS items, sum(l_extendedprice * (1 - l_discount)) AS revenue \
                FROM customer JOIN orders ON o_custkey = c_custkey JOIN lineitem ON l_orderkey = o_orderkey \
                JOIN nation ON n_nationkey = c_nationkey GROUP BY n_name",
    },
    Defined {
        name: "part_demand",
        about: "count, sum, min and max for each of 20,000 parts",
        query: "SELECT l_partkey, count(*) AS items, sum(l_quantity) AS quantity, \
                min(l_extendedprice) AS lowest_price, max(l_shipdate) AS last_shipped \
                FROM lineitem GROUP BY l_partkey",
    },
    Defined {
        name: "open_orders",
        about: "a join without aggregates: a row for each open order, with its customer",
        query: "SELECT o_orderkey, o_orderdate, o_totalprice, c_custkey, c_name, c_mktsegment \
                FROM orders JOIN customer ON c_custkey = o_custkey WHERE o_orderstatus = 'O'",
    },
    Defined {
        name: "open_by_customer",
        about: "a stream table over the stream table open_orders",
        query: "SELECT c_custkey, c_name, count(*) AS orders, sum(o_totalprice) AS total, min(o_orderdate) AS oldest \
                FROM open_orders GROUP BY c_custkey, c_name HAVING count(*) > 1",
    },
];

/// What a user would add to the stream tables: an index for those who read them, here the stream table on top.
pub const INDEXES: &str = "CREATE INDEX ON open_orders (c_custkey)";

/// Names of the eight tables, each after those it refers to.
const TABLES: [&str; 8] =
    ["region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"];

const CREATE_TABLES: &str = "
CREATE TABLE region (r_regionkey integer NOT NULL, r_name char(25) NOT NULL, r_comment varchar(152));
CREATE TABLE nation (n_nationkey integer NOT NULL, n_name char(25) NOT NULL, n_regionkey integer NOT NULL,
    n_comment varchar(152));
CREATE TABLE supplier (s_suppkey integer NOT NULL, s_name char(25) NOT NULL, s_address varchar(40) NOT NULL,
    s_nationkey integer NOT NULL, s_phone char(15) NOT NULL, s_acctbal numeric(15,2) NOT NULL,
    s_comment varchar(101) NOT NULL);
CREATE TABLE customer (c_custkey integer NOT NULL, c_name varchar(25) NOT NULL, c_address varchar(40) NOT NULL,
    c_nationkey integer NOT NULL, c_phone char(15) NOT NULL, c_acctbal numeric(15,2) NOT NULL,
    c_mktsegment char(10) NOT NULL, c_comment varchar(117) NOT NULL);
CREATE TABLE part (p_partkey integer NOT NULL, p_name varchar(55) NOT NULL, p_mfgr char(25) NOT NULL,
    p_brand char(10) NOT NULL, p_type varchar(25) NOT NULL, p_size integer NOT NULL, p_container char(10) NOT NULL,
    p_retailprice numeric(15,2) NOT NULL, p_comment varchar(23) NOT NULL);
CREATE TABLE partsupp (ps_partkey integer NOT NULL, ps_suppkey integer NOT NULL, ps_availqty integer NOT NULL,
    ps_supplycost numeric(15,2) NOT NULL, ps_comment varchar(199) NOT NULL);
CREATE TABLE orders (o_orderkey integer NOT NULL, o_custkey integer NOT NULL, o_orderstatus char(1) NOT NULL,
    o_totalprice numeric(15,2) NOT NULL, o_orderdate date NOT NULL, o_orderpriority char(15) NOT NULL,
    o_clerk char(15) NOT NULL, o_shippriority integer NOT NULL, o_comment varchar(79) NOT NULL);
CREATE TABLE lineitem (l_orderkey integer NOT NULL, l_partkey integer NOT NULL, l_suppkey integer NOT NULL,
    l_linenumber integer NOT NULL, l_quantity numeric(15,2) NOT NULL, l_extendedprice numeric(15,2) NOT NULL,
    l_discount numeric(15,2) NOT NULL, l_tax numeric(15,2) NOT NULL, l_returnflag char(1) NOT NULL,
    l_linestatus char(1) NOT NULL, l_shipdate date NOT NULL, l_commitdate date NOT NULL,
    l_receiptdate date NOT NULL, l_shipinstruct char(25) NOT NULL, l_shipmode char(10) NOT NULL,
    l_comment varchar(44) NOT NULL);
";

const CREATE_KEYS: &str = "
ALTER TABLE region ADD PRIMARY KEY (r_regionkey);
ALTER TABLE nation ADD PRIMARY KEY (n_nationkey), ADD FOREIGN KEY (n_regionkey) REFERENCES region;
ALTER TABLE supplier ADD PRIMARY KEY (s_suppkey), ADD FOREIGN KEY (s_nationkey) REFERENCES nation;
ALTER TABLE customer ADD PRIMARY KEY (c_custkey), ADD FOREIGN KEY (c_nationkey) REFERENCES nation;
ALTER TABLE part ADD PRIMARY KEY (p_partkey);
ALTER TABLE partsupp ADD PRIMARY KEY (ps_partkey, ps_suppkey), ADD FOREIGN KEY (ps_partkey) REFERENCES part,
    ADD FOREIGN KEY (ps_suppkey) REFERENCES supplier;
ALTER TABLE orders ADD PRIMARY KEY (o_orderkey), ADD FOREIGN KEY (o_custkey) REFERENCES customer;
ALTER TABLE lineitem ADD PRIMARY KEY (l_orderkey, l_linenumber), ADD FOREIGN KEY (l_orderkey) REFERENCES orders,
    ADD FOREIGN KEY (l_partkey, l_suppkey) REFERENCES partsupp;
CREATE INDEX ON nation (n_regionkey);
CREATE INDEX ON supplier (s_nationkey);
CREATE INDEX ON customer (c_nationkey);
CREATE INDEX ON partsupp (ps_suppkey);
CREATE INDEX ON orders (o_custkey);
CREATE INDEX ON orders (o_orderdate);
CREATE INDEX ON lineitem (l_partkey, l_suppkey);
CREATE INDEX ON lineitem (l_shipdate);
";

/// Makes the eight tables and fills them; `say` is told of each part and its time.
pub fn load(client: &mut Client, mut say: impl FnMut(&str, Duration)) {
    let folder = std::env::var_os("PGTRICKLE_TPCH").map(PathBuf::from).unwrap_or_else(|| {
        panic!("PGTRICKLE_TPCH must name a folder with the tables of tpchgen-cli as csv; `make` sees to that")
    });
    let begin = Instant::now();
    run(client, CREATE_TABLES);
    for table in TABLES {
        let path = folder.join(format!("{table}.csv"));
        let mut file = File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut writer = client
            .copy_in(&format!("COPY {table} FROM STDIN (FORMAT csv, HEADER)"))
            .unwrap_or_else(|e| panic!("COPY {table}: {}", describe(&e)));
        std::io::copy(&mut file, &mut writer).unwrap_or_else(|e| panic!("COPY {table}: {e}"));
        writer.finish().unwrap_or_else(|e| panic!("COPY {table}: {}", describe(&e)));
    }
    say("eight tables copied in", begin.elapsed());
    let begin = Instant::now();
    run(client, CREATE_KEYS);
    say("primary keys, foreign keys, indexes", begin.elapsed());
    let begin = Instant::now();
    run(client, "VACUUM ANALYZE");
    say("VACUUM ANALYZE", begin.elapsed());
}

/// What is done to orders and lineitem in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Insert,
    Delete,
    Update,
    /// A third of each.
    Mixed,
}

/// One transaction of changes to one row in `one_in` of orders and of lineitem; gives the numbers of rows.
///
/// Works on whatever columns the tables have by now: on the bad day they come and go.
pub fn change(client: &mut Client, change: Change, one_in: u32, round: u32) -> (u64, u64) {
    let parts = match change {
        Change::Mixed => vec![Change::Insert, Change::Delete, Change::Update],
        one => vec![one],
    };
    let modulus = one_in * u32::try_from(parts.len()).expect("three at most");
    let (mut orders, mut lines) = (0, 0);
    let mut transaction = client.transaction().expect("BEGIN");
    for (place, part) in parts.into_iter().enumerate() {
        // Spreads over the whole key range, differs from round to round, and is the same in every run.
        let salt = u64::from(round) * 7 + place as u64;
        let sample = |key: &str| format!("({key}::bigint * 7919 + {salt} * 104729) % {modulus} = 0");
        let (o, l) = match part {
            Change::Insert => insert(&mut transaction, &sample("o_orderkey"), salt),
            Change::Delete => delete(&mut transaction, &sample("o_orderkey")),
            Change::Update => (
                execute(
                    &mut transaction,
                    &format!(
                        "UPDATE orders SET o_totalprice = o_totalprice + 1, \
                         o_orderstatus = CASE o_orderstatus WHEN 'O' THEN 'F' ELSE 'O' END WHERE {}",
                        sample("o_orderkey")
                    ),
                ),
                execute(
                    &mut transaction,
                    &format!(
                        "UPDATE lineitem SET l_quantity = l_quantity + 1, l_shipdate = l_shipdate + 1 WHERE {}",
                        sample("(l_orderkey * 7::bigint + l_linenumber)")
                    ),
                ),
            ),
            Change::Mixed => unreachable!("taken apart above"),
        };
        orders += o;
        lines += l;
    }
    transaction.commit().unwrap_or_else(|e| panic!("COMMIT: {}", describe(&e)));
    (orders, lines)
}

/// New orders with their lines: copies of existing ones under new keys.
fn insert(client: &mut impl GenericClient, sample: &str, salt: u64) -> (u64, u64) {
    // 600,000 is the highest key of the generated orders at this scale, and each salt has a range of its own.
    let shift = 1_000_000 * (salt + 1);
    let sample = format!("o_orderkey <= 600000 AND {sample}");
    run(
        client,
        &format!(
            "CREATE TEMP TABLE new_orders ON COMMIT DROP AS SELECT * FROM orders WHERE {sample};
             CREATE TEMP TABLE new_lines ON COMMIT DROP AS
                 SELECT lineitem.* FROM lineitem JOIN new_orders ON l_orderkey = o_orderkey;
             UPDATE new_orders SET o_orderkey = o_orderkey + {shift};
             UPDATE new_lines SET l_orderkey = l_orderkey + {shift};"
        ),
    );
    let orders = execute(client, "INSERT INTO orders TABLE new_orders");
    (orders, execute(client, "INSERT INTO lineitem TABLE new_lines"))
}

fn delete(client: &mut impl GenericClient, sample: &str) -> (u64, u64) {
    let lines = execute(
        client,
        &format!("DELETE FROM lineitem USING orders WHERE l_orderkey = o_orderkey AND {sample}"),
    );
    (execute(client, &format!("DELETE FROM orders WHERE {sample}")), lines)
}

pub fn run(client: &mut impl GenericClient, sql: &str) {
    client.batch_execute(sql).unwrap_or_else(|e| panic!("{}\n{sql}", describe(&e)));
}

pub fn execute(client: &mut impl GenericClient, sql: &str) -> u64 {
    client.execute(sql, &[]).unwrap_or_else(|e| panic!("{}\n{sql}", describe(&e)))
}

/// Runs a statement and gives its time as the client sees it.
pub fn timed(client: &mut impl GenericClient, sql: &str) -> Duration {
    let begin = Instant::now();
    run(client, sql);
    begin.elapsed()
}

/// A refresh by hand: what it did, and its time as the client sees it.
pub fn timed_refresh(client: &mut Client, stream_table: &str) -> (String, Duration) {
    try_timed_refresh(client, stream_table).unwrap_or_else(|e| panic!("refresh of {stream_table}: {e}"))
}

/// As [`timed_refresh`]; a refresh that fails gives the error as text.
pub fn try_timed_refresh(client: &mut Client, stream_table: &str) -> Result<(String, Duration), String> {
    const REFRESH: &str = "SELECT action FROM pgtrickle.refresh_stream_table($1::text::regclass)";
    // Prepared beforehand: what is timed is one round trip, as for the statement it is compared with.
    let statement = client.prepare(REFRESH).map_err(|e| describe(&e))?;
    let begin = Instant::now();
    let row = client.query_one(&statement, &[&stream_table]).map_err(|e| describe(&e))?;
    Ok((row.get(0), begin.elapsed()))
}

pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// "0.42 ms", "8.1 ms", "412 ms".
pub fn ms(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1000.0;
    let digits = if ms < 1.0 {
        2
    } else if ms < 100.0 {
        1
    } else {
        0
    };
    format!("{ms:.digits$} ms")
}

pub fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// "31x", "1.42x".
pub fn times(ratio: f64) -> String {
    let digits = if ratio < 10.0 { 2 } else { 0 };
    format!("{ratio:.digits$}x")
}

pub fn ratio(numerator: Duration, denominator: Duration) -> f64 {
    numerator.as_secs_f64() / denominator.as_secs_f64().max(1e-9)
}

/// A table in plain text: numbers to the right, words to the left.
pub fn text_table(header: &[&str], rows: &[Vec<String>]) -> String {
    let cells = |column: usize| rows.iter().filter_map(move |row| row.get(column));
    let columns: Vec<(usize, bool)> = header
        .iter()
        .enumerate()
        .map(|(column, title)| {
            let width = cells(column).map(|cell| cell.chars().count()).max().unwrap_or(0);
            let numeric =
                column > 0 && cells(column).any(|cell| cell.starts_with(|c: char| c.is_ascii_digit()));
            (width.max(title.chars().count()), numeric)
        })
        .collect();
    let mut text = String::new();
    let mut line = |cells: &[String]| {
        let mut line = String::from(" ");
        for (cell, (width, numeric)) in cells.iter().zip(&columns) {
            let _ =
                if *numeric { write!(line, " {cell:>width$}  ") } else { write!(line, " {cell:<width$}  ") };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    };
    line(&header.iter().map(|title| (*title).to_string()).collect::<Vec<_>>());
    line(&columns.iter().map(|(width, _)| "-".repeat(*width)).collect::<Vec<_>>());
    for row in rows {
        line(row);
    }
    text
}

/// Breaks prose into lines that fit a terminal, each with an indent.
pub fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("never empty");
        if !line.is_empty() && indent.len() + line.chars().count() + 1 + word.chars().count() > 100 {
            lines.push(word.to_string());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.iter().map(|line| format!("{indent}{line}\n")).collect()
}
