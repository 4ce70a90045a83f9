//! Change capture: a buffer per source with the columns that are used, and the triggers that fill it.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};

use crate::catalog::dependencies;
use crate::catalog::stream_tables::{self, StreamTable};
use crate::dvm::delta::consumed;
use crate::error::{Error, Result};
pub use crate::model::{INTERNAL_SCHEMA, buffer_name, row_trigger, truncate_trigger};
use crate::model::{Oid, Status};
use crate::pg::guc;
use crate::pg::lock::{LockMode, Ours, lock_relation, try_lock_ours};
use crate::pg::secctx::may_create_triggers;
use crate::pg::spi::{self, Arg, Mode};
use crate::sqltext;

/// The buffer, qualified and quoted.
pub fn buffer(source: Oid) -> String {
    sqltext::qualified(INTERNAL_SCHEMA, &buffer_name(source))
}

/// Makes capture of `source` what its users need now: created, widened, or removed. Waits for writers in flight when
/// something changes, so that whoever takes a snapshot afterwards sees all that was not captured.
///
/// False: nobody who uses the source may have triggers on it any more, so those that are missing stay so; each refresh says it.
pub fn sync(source: Oid) -> Result<bool> {
    match dependencies::captured_columns(source)? {
        Some(columns) => ensure(source, &columns),
        None => remove(source).map(|()| true),
    }
}

fn ensure(source: Oid, columns: &BTreeSet<i16>) -> Result<bool> {
    if !missing_columns(source, columns)?.is_empty() || !missing_triggers(source)?.is_empty() {
        if !somebody_may_capture(source)? {
            return Ok(false);
        }
        lock_relation(source, LockMode::ShareRowExclusive);
        ensure_buffer(source, columns)?;
        // Twice: the row trigger on the root makes its clones on partitions, which are not ENABLE ALWAYS yet.
        for _ in 0..2 {
            for (trigger, table, sql) in missing_triggers(source)? {
                if let Some(create) = sql {
                    spi::run_once(&create, &[], Mode::Fresh)?;
                }
                let only =
                    format!("ALTER TABLE ONLY {table} ENABLE ALWAYS TRIGGER {}", sqltext::ident(&trigger));
                spi::run_once(&only, &[], Mode::Fresh)?;
            }
        }
    }
    Ok(true)
}

/// Has one of those whose stream tables capture the source the privilege for it?
fn somebody_may_capture(source: Oid) -> Result<bool> {
    if !guc::require_trigger_privilege() {
        return Ok(true);
    }
    let users = stream_tables::users_of(pgrx::pg_sys::RelationRelationId.to_u32(), source)?;
    let capturing = |t: &StreamTable| t.differential && t.status != Status::Suspended;
    Ok(users.iter().filter(|t| capturing(t)).any(|t| may_create_triggers(t.owner, source)))
}

/// Columns that the buffer lacks or has with another type: (attnum, type as SQL, the buffer has a stale one).
fn missing_columns(source: Oid, columns: &BTreeSet<i16>) -> Result<Vec<Option<(i16, String, bool)>>> {
    let wanted: Vec<i16> = columns.iter().copied().collect();
    let rows = spi::run(
        include_str!("../../sql/queries/buffer_columns.sql"),
        &[Arg::Oid(source), Arg::Ints(&wanted), Arg::Text(&buffer_name(source))],
        Mode::Fresh,
    )?;
    let mut missing = Vec::new();
    for mut row in rows {
        if row.bool(0)? {
            missing.push(None);
            continue;
        }
        missing.push(Some((row.parse(1)?, row.text(2)?, row.bool(3)?)));
    }
    Ok(missing)
}

fn ensure_buffer(source: Oid, columns: &BTreeSet<i16>) -> Result<()> {
    let buffer = buffer(source);
    let missing = missing_columns(source, columns)?;
    if missing.iter().any(Option::is_none) {
        // No index and no statistics to keep: it is written by every write of the source and read whole.
        let create = format!(
            "CREATE TABLE {buffer} (xid xid8 NOT NULL, epoch integer NOT NULL, w integer NOT NULL) \
             WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, \
             autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000)"
        );
        spi::run_once(&create, &[], Mode::Fresh)?;
        spi::run_once(&format!("ALTER EXTENSION pgtrickle ADD TABLE {buffer}"), &[], Mode::Fresh)?;
    }
    for (attnum, type_sql, stale) in missing_columns(source, columns)?.into_iter().flatten() {
        if stale {
            spi::run_once(&format!("ALTER TABLE {buffer} DROP COLUMN c{attnum}"), &[], Mode::Fresh)?;
        }
        spi::run_once(&format!("ALTER TABLE {buffer} ADD COLUMN c{attnum} {type_sql}"), &[], Mode::Fresh)?;
    }
    without_statistics(&buffer)
}

/// Capture puts triggers on its sources, with whose cost their writers have to live: that takes what CREATE TRIGGER takes.
/// Asked whenever they are made or relied on, so by each refresh, and for partitioned tables of the root.
pub fn require_trigger_privilege(sources: impl IntoIterator<Item = Oid>, owner: Oid) -> Result<()> {
    if !guc::require_trigger_privilege() {
        return Ok(());
    }
    match sources.into_iter().find(|source| !may_create_triggers(owner, *source)) {
        None => Ok(()),
        Some(source) => Err(no_trigger_privilege(source, owner)?),
    }
}

fn no_trigger_privilege(source: Oid, owner: Oid) -> Result<Error> {
    let rows = spi::run(
        "SELECT n.nspname, c.relname, r.rolname FROM pg_catalog.pg_class c \
         JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace CROSS JOIN pg_catalog.pg_roles r \
         WHERE c.oid = $1 AND r.oid = $2",
        &[Arg::Oid(source), Arg::Oid(owner)],
        Mode::Fresh,
    )?;
    let Some(mut row) = rows.first() else {
        return Ok(Error::Internal(format!("relation {source} or role {owner} does not exist")));
    };
    let (schema, table, role) = (row.text(0)?, row.text(1)?, row.text(2)?);
    Ok(Error::Privilege {
        what: format!(
            "role {} needs the TRIGGER privilege on table {} for a stream table that captures its changes",
            sqltext::display_ident(&role),
            sqltext::display(&schema, &table)
        ),
        hint: format!(
            "GRANT TRIGGER ON {}.{} TO {}; or use refresh_mode => 'full', which captures nothing.",
            sqltext::visible_ident(&schema),
            sqltext::visible_ident(&table),
            sqltext::visible_ident(&role)
        ),
    })
}

/// Leaves out of ANALYZE what has a type that somebody made. A range type can have a function of its maker's that ANALYZE
/// calls with the rights of the table's owner, and our tables belong to a superuser.
pub fn without_statistics(table: &str) -> Result<()> {
    let rows = spi::run(
        "SELECT a.attname FROM pg_catalog.pg_attribute a WHERE a.attrelid = $1::pg_catalog.regclass \
         AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384 AND a.attstattarget IS DISTINCT FROM 0",
        &[Arg::Text(table)],
        Mode::Fresh,
    )?;
    for mut row in rows {
        let column = sqltext::ident(&row.text(0)?);
        spi::run_once(
            &format!("ALTER TABLE {table} ALTER COLUMN {column} SET STATISTICS 0"),
            &[],
            Mode::Fresh,
        )?;
    }
    Ok(())
}

/// Triggers that are missing or not ENABLE ALWAYS: (name, table, CREATE TRIGGER when it is missing).
fn missing_triggers(source: Oid) -> Result<Vec<(String, String, Option<String>)>> {
    let (row, truncate) = (row_trigger(source), truncate_trigger(source));
    let rows = spi::run(
        include_str!("../../sql/queries/capture_triggers.sql"),
        &[Arg::Oid(source), Arg::Text(&row), Arg::Text(&truncate)],
        Mode::Fresh,
    )?;
    let mut found = Vec::new();
    for mut line in rows {
        let (table, for_rows, exists) = (line.text(0)?, line.bool(1)?, line.bool(2)?);
        let (name, events, level) = if for_rows {
            (&row, "INSERT OR UPDATE OR DELETE", "ROW")
        } else {
            (&truncate, "TRUNCATE", "STATEMENT")
        };
        let create = (!exists).then(|| {
            format!(
                "CREATE TRIGGER {} AFTER {events} ON {table} FOR EACH {level} EXECUTE FUNCTION pgtrickle._capture({})",
                sqltext::ident(name),
                sqltext::literal(&source.to_string())
            )
        });
        found.push((name.clone(), table, create));
    }
    Ok(found)
}

/// Removes triggers and buffer.
fn remove(source: Oid) -> Result<()> {
    for name in [row_trigger(source), truncate_trigger(source)] {
        let rows = spi::run(
            "SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) \
             FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid \
             JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
             WHERE t.tgname = $1 AND t.tgparentid = 0",
            &[Arg::Text(&name)],
            Mode::Fresh,
        )?;
        for mut row in rows {
            let sql = format!("DROP TRIGGER {} ON {}", sqltext::ident(&name), row.text(0)?);
            spi::run_once(&sql, &[], Mode::Fresh)?;
        }
    }
    drop_internal_table(&buffer_name(source))
}

/// Drops one of our tables, if it exists.
pub fn drop_internal_table(name: &str) -> Result<()> {
    let exists = spi::run(
        "SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = $1 AND c.relname = $2",
        &[Arg::Text(INTERNAL_SCHEMA), Arg::Text(name)],
        Mode::Fresh,
    )?;
    if exists.first().is_some() {
        let table = sqltext::qualified(INTERNAL_SCHEMA, name);
        spi::run_once(&format!("ALTER EXTENSION pgtrickle DROP TABLE {table}"), &[], Mode::Fresh)?;
        spi::run_once(&format!("DROP TABLE {table}"), &[], Mode::Fresh)?;
    }
    Ok(())
}

/// While all users of a source are suspended nothing consumes its buffer: it is dropped, so that it can't grow. The
/// triggers stay, as no-ops; resuming makes the buffer anew and computes contents anew.
pub fn drop_unused_buffer(source: Oid) -> Result<()> {
    if dependencies::captured_columns(source)?.is_none() {
        drop_internal_table(&buffer_name(source))?;
    }
    Ok(())
}

/// Lets a stream table's owner read what its refresh reads of the buffers.
pub fn grant_buffers(sources: &BTreeMap<Oid, BTreeSet<i16>>, owner: &str) -> Result<()> {
    for (source, columns) in sources {
        let used = columns.iter().filter(|c| **c > 0).map(|c| format!("c{c}"));
        let list: Vec<String> = ["xid", "epoch", "w"].map(String::from).into_iter().chain(used).collect();
        let sql =
            format!("GRANT SELECT ({}) ON {} TO {}", list.join(", "), buffer(*source), sqltext::ident(owner));
        outside_extension(&buffer(*source), || spi::run_once(&sql, &[], Mode::Fresh))?;
    }
    Ok(())
}

/// Runs `f` while `table` is no member of the extension. What a member's privileges are when it becomes one counts as
/// given by the extension: later grants would be dumped, for a table that is not.
pub fn outside_extension<T>(table: &str, f: impl FnOnce() -> Result<T>) -> Result<T> {
    spi::run_once(&format!("ALTER EXTENSION pgtrickle DROP TABLE {table}"), &[], Mode::Fresh)?;
    let result = f()?;
    spi::run_once(&format!("ALTER EXTENSION pgtrickle ADD TABLE {table}"), &[], Mode::Fresh)?;
    Ok(result)
}

/// Unconsumed changes of a source for a frontier: number of rows, and of marks among them.
pub fn pending(source: Oid, frontier: &str, own_xid: &str, epoch: i32) -> Result<(i64, i64)> {
    let sql = format!(
        "SELECT count(*), count(*) FILTER (WHERE b.w = 0) FROM {} b WHERE {}",
        buffer(source),
        crate::dvm::delta::unconsumed("b")
    );
    let rows = spi::run(&sql, &frontier_args(frontier, own_xid, epoch.into()), Mode::Read)?;
    match rows.first() {
        Some(mut row) => Ok((row.parse(0)?, row.parse(1)?)),
        None => Err(Error::Internal("count(*) returned no row".into())),
    }
}

/// `$1` pg_snapshot, `$2` xid8, `$3` epoch, as `dvm::delta::unconsumed` has them.
pub fn frontier_args<'a>(frontier: &'a str, own_xid: &'a str, epoch: i64) -> [Arg<'a>; 3] {
    [
        Arg::Literal(pgrx::pg_sys::PG_SNAPSHOTOID, frontier),
        Arg::Literal(pgrx::pg_sys::XID8OID, own_xid),
        Arg::Int(epoch),
    ]
}

/// Does the buffer exist?
pub fn buffer_exists(source: Oid) -> Result<bool> {
    Ok(spi::run(
        "SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = $1 AND c.relname = $2",
        &[Arg::Text(INTERNAL_SCHEMA), Arg::Text(&buffer_name(source))],
        Mode::Fresh,
    )?
    .first()
    .is_some())
}

/// Deletes what every user of the source has consumed. Only rows that are in all frontiers: a late commit stays.
pub fn trim(source: Oid) -> Result<()> {
    if !try_lock_ours(Ours::Buffer(source))? {
        return Ok(());
    }
    let mut users = Vec::new();
    for table in stream_tables::users_of(pgrx::pg_sys::RelationRelationId.to_u32(), source)? {
        // Others read the table first, not the buffer, and start from there.
        let reads = table.differential && table.status != Status::Suspended;
        if reads && table.reinitialize.is_none() && table.frontier.is_some() {
            users.push(table);
        }
    }
    if users.is_empty() {
        return Ok(());
    }
    let passed: Vec<String> = (0..users.len()).map(|i| consumed("b", 3 * i + 1)).collect();
    let sql = format!("DELETE FROM {} b WHERE {}", buffer(source), passed.join(" AND "));
    let mut args = Vec::new();
    for table in &users {
        let frontier = table.frontier.as_deref().ok_or_else(|| Error::Internal("no frontier".into()))?;
        args.extend(frontier_args(frontier, &table.own_xid, table.epoch.into()));
    }
    spi::run(&sql, &args, Mode::InSnapshot)?;
    Ok(())
}
