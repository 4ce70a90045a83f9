//! What people and programs are told: health, buffers, plans, notifications.
#![forbid(unsafe_code)]

pub mod alert;
pub mod buffers;
pub mod drift;
pub mod explain;
pub mod health;
mod lateness;
