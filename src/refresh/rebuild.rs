//! Computing contents and state anew, and the objects that a differential plan needs.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use crate::catalog::stream_tables::StreamTable;
use crate::cdc;
use crate::dvm::delta::state_tables;
use crate::dvm::{Names, Op, apply, row_hash};
use crate::error::{Error, Result};
use crate::model::{Action, Oid, Outcome, Status};
use crate::pg::access::{Access, with_access};
use crate::pg::secctx::{Restriction, as_user};
use crate::pg::settings::{NO_POLICIES, pinned, with_settings};
use crate::pg::side;
use crate::pg::spi::{self, Arg, Mode};
use crate::refresh::naming::{state_base, state_name, target_columns};
use crate::sqltext;

/// Creates the state tables of a plan, empty.
pub fn create_state(table: &StreamTable, op: &Op) -> Result<()> {
    for a in op.aggregates() {
        let name = state_name(table.relid, a.id);
        cdc::create_side_table(&name, "h bigint, image bytea", "fillfactor = 90")?;
        let qualified = sqltext::qualified(cdc::INTERNAL_SCHEMA, &name);
        spi::run_once(&format!("CREATE INDEX ON {qualified} (h)"), &[], Mode::Fresh)?;
    }
    drop_orphan_state(table, op)
}

/// A trigger that refuses statements other than pgtrickle's own, in place of what may bear its name.
pub fn create_guard(schema: &str, name: &str) -> Result<()> {
    let table = sqltext::qualified(schema, name);
    spi::run_once(
        &format!(
            "CREATE OR REPLACE TRIGGER pgtrickle_guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {table} \
             FOR EACH STATEMENT EXECUTE FUNCTION pgtrickle._guard()"
        ),
        &[],
        Mode::Fresh,
    )?;
    spi::run_once(&format!("ALTER TABLE {table} ENABLE ALWAYS TRIGGER pgtrickle_guard"), &[], Mode::Fresh)?;
    Ok(())
}

fn drop_orphan_state(table: &StreamTable, op: &Op) -> Result<()> {
    let keep: Vec<u32> = op.aggregates().iter().map(|a| a.id).collect();
    drop_state_except(table.relid, &keep)
}

/// Drops all state tables of a stream table.
pub fn drop_state(relid: Oid) -> Result<()> {
    drop_state_except(relid, &[])
}

fn drop_state_except(relid: Oid, keep: &[u32]) -> Result<()> {
    let prefix = format!("{}_", state_base(relid));
    let rows = spi::run(
        "SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = $1 AND c.relkind IN ('r', 'm') AND pg_catalog.starts_with(c.relname, $2)",
        &[Arg::Text(cdc::INTERNAL_SCHEMA), Arg::Text(&prefix)],
        Mode::Fresh,
    )?;
    for mut row in rows {
        let name = row.text(0)?;
        let id = name.strip_prefix(&prefix).and_then(|n| n.parse::<u32>().ok());
        if id.is_some_and(|id| !keep.contains(&id)) {
            cdc::drop_internal_table(&name)?;
        }
    }
    Ok(())
}

/// The index by which a differential refresh finds rows. Made as the stream table's owner.
pub fn create_row_index(table: &StreamTable, op: &Op) -> Result<()> {
    let columns = target_columns(table)?;
    let positions = apply::match_positions(columns.len(), op.key());
    let list: Vec<String> = positions.iter().map(|p| columns[p - 1].clone()).collect();
    let sql = format!(
        "CREATE INDEX {} ON {} ({})",
        sqltext::ident(&index_name(table.relid)),
        table.quoted(),
        row_hash(&list)
    );
    spi::run_once(&sql, &[], Mode::Fresh)?;
    Ok(())
}

/// Our index's name; by oid, so that long table names and renames don't matter.
pub fn index_name(relid: Oid) -> String {
    format!("pgtrickle_rows_{relid}")
}

/// Fills state tables and contents from the sources at the active snapshot.
pub fn rebuild(table: &StreamTable, op: Option<&Op>, names: &Names, action: Action) -> Result<Outcome> {
    for (a, select) in op.map_or_else(Vec::new, |op| state_tables(op, names)) {
        let state =
            names.states.get(&a.id).ok_or_else(|| Error::Internal("a state table has no name".into()))?;
        side::truncate(state.oid);
        let access = Access { states: BTreeSet::from([state.oid]), ..Access::default() };
        let sql = names.write_state(a, "s", &format!("({select})"), "NULL", None);
        with_access(access, || {
            with_settings(NO_POLICIES, || {
                as_user(table.owner, Restriction::UserCode, || spi::run_once(&sql, &[], Mode::InSnapshot))
            })
        })?;
    }
    let fresh = table.status == Status::Uninitialized && is_empty(table)?;
    let sql = if fresh {
        let columns = names.target_columns.join(", ");
        format!(
            "WITH ins AS (INSERT INTO {} ({columns}) {} RETURNING 1) SELECT (SELECT count(*) FROM ins), 0, 0, 0",
            names.target, table.query
        )
    } else if table.comparable {
        apply::full(&table.query, names)
    } else {
        apply::full_by_image(&table.query, names)
    };
    let (outcome, mismatches) = pinned(|| {
        as_user(table.owner, Restriction::UserCode, || {
            counts(spi::run_once(&sql, &[], Mode::InSnapshot)?, action)
        })
    })?;
    if mismatches != 0 {
        return Err(Error::Diverged {
            name: table.display(),
            detail: format!("{mismatches} rows to delete were not found."),
        });
    }
    if outcome.inserted + outcome.deleted > 1000 {
        spi::run_once(&format!("ANALYZE {}", table.quoted()), &[], Mode::InSnapshot)?;
    }
    Ok(outcome)
}

fn is_empty(table: &StreamTable) -> Result<bool> {
    let sql = format!("SELECT FROM {} LIMIT 1", table.quoted());
    // As the owner: planning looks at his indexes, and folds what is constant in their expressions.
    as_user(table.owner, Restriction::UserCode, || {
        Ok(spi::run_once(&sql, &[], Mode::InSnapshot)?.first().is_none())
    })
}

/// The counts that a maintenance statement returns, and its mismatches.
pub fn counts(rows: spi::Rows, action: Action) -> Result<(Outcome, i64)> {
    let Some(mut row) = rows.first() else {
        return Err(Error::Internal("a maintenance statement returned no row".into()));
    };
    let outcome = Outcome { action, inserted: row.parse(0)?, updated: row.parse(1)?, deleted: row.parse(2)? };
    Ok((outcome, row.parse(3)?))
}
