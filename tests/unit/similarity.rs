//! What `similarity` promises, on profiles made by hand and on random ones.

use pgtrickle::drift::rename::{DEFAULT_THRESHOLD, Match, exchanged, renames};
use pgtrickle::drift::similarity::{Sample, similarity};
use pgtrickle::snapshot::profile::{ColumnProfile, Common, Form};
use pgtrickle::snapshot::shape::ColumnShape;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A column with what is known of it.
#[derive(Debug, Clone)]
struct Column {
    shape: ColumnShape,
    profile: ColumnProfile,
    form: Form,
    rows: Option<i64>,
}

impl Column {
    fn new(type_name: &str, profile: ColumnProfile) -> Column {
        let shape = ColumnShape {
            attnum: 1,
            name: "c".into(),
            type_oid: 0,
            type_name: format!("pg_catalog.{type_name}").into(),
            type_kind: 'b',
            typmod: -1,
            dims: 0,
            collation_oid: 0,
            collation_name: None,
            not_null: false,
            expression: None,
            missing: false,
            identity: String::new().into(),
            generated: String::new().into(),
            stored: String::new().into(),
        };
        Column { shape, profile, form: Form::Plain, rows: Some(1000) }
    }

    fn numbered(mut self, attnum: i16) -> Column {
        self.shape.attnum = attnum;
        self
    }

    fn sample(&self) -> Sample<'_> {
        Sample { shape: &self.shape, profile: &self.profile, form: self.form, rows: self.rows }
    }

    fn like(&self, other: &Column) -> f64 {
        let both = (similarity(&self.sample(), &other.sample()), similarity(&other.sample(), &self.sample()));
        assert_eq!(both.0, both.1, "not symmetric: {self:?} {other:?}");
        assert!((0.0..=1.0).contains(&both.0), "{} for {self:?} {other:?}", both.0);
        both.0
    }
}

fn empty() -> ColumnProfile {
    ColumnProfile {
        null_fraction: 0.0,
        average_width: 4,
        distinct: -1.0,
        correlation: None,
        common: Vec::new(),
        common_fraction: 0.0,
        histogram: Vec::new(),
        positions: Vec::new(),
    }
}

fn quantiles(values: impl IntoIterator<Item = impl ToString>) -> ColumnProfile {
    ColumnProfile { histogram: values.into_iter().map(|v| v.to_string()).collect(), ..empty() }
}

fn listed(values: &[(&str, f32)]) -> ColumnProfile {
    let common: Vec<Common> = values
        .iter()
        .map(|(value, frequency)| Common { value: value.to_string(), frequency: *frequency })
        .collect();
    let common_fraction = common.iter().map(|c| c.frequency).sum();
    ColumnProfile { distinct: common.len() as f32, common, common_fraction, ..empty() }
}

/// Numbers spread evenly over a range.
fn numbers(low: i32, high: i32) -> ColumnProfile {
    quantiles((0..20).map(|i| low + (high - low) * i / 19))
}

fn hashed(column: &Column, digest: impl Fn(&str) -> String) -> Column {
    let mut hashed = column.clone();
    hashed.form = Form::Hashed;
    let last = hashed.profile.histogram.len().saturating_sub(1).max(1) as f32;
    hashed.profile.positions = (0..hashed.profile.histogram.len()).map(|i| i as f32 / last).collect();
    hashed.profile.common.iter_mut().for_each(|c| c.value = digest(&c.value));
    hashed.profile.histogram.iter_mut().for_each(|value| *value = digest(value));
    hashed
}

#[test]
fn no_samples_is_no_evidence() {
    let known = Column::new("int4", numbers(0, 100));
    let unknown = Column::new("int4", empty());
    let mut off = known.clone();
    off.form = Form::Off;
    for silent in [&unknown, &off] {
        assert_eq!(known.like(silent), 0.0);
        assert_eq!(silent.like(silent), 0.0);
    }
}

#[test]
fn equal_profiles_are_fully_alike() {
    let profiles = [
        ("int4", numbers(0, 100)),
        ("bool", listed(&[("t", 0.7), ("f", 0.3)])),
        ("date", quantiles(["2020-01-01", "2021-06-30", "2024-02-29"])),
        ("interval", quantiles(["00:00:01", "1 day 02:00:00", "1 year 2 mons"])),
        ("uuid", quantiles(["0b1d4e10-0000-4000-8000-000000000000", "fb1d4e10-0000-4000-8000-000000000000"])),
        ("text", quantiles(["Ana, \"the\" {first}", "Über", "客户"])),
        ("text", listed(&[("", 1.0)])),
        ("numeric", quantiles(["NaN", "Infinity", "-Infinity", "1e400"])),
        ("jsonb", quantiles(["{\"a\": 1}", "{\"b\": [2]}"])),
    ];
    for (type_name, profile) in profiles {
        let column = Column::new(type_name, profile);
        assert_eq!(column.like(&column), 1.0, "{column:?}");
        let digests = hashed(&column, |value| format!("#{value}"));
        assert_eq!(digests.like(&digests), 1.0, "{digests:?}");
        assert_eq!(digests.like(&column), 0.0, "digests are not values");
    }
}

#[test]
fn values_that_look_the_same_survive_a_change_of_type() {
    let survives = |before: &Column, after: &Column| {
        let likeness = before.like(after);
        assert!((DEFAULT_THRESHOLD..1.0).contains(&likeness), "{likeness} for {before:?} {after:?}");
    };
    let number = Column::new("int4", numbers(100, 900));
    for wider in ["int8", "numeric", "float8", "text"] {
        survives(&number, &Column::new(wider, numbers(100, 900)));
    }
    let truth = Column::new("bool", listed(&[("t", 0.7), ("f", 0.3)]));
    survives(&truth, &Column::new("text", listed(&[("true", 0.7), ("false", 0.3)])));
    survives(&truth, &Column::new("text", listed(&[("No", 0.3), ("Yes", 0.7)])));
    survives(&truth, &Column::new("int4", listed(&[("1", 0.7), ("0", 0.3)])));
    let days = ["2020-01-01", "2020-05-17", "2021-06-30", "2022-12-24", "2024-02-29"];
    let day = Column::new("date", quantiles(days));
    survives(&day, &Column::new("timestamptz", quantiles(days.map(|d| format!("{d} 00:00:00+00")))));
    survives(&day, &Column::new("text", quantiles(days)));
    let slashed = ["01/01/2020", "17/05/2020", "24/12/2022", "29/02/2024", "30/06/2021"];
    survives(&day, &Column::new("text", quantiles(slashed)));
    let money = Column::new("money", quantiles(["$1.50", "$20.00", "$1,300.25", "$2,000,000.00"]));
    survives(&money, &Column::new("numeric", quantiles(["1.50", "20.00", "1300.25", "2000000.00"])));
    survives(&money, &Column::new("text", quantiles(["1,50", "20,00", "1.300,25", "2.000.000,00"])));
    let uuid = ["0b1d4e10-1111-4000-8000-000000000000", "7b1d4e10-2222-4000-8000-000000000000"];
    survives(
        &Column::new("uuid", quantiles(uuid)),
        &Column::new("text", quantiles(uuid.map(|u| u.replace('-', "")))),
    );
}

#[test]
fn values_of_another_kind_have_nothing_in_common() {
    let columns = [
        Column::new("int4", numbers(0, 100)),
        Column::new("text", quantiles(["ash", "birch", "oak"])),
        Column::new("date", quantiles(["2020-01-01", "2021-06-30", "2024-02-29"])),
        Column::new("time", quantiles(["08:00:00", "12:30:00", "18:00:00"])),
    ];
    for (i, a) in columns.iter().enumerate() {
        for b in &columns[..i] {
            assert_eq!(a.like(b), 0.0, "{a:?} {b:?}");
        }
    }
}

#[test]
fn one_plain_difference_is_enough() {
    let base = Column::new("int4", numbers(0, 1000));
    let unlike = |change: &dyn Fn(&mut Column)| {
        let mut other = base.clone();
        change(&mut other);
        assert!(base.like(&other) < DEFAULT_THRESHOLD, "{other:?}");
    };
    unlike(&|c| c.profile.null_fraction = 0.4);
    unlike(&|c| c.profile.distinct = 20.0);
    unlike(&|c| c.profile.average_width = 12);
    unlike(&|c| c.profile = numbers(400, 1400));
    unlike(&|c| c.profile = quantiles((0..20).map(|i| i * i * i)));
    let flag = Column::new("bool", listed(&[("t", 0.7), ("f", 0.3)]));
    assert!(flag.like(&Column::new("bool", listed(&[("t", 0.6), ("f", 0.4)]))) < DEFAULT_THRESHOLD);
    let state = Column::new("text", listed(&[("open", 0.5), ("done", 0.5)]));
    assert!(state.like(&Column::new("text", listed(&[("open", 0.5), ("lost", 0.5)]))) < DEFAULT_THRESHOLD);
    let short = Column::new("text", quantiles(["a b c", "d e f", "g h i"]));
    let long =
        Column::new("text", quantiles(["a b c d e f g h i", "d e f g h i a b c", "g h i a b c d e f"]));
    assert!(short.like(&long) < DEFAULT_THRESHOLD);
}

#[test]
fn two_samples_of_one_column_share_no_value() {
    let code = |n: u32| format!("Customer#{:09}", n);
    let text = |shift: u32| Column::new("text", quantiles((0..20).map(|i| code(i * 700 + shift))));
    assert!(text(3).like(&text(40)) > 0.9);
    let plain = |shift: u32| Column::new("int4", quantiles((0..20).map(|i| i * 700 + shift)));
    assert!(plain(3).like(&plain(40)) > 0.9);
    // Of values that are all equally common, chance decides which ones are kept.
    let even = |step: usize| {
        let mut column = listed(&[]);
        column.common =
            (0..20).map(|i| Common { value: (i * step % 50).to_string(), frequency: 0.02 }).collect();
        column.common_fraction = 1.0;
        column.distinct = 50.0;
        Column::new("int4", column)
    };
    assert!(even(3).like(&even(7)) > DEFAULT_THRESHOLD);
}

#[test]
fn digests_need_an_equal_one() {
    let digest = |value: &str| format!("{:x}", value.len() * 7919 + usize::from(value.as_bytes()[0]) * 31);
    let column = Column::new("int4", numbers(0, 1000));
    let (one, other) = (hashed(&column, digest), hashed(&column, |value| format!("other {value}")));
    assert!(one.like(&other) < DEFAULT_THRESHOLD, "the same positions alone");
    assert!(one.like(&other) > 0.0);
    let state = Column::new("text", listed(&[("open", 0.6), ("done", 0.3), ("lost", 0.1)]));
    let mut later = state.clone();
    later.profile.common[0].frequency = 0.61;
    later.profile.common[1].frequency = 0.29;
    let same = |value: &str| format!("#{value}");
    assert!(hashed(&state, same).like(&hashed(&later, same)) > 0.9);
    assert!(hashed(&state, same).like(&hashed(&state, |value| format!("?{value}"))) < DEFAULT_THRESHOLD);
}

#[test]
fn two_that_fit_equally_are_ambiguous() {
    let columns: Vec<Column> = (1..=2).map(|n| Column::new("int4", numbers(0, 1000)).numbered(n)).collect();
    let samples: Vec<Sample> = columns.iter().map(Column::sample).collect();
    let found = renames(&samples[..1], &samples, DEFAULT_THRESHOLD);
    assert_eq!(found.candidates, []);
    let pairs: Vec<(i16, i16)> = found.ambiguous.iter().map(|m| (m.before, m.after)).collect();
    assert_eq!(pairs, [(1, 1), (1, 2)]);
    let alone = renames(&samples[..1], &samples[1..], DEFAULT_THRESHOLD);
    assert_eq!(alone.candidates, [Match { before: 1, after: 2, similarity: 1.0 }]);
    assert_eq!(renames(&samples, &samples, f64::NAN), renames(&[], &[], DEFAULT_THRESHOLD));
}

#[test]
fn values_in_a_circle_are_an_exchange() {
    let of =
        |n: i16, holds: i32| Column::new("int4", numbers(holds * 10_000, holds * 10_000 + 1000)).numbered(n);
    let run = |holds: [i32; 4]| -> Vec<(i16, i16)> {
        let before: Vec<Column> = (1..=4).map(|n| of(n, i32::from(n))).collect();
        // The new relation numbers its columns anew.
        let after: Vec<Column> = (1..=4).zip(holds).map(|(n, holds)| of(n + 10, holds)).collect();
        let common: Vec<(Sample, Sample)> =
            before.iter().map(Column::sample).zip(after.iter().map(Column::sample)).collect();
        exchanged(&common, DEFAULT_THRESHOLD).iter().map(|m| (m.before, m.after)).collect()
    };
    assert_eq!(run([1, 2, 3, 4]), []);
    assert_eq!(run([2, 1, 3, 4]), [(1, 12), (2, 11)]);
    assert_eq!(run([2, 3, 1, 4]), [(1, 13), (2, 11), (3, 12)]);
    assert_eq!(run([2, 9, 3, 4]), [], "the values of the first went nowhere");
    assert_eq!(run([8, 9, 3, 4]), [], "new values");
}

fn random_value(random: &mut ChaCha8Rng) -> String {
    const PIECES: [&str; 34] = [
        "",
        " ",
        "-",
        "+",
        ".",
        ",",
        ":",
        "/",
        "e",
        "$",
        "%",
        "0",
        "1",
        "12",
        "999999999999999999999",
        "2024-02-29",
        "BC",
        "24:00:00",
        "+02",
        "t",
        "no",
        "NaN",
        "Infinity",
        "-infinity",
        "1 day",
        "mons",
        "ß",
        "İ",
        "客",
        "\u{feff}",
        "\0",
        "\"{a,b}\"",
        "0b1d4e10-1111-4000-8000-000000000000",
        "T",
    ];
    let count = random.random_range(0..4);
    (0..count).filter_map(|_| PIECES.choose(random)).copied().collect()
}

fn random_share(random: &mut ChaCha8Rng) -> f32 {
    const ODD: [f32; 9] =
        [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1.0, 0.0, 1.0, 2.0, f32::MAX, f32::MIN_POSITIVE];
    if random.random_bool(0.3) {
        *ODD.choose(random).expect("not empty")
    } else {
        random.random_range(0.0..1.0)
    }
}

fn random_column(random: &mut ChaCha8Rng) -> Column {
    const TYPES: [&str; 9] =
        ["int4", "text", "date", "bool", "uuid", "bytea", "jsonb", "_text", "timestamptz"];
    let few = random.random_bool(0.5);
    let values = |random: &mut ChaCha8Rng| -> Vec<String> {
        let count = random.random_range(0..if few { 4 } else { 40 });
        (0..count).map(|_| random_value(random)).collect()
    };
    let common = values(random);
    let common =
        common.into_iter().map(|value| Common { value, frequency: random_share(random) }).collect::<Vec<_>>();
    let histogram = values(random);
    let profile = ColumnProfile {
        null_fraction: random_share(random),
        average_width: *[i32::MIN, -1, 0, 4, 17, i32::MAX].choose(random).expect("not empty"),
        distinct: random_share(random) * *[-1.0, 1.0, 1e30].choose(random).expect("not empty"),
        correlation: Some(random_share(random)),
        common,
        common_fraction: random_share(random),
        positions: (0..random.random_range(0..22)).map(|_| random_share(random)).collect(),
        histogram,
    };
    let mut column = Column::new(TYPES.choose(random).expect("not empty"), profile);
    column.rows = *[None, Some(0), Some(-5), Some(1000), Some(i64::MAX)].choose(random).expect("not empty");
    column.form = *[Form::Plain, Form::Plain, Form::Hashed, Form::Off].choose(random).expect("not empty");
    column.numbered(random.random_range(1..6))
}

#[test]
fn garbage_is_compared_within_bounds() {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    for _ in 0..100 {
        let columns: Vec<Column> = (0..8).map(|_| random_column(&mut random)).collect();
        for a in &columns {
            for b in &columns {
                // Symmetry and bounds are asserted by `like`.
                a.like(b);
            }
            let expected = if a.profile.has_samples() && a.form != Form::Off { 1.0 } else { 0.0 };
            assert_eq!(a.like(a), expected, "{a:?}");
        }
        let samples: Vec<Sample> = columns.iter().map(Column::sample).collect();
        for threshold in [-1.0, 0.0, 0.3, DEFAULT_THRESHOLD, 1.0, f64::INFINITY] {
            let found = renames(&samples[..4], &samples[4..], threshold);
            assert!(found.candidates.iter().chain(&found.ambiguous).all(|m| m.similarity > 0.0));
            exchanged(&[(samples[0], samples[1]), (samples[2], samples[3])], threshold);
        }
    }
}

#[test]
fn a_cheap_no_is_a_true_one() {
    let mut random = ChaCha8Rng::seed_from_u64(11);
    let column = |random: &mut ChaCha8Rng, n: i16| {
        let (low, width) = (random.random_range(0..60), random.random_range(20..200));
        let mut profile = numbers(low, low + width);
        profile.null_fraction = random.random_range(0.0..0.2);
        Column::new("int4", profile).numbered(n)
    };
    let columns: Vec<Column> = (0..60).map(|n| column(&mut random, n)).collect();
    let samples: Vec<Sample> = columns.iter().map(Column::sample).collect();
    let mut fits = 0;
    for (b, a) in samples.iter().flat_map(|b| samples.iter().map(move |a| (b, a))) {
        let (true_likeness, found) = (similarity(b, a), renames(&[*b], &[*a], DEFAULT_THRESHOLD));
        let similarity = found.candidates.first().map(|m| m.similarity);
        assert_eq!(similarity, (true_likeness >= DEFAULT_THRESHOLD).then_some(true_likeness));
        fits += usize::from(similarity.is_some());
    }
    assert!((60..3000).contains(&fits), "{fits} of 3600 pairs fit");
}
