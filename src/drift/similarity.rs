//! How alike two columns are by what ANALYZE knew of them, whatever their names.
//!
//! The likeness is a product of factors, each 1 for no difference and falling with it, so that one fact that plainly
//! differs is enough for a no and no fact alone makes a yes. What can't be known (which of many equally common values
//! the profile kept, where between two quantiles a value lies) is given the benefit of the doubt. How fast each factor
//! falls was chosen by one half of the recorded cases; see [`super::rename::DEFAULT_THRESHOLD`].
#![forbid(unsafe_code)]

mod curve;
mod family;
mod features;
pub(crate) mod looks;
mod texture;
mod weights;

pub use features::{Brief, Features};

use crate::snapshot::profile::{ColumnProfile, Form};
use crate::snapshot::shape::ColumnShape;
use curve::distance;
use features::{Basis, Spread};
use looks::Scale;
use std::cmp::Ordering;

/// What is known of one column.
#[derive(Debug, Clone, Copy)]
pub struct Sample<'a> {
    /// The column.
    pub shape: &'a ColumnShape,
    /// Its profile.
    pub profile: &'a ColumnProfile,
    /// What of its values the profile keeps.
    pub form: Form,
    /// Estimated rows of its table: makes numbers of distinct values comparable.
    pub rows: Option<i64>,
}

/// How alike two columns are, 0 to 1.
///
/// 0 when either has no values to compare by: no evidence is not the same as likeness. 0 too for values that are of
/// different kinds (numbers, moments, words), and for plain values against digests. 1 for equal profiles.
pub fn similarity(before: &Sample, after: &Sample) -> f64 {
    likeness(&Features::of(before), &Features::of(after), 0.0)
}

/// The differences at which a factor is a half.
mod half {
    /// Of shares of NULLs.
    pub const NULLS: f32 = 0.1;
    /// Of logarithms of numbers of distinct values.
    pub const DISTINCT: f32 = 0.5;
    /// Of logarithms of widths, of one type.
    pub const WIDTH: f32 = 0.25;
    /// Of curves.
    pub const CURVE: f32 = 0.1;
    /// Of curves between the least and the greatest value: those two are chance.
    pub const POSITIONS: f32 = 0.25;
    /// Of the shares of common values.
    pub const COMMON: f32 = 0.12;
    /// The same where values say nothing by themselves: truths, small numbers, single letters.
    pub const BARE: f32 = 0.05;
    /// Of how many values two lists should share, in units of its scatter.
    pub const SHARED: f32 = 1.5;
    /// Of the share of random uuids among identifiers.
    pub const RANDOM: f32 = 0.3;
    /// Of logarithms of mean lengths.
    pub const LENGTH: f32 = 0.3;
    /// Of kinds of characters.
    pub const KINDS: f32 = 0.2;
    /// Of the share of capitals.
    pub const CAPITALS: f32 = 0.3;
    /// Of pairs of neighbouring characters.
    pub const PAIRS: f32 = 0.3;
    /// Of patterns of codes.
    pub const PATTERNS: f32 = 0.35;
}

/// Another type of the same family.
const RELATED_TYPE: f32 = 0.97;
/// A type of another family, whose values look the same.
const OTHER_FAMILY: f32 = 0.88;
/// A moment cut to its day has other numbers of distinct values.
const CUT: f32 = 0.9;
/// Texts in capitals that were not before.
const RECASED: f32 = 0.75;
/// Digests of which none is equal: quantiles at the same positions are no evidence for a rename.
const NO_EQUAL_DIGEST: f32 = 0.3;
/// Equal digests of this share of the known values are enough.
const EQUAL_DIGESTS: f32 = 0.3;

/// Falls from 1 to 0 as a difference grows.
fn fall(difference: f32, half: f32) -> f32 {
    let part = difference / half;
    1.0 / (1.0 + part * part)
}

/// Likeness of two columns. Below `least` it may stop early and give more than the true value, but less than `least`.
pub fn likeness(a: &Features, b: &Features, least: f64) -> f64 {
    let mut product = Product { value: 1.0, least: least as f32 };
    // Whether it was given up or not, the product is what is known.
    let (Some(()) | None) = match (a.basis, b.basis) {
        (Basis::Values(x), Basis::Values(y)) if x == y => values(a, b, x, &mut product),
        (Basis::Digests, Basis::Digests) => digests(a, b, &mut product),
        (Basis::Nothing | Basis::Values(_) | Basis::Digests, _) => return 0.0,
    };
    f64::from(product.value)
}

/// A product that is given up once it is too small.
struct Product {
    value: f32,
    least: f32,
}

impl Product {
    fn times(&mut self, factor: f32) -> Option<()> {
        self.value *= factor;
        (self.value >= self.least).then_some(())
    }

    /// A difference beyond which a factor with this half makes the product too small.
    fn room(&self, half: f32) -> f32 {
        // A little more, so that rounding does not decide.
        1.001 * half * (self.value / self.least - 1.0).max(0.0).sqrt() + 1e-6
    }
}

fn values(a: &Features, b: &Features, scale: Scale, product: &mut Product) -> Option<()> {
    let cut = scale == Scale::Moment && a.sample.shape.type_name != b.sample.shape.type_name;
    facts(a, b, cut, product)?;
    let lists = Lists::of(a, b);
    lists.factors(a, b, product)?;
    product.times(fall((a.random - b.random).abs(), half::RANDOM))?;
    let off = a.doubt + b.doubt + lists.excuse;
    let distance = curves(a, b, off + product.room(half::CURVE));
    product.times(fall((distance - off).max(0.0), half::CURVE))?;
    if scale == Scale::Text { textures(a, b, product) } else { Some(()) }
}

/// Everything but values. The cheapest comes first.
fn facts(a: &Features, b: &Features, cut: bool, product: &mut Product) -> Option<()> {
    product.times(fall((a.nulls - b.nulls).abs(), half::NULLS))?;
    // The number of distinct values stays, or it grows with the table: whichever fits better.
    let count = a.distinct.zip(b.distinct).map(|(a, b)| (a - b).abs());
    let share = a.distinct_share.zip(b.distinct_share).map(|(a, b)| (a - b).abs());
    let distinct = count.into_iter().chain(share).reduce(f32::min).unwrap_or(0.0);
    product.times(if cut { CUT } else { fall(distinct, half::DISTINCT) })?;
    product.times(if a.sample.shape.type_name == b.sample.shape.type_name {
        fall((a.width - b.width).abs(), half::WIDTH)
    } else if a.family == b.family {
        RELATED_TYPE
    } else {
        OTHER_FAMILY
    })
}

/// What two lists of common values say.
struct Lists {
    /// How far shares must differ at least, 0 to 1.
    gap: f32,
    /// Values on both.
    shared: usize,
    /// Share of values on both.
    shared_share: f32,
    /// How many would be on both if each were an accidental choice from the same values.
    expected: Option<f32>,
    /// How far curves may differ because each list is such a choice, seen to be from the same values.
    excuse: f32,
}

impl Lists {
    fn of(a: &Features, b: &Features) -> Lists {
        let mut lists = Lists { gap: 0.0, shared: 0, shared_share: 0.0, expected: None, excuse: 0.0 };
        lists.walk(a, b);
        if lists.shared == a.common.len() && lists.shared == b.common.len() {
            // Both list the same values: all the others are like one value more.
            lists.gap += (a.left_out + a.scattered - b.left_out - b.scattered).abs();
        }
        lists.gap /= 2.0;
        if a.left_out > 0.0 && b.left_out > 0.0 {
            let (listed_a, listed_b) = (a.common.len() as f32, b.common.len() as f32);
            // An estimate may be below what is listed.
            let values = a.distinct.zip(b.distinct).map(|(a, b)| a.max(b).exp().max(listed_a).max(listed_b));
            lists.expected = values.map(|values| listed_a * listed_b / values.max(1.0));
        }
        if let Some(expected) = lists.expected.filter(|expected| *expected >= 2.0) {
            let met = (lists.shared as f32 / expected).min(1.0);
            lists.excuse = met * (a.left_out + b.left_out) / 4.0;
        }
        lists
    }

    /// Sums differences over both lists. A value that one of them lacks may have any share that the lack allows.
    fn walk(&mut self, a: &Features, b: &Features) {
        let (mut left, mut right) = (a.common.as_slice(), b.common.as_slice());
        while let (Some((x, rest_of_a)), Some((y, rest_of_b))) = (left.split_first(), right.split_first()) {
            match x.0.cmp(&y.0) {
                Ordering::Less => {
                    self.gap += (x.1 - b.unlisted).max(0.0);
                    left = rest_of_a;
                }
                Ordering::Greater => {
                    self.gap += (y.1 - a.unlisted).max(0.0);
                    right = rest_of_b;
                }
                Ordering::Equal => {
                    self.shared += 1;
                    self.shared_share += x.1.min(y.1);
                    self.gap += (x.1 - y.1).abs();
                    (left, right) = (rest_of_a, rest_of_b);
                }
            }
        }
        left.iter().for_each(|x| self.gap += (x.1 - b.unlisted).max(0.0));
        right.iter().for_each(|y| self.gap += (y.1 - a.unlisted).max(0.0));
    }

    fn factors(&self, a: &Features, b: &Features, product: &mut Product) -> Option<()> {
        product.times(fall(self.gap, if a.bare && b.bare { half::BARE } else { half::COMMON }))?;
        let Some(expected) = self.expected else { return Some(()) };
        let missing = (expected - self.shared as f32 - 1.0).max(0.0);
        product.times(fall(missing / expected.sqrt().max(1.0), half::SHARED))
    }
}

fn curves(a: &Features, b: &Features, enough: f32) -> f32 {
    match (&a.spread, &b.spread) {
        (Spread::Measured(a), Spread::Measured(b)) => distance(a, b, enough),
        (Spread::Ordered(a), Spread::Ordered(b)) => distance(a, b, enough),
        (Spread::Unknown, Spread::Unknown) => 0.0,
        (Spread::Measured(_) | Spread::Ordered(_) | Spread::Unknown, _) => 1.0,
    }
}

/// Samples of one column differ by chance, and the more so the fewer characters and values they have.
fn textures(a: &Features, b: &Features, product: &mut Product) -> Option<()> {
    let (a, b) = (a.texture(), b.texture());
    let difference = a.difference(b);
    let by_values = 0.4 / a.values.min(b.values).max(1.0).sqrt();
    let by_characters = 2.5 / a.characters.min(b.characters).max(1.0).sqrt();
    let regular = a.regular.min(b.regular);
    product.times(fall((difference.length - by_values).max(0.0), half::LENGTH))?;
    product.times(fall(difference.kinds, half::KINDS))?;
    product.times(RECASED + (1.0 - RECASED) * fall(difference.capitals, half::CAPITALS))?;
    product.times(fall((difference.pairs - by_characters).max(0.0), half::PAIRS))?;
    // Prose has as many patterns as values; codes have one.
    product.times(1.0 - regular * regular * (1.0 - fall(difference.patterns, half::PATTERNS)))
}

/// Digests show equality alone, so equal ones are what counts.
fn digests(a: &Features, b: &Features, product: &mut Product) -> Option<()> {
    facts(a, b, false, product)?;
    let lists = Lists::of(a, b);
    lists.factors(a, b, product)?;
    product.times(fall(curves(a, b, f32::INFINITY), half::POSITIONS))?;
    let known = |f: &Features| f.common.iter().map(|value| value.1).sum::<f32>() + f.scattered;
    let quantiles = equal_share(&a.quantiles, &b.quantiles) * a.scattered.min(b.scattered);
    let equal = (lists.shared_share + quantiles) / known(a).min(known(b)).max(f32::MIN_POSITIVE);
    product.times(NO_EQUAL_DIGEST + (1.0 - NO_EQUAL_DIGEST) * (equal / EQUAL_DIGESTS).min(1.0))
}

/// Which part of the longer list is on the other one too. Both are sorted.
fn equal_share(a: &[u64], b: &[u64]) -> f32 {
    let (mut i, mut j, mut equal) = (0, 0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        equal += usize::from(x == y);
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
    equal as f32 / a.len().max(b.len()).max(1) as f32
}
