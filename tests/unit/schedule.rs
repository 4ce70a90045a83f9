//! Back-off, due times, and the life of a run.

use pgtrickle::scheduler::backoff::Backoff;
use pgtrickle::scheduler::schedule::{Entry, due, next_due_in};
use pgtrickle::scheduler::state::{Next, Outcome, RunState};
use std::time::Duration;

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

const BACKOFF: Backoff = Backoff { first: secs(2), cap: secs(60) };
const SECOND: i64 = 1_000_000;

#[test]
fn backoff_doubles_up_to_its_cap() {
    for (failures, seconds) in
        [(0, 0), (1, 2), (2, 4), (3, 8), (5, 32), (6, 60), (7, 60), (33, 60), (u32::MAX, 60)]
    {
        assert_eq!(BACKOFF.delay(failures), secs(seconds), "{failures} failures");
    }
    let huge = Backoff { first: Duration::MAX, cap: secs(60) };
    assert_eq!(huge.delay(2), secs(60));
    assert_eq!(Backoff { first: secs(90), cap: secs(60) }.delay(1), secs(60));
}

#[test]
fn too_many_failures() {
    assert!(!Backoff::exhausted(4, 5));
    assert!(Backoff::exhausted(5, 5));
    assert!(!Backoff::exhausted(u32::MAX, 0), "0 is never");
}

fn entry(table: u32, schedule: Option<u64>, last: Option<i64>, failures: u32) -> Entry {
    Entry { table, schedule: schedule.map(secs), last_attempt: last.map(|s| s * SECOND), failures }
}

#[test]
fn due_tables() {
    let now = 1_000 * SECOND;
    for (what, entry, wait) in [
        ("never refreshed", entry(1, Some(10), None, 0), Some(0)),
        ("by hand only", entry(1, None, Some(0), 0), None),
        ("by hand only, never refreshed", entry(1, None, None, 0), None),
        ("just due", entry(1, Some(10), Some(990), 0), Some(0)),
        ("not yet", entry(1, Some(10), Some(991), 0), Some(1)),
        ("overdue", entry(1, Some(10), Some(1), 0), Some(0)),
        ("failed once: the schedule is longer than the back-off", entry(1, Some(10), Some(995), 1), Some(5)),
        ("failed five times: the back-off is longer", entry(1, Some(10), Some(980), 5), Some(12)),
        ("a schedule of nothing", entry(1, Some(0), Some(1_000), 0), Some(0)),
        ("a schedule of nothing that fails", entry(1, Some(0), Some(1_000), 1), Some(2)),
        ("the clock was set back", entry(1, Some(10), Some(90_000), 0), Some(0)),
        (
            "an endless schedule",
            entry(1, Some(u64::MAX), Some(1), 0),
            Some((i64::MAX - now) as u64 / 1_000_000),
        ),
    ] {
        let entries = [entry];
        let next = next_due_in(now, &entries, &BACKOFF);
        assert_eq!(next.map(|d| d.as_secs()), wait, "{what}");
        assert_eq!(due(now, &entries, &BACKOFF).is_empty(), wait != Some(0), "{what}");
    }
}

#[test]
fn the_most_overdue_comes_first() {
    let entries = [
        entry(5, Some(10), Some(980), 0),
        entry(4, Some(10), Some(970), 0),
        entry(3, Some(10), Some(970), 0),
        entry(2, Some(10), Some(999), 0),
        entry(1, None, None, 0),
    ];
    assert_eq!(due(1_000 * SECOND, &entries, &BACKOFF), [3, 4, 5]);
    assert_eq!(next_due_in(1_000 * SECOND, &entries[3..], &BACKOFF), Some(secs(9)));
    assert_eq!(next_due_in(0, &[], &BACKOFF), None);
}

#[test]
fn runs() {
    let started = RunState { failures: 3, ..RunState::default() }.start(7);
    assert_eq!(started, RunState { running_since: Some(7), last_attempt: Some(7), failures: 3 });
    for (outcome, failures, next) in [
        (Outcome::Completed, 0, Next::OnSchedule),
        (Outcome::Failed, 4, Next::BackOff(secs(16))),
        (Outcome::Crashed, 4, Next::BackOff(secs(16))),
        (Outcome::Interrupted, 3, Next::BackOff(secs(8))),
    ] {
        let (state, found) = started.finish(outcome, &BACKOFF, 5);
        assert_eq!((state.failures, found), (failures, next), "{outcome:?}");
        assert_eq!((state.running_since, state.last_attempt), (None, Some(7)), "{outcome:?}");
    }
}

#[test]
fn the_last_failure_suspends_an_interruption_does_not() {
    let started = RunState { failures: 4, ..RunState::default() }.start(7);
    assert_eq!(started.finish(Outcome::Failed, &BACKOFF, 5).1, Next::Suspend);
    assert_eq!(started.finish(Outcome::Failed, &BACKOFF, 0).1, Next::BackOff(secs(32)), "no limit");
    let full = RunState { failures: 5, ..started };
    assert_eq!(full.finish(Outcome::Interrupted, &BACKOFF, 5).1, Next::BackOff(secs(32)));
}

#[test]
fn a_run_without_an_end_has_crashed() {
    assert_eq!(RunState::default().recover(&BACKOFF, 5), None);
    let (state, next) = RunState::default().start(7).recover(&BACKOFF, 5).expect("a crash");
    assert_eq!(state, RunState { running_since: None, last_attempt: Some(7), failures: 1 });
    assert_eq!(next, Next::BackOff(secs(2)));
    assert_eq!(state.recover(&BACKOFF, 5), None, "counted once");
}
