//! How well columns that were renamed are recognised by their values: labelled scenarios on a real server, tables of
//! TPC-H and generated ones, each loaded and analysed twice on its own.
//!
//! `cargo bench --bench renames` judges fresh profiles and the recorded ones of the unit test;
//! `cargo bench --bench renames -- record` writes the recorded ones anew.

#[path = "../../tests/support/renames.rs"]
mod evaluation;
mod record;
#[path = "../../tests/support/mod.rs"]
mod support;
#[path = "../tpch/mod.rs"]
mod tpch;

use evaluation::{judge, report};
use pgtrickle::drift::rename::DEFAULT_THRESHOLD;
use pgtrickle::snapshot::profile::Form;
use support::{Cluster, Options};

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/unit/data/renames.jsonl");

/// Lines of a report before it lists pairs one by one.
const SUMS: usize = 6;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let cluster = Cluster::start(
        &Options::default()
            .with("shared_buffers = 128MB")
            .with("max_wal_size = 4GB")
            .with("autovacuum = off")
            // As a snapshot takes values: whoever reads it must not depend on settings of the writer.
            .with("datestyle = 'ISO'")
            .with("intervalstyle = 'postgres'"),
    );
    let cases = record::cases(&cluster);
    let text = evaluation::write(&cases);
    if wanted.iter().any(|arg| arg == "record") {
        std::fs::write(FIXTURE, &text).unwrap_or_else(|e| panic!("{FIXTURE}: {e}"));
        println!("{} cases, {} kB in {FIXTURE}", cases.len(), text.len() / 1024);
        return;
    }
    let recorded = std::fs::read_to_string(FIXTURE).unwrap_or_else(|e| panic!("{FIXTURE}: {e}"));
    for (title, cases) in [("analysed now", &cases), ("recorded", &evaluation::read(&recorded))] {
        for form in [Form::Plain, Form::Hashed] {
            println!("\n{title}, values {form:?}, threshold {DEFAULT_THRESHOLD}\n");
            let text = report(&judge(cases, form, DEFAULT_THRESHOLD));
            // Digests miss whatever is not repeated word by word: their misses one by one tell nothing.
            let lines = if form == Form::Plain { usize::MAX } else { SUMS };
            text.lines().take(lines).for_each(|line| println!("{line}"));
        }
    }
}
