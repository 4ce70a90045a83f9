//! How often values occur, as far as a profile tells.
#![forbid(unsafe_code)]

use crate::snapshot::profile::ColumnProfile;

/// A column without common values may still have a value that comes this often.
const UNNOTICED: f32 = 0.005;
/// Sums of frequencies differ from 1 by rounding.
const ROUNDING: f32 = 1e-3;

/// How the rows that are not NULL are shared out among the values of a profile. Adds up to 1.
pub struct Weights {
    /// Of each common value.
    pub common: Vec<f32>,
    /// Of common values that the profile left out.
    pub left_out: f32,
    /// Of all others.
    pub scattered: f32,
}

impl Weights {
    /// Weights of a profile with this share of NULLs.
    pub fn of(profile: &ColumnProfile, nulls: f32) -> Weights {
        let mut common: Vec<f32> = profile.common.iter().map(|c| share(c.frequency)).collect();
        let listed: f32 = common.iter().sum();
        let mut left_out = (share(profile.common_fraction) - listed).max(0.0);
        let mut scattered =
            if profile.histogram.is_empty() { 0.0 } else { (1.0 - nulls - listed - left_out).max(0.0) };
        if left_out < ROUNDING {
            left_out = 0.0;
        }
        if listed + scattered <= 0.0 {
            // Values without any weight: all weigh the same.
            common.iter_mut().for_each(|weight| *weight = 1.0);
            (left_out, scattered) = (0.0, profile.histogram.len() as f32);
        }
        let total = (common.iter().sum::<f32>() + left_out + scattered).max(f32::MIN_POSITIVE);
        common.iter_mut().for_each(|weight| *weight /= total);
        Weights { common, left_out: left_out / total, scattered: scattered / total }
    }

    fn least_common(&self) -> f32 {
        self.common.iter().copied().fold(f32::INFINITY, f32::min)
    }

    /// The greatest weight that a value can have which is not listed as common.
    pub fn unlisted(&self, profile: &ColumnProfile) -> f32 {
        match (profile.common.is_empty(), self.left_out > 0.0 || self.scattered > 0.0) {
            (true, _) => UNNOTICED,
            (false, true) => self.least_common(),
            (false, false) => 0.0,
        }
    }

    /// How far a curve may be off for common values that were left out. Of equally common ones chance decides which `n`
    /// the profile keeps; a curve through them is off by about 0.6 through the root of `n`. Values that stand out are
    /// kept each time.
    pub fn doubt(&self) -> f32 {
        let most = self.common.iter().copied().fold(0.0, f32::max);
        if self.left_out == 0.0 || most <= 0.0 {
            return 0.0;
        }
        let even = self.least_common() / most;
        self.left_out * even * even * 0.6 / (self.common.len() as f32).sqrt()
    }
}

/// A share of something, whatever was stored.
pub fn share(value: f32) -> f32 {
    if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) }
}
