//! Families of types: whose values a change of type keeps.
#![forbid(unsafe_code)]

/// Families of types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Numbers and money.
    Number,
    /// Character strings and enums.
    Text,
    /// Dates, times, intervals.
    Time,
    /// Booleans.
    Boolean,
    /// UUIDs.
    Uuid,
    /// Byte strings.
    Bytes,
    /// JSON.
    Json,
    /// All others.
    Other,
}

impl Family {
    /// Family of a type.
    pub fn of(type_name: &str, type_kind: char) -> Family {
        if type_kind == 'e' {
            return Family::Text;
        }
        match type_name.strip_prefix("pg_catalog.").unwrap_or(type_name) {
            "int2" | "int4" | "int8" | "numeric" | "float4" | "float8" | "money" | "oid" => Family::Number,
            "text" | "varchar" | "bpchar" | "char" | "name" => Family::Text,
            "date" | "timestamp" | "timestamptz" | "time" | "timetz" | "interval" => Family::Time,
            "bool" => Family::Boolean,
            "uuid" => Family::Uuid,
            "bytea" => Family::Bytes,
            "json" | "jsonb" => Family::Json,
            name if name.ends_with("citext") => Family::Text,
            _ => Family::Other,
        }
    }
}
