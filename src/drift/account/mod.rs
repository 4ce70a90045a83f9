//! The account that is given over recorded schema snapshots: which two of them are neighbours ([`pairs`]), what lies
//! between them and what exonerates it ([`classify`]), and how often that was the case ([`Account`]).
//!
//! A snapshot may be all that is left of a table, so nothing here asks the catalogs.
#![forbid(unsafe_code)]

mod judge;
mod lines;
mod tally;

pub use judge::{Class, Context, Gate, Judgement, classify};
pub use lines::{Link, Pair, Pairing, pairs};
pub use tally::{Account, MAX_EXAMPLES, Tally};

use crate::drift::change::{Change, Turn};
use crate::model::Oid;

/// Why a snapshot was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// The relation became a source.
    Source,
    /// It is a source and was changed.
    Change,
    /// It was about to be gone.
    Drop,
    /// A baseline pass came by.
    Baseline,
}

impl Why {
    const ALL: [Why; 4] = [Why::Source, Why::Change, Why::Drop, Why::Baseline];

    /// Reads the stored word.
    pub fn from_word(word: &str) -> Option<Why> {
        Why::ALL.into_iter().find(|why| why.word() == word)
    }

    /// The stable word.
    pub fn word(self) -> &'static str {
        match self {
            Why::Source => "source",
            Why::Change => "change",
            Why::Drop => "drop",
            Why::Baseline => "baseline",
        }
    }
}

/// Which side of a command a snapshot shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// As it was when the command began.
    Before,
    /// As the command left it.
    After,
    /// No command had to do with it.
    Standing,
}

impl Moment {
    /// Reads the stored word; none stands for no command.
    pub fn from_word(word: Option<&str>) -> Option<Moment> {
        [Moment::Before, Moment::After, Moment::Standing].into_iter().find(|moment| moment.word() == word)
    }

    /// The stable word; none for no command.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Moment::Before => Some("before"),
            Moment::After => Some("after"),
            Moment::Standing => None,
        }
    }
}

/// What the account needs to know of one recorded snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Number of the row; the order in time.
    pub id: i64,
    /// The database that oids belong to, cluster included. Oids of different origins can't be compared: a restore brings
    /// the rows of another database.
    pub origin: i64,
    /// `pg_class.oid`.
    pub relation: Oid,
    /// Name of its schema.
    pub schema: String,
    /// Its name.
    pub table: String,
    /// `relkind`.
    pub kind: char,
    /// `relpersistence`.
    pub persistence: char,
    /// Number of columns.
    pub columns: usize,
    /// Estimated rows; none when it was never analysed.
    pub rows: Option<i64>,
    /// Why it was taken.
    pub why: Why,
    /// Which side of a command it shows.
    pub moment: Moment,
    /// Of the shape without evidence. Where two are equal there is nothing to diff.
    pub digest: String,
    /// What the loader calls the resource that the table holds.
    pub identity: Option<String>,
    /// Tag of the command, where there was one.
    pub command_tag: Option<String>,
    /// The command was pgtrickle's own.
    pub own: bool,
    /// The command ran within CREATE EXTENSION or ALTER EXTENSION.
    pub in_extension: bool,
}

impl Entry {
    /// The name that it had then.
    fn name(&self) -> (&str, &str) {
        (&self.schema, &self.table)
    }

    /// It shows what a known command made of its predecessor. Of any other difference it is unknown which command made
    /// it, and when.
    pub fn made_by_command(&self) -> bool {
        self.why == Why::Change && self.moment == Moment::After
    }

    /// Whether a change that led here is one of the shape. That another relation is another one and is called otherwise is
    /// what the link says already. Our capture triggers come and go with stream tables, which is no drift of the source;
    /// what a command of somebody else does to them is, and that they were switched off or on.
    pub fn tells(&self, link: Link, change: &Change) -> bool {
        let same = link == Link::Same;
        match change {
            Change::RelationReplaced { .. } | Change::TableRenamed { .. } | Change::SchemaChanged { .. } => {
                same
            }
            Change::CaptureChanged { turn: Turn::Added | Turn::Removed, .. } => {
                same && self.made_by_command()
            }
            // Made anew is what one is as well whose stream table was.
            Change::CaptureChanged { before, after, .. } if before == after => same && self.made_by_command(),
            _ => true,
        }
    }
}
