//! The baseline pass: snapshots of tables that are alive, so that the first change of each has something to be compared
//! with. Reads catalogs only.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, VecDeque};

use super::capture::{circumstance, shown, store};
use super::profile::{Absent, TableProfile};
use super::read::{read_profile, read_shapes, shape_now};
use super::shape::TableShape;
use crate::catalog::restored;
use crate::catalog::snapshots::{self, Circumstance};
use crate::drift::account::{Moment, Why};
use crate::error::{Error, Result};
use crate::model::Oid;
use crate::pg::guc::{SchemaSnapshots, schema_snapshots, snapshot_values};
use crate::pg::lock::{LockMode, Ours, try_lock_ours, try_lock_relation, unlock_relation};
use crate::pg::snapshot::Side;
use crate::pg::spi::{self, Arg, Mode};
use crate::pg::{report, subxact};
use crate::sqltext;

/// Tables read at once, and between two reports of progress.
const BATCH: usize = 50;

/// What one call did.
pub(crate) struct Pass {
    /// Snapshots taken.
    pub captured: usize,
    /// Tables that were recorded with the shape that they have.
    pub skipped: usize,
    /// Tables that are left for the next call: by the limit, or because somebody has them locked.
    pub remaining: usize,
}

/// Takes at most `limit` snapshots; tables without any come first, the youngest of them before the others.
pub(crate) fn run(limit: usize) -> Result<Pass> {
    let mut pass = Pass { captured: 0, skipped: 0, remaining: 0 };
    if schema_snapshots() == SchemaSnapshots::off {
        report::notice(
            "no schema snapshots are taken",
            "reason=SWITCHED_OFF: pg_trickle.schema_snapshots is off.",
            "",
        );
        return Ok(pass);
    }
    if !try_lock_ours(Ours::Baseline)? {
        return Err(Error::LockNotAvailable {
            what: "the baseline pass, which runs in another session".into(),
        });
    }
    restored::adopt()?;
    let mut todo: VecDeque<Oid> = candidates()?.into();
    let by = circumstance(None, false);
    progress("total", todo.len())?;
    progress("done", 0)?;
    let total = todo.len();
    while !todo.is_empty() && pass.captured < limit {
        let room = BATCH.min(limit - pass.captured).min(todo.len());
        let mut batch: Vec<Oid> = todo.drain(..room).collect();
        // What somebody has to himself may be gone soon, and printing a generated column would wait for it.
        batch.retain(|oid| {
            let free = if_free(*oid, || ()).is_some();
            pass.remaining += usize::from(!free);
            free
        });
        record_batch(&batch, &by, &mut pass)?;
        progress("done", total - todo.len())?;
    }
    pass.remaining += todo.len();
    Ok(pass)
}

fn record_batch(batch: &[Oid], by: &Circumstance, pass: &mut Pass) -> Result<()> {
    let shapes = shapes_of(batch)?;
    let known = snapshots::newest_digests(crate::pg::origin(), batch)?;
    for (oid, shape) in &shapes {
        let digest = shape.content_digest()?;
        if known.get(oid) == Some(&digest) {
            pass.skipped += 1;
            continue;
        }
        // Under a lock, and only if it is still as it was read: or a drop or change of just now would come out in the wrong
        // order, as if the table had come back.
        let free = if_free(*oid, || -> Result<()> {
            match shape_now(*oid)? {
                Some(now) if now.content_digest()? == digest => {
                    take(shape, by)?;
                    pass.captured += 1;
                }
                Some(_) => pass.remaining += 1,
                // It is gone.
                None => {}
            }
            Ok(())
        });
        match free {
            Some(done) => done?,
            None => pass.remaining += 1,
        }
    }
    Ok(())
}

/// Runs `f` while nobody can drop or change the table; none if somebody may be just at it.
fn if_free<T>(table: Oid, f: impl FnOnce() -> T) -> Option<T> {
    let free = try_lock_relation(table, LockMode::AccessShare);
    let result = free.then(f);
    if free {
        unlock_relation(table, LockMode::AccessShare);
    }
    result
}

/// Shapes of these tables. One that can't be read must not keep the others from being recorded, in this call and in all
/// that follow it.
fn shapes_of(batch: &[Oid]) -> Result<BTreeMap<Oid, TableShape>> {
    let read = |tables: &[Oid]| subxact::run(|| read_shapes(tables, Side::After));
    if let Ok(shapes) = read(batch) {
        return Ok(shapes);
    }
    let mut shapes = BTreeMap::new();
    for oid in batch {
        match read(&[*oid]) {
            Ok(mut one) => shapes.append(&mut one),
            Err(caught) => {
                let name = name_of(*oid)?;
                report::warning(
                    &format!("pgtrickle: what {name} looks like was not recorded"),
                    &format!("reason=SNAPSHOT_FAILED: its shape could not be read: {}.", shown(&caught)),
                    "The other tables were recorded. Call pgtrickle.capture_baseline() again for this one.",
                );
                report::log_server_only(&format!("pgtrickle: {name}: {}", caught.message));
            }
        }
    }
    Ok(shapes)
}

fn name_of(relation: Oid) -> Result<String> {
    let rows = spi::run(
        "SELECT n.nspname, c.relname FROM pg_catalog.pg_class c \
         JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1",
        &[Arg::Oid(relation)],
        Mode::Fresh,
    )?;
    match rows.first() {
        Some(mut row) => Ok(sqltext::display(&row.text(0)?, &row.text(1)?)),
        None => Ok(format!("relation {relation}")),
    }
}

fn candidates() -> Result<Vec<Oid>> {
    let only_sources = schema_snapshots() == SchemaSnapshots::sources;
    spi::run(
        include_str!("../../sql/queries/baseline_candidates.sql"),
        &[Arg::Int(crate::pg::origin()), Arg::Bool(only_sources)],
        Mode::Fresh,
    )?
    .into_iter()
    .map(|mut row| row.parse(0))
    .collect()
}

fn take(shape: &TableShape, by: &Circumstance) -> Result<()> {
    let profile = match subxact::run(|| read_profile(shape, Side::After)) {
        Ok((profile, None)) => profile,
        Ok((profile, Some(caught))) => {
            unreadable(shape, &caught.message);
            profile
        }
        Err(caught) => {
            unreadable(shape, &caught.message);
            let columns = shape.columns.iter().map(|c| c.attnum);
            TableProfile::without(columns, snapshot_values(), Absent::Unreadable)
        }
    };
    store(shape, &profile, Why::Baseline, Moment::Standing, by)
}

fn unreadable(shape: &TableShape, message: &str) {
    report::warning(
        &format!("pgtrickle: values of {} were not recorded with its shape", shape.display_name()),
        "reason=SNAPSHOT_FAILED: its statistics could not be read.",
        "ANALYZE the table, and call pgtrickle.capture_baseline() again once its shape has changed.",
    );
    report::log_server_only(&format!("pgtrickle: {}: {message}", shape.display_name()));
}

/// Told to other sessions, which see nothing else of this transaction before it commits.
fn progress(what: &str, count: usize) -> Result<()> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let sequence = format!("pgtrickle.pgt_baseline_{what}");
    spi::run(
        "SELECT pg_catalog.setval($1::pg_catalog.regclass, $2)",
        &[Arg::Text(&sequence), Arg::Int(count)],
        Mode::Fresh,
    )?;
    Ok(())
}
