//! What changed between two shapes of a table, and what that means. Pure.
#![forbid(unsafe_code)]

pub mod change;
pub mod classify;
pub mod diff;

pub use change::{Change, Severity};
pub use classify::{Usage, judge};
pub use diff::{diff, diff_retyped, mark_created};
