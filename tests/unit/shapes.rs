//! Shapes to test with: what real servers gave for real DDL (`data/`, recorded by `data/record.sh`), and parts of them.

use pgtrickle::snapshot::shape::TableShape;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// One recorded command.
pub struct Recorded {
    pub name: String,
    pub sql: String,
    pub before: TableShape,
    pub after: TableShape,
}

impl Recorded {
    /// Columns that the command names in ALTER ... TYPE.
    pub fn retyped(&self) -> BTreeSet<String> {
        let words: Vec<&str> = self.sql.split_whitespace().collect();
        let alters = words.windows(3).filter(|w| w[0] == "ALTER" && w[2] == "TYPE");
        alters.map(|w| w[1].to_string()).collect()
    }
}

/// All commands as recorded on PostgreSQL 15 or 18.
pub fn recorded(major: u32) -> &'static [Recorded] {
    static ON_15: LazyLock<Vec<Recorded>> = LazyLock::new(|| parse(include_str!("data/ddl_pg15.jsonl")));
    static ON_18: LazyLock<Vec<Recorded>> = LazyLock::new(|| parse(include_str!("data/ddl_pg18.jsonl")));
    match major {
        15 => &ON_15,
        18 => &ON_18,
        other => panic!("nothing recorded on PostgreSQL {other}"),
    }
}

fn parse(text: &str) -> Vec<Recorded> {
    text.lines()
        .map(|line| {
            let value: serde_json::Value = serde_json::from_str(line).expect("a JSON line");
            let shape = |side: &str| TableShape::from_json(&value[side].to_string()).expect("a shape");
            let word = |key: &str| value[key].as_str().expect("a string").to_string();
            Recorded { name: word("name"), sql: word("sql"), before: shape("before"), after: shape("after") }
        })
        .collect()
}

/// A command as recorded on PostgreSQL 15.
pub fn command(name: &str) -> &'static Recorded {
    recorded(15).iter().find(|r| r.name == name).expect("recorded")
}

/// `t.src (id, used, free, late, gen, fast)`: keys, a generated column, a fast default, a capture trigger.
pub fn src() -> TableShape {
    command("comment").before.clone()
}

/// `t.part`: a partitioned table of two levels.
pub fn part() -> TableShape {
    command("create partition").before.clone()
}

/// One shape that has something in every field.
pub fn rich() -> TableShape {
    let (mut shape, part) = (src(), part());
    shape.policies = command("policy with row security").after.policies.clone();
    shape.partitioning = part.partitioning;
    shape.members = part.members;
    let top = shape.members.iter_mut().filter(|m| m.parent == part.oid);
    top.for_each(|m| m.parent = shape.oid);
    shape.parents = vec![4711, 4712];
    shape.columns.push(part.columns[0].clone());
    if let Some(column) = shape.columns.last_mut() {
        column.attnum = 99;
        column.name = "Größe \"x\"".into();
        column.identity = "a".into();
    }
    shape
}
