//! Value types shared by the parts that decide. Nothing here decides.
#![forbid(unsafe_code)]

pub mod original;

use serde::{Deserialize, Serialize};

/// PostgreSQL object id as plain number.
pub type Oid = u32;

/// Schema of buffers and state tables.
pub const INTERNAL_SCHEMA: &str = "pgtrickle_internal";

/// Name of a source's buffer in it.
pub fn buffer_name(source: Oid) -> String {
    format!("changes_{source}")
}

/// Names of row triggers without the source's oid at their end.
pub const ROW_TRIGGER: &str = "pgtrickle_capture_";
/// The same of TRUNCATE triggers.
pub const TRUNCATE_TRIGGER: &str = "pgtrickle_capture_truncate_";

/// Name of the row trigger on a source; partitions get it from PostgreSQL.
pub fn row_trigger(source: Oid) -> String {
    format!("{ROW_TRIGGER}{source}")
}

/// Name of the TRUNCATE trigger on a source and on each of its partitions, which don't inherit it.
pub fn truncate_trigger(source: Oid) -> String {
    format!("{TRUNCATE_TRIGGER}{source}")
}

/// Why a stream table is suspended; the stable word in `reason` columns, DETAIL and NOTIFY.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Reason {
    /// A used column was dropped.
    ColumnDropped,
    /// A used column has another type, typmod, collation or dimension, or its rows were rewritten.
    ColumnTypeChanged,
    /// A used column became or ceased to be generated, or its expression changed.
    GenerationChanged,
    /// A source was dropped.
    SourceDropped,
    /// A source of the same name is another table now.
    SourceRecreated,
    /// Primary key removed or its columns changed; replica identity taken away.
    KeyChanged,
    /// A stream table below is suspended.
    UpstreamSuspended,
    /// A function, operator, type or view that the query uses was dropped or changed.
    ObjectChanged,
    /// A column of the stream table itself went with a type, collation, extension or schema.
    OutputColumnDropped,
    /// A change that pgtrickle has no rule for.
    Unclassified,
    /// By `suspend_stream_table()`.
    Manual,
    /// Refreshing failed too often in a row.
    RefreshFailing,
}

impl Reason {
    /// Can what is missing come back by a name? (A column that is missing comes back on its table.)
    pub fn is_curable(self) -> bool {
        matches!(self, Reason::SourceDropped | Reason::ObjectChanged)
    }

    /// All reasons.
    pub const ALL: [Reason; 12] = [
        Reason::ColumnDropped,
        Reason::ColumnTypeChanged,
        Reason::GenerationChanged,
        Reason::SourceDropped,
        Reason::SourceRecreated,
        Reason::KeyChanged,
        Reason::UpstreamSuspended,
        Reason::ObjectChanged,
        Reason::OutputColumnDropped,
        Reason::Unclassified,
        Reason::Manual,
        Reason::RefreshFailing,
    ];

    /// Reads the stored word.
    pub fn from_word(word: &str) -> Option<Self> {
        Reason::ALL.into_iter().find(|r| r.word() == word)
    }

    /// The stable word.
    pub fn word(self) -> &'static str {
        match self {
            Reason::ColumnDropped => "COLUMN_DROPPED",
            Reason::ColumnTypeChanged => "COLUMN_TYPE_CHANGED",
            Reason::GenerationChanged => "GENERATION_CHANGED",
            Reason::SourceDropped => "SOURCE_DROPPED",
            Reason::SourceRecreated => "SOURCE_RECREATED",
            Reason::KeyChanged => "KEY_CHANGED",
            Reason::UpstreamSuspended => "UPSTREAM_SUSPENDED",
            Reason::ObjectChanged => "OBJECT_CHANGED",
            Reason::OutputColumnDropped => "OUTPUT_COLUMN_DROPPED",
            Reason::Unclassified => "UNCLASSIFIED",
            Reason::Manual => "MANUAL",
            Reason::RefreshFailing => "REFRESH_FAILING",
        }
    }
}

/// What a set of changes to one source means for one stream table. Ordered: the maximum of several counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It is not concerned.
    Nothing,
    /// Names in the catalog follow; contents and frontier stay.
    InPlace,
    /// Contents must be computed anew at the next refresh; `detail` is one sentence.
    Reinitialize { detail: String },
    /// It stops, visibly; `detail` is one sentence with a full stop that names the object and the change.
    Suspend { reason: Reason, detail: String },
}

/// `refresh_mode` of a stream table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefreshMode {
    /// Differential where the query allows it, else full.
    Auto,
    /// Differential or refused.
    Differential,
    /// Always the whole query.
    Full,
}

impl RefreshMode {
    /// Reads the word; None when it is none of the three.
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "auto" => Some(RefreshMode::Auto),
            "differential" => Some(RefreshMode::Differential),
            "full" => Some(RefreshMode::Full),
            _ => None,
        }
    }

    /// The word as stored.
    pub fn word(self) -> &'static str {
        match self {
            RefreshMode::Auto => "auto",
            RefreshMode::Differential => "differential",
            RefreshMode::Full => "full",
        }
    }
}

/// `status` of a stream table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Active,
    Suspended,
    /// Created with `initialize => false`, not yet filled.
    Uninitialized,
}

impl Status {
    /// Reads the stored word.
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "active" => Some(Status::Active),
            "suspended" => Some(Status::Suspended),
            "uninitialized" => Some(Status::Uninitialized),
            _ => None,
        }
    }

    /// The word as stored.
    pub fn word(self) -> &'static str {
        match self {
            Status::Active => "active",
            Status::Suspended => "suspended",
            Status::Uninitialized => "uninitialized",
        }
    }
}

/// What a refresh did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    NoChange,
    Differential,
    Full,
    Reinitialize,
    /// A change of a source was noticed only now; see the stream table's reason.
    Suspended,
}

impl Action {
    /// The stable word.
    pub fn word(self) -> &'static str {
        match self {
            Action::NoChange => "no_change",
            Action::Differential => "differential",
            Action::Full => "full",
            Action::Reinitialize => "reinitialize",
            Action::Suspended => "suspended",
        }
    }
}

/// Row counts of one refresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    pub action: Action,
    pub inserted: i64,
    pub updated: i64,
    pub deleted: i64,
}

impl Outcome {
    /// An outcome that changed no row.
    pub fn quiet(action: Action) -> Self {
        Outcome { action, inserted: 0, updated: 0, deleted: 0 }
    }
}
