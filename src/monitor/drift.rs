//! The account of drift over recorded snapshots: what differs between two, the history of a table, and how often what
//! happened to all of them.
#![forbid(unsafe_code)]

use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use crate::catalog::snapshots::{self, Of, Recorded};
use crate::drift::account::{Link, Moment, Pair, Pairing, Tally, pairs};
use crate::drift::change::{Change, Severity};
use crate::drift::findings::{Finding, Side, findings, guesses};
use crate::drift::words::{Step, in_words, sentences, unwitnessed};
use crate::drift::{Account, Context, Judgement, classify};
use crate::error::{Error, Result};
use crate::model::Oid;
use crate::pg::guc::{excluded_columns, rename_threshold};
use crate::pg::spi::{self, Arg, Mode};
use crate::snapshot::profile::TableProfile;
use crate::snapshot::shape::TableShape;
use crate::sqltext::display;

/// Pairs whose shapes are held at once.
const BATCH: usize = 200;
/// Differences that are remembered by the digests of their two shapes: those of a line repeat, and it is taken line by line.
const REMEMBERED: usize = 5_000;

/// What differs between two snapshots, whatever became of their tables.
pub fn diff_snapshots(before: i64, after: i64) -> Result<Vec<Finding>> {
    let rows = snapshots::load(Of::Ids(&[before, after]))?;
    let find = |id| rows.entries.iter().find(|e| e.id == id).ok_or(Error::NoSnapshot { id });
    let (earlier, later) = (find(before)?, find(after)?);
    let link = match (earlier.origin == later.origin, earlier.relation == later.relation) {
        (true, true) => Link::Same,
        (true, false) => Link::Another,
        (false, _) => Link::Restored,
    };
    let ids = [before, after];
    let (shapes, profiles) = (snapshots::shapes(&ids)?, snapshots::profiles(&ids)?);
    let (old, new) = (side(&shapes, &profiles, before)?, side(&shapes, &profiles, after)?);
    let retyped = match link {
        Link::Same => {
            let (first, last) = (before.min(after), before.max(after));
            let steps = snapshots::retyped_between(earlier.origin, earlier.relation, first, last)?;
            // By the names that they have in the snapshot that the difference begins with.
            let name = |attnum: i16| Some(old.shape.column(attnum)?.name.to_string());
            altered_between(first, &steps)?.map(|altered| altered.into_iter().filter_map(name).collect())
        }
        Link::Recreated | Link::Swapped | Link::Restored | Link::Another => None,
    };
    let changes = link.diff(old.shape, new.shape, retyped.as_ref());
    let mut found = findings(&changes, old, new, rename_threshold());
    if link == Link::Same && retyped.is_none() {
        let rewritten = changes.iter().filter(|c| matches!(c, Change::ColumnRewritten { .. }));
        let rows = found.iter_mut().filter(|row| row.change == "rewritten");
        rows.zip(rewritten).for_each(|(row, change)| row.detail = unwitnessed(change, &changes));
    }
    Ok(found)
}

fn side<'a>(
    shapes: &'a HashMap<i64, TableShape>,
    profiles: &'a HashMap<i64, TableProfile>,
    id: i64,
) -> Result<Side<'a>> {
    match (shapes.get(&id), profiles.get(&id)) {
        (Some(shape), Some(profile)) => Ok(Side { shape, profile }),
        _ => Err(Error::NoSnapshot { id }),
    }
}

/// Columns whose values were computed anew on the way from a snapshot through the ones after it, by number: on the way they
/// may have other names than at its ends. None where no command is known, so that only evidence can tell.
fn altered_between(first: i64, steps: &[(i64, Option<BTreeSet<String>>)]) -> Result<Option<BTreeSet<i16>>> {
    if steps.iter().all(|(_, retyped)| retyped.is_none()) {
        return Ok(None);
    }
    let mut altered = BTreeSet::new();
    let mut before = first;
    for batch in steps.chunks(BATCH) {
        let ids: Vec<i64> = std::iter::once(before).chain(batch.iter().map(|(id, _)| *id)).collect();
        let shapes = snapshots::shapes(&ids)?;
        for (id, retyped) in batch {
            let shape = |id: i64| shapes.get(&id).ok_or(Error::NoSnapshot { id });
            let changes = Link::Same.diff(shape(before)?, shape(*id)?, retyped.as_ref());
            altered.extend(changes.iter().filter_map(|change| match change {
                Change::ColumnTypeChanged { column, .. }
                | Change::ColumnTypmodChanged { column, .. }
                | Change::ColumnDimensionsChanged { column, .. }
                | Change::ColumnTypeKindChanged { column, .. }
                | Change::ColumnCollationChanged { column, .. }
                | Change::ColumnRewritten { column } => Some(column.attnum),
                _ => None,
            }));
            before = *id;
        }
    }
    Ok(Some(altered))
}

/// One line of a history.
pub struct Told {
    pub at: i64,
    pub snapshot: i64,
    pub table: String,
    pub actor: String,
    pub command: Option<String>,
    pub what: String,
}

/// The history of the tables that were once called so, one line for each snapshot and change, in the order of time.
pub fn history(schema: &str, name: &str) -> Result<Vec<Told>> {
    let mut rows = snapshots::load(Of::Table { schema, name })?;
    let mut neighbours = neighbours(&mut rows);
    neighbours.retain(|pair| pair.pairing == Pairing::Relation);
    let mut steps: HashMap<usize, Vec<_>> = HashMap::new();
    let mut source = Changes::of(&rows);
    for batch in neighbours.chunks(BATCH) {
        source.load(batch)?;
        for pair in batch {
            steps.entry(pair.after).or_default().push((pair.clone(), source.between(pair)?));
        }
    }
    let mut told = Vec::new();
    for (at, (entry, note)) in rows.entries.iter().zip(&rows.notes).enumerate() {
        let found = steps.get(&at).map(Vec::as_slice).unwrap_or_default();
        let known: Vec<Step> =
            found.iter().map(|(pair, changes)| Step::of(&rows.entries, pair, changes)).collect();
        let mut lines = sentences(entry, &known);
        for (pair, changes) in found {
            lines.extend(probable_renames(&rows, pair, changes)?);
        }
        if note.times > 1 {
            lines.push(format!(
                "tells of {} tables of this name and shape, dropped one after the other",
                note.times
            ));
        }
        told.extend(lines.into_iter().map(|what| Told {
            at: note.at,
            snapshot: entry.id,
            table: display(&entry.schema, &entry.table),
            actor: note.actor.clone(),
            command: entry.command_tag.clone(),
            what,
        }));
    }
    Ok(told)
}

/// What the likeness of values adds to a list of changes. Profiles are read only where they can tell something: of one
/// relation a column of the same name is the same one, of two its values may be those of another one even where the shapes
/// are alike.
fn probable_renames(rows: &Recorded, pair: &Pair, changes: &[Change]) -> Result<Vec<String>> {
    let lost = changes.iter().any(|c| matches!(c, Change::ColumnDropped { .. }));
    let gained = changes.iter().any(|c| matches!(c, Change::ColumnAdded { .. }));
    if !(lost && gained) && pair.link == Link::Same {
        return Ok(Vec::new());
    }
    let (before, after) = (&rows.entries[pair.before], &rows.entries[pair.after]);
    let replaced = [Change::RelationReplaced { before: before.relation, after: after.relation }];
    let changes = if changes.is_empty() { &replaced } else { changes };
    let ids = [before.id, after.id];
    let (shapes, profiles) = (snapshots::shapes(&ids)?, snapshots::profiles(&ids)?);
    let (before, after) = (side(&shapes, &profiles, ids[0])?, side(&shapes, &profiles, ids[1])?);
    Ok(guesses(changes, before, after, rename_threshold()))
}

/// The schema that a name without one means: the first in the caller's search_path that has a recorded table of that name,
/// else the only one.
pub fn resolve(name: &str, search_path: &[String]) -> Result<String> {
    let recorded = snapshots::schemas_of(name)?;
    if let Some(schema) = search_path.iter().find(|s| recorded.contains(s)) {
        return Ok(schema.clone());
    }
    match recorded.as_slice() {
        [] => Err(Error::NoHistory { name: crate::sqltext::display_ident(name) }),
        [only] => Ok(only.clone()),
        several => {
            let found = several.iter().map(|s| display(s, name)).collect::<Vec<_>>().join(", ");
            Err(Error::AmbiguousName { name: crate::sqltext::display_ident(name), found })
        }
    }
}

/// How often what happened since then.
pub fn report(since: i64) -> Result<Vec<Tally>> {
    let mut account = Account::default();
    judge_all(since, |rows, pair, changes, judgement| {
        account.add(&rows.entries, pair, changes, &judgement);
    })?;
    Ok(account.tallies())
}

/// One pair of neighbours and its verdict.
pub struct Verdict {
    pub before: i64,
    pub after: i64,
    pub at: i64,
    pub schema: String,
    pub table: String,
    pub pairing: &'static str,
    pub link: &'static str,
    pub judgement: Judgement,
    /// All changes of shape in words.
    pub evidence: Vec<String>,
}

/// Every pair of neighbours with its verdict, in the order of time. For those who may read the view that shows them: a view
/// hands on rights on tables, but not on a function.
pub fn verdicts(user: Oid) -> Result<Vec<Verdict>> {
    let allowed = spi::run(
        "SELECT pg_catalog.has_table_privilege($1, 'pgtrickle.schema_drift', 'SELECT')",
        &[Arg::Oid(user)],
        Mode::Fresh,
    )?;
    if !allowed.first().map_or(Ok(false), |mut row| row.bool(0))? {
        return Err(Error::Privilege {
            what: "schema_drift is for those who may read the view".into(),
            hint: "Ask a superuser to GRANT SELECT ON pgtrickle.schema_drift.".into(),
        });
    }
    let mut all = Vec::new();
    judge_all(i64::MIN, |rows, pair, changes, judgement| {
        let (before, after) = (&rows.entries[pair.before], &rows.entries[pair.after]);
        all.push(Verdict {
            before: before.id,
            after: after.id,
            at: rows.notes[pair.after].at,
            schema: after.schema.clone(),
            table: after.table.clone(),
            pairing: pair.pairing.word(),
            link: pair.link.word(),
            judgement,
            evidence: changes
                .iter()
                .filter(|c| after.tells(pair.link, c) && c.severity() > Severity::None)
                .map(|c| in_words(after, pair.link, c, changes))
                .collect(),
        });
    })?;
    all.sort_by_key(|verdict| (verdict.after, verdict.before));
    Ok(all)
}

/// Judges all neighbours of which the later one was taken since then, line by line: so that a shape, which is the later one
/// of one pair and the earlier one of the next, is read once.
fn judge_all(since: i64, mut tell: impl FnMut(&Recorded, &Pair, &[Change], Judgement)) -> Result<()> {
    let metadata = excluded_columns()?;
    let mut rows = snapshots::load(Of::All)?;
    let mut wanted = neighbours(&mut rows);
    wanted.retain(|pair| rows.notes[pair.after].at >= since);
    wanted.sort_by_key(|pair| (pair.pairing, pair.line, pair.after));
    let mut source = Changes::of(&rows);
    for batch in wanted.chunks(BATCH) {
        source.load(batch)?;
        for pair in batch {
            let changes = source.between(pair)?;
            let (before, after) = (&rows.entries[pair.before], &rows.entries[pair.after]);
            let context = Context { before, after, link: pair.link, metadata: &metadata };
            tell(&rows, pair, &changes, classify(&changes, &context));
        }
    }
    Ok(())
}

/// Differences of pairs: reading and comparing shapes is what an account takes its time for.
struct Changes<'a> {
    rows: &'a Recorded,
    shapes: HashMap<i64, TableShape>,
    /// Those that are known by the digests of the shapes.
    known: HashMap<(&'a str, &'a str, Link), Rc<Vec<Change>>>,
}

impl<'a> Changes<'a> {
    fn of(rows: &'a Recorded) -> Changes<'a> {
        Changes { rows, shapes: HashMap::new(), known: HashMap::new() }
    }

    /// Makes the shapes of a batch ready: of the first pair of each difference that is not known yet.
    fn load(&mut self, batch: &[Pair]) -> Result<()> {
        if self.known.len() > REMEMBERED {
            self.known.clear();
        }
        let mut seen = HashSet::new();
        let needed: HashSet<i64> = batch
            .iter()
            .filter(|pair| self.differs(pair))
            .filter(|pair| {
                let key = self.key(pair);
                self.by_command(pair) || (!self.known.contains_key(&key) && seen.insert(key))
            })
            .flat_map(|pair| [self.rows.entries[pair.before].id, self.rows.entries[pair.after].id])
            .collect();
        self.shapes = snapshots::shapes(&needed.into_iter().collect::<Vec<_>>())?;
        Ok(())
    }

    fn between(&mut self, pair: &Pair) -> Result<Rc<Vec<Change>>> {
        if !self.differs(pair) {
            return Ok(Rc::new(Vec::new()));
        }
        let key = self.key(pair);
        let by_command = self.by_command(pair);
        if let Some(known) = self.known.get(&key).filter(|_| !by_command) {
            return Ok(known.clone());
        }
        let shape = |at: usize| {
            let id = self.rows.entries[at].id;
            self.shapes.get(&id).ok_or(Error::NoSnapshot { id })
        };
        let retyped = self.rows.notes[pair.after].retyped.as_ref();
        let changes = Rc::new(pair.link.diff(shape(pair.before)?, shape(pair.after)?, retyped));
        if !by_command {
            self.known.insert(key, changes.clone());
        }
        Ok(changes)
    }

    /// A command that is known made the later snapshot: which columns it named is part of the difference.
    fn by_command(&self, pair: &Pair) -> bool {
        pair.link == Link::Same && self.rows.notes[pair.after].retyped.is_some()
    }

    fn differs(&self, pair: &Pair) -> bool {
        let (before, after) = self.key_of(pair);
        before != after || self.by_command(pair)
    }

    fn key(&self, pair: &Pair) -> (&'a str, &'a str, Link) {
        let (before, after) = self.key_of(pair);
        (before, after, pair.link)
    }

    /// What tells whether there is a difference. Of one relation that is the shape with its evidence, which shows rows that
    /// were computed anew; of two, the shape alone.
    fn key_of(&self, pair: &Pair) -> (&'a str, &'a str) {
        let (entries, notes) = (&self.rows.entries, &self.rows.notes);
        match pair.link {
            Link::Same => (&notes[pair.before].fingerprint, &notes[pair.after].fingerprint),
            Link::Recreated | Link::Swapped | Link::Restored | Link::Another => {
                (&entries[pair.before].digest, &entries[pair.after].digest)
            }
        }
    }
}

/// All neighbours of these snapshots. A command that is recorded with the later one of two made their difference only if it
/// began with the earlier one: else that one was not recorded, or was removed, and other commands came between.
fn neighbours(rows: &mut Recorded) -> Vec<Pair> {
    let found = pairs(&rows.entries);
    for pair in found.iter().filter(|pair| pair.link == Link::Same && pair.pairing == Pairing::Relation) {
        let made_from = rows.notes[pair.after].made_from.as_ref();
        if rows.entries[pair.after].made_by_command() && made_from != Some(&rows.entries[pair.before].digest)
        {
            rows.entries[pair.after].moment = Moment::Standing;
            rows.notes[pair.after].retyped = None;
        }
    }
    found
}
