//! Soak: everything at once. Writers, schema changes, refreshes by hand and by two workers, VACUUM, ANALYZE, savepoints,
//! cancels, prepared transactions and temporary tables in parallel sessions of one preloaded cluster. Afterwards every
//! stream table is equal to its query or suspended with a true reason; no task, lock or orphan is left; the workers'
//! memory is flat; and no session had an error that the test did not cause itself.
//!
//! `PGTRICKLE_SOAK_SECONDS`: how long; 300 without it. `PGTRICKLE_SOAK_SEED`: where the random choices begin; from the clock
//! without it, and printed.

mod ending;
mod sessions;
#[path = "../support/mod.rs"]
mod support;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use support::{Cluster, Options};

/// What all sessions share.
pub struct Soak {
    pub cluster: Cluster,
    pub seed: u64,
    stop: AtomicBool,
    /// Statements that went through, and those that ended with an error that the test causes.
    pub done: AtomicU64,
    pub expected: AtomicU64,
    /// Errors that nobody caused on purpose.
    pub unexpected: Mutex<Vec<String>>,
}

impl Soak {
    /// Go on?
    pub fn running(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn complain(&self, text: String) {
        self.unexpected.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(text);
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.trim().parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}

fn main() {
    // The arguments of `cargo test` are for harnesses; a filter that does not name us means: not us.
    let filter: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    if std::env::args().any(|a| a == "--list")
        || !(filter.is_empty() || filter.iter().any(|f| "soak".contains(f.as_str())))
    {
        return;
    }
    let seconds = number("PGTRICKLE_SOAK_SECONDS").unwrap_or(300);
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_millis() as u64);
    let seed = number("PGTRICKLE_SOAK_SEED").unwrap_or(clock);
    println!("soak: {seconds} s, seed {seed}");
    let soak = Soak {
        cluster: Cluster::start(
            &Options::preloaded()
                .with("jit = off")
                .with("max_connections = 60")
                .with("max_prepared_transactions = 10")
                .with("deadlock_timeout = 200ms")
                .with("autovacuum_naptime = 1s")
                .with("log_min_messages = warning"),
        ),
        seed,
        stop: AtomicBool::new(false),
        done: AtomicU64::new(0),
        expected: AtomicU64::new(0),
        unexpected: Mutex::default(),
    };
    world::build(&soak);
    let memory = run(&soak, Duration::from_secs(seconds));
    let mut faults = soak.unexpected.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    faults.extend(memory);
    faults.extend(ending::check(&soak));
    println!(
        "soak: {} statements, {} errors that the test caused itself",
        soak.done.load(Ordering::Relaxed),
        soak.expected.load(Ordering::Relaxed)
    );
    if faults.is_empty() {
        println!("soak: nothing found");
        return;
    }
    for fault in faults.iter().take(20) {
        println!("soak: {fault}");
    }
    println!("soak: {} faults; PGTRICKLE_SOAK_SEED={seed} makes the same choices again", faults.len());
    std::process::exit(1);
}

/// Runs all sessions for a while; faults in the memory of the workers come back.
fn run(soak: &Soak, how_long: Duration) -> Vec<String> {
    let begin = Instant::now();
    let mut faults = Vec::new();
    std::thread::scope(|scope| {
        for (number, (name, session)) in sessions::ALL.iter().enumerate() {
            scope.spawn(move || {
                let body = std::panic::AssertUnwindSafe(|| session(soak, number as u64));
                if std::panic::catch_unwind(body).is_err() {
                    soak.complain(format!("session {name} panicked"));
                    soak.stop.store(true, Ordering::Relaxed);
                }
            });
        }
        let mut shown = Instant::now();
        let mut warm = None;
        while begin.elapsed() < how_long && soak.running() {
            std::thread::sleep(Duration::from_millis(100));
            // Caches are filled in the first third; what grows after it would go on growing.
            if warm.is_none() && begin.elapsed() > how_long / 3 {
                warm = Some(ending::memory_of_workers(soak));
            }
            if shown.elapsed() > Duration::from_secs(10) {
                shown = Instant::now();
                println!("    ... soak, {} s", begin.elapsed().as_secs());
            }
        }
        soak.stop.store(true, Ordering::Relaxed);
        if let Some(warm) = warm {
            faults = ending::grown(&warm, &ending::memory_of_workers(soak));
        }
    });
    faults
}
