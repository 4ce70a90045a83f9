//! What changed between two shapes of a table, and what that means. Pure.
#![forbid(unsafe_code)]

pub mod classify;
pub mod diff;

pub use classify::{Usage, judge};
pub use diff::{Change, Severity, diff, diff_retyped, mark_created};
