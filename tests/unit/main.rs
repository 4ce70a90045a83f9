//! Tests of the pure parts, and of the rules about which part may use which. No server.

mod classify;
mod dag;
mod diff;
mod docs;
mod error;
mod layering;
mod properties;
mod schedule;
mod shape;
mod shapes;
mod sqltext;
