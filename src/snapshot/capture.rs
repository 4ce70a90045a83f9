//! Recording what tables look like. It runs inside users' commands and never fails them, nor holds them up for long:
//! what could not be recorded is told in one WARNING, and counted for `health_check()`.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::rc::Rc;

use super::hash::schema_hash;
use super::profile::{Absent, Form, TableProfile};
use super::read::{print_expressions, read_profile, read_shapes};
use super::shape::TableShape;
use crate::catalog::failures;
use crate::catalog::snapshots::{self, Circumstance, Snapshot};
use crate::drift::account::{Moment, Why};
use crate::error::{Error, Result};
use crate::model::Oid;
use crate::pg::lock::LockMode;
use crate::pg::secctx::as_extension;
use crate::pg::snapshot::{Side, is_serializable};
use crate::pg::subxact::{self, Caught};
use crate::pg::{event, guc, report};
use crate::sqltext;

/// Most characters kept of a statement.
const MAX_STATEMENT_CHARS: usize = 1000;
/// Most characters kept of a resource identity.
const MAX_IDENTITY_CHARS: usize = 300;
/// Tables read at once: few enough that this takes a small part of the time that one step has.
const BATCH: usize = 20;
/// Most tables named in a WARNING.
const MAX_NAMED: usize = 5;

/// What is known now of whoever runs a command.
pub(crate) fn circumstance(command_tag: Option<&str>, own: bool) -> Circumstance {
    Circumstance {
        actor: event::session_actor(),
        command_tag: command_tag.map(str::to_string),
        statement: event::statement_text().map(|text| shown_statement(&text)),
        application: event::application_name(),
        resource_identity: guc::resource_identity().map(|text| shortened(&text, MAX_IDENTITY_CHARS)),
        own,
        in_extension: event::in_extension_script(),
        retyped: None,
        made_from: None,
        out_of_time: Rc::default(),
    }
}

/// The statement, bounded; where values are not to be kept, those in it aren't either.
fn shown_statement(text: &str) -> String {
    let bare;
    let statement = match guc::snapshot_values() {
        Form::Plain => text,
        Form::Hashed | Form::Off => {
            bare = sqltext::without_literals(text, event::backslash_quotes());
            &bare
        }
    };
    shortened(statement, MAX_STATEMENT_CHARS)
}

fn shortened(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text.to_string(),
    }
}

/// One table of which something is to be recorded.
pub(crate) struct Subject {
    pub oid: Oid,
    /// As people read it; for the WARNING.
    pub name: String,
}

/// Records tables as they were before the command that began at `side` dropped them.
pub(crate) fn record_dropped(subjects: &[Subject], side: Side, by: &Circumstance) {
    if subjects.is_empty() {
        return;
    }
    let mut attempt = Attempt::new(by);
    for batch in subjects.chunks(BATCH) {
        record_batch(&mut attempt, batch, side);
    }
    attempt.tell();
}

fn record_batch(attempt: &mut Attempt, subjects: &[Subject], side: Side) {
    let mut taken = Vec::new();
    for (subject, shape) in subjects.iter().zip(read_batch(attempt, subjects, side)) {
        match shape {
            Ok(Some(mut shape)) => {
                let profile = read_values(attempt, &mut shape, side, true);
                taken.push((shape, profile));
            }
            Ok(None) => attempt.missed(What::Table, &subject.name, &missing()),
            Err(caught) => attempt.missed(What::Table, &subject.name, &caught),
        }
    }
    let by = attempt.by;
    let store_one =
        |(shape, profile): &(TableShape, TableProfile)| store(shape, profile, Why::Drop, Moment::Before, by);
    // Together: each subtransaction that writes has a number of its own, and a backend remembers 64 of them.
    if attempt.step(|| taken.iter().try_for_each(store_one)).is_err() {
        for one in &taken {
            attempt.run(What::Table, &one.0.display_name(), || store_one(one));
        }
    }
}

/// The shape of each subject, in order. One table that can't be read must not take the others along.
fn read_batch(
    attempt: &mut Attempt,
    subjects: &[Subject],
    side: Side,
) -> Vec<std::result::Result<Option<TableShape>, Caught>> {
    let oids: Vec<Oid> = subjects.iter().map(|s| s.oid).collect();
    match attempt.step(|| read_shapes(&oids, side)) {
        Ok(mut shapes) => oids.iter().map(|oid| Ok(shapes.remove(oid))).collect(),
        Err(_) => oids
            .iter()
            .map(|oid| attempt.step(|| read_shapes(&[*oid], side)).map(|mut one| one.remove(oid)))
            .collect(),
    }
}

/// Tells that nothing is recorded of these tables, which may have been to be recorded.
pub(crate) fn not_recorded(subjects: &[Subject], caught: &Caught, by: &Circumstance) {
    let mut attempt = Attempt::new(by);
    subjects.iter().for_each(|subject| attempt.missed(What::Table, &subject.name, caught));
    attempt.tell();
}

/// Counts one that failed before it was known of which tables it would have been.
pub(crate) fn count_unknown() {
    let counted = subxact::run_within(guc::snapshot_timeout(), || as_extension(|| failures::count(1)));
    if let Err(caught) = counted {
        report::log_server_only(&format!(
            "pgtrickle: a missing snapshot could not be counted: {}",
            caught.message
        ));
    }
}

fn missing() -> Caught {
    Error::Internal("the catalogs did not show it any more".into()).into()
}

/// Records one shape that has been read already.
pub(crate) fn record(shape: &TableShape, side: Side, why: Why, moment: Moment, by: &Circumstance) {
    let mut attempt = Attempt::new(by);
    record_one(&mut attempt, &mut shape.clone(), side, why, moment);
    attempt.tell();
}

fn record_one(attempt: &mut Attempt, shape: &mut TableShape, side: Side, why: Why, moment: Moment) {
    let profile = read_values(attempt, shape, side, moment == Moment::Before);
    let by = attempt.by;
    attempt.run(What::Table, &shape.display_name(), || store(shape, &profile, why, moment, by));
}

/// The value profile of a table; `past`: of one that is not there any more like that, so that its expressions are still to
/// be printed.
fn read_values(attempt: &mut Attempt, shape: &mut TableShape, side: Side, past: bool) -> TableProfile {
    let name = shape.display_name();
    let read = attempt.run(What::Profile, &name, || {
        if past {
            print_expressions(shape, side);
        }
        read_profile(shape, side)
    });
    match read {
        Some((profile, trouble)) => {
            if let Some(caught) = trouble {
                attempt.missed(What::Profile, &name, &caught);
            }
            profile
        }
        None => {
            let columns = shape.columns.iter().map(|c| c.attnum);
            TableProfile::without(columns, guc::snapshot_values(), Absent::Unreadable)
        }
    }
}

/// Writes one snapshot. Waits for no lock: somebody may hold one on our table for as long as he likes.
pub(crate) fn store(
    shape: &TableShape,
    profile: &TableProfile,
    why: Why,
    moment: Moment,
    by: &Circumstance,
) -> Result<()> {
    snapshots::try_lock(LockMode::RowExclusive)?;
    let hash = schema_hash(shape.columns.iter().map(|c| c.name.as_str()), &guc::excluded_columns()?);
    let snapshot = Snapshot { origin: crate::pg::origin(), shape, profile, schema_hash: &hash, why, moment };
    // The line already ends like that: nothing to add. Under SERIALIZABLE it is not looked at, because reading what others
    // add to can make their transaction or this one fail.
    let repeats = why == Why::Change && moment == Moment::Before && !is_serializable();
    if repeats && snapshots::is_newest(&snapshot)? {
        return Ok(());
    }
    snapshots::insert(&snapshot, by)
}

/// What was to be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// The table as such.
    Table,
    /// Only its value profile is missing.
    Profile,
}

impl What {
    fn word(self) -> &'static str {
        match self {
            What::Table => "snapshot",
            What::Profile => "profile",
        }
    }

    fn message(self, tables: &str) -> String {
        match self {
            What::Table => format!("pgtrickle: what {tables} looked like was not recorded"),
            What::Profile => format!("pgtrickle: values of {tables} were not recorded with its shape"),
        }
    }
}

/// All that a command wants recorded, and what of it failed.
struct Attempt<'a> {
    by: &'a Circumstance,
    failed: Vec<(What, String, Caught)>,
}

impl<'a> Attempt<'a> {
    fn new(by: &'a Circumstance) -> Attempt<'a> {
        Attempt { by, failed: Vec::new() }
    }

    /// One step, within the time that there is.
    fn step<T>(&mut self, step: impl FnOnce() -> Result<T>) -> std::result::Result<T, Caught> {
        if self.by.out_of_time.get() {
            return Err(Error::OutOfTime.into());
        }
        let outcome = subxact::run_within(guc::snapshot_timeout(), step);
        if outcome.as_ref().is_err_and(Caught::is_cancel) {
            self.by.out_of_time.set(true);
        }
        outcome
    }

    /// One step, whose failure is told.
    fn run<T>(&mut self, what: What, table: &str, step: impl FnOnce() -> Result<T>) -> Option<T> {
        match self.step(step) {
            Ok(value) => Some(value),
            Err(caught) => {
                self.missed(what, table, &caught);
                None
            }
        }
    }

    fn missed(&mut self, what: What, table: &str, caught: &Caught) {
        self.failed.push((what, table.to_string(), caught.clone()));
    }

    /// One WARNING for each kind of loss, and a row for `health_check()`.
    fn tell(self) {
        let of_tables = self.failed.iter().filter(|(w, _, _)| *w == What::Table);
        let lost: BTreeSet<&str> = of_tables.map(|(_, table, _)| table.as_str()).collect();
        for what in [What::Table, What::Profile] {
            // Where the table as such is missing, nobody needs to hear of its values.
            let told = |(w, table, _): &&(What, String, Caught)| {
                *w == what && (what == What::Table || !lost.contains(table.as_str()))
            };
            let failed: Vec<_> = self.failed.iter().filter(told).collect();
            let Some((_, _, first)) = failed.first() else { continue };
            let mut tables: Vec<&str> =
                failed.iter().map(|(_, table, _)| table.as_str()).take(MAX_NAMED).collect();
            let more = format!("{} more", failed.len() - tables.len());
            if failed.len() > MAX_NAMED {
                tables.push(&more);
            }
            let tables = tables.join(", ");
            note(what, first, failed.len(), &tables, &self.by.actor);
            let reason = shown(first);
            report::warning(
                &what.message(&tables),
                &format!("reason=SNAPSHOT_FAILED: {reason}."),
                "The command itself goes on. SELECT * FROM pgtrickle.health_check() counts what is missing.",
            );
            report::log_server_only(&format!("pgtrickle: {tables}: {}", first.message));
        }
    }
}

/// Errors of these classes say what is wrong with the server; the messages of others can quote values, which are not for
/// whoever drops the table.
const TELLING_CLASSES: [&str; 6] = ["42", "53", "54", "55", "57", "58"];

pub(super) fn shown(caught: &Caught) -> String {
    let code = caught.sqlstate();
    if TELLING_CLASSES.iter().any(|class| code.starts_with(class)) {
        format!("{} (SQLSTATE {code})", caught.message)
    } else {
        format!("SQLSTATE {code}; the server log has the message")
    }
}

/// Where the row can't be written either, a number that goes up has to do.
fn note(what: What, caught: &Caught, number: usize, tables: &str, actor: &str) {
    let budget = guc::snapshot_timeout();
    let number = i64::try_from(number).unwrap_or(i64::MAX);
    let noted = subxact::run_within(budget, || {
        failures::note(what.word(), &caught.sqlstate(), number, tables, actor)
    });
    if noted.is_err()
        && let Err(again) = subxact::run_within(budget, || failures::count(number))
    {
        report::log_server_only(&format!(
            "pgtrickle: a missing snapshot could not be counted: {}",
            again.message
        ));
    }
}
