//! How long to wait after failures in a row.
#![forbid(unsafe_code)]

use std::time::Duration;

/// Exponential: `first` after the first failure, twice as long after each further one, never more than `cap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure.
    pub first: Duration,
    /// At most.
    pub cap: Duration,
}

impl Backoff {
    /// The wait after so many consecutive failures; zero after none.
    pub fn delay(&self, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else { return Duration::ZERO };
        let factor = 1u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.first.checked_mul(factor).unwrap_or(self.cap).min(self.cap)
    }
}
