//! Random writers: two sessions, their transactions, savepoints and statements.

use crate::query::{Maker, Relation};
use crate::schema::{self, Table, Ty, ident, value};
use rand::Rng;
use rand::seq::{IndexedMutRandom, IndexedRandom};
use rand_chacha::ChaCha8Rng;

/// What one step does; `session` is 0 or 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A statement of a writer, transaction control included.
    Sql(String),
    /// Refresh of the stream table with this index, and the check.
    Refresh(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub session: usize,
    pub action: Action,
}

#[derive(Default, Clone, Copy)]
struct Session {
    open: bool,
    savepoints: usize,
    /// It holds a lock that stops everybody else (TRUNCATE).
    exclusive: bool,
}

/// Writes a script of `n` steps over the tables.
pub fn script(rng: &mut ChaCha8Rng, tables: &mut [Table], streams: usize, n: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut sessions = [Session::default(); 2];
    for _ in 0..n {
        let s = match sessions.iter().position(|s| s.exclusive) {
            Some(s) => s,
            None => usize::from(rng.random_bool(0.4)),
        };
        let other_open = sessions[1 - s].open;
        let me = &mut sessions[s];
        let mut push = |sql: String| steps.push(Step { session: s, action: Action::Sql(sql) });
        match rng.random_range(0..100) {
            0..14 => {
                if !me.open {
                    let level = *[
                        "READ COMMITTED",
                        "READ COMMITTED",
                        "READ COMMITTED",
                        "REPEATABLE READ",
                        "SERIALIZABLE",
                    ]
                    .choose(rng)
                    .expect("levels");
                    push(format!("BEGIN ISOLATION LEVEL {level}"));
                    *me = Session { open: true, ..Session::default() };
                } else if rng.random_bool(0.5) {
                    me.savepoints += 1;
                    push(format!("SAVEPOINT s{}", me.savepoints));
                } else if me.savepoints > 0 {
                    let to = rng.random_range(1..=me.savepoints);
                    if rng.random_bool(0.7) {
                        push(format!("ROLLBACK TO SAVEPOINT s{to}"));
                        me.savepoints = to;
                    } else {
                        push(format!("RELEASE SAVEPOINT s{to}"));
                        me.savepoints = to - 1;
                    }
                }
            }
            14..24 => {
                if me.open {
                    push(if rng.random_bool(0.75) { "COMMIT".into() } else { "ROLLBACK".into() });
                    *me = Session::default();
                }
            }
            24..76 => {
                let t = tables.choose_mut(rng).expect("tables");
                let sql = statement(rng, t, other_open);
                me.exclusive = me.open && (me.exclusive || sql.starts_with("TRUNCATE"));
                push(sql);
            }
            _ => {
                let st = rng.random_range(0..streams);
                steps.push(Step { session: s, action: Action::Refresh(st) });
            }
        }
    }
    for (s, me) in sessions.iter().enumerate() {
        if me.open {
            steps.push(Step { session: s, action: Action::Sql("COMMIT".into()) });
        }
    }
    for st in 0..streams {
        steps.push(Step { session: st % 2, action: Action::Refresh(st) });
    }
    steps
}

/// A statement that changes `t`. With `shared` another transaction is open: then rows that it holds are passed over,
/// so that one thread can play both sessions without ever waiting.
fn statement(rng: &mut ChaCha8Rng, t: &mut Table, shared: bool) -> String {
    match rng.random_range(0..100) {
        0..38 => {
            let rows = *[1, 1, 2, 3, 8].choose(rng).expect("sizes");
            schema::insert(rng, t, rows)
        }
        38..43 if t.key.is_empty() => {
            // True duplicates.
            let list: Vec<String> = t.cols.iter().map(|c| ident(&c.name)).collect();
            let list = list.join(", ");
            let pred = predicate(rng, t);
            format!("INSERT INTO {} ({list}) SELECT {list} FROM {} WHERE {pred}", t.name, t.name)
        }
        43..46 if !t.key.is_empty() && !shared => {
            let row = schema::row(rng, t);
            let mut row = row;
            // Most of the time the key exists.
            let at = *t.key.last().expect("a key");
            row[at] = rng.random_range(1..t.next_key.max(2)).to_string();
            let list: Vec<String> = t.cols.iter().map(|c| ident(&c.name)).collect();
            let key: Vec<String> = t.key.iter().map(|&i| list[i].clone()).collect();
            let set = match (0..t.cols.len()).find(|i| !t.key.contains(i)) {
                Some(i) => format!("UPDATE SET {} = EXCLUDED.{}", list[i], list[i]),
                None => "NOTHING".into(),
            };
            format!(
                "INSERT INTO {} ({}) VALUES ({}) ON CONFLICT ({}) DO {set}",
                t.name,
                list.join(", "),
                row.join(", "),
                key.join(", ")
            )
        }
        46..49 if !shared => format!("TRUNCATE {}", t.name),
        49..52 if !shared => {
            let row = schema::row(rng, t);
            let list: Vec<String> = t.cols.iter().map(|c| ident(&c.name)).collect();
            let at = t.key.last().copied().unwrap_or(0);
            let i =
                (0..t.cols.len()).rev().find(|i| !t.key.contains(i) && Some(*i) != t.partition).unwrap_or(at);
            let typed: Vec<String> =
                row.iter().zip(&t.cols).map(|(v, c)| format!("CAST({v} AS {})", c.ty.sql())).collect();
            format!(
                "MERGE INTO {} m USING (SELECT {} AS k) n ON m.{} = n.k WHEN MATCHED AND m.{} IS NULL THEN DELETE WHEN \
                 MATCHED THEN UPDATE SET {} = {} WHEN NOT MATCHED THEN INSERT ({}) VALUES ({})",
                t.name,
                typed[at],
                ident(&t.cols[at].name),
                ident(&t.cols[i].name),
                ident(&t.cols[i].name),
                typed[i],
                list.join(", "),
                typed.join(", ")
            )
        }
        52..72 => {
            let pred = target(rng, t, shared);
            format!("DELETE FROM {} WHERE {pred}", t.name)
        }
        _ => {
            let mut sets = Vec::new();
            for (i, c) in t.cols.clone().iter().enumerate() {
                if t.key.contains(&i)
                    || !(rng.random_bool(0.35) || (sets.is_empty() && i + 1 == t.cols.len()))
                {
                    continue;
                }
                let same: Vec<usize> = (0..t.cols.len()).filter(|&j| t.cols[j].ty == c.ty).collect();
                let nulls = if t.not_null.contains(&i) { 0.0 } else { 0.15 };
                let new = match rng.random_range(0..5) {
                    // Sets it to what it was: an update that changes nothing.
                    0 => ident(&c.name),
                    1 if matches!(c.ty, Ty::Int | Ty::Big | Ty::Fixed) => format!("{} + 1", ident(&c.name)),
                    2 if nulls > 0.0 => ident(&t.cols[*same.choose(rng).expect("itself")].name),
                    _ => value(rng, c.ty, nulls),
                };
                sets.push(format!("{} = {new}", ident(&c.name)));
            }
            if let (true, Some(&k)) = (sets.is_empty() || rng.random_bool(0.1), t.key.last()) {
                // A key update, of one row, to a value never used.
                let col = ident(&t.cols[k].name);
                let one = rng.random_range(1..t.next_key.max(2));
                let set = format!("{col} = {}", t.next_key);
                t.next_key += 1;
                let pred = target(rng, t, shared);
                return format!("UPDATE {} SET {set} WHERE {col} = {one} AND {pred}", t.name);
            }
            if sets.is_empty() {
                return format!("DELETE FROM {} WHERE false", t.name);
            }
            let pred = target(rng, t, shared);
            format!("UPDATE {} SET {} WHERE {pred}", t.name, sets.join(", "))
        }
    }
}

fn predicate(rng: &mut ChaCha8Rng, t: &Table) -> String {
    let scope: Vec<(String, Ty)> = t.cols.iter().map(|c| (ident(&c.name), c.ty)).collect();
    let pool: [Relation; 0] = [];
    let mut maker = Maker::new(rng, &pool);
    let a = maker.pred(&scope, 1);
    let b = maker.pred(&scope, 0);
    format!("{a} AND {b}")
}

fn target(rng: &mut ChaCha8Rng, t: &Table, shared: bool) -> String {
    let pred = if rng.random_bool(0.05) { "true".into() } else { predicate(rng, t) };
    if shared {
        format!(
            "(tableoid, ctid) IN (SELECT tableoid, ctid FROM {} WHERE {pred} FOR UPDATE SKIP LOCKED)",
            t.name
        )
    } else {
        pred
    }
}
