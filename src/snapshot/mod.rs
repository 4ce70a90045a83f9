//! Schema snapshots: what a table looked like at one moment, read from the catalogs alone.
#![forbid(unsafe_code)]

pub(crate) mod baseline;
pub(crate) mod capture;
pub mod hash;
pub mod profile;
mod read;
pub(crate) mod retention;
pub mod shape;
pub mod show;
pub mod stored;

pub(crate) use read::{read_shapes, schema_hash_of, shape_now};
