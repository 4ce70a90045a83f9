//! Tests of the pure parts, and of the rules about which part may use which. No server.

mod account;
mod classify;
mod dag;
mod diff;
mod docs;
mod error;
mod findings;
mod images;
mod layering;
mod names;
mod properties;
mod renames;
mod rows;
mod schedule;
mod seed_000;
mod shape;
mod shapes;
mod similarity;
mod snapshot;
mod sqltext;
mod turns;
mod words;
