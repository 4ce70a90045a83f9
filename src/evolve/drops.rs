//! Drops as they happen: what the dropped tables looked like is recorded, and what depended on them follows.
#![forbid(unsafe_code)]

use std::rc::Rc;

use crate::catalog::{dependencies, stream_tables};
use crate::cdc;
use crate::error::{Error, Result};
use crate::evolve::{apply, suspend, types};
use crate::lifecycle;
use crate::model::{Oid, Reason};
use crate::pg::cache::{self, Watch};
use crate::pg::event::Command;
use crate::pg::guc::{SchemaSnapshots, schema_snapshots, snapshot_timeout};
use crate::pg::secctx::as_extension;
use crate::pg::snapshot::{Side, statement_start};
use crate::pg::spi::{self, Mode};
use crate::pg::{binary_upgrade, report, subxact};
use crate::snapshot::capture::{self, Subject};

/// One dropped object.
struct Dropped {
    class: Oid,
    object: Oid,
    is_table: bool,
    name: String,
}

/// Just after objects were dropped; for a snapshot of the command's start they are still there.
pub fn on_sql_drop(command: &Command) -> Result<()> {
    if binary_upgrade() {
        return Ok(());
    }
    // Then our own drops need not be followed. Somebody else's event trigger may drop more when it hears of them.
    let own_work = cache::in_maintenance();
    let start = statement_start();
    let recorded = subxact::run(|| {
        as_extension(|| {
            if !cache::installed()? {
                return Ok(Vec::new());
            }
            cache::maintenance(|| {
                let dropped = dropped_objects()?;
                record_dropped(command, &dropped, start.map(Side::Before));
                Ok(dropped)
            })
        })
    });
    if recorded.is_err() {
        capture::count_unknown();
    }
    // Apart from it: what follows may fail, the evidence must not go with it.
    let followed = recorded.and_then(|dropped| {
        if own_work || dropped.is_empty() {
            return Ok(());
        }
        subxact::run(|| {
            as_extension(|| {
                cache::maintenance(|| {
                    let watch = cache::watch(dependencies::load_watch)?;
                    types::columns_dropped(&watch, &command.tag)?;
                    follow_drop(&watch, &dropped)
                })
            })
        })
    });
    if let Err(caught) = followed {
        report::degraded("pgtrickle: a drop was not followed", &caught);
    }
    Ok(())
}

fn dropped_objects() -> Result<Vec<Dropped>> {
    spi::run(
        "SELECT classid, objid, object_type = 'table', object_identity \
         FROM pg_catalog.pg_event_trigger_dropped_objects() \
         WHERE objsubid = 0 AND NOT is_temporary AND object_type NOT IN ('index', 'trigger', 'table constraint', \
           'default value', 'toast table', 'rule', 'policy') \
         AND schema_name IS DISTINCT FROM 'pg_toast' AND schema_name IS DISTINCT FROM 'pgtrickle_internal'",
        &[],
        Mode::Fresh,
    )?
    .into_iter()
    .map(|mut row| {
        Ok(Dropped { class: row.parse(0)?, object: row.parse(1)?, is_table: row.bool(2)?, name: row.text(3)? })
    })
    .collect()
}

/// Records those of the dropped tables that are to be recorded.
fn record_dropped(command: &Command, dropped: &[Dropped], side: Option<Side>) {
    let setting = schema_snapshots();
    let subject = |d: &Dropped| Subject { oid: d.object, name: d.name.clone() };
    let mut subjects: Vec<Subject> = dropped.iter().filter(|d| d.is_table).map(subject).collect();
    if setting == SchemaSnapshots::off || subjects.is_empty() {
        return;
    }
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

fn follow_drop(watch: &Rc<Watch>, dropped: &[Dropped]) -> Result<()> {
    let relation = apply::relation_class();
    for d in dropped.iter().filter(|d| d.class == relation && watch.stream_tables.contains(&d.object)) {
        lifecycle::forget(d.object)?;
    }
    for d in dropped {
        if d.class == relation
            && watch.sources.contains_key(&d.object)
            && !watch.stream_tables.contains(&d.object)
        {
            apply::source_dropped(d.object, &d.name)?;
            cdc::drop_unused_buffer(d.object)?;
            crate::catalog::sources::delete(d.object)?;
        } else if (d.class == relation && watch.views.contains(&d.object))
            || watch.objects.contains(&(d.class, d.object))
        {
            for table in stream_tables::users_of(d.class, d.object)? {
                let detail = format!("{}, which its query uses, was dropped.", d.name);
                suspend::suspend(&table, Reason::ObjectChanged, &detail)?;
            }
        }
    }
    Ok(())
}
