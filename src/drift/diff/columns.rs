//! Columns: which there are, and what each of them is.
#![forbid(unsafe_code)]

use super::{Diff, Pairing, beside};
use crate::drift::change::{Change, Column};
use crate::model::Oid;
use crate::snapshot::shape::{ColumnShape, Expression, TableShape, Text};
use crate::sqltext::visible_ident;
use std::collections::BTreeSet;

impl Diff<'_> {
    pub(super) fn columns(&mut self) {
        let (before, after) = (self.before, self.after);
        let mut pairs = beside(
            before.columns.iter().map(|c| (self.column_id(c), c)),
            after.columns.iter().map(|c| (self.column_id(c), c)),
        );
        pairs.sort_by_key(|p| (p.before.or(p.after).map(|c| c.attnum), p.before.is_none()));
        for pair in &pairs {
            match (pair.before, pair.after) {
                (Some(b), Some(a)) => self.column(b, a),
                (Some(c), None) | (None, Some(c)) if pair.repeated => {
                    self.other(format!("column {} is listed twice", visible_ident(&c.name)));
                }
                (Some(b), None) => self.push(Change::ColumnDropped { column: named(b) }),
                (None, Some(a)) => self.push(Change::ColumnAdded { column: named(a) }),
                (None, None) => {}
            }
        }
        let order: Vec<i16> = pairs.iter().filter_map(|p| p.before.and(p.after)).map(|a| a.attnum).collect();
        if !order.is_sorted() {
            self.push(Change::ColumnsReordered);
        }
    }

    fn column(&mut self, b: &ColumnShape, a: &ColumnShape) {
        let column = || named(b);
        if b.name != a.name {
            self.push(Change::ColumnRenamed {
                attnum: b.attnum,
                before: b.name.to_string(),
                after: a.name.to_string(),
            });
        }
        let known = self.changes.len();
        let same_type =
            if self.pairing == Pairing::Name { b.type_name == a.type_name } else { b.type_oid == a.type_oid };
        if !same_type {
            self.push(Change::ColumnTypeChanged {
                column: column(),
                before: b.display_type(),
                after: a.display_type(),
            });
        } else {
            self.same_type(b, a);
        }
        let retyped = self.changes[known..].iter().any(|c| !matches!(c, Change::ColumnTypeRenamed { .. }));
        if !retyped && self.rewritten(b, a) {
            self.push(Change::ColumnRewritten { column: column() });
        }
        if b.not_null != a.not_null {
            self.push(Change::NullabilityChanged { column: column(), not_null: a.not_null });
        }
        if b.identity != a.identity {
            self.push(Change::IdentityChanged {
                column: column(),
                before: b.identity.to_string(),
                after: a.identity.to_string(),
            });
        }
        let same_expression = self.same_expression(b.expression.as_ref(), a.expression.as_ref());
        if b.generated != a.generated || (!a.generated.is_empty() && !same_expression) {
            self.push(Change::GenerationChanged {
                column: column(),
                before: generation_words(b),
                after: generation_words(a),
            });
        } else if !same_expression {
            let text = |c: &ColumnShape| c.expression.as_ref().map(expression_words);
            self.push(Change::DefaultChanged { column: column(), before: text(b), after: text(a) });
        }
    }

    fn same_type(&mut self, b: &ColumnShape, a: &ColumnShape) {
        let column = || named(b);
        if b.typmod != a.typmod {
            self.push(Change::ColumnTypmodChanged {
                column: column(),
                before: b.display_type(),
                after: a.display_type(),
            });
        }
        if b.dims != a.dims {
            self.push(Change::ColumnDimensionsChanged { column: column(), before: b.dims, after: a.dims });
        }
        if b.type_kind != a.type_kind {
            self.push(Change::ColumnTypeKindChanged {
                column: column(),
                before: b.type_kind,
                after: a.type_kind,
            });
        }
        if b.type_name != a.type_name {
            self.push(Change::ColumnTypeRenamed {
                column: column(),
                before: b.type_name.to_string(),
                after: a.type_name.to_string(),
            });
        }
        let same_collation = if self.pairing == Pairing::Name {
            b.collation_name == a.collation_name
        } else {
            b.collation_oid == a.collation_oid
        };
        if !same_collation {
            self.push(Change::ColumnCollationChanged {
                column: column(),
                before: b.collation_name.as_ref().map(Text::to_string),
                after: a.collation_name.as_ref().map(Text::to_string),
            });
        } else if b.collation_name != a.collation_name {
            let words = |c: &ColumnShape| c.collation_name.as_ref().map(Text::to_string).unwrap_or_default();
            self.push(Change::ColumnTypeRenamed { column: column(), before: words(b), after: words(a) });
        }
    }

    /// Whether the values of a column of unchanged type were computed anew.
    fn rewritten(&self, b: &ColumnShape, a: &ColumnShape) -> bool {
        if self.pairing == Pairing::Name || !self.storage_moved || b.stored == a.stored {
            return false;
        }
        if let Some(retyped) = self.retyped {
            return retyped.contains(b.name.as_str());
        }
        // ALTER TYPE makes a new default, and new indexes and constraints where the column takes part: any that stayed
        // itself shows that the new pg_attribute row has another cause.
        let default = b.expression.as_ref().zip(a.expression.as_ref()).is_some_and(|(b, a)| b.oid == a.oid);
        let of = |s: &TableShape| -> BTreeSet<Oid> {
            let indexes = s.indexes.iter().map(|i| (i.oid, &i.attnums));
            let constraints = s.constraints.iter().map(|c| (c.oid, &c.attnums));
            indexes.chain(constraints).filter(|(_, on)| on.contains(&b.attnum)).map(|(oid, _)| oid).collect()
        };
        let stayed = of(self.before).intersection(&of(self.after)).next().is_some();
        !(default || stayed)
    }

    /// Digests decide: printed text follows renames, and may be missing. Between two relations equal text suffices.
    fn same_expression(&self, b: Option<&Expression>, a: Option<&Expression>) -> bool {
        match (b, a) {
            (None, None) => true,
            (Some(b), Some(a)) => {
                b.digest == a.digest
                    || (self.pairing == Pairing::Name && b.text.is_some() && b.text == a.text)
            }
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    fn column_id<'c>(&self, column: &'c ColumnShape) -> ColumnId<'c> {
        match self.pairing {
            Pairing::Identity => ColumnId::Number(column.attnum),
            Pairing::Name => ColumnId::Name(&column.name),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ColumnId<'a> {
    Number(i16),
    Name(&'a str),
}

fn named(column: &ColumnShape) -> Column {
    Column { attnum: column.attnum, name: column.name.to_string() }
}

fn expression_words(expression: &Expression) -> String {
    expression.text.clone().unwrap_or_else(|| "(not printable any more)".into())
}

fn generation_words(column: &ColumnShape) -> Option<String> {
    let kind = match column.generated.as_str() {
        "" => return None,
        "s" => " stored",
        "v" => " virtual",
        _ => "",
    };
    let expression = column.expression.as_ref().map(expression_words).unwrap_or_default();
    Some(format!("{expression}{kind}"))
}
