//! What changed between two shapes of a table, and what that means. Pure.
//!
//! [`diff`](fn@diff) lists the changes, [`judge`] says what they mean for one stream table, [`classify`](fn@classify) what
//! they say about the relation itself, whether anything reads it or not.
#![forbid(unsafe_code)]

pub mod account;
pub mod change;
pub mod classify;
mod describe;
pub mod diff;
pub mod findings;
pub mod rename;
pub mod similarity;
pub mod words;

pub use account::{Account, Context, Judgement, classify};
pub use change::{Change, DRIFT_VERSION, Drift, Severity};
pub use classify::{Usage, judge};
pub use diff::{diff, diff_replaced, diff_retyped, mark_created};
