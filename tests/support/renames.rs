//! Labelled cases of columns that were renamed, exchanged, removed and added, and how well `drift::rename` tells them
//! apart. No server: the unit tests read recorded cases, `benches/renames` makes new ones.

// The test and the bench include this file, and each uses its own part of it.
#![allow(dead_code)]

use std::fmt::Write as _;

use pgtrickle::drift::rename::{Match, exchanged, renames};
use pgtrickle::drift::similarity::Sample;
use pgtrickle::snapshot::profile::{ColumnProfile, Common, Form};
use pgtrickle::snapshot::shape::ColumnShape;
use serde::{Deserialize, Serialize};

/// One column of one side, with what ANALYZE knew of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Column {
    /// What identifies it within its side.
    #[serde(rename = "n")]
    pub attnum: i16,
    /// Name.
    pub name: String,
    /// `schema.name` of its type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// `typtype`.
    #[serde(rename = "kind")]
    pub type_kind: char,
    /// What its values are, for people and for [`Column::alike`].
    pub holds: String,
    /// Number of the column before whose values it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<i16>,
    /// Its profile; without samples when it was never analysed.
    #[serde(with = "compact", rename = "p")]
    pub profile: ColumnProfile,
}

impl Column {
    /// The shape that belongs to it, as far as it matters here.
    pub fn shape(&self) -> ColumnShape {
        ColumnShape {
            attnum: self.attnum,
            name: self.name.clone().into(),
            type_oid: 0,
            type_name: self.type_name.clone().into(),
            type_kind: self.type_kind,
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
        }
    }
}

/// One table that was dropped and created again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Case {
    /// Table and number.
    pub name: String,
    /// `train`: thresholds were chosen by it; `test`: they were not.
    pub half: String,
    /// Estimated rows before and after.
    pub rows: (Option<i64>, Option<i64>),
    /// Columns that disappeared.
    pub before: Vec<Column>,
    /// Columns that appeared.
    pub after: Vec<Column>,
    /// Columns with the same name on both sides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<(Column, Column)>,
    /// What can't be told apart by values: `holds` of columns from one distribution.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alike: Vec<String>,
}

/// A plain profile without the names of its fields, which would be half of the file.
mod compact {
    use super::{ColumnProfile, Common};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    type Short = (f32, i32, f32, Option<f32>, Vec<(String, f32)>, f32, Vec<String>);

    pub fn serialize<S: Serializer>(p: &ColumnProfile, to: S) -> Result<S::Ok, S::Error> {
        let common: Vec<(&String, f32)> = p.common.iter().map(|c| (&c.value, c.frequency)).collect();
        let facts = (p.null_fraction, p.average_width, p.distinct, p.correlation);
        (facts.0, facts.1, facts.2, facts.3, common, p.common_fraction, &p.histogram).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ColumnProfile, D::Error> {
        let (null_fraction, average_width, distinct, correlation, common, common_fraction, histogram) =
            Short::deserialize(from)?;
        let common = common.into_iter().map(|(value, frequency)| Common { value, frequency }).collect();
        let positions = Vec::new();
        Ok(ColumnProfile {
            null_fraction,
            average_width,
            distinct,
            correlation,
            common,
            common_fraction,
            histogram,
            positions,
        })
    }
}

/// Reads cases, one in each line.
pub fn read(text: &str) -> Vec<Case> {
    let case = |(at, line)| serde_json::from_str(line).unwrap_or_else(|e| panic!("case {}: {e}", at + 1));
    text.lines().enumerate().map(case).collect()
}

/// Writes cases, one in each line.
pub fn write(cases: &[Case]) -> String {
    let line = |case| serde_json::to_string(case).expect("JSON") + "\n";
    cases.iter().map(line).collect()
}

/// The truth about a pair of columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    /// The same column.
    Same,
    /// The same column, but another one is like it: ambiguous is right.
    SameAmongAlike,
    /// Another column from the same distribution.
    Alike,
    /// Something else.
    Other,
    /// The same column, of which nothing is known: silence is right.
    Unknown,
}

/// What was said of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// Candidate (or exchanged).
    Candidate,
    /// One of several that fit equally.
    Ambiguous,
    /// Nothing.
    Nothing,
}

/// One pair of columns with truth and answer.
#[derive(Debug, Clone)]
pub struct Judged {
    /// Case, and both columns.
    pub what: String,
    /// Half of the case.
    pub half: String,
    /// The truth.
    pub truth: Truth,
    /// The answer.
    pub said: Said,
}

/// How many pairs of each kind got which answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Confusion {
    /// Same column, candidate.
    pub found: usize,
    /// Same column, said to be ambiguous.
    pub doubted: usize,
    /// Same column, nothing said.
    pub missed: usize,
    /// Other column, candidate.
    pub wrong: usize,
    /// Other column, listed as ambiguous.
    pub wrongly_doubted: usize,
    /// Other column, nothing said.
    pub rejected: usize,
    /// Same column among look-alikes: listed as ambiguous, as it should be.
    pub alike_doubted: usize,
    /// Same column among look-alikes: another answer.
    pub alike_otherwise: usize,
    /// Another column of the same distribution: candidate. Nothing in the values contradicts it.
    pub alike_candidate: usize,
    /// Same column without samples on a side: nothing said, as it should be.
    pub unknown_silent: usize,
    /// Same column without samples on a side: anything else.
    pub unknown_said: usize,
}

impl Confusion {
    /// Counts what was judged.
    pub fn of<'a>(judged: impl IntoIterator<Item = &'a Judged>) -> Confusion {
        let mut sum = Confusion::default();
        for pair in judged {
            let count = match (pair.truth, pair.said) {
                (Truth::Same, Said::Candidate) => &mut sum.found,
                (Truth::Same, Said::Ambiguous) => &mut sum.doubted,
                (Truth::Same, Said::Nothing) => &mut sum.missed,
                (Truth::Other, Said::Candidate) => &mut sum.wrong,
                (Truth::Other, Said::Ambiguous) => &mut sum.wrongly_doubted,
                (Truth::Other, Said::Nothing) => &mut sum.rejected,
                (Truth::SameAmongAlike, Said::Ambiguous) => &mut sum.alike_doubted,
                (Truth::SameAmongAlike, _) => &mut sum.alike_otherwise,
                (Truth::Alike, Said::Candidate) => &mut sum.alike_candidate,
                (Truth::Alike, _) => continue,
                (Truth::Unknown, Said::Nothing) => &mut sum.unknown_silent,
                (Truth::Unknown, _) => &mut sum.unknown_said,
            };
            *count += 1;
        }
        sum
    }

    /// Of what was reported as candidate, the share that is one.
    pub fn precision(&self) -> f64 {
        share(self.found, self.found + self.wrong)
    }

    /// Of what is a rename, the share that was reported as candidate.
    pub fn recall(&self) -> f64 {
        share(self.found, self.found + self.doubted + self.missed)
    }
}

fn share(part: usize, all: usize) -> f64 {
    if all == 0 { 1.0 } else { part as f64 / all as f64 }
}

/// Runs `renames` and `exchanged` over all cases.
pub fn judge(cases: &[Case], form: Form, threshold: f64) -> Vec<Judged> {
    cases.iter().flat_map(|case| judge_case(case, form, threshold)).collect()
}

fn judge_case(case: &Case, form: Form, threshold: f64) -> Vec<Judged> {
    let (old, new): (Vec<Column>, Vec<Column>) = case.kept.iter().cloned().unzip();
    let (before, after) =
        (Side::new(&case.before, case.rows.0, form), Side::new(&case.after, case.rows.1, form));
    let (old, new) = (Side::new(&old, case.rows.0, form), Side::new(&new, case.rows.1, form));
    let found = renames(&before.samples(), &after.samples(), threshold);
    let kept: Vec<(Sample, Sample)> = old.samples().into_iter().zip(new.samples()).collect();
    let swapped = exchanged(&kept, threshold);
    let mut judged = pairs(case, &before, &after, |b, a| said(&found.candidates, &found.ambiguous, b, a));
    judged.extend(pairs(case, &old, &new, |b, a| said(&swapped, &[], b, a)).into_iter().filter(|pair| {
        // A column that kept its own values is no exchange, and nothing should be said of it.
        pair.truth != Truth::Unknown
    }));
    judged
}

fn said(candidates: &[Match], ambiguous: &[Match], before: i16, after: i16) -> Said {
    let listed = |list: &[Match]| list.iter().any(|m| (m.before, m.after) == (before, after));
    match (listed(candidates), listed(ambiguous)) {
        (true, false) => Said::Candidate,
        (false, true) => Said::Ambiguous,
        (false, false) => Said::Nothing,
        (true, true) => panic!("{before} -> {after} is both candidate and ambiguous"),
    }
}

fn pairs(case: &Case, before: &Side, after: &Side, said: impl Fn(i16, i16) -> Said) -> Vec<Judged> {
    let mut judged = Vec::new();
    for b in &before.columns {
        for a in &after.columns {
            judged.push(Judged {
                what: format!("{}: {} -> {}", case.name, b.name, a.name),
                half: case.half.clone(),
                truth: truth(case, before, after, b, a),
                said: said(b.attnum, a.attnum),
            });
        }
    }
    judged
}

fn truth(case: &Case, before: &Side, after: &Side, b: &Column, a: &Column) -> Truth {
    let alike = |x: &Column, y: &Column| {
        x.holds == y.holds || (case.alike.contains(&x.holds) && case.alike.contains(&y.holds))
    };
    let same = a.origin == Some(b.attnum) && !(b.attnum == a.attnum && b.name == a.name);
    let silent = |c: &Column| !c.profile.has_samples();
    let double = before.columns.iter().any(|o| o.attnum != b.attnum && alike(o, b))
        || after.columns.iter().any(|o| o.attnum != a.attnum && alike(o, b));
    if a.origin == Some(b.attnum) && !same {
        return if silent(a) || silent(b) { Truth::Unknown } else { Truth::Other };
    }
    match (same, alike(b, a)) {
        (true, _) if silent(a) || silent(b) => Truth::Unknown,
        (true, _) if double => Truth::SameAmongAlike,
        (true, _) => Truth::Same,
        (false, true) => Truth::Alike,
        (false, false) => Truth::Other,
    }
}

/// Columns of one side, with what a [`Sample`] borrows.
pub struct Side {
    columns: Vec<Column>,
    shapes: Vec<ColumnShape>,
    rows: Option<i64>,
    form: Form,
}

impl Side {
    /// The columns of a table with `rows` rows, their values kept as `form` says.
    pub fn new(columns: &[Column], rows: Option<i64>, form: Form) -> Side {
        let mut columns = columns.to_vec();
        for column in &mut columns {
            column.profile = in_form(&column.profile, form);
        }
        let shapes = columns.iter().map(Column::shape).collect();
        Side { columns, shapes, rows, form }
    }

    /// What `renames` takes.
    pub fn samples(&self) -> Vec<Sample<'_>> {
        let columns = self.columns.iter().zip(&self.shapes);
        columns
            .map(|(column, shape)| Sample {
                shape,
                profile: &column.profile,
                form: self.form,
                rows: self.rows,
            })
            .collect()
    }
}

/// A plain profile as another form would have kept it.
pub fn in_form(plain: &ColumnProfile, form: Form) -> ColumnProfile {
    let mut kept = plain.clone();
    match form {
        Form::Plain => {}
        Form::Hashed => {
            kept.positions = positions(&plain.histogram);
            kept.common.iter_mut().for_each(|c| c.value = digest(&c.value));
            kept.histogram.iter_mut().for_each(|v| *v = digest(v));
        }
        Form::Off => {
            kept.common.clear();
            kept.histogram.clear();
        }
    }
    kept
}

fn digest(value: &str) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

fn positions(quantiles: &[String]) -> Vec<f32> {
    let numbers: Option<Vec<f64>> = quantiles.iter().map(|q| q.parse().ok()).collect();
    let Some(numbers) = numbers else { return Vec::new() };
    let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else { return Vec::new() };
    if last <= first {
        return Vec::new();
    }
    numbers.iter().map(|n| ((n - first) / (last - first)) as f32).collect()
}

/// The table of answers, for both halves and together, and each answer that was not right.
pub fn report(judged: &[Judged]) -> String {
    let mut text = format!(
        " {:<6}  {:>5} {:>7} {:>6}  {:>5} {:>9} {:>8}  {:>9} {:>6}\n",
        "half", "found", "doubted", "missed", "wrong", "ambiguous", "rejected", "precision", "recall"
    );
    for half in ["train", "test", "both"] {
        let sum = Confusion::of(judged.iter().filter(|pair| half == "both" || pair.half == half));
        let _ = writeln!(
            text,
            " {half:<6}  {:>5} {:>7} {:>6}  {:>5} {:>9} {:>8}  {:>9.3} {:>6.3}",
            sum.found,
            sum.doubted,
            sum.missed,
            sum.wrong,
            sum.wrongly_doubted,
            sum.rejected,
            sum.precision(),
            sum.recall()
        );
    }
    let sum = Confusion::of(judged);
    let _ = writeln!(
        text,
        " look-alikes: {} ambiguous as they should be, {} otherwise; {} candidates that only their like contradicts\n \
         never analysed: {} silent as they should be, {} otherwise",
        sum.alike_doubted, sum.alike_otherwise, sum.alike_candidate, sum.unknown_silent, sum.unknown_said
    );
    for pair in judged {
        let wrong = match (pair.truth, pair.said) {
            (Truth::Same, Said::Candidate) | (Truth::Other, Said::Nothing) | (Truth::Alike, _) => continue,
            (Truth::SameAmongAlike, Said::Ambiguous) | (Truth::Unknown, Said::Nothing) => continue,
            (Truth::Other, Said::Candidate) => "WRONG",
            (Truth::Other, Said::Ambiguous) => "other, ambiguous",
            (Truth::Same, Said::Ambiguous) => "same, ambiguous",
            (Truth::Same, Said::Nothing) => "MISSED",
            (Truth::SameAmongAlike, _) => "look-alike not ambiguous",
            (Truth::Unknown, _) => "UNKNOWN, BUT SAID",
        };
        let _ = writeln!(text, "   {:<24} {} ({})", wrong, pair.what, pair.half);
    }
    text
}
