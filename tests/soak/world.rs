//! The tables and stream tables of the soak.

use crate::Soak;
use crate::support::describe;

/// What the sessions work on.
const TABLES: &str = "
    CREATE EXTENSION pgtrickle;
    CREATE TYPE mood AS ENUM ('calm', 'busy');
    CREATE TABLE branches (id int PRIMARY KEY, name text NOT NULL);
    CREATE TABLE accounts (id int PRIMARY KEY, branch int NOT NULL, balance numeric(12, 2) NOT NULL, note text);
    CREATE TABLE ledger (id bigint GENERATED ALWAYS AS IDENTITY, account int NOT NULL, kind mood NOT NULL,
        amount numeric NOT NULL, part int NOT NULL) PARTITION BY LIST (part);
    CREATE TABLE ledger_0 PARTITION OF ledger FOR VALUES IN (0);
    CREATE TABLE ledger_1 PARTITION OF ledger FOR VALUES IN (1);
    CREATE TABLE ledger_2 (LIKE ledger INCLUDING DEFAULTS);
    ALTER TABLE ledger_2 ALTER id DROP DEFAULT;
    CREATE TABLE queue (id int PRIMARY KEY, payload jsonb);
    CREATE FUNCTION fee(n numeric) RETURNS numeric LANGUAGE sql IMMUTABLE AS 'SELECT n * 0.01';
    CREATE VIEW rich AS SELECT id, branch, balance FROM accounts WHERE balance > 500;
    INSERT INTO branches SELECT i, 'branch ' || i FROM generate_series(1, 5) i;
    INSERT INTO accounts SELECT i, i % 5 + 1, i * 10, 'note ' || i FROM generate_series(1, 200) i;
    INSERT INTO ledger (account, kind, amount, part) SELECT i % 200 + 1, 'calm', i, i % 2 FROM generate_series(1, 500) i;
    INSERT INTO queue SELECT i, jsonb_build_object('n', i) FROM generate_series(1, 50) i;";

/// Name, query, schedule (none: by hand).
pub const STREAM_TABLES: [(&str, &str, Option<&str>); 9] = [
    (
        "by_branch",
        "SELECT b.id, b.name, count(*) AS n, sum(a.balance) AS balance FROM accounts a JOIN branches b ON b.id = a.branch GROUP BY b.id, b.name",
        Some("1 second"),
    ),
    ("top_branch", "SELECT max(n) AS n, max(balance) AS balance FROM by_branch", Some("1 second")),
    ("rich_accounts", "SELECT id, branch, balance FROM rich", Some("1 second")),
    (
        "by_kind",
        "SELECT kind, count(*) AS n, sum(amount) AS amount FROM ledger GROUP BY kind",
        Some("1 second"),
    ),
    ("fees", "SELECT id, fee(balance) AS fee FROM accounts", Some("2 seconds")),
    ("notes", "SELECT id, note FROM accounts", Some("1 second")),
    (
        "with_ledger",
        "SELECT a.id, l.amount FROM accounts a LEFT JOIN ledger l ON l.account = a.id AND l.amount > 450",
        Some("5 seconds"),
    ),
    ("queued", "SELECT (payload ->> 'n')::int % 3 AS k, count(*) AS n FROM queue GROUP BY 1", None),
    ("kinds", "SELECT DISTINCT kind, part FROM ledger", None),
];

/// Makes it all.
pub fn build(soak: &Soak) {
    let mut c = soak.cluster.connect("postgres");
    let mut run = |sql: &str| c.batch_execute(sql).unwrap_or_else(|e| panic!("{sql}\n{}", describe(&e)));
    run(TABLES);
    for (name, query, schedule) in STREAM_TABLES {
        let schedule = schedule.map_or("NULL".to_string(), |s| format!("'{s}'"));
        run(&format!("SELECT pgtrickle.create_stream_table('{name}', $query${query}$query$, {schedule})"));
    }
}
