//! When to refresh what: order, due times and back-off are pure; `worker` is the round of a database's worker.
#![forbid(unsafe_code)]

pub mod backoff;
pub mod dag;
pub mod schedule;
pub mod turns;
pub(crate) mod worker;
