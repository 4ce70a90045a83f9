//! From query text to a plain Rust picture of it: PostgreSQL parses, resolves and prints; nothing of its trees leaves
//! this folder.

mod convert;
mod parse;
mod print;
mod rewrite_hint;
mod uses;

use std::collections::BTreeSet;

use crate::dvm::Op;
use crate::dvm::support::Unsupported;
use crate::model::Oid;

pub use parse::{ColumnType, Parsed, analyse, describe, parse, print_tree};
pub use rewrite_hint::without_changed_columns;

/// One output column of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputColumn {
    pub name: String,
    pub type_oid: Oid,
    pub typmod: i32,
    pub collation: Oid,
    /// `schema.type(mod)`, for SQL.
    pub type_sql: String,
    /// Rows can be compared and hashed by it.
    pub comparable: bool,
}

/// What role a column plays in a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Output,
    Filter,
    Join,
    Group,
    Order,
    Window,
    WholeRow,
    /// Of the table itself: its partitions' or children's rows are read with its own.
    Children,
}

impl Role {
    /// Stable word.
    pub fn word(self) -> &'static str {
        match self {
            Role::Output => "output",
            Role::Filter => "filter",
            Role::Join => "join",
            Role::Group => "group",
            Role::Order => "order",
            Role::Window => "window",
            Role::WholeRow => "whole row",
            Role::Children => "children",
        }
    }
}

/// What kind of object a query uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum UseKind {
    /// A table read; attnum 0 stands for the table itself.
    Source,
    View,
    /// Function, operator, type: anything whose change may change results.
    Object,
}

impl UseKind {
    /// Stable word, as stored.
    pub fn word(self) -> &'static str {
        match self {
            UseKind::Source => "source",
            UseKind::View => "view",
            UseKind::Object => "object",
        }
    }
}

/// One dependency of a query.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    pub kind: UseKind,
    pub class: Oid,
    pub object: Oid,
    pub attnum: i16,
    pub roles: BTreeSet<Role>,
}

/// A query as the planner of refreshes needs it.
#[derive(Debug, Clone)]
pub struct Analysis {
    /// The operator tree, or what forbids one.
    pub plan: Result<Op, Vec<Unsupported>>,
    pub columns: Vec<OutputColumn>,
    pub uses: Vec<Use>,
}

impl Analysis {
    /// Tables read, by oid.
    pub fn sources(&self) -> BTreeSet<Oid> {
        self.uses.iter().filter(|u| u.kind == UseKind::Source).map(|u| u.object).collect()
    }

    /// Can rows of the result be compared and hashed?
    pub fn comparable(&self) -> bool {
        self.columns.iter().all(|c| c.comparable)
    }
}
