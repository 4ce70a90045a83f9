//! One look at what is due in this database, and refreshing it: each stream table in a transaction of its own.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::catalog::history::{self, Event};
use crate::catalog::{dependencies, failures, stream_tables};
use crate::evolve;
use crate::lifecycle;
use crate::model::{Oid, Status};
use crate::pg::subxact::Caught;
use crate::pg::{cache, guc, report, secctx, worker};
use crate::refresh;
use crate::scheduler::backoff::Backoff;
use crate::scheduler::dag;
use crate::scheduler::schedule::{Entry, Micros, due};
use crate::snapshot::retention;

/// First wait after a failure and the longest.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), cap: Duration::from_secs(600) };

/// Time between two prunings.
const PRUNE_EVERY: Duration = Duration::from_secs(3600);
/// Rows that one transaction removes at most. Where there were more, the next round goes on.
const PRUNE_BATCH: i64 = 10_000;

/// What the worker remembers between ticks; everything else is in the catalog.
pub struct Scheduler {
    claimed: bool,
    /// When all was pruned last, and by which policy: a new one counts at once.
    pruned: Option<(Instant, guc::Retention)>,
    tables: BTreeMap<Oid, Memory>,
}

#[derive(Default, Clone, Copy)]
struct Memory {
    last_attempt: Option<Micros>,
    failures: u32,
}

fn now() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Micros::try_from(since.as_micros()).unwrap_or(Micros::MAX)
}

/// The rounds of a fresh database worker.
pub fn start() -> worker::Tick {
    let mut scheduler = Scheduler::new();
    Box::new(move || scheduler.tick())
}

impl Scheduler {
    /// Knows nothing yet.
    pub fn new() -> Self {
        Scheduler { claimed: false, pruned: None, tables: BTreeMap::new() }
    }

    /// One round. False when there is nothing to do here for good: no extension, another worker, another version.
    pub fn tick(&mut self) -> bool {
        match worker::transaction("checking the extension", worker::versions) {
            Ok(Some((installed, ours))) if installed == ours => {}
            Ok(Some((installed, ours))) => {
                report::log(&format!(
                    "pgtrickle: extension version {installed} is not the library's {ours}; ALTER EXTENSION pgtrickle UPDATE"
                ));
                return false;
            }
            Ok(None) => return false,
            Err(message) => {
                report::log(&format!("pgtrickle worker: {message}"));
                return true;
            }
        }
        if worker::in_recovery() {
            return true;
        }
        if !self.claimed {
            match worker::transaction("claiming the database", worker::claim_database) {
                Ok(true) => self.claimed = true,
                Ok(false) => return false,
                Err(message) => report::log(&format!("pgtrickle worker: {message}")),
            }
        }
        if guc::enabled() {
            self.refresh_due();
        }
        self.prune();
        true
    }

    /// Removes what is kept for a while only.
    fn prune(&mut self) {
        let policy = guc::retention();
        if self.pruned.is_some_and(|(at, by)| by == policy && at.elapsed() < PRUNE_EVERY) {
            return;
        }
        let done = worker::transaction("pruning history and schema snapshots", || {
            secctx::as_extension(|| {
                failures::prune()?;
                let history = history::prune(&policy, PRUNE_BATCH)?;
                Ok(history.max(retention::enforce(&policy, PRUNE_BATCH)?))
            })
        });
        match done {
            Ok(most) if most >= PRUNE_BATCH => return,
            Ok(_) => {}
            Err(message) => report::log(&format!("pgtrickle worker: {message}")),
        }
        self.pruned = Some((Instant::now(), policy));
    }

    fn refresh_due(&mut self) {
        let found = worker::transaction("looking for due stream tables", || {
            secctx::as_extension(|| {
                let scheduled = stream_tables::scheduled()?;
                Ok((scheduled, dependencies::edges()?))
            })
        });
        let (scheduled, edges) = match found {
            Ok(found) => found,
            Err(message) => {
                report::log(&format!("pgtrickle worker: {message}"));
                return;
            }
        };
        self.tables.retain(|oid, _| scheduled.iter().any(|(s, _, _)| s == oid));
        let now = now();
        let entries: Vec<Entry> = scheduled.into_iter().map(|row| self.entry(row, now)).collect();
        let due = due(now, &entries, &BACKOFF);
        // A circle can't be created; if one is there all the same, oid order is as good as any.
        let order = dag::order(&due, &edges).unwrap_or(due);
        for relid in order {
            self.refresh_one(relid);
        }
    }

    /// What is known of one stream table: attempts of this worker, and refreshes by anybody.
    fn entry(&self, (table, every, since_refresh): (Oid, f64, Option<f64>), now: Micros) -> Entry {
        let memory = self.tables.get(&table).copied().unwrap_or(Memory { last_attempt: None, failures: 0 });
        let refreshed = since_refresh.map(|s| now.saturating_sub((s * 1e6) as Micros));
        Entry {
            table,
            schedule: Some(Duration::from_secs_f64(every.max(0.001))),
            last_attempt: memory.last_attempt.max(refreshed),
            failures: memory.failures,
        }
    }

    fn refresh_one(&mut self, relid: Oid) {
        let memory = self.tables.entry(relid).or_default();
        memory.last_attempt = Some(now());
        let outcome = worker::transaction("refreshing a stream table", || {
            let active = secctx::as_extension(|| {
                Ok(stream_tables::find(relid)?.is_some_and(|t| t.status != Status::Suspended))
            })?;
            if active { refresh::refresh_one(relid, false).map(|_| ()) } else { Ok(()) }
        });
        let Err(caught) = outcome else {
            memory.failures = 0;
            return;
        };
        memory.failures += 1;
        let failures = memory.failures;
        report::log_failure(
            &format!("pgtrickle: refreshing relation {relid} failed ({failures} in a row): {caught}"),
            &caught,
        );
        let noted = worker::transaction("noting a failed refresh", || {
            secctx::as_extension(|| cache::maintenance(|| note_failure(relid, failures, &caught)))
        });
        if let Err(message) = noted {
            report::log(&format!("pgtrickle worker: {message}"));
        }
    }
}

fn note_failure(relid: Oid, failures: u32, caught: &Caught) -> crate::error::Result<()> {
    let Some(table) = stream_tables::find(relid)? else { return Ok(()) };
    if table.status == Status::Suspended {
        return Ok(());
    }
    let place = caught.original.as_ref().and_then(|o| o.place());
    let place = place.map_or_else(String::new, |place| format!("; {place}"));
    let told = format!("{} (SQLSTATE {}{place})", caught.message, caught.sqlstate());
    let hint = lifecycle::hint_of(caught)?.or_else(|| caught.hint.clone()).unwrap_or_else(String::new);
    history::event(
        &table,
        &Event { status: "failed", reason: "REFRESH_FAILED", detail: &told, hint: &hint },
    )?;
    if guc::max_consecutive_failures().is_some_and(|limit| failures >= limit) {
        let detail =
            format!("{failures} refreshes in a row failed, the last with SQLSTATE {}.", caught.sqlstate());
        evolve::suspend_failing(&table, &detail)?;
    }
    Ok(())
}
