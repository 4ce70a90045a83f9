//! `make demo`: TPC-H data in a private server, six stream tables, rounds of changes beside REFRESH MATERIALIZED
//! VIEW, and a bad day of schema changes. Prints a short story, and leaves the server running to be looked at.

#[path = "../../tests/support/mod.rs"]
mod support;
#[path = "../tpch/mod.rs"]
mod tpch;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use postgres::Client;
use support::{Cluster, Notices, Options, describe};
use tpch::{
    Change, INDEXES, STREAM_TABLES, change, ms, ratio, run, seconds, text_table, timed, timed_refresh, times,
    try_timed_refresh, wrapped,
};

const DATABASE: &str = "tpch";
/// One row in a thousand: 0.1 %.
const ONE_IN: u32 = 1000;

fn main() -> ExitCode {
    let home = std::env::var_os("PGTRICKLE_DEMO").map(PathBuf::from).unwrap_or_else(|| {
        panic!("PGTRICKLE_DEMO must name the folder for the demo's server; `make demo` sees to that")
    });
    let mut story = Story::begin(home);
    story.load();
    story.create();
    for (title, kind) in [
        ("New orders", Change::Insert),
        ("Cancelled orders", Change::Delete),
        ("Corrected orders", Change::Update),
        ("All three at once", Change::Mixed),
    ] {
        story.round(title, kind);
    }
    story.bad_day();
    story.end()
}

struct Story {
    home: PathBuf,
    client: Client,
    notices: Notices,
    begin: Instant,
    round: u32,
    /// What should not have been; the demo goes on, and says so at the end.
    faults: Vec<String>,
}

fn heading(text: &str) {
    println!("\n{text}\n{}", "=".repeat(text.len()));
}

fn tell(text: &str) {
    print!("{}", wrapped(text, ""));
}

impl Story {
    fn begin(home: PathBuf) -> Story {
        let begin = Instant::now();
        heading("A server of our own");
        let cluster = Cluster::start(&Options {
            preload: true,
            lasting_home: Some(home.clone()),
            conf: vec!["shared_buffers = 256MB".to_string(), "max_wal_size = 4GB".to_string()],
            ..Options::default()
        });
        cluster.create_db(DATABASE);
        let (mut client, notices) = cluster.connect_noting(DATABASE);
        let version: String = client.query_one("SHOW server_version", &[]).expect("SHOW").get(0);
        println!(
            "PostgreSQL {version} in {}, shared_preload_libraries = 'pgtrickle', fsync off: {}",
            home.display(),
            seconds(begin.elapsed())
        );
        Story { home, client, notices, begin, round: 0, faults: Vec::new() }
    }

    fn fault(&mut self, text: String) {
        println!("  NOT AS IT SHOULD BE: {text}");
        self.faults.push(text);
    }

    fn load(&mut self) {
        heading("TPC-H at scale 0.1");
        tpch::load(&mut self.client, |what, time| println!("{what}: {}", seconds(time)));
        let row = self
            .client
            .query_one("SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM lineitem)", &[])
            .expect("counts");
        println!("{} orders, {} lineitems", row.get::<_, i64>(0), row.get::<_, i64>(1));
    }

    fn create(&mut self) {
        heading("Six stream tables");
        tell(
            "Each is made with SELECT pgtrickle.create_stream_table(name, query, schedule => NULL). Without a schedule \
             they are refreshed by hand, so that the times below are ours; leave it out and a worker refreshes them \
             every 10 seconds. Beside each stands a materialized view mv_... with the same query.",
        );
        println!();
        run(&mut self.client, "CREATE EXTENSION pgtrickle");
        let mut rows = Vec::new();
        for defined in &STREAM_TABLES {
            let begin = Instant::now();
            self.client
                .execute(
                    "SELECT pgtrickle.create_stream_table($1::text, $2::text, schedule => NULL)",
                    &[&defined.name, &defined.query],
                )
                .unwrap_or_else(|e| panic!("create_stream_table {}: {}", defined.name, describe(&e)));
            let created = begin.elapsed();
            run(
                &mut self.client,
                &format!("CREATE MATERIALIZED VIEW mv_{0} AS {1}", defined.name, defined.query),
            );
            let n: i64 = self
                .client
                .query_one(&format!("SELECT count(*) FROM {}", defined.name), &[])
                .expect("count")
                .get(0);
            rows.push(vec![defined.name.to_string(), n.to_string(), ms(created), defined.about.to_string()]);
        }
        print!("{}", text_table(&["stream table", "rows", "created in", "what it is"], &rows));
        for defined in &STREAM_TABLES {
            self.check_equal(defined.name);
        }
        println!("\nThey are plain tables, and indexes on them are the user's: {INDEXES};");
        run(&mut self.client, INDEXES);
        // What autovacuum would do within a minute or two.
        run(&mut self.client, "VACUUM ANALYZE");
        self.notices.take();
    }

    /// One transaction of changes, then each stream table beside its materialized view.
    fn round(&mut self, title: &str, kind: Change) {
        self.round += 1;
        let (orders, lines) = change(&mut self.client, kind, ONE_IN, self.round);
        heading(&format!("Round {}. {title}", self.round));
        let what = match kind {
            Change::Insert => "inserted",
            Change::Delete => "deleted",
            Change::Update => "updated",
            Change::Mixed => "inserted, deleted or updated",
        };
        println!("{orders} orders and {lines} lineitems {what}, in one transaction.\n");
        let mut rows = Vec::new();
        for defined in &STREAM_TABLES {
            let (action, differential) = timed_refresh(&mut self.client, defined.name);
            let full = timed(&mut self.client, &format!("REFRESH MATERIALIZED VIEW mv_{}", defined.name));
            let equal = self.check_equal(defined.name);
            rows.push(vec![
                defined.name.to_string(),
                action,
                ms(differential),
                ms(full),
                times(ratio(full, differential)),
                if equal { "yes" } else { "NO" }.to_string(),
            ]);
        }
        print!(
            "{}",
            text_table(
                &["stream table", "action", "refresh", "REFRESH MATERIALIZED VIEW", "faster", "equal"],
                &rows
            )
        );
    }

    /// The stream table against the query that the catalog has for it now.
    fn check_equal(&mut self, name: &str) -> bool {
        let query: String = self
            .client
            .query_one(
                "SELECT query FROM pgtrickle.stream_tables WHERE stream_table = $1::text::regclass",
                &[&name],
            )
            .expect("the stream table's row")
            .get(0);
        match support::difference(&mut self.client, name, &query) {
            None => true,
            Some(report) => {
                self.fault(report);
                false
            }
        }
    }

    fn bad_day(&mut self) {
        heading("The bad day");
        tell(
            "The materialized views have to go first: PostgreSQL would not let a column be dropped that one of them \
             reads. Stream tables stay, and nobody is kept from changing the tables below them. After each change a \
             few orders come and go, and every stream table is refreshed and compared with its query.",
        );
        for defined in STREAM_TABLES.iter().rev() {
            run(&mut self.client, &format!("DROP MATERIALIZED VIEW mv_{}", defined.name));
        }
        let calm = [
            ("A column is added.", "ALTER TABLE orders ADD COLUMN o_channel text DEFAULT 'web'"),
            ("A column in use is renamed.", "ALTER TABLE lineitem RENAME COLUMN l_extendedprice TO l_price"),
            (
                "A table moves to another schema.",
                "CREATE SCHEMA sales; ALTER TABLE customer SET SCHEMA sales",
            ),
            ("A column that nobody uses is dropped.", "ALTER TABLE orders DROP COLUMN o_comment"),
        ];
        for (title, ddl) in calm {
            self.schema_change(title, ddl);
            self.expect_all_right();
        }
        self.schema_change("A column in use is dropped.", "ALTER TABLE lineitem DROP COLUMN l_tax");
        self.suspension("pricing_summary");
    }

    fn schema_change(&mut self, title: &str, ddl: &str) {
        println!("\n{title}");
        println!("    {ddl};");
        self.notices.take();
        let time = timed(&mut self.client, ddl);
        let heard = self.notices.take();
        println!(
            "  Done in {}{}",
            ms(time),
            if heard.is_empty() { ", without a word." } else { ". The session was told:" }
        );
        for (severity, notice) in heard {
            print!("{}", wrapped(&format!("{severity}: {}", notice.message), "    "));
            for (label, part) in [("DETAIL", notice.detail), ("HINT", notice.hint)] {
                if !part.is_empty() {
                    print!("{}", wrapped(&format!("{label}: {}", shortened(&part)), "    "));
                }
            }
        }
    }

    /// Changes some rows and refreshes everything that is active; gives (name, action) of each, in order.
    fn live_on(&mut self) -> Vec<(&'static str, String)> {
        self.round += 1;
        change(&mut self.client, Change::Mixed, ONE_IN * 3, self.round);
        let mut done = Vec::new();
        for defined in &STREAM_TABLES {
            if self.status(defined.name).0 == "active" {
                match try_timed_refresh(&mut self.client, defined.name) {
                    Ok((action, _)) => {
                        self.check_equal(defined.name);
                        done.push((defined.name, action));
                    }
                    Err(error) => self.fault(format!("refresh of {}: {error}", defined.name)),
                }
            }
        }
        done
    }

    fn expect_all_right(&mut self) {
        let before = self.faults.len();
        let done = self.live_on();
        if done.len() < STREAM_TABLES.len() {
            let idle: Vec<_> = STREAM_TABLES
                .iter()
                .map(|defined| defined.name)
                .filter(|name| done.iter().all(|(active, _)| active != name))
                .collect();
            self.fault(format!("not refreshed: {}", idle.join(", ")));
        }
        let mut actions: Vec<String> = Vec::new();
        for word in ["differential", "no_change", "full", "reinitialize"] {
            let n = done.iter().filter(|(_, action)| action == word).count();
            if n > 0 {
                actions.push(format!("{n} {word}"));
            }
        }
        if self.faults.len() == before {
            println!(
                "  pgtrickle: all six active and refreshed ({}), each equal to its query.",
                actions.join(", ")
            );
        }
    }

    /// (status, reason, detail, hint)
    fn status(&mut self, name: &str) -> (String, String, String, String) {
        let row = self
            .client
            .query_one(
                "SELECT status, coalesce(reason, ''), coalesce(detail, ''), coalesce(hint, '') \
                 FROM pgtrickle.stream_tables WHERE stream_table = $1::text::regclass",
                &[&name],
            )
            .unwrap_or_else(|e| panic!("status of {name}: {}", describe(&e)));
        (row.get(0), row.get(1), row.get(2), row.get(3))
    }

    fn suspension(&mut self, name: &'static str) {
        let done = self.live_on();
        let (status, reason, detail, hint) = self.status(name);
        if status != "suspended" {
            self.fault(format!("{name} is {status}, and reads a column that is gone"));
            return;
        }
        println!(
            "  pgtrickle: {name} is suspended; the other {} are active, refreshed and equal to their queries.",
            done.len()
        );
        println!(
            "\n  SELECT status, reason, detail, hint FROM pgtrickle.stream_tables WHERE stream_table = '{name}'::regclass;"
        );
        for (label, part) in [("status", &status), ("reason", &reason), ("detail", &detail)] {
            print!("{}", wrapped(&format!("{label}: {part}"), "    "));
        }
        println!("    hint:\n      {}", hint.trim().replace('\n', "\n      "));
        if done.len() != STREAM_TABLES.len() - 1 {
            self.fault(format!("{} others are active, not {}", done.len(), STREAM_TABLES.len() - 1));
        }
        if let Err(error) =
            self.client.batch_execute(&format!("SELECT pgtrickle.refresh_stream_table('{name}')"))
        {
            println!("\n  A refresh now is refused, with the same hint:");
            print!("{}", wrapped(&shortened(&describe(&error)), "    "));
        } else {
            self.fault("a suspended stream table was refreshed".to_string());
        }

        println!("\nThe hint is followed, word for word.");
        let Some(call) = call_in(&hint) else {
            self.fault("the hint has no call of pgtrickle.alter_stream_table_query to follow".to_string());
            return;
        };
        let begin = Instant::now();
        if let Err(error) = self.client.batch_execute(&format!("SELECT {call}")) {
            self.fault(format!("what the hint says does not work: {}", describe(&error)));
            return;
        }
        println!("  Done in {}.", ms(begin.elapsed()));
        self.expect_all_right();
    }

    fn end(mut self) -> ExitCode {
        heading("The end");
        let rows = self
            .client
            .query("SELECT \"check\", status, detail FROM pgtrickle.health_check() WHERE status <> 'OK'", &[])
            .unwrap_or_else(|e| panic!("health_check: {}", describe(&e)));
        if rows.is_empty() {
            println!("pgtrickle.health_check() finds nothing wrong.");
        }
        for row in rows {
            let line =
                format!("{}: {} {}", row.get::<_, &str>(0), row.get::<_, &str>(1), row.get::<_, &str>(2));
            print!("{}", wrapped(&line, "  "));
        }
        let home = self.home.display();
        println!("The whole story took {}. The server goes on running:\n", seconds(self.begin.elapsed()));
        println!("  look around    psql -h {home} -U postgres {DATABASE}");
        println!("  for example    SELECT * FROM pgtrickle.stream_tables;");
        println!(
            "                 SELECT * FROM pgtrickle.refresh_history ORDER BY started_at DESC LIMIT 10;"
        );
        println!("  stop it        make demo-stop");
        if self.faults.is_empty() {
            return ExitCode::SUCCESS;
        }
        println!("\n{} things were not as they should be; they are marked above.", self.faults.len());
        ExitCode::FAILURE
    }
}

/// The beginning of what is shown in full elsewhere.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 160;
    let begin: String = text.chars().take(SHOWN).collect();
    if begin.len() < text.len() { format!("{begin} ...") } else { begin }
}

/// The call that a hint asks for: from its name to the bracket that closes it, literals passed over.
fn call_in(hint: &str) -> Option<String> {
    const NAME: &str = "pgtrickle.alter_stream_table_query(";
    let begin = hint.find(NAME)?;
    let text = &hint[begin..];
    let mut depth = 0_usize;
    let mut at = NAME.len() - 1;
    while at < text.len() {
        let rest = &text[at..];
        match rest.as_bytes()[0] {
            b'\'' => at += 1 + rest[1..].find('\'')?,
            b'$' => {
                let tag = &rest[..=1 + rest[1..].find('$')?];
                at += tag.len() + rest[tag.len()..].find(tag)? + tag.len() - 1;
            }
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(text[..at].to_string());
        }
    }
    None
}
