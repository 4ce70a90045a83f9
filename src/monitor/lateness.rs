//! What `health_check()` says of workers, and of what is late, how late, and why.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::Result;
use crate::model::Oid;
use crate::pg::secctx::{extension_owner, has_rights_of};
use crate::pg::shmem::{self, Fact, Standing};
use crate::pg::spi::{self, Arg, Mode};
use crate::pg::{clock, guc};
use crate::scheduler::schedule::late_after;
use crate::scheduler::turns::Presence;

/// (check, status, detail).
type Row = (String, String, String);

/// Rows about workers and lateness; none without preload, which has a row of its own.
pub fn rows(user: Oid) -> Result<Vec<Row>> {
    let database = crate::pg::database();
    let Some(standing) = shmem::standing(database) else { return Ok(Vec::new()) };
    if crate::pg::in_recovery() {
        return Ok(vec![row(
            "scheduler",
            "OK",
            "a standby refreshes nothing: what is there came from the primary".into(),
        )]);
    }
    let mut rows = vec![scheduler(&standing)];
    let mut troubles: BTreeMap<Oid, String> = shmem::troubles(database).into_iter().collect();
    if let Some(text) = troubles.remove(&0) {
        // It can be of anything that is in our tables.
        let told = has_rights_of(user, extension_owner()?);
        let text = if told { text } else { "the server log says why".into() };
        rows.push(row("worker", "WARN", format!("the worker of this database fails: {text}")));
    }
    let facts: BTreeMap<Oid, Fact> = shmem::facts(database).into_iter().map(|f| (f.relid, f)).collect();
    for table in scheduled(user)? {
        rows.extend(about(&table, facts.get(&table.relid), troubles.get(&table.relid), &standing)?);
    }
    Ok(rows)
}

fn row(check: &str, status: &str, detail: String) -> Row {
    (check.to_string(), status.to_string(), detail)
}

/// Is there a worker, and if not, why?
fn scheduler(standing: &Standing) -> Row {
    let now = clock::now();
    let not =
        |why: String| row("scheduler", "WARN", format!("the worker of this database is not running: {why}"));
    if !guc::enabled() {
        return row(
            "scheduler",
            "WARN",
            "pg_trickle.enabled is off: nothing is refreshed by schedule".into(),
        );
    }
    match standing.workers.len() {
        0 => {}
        1 => return row("scheduler", "OK", "the worker of this database is running".into()),
        n => return row("scheduler", "OK", format!("{n} workers of this database are running")),
    }
    let Some(database) = standing.database.filter(|_| standing.launcher) else {
        return not(
            "the launcher is not running, or has not got here yet; it needs a place in max_worker_processes"
                .into(),
        );
    };
    if database.presence == Presence::Installed && database.due > now {
        return row("scheduler", "OK", "no worker is needed until something is due".into());
    }
    if standing.refused {
        return not("the server has no place for it; max_worker_processes is used up".into());
    }
    if standing.waiting > 0 {
        return not(format!(
            "it waits for one of the {} places of pg_trickle.max_worker_processes, {} of which are taken; databases take turns",
            guc::max_worker_processes(),
            standing.taken
        ));
    }
    if database.held_until > now {
        return not(format!("it starts in {} s", (database.held_until - now) / 1_000_000 + 1));
    }
    not("it is being started".into())
}

/// A stream table that is refreshed by schedule.
struct Scheduled {
    relid: Oid,
    name: String,
    schedule: Duration,
    /// Since the last refresh that the catalog knows of.
    age: Duration,
    /// Who asks has its owner's rights.
    own: bool,
}

fn scheduled(user: Oid) -> Result<Vec<Scheduled>> {
    let duration = |seconds: f64| Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
    spi::run(include_str!("../../sql/queries/scheduled.sql"), &[Arg::Oid(user)], Mode::Fresh)?
        .into_iter()
        .map(|mut row| {
            Ok(Scheduled {
                relid: row.parse(0)?,
                name: row.text(1)?,
                schedule: duration(row.parse(2)?),
                age: duration(row.parse(3)?),
                own: row.bool(4)?,
            })
        })
        .collect()
}

fn since(moment: i64) -> Duration {
    Duration::from_micros(u64::try_from(clock::now() - moment).unwrap_or(0))
}

/// What there is to say of one stream table: it is late, it waits, or its failure is written nowhere else.
fn about(
    table: &Scheduled,
    fact: Option<&Fact>,
    trouble: Option<&String>,
    standing: &Standing,
) -> Result<Option<Row>> {
    let last = fact.map_or(Duration::MAX, |f| since(f.success.max(f.known_since)));
    let age = table.age.min(last);
    let late = age > late_after(table.schedule);
    let working = standing.workers.iter().find(|w| w.relid == table.relid);
    let why = if let Some(fact) = fact.filter(|f| f.waits > 0) {
        format!("it waits since {} s for {}", since(fact.waiting_since).as_secs(), in_the_way(table.relid)?)
    } else if let Some(text) = trouble {
        // As in the history: an error can quote what the query read.
        if table.own { format!("its last refresh failed: {text}") } else { "its last refresh failed".into() }
    } else if fact.is_some_and(|f| f.failures > 0) {
        "its last refreshes failed, see the refresh history".to_string()
    } else if let Some(worker) = working {
        format!("a refresh of it runs since {} s", since(worker.since).as_secs())
    } else if standing.workers.is_empty() {
        "no worker has been at it, see the row of the scheduler".to_string()
    } else {
        "the workers are at others".to_string()
    };
    let check = format!("stream table {}", table.name);
    let waits = fact.is_some_and(|f| f.waits > 0);
    Ok(if late {
        let text = format!(
            "{} is late: not up to date for {} s, with a schedule of {} s; {why}",
            table.name,
            age.as_secs(),
            table.schedule.as_secs_f64()
        );
        Some((check, "WARN".into(), text))
    } else if trouble.is_some() {
        Some((check, "WARN".into(), format!("{}: {why}", table.name)))
    } else {
        waits.then(|| (check, "OK".into(), format!("{}: {why}", table.name)))
    })
}

/// Who holds a lock that the refresh needs.
fn in_the_way(relid: Oid) -> Result<String> {
    let rows = spi::run(include_str!("../../sql/queries/in_the_way.sql"), &[Arg::Oid(relid)], Mode::Fresh)?;
    let mut holders = Vec::new();
    for mut row in rows {
        let who = row.text(1)?;
        holders.push(match row.opt(2) {
            Some(relation) => format!("{who} holds one on {relation}"),
            None => format!("{who} refreshes or changes it"),
        });
    }
    Ok(if holders.is_empty() { "a lock".to_string() } else { format!("a lock: {}", holders.join("; ")) })
}
