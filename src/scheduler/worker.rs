//! One look at what is due in this database, and refreshing it: each stream table in a transaction of its own. Several
//! workers of one database do the same; what one is at, the others pass over.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::catalog::history::{self, Event};
use crate::catalog::{dependencies, failures, restored, stream_tables};
use crate::evolve;
use crate::lifecycle;
use crate::model::{Oid, Status};
use crate::pg::clock;
use crate::pg::shmem::{self, Fact};
use crate::pg::subxact::Caught;
use crate::pg::worker::{self, Me, Round};
use crate::pg::{cache, guc, report, secctx, settings};
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
/// Schema snapshots that one transaction folds at most.
const FOLD_BATCH: i64 = 1_000;
/// A worker that has had nothing to do for so long leaves, if it is not the only one.
const IDLE: Duration = Duration::from_secs(10);
/// A database is looked at again after so long at the latest, in microseconds.
const LOOK_AGAIN: Micros = 60_000_000;

/// What a worker remembers between rounds; everything else is in the catalog and in shared memory.
pub struct Scheduler {
    me: Me,
    /// When all was pruned last, and by which policy: a new one counts at once.
    pruned: Option<(Instant, guc::Retention)>,
    /// What shared memory had no room for.
    own: BTreeMap<Oid, Fact>,
    busy_until: Instant,
    /// The last thing that went wrong with a round as a whole: told once in the log.
    trouble: Option<String>,
}

/// One look: when each stream table is due, what reads what, and what is known of them.
struct Look {
    entries: BTreeMap<Oid, Entry>,
    edges: Vec<(Oid, Oid)>,
    facts: BTreeMap<Oid, Fact>,
}

/// The rounds of a fresh database worker.
pub fn start(me: Me) -> worker::Tick {
    let mut scheduler = Scheduler::new(me);
    Box::new(move || scheduler.tick())
}

impl Scheduler {
    /// Knows nothing yet.
    pub fn new(me: Me) -> Self {
        Scheduler { me, pruned: None, own: BTreeMap::new(), busy_until: Instant::now(), trouble: None }
    }

    /// One round.
    pub fn tick(&mut self) -> Round {
        settings::set_lock_timeout(guc::lock_timeout());
        match worker::transaction("checking the extension", worker::versions) {
            Ok(Some((installed, ours))) if installed == ours => {}
            Ok(Some((installed, ours))) => {
                self.went_wrong(&format!(
                    "extension version {installed} is not the library's {ours}; ALTER EXTENSION pgtrickle UPDATE"
                ));
                return Round::Later;
            }
            Ok(None) => return Round::Gone,
            Err(caught) => {
                self.went_wrong(&caught.message);
                return Round::Again { idle: false };
            }
        }
        evolve::tasks::run_due();
        let looked = if guc::enabled() { self.refresh_due() } else { Ok(()) };
        match looked.and_then(|()| refresh::upkeep::bound_buffers()).and_then(|()| self.prune()) {
            Ok(()) => self.went_well(),
            Err(caught) => self.went_wrong(&caught.message),
        }
        Round::Again { idle: self.busy_until.elapsed() > IDLE }
    }

    /// A round failed as a whole: in the log once, and in health for as long as it lasts.
    fn went_wrong(&mut self, message: &str) {
        shmem::set_trouble(self.me.database, 0, message);
        if self.trouble.as_deref() != Some(message) {
            report::log(&format!("pgtrickle worker: {message}"));
            self.trouble = Some(message.to_string());
        }
    }

    fn went_well(&mut self) {
        if self.trouble.take().is_some() {
            shmem::clear_trouble(self.me.database, 0);
        }
    }

    /// Removes what is kept for a while only.
    fn prune(&mut self) -> Result<(), Caught> {
        let policy = guc::retention();
        if self.pruned.is_some_and(|(at, by)| by == policy && at.elapsed() < PRUNE_EVERY) {
            return Ok(());
        }
        let most = worker::transaction("pruning history and schema snapshots", || {
            secctx::as_extension(|| {
                failures::prune()?;
                let history = history::prune(&policy, PRUNE_BATCH)?;
                Ok(history.max(retention::enforce(&policy, PRUNE_BATCH)?))
            })
        })?;
        let folded = worker::transaction("counting equal schema snapshots together", || {
            secctx::as_extension(|| retention::fold(FOLD_BATCH))
        })?;
        worker::transaction("taking restored rows in", || secctx::as_extension(restored::adopt))?;
        if most < PRUNE_BATCH && folded < FOLD_BATCH {
            self.pruned = Some((Instant::now(), policy));
        }
        Ok(())
    }

    fn refresh_due(&mut self) -> Result<(), Caught> {
        let mut look = self.look()?;
        let now = clock::now();
        let entries: Vec<Entry> = look.entries.values().cloned().collect();
        let due = due(now, &entries, &BACKOFF);
        // A circle can't be created; if one is there all the same, oid order is as good as any.
        let order = dag::order(&due, &look.edges).unwrap_or(due);
        // What waited for a lock the last time may do so again: it comes when all others have been seen to.
        let waits = |relid: &Oid| look.facts.get(relid).is_some_and(|f| f.waits > 0);
        let (later, first): (Vec<Oid>, Vec<Oid>) = order.into_iter().partition(waits);
        for relid in first.into_iter().chain(later) {
            if shmem::is_leaving(self.me.place) {
                break;
            }
            self.refresh_one(relid, &mut look);
        }
        self.say_what_is_due(&look);
        Ok(())
    }

    fn look(&mut self) -> Result<Look, Caught> {
        let (scheduled, edges) = worker::transaction("looking for due stream tables", || {
            secctx::as_extension(|| {
                let scheduled = stream_tables::scheduled()?;
                Ok((scheduled, dependencies::edges()?))
            })
        })?;
        let known: BTreeSet<Oid> = scheduled.iter().map(|(relid, _, _)| *relid).collect();
        shmem::retain_facts(self.me.database, |relid| known.contains(&relid));
        self.own.retain(|relid, _| known.contains(relid));
        let mut facts: BTreeMap<Oid, Fact> = self.own.clone();
        facts.extend(shmem::facts(self.me.database).into_iter().map(|f| (f.relid, f)));
        let now = clock::now();
        let mut entries = BTreeMap::new();
        for (relid, every, since_refresh) in scheduled {
            let fact = *facts.entry(relid).or_insert_with(|| {
                let fact = Fact::new(relid);
                self.keep(fact);
                fact
            });
            let refreshed = since_refresh.map(|s| now.saturating_sub((s * 1e6) as Micros));
            entries.insert(relid, entry(&fact, every, refreshed));
        }
        Ok(Look { entries, edges, facts })
    }

    fn keep(&mut self, fact: Fact) {
        if shmem::set_fact(self.me.database, fact) {
            self.own.remove(&fact.relid);
        } else {
            self.own.insert(fact.relid, fact);
        }
    }

    /// When something is due next, apart from what is being done: another worker may be needed for it.
    fn say_what_is_due(&self, look: &Look) {
        let now = clock::now();
        let next = look.entries.values().filter_map(|e| e.due_at(now, &BACKOFF)).min();
        shmem::set_due(self.me.database, next.unwrap_or(Micros::MAX).min(now + LOOK_AGAIN));
    }

    fn refresh_one(&mut self, relid: Oid, look: &mut Look) {
        let elsewhere = shmem::busy_elsewhere(self.me.place);
        let below = if elsewhere.is_empty() { BTreeSet::new() } else { dag::below(relid, &look.edges) };
        let mut fact = look.facts.get(&relid).copied().unwrap_or(Fact::new(relid));
        // What another worker is at, and what reads it, is for that worker's round.
        if elsewhere.iter().any(|busy| below.contains(busy))
            || !shmem::claim(self.me.place, relid, fact.attempt)
        {
            return;
        }
        fact.attempt = clock::now();
        self.keep(fact);
        if let Some(entry) = look.entries.get_mut(&relid) {
            entry.last_attempt = Some(fact.attempt);
        }
        self.say_what_is_due(look);
        // Who waited in vain before does not hold up others for so long again.
        let patience = guc::lock_timeout();
        settings::set_lock_timeout(if fact.waits > 0 { patience / 10 } else { patience });
        let outcome = worker::transaction("refreshing a stream table", || {
            let active = secctx::as_extension(|| {
                Ok(stream_tables::find(relid)?.is_some_and(|t| t.status != Status::Suspended))
            })?;
            if active { refresh::refresh_scheduled(relid).map(|_| ()) } else { Ok(()) }
        });
        settings::set_lock_timeout(patience);
        self.busy_until = Instant::now();
        match outcome {
            Ok(()) => {
                fact = Fact { success: fact.attempt, failures: 0, waits: 0, waiting_since: 0, ..fact };
                shmem::clear_trouble(self.me.database, relid);
            }
            Err(caught) if caught.is_lock() => {
                let waiting_since = if fact.waits > 0 { fact.waiting_since } else { fact.attempt };
                fact = Fact { waits: fact.waits.saturating_add(1), waiting_since, ..fact };
            }
            Err(caught) => {
                fact = Fact { failures: fact.failures.saturating_add(1), waits: 0, waiting_since: 0, ..fact };
                self.failed(relid, fact.failures, &caught);
            }
        }
        self.keep(fact);
        look.facts.insert(relid, fact);
        if let Some(entry) = look.entries.get_mut(&relid) {
            (entry.failures, entry.waits) = (fact.failures, fact.waits);
        }
        shmem::release(self.me.place);
    }

    /// Notes a failed refresh in the history, and where that can't be written in shared memory.
    fn failed(&self, relid: Oid, failures: u32, failure: &Caught) {
        report::log_failure(
            &format!("pgtrickle: refreshing relation {relid} failed ({failures} in a row): {failure}"),
            failure,
        );
        let noted = worker::transaction("noting a failed refresh", || {
            secctx::as_extension(|| cache::maintenance(|| note_failure(relid, failures, failure)))
        });
        match noted {
            Ok(()) => shmem::clear_trouble(self.me.database, relid),
            Err(caught) => {
                let why =
                    format!("{} (and the history can't be written: {})", failure.message, caught.message);
                shmem::set_trouble(self.me.database, relid, &why);
                report::log(&format!("pgtrickle worker: {}", caught.message));
            }
        }
    }
}

/// What is known of one stream table: attempts of workers, and refreshes by anybody.
fn entry(fact: &Fact, every: f64, refreshed: Option<Micros>) -> Entry {
    Entry {
        table: fact.relid,
        schedule: Some(Duration::from_secs_f64(every.max(0.001))),
        last_attempt: Some(fact.attempt).filter(|at| *at > 0).max(refreshed),
        failures: fact.failures,
        waits: fact.waits,
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
