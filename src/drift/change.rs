//! One atomic change of a relation's shape: its words, its severity, its values before and after.
#![forbid(unsafe_code)]

use crate::model::Oid;
use crate::snapshot::shape::TableShape;
use crate::sqltext::ident;
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
    fn words(self) -> &'static str {
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

    fn words(self) -> &'static str {
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
            Change::PartitionAttached { .. } | Change::PartitionDetached { .. } => "partitioning_changed",
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
            Change::RelationReplaced { .. } => Destructive,
            Change::TableRenamed { .. } | Change::SchemaChanged { .. } | Change::OwnerChanged { .. } => {
                Compatible
            }
            Change::PersistenceChanged { .. } => Destructive,
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

    /// The value before, as shown to people.
    pub fn before_value(&self) -> Option<String> {
        self.values().0
    }

    /// The value after, as shown to people.
    pub fn after_value(&self) -> Option<String> {
        self.values().1
    }

    fn values(&self) -> (Option<String>, Option<String>) {
        let both = |b: &str, a: &str| (Some(b.to_string()), Some(a.to_string()));
        let item = |turn: &Turn, name: &str| match turn {
            Turn::Added => (None, Some(name.to_string())),
            Turn::Removed => (Some(name.to_string()), None),
            Turn::Changed => both(name, name),
        };
        match self {
            Change::RelationReplaced { before, after } => both(&before.to_string(), &after.to_string()),
            Change::TableRenamed { before, after }
            | Change::SchemaChanged { before, after }
            | Change::OwnerChanged { before, after }
            | Change::ColumnRenamed { before, after, .. }
            | Change::ColumnTypeChanged { before, after, .. }
            | Change::ColumnTypmodChanged { before, after, .. }
            | Change::ColumnTypeRenamed { before, after, .. }
            | Change::ReplicaIdentityRemoved { before, after }
            | Change::ReplicaIdentityChanged { before, after }
            | Change::IndexRenamed { before, after }
            | Change::ConstraintRenamed { before, after }
            | Change::MemberRenamed { before, after, .. } => both(before, after),
            Change::PersistenceChanged { before, after, .. } => {
                both(&persistence_word(*before), &persistence_word(*after))
            }
            Change::ColumnDropped { column } => item(&Turn::Removed, &column.name),
            Change::ColumnAdded { column } => item(&Turn::Added, &column.name),
            Change::ColumnDimensionsChanged { before, after, .. } => {
                both(&before.to_string(), &after.to_string())
            }
            Change::ColumnTypeKindChanged { before, after, .. } => {
                both(&before.to_string(), &after.to_string())
            }
            Change::ColumnCollationChanged { before, after, .. }
            | Change::DefaultChanged { before, after, .. }
            | Change::GenerationChanged { before, after, .. } => (before.clone(), after.clone()),
            Change::IdentityChanged { before, after, .. } => {
                both(identity_word(before), identity_word(after))
            }
            Change::NullabilityChanged { not_null, .. } => {
                if *not_null {
                    both("NULL", "NOT NULL")
                } else {
                    both("NOT NULL", "NULL")
                }
            }
            Change::PrimaryKeyAdded { columns } => item(&Turn::Added, &list(columns)),
            Change::PrimaryKeyRemoved { columns } => item(&Turn::Removed, &list(columns)),
            Change::PrimaryKeyChanged { before, after } => both(&list(before), &list(after)),
            Change::IndexChanged { name, turn, .. }
            | Change::ConstraintChanged { name, turn, .. }
            | Change::PolicyChanged { name, turn, .. } => item(turn, name),
            Change::RowSecurityChanged { before, after } => both(before.words(), after.words()),
            Change::PartitionAttached { name, .. } | Change::ChildAdded { name, .. } => {
                item(&Turn::Added, name)
            }
            Change::PartitionDetached { name, .. } | Change::ChildRemoved { name, .. } => {
                item(&Turn::Removed, name)
            }
            Change::CaptureChanged { before, after, .. } => {
                (before.map(trigger_word), after.map(trigger_word))
            }
            Change::ColumnRewritten { .. }
            | Change::ColumnsReordered
            | Change::ParentsChanged
            | Change::Other { .. } => (None, None),
        }
    }

    /// The change in words, without a full stop: `column "x" was dropped`.
    pub fn describe(&self) -> String {
        let column = |c: &Column| format!("column {}", ident(&c.name));
        match self {
            Change::RelationReplaced { .. } => "it was replaced by another table of that name".into(),
            Change::TableRenamed { before, after } => {
                format!("the table was renamed from {} to {}", ident(before), ident(after))
            }
            Change::SchemaChanged { before, after } => {
                format!("its schema changed from {} to {}", ident(before), ident(after))
            }
            Change::OwnerChanged { before, after } => {
                format!("its owner changed from {} to {}", ident(before), ident(after))
            }
            Change::PersistenceChanged { relation, before, after } => format!(
                "{relation} became {} where it was {}",
                persistence_word(*after),
                persistence_word(*before)
            ),
            Change::ColumnDropped { column: c } => format!("{} was dropped", column(c)),
            Change::ColumnAdded { column: c } => format!("{} was added", column(c)),
            Change::ColumnRenamed { before, after, .. } => {
                format!("column {} was renamed to {}", ident(before), ident(after))
            }
            Change::ColumnTypeChanged { column: c, before, after }
            | Change::ColumnTypmodChanged { column: c, before, after } => {
                format!("{} changed its type from {before} to {after}", column(c))
            }
            Change::ColumnDimensionsChanged { column: c, before, after } => {
                format!("{} changed its array dimensions from {before} to {after}", column(c))
            }
            Change::ColumnTypeKindChanged { column: c, before, after } => {
                format!("the type of {} changed its kind from '{before}' to '{after}'", column(c))
            }
            Change::ColumnCollationChanged { column: c, before, after } => {
                format!("{} changed its collation from {} to {}", column(c), or_none(before), or_none(after))
            }
            Change::ColumnTypeRenamed { column: c, before, after } => {
                format!("the type or collation of {} was renamed from {before} to {after}", column(c))
            }
            Change::ColumnRewritten { column: c } => {
                format!("the values of {} were computed anew by ALTER TYPE ... USING", column(c))
            }
            Change::NullabilityChanged { column: c, not_null } => {
                format!("{} {} NULL", column(c), if *not_null { "no longer allows" } else { "now allows" })
            }
            Change::DefaultChanged { column: c, before, after } => {
                format!("the default of {} changed from {} to {}", column(c), or_none(before), or_none(after))
            }
            Change::IdentityChanged { column: c, before, after } => format!(
                "the identity of {} changed from {} to {}",
                column(c),
                identity_word(before),
                identity_word(after)
            ),
            Change::GenerationChanged { column: c, before, after } => match (before, after) {
                (None, Some(expression)) => format!("{} became generated as {expression}", column(c)),
                (Some(_), None) => format!("{} is no longer generated", column(c)),
                (before, after) => format!(
                    "the generation of {} changed from {} to {}",
                    column(c),
                    or_none(before),
                    or_none(after)
                ),
            },
            Change::ColumnsReordered => "its columns are in another order".into(),
            Change::PrimaryKeyAdded { columns } => format!("the primary key {} was added", list(columns)),
            Change::PrimaryKeyRemoved { columns } => format!("the primary key {} was removed", list(columns)),
            Change::PrimaryKeyChanged { before, after } => {
                format!("the primary key changed from {} to {}", list(before), list(after))
            }
            Change::ReplicaIdentityRemoved { before, after } => {
                format!("the replica identity {before} was taken away and is {after}")
            }
            Change::ReplicaIdentityChanged { before, after } => {
                format!("the replica identity changed from {before} to {after}")
            }
            Change::IndexChanged { name, turn, .. } => format!("index {} {}", ident(name), turn.words()),
            Change::IndexRenamed { before, after } => {
                format!("index {} was renamed to {}", ident(before), ident(after))
            }
            Change::ConstraintChanged { name, turn, .. } => {
                format!("constraint {} {}", ident(name), turn.words())
            }
            Change::ConstraintRenamed { before, after } => {
                format!("constraint {} was renamed to {}", ident(before), ident(after))
            }
            Change::RowSecurityChanged { before, after } => {
                format!("row security was {} and is {}", before.words(), after.words())
            }
            Change::PolicyChanged { name, turn, .. } => {
                format!("row security policy {} {}", ident(name), turn.words())
            }
            Change::PartitionAttached { name, created: true, .. } => format!("partition {name} was created"),
            Change::PartitionAttached { name, created: false, .. } => {
                format!("partition {name} was attached")
            }
            Change::PartitionDetached { name, .. } => format!("partition {name} was detached or dropped"),
            Change::ChildAdded { name, .. } => format!("{name} inherits from it now"),
            Change::ChildRemoved { name, .. } => format!("{name} no longer inherits from it"),
            Change::MemberRenamed { before, after, .. } => format!("{before} was renamed to {after}"),
            Change::ParentsChanged => "it became or ceased to be part of other tables".into(),
            Change::CaptureChanged { relation, trigger, turn, before, after, .. } => {
                let subject = format!("capture trigger {} on {relation}", ident(trigger));
                match (turn, before, after) {
                    (Turn::Changed, Some(b), Some(a)) if b != a => {
                        format!("{subject} was set from {} to {}", trigger_word(*b), trigger_word(*a))
                    }
                    (turn, _, _) => format!("{subject} {}", turn.words()),
                }
            }
            Change::Other { what } => what.clone(),
        }
    }
}

fn persistence_word(persistence: char) -> String {
    match persistence {
        'p' => "permanent".into(),
        'u' => "unlogged".into(),
        't' => "temporary".into(),
        other => format!("'{other}'"),
    }
}

fn trigger_word(enabled: char) -> String {
    match enabled {
        'A' => "always".into(),
        'O' => "origin".into(),
        'R' => "replica".into(),
        'D' => "disabled".into(),
        other => format!("'{other}'"),
    }
}

fn list(columns: &[String]) -> String {
    let quoted: Vec<String> = columns.iter().map(|c| ident(c)).collect();
    format!("({})", quoted.join(", "))
}

fn or_none(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or("none")
}

fn identity_word(identity: &str) -> &str {
    match identity {
        "" => "none",
        "a" => "ALWAYS",
        "d" => "BY DEFAULT",
        other => other,
    }
}
