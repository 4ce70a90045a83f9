//! Schema snapshots: what a table looked like at one moment, read from the catalogs alone.
#![forbid(unsafe_code)]

pub mod hash;
pub mod profile;
mod read;
pub mod shape;
pub mod show;
pub mod stored;

pub(crate) use read::{read_shapes, shape_now};
