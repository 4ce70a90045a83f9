//! The catalog tables: one file each, the only reader and writer of it. All functions expect the rights of the
//! extension's owner and the pinned search_path (`pg::secctx::as_extension`).
#![forbid(unsafe_code)]

pub mod captures;
pub mod dependencies;
pub mod failures;
pub mod hash_keys;
pub mod history;
pub mod snapshots;
pub mod sources;
pub mod stream_tables;
pub mod tasks;
