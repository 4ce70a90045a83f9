//! End to end: the installed extension in private clusters. Every test that refreshes goes through the one oracle of
//! `support` (I1). A test has a database of its own in a shared cluster, or a cluster where it preloads or kills.

#[path = "../support/mod.rs"]
mod support;

mod aggregates;
mod bad_input;
mod capture;
mod chains;
mod common;
mod concurrency;
mod crash;
mod ddl;
mod differential;
mod full;
mod invariants;
mod joins;
mod lifecycle;
mod names;
mod partitions;
mod privileges;
mod replace;
mod scheduler;
mod surface;
mod suspend;
