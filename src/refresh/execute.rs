//! One refresh from locks to frontier.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::time::Instant;

use crate::catalog::stream_tables::{self, StreamTable};
use crate::catalog::{dependencies, history};
use crate::dvm::delta::{TooManyChangedInputs, maintenance};
use crate::dvm::{Names, Op};
use crate::error::{Error, Result};
use crate::model::{Action, Oid, Outcome, Status};
use crate::pg::lock::{LockMode, Ours, lock_ours, lock_relation};
use crate::pg::query::{Analysis, analyse};
use crate::pg::secctx::{Restriction, as_extension, as_user, with_settings};
use crate::pg::snapshot::{own_xid, with_transaction_snapshot};
use crate::pg::spi::{self, Mode};
use crate::pg::{cache, report};
use crate::refresh::naming;
use crate::refresh::plan::{Facts, Step, choose};
use crate::refresh::rebuild::{DELTA_SETTINGS, counts, rebuild};
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
    let started = Instant::now();
    as_extension(|| {
        cache::maintenance(|| {
            for _ in 0..3 {
                let sources = dependencies::source_columns(relid)?;
                take_locks(relid, &sources)?;
                let after = dependencies::source_columns(relid)?;
                if after == sources {
                    return refresh_locked(relid, full, &sources, started);
                }
            }
            Err(Error::Internal("the definition changes faster than it can be refreshed".into()))
        })
    })
}

fn take_locks(relid: Oid, sources: &BTreeMap<Oid, BTreeSet<i16>>) -> Result<()> {
    for source in sources.keys() {
        lock_relation(*source, LockMode::AccessShare);
    }
    lock_relation(relid, LockMode::RowExclusive);
    lock_ours(Ours::StreamTable(relid), true)?;
    for source in sources.keys() {
        lock_ours(Ours::Buffer(*source), false)?;
    }
    Ok(())
}

fn refresh_locked(
    relid: Oid,
    full: bool,
    sources: &BTreeMap<Oid, BTreeSet<i16>>,
    started: Instant,
) -> Result<Outcome> {
    let before = load(relid)?;
    if before.status == Status::Suspended {
        return Err(suspended(&before));
    }
    let shapes = evolve::net::verify(&before, sources)?;
    // Everything from here on reads through this one snapshot.
    with_transaction_snapshot(|| {
        let table = load(relid)?;
        if table.status == Status::Suspended {
            return Ok(Outcome::quiet(Action::Suspended));
        }
        let analysis = plan_of(&table)?;
        let op = analysis.plan.as_ref().ok().filter(|_| table.differential);
        let step = choose(&facts(&table, op, full, sources)?);
        if step == Step::Nothing {
            return Ok(Outcome::quiet(Action::NoChange));
        }
        let run = Run { table: &table, op, shapes: &shapes };
        let consumed = cache::next_epoch();
        let (outcome, detail) = run.step(step)?;
        let frontier = spi::run("SELECT pg_catalog.pg_current_snapshot()", &[], Mode::Read)?;
        let Some(mut row) = frontier.first() else {
            return Err(Error::Internal("no current snapshot".into()));
        };
        stream_tables::set_frontier(relid, &row.text(0)?, &own_xid(), consumed)?;
        history::completed(&table, started.elapsed(), outcome, detail.as_deref())?;
        Ok(outcome)
    })
    .and_then(|outcome| {
        if outcome.action != Action::NoChange && outcome.action != Action::Suspended {
            trim(sources)?;
        }
        Ok(outcome)
    })
}

/// After the frontier is written; a fresh snapshot sees it.
fn trim(sources: &BTreeMap<Oid, BTreeSet<i16>>) -> Result<()> {
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
        detail: table.detail.clone().unwrap_or_else(String::new),
        hint: table.hint.clone().unwrap_or_else(String::new),
    }
}

fn facts(
    table: &StreamTable,
    op: Option<&Op>,
    full_wanted: bool,
    sources: &BTreeMap<Oid, BTreeSet<i16>>,
) -> Result<Facts> {
    let mut facts = Facts {
        status: table.status,
        differential: op.is_some(),
        full_wanted,
        reinitialize: table.reinitialize.clone(),
        changed: BTreeSet::new(),
        truncated: BTreeSet::new(),
    };
    if table.status == Status::Uninitialized || facts.reinitialize.is_some() || op.is_none() {
        return Ok(facts);
    }
    let Some(frontier) = &table.frontier else {
        facts.reinitialize = Some("it has no frontier".into());
        return Ok(facts);
    };
    for source in sources.keys() {
        let (rows, marks) = cdc::pending(*source, frontier, &table.own_xid, table.epoch)?;
        if rows > 0 {
            facts.changed.insert(*source);
        }
        if marks > 0 {
            facts.truncated.insert(*source);
        }
    }
    Ok(facts)
}

struct Run<'a> {
    table: &'a StreamTable,
    op: Option<&'a Op>,
    shapes: &'a BTreeMap<Oid, TableShape>,
}

impl Run<'_> {
    fn step(&self, step: Step) -> Result<(Outcome, Option<String>)> {
        let names = naming::names(self.table, self.shapes)?;
        match (step, self.op) {
            (Step::Nothing, _) => Ok((Outcome::quiet(Action::NoChange), None)),
            (Step::Full { why }, op) => Ok((rebuild(self.table, op, &names, Action::Full)?, Some(why))),
            (Step::Reinitialize { why }, op) => {
                Ok((rebuild(self.table, op, &names, Action::Reinitialize)?, Some(why)))
            }
            (Step::Differential(changed), Some(op)) => self.differential(op, &names, &changed),
            (Step::Differential(_), None) => {
                Err(Error::Internal("a differential step without a plan".into()))
            }
        }
    }

    fn differential(
        &self,
        op: &Op,
        names: &Names,
        changed: &BTreeSet<Oid>,
    ) -> Result<(Outcome, Option<String>)> {
        let sql = match maintenance(op, names, changed) {
            Ok(sql) => sql,
            Err(TooManyChangedInputs(n)) => {
                let why = format!("{n} inputs of one join changed at once");
                return Ok((rebuild(self.table, Some(op), names, Action::Full)?, Some(why)));
            }
        };
        remember_statement(self.table.relid, &sql);
        let table = self.table;
        let frontier = table.frontier.as_deref().unwrap_or("1:1:");
        let (outcome, mismatches) = with_settings(DELTA_SETTINGS, || {
            as_user(table.owner, Restriction::UserCode, || {
                let args = cdc::frontier_args(frontier, &table.own_xid, table.epoch.into());
                counts(spi::run(&sql, &args, Mode::InSnapshot)?, Action::Differential)
            })
        })?;
        if mismatches == 0 {
            return Ok((outcome, None));
        }
        report::warning(
            &format!("stream table {} had diverged and is computed anew", table.display()),
            &format!("reason=DIVERGED: {mismatches} rows did not match the maintenance state."),
            "Nothing needs to be done. Please report it if you know of no manual change to it.",
        );
        Ok((rebuild(table, Some(op), names, Action::Reinitialize)?, Some("its contents had diverged".into())))
    }
}

/// A plan and the statements prepared for it, of one version of a definition.
struct Cached {
    version: i64,
    analysis: Rc<Analysis>,
    statements: BTreeSet<String>,
}

thread_local! {
    static PLANS: RefCell<HashMap<Oid, Cached>> = RefCell::new(HashMap::new());
}

/// The plan of a stream table, analysed once per backend and version with its owner's rights.
pub fn plan_of(table: &StreamTable) -> Result<Rc<Analysis>> {
    let known = PLANS.with_borrow(|plans| {
        plans.get(&table.relid).filter(|c| c.version == table.version).map(|c| c.analysis.clone())
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

/// A kept statement of this definition; forgotten with it, or when there are too many variants.
fn remember_statement(relid: Oid, sql: &str) {
    const MAX_VARIANTS: usize = 32;
    let full = PLANS.with_borrow_mut(|plans| {
        let cached = plans.get_mut(&relid)?;
        let full = (cached.statements.len() >= MAX_VARIANTS && !cached.statements.contains(sql))
            .then(|| std::mem::take(&mut cached.statements));
        cached.statements.insert(sql.to_string());
        full
    });
    if let Some(old) = full {
        spi::forget_plans(|sql| old.contains(sql));
    }
}
