//! Short words for what most tests do.

use crate::support::{self, Failure, Refresh, describe, expect_error, refresh};
use postgres::types::FromSqlOwned;
use postgres::{Client, GenericClient};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long a condition may take before a test gives up on it. Never a verdict on speed.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Runs statements that have to work.
pub fn exec(c: &mut impl GenericClient, sql: &str) {
    c.batch_execute(sql).unwrap_or_else(|e| panic!("{sql}\n{}", describe(&e)));
}

/// The one value of a query.
pub fn one<T: FromSqlOwned>(c: &mut impl GenericClient, sql: &str) -> T {
    c.query_one(sql, &[]).unwrap_or_else(|e| panic!("{sql}\n{}", describe(&e))).get(0)
}

/// The first column of a query.
pub fn column<T: FromSqlOwned>(c: &mut impl GenericClient, sql: &str) -> Vec<T> {
    let rows = c.query(sql, &[]).unwrap_or_else(|e| panic!("{sql}\n{}", describe(&e)));
    rows.iter().map(|r| r.get(0)).collect()
}

/// An extension with functions that this server has: not every one comes with contrib.
pub fn another_extension(c: &mut impl GenericClient) -> String {
    one(
        c,
        "SELECT name::text FROM pg_available_extensions WHERE name IN ('pgcrypto', 'vector') ORDER BY name LIMIT 1",
    )
}

/// A string literal.
pub fn lit(text: &str) -> String {
    let e = if text.contains('\\') { " E" } else { "" };
    format!("{e}'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// Creates a stream table that is refreshed by hand only, and checks I1.
pub fn create(c: &mut impl GenericClient, name: &str, query: &str) {
    create_mode(c, name, query, "auto");
}

pub fn create_mode(c: &mut impl GenericClient, name: &str, query: &str, mode: &str) {
    exec(c, &create_call(name, query, mode));
    support::assert_equal(c, name, query);
    support::assert_up_to_date(c, name);
}

pub fn create_call(name: &str, query: &str, mode: &str) -> String {
    format!(
        "SELECT pgtrickle.create_stream_table({}, {}, schedule => NULL, refresh_mode => '{mode}')",
        lit(name),
        lit(query)
    )
}

/// A refresh that has something to do and has to do it differentially. I1 is checked by the harness.
pub fn differential(c: &mut impl GenericClient, name: &str) -> Refresh {
    let done = refresh(c, name);
    assert_eq!(done.action, "differential", "refresh of {name}: {done:?}");
    done
}

/// Equality of the printed form too: display scales of numerics, representatives of groups.
pub fn assert_printed_equal(c: &mut impl GenericClient, name: &str, query: &str) {
    let sql = format!(
        "(SELECT 'missing ' || d FROM (SELECT \"whole row\"::text FROM ({query}) \"whole row\" EXCEPT ALL
           SELECT \"whole row\"::text FROM {name} \"whole row\") AS x(d))
         UNION ALL
         (SELECT 'surplus ' || d FROM (SELECT \"whole row\"::text FROM {name} \"whole row\" EXCEPT ALL
           SELECT \"whole row\"::text FROM ({query}) \"whole row\") AS x(d))"
    );
    let rows: Vec<String> = column(c, &sql);
    assert!(rows.is_empty(), "{name} prints differently from {query}:\n{}", rows.join("\n"));
}

/// What `stream_tables` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub status: String,
    pub reason: String,
    pub detail: String,
    pub hint: String,
}

impl Status {
    /// Reason and detail in one text: the precise word stands in one of them.
    pub fn why(&self) -> String {
        format!("{} {}", self.reason, self.detail)
    }
}

pub fn status(c: &mut impl GenericClient, name: &str) -> Status {
    let row = c
        .query_one(
            "SELECT status, coalesce(reason, ''), coalesce(detail, ''), coalesce(hint, '')
             FROM pgtrickle.stream_tables WHERE stream_table = $1::text::regclass",
            &[&name],
        )
        .unwrap_or_else(|e| panic!("status of {name}: {}", describe(&e)));
    Status { status: row.get(0), reason: row.get(1), detail: row.get(2), hint: row.get(3) }
}

pub fn assert_active(c: &mut impl GenericClient, name: &str) {
    let s = status(c, name);
    assert_eq!(s.status, "active", "{name}: {s:?}");
}

/// Suspended, with `word` in reason or detail, and a hint.
pub fn assert_suspended(c: &mut impl GenericClient, name: &str, word: &str) -> Status {
    let s = status(c, name);
    assert_eq!(s.status, "suspended", "{name}: {s:?}");
    assert!(s.why().contains(word), "{name} should say {word}: {s:?}");
    assert!(!s.hint.is_empty(), "{name} has no hint: {s:?}");
    s
}

/// The promise: right, or visibly suspended with the reason. Says which; "refused" is a refresh that fails with reason and
/// hint each time, where the refresh is what notices.
pub fn right_or_suspended(c: &mut impl GenericClient, name: &str) -> &'static str {
    if status(c, name).status == "active" {
        match support::try_refresh(c, name, "auto") {
            Ok(_) if status(c, name).status == "active" => return "right",
            Ok(_) => {}
            Err(e) => {
                let e = support::db_error(&e);
                assert!(
                    e.detail.starts_with("reason=") && !e.hint.is_empty(),
                    "{name}: unclear error: {e:?}"
                );
                if status(c, name).status == "active" {
                    let again = support::try_refresh(c, name, "auto");
                    assert!(again.is_err(), "{name}: refused once, {e:?}, and then {again:?}");
                    return "refused";
                }
            }
        }
    }
    let s = status(c, name);
    assert_eq!(s.status, "suspended", "{name} is neither right nor suspended: {s:?}");
    assert!(!s.reason.is_empty() && !s.hint.is_empty(), "{name} is suspended without reason or hint: {s:?}");
    "suspended"
}

/// Counts of everything that a failed call could leave behind: catalogs of PostgreSQL, and our own tables.
pub fn census(c: &mut impl GenericClient) -> Vec<(String, i64)> {
    let mut tables: Vec<String> = [
        "pg_class",
        "pg_attribute",
        "pg_trigger",
        "pg_depend",
        "pg_shdepend",
        "pg_proc",
        "pg_type",
        "pg_namespace",
        "pg_constraint",
        "pg_index",
        "pg_rewrite",
        "pg_description",
        "pg_inherits",
        "pg_event_trigger",
    ]
    .iter()
    .map(|t| format!("pg_catalog.{t}"))
    .collect();
    tables.extend(column::<String>(
        c,
        "SELECT format('%I.%I', 'pgtrickle', relname) FROM pg_class
         WHERE relnamespace = 'pgtrickle'::regnamespace AND relkind IN ('r', 'm') ORDER BY 1",
    ));
    tables
        .into_iter()
        .map(|t| {
            // Other databases of the cluster come and go meanwhile.
            let only = if t == "pg_catalog.pg_shdepend" {
                " WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
            } else {
                ""
            };
            let n = one::<i64>(c, &format!("SELECT count(*) FROM {t}{only}"));
            (t, n)
        })
        .collect()
}

/// The part of the census that a dropped stream table has to give back: PostgreSQL's catalogs. Our evidence of what
/// once was (snapshots, history) may stay.
pub fn catalog_census(c: &mut impl GenericClient) -> Vec<(String, i64)> {
    census(c).into_iter().filter(|(t, _)| t.starts_with("pg_catalog.")).collect()
}

/// One clear error: SQLSTATE, DETAIL that starts with `reason=`, a HINT, and nothing left behind.
pub fn assert_refused(c: &mut Client, sql: &str, sqlstates: &[&str]) -> Failure {
    let before = census(c);
    let e = expect_error(c, sql);
    let sql: String = sql.chars().take(300).collect();
    assert!(sqlstates.contains(&e.sqlstate.as_str()), "{sql}\nexpected {sqlstates:?}, got {e:?}");
    assert!(e.detail.starts_with("reason="), "DETAIL should start with reason=: {sql}\n{e:?}");
    assert!(!e.hint.is_empty(), "no HINT: {sql}\n{e:?}");
    assert!(!e.message.contains('\n'), "a message is one line: {e:?}");
    assert!(!e.message.contains("panicked") && !e.detail.contains("panicked"), "{e:?}");
    assert_eq!(census(c), before, "something was left behind by: {sql}");
    e
}

/// Some ordinary source: `t(id, grp, v, note)` with a key and ten rows.
pub const T: &str = "CREATE TABLE t (id int PRIMARY KEY, grp int, v int, note text);
    INSERT INTO t SELECT i, i % 3, i * 10, 'n' || i FROM generate_series(1, 10) i";

/// Tells threads to stop when the scope that began them ends, by a panic too: a scope waits for its threads.
pub struct StopAtEnd<'a>(pub &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A session whose backend is ended when the test panics, since the thread that runs it is waited for.
pub struct Watched<'a> {
    pub watcher: &'a mut Client,
    pub pid: i32,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.watcher.batch_execute(&format!("SELECT pg_terminate_backend({})", self.pid));
        }
    }
}

/// Waits until a backend waits for a lock.
pub fn wait_for_lock_wait(c: &mut Client, pid: i32) {
    support::wait_until("the backend waits for a lock", PATIENCE, || {
        one::<bool>(
            c,
            &format!(
                "SELECT coalesce((SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = {pid}), false)"
            ),
        )
    });
}

/// True once the backend waits for a lock, false once its statement has ended.
pub fn waits_or_ends(c: &mut Client, pid: i32, thread_ended: impl Fn() -> bool) -> bool {
    let mut waits = false;
    support::wait_until("the backend waits or ends", PATIENCE, || {
        waits = one::<bool>(
            c,
            &format!(
                "SELECT coalesce((SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = {pid}), false)"
            ),
        );
        waits || thread_ended()
    });
    waits
}

pub fn pid(c: &mut Client) -> i32 {
    one(c, "SELECT pg_backend_pid()")
}

/// The first call of `function` in a text, up to its closing parenthesis, as it can be executed. Quoted parts, with
/// apostrophes, double quotes or `$tag$`, are passed over.
pub fn extract_call(text: &str, function: &str) -> String {
    let start = text.find(function).unwrap_or_else(|| panic!("no call of {function} in: {text}"));
    let bytes = text.as_bytes();
    let (mut i, mut depth) = (start, 0);
    while i < bytes.len() {
        match bytes[i] {
            quote @ (b'\'' | b'"') => {
                i += 1;
                while i < bytes.len() && bytes[i] != quote {
                    i += 1;
                }
            }
            b'$' => {
                if let Some(n) = text[i + 1..].find('$') {
                    let tag = &text[i..i + n + 2];
                    let body = i + tag.len();
                    i = body
                        + text[body..].find(tag).unwrap_or_else(|| panic!("{tag} never ends in: {text}"));
                    i += tag.len() - 1;
                }
            }
            b'(' => depth += 1,
            b')' => {
                depth -= 1;
                if depth == 0 {
                    return text[start..=i].to_string();
                }
            }
            _ => {}
        }
        i += 1;
    }
    panic!("the call of {function} never ends in: {text}")
}

/// The action where a refresh may not fall back to computing everything. After a TRUNCATE it may: what it means is in
/// one test, `capture::truncate_is_noticed`.
pub fn assert_not_full(done: &Refresh, after: &str) {
    let fine = ["differential", "no_change"].contains(&done.action.as_str());
    assert!(fine || after.contains("TRUNCATE"), "after {after}: {done:?}");
}

/// Edits a table of ours by SQL, which nobody can do but a superuser who tells PostgreSQL's own catalog meanwhile that it is an
/// ordinary table.
pub fn edit_own(c: &mut impl GenericClient, table: &str, sql: &str) {
    let kind = |kind: char, rules: bool| {
        format!(
            "UPDATE pg_class SET relkind = '{kind}', relhasrules = {rules} WHERE oid = 'pgtrickle.{table}'::regclass"
        )
    };
    exec(c, &format!("BEGIN; {}; {sql}; {}; COMMIT", kind('r', false), kind('m', true)));
}
