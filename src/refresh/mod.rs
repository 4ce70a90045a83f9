//! Bringing stream tables up to date.
#![forbid(unsafe_code)]

mod execute;
mod limit;
pub mod naming;
pub mod plan;
mod rebuild;
mod recent;
pub mod upkeep;

pub use execute::{forget, plan_of, refresh, refresh_scheduled, suspended};
pub use rebuild::{create_guard, create_row_index, create_state, drop_state, index_name as row_index};
