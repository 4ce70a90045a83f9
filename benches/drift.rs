//! What it costs to compare two tables of 300 columns: their shapes, and the value profiles of columns that went and
//! came.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use pgtrickle::drift::diff;
use pgtrickle::drift::rename::{DEFAULT_THRESHOLD, renames};
use pgtrickle::drift::similarity::{Sample, similarity};
use pgtrickle::snapshot::profile::{ColumnProfile, Common, Form};
use pgtrickle::snapshot::shape::{ColumnShape, SHAPE_VERSION, TableShape};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const COLUMNS: i16 = 300;
const ROWS: i64 = 100_000;

criterion_group!(benches, shapes, profiles);
criterion_main!(benches);

fn shapes(c: &mut Criterion) {
    let before = table(100, (1..=COLUMNS).map(|n| column(n, format!("column_{n}"), "int4")).collect());
    // Of each nine columns one is renamed, one has another type, one went and another one came.
    let changed = |n: i16| match n % 9 {
        0 => column(n, format!("other_{n}"), "int4"),
        3 => column(n, format!("column_{n}"), "int8"),
        6 => column(n + COLUMNS, format!("new_{n}"), "text"),
        _ => column(n, format!("column_{n}"), "int4"),
    };
    let after: Vec<ColumnShape> = (1..=COLUMNS).map(changed).collect();
    let (same, recreated) = (table(100, after.clone()), table(200, after));
    c.bench_function("diff, 300 x 300 columns, same relation", |b| {
        b.iter(|| diff(black_box(&before), black_box(&same)))
    });
    c.bench_function("diff, 300 x 300 columns, created again", |b| {
        b.iter(|| diff(black_box(&before), black_box(&recreated)))
    });
}

fn profiles(c: &mut Criterion) {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let before: Vec<Owned> = (1..=COLUMNS).map(|n| owned(n, n, &mut random)).collect();
    // A third are renamed, the others have gone and others have come.
    let after: Vec<Owned> =
        (1..=COLUMNS).map(|n| owned(n, if n % 3 == 0 { n } else { n + COLUMNS }, &mut random)).collect();
    let (gone, came): (Vec<Sample>, Vec<Sample>) =
        (before.iter().map(sample).collect(), after.iter().map(sample).collect());
    let found = renames(&gone, &came, DEFAULT_THRESHOLD);
    println!("{} candidates, {} ambiguous", found.candidates.len(), found.ambiguous.len());
    c.bench_function("renames, 300 gone x 300 came", |b| {
        b.iter(|| renames(black_box(&gone), black_box(&came), DEFAULT_THRESHOLD))
    });
    for (what, n) in [("numbers", 0), ("moments", 1), ("texts", 2)] {
        let at = (0..gone.len()).find(|at| at % 3 == 2 && before[*at].kind == n).unwrap_or_default();
        c.bench_function(&format!("similarity, {what}"), |b| {
            b.iter(|| similarity(black_box(&gone[at]), black_box(&came[at])))
        });
    }
}

fn table(oid: u32, columns: Vec<ColumnShape>) -> TableShape {
    TableShape {
        version: SHAPE_VERSION,
        oid,
        schema: "public".into(),
        name: "wide".into(),
        kind: 'r',
        persistence: 'p',
        owner: "owner".into(),
        row_estimate: Some(ROWS),
        filenode: oid,
        columns,
        indexes: Vec::new(),
        constraints: Vec::new(),
        replica_identity: 'd',
        row_security: false,
        force_row_security: false,
        policies: Vec::new(),
        partitioning: None,
        is_partition: false,
        parents: Vec::new(),
        members: Vec::new(),
        capture: Vec::new(),
    }
}

fn column(attnum: i16, name: String, type_name: &str) -> ColumnShape {
    ColumnShape {
        attnum,
        name: name.into(),
        type_oid: 20 + type_name.len() as u32,
        type_name: format!("pg_catalog.{type_name}").into(),
        type_kind: 'b',
        typmod: -1,
        dims: 0,
        collation_oid: 0,
        collation_name: None,
        not_null: attnum % 2 == 0,
        expression: None,
        missing: false,
        identity: String::new().into(),
        generated: String::new().into(),
        stored: format!("700:(0,{attnum})").into(),
    }
}

struct Owned {
    kind: i16,
    shape: ColumnShape,
    profile: ColumnProfile,
}

fn sample(owned: &Owned) -> Sample<'_> {
    Sample { shape: &owned.shape, profile: &owned.profile, form: Form::Plain, rows: Some(ROWS) }
}

/// A full profile of one of 600 distributions, sampled anew by each call.
fn owned(attnum: i16, distribution: i16, random: &mut ChaCha8Rng) -> Owned {
    let kind = distribution % 5 % 3;
    let level = f64::from(distribution / 5);
    let mut values: Vec<f64> =
        (0..10).map(|i| f64::from(i) / 9.0 + random.random_range(-0.01..0.01)).collect();
    values.iter_mut().for_each(|v| *v = level.powf(1.5) * 20.0 + (1.0 + level) * 40.0 * v.abs());
    values.sort_by(f64::total_cmp);
    let (type_name, show): (_, fn(f64) -> String) = match kind {
        0 => ("numeric", |v| format!("{v:.2}")),
        1 => ("date", |v| {
            let day = v as u32;
            format!("{}-{:02}-{:02}", 1950 + day / 336, day / 28 % 12 + 1, day % 28 + 1)
        }),
        _ => ("text", |v| {
            format!(
                "{} street no. {}, {v:.0}",
                ["Oak", "Elm", "Lake", "Hill"][v as usize % 4],
                v as u32 % 977
            )
        }),
    };
    let common = (0..10u8).map(|i| Common {
        value: show(level * 7.0 + f64::from(i) * 11.0),
        frequency: 0.02 + 0.001 * f32::from(10 - i) + random.random_range(-0.0005..0.0005),
    });
    let common: Vec<Common> = common.collect();
    let mut histogram: Vec<String> = values.into_iter().map(show).collect();
    if kind == 2 {
        histogram.sort();
    }
    let profile = ColumnProfile {
        null_fraction: f32::from(distribution % 4) * 0.02,
        average_width: 6 + i32::from(distribution % 7),
        distinct: -0.5,
        correlation: Some(0.0),
        common_fraction: common.iter().map(|c| c.frequency).sum(),
        common,
        histogram,
        positions: Vec::new(),
    };
    Owned { kind, shape: column(attnum, format!("column_{attnum}"), type_name), profile }
}
