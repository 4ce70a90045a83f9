//! One refresh from locks to frontier.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::catalog::stream_tables::{self, StreamTable};
use crate::catalog::{dependencies, history};
use crate::dvm::delta::{TooManyChangedInputs, maintenance};
use crate::dvm::{Names, Op};
use crate::error::{Error, Result};
use crate::lifecycle::bind;
use crate::model::{Action, Oid, Outcome, Reason, RefreshMode, Status};
use crate::pg::access::{Access, with_access};
use crate::pg::lock::{LockMode, Ours, lock_ours, lock_relation};
use crate::pg::query::{Analysis, Parsed, analyse};
use crate::pg::secctx::{Restriction, as_extension, as_user};
use crate::pg::settings::{NO_POLICIES, with_settings};
use crate::pg::snapshot::{is_fixed, own_xid, with_transaction_snapshot};
use crate::pg::spi::{self, Mode};
use crate::pg::subxact::{self, Caught};
use crate::pg::{cache, foreign, report, rights};
use crate::refresh::plan::{Facts, Step, Unplanned, choose};
use crate::refresh::rebuild::{counts, rebuild};
use crate::refresh::recent::Recent;
use crate::refresh::{limit, naming, upkeep};
use crate::scheduler::dag;
use crate::snapshot::shape::TableShape;
use crate::{cdc, evolve};

/// Brings `relid` up to date, and first the stream tables that it reads.
pub fn refresh(relid: Oid, full: bool) -> Result<Outcome> {
    let below = as_extension(|| {
        let edges = dependencies::edges()?;
        let wanted = dag::below(relid, &edges);
        let order = dag::order(&wanted.iter().copied().collect::<Vec<_>>(), &edges)
            .map_err(|_| Error::Internal("stream tables read each other in a circle".into()))?;
        Ok(order)
    })?;
    for upstream in below.into_iter().filter(|o| *o != relid) {
        if as_extension(|| Ok(stream_tables::find(upstream)?.is_some_and(|t| t.status != Status::Suspended)))?
        {
            refresh_one(upstream, false)?;
        }
    }
    refresh_one(relid, full)
}

/// Brings one stream table up to date with its sources as they are.
pub fn refresh_one(relid: Oid, full: bool) -> Result<Outcome> {
    run_one(relid, full, false)
}

/// As `refresh_one`, by schedule: applying changes takes no longer than `limit::of` allows.
pub fn refresh_scheduled(relid: Oid) -> Result<Outcome> {
    run_one(relid, false, true)
}

fn run_one(relid: Oid, full: bool, limited: bool) -> Result<Outcome> {
    let started = Instant::now();
    as_extension(|| {
        cache::maintenance_of(relid, || {
            for _ in 0..3 {
                let known = verified(relid);
                let sources = match &known {
                    Some(known) => known.sources.clone(),
                    None => Rc::new(dependencies::source_columns(relid)?),
                };
                take_locks(relid, &sources)?;
                // Taking locks tells of changes that others have committed.
                let known = known.filter(|k| k.generation == cache::generation());
                if known.is_some() || dependencies::source_columns(relid)? == *sources {
                    let table = load(relid)?;
                    let how = How { full, limited, started };
                    let refreshed = foreign::with_context(
                        &format!("refresh of stream table {}", table.quoted()),
                        || refresh_locked(table, how, &sources, known.map(|k| k.shapes)),
                    )?;
                    if let Some(outcome) = refreshed {
                        return Ok(outcome);
                    }
                }
            }
            Err(Error::Internal("the definition changes faster than it can be refreshed".into()))
        })
    })
}

fn take_locks(relid: Oid, sources: &Columns) -> Result<()> {
    for source in sources.keys() {
        lock_relation(*source, LockMode::AccessShare);
    }
    // Before the table: whoever has it may need a stronger lock on the table than those who wait for it would leave.
    lock_ours(Ours::StreamTable(relid), true)?;
    lock_relation(relid, LockMode::RowExclusive);
    cdc::hold_buffers(sources.keys().copied())
}

/// What was asked for.
#[derive(Clone, Copy)]
struct How {
    full: bool,
    /// Applying changes has a time limit.
    limited: bool,
    started: Instant,
}

/// None: what was done first has given it other sources. They are to be locked.
fn refresh_locked(
    mut before: StreamTable,
    how: How,
    sources: &Rc<Columns>,
    known: Option<Rc<BTreeMap<Oid, TableShape>>>,
) -> Result<Option<Outcome>> {
    let relid = before.relid;
    if before.has_tasks {
        let active = before.status != Status::Suspended;
        evolve::tasks::run_for(relid)?;
        before = load(relid)?;
        if active && before.status == Status::Suspended {
            // An error would take the suspension back with it.
            return Ok(Some(Outcome::quiet(Action::Suspended)));
        }
        if before.status != Status::Suspended && dependencies::source_columns(relid)? != **sources {
            return Ok(None);
        }
    }
    if before.status == Status::Suspended {
        return Err(suspended(&before));
    }
    if before.differential {
        // Before what is missing of capture is repaired.
        cdc::require_trigger_privilege(sources.keys().copied(), before.owner)?;
    }
    let (shapes, mut table) = match known {
        Some(shapes) => (shapes, before),
        None => {
            let generation = cache::generation();
            let (shapes, same) = evolve::net::verify(&before, sources)?;
            let shapes = Rc::new(shapes);
            if same {
                let verified = Verified { generation, sources: sources.clone(), shapes: shapes.clone() };
                VERIFIED.with_borrow_mut(|all| all.insert(relid, verified));
                (shapes, before)
            } else {
                let mut judged = load(relid)?;
                if judged.has_tasks {
                    evolve::tasks::run_for(relid)?;
                    judged = load(relid)?;
                    if judged.status != Status::Suspended && dependencies::source_columns(relid)? != **sources
                    {
                        return Ok(None);
                    }
                }
                (shapes, judged)
            }
        }
    };
    if table.status != Status::Suspended {
        table = follow_surroundings(table, sources)?;
    }
    let mut forced = None;
    let mut changes = 0;
    loop {
        if table.status == Status::Suspended {
            return Ok(Some(Outcome::quiet(Action::Suspended)));
        }
        if table.differential && (forced.is_some() || computes_anew(&table, how.full)) {
            // What is trimmed of a buffer while contents are computed would be missing after it: nobody may, from
            // before the snapshot on.
            for source in sources.keys() {
                lock_ours(Ours::Buffer(*source), false)?;
            }
        }
        let attempt = Attempt { how, forced: forced.clone(), sources, shapes: &shapes };
        match with_transaction_snapshot(|| attempt.run(&table))? {
            Ran::Done(outcome) => {
                if !matches!(outcome.action, Action::NoChange | Action::Suspended) {
                    trim(sources)?;
                    upkeep::after_refresh(relid, sources.keys().copied())?;
                }
                return Ok(Some(outcome));
            }
            Ran::Anew(Unplanned::Changed) if changes < MOST_CHANGES => {
                changes += 1;
                if load(relid)?.has_tasks {
                    evolve::tasks::run_for(relid)?;
                }
                table = follow_surroundings(load(relid)?, sources)?;
                forced = Some(Unplanned::Changed);
            }
            Ran::Anew(Unplanned::Changed) => {
                return Err(Error::ConcurrentChange {
                    what: format!("the definition of {}", table.display()),
                });
            }
            Ran::Anew(why) if forced.is_none() => forced = Some(why),
            Ran::Anew(why) => {
                return Err(Error::Internal(format!("computing anew asked for itself: {why:?}")));
            }
        }
    }
}

/// So often a refresh starts again because its definition has changed meanwhile.
const MOST_CHANGES: u32 = 3;

/// Used columns by source.
type Columns = BTreeMap<Oid, BTreeSet<i16>>;

/// What the safety net found in order, at one generation of this backend's view of the catalogs.
#[derive(Clone)]
struct Verified {
    generation: u64,
    sources: Rc<Columns>,
    shapes: Rc<BTreeMap<Oid, TableShape>>,
}

thread_local! {
    static VERIFIED: RefCell<Recent<Verified>> = RefCell::default();
}

fn verified(relid: Oid) -> Option<Verified> {
    let generation = cache::generation();
    VERIFIED.with_borrow_mut(|all| all.get(relid).filter(|v| v.generation == generation).cloned())
}

/// Is it known before the snapshot is taken that contents will be computed anew?
fn computes_anew(table: &StreamTable, full: bool) -> bool {
    full || table.status == Status::Uninitialized || table.reinitialize.is_some() || table.frontier.is_none()
}

/// Owner and plan as they are now: privileges follow a change of owner; a plan that no longer holds is replaced.
fn follow_surroundings(table: StreamTable, sources: &Columns) -> Result<StreamTable> {
    if table.differential && sources.keys().any(|s| rights::row_security_applies(*s, table.owner)) {
        // Policies bind the owner now, as when a role has lost BYPASSRLS: no event told of it.
        forget_plan(table.relid);
    }
    let analysis = plan_of(&table)?;
    if table.differential && analysis.plan.is_err() {
        if table.mode == RefreshMode::Differential {
            let (_, reasons) = bind::decide(RefreshMode::Auto, &analysis)?;
            let detail = format!("it can't be refreshed differentially any more: {}.", reasons.join("; "));
            evolve::suspend(&table, Reason::ObjectChanged, &detail)?;
        } else {
            let Some(table) = stream_tables::claim(&table)? else {
                return follow_surroundings(load(table.relid)?, sources);
            };
            bind::bind(
                table.relid,
                &Parsed::stored(&table.query, &table.tree, &analysis),
                &analysis,
                &table.columns,
                table.mode,
            )?;
        }
        return load(table.relid);
    }
    Ok(table)
}

/// One try at one snapshot.
struct Attempt<'a> {
    how: How,
    /// Why contents must be computed anew, found out by the try before.
    forced: Option<Unplanned>,
    sources: &'a Columns,
    shapes: &'a BTreeMap<Oid, TableShape>,
}

/// How a try ended.
enum Ran {
    Done(Outcome),
    /// Contents have to be computed anew, at another snapshot.
    Anew(Unplanned),
}

impl Attempt<'_> {
    /// Everything in here reads through the one active snapshot.
    fn run(&self, table: &StreamTable) -> Result<Ran> {
        let analysis = plan_of(table)?;
        let op = analysis.plan.as_ref().ok().filter(|_| table.differential);
        let mut facts = facts(table, op, self.how.full, self.sources)?;
        match &self.forced {
            Some(why) if why.distrusts_contents() => facts.reinitialize = Some(why.to_string()),
            Some(why) => facts.full_needed = Some(why.to_string()),
            None if facts.full_needed.is_some() && !computes_anew(table, self.how.full) => {
                return Ok(Ran::Anew(Unplanned::Truncated));
            }
            None => {}
        }
        let step = choose(&facts);
        if step == Step::Nothing {
            return Ok(Ran::Done(Outcome::quiet(Action::NoChange)));
        }
        if is_fixed() && !stream_tables::hold(table)? {
            return Ok(Ran::Anew(Unplanned::Changed));
        }
        let run = Run { table, op, shapes: self.shapes, rows: facts.rows, limited: self.how.limited };
        let consumed = cache::next_epoch();
        let (mut outcome, detail) = match run.step(step)? {
            Stepped::Done(outcome, detail) => (outcome, detail),
            Stepped::Anew(why) => return Ok(Ran::Anew(why)),
        };
        let frontier = spi::run("SELECT pg_catalog.pg_current_snapshot()", &[], Mode::Read)?;
        let Some(mut row) = frontier.first() else {
            return Err(Error::Internal("no current snapshot".into()));
        };
        if !self.settle(table, &row.text(0)?, consumed)? {
            return Ok(Ran::Anew(Unplanned::Changed));
        }
        if op.is_some() && outcome.action != Action::Differential && is_fixed() {
            // TRUNCATE takes rows away that this transaction's snapshot never saw, and their buffered INSERTs would look
            // like later ones to this frontier.
            stream_tables::set_reinitialize(
                table.relid,
                "it was computed in a transaction with a fixed snapshot",
            )?;
        }
        let quiet = outcome.inserted + outcome.updated + outcome.deleted == 0;
        if quiet && op.is_none() && outcome.action == Action::Full && table.status == Status::Active {
            // Computed, compared, and found equal: only the time of it is written.
            outcome.action = Action::NoChange;
        } else {
            let reason = self.forced.as_ref().map(Unplanned::word);
            history::completed(table, self.how.started.elapsed(), outcome, reason, detail.as_deref())?;
        }
        Ok(Ran::Done(outcome))
    }

    /// Writes the frontier, unless the definition by which the contents were computed, or a mark on it, has changed
    /// meanwhile. Where names alone have, they are right all the same.
    fn settle(&self, table: &StreamTable, frontier: &str, consumed: i32) -> Result<bool> {
        let mut read = table.clone();
        for _ in 0..=MOST_CHANGES {
            if stream_tables::set_frontier(&read, frontier, &own_xid(), consumed)? {
                return Ok(true);
            }
            read = load(table.relid)?;
            if read.status == Status::Suspended {
                // Contents stay what they were when it was suspended.
                return Err(if stream_tables::is_own_write(table.relid)? {
                    Error::ProtectedObject {
                        what: "a function or trigger that ran in the refresh suspended the stream table"
                            .into(),
                        hint: "Change what its query reads outside of its refreshes.".into(),
                    }
                } else {
                    suspended(&read)
                });
            }
            if !read.computes_as(table) {
                return Ok(false);
            }
        }
        Ok(false)
    }
}

/// After the frontier is written; a fresh snapshot sees it.
fn trim(sources: &Columns) -> Result<()> {
    with_transaction_snapshot(|| {
        for source in sources.keys() {
            if cdc::buffer_exists(*source)? {
                cdc::trim(*source)?;
            }
        }
        Ok(())
    })
}

fn load(relid: Oid) -> Result<StreamTable> {
    stream_tables::find(relid)?.ok_or_else(|| Error::NotAStreamTable { name: format!("relation {relid}") })
}

/// The error of whoever asks a suspended stream table for something.
pub fn suspended(table: &StreamTable) -> Error {
    Error::Suspended {
        name: table.display(),
        reason: table.reason.clone().unwrap_or_else(|| "UNKNOWN".into()),
        detail: table.detail.as_deref().unwrap_or("").to_string(),
        hint: table.hint.as_deref().unwrap_or("").to_string(),
    }
}

fn facts(table: &StreamTable, op: Option<&Op>, full_wanted: bool, sources: &Columns) -> Result<Facts> {
    let mut facts = Facts {
        status: table.status,
        differential: op.is_some(),
        full_wanted,
        reinitialize: table.reinitialize.clone(),
        full_needed: None,
        changed: BTreeSet::new(),
        rows: 0,
    };
    if table.status == Status::Uninitialized || facts.reinitialize.is_some() || op.is_none() {
        return Ok(facts);
    }
    let Some(frontier) = table.frontier()? else {
        facts.reinitialize = Some("it has no frontier".into());
        return Ok(facts);
    };
    for source in sources.keys() {
        let (rows, marks) = cdc::pending(*source, &frontier)?;
        if rows > 0 {
            facts.changed.insert(*source);
            facts.rows += rows;
        }
        if marks > 0 {
            facts.full_needed = Some("a source was truncated".into());
        }
    }
    Ok(facts)
}

/// How a step ended.
enum Stepped {
    Done(Outcome, Option<String>),
    Anew(Unplanned),
}

/// Up to so many buffered rows, planning takes longer than a plan made for them in particular would save.
const SMALL_DELTA: i64 = 20_000;

struct Run<'a> {
    /// Buffered rows to apply.
    rows: i64,
    limited: bool,
    table: &'a StreamTable,
    op: Option<&'a Op>,
    shapes: &'a BTreeMap<Oid, TableShape>,
}

impl Run<'_> {
    fn step(&self, step: Step) -> Result<Stepped> {
        let mut names = naming::names(self.table, self.shapes)?;
        if let Some(op) = self.op {
            naming::add_states(&mut names, self.table, op)?;
        }
        let (action, why) = match (step, self.op) {
            (Step::Nothing, _) => return Ok(Stepped::Done(Outcome::quiet(Action::NoChange), None)),
            (Step::Differential(changed), Some(op)) => return self.differential(op, &names, &changed),
            (Step::Differential(_), None) => {
                return Err(Error::Internal("a differential step without a plan".into()));
            }
            (Step::Full { why }, _) => (Action::Full, why),
            (Step::Reinitialize { why }, _) => (Action::Reinitialize, why),
        };
        Ok(Stepped::Done(rebuild(self.table, self.op, &names, action)?, Some(why)))
    }

    fn differential(&self, op: &Op, names: &Names, changed: &BTreeSet<Oid>) -> Result<Stepped> {
        if let Some(why) = unreadable(self.table, op) {
            return Ok(Stepped::Anew(Unplanned::Unreadable(why)));
        }
        let sql = match maintenance(op, names, changed) {
            Ok(sql) => sql,
            Err(TooManyChangedInputs(n)) => {
                return Ok(Stepped::Anew(Unplanned::TooManyInputs(n)));
            }
        };
        remember_statement(self.table.relid, &sql);
        let table = self.table;
        let frontier = table.frontier.as_deref().ok_or_else(|| Error::Internal("no frontier".into()))?;
        let epoch = table.epoch.to_string();
        let planned_once = self.rows > SMALL_DELTA;
        let access = Access {
            sources: changed.clone(),
            states: names.states.values().map(|s| s.oid).collect(),
            expected: planned_once.then_some(self.rows as f64),
        };
        // A buffer holds every version of a row, also those that nobody was to compute with: 1/x of a row that had x = 0
        // for a moment. If those can't be computed, the present contents perhaps can; if not, that is the error.
        let limit = if self.limited { Some(limit::of(table.relid)?) } else { None };
        let applied = subxact::run_limited(limit, || {
            with_access(access, || {
                with_settings(NO_POLICIES, || {
                    as_user(table.owner, Restriction::UserCode, || {
                        let args = cdc::frontier_args(frontier, &table.own_xid, &epoch);
                        let rows = if planned_once {
                            spi::run_once(&sql, &args, Mode::InSnapshot)?
                        } else {
                            spi::run(&sql, &args, Mode::InSnapshot)?
                        };
                        counts(rows, Action::Differential)
                    })
                })
            })
        });
        let (outcome, mismatches) = match applied {
            Ok(applied) => applied,
            Err(caught) => return self.not_applied(caught, limit).map(Stepped::Anew),
        };
        if mismatches == 0 {
            return Ok(Stepped::Done(outcome, None));
        }
        report::warning(
            &format!("stream table {} had diverged and is computed anew", table.display()),
            &format!("reason={}.", Unplanned::Diverged(mismatches)),
            "Nothing needs to be done. Please report it if you know of no manual change to it.",
        );
        Ok(Stepped::Anew(Unplanned::Diverged(mismatches)))
    }

    /// Why contents are computed anew after an error in the changes. Errors that computing them would not cure, or that
    /// nobody would see if it did, are raised.
    fn not_applied(&self, caught: Caught, limit: Option<Duration>) -> Result<Unplanned> {
        if let Some(limit) = limit.filter(|_| caught.is_cancel()) {
            return Ok(Unplanned::TimeLimit(limit::ended(limit)));
        }
        if Unplanned::is_evaluation(&caught.sqlstate()) {
            return Ok(Unplanned::Evaluation(caught.sqlstate()));
        }
        if caught.is_stale_image() {
            return Ok(Unplanned::StaleImage);
        }
        if self.limited && caught.is_lock() {
            return Err(locked(caught));
        }
        Err(match caught.original {
            Some(original) => Error::Passed(original),
            None => Error::Query {
                message: caught.message,
                code: caught.code,
                reason: "REFRESH_FAILED",
                detail: caught.detail,
                original: None,
                hint: caught.hint.unwrap_or_default(),
            },
        })
    }
}

/// The error of a lock that could not be had in time.
fn locked(caught: Caught) -> Error {
    Error::Query {
        message: caught.message,
        code: caught.code,
        reason: "LOCK_NOT_AVAILABLE",
        detail: caught.detail,
        original: caught.original,
        hint: "It is tried again later; pg_trickle.lock_timeout says how long it waits.".into(),
    }
}

/// Why the stream table's owner may not read the buffers of its sources: he may not read the sources themselves. What is
/// computed from the tables then tells what he may see, or raises PostgreSQL's own error.
fn unreadable(table: &StreamTable, op: &Op) -> Option<&'static str> {
    op.sources().iter().find_map(|(source, columns)| {
        if !rights::may_select(*source, columns, table.owner) {
            return Some("its owner may not read all of its sources directly");
        }
        rights::row_security_applies(*source, table.owner)
            .then_some("row security of a source applies to its owner")
    })
}

/// A plan and the statements prepared for it, of one version of a definition.
struct Cached {
    version: i64,
    analysis: Rc<Analysis>,
    statements: BTreeSet<String>,
}

thread_local! {
    static PLANS: RefCell<Recent<Cached>> = RefCell::default();
}

/// The plan of a stream table, analysed once per backend and version with its owner's rights.
pub fn plan_of(table: &StreamTable) -> Result<Rc<Analysis>> {
    let known = PLANS.with_borrow_mut(|plans| {
        plans.get(table.relid).filter(|c| c.version == table.version).map(|c| c.analysis.clone())
    });
    if let Some(analysis) = known {
        return Ok(analysis);
    }
    let analysis = Rc::new(as_user(table.owner, Restriction::UserCode, || analyse(&table.tree))?);
    let old = PLANS.with_borrow_mut(|plans| {
        plans.insert(
            table.relid,
            Cached { version: table.version, analysis: analysis.clone(), statements: BTreeSet::new() },
        )
    });
    if let Some(old) = old {
        spi::forget_plans(|sql| old.statements.contains(sql));
    }
    Ok(analysis)
}

/// Forgets all that this backend knows of a stream table that is gone.
pub fn forget(relid: Oid) {
    VERIFIED.with_borrow_mut(|all| all.remove(relid));
    forget_plan(relid);
}

fn forget_plan(relid: Oid) {
    let old =
        PLANS.with_borrow_mut(|plans| plans.remove(relid)).map(|old| old.statements).unwrap_or_default();
    spi::forget_plans(|sql| old.contains(sql));
}

/// A kept statement of this definition; forgotten with it, or when there are too many variants.
fn remember_statement(relid: Oid, sql: &str) {
    const MAX_VARIANTS: usize = 32;
    let full = PLANS.with_borrow_mut(|plans| {
        let cached = plans.get(relid)?;
        let full = (cached.statements.len() >= MAX_VARIANTS && !cached.statements.contains(sql))
            .then(|| std::mem::take(&mut cached.statements));
        cached.statements.insert(sql.to_string());
        full
    });
    if let Some(old) = full {
        spi::forget_plans(|sql| old.contains(sql));
    }
}
