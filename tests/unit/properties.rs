//! Properties of `diff` and `judge` over random shapes, from a fixed seed.

use crate::shapes::rich;
use pgtrickle::drift::account::Link;
use pgtrickle::drift::{Change, Drift, Usage, diff, diff_replaced, judge};
use pgtrickle::snapshot::shape::{ColumnShape, TableShape};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

const ROUNDS: u64 = 2_000;

/// Facts that are evidence, not shape: alone they are no change. See `snapshot::shape`.
fn is_evidence(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default();
    ["row_estimate", "filenode", "missing", "stored"].contains(&last)
        || path.ends_with("/expression/oid")
        || path.ends_with("/expression/text")
        || ((path.starts_with("/indexes/") || path.starts_with("/constraints/")) && last == "oid")
}

/// All leaves of a JSON value, as pointers.
fn leaves(value: &Value, path: String, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(k, v)| leaves(v, format!("{path}/{k}"), found)),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(i, v)| leaves(v, format!("{path}/{i}"), found))
        }
        Value::Null => {}
        Value::Bool(_) | Value::Number(_) | Value::String(_) => found.push(path),
    }
}

/// Another value of the same kind; one character stays one.
fn other(value: &Value) -> Value {
    match value {
        Value::Bool(b) => (!b).into(),
        Value::Number(n) => n.as_i64().map_or(Value::Null, |n| (n + 1).into()),
        Value::String(s) if s.chars().count() == 1 => if s == "z" { "y" } else { "z" }.into(),
        Value::String(s) => format!("{s}zz").into(),
        rest => rest.clone(),
    }
}

fn json(shape: &TableShape) -> Value {
    serde_json::to_value(shape).expect("JSON")
}

#[test]
fn i4_no_difference_is_left_out() {
    let base = rich();
    let value = json(&base);
    let mut paths = Vec::new();
    leaves(&value, String::new(), &mut paths);
    assert!(paths.len() > 150, "{} facts", paths.len());
    for path in paths {
        let mut changed = value.clone();
        let leaf = changed.pointer_mut(&path).expect("a leaf");
        *leaf = other(leaf);
        let Ok(after) = serde_json::from_value::<TableShape>(changed) else { panic!("{path} is not free") };
        let changes = diff(&base, &after);
        assert_eq!(changes.is_empty(), is_evidence(&path), "{path}: {changes:?}");
    }
}

#[test]
fn nothing_changes_without_a_change() {
    for seed in 0..ROUNDS {
        let shape = scrambled(&rich(), &mut ChaCha8Rng::seed_from_u64(seed));
        assert_eq!(diff(&shape, &shape), [], "seed {seed}");
    }
}

/// A variation that a server could show: columns, keys and members come, go and change.
fn varied(base: &TableShape, rng: &mut ChaCha8Rng) -> TableShape {
    let mut shape = base.clone();
    for _ in 0..rng.random_range(0..6) {
        let column = rng.random_range(0..shape.columns.len());
        match rng.random_range(0..28) {
            0 if shape.columns.len() > 1 => {
                shape.columns.remove(column);
            }
            1 => {
                let mut added = shape.columns[column].clone();
                added.attnum = shape.columns.iter().map(|c| c.attnum).max().unwrap_or(0) + 1;
                added.name = format!("c{}", rng.random::<u32>()).into();
                shape.columns.push(added);
            }
            2 => shape.columns[column].name = format!("c{}", rng.random::<u32>()).into(),
            3 => shape.columns[column].type_oid += 1,
            4 => shape.columns[column].typmod = rng.random_range(-1..9),
            5 => shape.columns[column].not_null ^= true,
            6 => shape.columns[column].expression = None,
            7 => shape.columns[column].collation_oid += 1,
            8 => shape.columns[column].dims += 1,
            9 => {
                shape.columns[column].stored.push('x');
                shape.filenode += 1;
            }
            10 => shape.constraints.retain(|c| c.kind != 'p'),
            11 => shape.constraints.iter_mut().for_each(|c| c.attnums.reverse()),
            12 => shape.constraints.iter_mut().for_each(|c| c.attnums.push(2)),
            13 => {
                shape.indexes.pop();
            }
            14 => shape.replica_identity = ['d', 'n', 'f', 'i'][rng.random_range(0..4)],
            15 => shape.row_security ^= true,
            16 => shape.force_row_security ^= true,
            17 => {
                shape.members.pop();
            }
            18 => shape.members.iter_mut().for_each(|m| m.capture.clear()),
            19 => shape.capture.iter_mut().for_each(|t| t.enabled = 'D'),
            20 => shape.policies.clear(),
            21 => shape.parents = vec![rng.random_range(1..3)],
            22 => shape.partitioning = None,
            23 => shape.partitioning.iter_mut().for_each(|p| p.strategy = 'l'),
            24 => shape.partitioning.iter_mut().for_each(|p| p.attnums.insert(0, 2)),
            25 => shape.kind = ['r', 'p', 'v'][rng.random_range(0..3)],
            26 => shape.members.iter_mut().take(2).for_each(|m| m.name.push('x')),
            27 => {
                // Another order of the columns; keys follow by number.
                let last = shape.columns.len() - 1;
                let (one, other) = (shape.columns[column].attnum, shape.columns[last].attnum);
                (shape.columns[column].attnum, shape.columns[last].attnum) = (other, one);
            }
            _ => shape.owner = format!("o{}", rng.random::<u8>()),
        }
    }
    shape
}

/// The same as another relation, in a tree of its own.
fn made_again(mut shape: TableShape) -> TableShape {
    let again = |oid: u32| oid.wrapping_add(100_000);
    shape.oid = again(shape.oid);
    for member in &mut shape.members {
        (member.oid, member.parent) = (again(member.oid), again(member.parent));
    }
    shape.parents.iter_mut().for_each(|p| *p = again(*p));
    shape.indexes.iter_mut().for_each(|i| i.oid = again(i.oid));
    shape.constraints.iter_mut().for_each(|c| c.oid = again(c.oid));
    shape
}

/// The same shape with all lists in another order.
fn scrambled(shape: &TableShape, rng: &mut ChaCha8Rng) -> TableShape {
    let mut shape = shape.clone();
    shape.columns.shuffle(rng);
    shape.indexes.shuffle(rng);
    shape.constraints.shuffle(rng);
    shape.policies.shuffle(rng);
    shape.members.shuffle(rng);
    shape.capture.shuffle(rng);
    shape.parents.shuffle(rng);
    shape
}

#[test]
fn the_order_of_lists_does_not_matter() {
    let mut changes_seen = 0;
    for seed in 0..ROUNDS {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (before, after) = (varied(&rich(), &mut rng), varied(&rich(), &mut rng));
        let expected = diff(&before, &after);
        changes_seen += expected.len();
        let again = diff(&scrambled(&before, &mut rng), &scrambled(&after, &mut rng));
        assert_eq!(expected, again, "seed {seed}");
        let other = made_again(after);
        let again = diff(&scrambled(&before, &mut rng), &scrambled(&other, &mut rng));
        assert_eq!(diff(&before, &other), again, "seed {seed}, two relations");
    }
    assert!(changes_seen > 5_000, "{changes_seen} changes");
}

/// What of a change must come back, the other way round, in the opposite diff.
fn signature(change: &Change, opposite: bool) -> String {
    let word = match (opposite, change.word()) {
        (true, "added") => "removed",
        (true, "removed") => "added",
        (_, word) => word,
    };
    let (mut before, mut after) = (change.before_value(), change.after_value());
    if opposite {
        std::mem::swap(&mut before, &mut after);
    }
    format!("{word} {before:?} -> {after:?}")
}

/// Columns of one relation are known by number, those of two by name.
fn signatures(a: &TableShape, b: &TableShape, opposite: bool) -> Vec<String> {
    let column = |c: &Change| {
        c.column().map(|(attnum, name)| if a.oid == b.oid { attnum.to_string() } else { name.to_string() })
    };
    let mut all: Vec<String> =
        diff(a, b).iter().map(|c| format!("{:?} {}", column(c), signature(c, opposite))).collect();
    all.sort();
    all
}

#[test]
fn the_opposite_diff_is_the_mirror() {
    for seed in 0..ROUNDS {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (a, b) = (varied(&rich(), &mut rng), varied(&rich(), &mut rng));
        assert_eq!(signatures(&a, &b, false), signatures(&b, &a, true), "seed {seed}");
        let c = made_again(b);
        assert_eq!(signatures(&a, &c, false), signatures(&c, &a, true), "seed {seed}, two relations");
    }
}

#[test]
fn a_table_made_again_alike_differs_in_nothing_else() {
    for seed in 0..ROUNDS {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let before = varied(&rich(), &mut rng);
        let after = scrambled(&made_again(before.clone()), &mut rng);
        let expected = [Change::RelationReplaced { before: before.oid, after: after.oid }];
        assert_eq!(diff(&before, &after), expected, "seed {seed}");
        assert_eq!(diff_replaced(&before, &after), expected, "seed {seed}, known to be two");
    }
}

/// What no server would show: items listed twice, numbers of nothing, names of no characters, values at the ends.
fn mangled(base: &TableShape, rng: &mut ChaCha8Rng) -> TableShape {
    fn again<T: Clone>(list: &mut Vec<T>, rng: &mut ChaCha8Rng) {
        if !list.is_empty() {
            let copy = list[rng.random_range(0..list.len())].clone();
            list.push(copy);
        }
    }
    let mut shape = base.clone();
    for _ in 0..rng.random_range(1..20) {
        let number = [0, -1, i16::MIN, i16::MAX, 1, 2, 3][rng.random_range(0..7)];
        let oid = [0, u32::MAX, 1, shape.oid][rng.random_range(0..4)];
        let name = ["", "\u{feff}", "id", "used", "(expression)", "#5"][rng.random_range(0..6)].to_string();
        let column = rng.random_range(0..shape.columns.len());
        match rng.random_range(0..22) {
            0 => again(&mut shape.columns, rng),
            1 => again(&mut shape.indexes, rng),
            2 => again(&mut shape.constraints, rng),
            3 => again(&mut shape.policies, rng),
            4 => again(&mut shape.members, rng),
            5 => again(&mut shape.capture, rng),
            6 => again(&mut shape.parents, rng),
            7 => shape.columns[column].attnum = number,
            8 => shape.columns[column].name = name.into(),
            9 => shape.columns[column].typmod = [i32::MIN, i32::MAX, 0, 3][rng.random_range(0..4)],
            10 => shape.columns[column].dims = i32::MIN,
            11 => shape.columns[column].type_name = name.into(),
            12 => shape.columns[column].generated = name.into(),
            13 => shape.indexes.iter_mut().for_each(|i| i.attnums.push(number)),
            14 => shape.indexes.iter_mut().for_each(|i| i.key_count = number),
            15 => shape.constraints.iter_mut().for_each(|c| c.attnums.insert(0, number)),
            16 => shape.constraints.iter_mut().for_each(|c| c.kind = 'p'),
            17 => shape.indexes.iter_mut().for_each(|i| i.oid = oid),
            18 => shape.members.iter_mut().for_each(|m| m.parent = oid),
            19 => shape.members.iter_mut().for_each(|m| m.oid = oid),
            20 => shape.partitioning.iter_mut().for_each(|p| p.attnums.push(number)),
            _ => shape.row_estimate = Some(i64::MIN),
        }
    }
    shape
}

#[test]
fn what_no_server_shows_still_has_a_difference() {
    for seed in 0..ROUNDS / 5 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (a, b) = (mangled(&rich(), &mut rng), mangled(&rich(), &mut rng));
        for link in [Link::Same, Link::Recreated, Link::Swapped, Link::Restored, Link::Another] {
            let changes = link.diff(&a, &b, None);
            let again = link.diff(&scrambled(&a, &mut rng), &scrambled(&b, &mut rng), None);
            assert_eq!(changes, again, "seed {seed}, {link:?}");
            for change in &changes {
                assert!(!change.describe().is_empty());
                let _ = (change.severity(), change.before_value(), change.after_value());
            }
            let drift = Drift::new(changes);
            let json = drift.to_json().expect("JSON");
            assert_eq!(Drift::from_json(&json).expect("a drift"), drift, "seed {seed}");
            let alike = link.diff(&a, &scrambled(&a, &mut rng), None);
            let expected = usize::from(link != Link::Same);
            assert_eq!(alike.len(), expected, "seed {seed}, {link:?}: {alike:?}");
        }
    }
}

#[test]
fn three_hundred_columns_by_three_hundred() {
    let wide = |oid, first: i16| {
        let mut shape = made_again(rich());
        shape.oid = oid;
        let column = shape.columns[1].clone();
        let numbered = |n: i16| (n, format!("c{}", n + first));
        shape.columns = (1..=300)
            .map(|n| {
                let (attnum, name) = numbered(n);
                ColumnShape { attnum, name: name.into(), ..column.clone() }
            })
            .collect();
        shape
    };
    assert_eq!(diff(&wide(1, 0), &wide(1, 0)), []);
    let renamed = diff(&wide(1, 0), &wide(1, 100));
    assert_eq!(renamed.iter().filter(|c| c.word() == "renamed").count(), 300);
    let moved = diff(&wide(1, 0), &wide(2, 100));
    let count = |word| moved.iter().filter(|c| c.word() == word).count();
    assert_eq!((count("added"), count("removed"), count("reordered")), (100, 100, 0));
}

#[test]
fn no_input_panics() {
    let value = json(&rich());
    let mut paths = Vec::new();
    leaves(&value, String::new(), &mut paths);
    let mut read = 0;
    for seed in 0..ROUNDS {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut wild = || {
            let mut value = value.clone();
            for _ in 0..rng.random_range(1..40) {
                let from = &paths[rng.random_range(0..paths.len())];
                let to = &paths[rng.random_range(0..paths.len())];
                let copied = value.pointer(from).cloned().unwrap_or(Value::Null);
                let leaf = value.pointer_mut(to).expect("a leaf");
                let same_kind = std::mem::discriminant(leaf) == std::mem::discriminant(&copied);
                *leaf = match rng.random_range(0..4) {
                    0 if leaf.is_number() => i64::from(rng.random::<i16>()).into(),
                    1 if leaf.is_string() => "\u{feff}ä\"'".into(),
                    _ if same_kind => copied,
                    _ => continue,
                };
            }
            serde_json::from_value::<TableShape>(value).ok()
        };
        if let (Some(a), Some(b)) = (wild(), wild()) {
            read += 1;
            let changes = diff(&a, &b);
            for change in &changes {
                assert!(!change.describe().is_empty());
                let _ = (change.word(), change.severity(), change.before_value(), change.after_value());
            }
            let _ = judge(&changes, &Usage { columns: (0..9).collect(), ..Usage::default() });
            let _ = (a.fingerprint(), a.unique_keys(), a.display_name());
            a.columns.iter().for_each(|c| drop(c.display_type()));
        }
    }
    assert!(read > 100, "only {read} pairs could be read");
}
