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
mod drift;
mod drift_access;
mod drift_diff;
mod drift_effects;
mod drift_evidence;
mod drift_gates;
mod drift_history;
mod drift_renames;
mod drift_replaced;
mod drift_report;
mod encoding;
mod errors_pass;
mod evidence;
mod evidence_access;
mod evidence_baseline;
mod evidence_content;
mod evidence_drops;
mod evidence_faults;
mod evidence_prune;
mod evidence_restore;
mod evidence_sources;
mod evidence_values;
mod evidence_waits;
mod foreign_code;
mod full;
mod growth;
mod hostile_path;
mod invariants;
mod joins;
mod lifecycle;
mod memory;
mod names;
mod partitions;
mod privileges;
mod replace;
mod roles_walk;
mod scheduler;
mod settings;
mod surface;
mod suspend;
mod trigger_privilege;
mod types_in_stream_tables;
mod user_code;
