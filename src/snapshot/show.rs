//! Snapshots as the view `schema_snapshots` shows them: JSON with names, for people and for queries. What stands for
//! "nothing special" is left out.
#![forbid(unsafe_code)]

use serde_json::{Map, Value, json};

use super::profile::{Column, ColumnProfile, Form, TableProfile};
use super::shape::{ColumnShape, ConstraintShape, IndexShape, TableShape};
use crate::sqltext::display_ident;

/// The columns, in order, each with its profile or with the reason why it has none.
pub fn columns(shape: &TableShape, profile: &TableProfile) -> Value {
    shape.columns.iter().map(|column| show_column(shape, column, profile)).collect()
}

fn show_column(shape: &TableShape, column: &ColumnShape, profile: &TableProfile) -> Value {
    let mut shown = Map::new();
    let mut put = |key: &str, value: Value| {
        shown.insert(key.to_string(), value);
    };
    put("attnum", column.attnum.into());
    put("name", column.name.as_str().into());
    let visible = display_ident(&column.name);
    if visible.starts_with("U&") {
        put("shown", visible.into());
    }
    put("type", column.display_type().into());
    put("type_kind", column.type_kind.to_string().into());
    put("not_null", column.not_null.into());
    if column.dims != 0 {
        put("dimensions", column.dims.into());
    }
    if let Some(collation) = &column.collation_name {
        put("collation", collation.as_str().into());
    }
    if let Some(expression) = &column.expression {
        let key = if column.generated.is_empty() { "default" } else { "generated" };
        put(key, expression.text.as_deref().unwrap_or("(not printable any more)").into());
    }
    if !column.identity.is_empty() {
        put("identity", if column.identity == "a" { "always" } else { "by default" }.into());
    }
    if let Some(position) = shape.key_position(column.attnum) {
        put("key_position", position.into());
    }
    match profile.entry(column.attnum) {
        Some(Column::Known(known)) => put("profile", show_profile(known, profile.form)),
        Some(Column::Absent(why)) => put("profile_absent", why.word().into()),
        None => put("profile_absent", "NOT_RECORDED".into()),
    }
    Value::Object(shown)
}

fn show_profile(profile: &ColumnProfile, form: Form) -> Value {
    let mut shown = Map::new();
    let mut put = |key: &str, value: Value| {
        shown.insert(key.to_string(), value);
    };
    put("null_fraction", number(profile.null_fraction));
    put("average_width", profile.average_width.into());
    put("distinct", number(profile.distinct));
    if let Some(correlation) = profile.correlation {
        put("correlation", number(correlation));
    }
    put("values", json!(form));
    if !profile.common.is_empty() {
        put("most_common_values", profile.common.iter().map(|c| Value::from(c.value.as_str())).collect());
        put("most_common_frequencies", profile.common.iter().map(|c| number(c.frequency)).collect());
        put("common_fraction", number(profile.common_fraction));
    }
    if !profile.histogram.is_empty() {
        put("histogram", profile.histogram.iter().map(|v| Value::from(v.as_str())).collect());
    }
    if !profile.positions.is_empty() {
        put("positions", profile.positions.iter().map(|p| number(*p)).collect());
    }
    Value::Object(shown)
}

/// A single-precision number by its shortest digits, which are what was measured: 0.1, not 0.10000000149.
fn number(value: f32) -> Value {
    value.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

/// Everything else about the table.
pub fn details(shape: &TableShape) -> Value {
    let names = |attnums: &[i16]| -> Value { attnums.iter().map(|a| column_name(shape, *a)).collect() };
    let mut shown = json!({
        "kind": match shape.kind { 'r' => "table", 'p' => "partitioned table", 'v' => "view",
            'm' => "materialized view", 'f' => "foreign table", _ => "other" },
        "persistence": match shape.persistence { 'p' => "permanent", 'u' => "unlogged", 't' => "temporary", _ => "other" },
        "owner": shape.owner,
        "primary_key": shape.primary_key().map(|key| names(&key.attnums)),
        "replica_identity": match shape.replica_identity { 'd' => "default", 'n' => "nothing", 'f' => "full", _ => "index" },
        "indexes": shape.indexes.iter().map(|i| show_index(i, &names)).collect::<Value>(),
        "constraints": shape.constraints.iter().map(|c| show_constraint(c, &names)).collect::<Value>(),
    });
    let Some(map) = shown.as_object_mut() else { return shown };
    if shape.row_security || shape.force_row_security || !shape.policies.is_empty() {
        let policies: Value = shape.policies.iter().map(|p| Value::from(p.name.as_str())).collect();
        let security =
            json!({"enabled": shape.row_security, "forced": shape.force_row_security, "policies": policies});
        map.insert("row_security".into(), security);
    }
    if let Some(key) = &shape.partitioning {
        let strategy = match key.strategy {
            'r' => "range",
            'l' => "list",
            'h' => "hash",
            _ => "other",
        };
        map.insert("partition_key".into(), json!({"strategy": strategy, "columns": names(&key.attnums)}));
    }
    if shape.is_partition {
        map.insert("is_partition".into(), true.into());
    }
    if !shape.parents.is_empty() {
        map.insert("parents".into(), shape.parents.clone().into());
    }
    if !shape.members.is_empty() {
        let members = shape.members.iter().map(|m| crate::sqltext::display(&m.schema, &m.name));
        map.insert("members".into(), members.map(Value::from).collect());
    }
    shown
}

fn column_name(shape: &TableShape, attnum: i16) -> Value {
    match shape.column(attnum) {
        Some(column) => column.name.as_str().into(),
        None if attnum == 0 => "(expression)".into(),
        None => format!("#{attnum}").into(),
    }
}

fn show_index(index: &IndexShape, names: &impl Fn(&[i16]) -> Value) -> Value {
    json!({"name": index.name, "columns": names(&index.attnums), "unique": index.unique, "primary": index.primary,
        "partial": index.partial, "valid": index.valid})
}

fn show_constraint(constraint: &ConstraintShape, names: &impl Fn(&[i16]) -> Value) -> Value {
    let kind = match constraint.kind {
        'c' => "check",
        'f' => "foreign key",
        'p' => "primary key",
        't' => "trigger",
        'u' => "unique",
        'x' => "exclusion",
        _ => "other",
    };
    json!({"name": constraint.name, "kind": kind, "columns": names(&constraint.attnums), "validated": constraint.validated})
}
