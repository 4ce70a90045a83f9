//! Messages that are no errors: one that can't be sent, or during which a cancel comes, is nobody's error but its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::*;
use crate::support::{db_error, describe, fresh_db};

/// An enum whose new label suspends two stream tables, with a WARNING for each.
const MOODS: &str = "
    CREATE TYPE mood AS ENUM ('calm', 'busy');
    CREATE TABLE t (id int, k mood);
    INSERT INTO t VALUES (1, 'calm'), (2, 'busy')";

/// PostgreSQL looks for a waiting cancel at the end of each report. Raised there, it has to be caught like any other, or a
/// subtransaction of ours stays open in the session.
#[test]
fn a_cancel_while_a_warning_is_reported_leaves_the_session_usable() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, MOODS);
    create(&mut c, "a", "SELECT k, count(*) FROM t GROUP BY k");
    create(&mut c, "b", "SELECT DISTINCT k FROM t");
    let pid: i32 = one(&mut c, "SELECT pg_backend_pid()");
    let stop = AtomicBool::new(false);
    let mut cancelled = 0;
    thread::scope(|s| {
        let _at_end = StopAtEnd(&stop);
        let (db, stop) = (&db, &stop);
        s.spawn(move || {
            let mut other = db.connect();
            for n in (0..4000).step_by(37).cycle() {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                thread::sleep(Duration::from_micros(n));
                other.execute("SELECT pg_cancel_backend($1)", &[&pid]).expect("pg_cancel_backend");
            }
        });
        for n in 0..600 {
            for sql in [
                format!("ALTER TYPE mood ADD VALUE 'mood {n}'"),
                "SELECT pgtrickle.resume_stream_table(s) FROM unnest('{a,b}'::regclass[]) s".into(),
            ] {
                if let Err(e) = c.batch_execute(&sql) {
                    assert_eq!(db_error(&e).sqlstate, "57014", "{sql}: {}", describe(&e));
                    cancelled += 1;
                }
                while let Err(e) = c.batch_execute("ROLLBACK") {
                    assert_eq!(db_error(&e).sqlstate, "57014", "after {sql}: {}", describe(&e));
                }
            }
        }
    });
    assert!(cancelled > 20, "only {cancelled} statements were cancelled");
}

#[test]
fn a_name_that_the_client_cannot_be_sent_is_escaped_and_no_error() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, MOODS);
    create(&mut c, "\"größe → 𝄞\"", "SELECT k, count(*) FROM t GROUP BY k");
    create(&mut c, "\"größe\"", "SELECT DISTINCT k FROM t");
    let output = db
        .cluster
        .command("psql")
        .env("PGCLIENTENCODING", "LATIN1")
        .args(["-d", &db.name, "-v", "ON_ERROR_STOP=1", "-c", "ALTER TYPE mood ADD VALUE 'sad'"])
        .output()
        .expect("psql");
    let said: String = output.stderr.iter().map(|byte| char::from(*byte)).collect();
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains(r#"stream table public."gr\u00F6\u00DFe \u2192 \U0001D11E" is suspended"#),
        "{said}"
    );
    assert!(said.contains(r#"stream table public."größe" is suspended"#), "{said}");
    for name in ["größe → 𝄞", "größe"] {
        assert_suspended(&mut c, &format!("\"{name}\""), "UNCLASSIFIED");
    }
}
