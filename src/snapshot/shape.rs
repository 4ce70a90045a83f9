//! What one table looks like at one moment: a plain value, read by `snapshot::read`.
//!
//! Two kinds of facts are kept apart. The *shape* is what a user sees and can change. *Evidence* tells two equal shapes
//! apart: `filenode` and [`ColumnShape::stored`] move when storage or a catalog row was replaced, `row_estimate` with
//! every ANALYZE. Evidence alone is never a change; `drift::diff` uses it to see what a shape can't show.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::model::Oid;
use crate::snapshot::stored::{Stored, written};
use crate::sqltext;
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Short texts without an allocation each: reading tens of thousands of shapes is mostly that.
pub use compact_str::CompactString as Text;

/// Version tag of the JSON form.
pub const SHAPE_VERSION: u32 = 1;

/// One relation: table, partitioned table, view, stream table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableShape {
    /// [`SHAPE_VERSION`] of the writer.
    pub version: u32,
    /// `pg_class.oid`.
    pub oid: Oid,
    /// Name of the schema.
    pub schema: String,
    /// Name of the relation.
    pub name: String,
    /// `relkind`: `r` table, `p` partitioned table, `v` view, `m` materialized view, `f` foreign table.
    pub kind: char,
    /// `relpersistence`: `p` permanent, `u` unlogged, `t` temporary.
    pub persistence: char,
    /// Name of the owner.
    pub owner: String,
    /// `reltuples`; none when the table was never analysed. Evidence.
    pub row_estimate: Option<i64>,
    /// `relfilenode`; 0 for a relation without storage. Evidence.
    pub filenode: Oid,
    /// Columns that exist, by attnum.
    #[serde(deserialize_with = "null_as_empty")]
    pub columns: Vec<ColumnShape>,
    /// Indexes, by oid.
    #[serde(deserialize_with = "null_as_empty")]
    pub indexes: Vec<IndexShape>,
    /// Constraints without NOT NULL, by oid.
    #[serde(deserialize_with = "null_as_empty")]
    pub constraints: Vec<ConstraintShape>,
    /// `relreplident`: `d` default, `n` nothing, `f` full, `i` index.
    pub replica_identity: char,
    /// Row security is enabled.
    pub row_security: bool,
    /// Row security binds the owner too.
    pub force_row_security: bool,
    /// Row security policies, by name.
    #[serde(deserialize_with = "null_as_empty")]
    pub policies: Vec<PolicyShape>,
    /// How a partitioned table is partitioned.
    pub partitioning: Option<Partitioning>,
    /// It is a partition itself.
    pub is_partition: bool,
    /// Tables that it inherits from or is a partition of.
    #[serde(deserialize_with = "null_as_empty")]
    pub parents: Vec<Oid>,
    /// Partitions and inheritance children of any depth, by oid.
    #[serde(deserialize_with = "null_as_empty")]
    pub members: Vec<MemberShape>,
    /// Capture triggers on the relation itself, by name.
    #[serde(deserialize_with = "null_as_empty")]
    pub capture: Vec<CaptureTrigger>,
}

/// One column.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnShape {
    /// Number of the column; its identity.
    pub attnum: i16,
    /// Name.
    pub name: Text,
    /// Type.
    pub type_oid: Oid,
    /// `schema.name` of the type, as in the catalog, unquoted (`pg_catalog._text` is an array of text).
    pub type_name: Text,
    /// `typtype`: `b` base, `c` composite, `d` domain, `e` enum, `p` pseudo, `r` range, `m` multirange.
    pub type_kind: char,
    /// `atttypmod`; -1 for none.
    pub typmod: i32,
    /// `attndims`.
    pub dims: i32,
    /// Collation; 0 for none.
    pub collation_oid: Oid,
    /// `schema.name` of the collation.
    pub collation_name: Option<Text>,
    /// NOT NULL.
    pub not_null: bool,
    /// The default, or the generation expression of a generated column.
    pub expression: Option<Expression>,
    /// Rows from before the column was added get its value from the catalog (`atthasmissing`). Evidence.
    pub missing: bool,
    /// `attidentity`: empty, `a` always, `d` by default.
    pub identity: Text,
    /// `attgenerated`: empty, `s` stored, `v` virtual.
    pub generated: Text,
    /// Which version of its `pg_attribute` row this is (xmin and ctid). Evidence.
    pub stored: Text,
}

/// A stored expression.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expression {
    /// Row in `pg_attrdef`: ALTER TYPE gives it a new one. Evidence.
    pub oid: Oid,
    /// Printed form; none when it could not be printed any more. Names in it follow renames: for people only.
    pub text: Option<String>,
    /// Digest of the stored form. It tells expressions apart and does not follow renames.
    pub digest: Text,
}

/// One index.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexShape {
    /// `pg_class.oid` of the index.
    pub oid: Oid,
    /// Name.
    pub name: Text,
    /// Columns, included ones last; 0 for an expression.
    pub attnums: Vec<i16>,
    /// How many of them are key columns.
    pub key_count: i16,
    /// UNIQUE.
    pub unique: bool,
    /// Index of the primary key.
    pub primary: bool,
    /// Usable.
    pub valid: bool,
    /// Named by REPLICA IDENTITY USING INDEX.
    pub replica_identity: bool,
    /// Has key expressions.
    pub expressions: bool,
    /// Has a WHERE clause.
    pub partial: bool,
    /// Digest of what else defines it: access method, operator classes, order, expressions, WHERE clause.
    #[serde(default)]
    pub definition: Text,
}

impl IndexShape {
    /// Key columns, without included ones.
    pub fn key(&self) -> &[i16] {
        let count = usize::try_from(self.key_count).unwrap_or(0).min(self.attnums.len());
        &self.attnums[..count]
    }
}

/// One constraint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConstraintShape {
    /// `pg_constraint.oid`.
    pub oid: Oid,
    /// Name.
    pub name: Text,
    /// `contype`: `c` check, `f` foreign key, `p` primary key, `t` trigger, `u` unique, `x` exclusion.
    pub kind: char,
    /// Columns.
    #[serde(deserialize_with = "null_as_empty")]
    pub attnums: Vec<i16>,
    /// Known to hold for all rows.
    pub validated: bool,
    /// Digest of what else defines it: the condition, the table and columns that it references, what happens then.
    #[serde(default)]
    pub definition: Text,
}

/// One row security policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyShape {
    /// Name.
    pub name: Text,
    /// Digest of command, roles and expressions.
    pub digest: Text,
}

/// Partition key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partitioning {
    /// `partstrat`: `r` range, `l` list, `h` hash.
    pub strategy: char,
    /// Columns; 0 for an expression.
    pub attnums: Vec<i16>,
    /// Has expressions.
    pub expressions: bool,
}

/// A partition or inheritance child at any depth.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberShape {
    /// `pg_class.oid`.
    pub oid: Oid,
    /// The relation just above it.
    pub parent: Oid,
    /// Name of its schema.
    pub schema: String,
    /// Name.
    pub name: String,
    /// `relkind`.
    pub kind: char,
    /// A partition; otherwise a child by INHERITS.
    pub partition: bool,
    /// `relpersistence`.
    pub persistence: char,
    /// `relfilenode`. Evidence.
    pub filenode: Oid,
    /// Capture triggers on it, by name.
    #[serde(deserialize_with = "null_as_empty")]
    pub capture: Vec<CaptureTrigger>,
}

/// A trigger named `pgtrickle_capture...`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureTrigger {
    /// Name.
    pub name: String,
    /// `tgenabled`: `A` always (the only right one), `O` origin, `R` replica, `D` disabled.
    pub enabled: char,
    /// Its function.
    pub function: Oid,
    /// Digest of what else defines it: events, columns, condition, arguments, whether it is a clone.
    #[serde(default)]
    pub definition: Text,
    /// Which version of its `pg_trigger` row this is (xmin): one that was changed and changed back is not the same.
    #[serde(default)]
    pub version: Text,
}

/// What a relation's flags announce, as `sql/queries/surroundings.sql` tells it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Surroundings {
    #[serde(deserialize_with = "null_as_empty")]
    policies: Vec<PolicyShape>,
    partitioning: Option<Partitioning>,
    #[serde(deserialize_with = "null_as_empty")]
    parents: Vec<Oid>,
    #[serde(deserialize_with = "null_as_empty")]
    members: Vec<MemberShape>,
    #[serde(deserialize_with = "null_as_empty")]
    capture: Vec<CaptureTrigger>,
}

impl TableShape {
    /// Enters what surrounds the relation, from JSON.
    pub fn surround(&mut self, json: &str) -> Result<()> {
        let found: Surroundings = serde_json::from_str(json)
            .map_err(|e| Error::Internal(format!("unreadable surroundings of a table: {e}")))?;
        self.policies = found.policies;
        self.partitioning = found.partitioning;
        self.parents = found.parents;
        self.members = found.members;
        self.capture = found.capture;
        self.sort();
        Ok(())
    }

    /// Enters the expressions of columns, from JSON by attnum.
    pub fn enter_expressions(&mut self, json: &str) -> Result<()> {
        let mut found: BTreeMap<i16, Expression> = serde_json::from_str(json)
            .map_err(|e| Error::Internal(format!("unreadable expressions of a table: {e}")))?;
        self.columns.iter_mut().for_each(|column| column.expression = found.remove(&column.attnum));
        Ok(())
    }

    /// Puts all lists into their documented order.
    fn sort(&mut self) {
        self.columns.sort_by_key(|c| c.attnum);
        self.indexes.sort_by_key(|i| i.oid);
        self.constraints.sort_by_key(|c| c.oid);
        self.policies.sort_by(|a, b| a.name.cmp(&b.name));
        self.members.sort_by_key(|m| (m.oid, m.parent));
        self.capture.sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// Reads one shape; lists are put into their documented order. An unreadable one is an error, never an empty shape.
    pub fn from_json(text: &str) -> Result<TableShape> {
        let mut shape: TableShape = serde_json::from_str(text)
            .map_err(|e| Error::Internal(format!("unreadable table shape: {e}")))?;
        if shape.version != SHAPE_VERSION {
            return Err(Error::Internal(format!(
                "table shape of version {}, expected {SHAPE_VERSION}",
                shape.version
            )));
        }
        shape.sort();
        Ok(shape)
    }

    /// The stored form: see `snapshot::stored`.
    pub fn to_json(&self) -> Result<String> {
        written(&Stored(self), "table shape")
    }

    /// SHA-256 over everything but the row estimate, in hex. Equal fingerprints need no diff; unequal ones do.
    pub fn fingerprint(&self) -> Result<String> {
        let mut still = self.clone();
        still.row_estimate = None;
        Ok(digest("pgtrickle shape 1\n", &still.to_json()?))
    }

    /// Equal in everything but the row estimate, which others move at any time.
    pub fn is_same(&self, other: &TableShape) -> bool {
        if self.row_estimate == other.row_estimate {
            return self == other;
        }
        let mut still = self.clone();
        still.row_estimate = other.row_estimate;
        still == *other
    }

    /// SHA-256 over the shape without evidence and without the oids that a table made anew would not have again, in hex (half of it, which is plenty).
    /// Two snapshots with equal digests have no difference, also when they are of two relations.
    pub fn content_digest(&self) -> Result<String> {
        let mut content = self.clone();
        (content.oid, content.filenode, content.row_estimate) = (0, 0, None);
        for column in &mut content.columns {
            column.stored.clear();
            column.missing = false;
            if let Some(expression) = &mut column.expression {
                (expression.oid, expression.text) = (0, None);
            }
        }
        content.indexes.iter_mut().for_each(|i| i.oid = 0);
        content.indexes.sort_by(|a, b| a.name.cmp(&b.name));
        content.constraints.iter_mut().for_each(|c| c.oid = 0);
        content.constraints.sort_by(|a, b| a.name.cmp(&b.name));
        // Partitions and parents keep their oids: which they are is part of what can differ.
        content.members.iter_mut().for_each(|m| m.filenode = 0);
        let of_members = content.members.iter_mut().flat_map(|m| &mut m.capture);
        content.capture.iter_mut().chain(of_members).for_each(|t| t.version.clear());
        let mut digest = digest("pgtrickle content 1\n", &content.to_json()?);
        digest.truncate(32);
        Ok(digest)
    }

    /// `schema.name` as people read it.
    pub fn display_name(&self) -> String {
        format!("{}.{}", sqltext::display_ident(&self.schema), sqltext::display_ident(&self.name))
    }

    /// The column with this number.
    pub fn column(&self, attnum: i16) -> Option<&ColumnShape> {
        self.columns.iter().find(|c| c.attnum == attnum)
    }

    /// The column with this name.
    pub fn column_named(&self, name: &str) -> Option<&ColumnShape> {
        self.columns.iter().find(|c| c.name == name)
    }

    /// The primary key constraint; its `attnums` are in key order.
    pub fn primary_key(&self) -> Option<&ConstraintShape> {
        self.constraints.iter().find(|c| c.kind == 'p')
    }

    /// Position of a column in the primary key, from 1.
    pub fn key_position(&self, attnum: i16) -> Option<usize> {
        self.primary_key()?.attnums.iter().position(|a| *a == attnum).map(|p| p + 1)
    }

    /// Column sets that are unique over all rows, the primary key among them: valid unique indexes on plain columns
    /// without WHERE. NULLs may repeat unless the columns are NOT NULL.
    pub fn unique_keys(&self) -> Vec<&[i16]> {
        self.indexes
            .iter()
            .filter(|i| i.unique && i.valid && !i.partial && !i.expressions)
            .map(IndexShape::key)
            .collect()
    }

    /// Where the rows lie: filenode of each relation of the tree that has storage.
    pub fn storage(&self) -> BTreeMap<Oid, Oid> {
        std::iter::once((self.oid, self.filenode))
            .chain(self.members.iter().map(|m| (m.oid, m.filenode)))
            .filter(|(_, filenode)| *filenode != 0)
            .collect()
    }
}

impl ColumnShape {
    /// The type as people write it: `integer[]`, `varchar(20)`, `shop.mood`.
    pub fn display_type(&self) -> String {
        let (schema, name) = self.type_name.split_once('.').unwrap_or(("", &self.type_name));
        if schema != "pg_catalog" {
            let modifier = if self.typmod < 0 { String::new() } else { format!(" (typmod {})", self.typmod) };
            return format!("{}.{}{modifier}", sqltext::display_ident(schema), sqltext::display_ident(name));
        }
        let (element, array) = match name.strip_prefix('_') {
            Some(element) => (element, "[]"),
            None => (name, ""),
        };
        format!("{}{}{array}", builtin_name(element, self.typmod), builtin_modifier(element, self.typmod))
    }
}

/// SQL's name of a built-in type where it differs from the catalog's.
fn builtin_name(name: &str, typmod: i32) -> &str {
    match name {
        "int2" => "smallint",
        "int4" => "integer",
        "int8" => "bigint",
        "float4" => "real",
        "float8" => "double precision",
        "bool" => "boolean",
        // SQL's char is one character long, unlike either of these.
        "bpchar" if typmod >= 0 => "char",
        "char" => "\"char\"",
        other => other,
    }
}

/// A type modifier as written; an unknown type's is shown as the number that it is.
fn builtin_modifier(name: &str, typmod: i32) -> String {
    if typmod < 0 {
        return String::new();
    }
    match name {
        "varchar" | "bpchar" if typmod >= 4 => format!("({})", typmod - 4),
        "numeric" if typmod >= 4 => {
            let packed = typmod - 4;
            // The scale is a signed 11-bit number since PostgreSQL 15.
            format!("({},{})", (packed >> 16) & 0xffff, ((packed & 0x7ff) ^ 1024) - 1024)
        }
        // The upper half says which fields there are; all, unless some were named.
        "interval" if typmod >> 16 == 0x7fff => format!("({})", typmod & 0xffff),
        "bit" | "varbit" | "time" | "timetz" | "timestamp" | "timestamptz" => format!("({typmod})"),
        _ => format!(" (typmod {typmod})"),
    }
}

fn digest(tag: &str, text: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(tag.as_bytes());
    hash.update(text.as_bytes());
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

/// An aggregate over no rows is NULL.
fn null_as_empty<'de, D, T>(deserializer: D) -> std::result::Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::<Vec<T>>::deserialize(deserializer)?.unwrap_or_default())
}
