//! Drops as they happen: what the dropped tables looked like is recorded, and what depended on them follows.
#![forbid(unsafe_code)]

use crate::catalog::tasks::{Task, TaskKind};
use crate::catalog::{dependencies, sources, stream_tables};
use crate::error::{Error, Result};
use crate::evolve::tasks::now_or_later;
use crate::evolve::{apply, suspend, types};
use crate::lifecycle;
use crate::model::{Oid, Reason};
use crate::pg::cache;
use crate::pg::concern::{Dependant, Kind, dependants};
use crate::pg::dropped::{self, DroppedObject};
use crate::pg::event::Command;
use crate::pg::guc::{SchemaSnapshots, schema_snapshots, snapshot_timeout};
use crate::pg::lock::without_waiting;
use crate::pg::secctx::as_extension;
use crate::pg::snapshot::{Side, statement_start};
use crate::pg::subxact::{self, Caught};
use crate::pg::{binary_upgrade, report};
use crate::snapshot::capture::{self, Subject};

/// One dropped object.
pub(super) struct Dropped {
    class: Oid,
    pub object: Oid,
    is_table: bool,
    name: String,
    /// A column of the object is gone, by a cascade, and not the object.
    pub column: Option<String>,
}

/// Just after objects were dropped; for a snapshot of the command's start they are still there.
pub fn on_sql_drop(command: &Command) -> Result<()> {
    if binary_upgrade() {
        return Ok(());
    }
    if let Err(error) = cache::catalog_oid() {
        // Nothing of ours can be told from anything else.
        report::degraded("pgtrickle: a drop was not followed", &error.into());
        return Ok(());
    }
    // Then our own drops need not be followed. Somebody else's event trigger may drop more when it hears of them.
    let own_work = cache::in_maintenance();
    let start = statement_start();
    let found = dropped_objects()
        .map_err(Caught::from)
        .inspect(|dropped| record_dropped(command, dropped, start.map(Side::Before)));
    if found.is_err() {
        capture::count_unknown();
    }
    // Apart from it: what follows may fail, the evidence must not go with it.
    let followed = found.and_then(|dropped| {
        let concerned = if own_work { Vec::new() } else { concerned(&dropped).map_err(Caught::from)? };
        if concerned.is_empty() {
            return Ok(());
        }
        subxact::run(|| {
            as_extension(|| {
                without_waiting(|| {
                    cache::maintenance(|| {
                        types::columns_dropped(&concerned, &command.tag)?;
                        follow_drop(&concerned)
                    })
                })
            })
        })
    });
    if let Err(caught) = followed {
        report::degraded("pgtrickle: a drop was not followed", &caught);
    }
    Ok(())
}

/// Those that a stream table depends on, or is, with how. Looks into indexes, and waits for nobody.
fn concerned(dropped: &[Dropped]) -> Result<Vec<(&Dropped, Vec<Dependant>)>> {
    let mut found = Vec::new();
    for d in dropped {
        let is_of = |x: &&Dependant| match x.kind {
            Kind::Source | Kind::View | Kind::Object => x.class == d.class,
            Kind::Itself => true,
            Kind::Cure | Kind::Suspended => false,
        };
        let dependants: Vec<Dependant> = dependants(d.object)?.iter().filter(is_of).cloned().collect();
        if !dependants.is_empty() {
            found.push((d, dependants));
        }
    }
    Ok(found)
}

/// Kinds of objects that no stream table depends on, or not but with their relation.
const PARTS: [&str; 7] =
    ["index", "trigger", "table constraint", "default value", "toast table", "rule", "policy"];

/// What is of concern of all that was dropped: objects, and columns that a cascade took from their table.
fn dropped_objects() -> Result<Vec<Dropped>> {
    let of_concern = |d: &DroppedObject| {
        (d.column.is_none() || d.kind == "table column" && !d.original)
            && !d.is_temporary
            && !PARTS.contains(&d.kind.as_str())
            && !matches!(d.schema.as_deref(), Some("pg_toast" | "pgtrickle_internal"))
    };
    let dropped = dropped::dropped_objects()?.into_iter().filter(of_concern);
    Ok(dropped
        .map(|d| Dropped {
            class: d.class,
            object: d.object,
            is_table: d.kind == "table",
            name: d.identity,
            column: d.column_name,
        })
        .collect())
}

/// Records those of the dropped tables that are to be recorded.
fn record_dropped(command: &Command, dropped: &[Dropped], side: Option<Side>) {
    let setting = schema_snapshots();
    let subject = |d: &Dropped| Subject { oid: d.object, name: d.name.clone() };
    let subjects: Vec<Subject> = dropped.iter().filter(|d| d.is_table).map(subject).collect();
    if setting == SchemaSnapshots::off || subjects.is_empty() {
        return;
    }
    let recorded = subxact::run(|| {
        as_extension(|| {
            cache::maintenance(|| {
                record_subjects(command, subjects, setting, side);
                Ok(())
            })
        })
    });
    if recorded.is_err() {
        capture::count_unknown();
    }
}

fn record_subjects(
    command: &Command,
    mut subjects: Vec<Subject>,
    setting: SchemaSnapshots,
    side: Option<Side>,
) {
    let by = capture::circumstance(Some(&command.tag), cache::is_own_command());
    let Some(side) = side else {
        let unknown = Error::Internal("the command has no snapshot of its start".into());
        return capture::not_recorded(&subjects, &unknown.into(), &by);
    };
    if setting == SchemaSnapshots::sources {
        let oids: Vec<Oid> = subjects.iter().map(|s| s.oid).collect();
        // Not from the cached picture: it may be read only now, when a dropped partition is no member any more.
        match subxact::run_within(snapshot_timeout(), || dependencies::sources_among(&oids, side)) {
            Ok(sources) => subjects.retain(|s| sources.contains(&s.oid)),
            Err(caught) => return capture::not_recorded(&subjects, &caught, &by),
        }
    }
    capture::record_dropped(&subjects, side, &by);
}

fn follow_drop(dropped: &[(&Dropped, Vec<Dependant>)]) -> Result<()> {
    let dropped = || dropped.iter().filter(|(d, _)| d.column.is_none());
    let is = |dependants: &[Dependant], kind| dependants.iter().any(|d| d.kind == kind);
    let is_stream_table =
        |d: &Dropped, by: &[Dependant]| d.class == apply::relation_class() && is(by, Kind::Itself);
    for (d, _) in dropped().filter(|(d, by)| is_stream_table(d, by)) {
        let task = Task { kind: TaskKind::Forget, relid: d.object, reason: None, detail: None };
        now_or_later(&task, || lifecycle::forget(d.object));
    }
    for (d, by) in dropped().filter(|(d, by)| !is_stream_table(d, by)) {
        if is(by, Kind::Source) {
            follow_source(d)?;
        }
        if is(by, Kind::View) || is(by, Kind::Object) {
            for table in stream_tables::users_of(d.class, d.object)? {
                let detail = format!("{}, which its query uses, was dropped.", d.name);
                suspend::suspend_soon(&table, Reason::ObjectChanged, &detail);
            }
        }
    }
    Ok(())
}

/// A source is gone, and its triggers with it; its buffer is left to be dropped.
fn follow_source(d: &Dropped) -> Result<()> {
    apply::source_dropped(d.object, &d.name)?;
    sources::delete(d.object)?;
    suspend::release(d.object)
}
