//! Renames among recorded cases, whose truth is known.

#[path = "../support/renames.rs"]
mod evaluation;

use evaluation::{Case, Confusion, Judged, judge, read, report};
use pgtrickle::drift::rename::{DEFAULT_THRESHOLD, renames};
use pgtrickle::snapshot::profile::Form;

fn cases() -> Vec<Case> {
    read(include_str!("data/renames.jsonl"))
}

fn of_half<'j>(judged: &'j [Judged], half: &'j str) -> Confusion {
    Confusion::of(judged.iter().filter(|pair| pair.half == half))
}

#[test]
fn recorded_renames_are_found() {
    let judged = judge(&cases(), Form::Plain, DEFAULT_THRESHOLD);
    println!("{}", report(&judged));
    for half in ["train", "test"] {
        let sum = of_half(&judged, half);
        assert!(sum.found + sum.doubted + sum.missed >= 60, "{half}: too few renames to say anything");
        assert!(sum.wrong + sum.wrongly_doubted + sum.rejected >= 150, "{half}: too few others");
        assert!(sum.precision() >= 0.98 && sum.recall() >= 0.9, "{half}: {sum:?}");
    }
    let sum = Confusion::of(&judged);
    assert!(sum.alike_doubted > sum.alike_otherwise, "{sum:?}");
    assert!(sum.unknown_silent > 0 && sum.unknown_said == 0, "{sum:?}");
}

#[test]
fn digests_find_fewer_and_are_not_wrong_more_often() {
    let judged = judge(&cases(), Form::Hashed, DEFAULT_THRESHOLD);
    println!("{}", report(&judged));
    let sum = Confusion::of(&judged);
    assert!(sum.precision() >= 0.98, "{sum:?}");
    assert!(sum.recall() >= 0.5, "{sum:?}");
}

#[test]
fn nothing_is_said_without_values() {
    let judged = judge(&cases(), Form::Off, DEFAULT_THRESHOLD);
    assert!(judged.iter().all(|pair| pair.said == evaluation::Said::Nothing));
}

#[test]
fn the_order_of_columns_does_not_matter() {
    for case in cases() {
        let before = evaluation::Side::new(&case.before, case.rows.0, Form::Plain);
        let after = evaluation::Side::new(&case.after, case.rows.1, Form::Plain);
        let (mut b, mut a) = (before.samples(), after.samples());
        let found = renames(&b, &a, DEFAULT_THRESHOLD);
        b.reverse();
        a.reverse();
        assert_eq!(renames(&b, &a, DEFAULT_THRESHOLD), found, "{}", case.name);
    }
}
