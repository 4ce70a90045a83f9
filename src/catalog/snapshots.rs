//! `pgtrickle.pgt_schema_snapshots`: what tables looked like, and who changed them.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use crate::catalog::{self, tables::SCHEMA_SNAPSHOTS};
use crate::drift::account::{Entry, Moment, Why};
use crate::error::{Error, Result};
use crate::model::Oid;
use crate::pg::guc::Retention;
use crate::pg::lock::{LockMode, try_lock_own};
use crate::pg::names;
use crate::pg::snapshot::with_transaction_snapshot;
use crate::pg::spi::{self, Arg, Mode, Row};
use crate::snapshot::profile::TableProfile;
use crate::snapshot::shape::TableShape;

/// Who does it, by which command, from where.
#[derive(Debug, Clone)]
pub struct Circumstance {
    pub actor: String,
    pub command_tag: Option<String>,
    pub statement: Option<String>,
    pub application: Option<String>,
    /// What the session says its tables are copies of.
    pub resource_identity: Option<String>,
    /// pgtrickle's own command.
    pub own: bool,
    /// Inside CREATE or ALTER EXTENSION.
    pub in_extension: bool,
    /// Columns that the command names in ALTER COLUMN ... TYPE, where the command is known.
    pub retyped: Option<BTreeSet<String>>,
    /// Digest of what the command began with, where that is known.
    pub made_from: Option<String>,
    /// Recording something of this command took all of its time: the rest of it would as well.
    pub out_of_time: Rc<Cell<bool>>,
}

/// One snapshot to be stored.
pub struct Snapshot<'a> {
    /// See [`crate::pg::origin`].
    pub origin: i64,
    pub shape: &'a TableShape,
    pub profile: &'a TableProfile,
    pub schema_hash: &'a str,
    pub why: Why,
    pub moment: Moment,
}

/// Adds a snapshot.
pub fn insert(snapshot: &Snapshot, by: &Circumstance) -> Result<()> {
    let shape = snapshot.shape;
    let columns = i64::try_from(shape.columns.len()).unwrap_or(i64::MAX);
    let retyped = by.retyped.as_ref().map(serde_json::to_string).transpose();
    let retyped = retyped.map_err(|e| Error::Internal(format!("unwritable column names: {e}")))?;
    let estimate = shape.row_estimate.map(|n| n.to_string());
    catalog::insert(
        &SCHEMA_SNAPSHOTS,
        &[
            ("origin", "$1"),
            ("relation", "$2"),
            ("schema_name", "$3"),
            ("table_name", "$4"),
            ("reason", "$5"),
            ("moment", "$6"),
            ("alive", "$7"),
            ("schema_hash", "$8"),
            ("digest", "$9"),
            ("fingerprint", "$10"),
            ("made_from", "$11"),
            ("relkind", "$12"),
            ("relpersistence", "$13"),
            ("retyped", "$14"),
            ("column_count", "$15"),
            ("row_estimate", "$16"),
            ("stats_available", "$17"),
            ("shape", "$18"),
            ("profile", "$19"),
            ("actor", "$20"),
            ("command_tag", "$21"),
            ("statement", "$22"),
            ("application", "$23"),
            ("resource_identity", "$24"),
            ("own", "$25"),
            ("in_extension", "$26"),
        ],
        &[
            Arg::Int(snapshot.origin),
            Arg::Oid(shape.oid),
            Arg::Text(&shape.schema),
            Arg::Text(&shape.name),
            Arg::Text(snapshot.why.word()),
            Arg::OptText(snapshot.moment.word()),
            Arg::Bool(snapshot.why != Why::Drop),
            Arg::Text(snapshot.schema_hash),
            Arg::Text(&shape.content_digest()?),
            Arg::Text(&shape.fingerprint()?[..32]),
            Arg::OptText(by.made_from.as_deref()),
            Arg::Text(shape.kind.encode_utf8(&mut [0; 4])),
            Arg::Text(shape.persistence.encode_utf8(&mut [0; 4])),
            Arg::OptText(retyped.as_deref()),
            Arg::Int(columns),
            Arg::OptText(estimate.as_deref()),
            Arg::Bool(snapshot.profile.is_available()),
            Arg::Text(&shape.to_json()?),
            Arg::Text(&snapshot.profile.to_json()?),
            Arg::Text(&by.actor),
            Arg::OptText(by.command_tag.as_deref()),
            Arg::OptText(by.statement.as_deref()),
            Arg::OptText(by.application.as_deref()),
            Arg::OptText(by.resource_identity.as_deref()),
            Arg::Bool(by.own),
            Arg::Bool(by.in_extension),
        ],
        Mode::Fresh,
    )
}

/// Is the newest snapshot of this relation just this one?
pub fn is_newest(snapshot: &Snapshot) -> Result<bool> {
    let rows = spi::run(
        "SELECT digest = $3 AND profile = $4 FROM pgtrickle.pgt_schema_snapshots \
         WHERE relation = $2 AND origin = $1 ORDER BY snapshot_id DESC LIMIT 1",
        &[
            Arg::Int(snapshot.origin),
            Arg::Oid(snapshot.shape.oid),
            Arg::Text(&snapshot.shape.content_digest()?),
            Arg::Text(&snapshot.profile.to_json()?),
        ],
        Mode::Fresh,
    )?;
    rows.first().map_or(Ok(false), |mut row| row.bool(0))
}

/// An error while the table is missing.
pub fn exists() -> Result<()> {
    let found = names::own_relation(c"pgt_schema_snapshots");
    found.map(|_| ()).ok_or_else(|| Error::OwnTableMissing { name: "pgtrickle.pgt_schema_snapshots".into() })
}

/// Takes a lock on the table, at once or not at all.
pub fn try_lock(mode: LockMode) -> Result<()> {
    try_lock_own(c"pgt_schema_snapshots", mode)
}

/// Digest of the newest snapshot of each of these relations that has one.
pub fn newest_digests(origin: i64, relations: &[Oid]) -> Result<BTreeMap<Oid, String>> {
    spi::run(
        "SELECT DISTINCT ON (relation) relation, digest FROM pgtrickle.pgt_schema_snapshots \
         WHERE relation = ANY ($2) AND origin = $1 ORDER BY relation, snapshot_id DESC",
        &[Arg::Int(origin), Arg::Oids(relations)],
        Mode::Fresh,
    )?
    .into_iter()
    .map(|mut row| Ok((row.parse(0)?, row.text(1)?)))
    .collect()
}

/// Shape of the newest snapshot of a relation.
pub fn newest_shape(origin: i64, relation: Oid) -> Result<Option<TableShape>> {
    try_lock(LockMode::AccessShare)?;
    let rows = spi::run(
        "SELECT shape FROM pgtrickle.pgt_schema_snapshots WHERE relation = $2 AND origin = $1 \
         ORDER BY snapshot_id DESC LIMIT 1",
        &[Arg::Int(origin), Arg::Oid(relation)],
        Mode::Fresh,
    )?;
    rows.first().map(|mut row| TableShape::from_json(&row.text(0)?)).transpose()
}

/// Recorded snapshots without their shapes and profiles, in two lists of equal length.
#[derive(Debug, Default)]
pub struct Recorded {
    pub entries: Vec<Entry>,
    pub notes: Vec<Note>,
}

/// What else is known of one.
#[derive(Debug)]
pub struct Note {
    /// When it was taken, in microseconds as PostgreSQL counts them.
    pub at: i64,
    pub actor: String,
    /// Columns that its command altered the type of, where the command is known.
    pub retyped: Option<BTreeSet<String>>,
    /// Digest of what its command began with.
    pub made_from: Option<String>,
    /// Of the shape with its evidence: where two of one relation are equal, no row was computed anew either.
    pub fingerprint: String,
    /// So many drops of tables of this name and shape it tells of.
    pub times: i64,
}

/// Which snapshots are wanted.
pub enum Of<'a> {
    /// All.
    All,
    /// These rows.
    Ids(&'a [i64]),
    /// Those of the tables that were once called so.
    Table { schema: &'a str, name: &'a str },
}

/// Snapshots in the order of time. This and all that follows reads through the active snapshot, so that what several statements
/// tell fits together.
pub fn load(of: Of) -> Result<Recorded> {
    const SELECT: &str = include_str!("../../sql/queries/snapshot_rows.sql");
    let rows = match of {
        Of::All => spi::run(SELECT, &[], Mode::Read),
        Of::Ids(ids) => {
            spi::run(&format!("{SELECT} WHERE s.snapshot_id = ANY ($1)"), &[Arg::BigInts(ids)], Mode::Read)
        }
        Of::Table { schema, name } => spi::run(
            &format!(
                "{SELECT} WHERE (s.origin, s.relation) IN (SELECT k.origin, k.relation \
                 FROM pgtrickle.pgt_schema_snapshots k WHERE k.schema_name = $1 AND k.table_name = $2) \
                 ORDER BY s.snapshot_id"
            ),
            &[Arg::Text(schema), Arg::Text(name)],
            Mode::Read,
        ),
    }?;
    let mut all = Recorded::default();
    for row in rows {
        let (entry, note) = recorded(row)?;
        all.entries.push(entry);
        all.notes.push(note);
    }
    Ok(all)
}

fn recorded(mut row: Row) -> Result<(Entry, Note)> {
    let unknown = |word: String| Error::Internal(format!("unknown word {word:?} in a schema snapshot"));
    let letter = |text: String| text.chars().next().ok_or_else(|| unknown(text));
    let (why, moment) = (row.text(9)?, row.opt(10));
    let entry = Entry {
        id: row.parse(0)?,
        origin: row.parse(1)?,
        relation: row.parse(2)?,
        schema: row.text(3)?,
        table: row.text(4)?,
        kind: letter(row.text(5)?)?,
        persistence: letter(row.text(6)?)?,
        columns: row.parse(7)?,
        rows: row.opt(8).map(|n| n.parse().map_err(|_| unknown(n))).transpose()?,
        why: Why::from_word(&why).ok_or_else(|| unknown(why))?,
        moment: Moment::from_word(moment.as_deref()).ok_or_else(|| unknown(moment.unwrap_or_default()))?,
        digest: row.text(11)?,
        identity: row.opt(12),
        command_tag: row.opt(13),
        own: row.bool(14)?,
        in_extension: row.bool(15)?,
    };
    Ok((
        entry,
        Note {
            at: row.parse(16)?,
            actor: row.text(17)?,
            retyped: names(row.opt(18))?,
            made_from: row.opt(19),
            fingerprint: row.text(20)?,
            times: row.parse(21)?,
        },
    ))
}

/// Shapes of these snapshots.
pub fn shapes(ids: &[i64]) -> Result<HashMap<i64, TableShape>> {
    spi::run(
        "SELECT snapshot_id, shape FROM pgtrickle.pgt_schema_snapshots WHERE snapshot_id = ANY ($1)",
        &[Arg::BigInts(ids)],
        Mode::Read,
    )?
    .into_iter()
    .map(|mut row| Ok((row.parse(0)?, TableShape::from_json(&row.text(1)?)?)))
    .collect()
}

/// Value profiles of these snapshots.
pub fn profiles(ids: &[i64]) -> Result<HashMap<i64, TableProfile>> {
    spi::run(
        "SELECT snapshot_id, profile FROM pgtrickle.pgt_schema_snapshots WHERE snapshot_id = ANY ($1)",
        &[Arg::BigInts(ids)],
        Mode::Read,
    )?
    .into_iter()
    .map(|mut row| Ok((row.parse(0)?, TableProfile::from_json(&row.text(1)?)?)))
    .collect()
}

/// The snapshots of a relation after one of its snapshots, up to another one of them and included, in the order of time: each
/// with the columns that its command altered the type of, by the names that they had then; none where no command is known.
pub fn retyped_between(
    origin: i64,
    relation: Oid,
    after: i64,
    until: i64,
) -> Result<Vec<(i64, Option<BTreeSet<String>>)>> {
    spi::run(
        "SELECT snapshot_id, retyped FROM pgtrickle.pgt_schema_snapshots \
         WHERE relation = $2 AND origin = $1 AND snapshot_id > $3 AND snapshot_id <= $4 ORDER BY snapshot_id",
        &[Arg::Int(origin), Arg::Oid(relation), Arg::Int(after), Arg::Int(until)],
        Mode::Read,
    )?
    .into_iter()
    .map(|mut row| Ok((row.parse(0)?, names(row.opt(1))?)))
    .collect()
}

/// Column names as `retyped` holds them.
fn names(json: Option<String>) -> Result<Option<BTreeSet<String>>> {
    json.map(|json| serde_json::from_str(&json))
        .transpose()
        .map_err(|e| Error::Internal(format!("unreadable column names: {e}")))
}

/// Schemas under which something is recorded of a table of this name.
pub fn schemas_of(table: &str) -> Result<Vec<String>> {
    spi::run(
        "SELECT DISTINCT schema_name FROM pgtrickle.pgt_schema_snapshots WHERE table_name = $1 ORDER BY 1",
        &[Arg::Text(table)],
        Mode::Read,
    )?
    .into_iter()
    .map(|mut row| row.text(0))
    .collect()
}

/// Removes snapshots beyond the newest `keep_last` of their table that are older than `older_than`, an interval as text.
/// Returns how many.
pub fn prune(keep_last: i32, older_than: Option<&str>) -> Result<i64> {
    let gone = catalog::delete(
        &SCHEMA_SNAPSHOTS,
        concat!("t.snapshot_id IN (", include_str!("../../sql/queries/prune_snapshots.sql"), ")"),
        &[Arg::Int(keep_last.into()), Arg::OptText(older_than), Arg::Int(crate::pg::origin())],
        Mode::Fresh,
    )?;
    Ok(catalog::count(gone))
}

/// Removes what the scheduler's policy does not keep, the oldest first and at most `batch`; returns how many.
pub fn enforce(policy: &Retention, batch: i64) -> Result<i64> {
    let gone = catalog::delete(
        &SCHEMA_SNAPSHOTS,
        concat!("t.snapshot_id IN (", include_str!("../../sql/queries/retain_snapshots.sql"), ")"),
        &[
            Arg::Int(policy.snapshot_keep_last.into()),
            Arg::Int(policy.snapshot_max_age.into()),
            Arg::Int(crate::pg::origin()),
            Arg::Int(policy.snapshot_max_dropped.into()),
            Arg::Int(batch),
        ],
        Mode::Fresh,
    )?;
    Ok(catalog::count(gone))
}

/// Drops that the next snapshot of their name tells as well become one row with it, which counts them: the oldest, at most
/// `batch`. Returns how many went.
pub fn fold(batch: i64) -> Result<i64> {
    // Counted and deleted through one snapshot.
    with_transaction_snapshot(|| {
        let rows = spi::run(
            include_str!("../../sql/queries/fold_snapshots.sql"),
            &[Arg::Int(batch)],
            Mode::InSnapshot,
        )?;
        let (mut gone, mut folded) = (Vec::new(), BTreeMap::new());
        for mut row in rows {
            gone.push(row.parse::<i64>(0)?);
            let (times, first): (i64, i64) = (row.parse(2)?, row.parse(3)?);
            let sum = folded.entry(row.parse::<i64>(1)?).or_insert((0, first));
            *sum = (sum.0 + times, sum.1.min(first));
        }
        if gone.is_empty() {
            return Ok(0);
        }
        let stays: Vec<i64> = folded.keys().copied().collect();
        let times: Vec<i64> = folded.values().map(|(times, _)| *times).collect();
        let firsts: Vec<i64> = folded.values().map(|(_, first)| *first).collect();
        const AT: &str = "pg_catalog.array_position($1, t.snapshot_id)";
        catalog::update(
            &SCHEMA_SNAPSHOTS,
            &[
                ("times", &format!("t.times + ($2)[{AT}]")),
                (
                    "first_captured_at",
                    &format!(
                        "LEAST(COALESCE(t.first_captured_at, t.captured_at), pg_catalog.timestamptz 'epoch' + ($3)[{AT}] * pg_catalog.interval '1 microsecond')"
                    ),
                ),
            ],
            "t.snapshot_id = ANY ($1)",
            &[Arg::BigInts(&stays), Arg::BigInts(&times), Arg::BigInts(&firsts)],
            Mode::InSnapshot,
        )?;
        catalog::delete(
            &SCHEMA_SNAPSHOTS,
            "t.snapshot_id = ANY ($1)",
            &[Arg::BigInts(&gone)],
            Mode::InSnapshot,
        )
        .map(catalog::count)
    })
}
