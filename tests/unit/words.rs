//! What people read in the history of a relation.

use crate::account::{baseline, change, dropped, numbered, source};
use pgtrickle::drift::Change;
use pgtrickle::drift::account::{Entry, Link, pairs};
use pgtrickle::drift::diff::Column;
use pgtrickle::drift::words::{MAX_EXAMPLE_CHARS, Step, example, sentences};

fn step<'a>(before: &'a Entry, link: Link, changes: &'a [Change]) -> Step<'a> {
    Step { before, link, came_from: None, went_to: None, changes }
}

fn lost(name: &str) -> Change {
    Change::ColumnDropped { column: Column { attnum: 1, name: name.into() } }
}

fn replaced() -> Change {
    Change::RelationReplaced { before: 1, after: 2 }
}

#[test]
fn what_a_snapshot_was_taken_for() {
    let sized = |e: Entry, columns, rows| Entry { columns, rows, ..e };
    let [before, after] = change(1, "t", "t");
    for (entry, told) in [
        (source(1, "t"), "became a source with 5 columns, about 1,000 rows"),
        (sized(dropped(1, "t"), 13, Some(3507)), "dropped with 13 columns, about 3,507 rows"),
        (sized(source(1, "t"), 1, None), "became a source with 1 column, never analysed"),
        (sized(baseline(1, "t"), 2, Some(0)), "seen by the baseline pass with 2 columns, about 0 rows"),
        (sized(baseline(1, "t"), 1600, Some(1)), "seen by the baseline pass with 1,600 columns, about 1 row"),
        (
            sized(baseline(1, "t"), 0, Some(12_345_678)),
            "seen by the baseline pass with 0 columns, about 12,345,678 rows",
        ),
        (Entry { kind: 'v', ..source(1, "t") }, "became a source with 5 columns"),
        (before, "stood before ALTER TABLE with 5 columns, about 1,000 rows"),
        (after.clone(), "no change of shape by ALTER TABLE"),
        (Entry { command_tag: None, ..after }, "no change of shape by an unknown command"),
    ] {
        assert_eq!(sentences(&entry, &[]), [told]);
    }
}

#[test]
fn one_sentence_for_each_change() {
    let [before, after] = change(1, "t", "t");
    let changes = [lost("x"), lost("Y z")];
    assert_eq!(
        sentences(&after, &[step(&before, Link::Same, &changes)]),
        ["column \"x\" was dropped", "column \"Y z\" was dropped"]
    );
    assert_eq!(
        sentences(&baseline(1, "t"), &[step(&after, Link::Same, &changes[..1])]),
        [
            "seen by the baseline pass with 5 columns, about 1,000 rows",
            "column \"x\" was dropped, by a command that was not recorded"
        ]
    );
}

#[test]
fn another_relation_in_words() {
    let (gone, made) = (dropped(1, "t"), source(2, "t"));
    let told = |link, changes: &[Change]| sentences(&made, &[step(&gone, link, changes)])[1..].to_vec();
    let only = [replaced()];
    assert_eq!(told(Link::Recreated, &only), ["made again as another table: no change of shape"]);
    assert_eq!(
        told(Link::Recreated, &[replaced(), lost("x")]),
        ["made again as another table", "column \"x\" was dropped"]
    );
    assert_eq!(told(Link::Restored, &only), ["restored or copied from another database: no change of shape"]);
    assert_eq!(
        told(Link::Another, &only),
        ["another table of that name; how the earlier one lost it was not recorded: no change of shape"]
    );
    let version = source(3, "r_v2");
    assert_eq!(
        sentences(&version, &[step(&made, Link::Another, &only)])[1..],
        ["another table after shop.t: no change of shape"]
    );
}

#[test]
fn case_27_a_swap_in_words() {
    let ([b1, a1], [b2, a2]) = (change(1, "shop.t", "shop.old"), change(2, "new.t", "shop.t"));
    let entries = numbered([source(1, "t"), b1, a1, b2, a2]);
    let moved = [Change::SchemaChanged { before: "new".into(), after: "shop".into() }];
    let other = [replaced(), lost("x")];
    let found = pairs(&entries);
    let steps: Vec<Step> = found
        .iter()
        .filter(|p| p.after == 4)
        .map(|p| Step::of(&entries, p, if p.link == Link::Same { &moved } else { &other }))
        .collect();
    assert_eq!(
        sentences(&entries[4], &steps),
        [
            "its schema changed from \"new\" to \"shop\"",
            "the name went to another table, which was new.t before (source_swapped)",
            "the table that had the name was shop.old after that",
            "compared with the table that had the name: column \"x\" was dropped",
        ]
    );
    let unknown = numbered([baseline(1, "t"), baseline(2, "t"), baseline(1, "t")]);
    let found = pairs(&unknown);
    assert_eq!(
        sentences(&unknown[1], &[Step::of(&unknown, &found[0], &[replaced()])])[1..],
        ["the name went to another table (source_swapped)"]
    );
}

#[test]
fn an_example_is_one_line_with_the_worst_first() {
    let [before, after] = change(1, "t", "Order items");
    let before = Entry { id: 12, ..before };
    let after = Entry { id: 15, ..after };
    let added = Change::ColumnAdded { column: Column { attnum: 9, name: "y".into() } };
    let changes = [added.clone(), lost("x"), lost("z")];
    assert_eq!(
        example(&after, &step(&before, Link::Same, &changes)),
        "shop.\"Order items\": snapshot 12 to 15: column \"x\" was dropped; 2 more"
    );
    assert_eq!(
        example(&after, &step(&before, Link::Recreated, &[replaced(), added])),
        "shop.\"Order items\": snapshot 12 to 15: made again as another table after shop.t; column \"y\" was added"
    );
    let long = Change::DefaultChanged {
        column: Column { attnum: 1, name: "x".into() },
        before: Some("ä".repeat(5_000)),
        after: None,
    };
    let text = example(&after, &step(&before, Link::Same, &[long]));
    assert_eq!(text.chars().count(), MAX_EXAMPLE_CHARS);
    assert!(text.ends_with('…'), "{text}");
}

#[test]
fn what_hides_in_a_name_is_shown() {
    let [before, after] = change(1, "t", "\u{feff}t");
    let changes = [
        lost("\u{feff}id"),
        Change::ColumnRenamed { attnum: 2, before: "a\u{a0}b".into(), after: "a b".into() },
    ];
    let step = step(&before, Link::Same, &changes);
    assert_eq!(
        sentences(&after, &[step]),
        ["column U&\"\\FEFFid\" was dropped", "column U&\"a\\00A0b\" was renamed to \"a b\""]
    );
    assert!(example(&after, &step).starts_with("shop.U&\"\\FEFFt\": snapshot"));
    assert_eq!(changes[1].before_value().as_deref(), Some("U&\"a\\00A0b\""));
    assert_eq!(changes[1].after_value().as_deref(), Some("a b"));
}
