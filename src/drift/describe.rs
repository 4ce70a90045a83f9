//! Changes in words, for people. Names are shown so that every character in them can be seen.
#![forbid(unsafe_code)]

use crate::drift::change::{Change, Column, Turn};
use crate::sqltext::{is_hidden, visible_ident};

impl Change {
    /// The value before, as shown to people.
    pub fn before_value(&self) -> Option<String> {
        self.values().0
    }

    /// The value after, as shown to people.
    pub fn after_value(&self) -> Option<String> {
        self.values().1
    }

    fn values(&self) -> (Option<String>, Option<String>) {
        let both = |b: &str, a: &str| (Some(shown(b)), Some(shown(a)));
        let item = |turn: &Turn, name: &str| match turn {
            Turn::Added => (None, Some(shown(name))),
            Turn::Removed => (Some(shown(name)), None),
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
                both(&type_kind_word(*before), &type_kind_word(*after))
            }
            Change::ColumnTypeRenamed { before, after, .. } => (Some(dotted(before)), Some(dotted(after))),
            Change::ColumnCollationChanged { before, after, .. } => {
                (before.as_deref().map(dotted), after.as_deref().map(dotted))
            }
            Change::KindChanged { before, after } => both(&kind_word(*before), &kind_word(*after)),
            Change::PartitionKeyChanged { before, after }
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
        let column = |c: &Column| format!("column {}", visible_ident(&c.name));
        match self {
            Change::RelationReplaced { .. } => "it was replaced by another table of that name".into(),
            Change::TableRenamed { before, after } => {
                format!("the table was renamed from {} to {}", visible_ident(before), visible_ident(after))
            }
            Change::SchemaChanged { before, after } => {
                format!("its schema changed from {} to {}", visible_ident(before), visible_ident(after))
            }
            Change::OwnerChanged { before, after } => {
                format!("its owner changed from {} to {}", visible_ident(before), visible_ident(after))
            }
            Change::KindChanged { before, after } => {
                format!("it became a {} where it was a {}", kind_word(*after), kind_word(*before))
            }
            Change::PartitionKeyChanged { before, after } => {
                format!("its partition key changed from {} to {}", or_none(before), or_none(after))
            }
            Change::PersistenceChanged { relation, before, after } => format!(
                "{relation} became {} where it was {}",
                persistence_word(*after),
                persistence_word(*before)
            ),
            Change::ColumnDropped { column: c } => format!("{} was dropped", column(c)),
            Change::ColumnAdded { column: c } => format!("{} was added", column(c)),
            Change::ColumnRenamed { before, after, .. } => {
                format!("column {} was renamed to {}", visible_ident(before), visible_ident(after))
            }
            Change::ColumnTypeChanged { column: c, before, after }
            | Change::ColumnTypmodChanged { column: c, before, after } => {
                format!("{} changed its type from {before} to {after}", column(c))
            }
            Change::ColumnDimensionsChanged { column: c, before, after } => {
                format!("{} changed its array dimensions from {before} to {after}", column(c))
            }
            Change::ColumnTypeKindChanged { column: c, before, after } => format!(
                "the type of {} changed its kind from {} to {}",
                column(c),
                type_kind_word(*before),
                type_kind_word(*after)
            ),
            Change::ColumnCollationChanged { column: c, before, after } => {
                let name = |collation: &Option<String>| collation.as_deref().map_or("none".into(), dotted);
                format!("{} changed its collation from {} to {}", column(c), name(before), name(after))
            }
            Change::ColumnTypeRenamed { column: c, before, after } => format!(
                "the type or collation of {} was renamed from {} to {}",
                column(c),
                dotted(before),
                dotted(after)
            ),
            Change::ColumnRewritten { column: c } => {
                format!("the values of {} were computed anew by ALTER TYPE ... USING", column(c))
            }
            Change::NullabilityChanged { column: c, not_null } => {
                format!("{} {} NULL", column(c), if *not_null { "no longer allows" } else { "now allows" })
            }
            Change::DefaultChanged { column: c, before: Some(before), after: Some(after) }
                if before == after =>
            {
                format!("the default of {} was made anew as {after}", column(c))
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
            Change::IndexChanged { name, turn, .. } => {
                format!("index {} {}", visible_ident(name), turn.words())
            }
            Change::IndexRenamed { before, after } => {
                format!("index {} was renamed to {}", visible_ident(before), visible_ident(after))
            }
            Change::ConstraintChanged { name, turn, .. } => {
                format!("constraint {} {}", visible_ident(name), turn.words())
            }
            Change::ConstraintRenamed { before, after } => {
                format!("constraint {} was renamed to {}", visible_ident(before), visible_ident(after))
            }
            Change::RowSecurityChanged { before, after } => {
                format!("row security was {} and is {}", before.words(), after.words())
            }
            Change::PolicyChanged { name, turn, .. } => {
                format!("row security policy {} {}", visible_ident(name), turn.words())
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
                let subject = format!("capture trigger {} on {relation}", visible_ident(trigger));
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

/// A name that stands alone, unquoted unless it hides something.
fn shown(name: &str) -> String {
    if name.contains(is_hidden) { visible_ident(name) } else { name.to_string() }
}

/// The same of `schema.name` as shapes have it, unquoted.
fn dotted(name: &str) -> String {
    match name.split_once('.') {
        Some((schema, name)) => format!("{}.{}", shown(schema), shown(name)),
        None => shown(name),
    }
}

fn kind_word(kind: char) -> String {
    match kind {
        'r' => "table".into(),
        'p' => "partitioned table".into(),
        'v' => "view".into(),
        'm' => "materialized view".into(),
        'f' => "foreign table".into(),
        other => format!("relation of kind '{other}'"),
    }
}

fn type_kind_word(kind: char) -> String {
    match kind {
        'b' => "base type".into(),
        'c' => "composite type".into(),
        'd' => "domain".into(),
        'e' => "enum".into(),
        'm' => "multirange".into(),
        'p' => "pseudo-type".into(),
        'r' => "range".into(),
        other => format!("'{other}'"),
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
    let quoted: Vec<String> = columns.iter().map(|c| visible_ident(c)).collect();
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
