//! What the values of one table looked like at one moment: per column a handful of facts and at most [`MAX_VALUES`] values,
//! taken from what ANALYZE had gathered. A plain value; `pg/statistics.rs` reads it.
//!
//! Values are user data. [`Form`] says what of them is kept.
#![forbid(unsafe_code)]

use crate::drift::similarity::looks::look;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Version tag of the stored form.
pub const PROFILE_VERSION: u32 = 1;
/// Most values kept of one column, common values and quantiles together.
pub const MAX_VALUES: usize = 20;
/// Most characters kept of one value.
pub const MAX_VALUE_CHARS: usize = 120;
/// Bytes kept of a digest that stands for a value.
const DIGEST_BYTES: usize = 8;
/// Tables with more columns have no profile.
pub const MAX_PROFILED_COLUMNS: usize = 300;

/// What is kept of values (`pg_trickle.snapshot_values`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// The values.
    Plain,
    /// Keyed digests, which show equality alone, and where each quantile lies between the least and the greatest value.
    Hashed,
    /// Nothing; null fraction, width and number of distinct values are kept.
    Off,
}

/// Why a column has no profile; the stable word in `columns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Absent {
    /// ANALYZE has gathered nothing about it.
    NeverAnalysed,
    /// The table has row security, which statistics would go around.
    RowSecurity,
    /// The table has more than [`MAX_PROFILED_COLUMNS`] columns.
    TooWide,
    /// The owner of the evidence may not read statistics.
    NoPrivilege,
    /// Its type was dropped by the same command, so that its values can't be printed any more.
    TypeDropped,
    /// What ANALYZE gathered could not be read.
    Unreadable,
}

impl Absent {
    /// The stable word.
    pub fn word(self) -> &'static str {
        match self {
            Absent::NeverAnalysed => "NEVER_ANALYSED",
            Absent::RowSecurity => "ROW_SECURITY",
            Absent::TooWide => "TOO_WIDE",
            Absent::NoPrivilege => "NO_PRIVILEGE",
            Absent::TypeDropped => "TYPE_DROPPED",
            Absent::Unreadable => "UNREADABLE",
        }
    }
}

/// One of the most common values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Common {
    /// The value as text (or its digest), at most [`MAX_VALUE_CHARS`] characters.
    pub value: String,
    /// Share of all rows, 0 to 1.
    pub frequency: f32,
}

/// What ANALYZE knew of one column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnProfile {
    /// Share of NULLs, 0 to 1.
    pub null_fraction: f32,
    /// Average width of a value that is not NULL, in bytes.
    pub average_width: i32,
    /// Number of distinct values; negative: minus their number as a share of the rows; 0: unknown (`stadistinct`).
    pub distinct: f32,
    /// How far the physical order is the order of the values, -1 to 1.
    pub correlation: Option<f32>,
    /// The most common values, most frequent first.
    pub common: Vec<Common>,
    /// Share of rows that hold any value that ANALYZE found common, those left out of `common` included.
    pub common_fraction: f32,
    /// Values that part the rows outside the common values into equal shares, in the type's order; least and greatest are
    /// the ends.
    pub histogram: Vec<String>,
    /// [`Form::Hashed`]: where each value of `histogram` lies between the ends, 0 to 1; empty for a type without distances.
    pub positions: Vec<f32>,
}

impl TableProfile {
    /// The profile of one column, if it has one.
    pub fn column(&self, attnum: i16) -> Option<&ColumnProfile> {
        match self.entry(attnum)? {
            Column::Known(profile) => Some(profile),
            Column::Absent(_) => None,
        }
    }

    /// What is recorded of one column.
    pub fn entry(&self, attnum: i16) -> Option<&Column> {
        self.columns.iter().find(|(number, _)| *number == attnum).map(|(_, column)| column)
    }

    /// At least one column has a profile.
    pub fn is_available(&self) -> bool {
        self.columns.iter().any(|(_, column)| matches!(column, Column::Known(_)))
    }

    /// A profile without any, all for the same reason.
    pub fn without(columns: impl IntoIterator<Item = i16>, form: Form, why: Absent) -> TableProfile {
        let columns = columns.into_iter().map(|attnum| (attnum, Column::Absent(why))).collect();
        TableProfile { version: PROFILE_VERSION, form, columns }
    }
}

impl ColumnProfile {
    /// There is at least one value to compare by.
    pub fn has_samples(&self) -> bool {
        !self.common.is_empty() || !self.histogram.is_empty()
    }
}

/// One column of a profile: what was known, or the word for why not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Column {
    /// What was known.
    Known(ColumnProfile),
    /// Nothing, and why.
    Absent(Absent),
}

/// Profiles of the columns of one table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableProfile {
    /// [`PROFILE_VERSION`] of the writer.
    pub version: u32,
    /// What was kept of values.
    pub form: Form,
    /// By attnum.
    pub columns: Vec<(i16, Column)>,
}

/// How many common values and how many quantiles are kept of those that ANALYZE has, so that both together stay within
/// [`MAX_VALUES`].
pub fn shares(common: usize, quantiles: usize) -> (usize, usize) {
    let half = MAX_VALUES / 2;
    let common_kept = common.min(half.max(MAX_VALUES.saturating_sub(quantiles)));
    (common_kept, quantiles.min(MAX_VALUES - common_kept))
}

/// Which `kept` of `count` quantiles: evenly spaced, both ends among them.
pub fn spaced(count: usize, kept: usize) -> Vec<usize> {
    match (count, kept) {
        (0, _) | (_, 0) => Vec::new(),
        (_, 1) => vec![0],
        _ if kept >= count => (0..count).collect(),
        _ => (0..kept).map(|i| (i * (count - 1) + (kept - 1) / 2) / (kept - 1)).collect(),
    }
}

/// The first [`MAX_VALUE_CHARS`] characters.
pub fn bounded(value: &str) -> &str {
    if value.len() <= MAX_VALUE_CHARS {
        return value;
    }
    match value.char_indices().nth(MAX_VALUE_CHARS) {
        Some((end, _)) => &value[..end],
        None => value,
    }
}

/// Four significant digits: statistics are estimates, and more would only take room.
pub fn rounded(number: f32) -> f32 {
    if number == 0.0 || !number.is_finite() {
        return 0.0;
    }
    let number = f64::from(number);
    let scale = 10f64.powi(3 - number.abs().log10().floor() as i32);
    ((number * scale).round() / scale) as f32
}

/// Puts keyed digests in the place of values, and notes first where the quantiles lie between their ends.
pub fn hashed(profile: &mut ColumnProfile, key: &str) {
    profile.positions = positions(&profile.histogram);
    let digest = |value: &String| {
        let mut hash = Sha256::new();
        hash.update(key.as_bytes());
        hash.update((value.len() as u64).to_be_bytes());
        hash.update(value.as_bytes());
        hash.finalize().iter().take(DIGEST_BYTES).map(|b| format!("{b:02x}")).collect::<String>()
    };
    profile.common.iter_mut().for_each(|common| common.value = digest(&common.value));
    profile.histogram.iter_mut().for_each(|value| *value = digest(value));
}

/// Each value's place between the first and the last, 0 to 1; none for values that don't lie on one line, or not in order.
fn positions(histogram: &[String]) -> Vec<f32> {
    let places: Option<Vec<_>> = histogram.iter().map(|value| look(value)).collect();
    let Some([(scale, first), .., (_, last)]) = places.as_deref() else { return Vec::new() };
    let between = |place: f64| rounded(((place - first) / (last - first)).clamp(0.0, 1.0) as f32);
    let on_one_line = places.iter().flatten().all(|(other, place)| other == scale && place.is_finite());
    let found: Vec<f32> = places.iter().flatten().map(|(_, place)| between(*place)).collect();
    if last > first && on_one_line && found.is_sorted() { found } else { Vec::new() }
}
