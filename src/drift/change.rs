//! One atomic change of a relation's shape: its word, its severity, its column. `drift::describe` has its sentences.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::model::Oid;
use crate::snapshot::shape::TableShape;
use serde::{Deserialize, Serialize};

/// One column, by number and by the name it has in messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Number in the earlier shape, or in the later one for an added column.
    pub attnum: i16,
    /// Name in the earlier shape, or in the later one for an added column.
    pub name: String,
}

/// What happened to one item of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Turn {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// It is another one of the same name.
    Changed,
}

impl Turn {
    pub(super) fn words(self) -> &'static str {
        match self {
            Turn::Added => "was added",
            Turn::Removed => "was removed",
            Turn::Changed => "was changed",
        }
    }
}

/// One atomic change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// The shapes are of two relations.
    RelationReplaced { before: Oid, after: Oid },
    /// ALTER TABLE ... RENAME TO.
    TableRenamed { before: String, after: String },
    /// Moved to another schema, or its schema was renamed.
    SchemaChanged { before: String, after: String },
    /// ALTER TABLE ... OWNER TO.
    OwnerChanged { before: String, after: String },
    /// SET LOGGED or UNLOGGED, of the table or of a member of its tree.
    PersistenceChanged { relation: String, before: char, after: char },
    /// A column is gone.
    ColumnDropped { column: Column },
    /// A column is new.
    ColumnAdded { column: Column },
    /// Same column, other name.
    ColumnRenamed { attnum: i16, before: String, after: String },
    /// Another type. Modifier, dimensions, kind and collation follow the type and are not told apart.
    ColumnTypeChanged { column: Column, before: String, after: String },
    /// Same type, other modifier.
    ColumnTypmodChanged { column: Column, before: String, after: String },
    /// Same type, other declared dimensions.
    ColumnDimensionsChanged { column: Column, before: i32, after: i32 },
    /// The type became another kind of type.
    ColumnTypeKindChanged { column: Column, before: char, after: char },
    /// Other collation.
    ColumnCollationChanged { column: Column, before: Option<String>, after: Option<String> },
    /// Same type or collation, which has another name or schema now.
    ColumnTypeRenamed { column: Column, before: String, after: String },
    /// Same type, but the rows were computed anew (`ALTER TYPE ... USING`).
    ColumnRewritten { column: Column },
    /// SET or DROP NOT NULL.
    NullabilityChanged { column: Column, not_null: bool },
    /// Default set, changed or dropped.
    DefaultChanged { column: Column, before: Option<String>, after: Option<String> },
    /// Identity added, changed or dropped.
    IdentityChanged { column: Column, before: String, after: String },
    /// Became or ceased to be generated, or another expression.
    GenerationChanged { column: Column, before: Option<String>, after: Option<String> },
    /// Order of the columns that both relations have; only between two relations.
    ColumnsReordered,
    /// A primary key where there was none.
    PrimaryKeyAdded { columns: Vec<String> },
    /// No primary key any more.
    PrimaryKeyRemoved { columns: Vec<String> },
    /// Primary key of other columns, or in another order.
    PrimaryKeyChanged { before: Vec<String>, after: Vec<String> },
    /// Updated and deleted rows can't be told apart any more in the WAL.
    ReplicaIdentityRemoved { before: String, after: String },
    /// Another replica identity, or one where there was none.
    ReplicaIdentityChanged { before: String, after: String },
    /// An index.
    IndexChanged { name: String, turn: Turn, unique: bool },
    /// ALTER INDEX ... RENAME.
    IndexRenamed { before: String, after: String },
    /// A check, foreign key, unique, exclusion or trigger constraint.
    ConstraintChanged { name: String, turn: Turn, kind: char },
    /// Same constraint, other name.
    ConstraintRenamed { before: String, after: String },
    /// Row security enabled, disabled, forced or not forced.
    RowSecurityChanged { before: RowSecurity, after: RowSecurity },
    /// A policy, and whether row security was or is enabled, so that it matters.
    PolicyChanged { name: String, turn: Turn, in_force: bool },
    /// A partition joined the tree. `created`: by a command that created it, so it is empty; see [`mark_created`](crate::drift::mark_created).
    PartitionAttached { member: Oid, name: String, foreign: bool, created: bool },
    /// A partition left the tree, or was dropped.
    PartitionDetached { member: Oid, name: String },
    /// A table inherits from it now.
    ChildAdded { member: Oid, name: String },
    /// A table does not inherit from it any more, or was dropped.
    ChildRemoved { member: Oid, name: String },
    /// A member of the tree has another name or schema.
    MemberRenamed { member: Oid, before: String, after: String },
    /// The relation itself joined or left other tables as partition or child.
    ParentsChanged,
    /// A capture trigger of the relation or of a member that was and is in the tree.
    CaptureChanged {
        member: Oid,
        relation: String,
        trigger: String,
        turn: Turn,
        before: Option<char>,
        after: Option<char>,
    },
    /// Something without a rule.
    Other { what: String },
    /// Another kind of relation (`relkind`), such as a view for a table. No ALTER does that; PostgreSQL 15 lets a rule make a view
    /// of an empty table.
    KindChanged { before: char, after: char },
    /// Another partition key, as `RANGE (a, b)`, or none; between two relations only. One that has expressions is told by
    /// strategy and columns.
    PartitionKeyChanged { before: Option<String>, after: Option<String> },
}

/// Whether row security is on, and for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowSecurity {
    /// Off, for everybody.
    Off,
    /// Off for everybody, and to bind the owner too once it is on.
    OffForced,
    /// On, the owner excepted.
    On,
    /// On, for the owner too.
    Forced,
}

impl RowSecurity {
    pub(super) fn of(shape: &TableShape) -> RowSecurity {
        match (shape.row_security, shape.force_row_security) {
            (false, false) => RowSecurity::Off,
            (false, true) => RowSecurity::OffForced,
            (true, false) => RowSecurity::On,
            (true, true) => RowSecurity::Forced,
        }
    }

    /// It hides rows from somebody.
    pub fn in_force(self) -> bool {
        match self {
            RowSecurity::Off | RowSecurity::OffForced => false,
            RowSecurity::On | RowSecurity::Forced => true,
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            RowSecurity::Off => "off",
            RowSecurity::OffForced => "off (to be forced)",
            RowSecurity::On => "on",
            RowSecurity::Forced => "on for its owner too",
        }
    }
}

/// How bad a change is for whoever reads the table. Ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// No reader can notice.
    None,
    /// Something more; what was there stays.
    Additive,
    /// Names or rules changed; all values stay.
    Compatible,
    /// Values, rows or their identity are lost, changed or unknown.
    Destructive,
}

impl Severity {
    /// The stable word.
    pub fn word(self) -> &'static str {
        match self {
            Severity::None => "none",
            Severity::Additive => "additive",
            Severity::Compatible => "compatible",
            Severity::Destructive => "destructive",
        }
    }
}

impl Change {
    /// The stable word for the kind of change.
    pub fn word(&self) -> &'static str {
        match self {
            Change::RelationReplaced { .. } => "relation_replaced",
            Change::TableRenamed { .. } | Change::ColumnRenamed { .. } => "renamed",
            Change::SchemaChanged { .. } => "schema_changed",
            Change::OwnerChanged { .. } => "owner_changed",
            Change::PersistenceChanged { .. } => "persistence_changed",
            Change::ColumnDropped { .. } => "removed",
            Change::ColumnAdded { .. } => "added",
            Change::ColumnTypeChanged { .. }
            | Change::ColumnTypmodChanged { .. }
            | Change::ColumnDimensionsChanged { .. }
            | Change::ColumnTypeKindChanged { .. } => "type_changed",
            Change::ColumnTypeRenamed { .. } => "type_renamed",
            Change::ColumnCollationChanged { .. } => "collation_changed",
            Change::ColumnRewritten { .. } => "rewritten",
            Change::NullabilityChanged { .. } => "nullability_changed",
            Change::DefaultChanged { .. } => "default_changed",
            Change::IdentityChanged { .. } => "identity_changed",
            Change::GenerationChanged { .. } => "generated_changed",
            Change::ColumnsReordered => "reordered",
            Change::PrimaryKeyAdded { .. }
            | Change::PrimaryKeyRemoved { .. }
            | Change::PrimaryKeyChanged { .. } => "key_changed",
            Change::ReplicaIdentityRemoved { .. } | Change::ReplicaIdentityChanged { .. } => {
                "replica_identity_changed"
            }
            Change::IndexChanged { .. } | Change::IndexRenamed { .. } => "index_changed",
            Change::ConstraintChanged { .. } | Change::ConstraintRenamed { .. } => "constraint_changed",
            Change::RowSecurityChanged { .. } | Change::PolicyChanged { .. } => "row_security_changed",
            Change::PartitionAttached { .. }
            | Change::PartitionDetached { .. }
            | Change::PartitionKeyChanged { .. } => "partitioning_changed",
            Change::KindChanged { .. } => "kind_changed",
            Change::ChildAdded { .. } | Change::ChildRemoved { .. } | Change::ParentsChanged => {
                "inheritance_changed"
            }
            Change::MemberRenamed { .. } => "member_renamed",
            Change::CaptureChanged { .. } => "capture_changed",
            Change::Other { .. } => "other",
        }
    }

    /// The column that it is about, if it is about one.
    pub fn column(&self) -> Option<(i16, &str)> {
        match self {
            Change::ColumnDropped { column }
            | Change::ColumnAdded { column }
            | Change::ColumnTypeChanged { column, .. }
            | Change::ColumnTypmodChanged { column, .. }
            | Change::ColumnDimensionsChanged { column, .. }
            | Change::ColumnTypeKindChanged { column, .. }
            | Change::ColumnCollationChanged { column, .. }
            | Change::ColumnTypeRenamed { column, .. }
            | Change::ColumnRewritten { column }
            | Change::NullabilityChanged { column, .. }
            | Change::DefaultChanged { column, .. }
            | Change::IdentityChanged { column, .. }
            | Change::GenerationChanged { column, .. } => Some((column.attnum, &column.name)),
            Change::ColumnRenamed { attnum, before, .. } => Some((*attnum, before)),
            _ => None,
        }
    }

    /// How bad it is for whoever reads the table.
    pub fn severity(&self) -> Severity {
        use Severity::*;
        match self {
            // That other rows are in it is not a matter of shape: the class of the pair says it.
            Change::RelationReplaced { .. } => None,
            Change::TableRenamed { .. } | Change::SchemaChanged { .. } | Change::OwnerChanged { .. } => {
                Compatible
            }
            Change::PersistenceChanged { .. }
            | Change::KindChanged { .. }
            | Change::PartitionKeyChanged { .. } => Destructive,
            Change::ColumnDropped { .. } => Destructive,
            Change::ColumnAdded { .. } => Additive,
            Change::ColumnRenamed { .. } | Change::ColumnTypeRenamed { .. } => Compatible,
            Change::ColumnTypeChanged { .. }
            | Change::ColumnTypmodChanged { .. }
            | Change::ColumnDimensionsChanged { .. }
            | Change::ColumnTypeKindChanged { .. }
            | Change::ColumnCollationChanged { .. }
            | Change::ColumnRewritten { .. }
            | Change::GenerationChanged { .. } => Destructive,
            Change::NullabilityChanged { .. }
            | Change::DefaultChanged { .. }
            | Change::IdentityChanged { .. }
            | Change::ColumnsReordered => Compatible,
            Change::PrimaryKeyAdded { .. } => Additive,
            Change::PrimaryKeyRemoved { .. } | Change::PrimaryKeyChanged { .. } => Destructive,
            Change::ReplicaIdentityRemoved { .. } => Destructive,
            Change::ReplicaIdentityChanged { .. } => Compatible,
            Change::IndexChanged { turn, .. } | Change::ConstraintChanged { turn, .. } => match turn {
                Turn::Added => Additive,
                Turn::Removed | Turn::Changed => Compatible,
            },
            Change::IndexRenamed { .. } | Change::ConstraintRenamed { .. } => None,
            Change::RowSecurityChanged { before, after } if before.in_force() || after.in_force() => {
                Destructive
            }
            Change::RowSecurityChanged { .. } => None,
            Change::PolicyChanged { in_force: true, .. } => Destructive,
            Change::PolicyChanged { in_force: false, .. } => None,
            Change::PartitionAttached { .. } | Change::ChildAdded { .. } => Additive,
            Change::PartitionDetached { .. } | Change::ChildRemoved { .. } => Destructive,
            Change::MemberRenamed { .. } | Change::ParentsChanged => None,
            Change::CaptureChanged { turn, .. } => match turn {
                Turn::Added => None,
                Turn::Removed | Turn::Changed => Destructive,
            },
            Change::Other { .. } => Destructive,
        }
    }
}

/// Version tag of [`Drift`]: a variant or field that older readers don't know gets another.
pub const DRIFT_VERSION: u32 = 1;

/// The changes between two shapes, as they are stored and sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drift {
    /// [`DRIFT_VERSION`] of the writer.
    pub version: u32,
    /// In the order of `drift::diff`.
    pub changes: Vec<Change>,
}

impl Drift {
    /// The changes, with the version of this writer.
    pub fn new(changes: Vec<Change>) -> Drift {
        Drift { version: DRIFT_VERSION, changes }
    }

    /// Reads the JSON form. What can't be read, or is of another version, is an error, never "no changes".
    pub fn from_json(text: &str) -> Result<Drift> {
        let drift: Drift =
            serde_json::from_str(text).map_err(|e| Error::Internal(format!("unreadable drift: {e}")))?;
        if drift.version != DRIFT_VERSION {
            let found = drift.version;
            return Err(Error::Internal(format!("drift of version {found}, expected {DRIFT_VERSION}")));
        }
        Ok(drift)
    }

    /// The stable JSON form.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|e| Error::Internal(format!("unwritable drift: {e}")))
    }

    /// The worst of the changes; none when nothing changed.
    pub fn severity(&self) -> Severity {
        self.changes.iter().map(Change::severity).max().unwrap_or(Severity::None)
    }
}
