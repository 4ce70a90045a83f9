//! What would grow without end is kept small: buffers that a slow reader keeps, and, where no worker does it, history and
//! notes of failures. Nothing here waits for anybody.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::catalog::{captures, failures, history, stream_tables};
use crate::cdc;
use crate::error::Result;
use crate::evolve;
use crate::model::Oid;
use crate::pg::lock::{Ours, try_lock_ours, without_waiting};
use crate::pg::secctx::as_extension;
use crate::pg::snapshot::{is_fixed, with_transaction_snapshot};
use crate::pg::subxact::{self, Caught};
use crate::pg::{cache, commit, guc, report, side, worker};

/// A buffer that is too large and has not grown since is looked at again after so long: what was deleted of it may not have
/// been vacuumed yet, and new rows take the place of old ones.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Without a worker, a session prunes a stream table's history with its first refresh, and then with every so many.
const PRUNE_EVERY: u32 = 64;
/// Rows that one of these prunings removes at most.
const PRUNE_BATCH: i64 = 1_000;
/// Stream tables whose refreshes a session counts at most.
const MAX_COUNTED: usize = 10_000;

/// What is to be done before this transaction commits.
#[derive(Default)]
struct Wanted {
    /// Sources with a buffer that is too large.
    buffers: BTreeSet<Oid>,
    /// Stream tables with history to be pruned.
    histories: BTreeSet<Oid>,
}

thread_local! {
    static WANTED: RefCell<Wanted> = RefCell::default();
    /// When a buffer that is too large was dealt with, and its size then.
    static DEALT_WITH: RefCell<BTreeMap<Oid, (Instant, i64)>> = RefCell::default();
    /// Refreshes of each stream table.
    static COUNTED: RefCell<BTreeMap<Oid, u32>> = RefCell::default();
}

/// After a refresh that did something: notes what is to be done before the commit, where no worker does it.
pub fn after_refresh(relid: Oid, sources: impl IntoIterator<Item = Oid>) -> Result<()> {
    if crate::pg::preloaded() {
        return Ok(());
    }
    let mut large = BTreeSet::new();
    for source in sources {
        if too_large(source)?.is_some() {
            large.insert(source);
        }
    }
    let prune = COUNTED.with_borrow_mut(|counted| {
        if counted.len() >= MAX_COUNTED {
            counted.clear();
        }
        let count = counted.entry(relid).or_insert(0);
        *count = count.wrapping_add(1);
        *count % PRUNE_EVERY == 1
    });
    if prune || !large.is_empty() {
        WANTED.with_borrow_mut(|wanted| {
            wanted.buffers.extend(large);
            if prune {
                wanted.histories.insert(relid);
            }
        });
        commit::want();
    }
    Ok(())
}

/// Does what the refreshes of this transaction noted. The caller has the rights of the extension's owner.
pub fn before_commit() {
    let wanted = WANTED.take();
    for source in wanted.buffers {
        tell("a change buffer was not bounded", subxact::run(|| bound(source)));
    }
    if wanted.histories.is_empty() {
        return;
    }
    let policy = guc::retention();
    let pruned = subxact::run(|| {
        without_waiting(|| {
            wanted.histories.iter().try_for_each(|relid| history::prune_of(*relid, &policy, PRUNE_BATCH))?;
            failures::prune()
        })
    });
    tell("refresh history was not pruned", pruned);
}

/// What somebody else is at is left to the next one who comes by.
fn tell(what: &str, outcome: std::result::Result<(), Caught>) {
    if let Err(caught) = outcome
        && !evolve::tasks::is_contention(&caught)
    {
        report::degraded(&format!("pgtrickle: {what}"), &caught);
    }
}

/// Bounds all buffers: for a worker, outside of any transaction.
pub fn bound_buffers() -> std::result::Result<(), Caught> {
    if guc::buffer_limit().is_none() {
        return Ok(());
    }
    let large = worker::transaction("looking for large buffers", || {
        as_extension(|| {
            let mut large = Vec::new();
            for source in captures::all()? {
                if too_large(source)?.is_some() {
                    large.push(source);
                }
            }
            Ok(large)
        })
    })?;
    for source in large {
        let outcome = worker::transaction("bounding a change buffer", || as_extension(|| bound(source)));
        match outcome {
            Err(caught) if !evolve::tasks::is_contention(&caught) => return Err(caught),
            _ => {}
        }
    }
    Ok(())
}

/// Size of a buffer that is over the limit, and the limit; none also where it was dealt with as it is.
fn too_large(source: Oid) -> Result<Option<(i64, i64)>> {
    let Some(limit) = guc::buffer_limit() else { return Ok(None) };
    let size = side::size(source)?;
    if size <= limit {
        DEALT_WITH.with_borrow_mut(|all| all.remove(&source));
        return Ok(None);
    }
    let known = DEALT_WITH.with_borrow(|all| all.get(&source).copied());
    let done = known.is_some_and(|(at, then)| size <= then && at.elapsed() < LOOK_AGAIN);
    Ok((!done).then_some((size, limit)))
}

/// Marks those who keep a buffer too large for computing anew, and deletes what nobody has to consume then. A reader that is
/// being refreshed just now has its own lock, and is left alone: so nobody reads on from a frontier that the buffer does not
/// reach back to any more.
fn bound(source: Oid) -> Result<()> {
    let Some((size, limit)) = too_large(source)? else { return Ok(()) };
    // A fixed snapshot may be older than who reads the buffer.
    if is_fixed() {
        return Ok(());
    }
    let done = without_waiting(|| {
        cache::maintenance(|| {
            if !try_lock_ours(Ours::Buffer(source))? {
                return Ok(false);
            }
            let mut done = true;
            for table in with_transaction_snapshot(|| cdc::slow_readers(source, limit))? {
                if !try_lock_ours(Ours::StreamTable(table.relid))? {
                    done = false;
                    continue;
                }
                let Some(now) = stream_tables::find(table.relid)? else { continue };
                if now.frontier != table.frontier || now.epoch != table.epoch {
                    continue;
                }
                let why = format!(
                    "it had left more than {} MB of changes of a source unread (pg_trickle.buffer_limit)",
                    limit >> 20
                );
                evolve::apply::reinitialize(&now, &why)?;
                report::log_server_only(&format!(
                    "pgtrickle: stream table {} is computed anew at its next refresh: {why}",
                    now.display()
                ));
            }
            with_transaction_snapshot(|| cdc::trim_unread(source))?;
            Ok(done)
        })
    })?;
    if done {
        DEALT_WITH.with_borrow_mut(|all| all.insert(source, (Instant::now(), size)));
    }
    Ok(())
}
