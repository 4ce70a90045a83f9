//! Random base tables: names, columns, keys, partitions, values.

use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

/// Column types that the tester uses.
///
/// `Fixed` is `numeric(12,2)`, whose display scale is always 2. `Free` is a numeric of any scale: 1.5 and 1.50 are equal
/// there and print differently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ty {
    Int,
    Big,
    Fixed,
    Free,
    Float,
    Date,
    Stamp,
    Text,
    Bool,
}

impl Ty {
    pub fn sql(self) -> &'static str {
        match self {
            Ty::Int => "integer",
            Ty::Big => "bigint",
            Ty::Fixed => "numeric(12,2)",
            Ty::Free => "numeric",
            Ty::Float => "double precision",
            Ty::Date => "date",
            Ty::Stamp => "timestamp",
            Ty::Text => "text",
            Ty::Bool => "boolean",
        }
    }

    /// The type of an expression cast: without a modifier that would change the value.
    pub fn cast(self) -> &'static str {
        match self {
            Ty::Fixed => "numeric",
            other => other.sql(),
        }
    }
}

/// A column as a query sees it.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub ty: Ty,
}

/// A base table that writers change.
#[derive(Clone, Debug)]
pub struct Table {
    /// Qualified and quoted.
    pub name: String,
    pub cols: Vec<Column>,
    /// Column numbers of the primary key; empty for a table without one.
    pub key: Vec<usize>,
    /// Columns declared NOT NULL without being part of the key.
    pub not_null: Vec<usize>,
    /// The partition column of a partitioned table.
    pub partition: Option<usize>,
    pub next_key: i64,
}

const PLAIN: &[&str] =
    &["a", "b", "c", "x", "y", "amount", "kind", "val", "id", "ts", "n1", "n2", "note", "qty"];
const ODD: &[&str] = &[
    "Id",
    "Two Words",
    "größe",
    "数量",
    "quo\"te",
    "dot.ted",
    "select",
    "user",
    "it's",
    "semi;colon",
    "1st",
    "$1",
    "per%cent",
    "new",
    "old",
    "ctid2",
    "__weight",
    "r1",
    "c1",
    "back\\slash",
    "a_name_of_exactly_sixty_three_bytes_that_is_the_longest_allowed",
];

/// Double-quoted, always.
pub fn ident(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text literal under standard_conforming_strings.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A name that is not in `taken`; one in three is odd.
pub fn fresh_name(rng: &mut ChaCha8Rng, taken: &mut Vec<String>) -> String {
    loop {
        let pool = if rng.random_bool(0.33) { ODD } else { PLAIN };
        let mut name = pool.choose(rng).expect("names").to_string();
        if taken.contains(&name) {
            name = format!("{}{}", name.chars().take(20).collect::<String>(), rng.random_range(0..100));
        }
        let name: String = name.chars().take(63).collect();
        if name.len() <= 63 && !taken.contains(&name) {
            taken.push(name.clone());
            return name;
        }
    }
}

/// A literal of type `ty`; NULL with probability `nulls`.
pub fn value(rng: &mut ChaCha8Rng, ty: Ty, nulls: f64) -> String {
    if rng.random_bool(nulls) {
        return "NULL".into();
    }
    match ty {
        Ty::Int => rng.random_range(-2..9).to_string(),
        Ty::Big => {
            if rng.random_bool(0.1) {
                format!("{}", 4_000_000_000_i64 + rng.random_range(0..3))
            } else {
                rng.random_range(0..8).to_string()
            }
        }
        Ty::Fixed => {
            if rng.random_bool(0.03) {
                "'NaN'".into()
            } else {
                format!("{}.{:02}", rng.random_range(-3..10), rng.random_range(0..4) * 25)
            }
        }
        Ty::Free => [
            "1.5",
            "0.25",
            "1e-20",
            "2",
            "2.0",
            "2.00",
            "'NaN'",
            "-1.5",
            "100",
            "0",
            "0.000",
            "12345678901234567890.1",
        ]
        .choose(rng)
        .expect("values")
        .to_string(),
        // Quarters: their sums are exact in any order, so that the oracle's own order does not matter.
        Ty::Float => format!("{}", f64::from(rng.random_range(1..40)) / 4.0),
        Ty::Date => format!("'2024-0{}-1{}'", rng.random_range(1..4), rng.random_range(0..4)),
        Ty::Stamp => {
            format!("'2024-01-0{} {:02}:30:00'", rng.random_range(1..4), rng.random_range(0..4) * 6)
        }
        Ty::Text => literal(
            ["", "a", "b", "ab", "Abc", "é", "x y", "o'k", "a|b", "\\N", "{1,2}", "NULL"]
                .choose(rng)
                .expect("values"),
        ),
        Ty::Bool => ["true", "false"].choose(rng).expect("values").to_string(),
    }
}

/// One random table and the statements that make it.
pub fn table(rng: &mut ChaCha8Rng, schema: &str, taken: &mut Vec<String>, setup: &mut Vec<String>) -> Table {
    let name = format!("{schema}.{}", ident(&fresh_name(rng, taken)));
    let mut names = Vec::new();
    let mut cols: Vec<Column> = Vec::new();
    let key_width = *[0, 0, 1, 1, 1, 2].choose(rng).expect("widths");
    for _ in 0..key_width {
        cols.push(Column { name: fresh_name(rng, &mut names), ty: Ty::Int });
    }
    for _ in 0..rng.random_range(2..6) {
        let ty = *[
            Ty::Int,
            Ty::Int,
            Ty::Int,
            Ty::Text,
            Ty::Text,
            Ty::Big,
            Ty::Fixed,
            Ty::Fixed,
            Ty::Free,
            Ty::Date,
            Ty::Stamp,
            Ty::Bool,
            Ty::Float,
        ]
        .choose(rng)
        .expect("types");
        cols.push(Column { name: fresh_name(rng, &mut names), ty });
    }
    let partition = (key_width != 1 && rng.random_bool(0.2))
        .then(|| (0..cols.len()).find(|&i| cols[i].ty == Ty::Int))
        .flatten();
    let key: Vec<usize> = (0..key_width).collect();
    let not_null: Vec<usize> =
        (key_width..cols.len()).filter(|i| Some(*i) != partition && rng.random_bool(0.15)).collect();

    let mut defs: Vec<String> = cols
        .iter()
        .enumerate()
        .map(|(i, c)| {
            format!(
                "{} {}{}",
                ident(&c.name),
                c.ty.sql(),
                if not_null.contains(&i) { " NOT NULL" } else { "" }
            )
        })
        .collect();
    let dropped = rng.random_bool(0.3).then(|| fresh_name(rng, &mut names));
    if let Some(d) = &dropped {
        let at = rng.random_range(0..=defs.len());
        defs.insert(at, format!("{} text DEFAULT 'gone'", ident(d)));
    }
    if rng.random_bool(0.3) {
        // Never used by a query, but written by updates of the whole row.
        defs.push(format!("{} text", ident(&fresh_name(rng, &mut names))));
    }
    if !key.is_empty() {
        let list: Vec<String> = key.iter().map(|&i| ident(&cols[i].name)).collect();
        defs.push(format!("PRIMARY KEY ({})", list.join(", ")));
    }
    match partition {
        None => setup.push(format!("CREATE TABLE {name} ({})", defs.join(", "))),
        Some(p) => {
            setup.push(format!(
                "CREATE TABLE {name} ({}) PARTITION BY RANGE ({})",
                defs.join(", "),
                ident(&cols[p].name)
            ));
            let part = |rng: &mut ChaCha8Rng, taken: &mut Vec<String>| {
                format!("{schema}.{}", ident(&fresh_name(rng, taken)))
            };
            let low = part(rng, taken);
            setup.push(format!("CREATE TABLE {low} PARTITION OF {name} FOR VALUES FROM (MINVALUE) TO (2)"));
            // A partition that was made elsewhere: other order of columns, one dropped, so other attribute numbers.
            let high = part(rng, taken);
            setup.push(format!("CREATE TABLE {high} (LIKE {name})"));
            let first = &cols[0];
            setup.push(format!("ALTER TABLE {high} DROP COLUMN {}", ident(&first.name)));
            setup.push(format!(
                "ALTER TABLE {high} ADD COLUMN {} {}{}",
                ident(&first.name),
                first.ty.sql(),
                if key.contains(&0) || not_null.contains(&0) { " NOT NULL" } else { "" }
            ));
            if let Some(d) = &dropped {
                setup.push(format!("ALTER TABLE {high} ALTER COLUMN {} SET DEFAULT 'gone'", ident(d)));
            }
            setup.push(format!(
                "ALTER TABLE {name} ATTACH PARTITION {high} FOR VALUES FROM (2) TO ({})",
                if key.contains(&p) { 1000 } else { 5 }
            ));
            let rest = part(rng, taken);
            setup.push(format!("CREATE TABLE {rest} PARTITION OF {name} DEFAULT"));
        }
    }
    if let Some(d) = &dropped {
        setup.push(format!("ALTER TABLE {name} DROP COLUMN {}", ident(d)));
    }
    if rng.random_bool(0.25) {
        let col = cols.choose(rng).expect("columns");
        setup.push(format!("CREATE INDEX ON {name} ({})", ident(&col.name)));
    }
    if rng.random_bool(0.1) {
        setup.push(format!("ALTER TABLE {name} REPLICA IDENTITY FULL"));
    }
    Table { name, cols, key, not_null, partition, next_key: 1 }
}

/// `INSERT` of `rows` random rows with fresh keys.
pub fn insert(rng: &mut ChaCha8Rng, t: &mut Table, rows: usize) -> String {
    let list: Vec<String> = t.cols.iter().map(|c| ident(&c.name)).collect();
    let mut values = Vec::new();
    for _ in 0..rows {
        values.push(format!("({})", row(rng, t).join(", ")));
    }
    format!("INSERT INTO {} ({}) VALUES {}", t.name, list.join(", "), values.join(", "))
}

/// The values of one random row with a fresh key.
pub fn row(rng: &mut ChaCha8Rng, t: &mut Table) -> Vec<String> {
    let mut out = Vec::new();
    for (i, c) in t.cols.iter().enumerate() {
        if t.key.contains(&i) {
            let last = t.key.last() == Some(&i);
            out.push(if last { t.next_key.to_string() } else { rng.random_range(0..4).to_string() });
        } else {
            let nulls = if t.not_null.contains(&i) { 0.0 } else { 0.15 };
            out.push(value(rng, c.ty, nulls));
        }
    }
    if !t.key.is_empty() {
        t.next_key += 1;
    }
    out
}
