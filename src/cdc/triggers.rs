//! The triggers that capture: what is wrong with those that a source and its partitions have, and putting it right. Whoever
//! may create triggers on a table may also replace ours by others of the same names.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use crate::catalog::captures;
use crate::error::{Error, Result};
use crate::model::{Oid, ROW_TRIGGER, TRUNCATE_TRIGGER, row_trigger, truncate_trigger};
use crate::pg::inheritance::with_descendants;
use crate::pg::lock::LockMode;
use crate::pg::spi::{self, Arg, Mode};
use crate::sqltext;

/// What is wrong with one trigger on one relation of a source's tree. Names of relations are qualified and quoted.
pub struct Fault {
    trigger: String,
    source: Oid,
    /// Where it is put right: row triggers of partitions are clones of the root's.
    place: Oid,
    place_name: String,
    relation: String,
    for_rows: bool,
    /// It is there as we make it, but not ENABLE ALWAYS.
    made: bool,
    /// A table whose trigger has to go before.
    obstacle: Option<(Oid, String)>,
}

/// What is wrong with the capture triggers of these sources.
pub fn faults(sources: &[Oid]) -> Result<Vec<Fault>> {
    if sources.is_empty() {
        return Ok(Vec::new());
    }
    let rows = spi::run(
        include_str!("../../sql/queries/capture_triggers.sql"),
        &[Arg::Oids(sources), Arg::Text(ROW_TRIGGER), Arg::Text(TRUNCATE_TRIGGER)],
        Mode::Fresh,
    )?;
    rows.into_iter()
        .map(|mut row| {
            let obstacle = match row.opt(8) {
                Some(name) => Some((row.parse(7)?, name)),
                None => None,
            };
            Ok(Fault {
                trigger: row.text(0)?,
                source: row.parse(1)?,
                place: row.parse(2)?,
                place_name: row.text(3)?,
                relation: row.text(4)?,
                for_rows: row.bool(5)?,
                made: row.bool(6)?,
                obstacle,
            })
        })
        .collect()
}

/// Triggers of captured sources that are not as they should be, as people read it.
pub fn all_faults() -> Result<Vec<String>> {
    let found = faults(&captures::sources()?)?;
    Ok(found.iter().map(|f| format!("{}.{}", f.relation, sqltext::display_ident(&f.trigger))).collect())
}

/// Tables to lock before they are put right, and how.
pub fn locks(faults: &[Fault]) -> Result<(BTreeSet<Oid>, LockMode)> {
    let (mut tables, mut mode) = (BTreeSet::new(), LockMode::ShareRowExclusive);
    for fault in faults {
        if fault.place == fault.source {
            tables.extend(with_descendants(fault.source)?);
        } else {
            tables.insert(fault.place);
        }
        if let Some((obstacle, _)) = &fault.obstacle {
            tables.extend(with_descendants(*obstacle)?);
            mode = LockMode::AccessExclusive;
        }
    }
    Ok((tables, mode))
}

/// Puts all of them right; the tables are locked.
pub fn put_right(source: Oid) -> Result<()> {
    // Once to make them, once to have them fire always, which a new one and its clones do not, and once to see that it is so.
    for _ in 0..3 {
        let faults = faults(&[source])?;
        if faults.is_empty() {
            return Ok(());
        }
        for statement in repairs(&faults) {
            spi::run_once(&statement, &[], Mode::Fresh)?;
        }
    }
    Err(Error::Internal(format!("the capture triggers of relation {source} can't be put right")))
}

/// One round of repairs.
fn repairs(faults: &[Fault]) -> Vec<String> {
    let (mut drops, mut creates) = (BTreeSet::new(), BTreeSet::new());
    for fault in faults.iter().filter(|f| !f.made) {
        let name = sqltext::ident(&fault.trigger);
        if let Some((_, table)) = &fault.obstacle {
            drops.insert(format!("DROP TRIGGER {name} ON {table}"));
        }
        let (events, level) =
            if fault.for_rows { ("INSERT OR UPDATE OR DELETE", "ROW") } else { ("TRUNCATE", "STATEMENT") };
        creates.insert(format!(
            "CREATE OR REPLACE TRIGGER {name} AFTER {events} ON {} FOR EACH {level} EXECUTE FUNCTION pgtrickle._capture({})",
            fault.place_name,
            sqltext::literal(&fault.source.to_string())
        ));
    }
    if !creates.is_empty() {
        return drops.into_iter().chain(creates).collect();
    }
    let enable = |f: &Fault| {
        format!("ALTER TABLE ONLY {} ENABLE ALWAYS TRIGGER {}", f.place_name, sqltext::ident(&f.trigger))
    };
    faults.iter().map(enable).collect()
}

/// Drops all of them, also what somebody gave another name.
pub fn remove(source: Oid) -> Result<()> {
    let rows = spi::run(
        "SELECT pg_catalog.quote_ident(t.tgname), pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) \
         FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid \
         JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         WHERE t.tgparentid = 0 AND (t.tgname IN ($1, $2) \
           OR t.tgfoid = 'pgtrickle._capture()'::pg_catalog.regprocedure::pg_catalog.oid \
              AND t.tgargs = pg_catalog.convert_to($3, 'SQL_ASCII') || '\\x00'::pg_catalog.bytea)",
        &[
            Arg::Text(&row_trigger(source)),
            Arg::Text(&truncate_trigger(source)),
            Arg::Text(&source.to_string()),
        ],
        Mode::Fresh,
    )?;
    for mut row in rows {
        spi::run_once(&format!("DROP TRIGGER {} ON {}", row.text(0)?, row.text(1)?), &[], Mode::Fresh)?;
    }
    Ok(())
}
