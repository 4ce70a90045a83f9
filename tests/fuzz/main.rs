//! Seeded random tester: random schemas, queries, chains of stream tables and writers in two sessions, against the
//! oracle that a stream table equals its query after each refresh (I1).
//!
//! `PGTRICKLE_FUZZ_SECONDS`: how long; 120 without it, 0 is for ever. `PGTRICKLE_FUZZ_SEED`: where to begin; from the
//! clock without it, and printed. `PGTRICKLE_FUZZ_CASE`: one case by the seed that a failure printed, and no other.

mod dml;
mod query;
mod reduce;
mod run;
mod schema;
#[path = "../support/mod.rs"]
mod support;

use run::{Stats, Trouble};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::{Cluster, Options};

const WORKERS: u64 = 2;
/// A database serves this many cases, so that what one leaves behind meets the next ones.
const CASES_PER_DATABASE: u64 = 20;
const REDUCTION: Duration = Duration::from_secs(90);

struct Shared {
    cluster: Cluster,
    stats: Mutex<Stats>,
    cases: AtomicU64,
    stop: AtomicBool,
    failure: Mutex<Option<(run::Case, Box<Trouble>)>>,
    deadline: Option<Instant>,
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.trim().parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}

/// Spreads a counter over the whole range (splitmix64).
fn mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn main() {
    // The arguments of `cargo test` are for harnesses; a filter that does not name us means: not us.
    let filter: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    if std::env::args().any(|a| a == "--list")
        || !(filter.is_empty() || filter.iter().any(|f| "fuzz".contains(f.as_str())))
    {
        return;
    }
    let seconds = number("PGTRICKLE_FUZZ_SECONDS").unwrap_or(120);
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_millis() as u64);
    let seed = number("PGTRICKLE_FUZZ_SEED").unwrap_or(clock);
    let only = number("PGTRICKLE_FUZZ_CASE");
    match only {
        Some(case) => println!("fuzz: case {case} alone"),
        None => println!("fuzz: seed {seed} for {seconds} s with {WORKERS} workers"),
    }
    let begin = Instant::now();
    let shared = Shared {
        cluster: Cluster::start(&Options::default().with("jit = off")),
        stats: Mutex::default(),
        cases: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        failure: Mutex::new(None),
        deadline: (seconds > 0).then(|| begin + Duration::from_secs(seconds)),
    };
    let finished = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for worker in 0..if only.is_some() { 1 } else { WORKERS } {
            let (shared, finished) = (&shared, &finished);
            scope.spawn(move || {
                let end = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    work(shared, seed, worker, only)
                }));
                if let Err(panic) = end {
                    shared.stop.store(true, Ordering::SeqCst);
                    finished.fetch_add(1, Ordering::SeqCst);
                    std::panic::resume_unwind(panic);
                }
                finished.fetch_add(1, Ordering::SeqCst);
            });
        }
        let workers = if only.is_some() { 1 } else { WORKERS };
        let mut next = begin + Duration::from_secs(10);
        while finished.load(Ordering::SeqCst) < workers {
            std::thread::sleep(Duration::from_millis(50));
            if Instant::now() >= next {
                next += Duration::from_secs(10);
                report(&shared, begin);
            }
        }
    });
    report(&shared, begin);
    let stats = shared.stats.lock().expect("stats").clone();
    let failure = shared.failure.lock().expect("failure").take();
    if let Some((case, trouble)) = failure {
        fail(&shared.cluster, &case, &trouble);
        println!("{} refreshes, 1 differences", stats.refreshes);
        println!("test result: FAILED. 0 passed; 1 failed");
        drop(shared);
        std::process::exit(1);
    }
    println!("{} refreshes, 0 differences", stats.refreshes);
    println!("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
}

fn report(shared: &Shared, begin: Instant) {
    let s = shared.stats.lock().expect("stats").clone();
    println!(
        "fuzz: {:4} s, {} cases, {} refreshes: {} differential, {} no_change, {} full, {} reinitialize; {} gave way",
        begin.elapsed().as_secs(),
        shared.cases.load(Ordering::Relaxed),
        s.refreshes,
        s.differential,
        s.no_change,
        s.full,
        s.reinitialize,
        s.gave_way
    );
}

fn work(shared: &Shared, seed: u64, worker: u64, only: Option<u64>) {
    let mut n = 0;
    let mut db = String::new();
    while !shared.stop.load(Ordering::SeqCst) && shared.deadline.is_none_or(|d| Instant::now() < d) {
        if n % CASES_PER_DATABASE == 0 {
            if !db.is_empty() {
                drop_database(&shared.cluster, &db);
            }
            db = format!("w{worker}_{n}");
            shared.cluster.create_db(&db);
            shared
                .cluster
                .connect(&db)
                .batch_execute("CREATE EXTENSION pgtrickle")
                .unwrap_or_else(|e| panic!("CREATE EXTENSION pgtrickle: {}", support::describe(&e)));
        }
        let case = run::make(only.unwrap_or_else(|| mix(seed.wrapping_add(mix(worker * 1_000_003 + n)))));
        let mut stats = Stats::default();
        let mut end = run::play(&case, &shared.cluster, &db, &mut stats);
        if end.is_ok() {
            end = run::clear(&case, &mut shared.cluster.connect(&db));
        }
        shared.stats.lock().expect("stats").add(&stats);
        shared.cases.fetch_add(1, Ordering::Relaxed);
        if let Err(trouble) = end {
            shared.stop.store(true, Ordering::SeqCst);
            shared.failure.lock().expect("failure").get_or_insert((case, trouble));
            return;
        }
        if only.is_some() {
            return;
        }
        n += 1;
    }
}

fn drop_database(cluster: &Cluster, db: &str) {
    cluster
        .connect("postgres")
        .batch_execute(&format!("DROP DATABASE {db} WITH (FORCE)"))
        .unwrap_or_else(|e| panic!("DROP DATABASE {db}: {}", support::describe(&e)));
}

fn fail(cluster: &Cluster, case: &run::Case, trouble: &Trouble) {
    println!("\nfuzz: FAILED, {} (again with PGTRICKLE_FUZZ_CASE={})", trouble.kind, case.seed);
    println!("{}", trouble.text);
    println!("fuzz: reducing, at most {} s", REDUCTION.as_secs());
    match reduce::reduce(case, trouble, cluster, "reduction", REDUCTION) {
        Some((small, trouble)) => {
            println!("{}\n-- script:\n{}", trouble.text, reduce::script(&small));
        }
        None => {
            let mut whole = case.clone();
            if let Some(i) = trouble.step {
                whole.steps.truncate(i + 1);
            }
            println!("-- it does not fail from an empty database; what was run:\n{}", reduce::script(&whole));
        }
    }
}
