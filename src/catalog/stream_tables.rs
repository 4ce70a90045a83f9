//! `pgtrickle.pgt_stream_tables`.
#![forbid(unsafe_code)]

use crate::catalog::{self, dependencies, tables::STREAM_TABLES};
use crate::dvm::frontier::Frontier;
use crate::error::{Error, Result};
use crate::model::{Oid, RefreshMode, Status};
use crate::pg::own_rows;
use crate::pg::query::{Analysis, Parsed};
use crate::pg::snapshot;
use crate::pg::spi::{self, Arg, Mode, Row};
use crate::sqltext;
use crate::sqltext::rows::Assignment;

/// One row, with the table's present name and owner.
#[derive(Debug, Clone)]
pub struct StreamTable {
    pub relid: Oid,
    pub schema: String,
    pub name: String,
    pub owner: Oid,
    pub query: String,
    pub tree: String,
    pub columns: Vec<i16>,
    pub mode: RefreshMode,
    pub differential: bool,
    pub comparable: bool,
    pub full_reasons: Vec<String>,
    pub status: Status,
    pub reason: Option<String>,
    pub detail: Option<String>,
    pub hint: Option<String>,
    pub reinitialize: Option<String>,
    pub frontier: Option<String>,
    pub own_xid: String,
    pub epoch: i32,
    pub version: i64,
    /// There are tasks, of this stream table or others.
    pub has_tasks: bool,
}

impl StreamTable {
    /// Up to where it has consumed its sources' changes; None when it must start from the tables.
    pub fn frontier(&self) -> Result<Option<Frontier>> {
        let parse = |snapshot: &String| Frontier::parse(snapshot, &self.own_xid, self.epoch);
        self.frontier.as_ref().map(parse).transpose()
    }

    /// Would contents that were computed by the other row be right for this one? Names alone may differ.
    pub fn computes_as(&self, other: &StreamTable) -> bool {
        self.reinitialize.is_none()
            && self.status == other.status
            && self.owner == other.owner
            && self.mode == other.mode
            && self.differential == other.differential
            && self.columns == other.columns
            && self.tree == other.tree
            && self.frontier == other.frontier
    }

    /// `"schema"."name"`.
    pub fn quoted(&self) -> String {
        sqltext::qualified(&self.schema, &self.name)
    }

    /// `schema.name` as people read it; `sqltext::regclass_literal` makes it what `::regclass` takes.
    pub fn display(&self) -> String {
        sqltext::display(&self.schema, &self.name)
    }
}

const SELECT: &str = "SELECT s.relid, coalesce(n.nspname, s.table_schema), coalesce(c.relname, s.table_name), \
    coalesce(c.relowner, 0), s.query, s.query_tree, s.columns, s.refresh_mode, s.differential, s.comparable, \
    s.full_reasons, s.status, s.reason, s.detail, s.hint, s.reinitialize, s.frontier, s.own_xid, s.epoch, s.version, \
    EXISTS (SELECT FROM pgtrickle.pgt_tasks) \
    FROM pgtrickle.pgt_stream_tables s \
    LEFT JOIN pg_catalog.pg_class c ON c.oid = s.relid \
    LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace";

fn read(mut row: Row) -> Result<StreamTable> {
    let bad = |what: &str| Error::Internal(format!("unexpected {what} in pgt_stream_tables"));
    let columns = spi::text_array(&row.text(6)?)?
        .iter()
        .map(|c| c.parse().map_err(|_| bad("column number")))
        .collect::<Result<_>>()?;
    Ok(StreamTable {
        relid: row.parse(0)?,
        schema: row.text(1)?,
        name: row.text(2)?,
        owner: row.parse(3)?,
        query: row.text(4)?,
        tree: row.text(5)?,
        columns,
        mode: RefreshMode::from_word(&row.text(7)?).ok_or_else(|| bad("refresh_mode"))?,
        differential: row.bool(8)?,
        comparable: row.bool(9)?,
        full_reasons: spi::text_array(&row.text(10)?)?,
        status: Status::from_word(&row.text(11)?).ok_or_else(|| bad("status"))?,
        reason: row.opt(12),
        detail: row.opt(13),
        hint: row.opt(14),
        reinitialize: row.opt(15),
        frontier: row.opt(16),
        own_xid: row.text(17)?,
        epoch: row.parse(18)?,
        version: row.parse(19)?,
        has_tasks: row.bool(20)?,
    })
}

/// The row, if `relid` is a stream table.
pub fn find(relid: Oid) -> Result<Option<StreamTable>> {
    let rows = spi::run(&format!("{SELECT} WHERE s.relid = $1"), &[Arg::Oid(relid)], Mode::Fresh)?;
    rows.first().map(read).transpose()
}

/// Stream tables that depend on any of the objects (class, object), by oid.
pub fn users_of(class: Oid, object: Oid) -> Result<Vec<StreamTable>> {
    let sql = format!(
        "{SELECT} WHERE s.relid IN (SELECT d.relid FROM pgtrickle.pgt_dependencies d \
         WHERE d.class = $1 AND d.object = $2) ORDER BY s.relid"
    );
    spi::run(&sql, &[Arg::Oid(class), Arg::Oid(object)], Mode::Fresh)?.into_iter().map(read).collect()
}

/// What is stored of a query when it is set.
pub struct Definition<'a> {
    pub parsed: &'a Parsed,
    pub analysis: &'a Analysis,
    pub columns: &'a [i16],
    pub differential: bool,
    pub full_reasons: &'a [String],
}

fn text_array(values: &[String]) -> String {
    let quoted: Vec<String> =
        values.iter().map(|v| format!("\"{}\"", v.replace('\\', "\\\\").replace('"', "\\\""))).collect();
    format!("{{{}}}", quoted.join(","))
}

/// Adds a row, not yet filled.
pub fn insert(
    relid: Oid,
    schema: &str,
    name: &str,
    definition: &Definition,
    schedule: Option<&str>,
    mode: RefreshMode,
) -> Result<()> {
    catalog::insert(
        &STREAM_TABLES,
        &[
            ("relid", "$1"),
            ("table_schema", "$2"),
            ("table_name", "$3"),
            ("query", "$4"),
            ("query_tree", "$5"),
            ("columns", "$6"),
            ("schedule", "$7"),
            ("refresh_mode", "$8"),
            ("differential", "$9"),
            ("comparable", "$10"),
            ("full_reasons", "$11"),
            ("status", "'uninitialized'"),
        ],
        &[
            Arg::Oid(relid),
            Arg::Text(schema),
            Arg::Text(name),
            Arg::Text(&definition.parsed.text),
            Arg::Text(&definition.parsed.tree),
            Arg::Ints(definition.columns),
            Arg::OptText(schedule),
            Arg::Text(mode.word()),
            Arg::Bool(definition.differential),
            Arg::Bool(definition.analysis.comparable()),
            Arg::Text(&text_array(definition.full_reasons)),
        ],
        Mode::Fresh,
    )
}

/// Changes columns of the row of `$1`, which this transaction has claimed or changed: nobody else can, until it ends.
fn set(values: &[Assignment], args: &[Arg]) -> Result<()> {
    catalog::update(&STREAM_TABLES, values, "t.relid = $1", args, Mode::Fresh)
}

/// Changes columns of the row `$1` as it was read: of version `$2`. False: it is another one by now, and what was made of
/// it does not hold.
fn set_as_read(values: &[Assignment], args: &[Arg], mode: Mode) -> Result<bool> {
    let sql = STREAM_TABLES.update(values, "t.relid = $1 AND t.version = $2")?;
    Ok(own_rows::put(&STREAM_TABLES, &sql, args, mode)? > 0)
}

/// Every change of a definition or of its state makes a new one, except what a refresh itself says of its end.
const NEW_VERSION: Assignment = ("version", "t.version + 1");

/// Makes the row, as it was read, this transaction's own until it ends: others who want to change it leave tasks. None: it is
/// another one by now.
pub fn claim(table: &StreamTable) -> Result<Option<StreamTable>> {
    let args = [Arg::Oid(table.relid), Arg::Int(table.version)];
    let claimed = set_as_read(&[NEW_VERSION], &args, Mode::Fresh)?;
    Ok(claimed.then(|| StreamTable { version: table.version + 1, ..table.clone() }))
}

/// As `claim`, without a new version: for a transaction that reads through one snapshot, in which another refresh that has ended
/// since is an error now, and not when its rows are met. False: the row is another one.
pub fn hold(table: &StreamTable) -> Result<bool> {
    set_as_read(&[], &[Arg::Oid(table.relid), Arg::Int(table.version)], Mode::InSnapshot)
}

/// The present row of a stream table, claimed.
pub fn claim_present(relid: Oid) -> Result<StreamTable> {
    // As often as `own_rows` looks again.
    for _ in 0..10 {
        let table =
            find(relid)?.ok_or_else(|| Error::NotAStreamTable { name: format!("relation {relid}") })?;
        if let Some(claimed) = claim(&table)? {
            return Ok(claimed);
        }
    }
    Err(Error::ConcurrentChange { what: "pgtrickle.pgt_stream_tables".into() })
}

/// The error of a row that is not any more what was read.
fn changed(table: &StreamTable) -> Error {
    Error::ConcurrentChange { what: format!("the definition of {}", table.display()) }
}

/// Replaces query and plan; contents have to be computed anew before they are right. The row is claimed.
pub fn set_query(relid: Oid, definition: &Definition) -> Result<()> {
    set(
        &[
            ("query", "$2"),
            ("query_tree", "$3"),
            ("columns", "$4"),
            ("differential", "$5"),
            ("comparable", "$6"),
            ("full_reasons", "$7"),
            ("reinitialize", "'its query was set'"),
            ("frontier", "NULL"),
            NEW_VERSION,
        ],
        &[
            Arg::Oid(relid),
            Arg::Text(&definition.parsed.text),
            Arg::Text(&definition.parsed.tree),
            Arg::Ints(definition.columns),
            Arg::Bool(definition.differential),
            Arg::Bool(definition.analysis.comparable()),
            Arg::Text(&text_array(definition.full_reasons)),
        ],
    )
}

/// Names changed: the query is printed again. True: it was another one.
pub fn set_text(table: &StreamTable, query: &str) -> Result<bool> {
    let values = [("table_schema", "$3"), ("table_name", "$4"), ("query", "$5"), NEW_VERSION];
    let other = "t.relid = $1 AND t.version = $2 \
        AND (t.table_schema, t.table_name, t.query) IS DISTINCT FROM ($3, $4, $5)";
    let args = [
        Arg::Oid(table.relid),
        Arg::Int(table.version),
        Arg::Text(&table.schema),
        Arg::Text(&table.name),
        Arg::Text(query),
    ];
    put_if_other(table, &STREAM_TABLES.update(&values, other)?, &args)
}

/// Writes a row that is still as it was read, where it is to be another one. False: it need not be.
fn put_if_other(table: &StreamTable, sql: &str, args: &[Arg]) -> Result<bool> {
    if own_rows::put(&STREAM_TABLES, sql, args, Mode::Fresh)? > 0 {
        return Ok(true);
    }
    match find(table.relid)? {
        Some(now) if now.version != table.version => Err(changed(table)),
        _ => Ok(false),
    }
}

/// Schedule (NULL: by hand) and mode. The row is claimed.
pub fn set_options(relid: Oid, schedule: Option<&str>, mode: RefreshMode) -> Result<()> {
    set(
        &[("schedule", "$2"), ("refresh_mode", "$3"), NEW_VERSION],
        &[Arg::Oid(relid), Arg::OptText(schedule), Arg::Text(mode.word())],
    )
}

/// The next refresh computes everything anew; one that is running now finds another version at its end.
pub fn set_reinitialize(relid: Oid, why: &str) -> Result<()> {
    set(&[("reinitialize", "$2"), NEW_VERSION], &[Arg::Oid(relid), Arg::Text(why)])
}

/// Suspends; contents are computed anew when it resumes, so buffers need not wait for it. False: the row is another one by
/// now.
pub fn set_suspended(table: &StreamTable, reason: &str, detail: &str, hint: &str) -> Result<bool> {
    set_as_read(
        &[
            ("status", "'suspended'"),
            ("reason", "$3"),
            ("detail", "$4"),
            ("hint", "$5"),
            ("reinitialize", "'it was suspended'"),
            ("frontier", "NULL"),
            NEW_VERSION,
        ],
        &[
            Arg::Oid(table.relid),
            Arg::Int(table.version),
            Arg::Text(reason),
            Arg::Text(detail),
            Arg::Text(hint),
        ],
        Mode::Fresh,
    )
}

/// Adds a sentence to what is told of a suspension; an error where somebody else is changing the row.
pub fn add_detail(relid: Oid, sentence: &str) -> Result<()> {
    set(&[("detail", "t.detail || ' ' || $2"), NEW_VERSION], &[Arg::Oid(relid), Arg::Text(sentence)])
}

/// The next call to type, with present names.
pub fn set_hint(table: &StreamTable, hint: &str) -> Result<()> {
    let sql = STREAM_TABLES
        .update(&[("hint", "$3")], "t.relid = $1 AND t.version = $2 AND t.hint IS DISTINCT FROM $3")?;
    let args = [Arg::Oid(table.relid), Arg::Int(table.version), Arg::Text(hint)];
    put_if_other(table, &sql, &args).map(|_| ())
}

/// Ends a suspension.
pub fn set_resumed(table: &StreamTable) -> Result<()> {
    let values = [
        ("status", "CASE WHEN t.last_refresh IS NULL THEN 'uninitialized' ELSE 'active' END"),
        ("reason", "NULL"),
        ("detail", "NULL"),
        ("hint", "NULL"),
        NEW_VERSION,
    ];
    let args = [Arg::Oid(table.relid), Arg::Int(table.version)];
    if set_as_read(&values, &args, Mode::Fresh)? { Ok(()) } else { Err(changed(table)) }
}

/// Contents are right as of `frontier`, own rows up to (`own_xid`, `epoch`) included. False: what they were computed by has
/// changed meanwhile.
pub fn set_frontier(table: &StreamTable, frontier: &str, own_xid: &str, epoch: i32) -> Result<bool> {
    set_as_read(
        &[
            ("frontier", "$3"),
            ("own_xid", "$4"),
            ("epoch", "$5"),
            ("status", "'active'"),
            ("reinitialize", "NULL"),
            ("last_refresh", "pg_catalog.clock_timestamp()"),
        ],
        &[
            Arg::Oid(table.relid),
            Arg::Int(table.version),
            Arg::Text(frontier),
            Arg::Text(own_xid),
            Arg::Int(epoch.into()),
        ],
        Mode::InSnapshot,
    )
}

/// Was the row last written by this transaction itself?
pub fn is_own_write(relid: Oid) -> Result<bool> {
    let sql = "SELECT xmin::text FROM pgtrickle.pgt_stream_tables WHERE relid = $1";
    match spi::run(sql, &[Arg::Oid(relid)], Mode::Fresh)?.first() {
        Some(mut row) => Ok(snapshot::is_current(row.parse(0)?)),
        None => Ok(false),
    }
}

/// Removes the row and its dependencies.
pub fn delete(relid: Oid) -> Result<()> {
    catalog::delete(&STREAM_TABLES, "t.relid = $1", &[Arg::Oid(relid)], Mode::Fresh)?;
    dependencies::delete(relid)
}

/// A trigger state in which rows could be changed behind the query's back.
pub fn trigger_fault(relid: Oid, mode: Mode) -> Result<Option<String>> {
    if !is_guarded(relid, mode)? {
        return Ok(Some("removing, disabling or changing the guard trigger".into()));
    }
    let rows = spi::run(
        "SELECT 'a BEFORE ROW trigger' FROM pg_catalog.pg_trigger \
         WHERE tgrelid = $1 AND NOT tgisinternal AND tgtype & 3 = 3 \
         UNION ALL SELECT 'a rule' FROM pg_catalog.pg_rewrite WHERE ev_class = $1 LIMIT 1",
        &[Arg::Oid(relid)],
        mode,
    )?;
    rows.first().map(|mut row| row.text(0)).transpose()
}

/// Is the guard there as we make it? Whoever may create triggers may replace it by another one of its name.
pub fn is_guarded(relid: Oid, mode: Mode) -> Result<bool> {
    // tgtype: BEFORE 2, INSERT 4, DELETE 8, UPDATE 16, TRUNCATE 32; for each statement.
    let rows = spi::run(
        "SELECT FROM pg_catalog.pg_trigger WHERE tgrelid = $1 AND tgname = 'pgtrickle_guard' AND tgenabled = 'A' \
         AND tgtype = 62 AND tgfoid = 'pgtrickle._guard()'::pg_catalog.regprocedure::pg_catalog.oid \
         AND tgqual IS NULL AND tgattr::pg_catalog.text = ''",
        &[Arg::Oid(relid)],
        mode,
    )?;
    Ok(rows.first().is_some())
}

/// What the scheduler needs of each stream table: oid, seconds between refreshes, seconds since the last one.
pub fn scheduled() -> Result<Vec<(Oid, f64, Option<f64>)>> {
    spi::run(
        "SELECT relid, extract(epoch FROM schedule)::float8, \
         extract(epoch FROM pg_catalog.clock_timestamp() - last_refresh)::float8 \
         FROM pgtrickle.pgt_stream_tables WHERE schedule IS NOT NULL AND status <> 'suspended' ORDER BY relid",
        &[],
        Mode::Fresh,
    )?
    .into_iter()
    .map(|mut row| {
        let since = if let Some(text) = row.opt(2) {
            Some(text.parse().map_err(|_| Error::Internal("unexpected age".into()))?)
        } else {
            None
        };
        Ok((row.parse(0)?, row.parse(1)?, since))
    })
    .collect()
}
