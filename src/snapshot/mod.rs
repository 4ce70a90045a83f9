//! Schema snapshots: what a table looked like at one moment, read from the catalogs alone.
#![forbid(unsafe_code)]

mod read;
pub mod shape;

pub(crate) use read::{read_shapes, shape_now};
