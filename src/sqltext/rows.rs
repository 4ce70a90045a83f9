//! Statements that compute whole rows for a table of our own, which `pg::own_rows` then writes: no INSERT, UPDATE or DELETE
//! of SQL reaches these tables. A statement's result is the place of the row (NULL for a new one), the row's columns in
//! the table's order and, where the table has rules, whether the row keeps them.
//!
//! Expressions and conditions are SQL of ours; `t` is the row as it is.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::sqltext::{ident, qualified};

/// Schema of the tables.
const SCHEMA: &str = "pgtrickle";

/// A column of a table of our own.
#[derive(Debug)]
pub struct Column {
    pub name: &'static str,
    /// Qualified.
    pub sql_type: &'static str,
    pub nullable: bool,
    /// What a new row has that is not given another value; NULL without it.
    pub default: Option<&'static str>,
}

impl Column {
    /// A column that is never NULL.
    pub const fn new(name: &'static str, sql_type: &'static str) -> Column {
        Column { name, sql_type, nullable: false, default: None }
    }

    /// The same column, NULL allowed.
    pub const fn or_null(self) -> Column {
        Column { nullable: true, ..self }
    }

    /// The same column with a default.
    pub const fn or(self, default: &'static str) -> Column {
        Column { default: Some(default), ..self }
    }
}

/// A table of our own: a materialized view that only `pg::own_rows` writes.
#[derive(Debug)]
pub struct Table {
    pub name: &'static str,
    /// All of them, in order.
    pub columns: &'static [Column],
    /// What every row must satisfy, as a condition over the bare column names; NULL satisfies it.
    pub rule: Option<&'static str>,
}

/// A column's name and the expression that it gets.
pub type Assignment<'a> = (&'a str, &'a str);

impl Table {
    /// One new row.
    pub fn insert(&self, values: &[Assignment]) -> Result<String> {
        self.insert_from(values, "")
    }

    /// A new row for each row of `from`, a FROM clause.
    pub fn insert_from(&self, values: &[Assignment], from: &str) -> Result<String> {
        let row = self.row(values, |c| c.default.unwrap_or("NULL").to_string())?;
        Ok(self.ruled("NULL::pg_catalog.tid", &row, from))
    }

    /// New values for the rows that satisfy `condition`.
    pub fn update(&self, values: &[Assignment], condition: &str) -> Result<String> {
        let row = self.row(values, |c| format!("t.{}", ident(c.name)))?;
        Ok(self.ruled("t.ctid", &row, &format!("FROM {} t WHERE {condition}", self.qualified())))
    }

    /// New values for the row that satisfies `condition`, or a new row with them. Two who do so at once get two rows: a
    /// unique index has to stand against it.
    pub fn upsert(&self, values: &[Assignment], condition: &str) -> Result<String> {
        let row = self.row(values, |c| {
            let name = ident(c.name);
            match c.default {
                Some(default) => format!("CASE WHEN t.ctid IS NULL THEN {default} ELSE t.{name} END"),
                None => format!("t.{name}"),
            }
        })?;
        let from = format!("FROM (VALUES (true)) one LEFT JOIN {} t ON {condition}", self.qualified());
        Ok(self.ruled("t.ctid", &row, &from))
    }

    /// The places of the rows that satisfy `condition`.
    pub fn delete(&self, condition: &str) -> String {
        format!("SELECT t.ctid AS place FROM {} t WHERE {condition}", self.qualified())
    }

    /// `"schema"."name"`.
    pub fn qualified(&self) -> String {
        qualified(SCHEMA, self.name)
    }

    /// The select list of a row: what is given, and `otherwise`.
    fn row(&self, values: &[Assignment], otherwise: impl Fn(&Column) -> String) -> Result<String> {
        for (name, _) in values {
            let known = self.columns.iter().any(|c| c.name == *name);
            let times = values.iter().filter(|(other, _)| other == name).count();
            if !known || times > 1 {
                return Err(Error::Internal(format!("{} has no single column {name}", self.name)));
            }
        }
        let columns = self.columns.iter().map(|c| {
            let given = values.iter().find(|(name, _)| *name == c.name);
            let value = given.map_or_else(|| otherwise(c), |(_, expression)| (*expression).to_string());
            format!("CAST({value} AS {}) AS {}", c.sql_type, ident(c.name))
        });
        Ok(columns.collect::<Vec<_>>().join(", "))
    }

    fn ruled(&self, place: &str, row: &str, from: &str) -> String {
        let gap = if from.is_empty() { "" } else { " " };
        let rows = format!("SELECT {place} AS place, {row}{gap}{from}");
        match self.rule {
            // Evaluated once for each row, volatile expressions included.
            Some(rule) => format!("SELECT r.*, ({rule}) IS NOT FALSE FROM ({rows} OFFSET 0) r"),
            None => rows,
        }
    }
}
