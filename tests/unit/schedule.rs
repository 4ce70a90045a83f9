//! Back-off and due times.

use pgtrickle::scheduler::backoff::Backoff;
use pgtrickle::scheduler::schedule::{Entry, due, late_after};
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

fn entry(table: u32, schedule: Option<u64>, last: Option<i64>, failures: u32) -> Entry {
    Entry { table, schedule: schedule.map(secs), last_attempt: last.map(|s| s * SECOND), failures, waits: 0 }
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
        let at = entry.due_at(now, &BACKOFF);
        assert_eq!(at.map(|at| (at - now).max(0) as u64 / 1_000_000), wait, "{what}");
        assert_eq!(due(now, &[entry], &BACKOFF).is_empty(), wait != Some(0), "{what}");
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
    assert!(due(0, &[], &BACKOFF).is_empty());
}

#[test]
fn waiting_for_a_lock_is_no_failure_and_tried_again_soon() {
    let now = 1_000 * SECOND;
    for (waits, wait) in [(1, 1), (2, 2), (3, 4), (6, 30), (60, 30)] {
        let waiting = Entry { waits, ..entry(1, Some(3600), Some(1_000), 0) };
        assert_eq!(waiting.due_at(now, &BACKOFF), Some(now + wait * SECOND), "{waits} times");
    }
}

#[test]
fn lateness_is_three_schedules_and_half_a_minute_at_least() {
    assert_eq!(late_after(secs(1)), secs(30));
    assert_eq!(late_after(secs(60)), secs(180));
}
