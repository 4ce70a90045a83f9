//! What of a profile is compared, worked out once for each column.
#![forbid(unsafe_code)]

use super::Sample;
use super::curve::{Knot, Letters, Marks, curve};
use super::family::Family;
use super::looks::{Scale, look, truth};
use super::texture::Texture;
use super::weights::{Weights, share};
use crate::snapshot::profile::{ColumnProfile, Form};
use std::cell::OnceCell;

/// What the values of a column can be compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// No values.
    Nothing,
    /// Values, and the line that they lie on.
    Values(Scale),
    /// Digests.
    Digests,
}

/// The curve of the values, on a line with distances or on one without.
#[derive(Debug, Clone)]
pub enum Spread {
    /// Places are numbers.
    Measured(Vec<Knot<f64>>),
    /// Places are texts.
    Ordered(Vec<Knot<Letters>>),
    /// Nothing is known.
    Unknown,
}

/// One column, ready to be compared.
#[derive(Debug)]
pub struct Features<'a> {
    /// Whose features these are.
    pub sample: Sample<'a>,
    /// What it can be compared by.
    pub basis: Basis,
    /// Family of its type.
    pub family: Family,
    /// Share of NULLs.
    pub nulls: f32,
    /// Logarithm of the average width.
    pub width: f32,
    /// Logarithm of the number of distinct values, where it is known.
    pub distinct: Option<f32>,
    /// Logarithm of the number of distinct values as a share of the rows, where it is known.
    pub distinct_share: Option<f32>,
    /// Digests of the common values, sorted, each with its share of the rows that are not NULL.
    pub common: Vec<(u64, f32)>,
    /// A value that is not in `common` has this share at most.
    pub unlisted: f32,
    /// Common values that the profile left out, as a share of the rows that are not NULL.
    pub left_out: f32,
    /// All values are known and few, and such as many columns have: small numbers, single letters, truths.
    pub bare: bool,
    /// The curve of the values.
    pub spread: Spread,
    /// How far the curve may be off because common values were left out.
    pub doubt: f32,
    /// For a cheap no.
    pub marks: Marks,
    /// Digests of the quantiles, sorted.
    pub quantiles: Vec<u64>,
    /// Values outside the common ones, as a share of the rows that are not NULL.
    pub scattered: f32,
    /// Of identifiers, the share that are random uuids.
    pub random: f32,
    texture: OnceCell<Texture>,
}

/// The few facts that rule out most pairs, small enough to be read for each of many.
#[derive(Debug, Clone, Copy)]
pub struct Brief {
    basis: Basis,
    nulls: f32,
    marks: Marks,
}

impl Brief {
    /// The likeness is certainly below `threshold`.
    pub fn far(&self, other: &Brief, threshold: f64) -> bool {
        let unlike = (self.basis != other.basis) & (threshold > 0.0);
        let nulls = (self.nulls - other.nulls).abs() > NULLS_APART;
        unlike | ((threshold >= A_QUARTER_APART) & (nulls | self.marks.far(&other.marks)))
    }
}

/// Shares of NULLs that differ more make a likeness below [`A_QUARTER_APART`].
const NULLS_APART: f32 = super::half::NULLS;
/// A curve that may be off further than this is not trusted with a cheap no.
const CLEAR: f32 = 0.05;
/// Curves that are a quarter apart make a likeness below this: each may be off by [`CLEAR`], and left out values excuse
/// as much again, so that [`super::half::CURVE`] remains.
const A_QUARTER_APART: f64 = 0.5;
/// Most values of a bare domain.
const BARE_VALUES: usize = 12;

impl<'a> Features<'a> {
    /// Features of a column.
    pub fn of(sample: &Sample<'a>) -> Features<'a> {
        let profile = sample.profile;
        let nulls = share(profile.null_fraction);
        let weights = Weights::of(profile, nulls);
        let looks = match sample.form {
            Form::Plain => Looks::of(profile),
            Form::Hashed | Form::Off => Looks::default(),
        };
        let basis = basis(sample, &weights, &looks);
        let mut features = Features {
            sample: *sample,
            basis,
            family: Family::of(&sample.shape.type_name, sample.shape.type_kind),
            nulls,
            // Widths are whole bytes: of short values one byte is rounding.
            width: (profile.average_width.max(0) as f32 + 2.0).ln(),
            distinct: distinct(profile, sample.rows),
            distinct_share: distinct_share(profile, sample.rows),
            common: Vec::new(),
            unlisted: weights.unlisted(profile),
            left_out: weights.left_out,
            bare: false,
            spread: Spread::Unknown,
            doubt: weights.doubt(),
            marks: Marks::NONE,
            quantiles: Vec::new(),
            scattered: weights.scattered,
            random: 0.0,
            texture: OnceCell::new(),
        };
        match basis {
            Basis::Nothing => {}
            Basis::Digests => features.digests(&weights),
            Basis::Values(Scale::Text) => features.texts(&weights),
            Basis::Values(scale) => features.places(scale, &weights, &looks),
        }
        features
    }

    /// What a cheap no rests on.
    pub fn brief(&self) -> Brief {
        Brief { basis: self.basis, marks: self.marks, nulls: self.nulls }
    }

    /// What its texts are made of; worked out when it is first asked for.
    pub fn texture(&self) -> &Texture {
        self.texture.get_or_init(|| {
            let profile = self.sample.profile;
            let weights = Weights::of(profile, self.nulls);
            let each = weights.scattered / profile.histogram.len().max(1) as f32;
            let common = profile.common.iter().zip(&weights.common).map(|(c, w)| (c.value.as_str(), *w));
            Texture::of(common.chain(profile.histogram.iter().map(|value| (value.as_str(), each))))
        })
    }

    fn places(&mut self, scale: Scale, weights: &Weights, looks: &Looks) {
        let place = |(look, value): (&Option<(Scale, f64)>, &str)| match look {
            Some((looked, place)) if *looked == scale => Some(*place),
            Some(_) => None,
            None if scale == Scale::Number => truth(value),
            None => None,
        };
        let profile = self.sample.profile;
        let common = looks.common.iter().zip(&profile.common).zip(&weights.common);
        let mut atoms: Vec<(f64, f32)> =
            common.filter_map(|((look, c), weight)| Some((place((look, &c.value))?, *weight))).collect();
        let quantiles = looks.quantiles.iter().zip(&profile.histogram);
        let mut quantiles: Vec<f64> = quantiles.filter_map(|(look, value)| place((look, value))).collect();
        self.common = sorted(atoms.iter().map(|(place, weight)| (key(*place), *weight)).collect());
        let by_letters = self.family == Family::Text && matches!(scale, Scale::Number | Scale::Span);
        self.doubt += weights.scattered * disorder(&quantiles, by_letters);
        if scale == Scale::Identifier {
            self.random = random(profile);
        }
        let small = atoms.iter().all(|(place, _)| place.abs() < 1000.0 && place.fract() == 0.0);
        self.bare = scale == Scale::Number && small && self.few();
        let knots = curve(&mut atoms, &mut quantiles, weights.scattered);
        if self.clear() {
            self.marks = Marks::of(&knots);
        }
        self.spread = Spread::Measured(knots);
    }

    fn texts(&mut self, weights: &Weights) {
        let profile = self.sample.profile;
        let common = profile.common.iter().zip(&weights.common);
        let mut buffer = Vec::new();
        let (mut atoms, mut digests) = (Vec::new(), Vec::new());
        for (c, weight) in common {
            fold(&c.value, &mut buffer);
            atoms.push((letters(&buffer), *weight));
            digests.push((digest(&buffer), *weight));
        }
        self.common = sorted(digests);
        let mut quantiles: Vec<Letters> = Vec::with_capacity(profile.histogram.len());
        for value in &profile.histogram {
            fold(value, &mut buffer);
            quantiles.push(letters(&buffer));
        }
        self.doubt += weights.scattered * disorder(&quantiles, false);
        self.bare = self.few() && profile.common.iter().all(|c| c.value.trim_ascii().len() <= 1);
        let knots = curve(&mut atoms, &mut quantiles, weights.scattered);
        if self.clear() {
            self.marks = Marks::of(&knots);
        }
        self.spread = Spread::Ordered(knots);
    }

    fn digests(&mut self, weights: &Weights) {
        let profile = self.sample.profile;
        let common = profile.common.iter().zip(&weights.common);
        self.common = sorted(common.map(|(c, weight)| (digest(c.value.as_bytes()), *weight)).collect());
        self.quantiles = profile.histogram.iter().map(|value| digest(value.as_bytes())).collect();
        self.quantiles.sort_unstable();
        self.bare = self.few();
        let mut positions: Vec<f64> =
            profile.positions.iter().map(|p| f64::from(*p)).filter(|p| p.is_finite()).collect();
        if !positions.is_empty() {
            self.spread = Spread::Measured(curve(&mut [], &mut positions, 1.0));
        }
    }

    /// The curve can be trusted with a cheap no.
    fn clear(&self) -> bool {
        self.doubt < CLEAR && self.left_out < 2.0 * CLEAR
    }

    /// All values are listed, and there are few.
    fn few(&self) -> bool {
        self.scattered == 0.0 && self.left_out == 0.0 && self.common.len() <= BARE_VALUES
    }
}

/// Quantiles in another order than that of their places (digits as text, dates with the day first, texts by a
/// collation) are examples rather than quantiles. The curve through `n` examples is off by 0.9 through the root of `n`
/// on average, when the two orders have nothing in common.
fn disorder<P: PartialOrd>(quantiles: &[P], by_letters: bool) -> f32 {
    let pairs = quantiles.len().saturating_sub(1).max(1) as f32;
    let descents = quantiles.windows(2).filter(|pair| pair[0] > pair[1]).count() as f32;
    // Half of all steps lead down when the order is an accident. Few places may be in order by accident, too.
    let mixed = (2.0 * descents / pairs).min(1.0).max(if by_letters { 0.5 } else { 0.0 });
    0.6 * mixed / (quantiles.len().max(1) as f32).sqrt()
}

/// Share of values that say of themselves that they are random uuids.
fn random(profile: &ColumnProfile) -> f32 {
    let values = profile.common.iter().map(|c| &c.value).chain(&profile.histogram);
    let (mut all, mut random) = (0u16, 0u16);
    for value in values {
        all = all.saturating_add(1);
        random += u16::from(value.bytes().filter(|b| *b != b'-').nth(12) == Some(b'4'));
    }
    f32::from(random) / f32::from(all.max(1))
}

/// Scale and place of each value of a profile; none for text.
#[derive(Default)]
struct Looks {
    common: Vec<Option<(Scale, f64)>>,
    quantiles: Vec<Option<(Scale, f64)>>,
}

impl Looks {
    fn of(profile: &ColumnProfile) -> Looks {
        Looks {
            common: profile.common.iter().map(|c| look(&c.value)).collect(),
            quantiles: profile.histogram.iter().map(|value| look(value)).collect(),
        }
    }

    /// The scale of nearly all values. Some files mark missing numbers by a word, which must not hide the others.
    fn scale(&self, profile: &ColumnProfile, weights: &Weights) -> Scale {
        const SCALES: [Scale; 4] = [Scale::Number, Scale::Moment, Scale::Span, Scale::Identifier];
        const NEARLY_ALL: f32 = 0.8;
        const ALL: f32 = 0.9999;
        let each = weights.scattered / profile.histogram.len().max(1) as f32;
        let common = self.common.iter().zip(&profile.common).zip(&weights.common);
        let common = common.map(|((look, c), weight)| (look, &c.value, *weight));
        let quantiles =
            self.quantiles.iter().zip(&profile.histogram).map(|(look, value)| (look, value, each));
        let (mut measured, mut truths, mut all) = ([0.0f32; SCALES.len()], 0.0, 0.0);
        for (look, value, weight) in common.chain(quantiles) {
            all += weight;
            match look {
                Some((scale, _)) => SCALES.iter().zip(&mut measured).for_each(|(one, sum)| {
                    *sum += if one == scale { weight } else { 0.0 };
                }),
                None if truth(value).is_some() => truths += weight,
                None => {}
            }
        }
        // Words of truth count when there is nothing else but numbers.
        if truths > 0.0 && truths + measured[0] >= all * ALL {
            return Scale::Number;
        }
        let found = SCALES.iter().zip(measured).find(|(_, sum)| *sum > 0.0 && *sum >= all * NEARLY_ALL);
        found.map_or(Scale::Text, |(scale, _)| *scale)
    }
}

fn basis(sample: &Sample, weights: &Weights, looks: &Looks) -> Basis {
    if !sample.profile.has_samples() {
        return Basis::Nothing;
    }
    match sample.form {
        Form::Off => Basis::Nothing,
        Form::Hashed => Basis::Digests,
        Form::Plain => Basis::Values(looks.scale(sample.profile, weights)),
    }
}

/// Logarithm of the number of distinct values.
fn distinct(profile: &ColumnProfile, rows: Option<i64>) -> Option<f32> {
    let count = match profile.distinct {
        d if d > 0.0 => d,
        d if d < 0.0 => -d * rows.filter(|rows| *rows > 0)? as f32,
        _ => return None,
    };
    Some(count.clamp(1.0, 1e18).ln())
}

/// Logarithm of the number of distinct values as a share of the rows.
fn distinct_share(profile: &ColumnProfile, rows: Option<i64>) -> Option<f32> {
    let share = match profile.distinct {
        d if d < 0.0 => -d,
        d if d > 0.0 => d / rows.filter(|rows| *rows > 0)? as f32,
        _ => return None,
    };
    Some(share.clamp(1e-12, 1.0).ln())
}

fn sorted(mut common: Vec<(u64, f32)>) -> Vec<(u64, f32)> {
    common.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    common.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 += next.1;
        }
        same
    });
    common
}

/// Whole numbers are exact; fractions as far as `real` holds them.
fn key(place: f64) -> u64 {
    let place = place + 0.0;
    if place.fract() == 0.0 { place.to_bits() } else { u64::from((place as f32).to_bits()) }
}

fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

/// Puts a text without its case and the blanks around it into `buffer`.
fn fold(value: &str, buffer: &mut Vec<u8>) {
    buffer.clear();
    let value = value.trim_ascii();
    if value.is_ascii() {
        buffer.extend_from_slice(value.as_bytes());
        buffer.make_ascii_lowercase();
        return;
    }
    for c in value.chars() {
        let lower = c.to_lowercase().next().unwrap_or(c);
        buffer.extend_from_slice(lower.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

fn letters(folded: &[u8]) -> Letters {
    let (left, right) = folded.split_at(folded.len().min(16));
    let half = |part: &[u8]| {
        let mut bytes = [0; 16];
        let length = part.len().min(16);
        bytes[..length].copy_from_slice(&part[..length]);
        u128::from_be_bytes(bytes)
    };
    (half(left), half(right))
}
