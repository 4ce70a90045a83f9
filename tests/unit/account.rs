//! The account over recorded snapshots: who is whose neighbour, classes, gates, and the sums.

use crate::shapes::src;
use pgtrickle::drift::account::{
    Account, Class, Context, Entry, Gate, Judgement, Link, MAX_EXAMPLES, Moment, Pair, Pairing, Tally, Why,
    classify, pairs,
};
use pgtrickle::drift::diff::{Column, Turn};
use pgtrickle::drift::{Change, Severity};
use std::collections::BTreeSet;

/// A snapshot of `oid` under `name` (in schema `shop` unless it has a dot). Ids come from the position.
pub fn entry(oid: u32, name: &str, why: Why, moment: Moment) -> Entry {
    let (schema, table) = name.split_once('.').unwrap_or(("shop", name));
    Entry {
        id: 0,
        origin: 1,
        relation: oid,
        schema: schema.into(),
        table: table.into(),
        kind: 'r',
        persistence: 'p',
        columns: 5,
        rows: Some(1000),
        why,
        moment,
        digest: String::new(),
        identity: None,
        command_tag: None,
        own: false,
        in_extension: false,
    }
}

pub fn source(oid: u32, name: &str) -> Entry {
    entry(oid, name, Why::Source, Moment::Standing)
}

pub fn baseline(oid: u32, name: &str) -> Entry {
    entry(oid, name, Why::Baseline, Moment::Standing)
}

pub fn dropped(oid: u32, name: &str) -> Entry {
    entry(oid, name, Why::Drop, Moment::Before)
}

/// Both rows of a command that may rename.
pub fn change(oid: u32, before: &str, after: &str) -> [Entry; 2] {
    let row = |name, moment| Entry {
        command_tag: Some("ALTER TABLE".into()),
        ..entry(oid, name, Why::Change, moment)
    };
    [row(before, Moment::Before), row(after, Moment::After)]
}

pub fn numbered(entries: impl IntoIterator<Item = Entry>) -> Vec<Entry> {
    entries.into_iter().zip(1..).map(|(e, id)| Entry { id, ..e }).collect()
}

fn with_identity(identity: &str, entry: Entry) -> Entry {
    Entry { identity: Some(identity.into()), ..entry }
}

/// Pairs of one kind as (id before, id after, link).
fn linked(entries: &[Entry], pairing: Pairing) -> Vec<(i64, i64, Link)> {
    let found = pairs(entries).into_iter().filter(|p| p.pairing == pairing);
    found.map(|p| (entries[p.before].id, entries[p.after].id, p.link)).collect()
}

fn by_relation(entries: impl IntoIterator<Item = Entry>) -> Vec<(i64, i64, Link)> {
    linked(&numbered(entries), Pairing::Relation)
}

fn swap_of(entries: &[Entry]) -> Pair {
    let mut swaps = pairs(entries).into_iter().filter(|p| p.link == Link::Swapped);
    let swap = swaps.next().expect("a swap");
    assert_eq!(swaps.next(), None, "one swap is one");
    swap
}

// Lines.

#[test]
fn a_rename_stays_in_its_line() {
    let [before, after] = change(1, "t", "u");
    let found = by_relation([source(1, "t"), before, after, dropped(1, "u")]);
    assert_eq!(found, [(1, 2, Link::Same), (2, 3, Link::Same), (3, 4, Link::Same)]);
}

#[test]
fn case_19_dropped_and_created_again_is_another_table_in_the_same_line() {
    let entries = numbered([source(1, "t"), dropped(1, "t"), source(2, "t"), dropped(2, "t")]);
    let expected = [(1, 2, Link::Same), (2, 3, Link::Recreated), (3, 4, Link::Same)];
    assert_eq!(linked(&entries, Pairing::Relation), expected);
    assert!(pairs(&entries).iter().all(|p| p.line == 0), "one line");
}

#[test]
fn case_27_a_swap_is_seen_though_only_the_source_was_recorded() {
    let [before, after] = change(1, "t", "old");
    let entries = numbered([source(1, "t"), before, after, source(2, "t")]);
    let expected = [(1, 2, Link::Same), (2, 3, Link::Same), (2, 4, Link::Swapped)];
    assert_eq!(linked(&entries, Pairing::Relation), expected);
    let swap = swap_of(&entries);
    assert_eq!((swap.came_from, swap.went_to), (None, Some(2)));
    assert_ne!(pairs(&entries)[0].line, 3, "the new table has a line of its own");
}

#[test]
fn case_27_a_swap_is_seen_where_both_tables_were_known() {
    let ([b1, a1], [b2, a2]) = (change(1, "t", "old"), change(2, "new", "t"));
    let entries = numbered([source(1, "t"), baseline(2, "new"), b1, a1, b2, a2, dropped(1, "old")]);
    let swap = swap_of(&entries);
    assert_eq!((swap.before, swap.after), (2, 5));
    assert_eq!((swap.came_from, swap.went_to), (Some(4), Some(3)));
    let same = linked(&entries, Pairing::Relation).iter().filter(|(_, _, l)| *l == Link::Same).count();
    assert_eq!(same, 5, "both go on in their own lines");
}

#[test]
fn case_27_a_swap_is_seen_where_no_rename_was_recorded() {
    // Neither was a source: all that is recorded of them is a baseline pass, and later the drop of the old one.
    let entries = numbered([baseline(1, "t"), baseline(2, "t"), dropped(1, "old")]);
    assert_eq!(swap_of(&entries).went_to, Some(2));
    let entries = numbered([baseline(2, "new"), baseline(1, "t"), dropped(1, "t"), baseline(2, "t")]);
    let swap = swap_of(&entries);
    assert_eq!((swap.before, swap.after, swap.came_from), (2, 3, Some(0)), "the new one took its place");
}

#[test]
fn names_that_are_swapped_back_are_two_swaps() {
    let found = by_relation([baseline(1, "t"), baseline(2, "t"), baseline(1, "t")]);
    let swaps = found.iter().filter(|(_, _, link)| *link == Link::Swapped);
    assert_eq!(swaps.copied().collect::<Vec<_>>(), [(1, 2, Link::Swapped), (2, 3, Link::Swapped)]);
}

#[test]
fn a_name_without_a_recorded_drop_is_not_called_recreated() {
    assert_eq!(by_relation([baseline(1, "t"), baseline(2, "t")]), [(1, 2, Link::Another)]);
}

#[test]
fn an_oid_that_is_used_again_is_another_relation() {
    assert_eq!(by_relation([dropped(1, "t"), baseline(1, "u")]), []);
    assert_eq!(by_relation([dropped(1, "t"), baseline(1, "t")]), [(1, 2, Link::Recreated)]);
}

#[test]
fn oids_of_two_databases_are_not_compared() {
    let here = |e: Entry| Entry { origin: 2, ..e };
    // The oid of the restored `t` is that of the earlier `u`.
    let found = by_relation([source(1, "t"), source(2, "u"), here(source(2, "t")), here(source(9, "u"))]);
    assert_eq!(found, [(1, 3, Link::Restored), (2, 4, Link::Restored)]);
    // Rows of the other database that lie between tell nothing of a relation that is known.
    let found = by_relation([here(source(1, "t")), source(1, "t"), here(dropped(1, "t"))]);
    assert_eq!(found, [(1, 2, Link::Restored), (1, 3, Link::Same)]);
}

#[test]
fn names_with_dots_are_not_confused() {
    let found = by_relation([
        dropped(1, "a.b.c"),
        Entry { schema: "a.b".into(), table: "c".into(), ..baseline(2, "x") },
    ]);
    assert_eq!(found, []);
}

#[test]
fn the_order_of_rows_is_that_of_their_ids() {
    let mut entries = numbered([source(1, "t"), dropped(1, "t"), source(2, "t")]);
    entries.reverse();
    assert_eq!(linked(&entries, Pairing::Relation), [(1, 2, Link::Same), (2, 3, Link::Recreated)]);
}

// Identities.

#[test]
fn versions_of_a_resource_are_compared_while_both_live() {
    let v = |e: Entry| with_identity("resource", e);
    let entries = numbered([
        v(source(1, "r_v1")),
        v(source(2, "r_v2")),
        v(dropped(1, "r_v1")),
        v(dropped(2, "r_v2")),
        v(source(3, "r_v3")),
        source(4, "other"),
        with_identity("another", source(5, "s")),
    ]);
    assert_eq!(
        linked(&entries, Pairing::Identity),
        [(1, 2, Link::Another), (1, 3, Link::Same), (2, 4, Link::Same), (4, 5, Link::Recreated)]
    );
}

#[test]
fn a_restored_version_is_compared_with_itself() {
    let v = |e: Entry| with_identity("resource", e);
    let here = |e: Entry| Entry { origin: 2, ..e };
    let entries = numbered([v(source(1, "r_v1")), v(source(2, "r_v2")), here(v(source(1, "r_v1")))]);
    assert_eq!(linked(&entries, Pairing::Identity), [(1, 2, Link::Another), (1, 3, Link::Restored)]);
}

#[test]
fn a_hundred_thousand_snapshots_are_paired_at_once() {
    let entries = numbered((0..100_000u32).map(|i| {
        let (table, turn) = (i % 20_000, i / 20_000);
        let name = format!("t{table}");
        let oid = if turn < 3 { table } else { table + 20_000 };
        let snapshot = if turn == 2 { dropped(oid, &name) } else { source(oid, &name) };
        with_identity(&format!("r{}", table % 5_000), snapshot)
    }));
    let found = pairs(&entries);
    let count = |link| found.iter().filter(|p| p.pairing == Pairing::Relation && p.link == link).count();
    assert_eq!((count(Link::Same), count(Link::Recreated)), (60_000, 20_000));
}

// Classes.

fn column(name: &str) -> Column {
    Column { attnum: 3, name: name.into() }
}

fn added(name: &str) -> Change {
    Change::ColumnAdded { column: column(name) }
}

fn lost(name: &str) -> Change {
    Change::ColumnDropped { column: column(name) }
}

fn replaced() -> Change {
    Change::RelationReplaced { before: 1, after: 2 }
}

fn metadata() -> BTreeSet<String> {
    ["_ingested_at", "_source_url"].map(String::from).into()
}

fn judged(before: &Entry, after: &Entry, link: Link, changes: &[Change]) -> Judgement {
    classify(changes, &Context { before, after, link, metadata: &metadata() })
}

/// By an ordinary command of somebody.
fn commanded(changes: &[Change]) -> Judgement {
    let [before, after] = change(1, "t", "t");
    judged(&before, &after, Link::Same, changes)
}

#[test]
fn the_class_is_by_the_worst_change() {
    let renamed = Change::IndexRenamed { before: "a".into(), after: "b".into() };
    let owner = Change::OwnerChanged { before: "a".into(), after: "b".into() };
    for (changes, class, severity) in [
        (vec![], Class::Unchanged, Severity::None),
        (vec![renamed], Class::Unchanged, Severity::None),
        (vec![added("x")], Class::Additive, Severity::Additive),
        (vec![added("x"), owner.clone()], Class::Compatible, Severity::Compatible),
        (vec![added("x"), lost("y"), owner], Class::Destructive, Severity::Destructive),
        (vec![Change::Other { what: "?".into() }], Class::Destructive, Severity::Destructive),
    ] {
        let judgement = commanded(&changes);
        assert_eq!((judgement.class, judgement.severity), (class, severity), "{changes:?}");
    }
}

#[test]
fn another_relation_is_judged_by_its_shape() {
    let (before, after) = (dropped(1, "t"), source(2, "t"));
    for link in [Link::Recreated, Link::Restored, Link::Another] {
        let same = judged(&before, &after, link, &[replaced()]);
        assert_eq!((same.class, same.severity), (Class::Recreated, Severity::None), "{link:?}");
        let other = judged(&before, &after, link, &[replaced(), added("x")]);
        assert_eq!((other.class, other.severity), (Class::Reshaped, Severity::Additive), "{link:?}");
    }
    let swapped = judged(&before, &after, Link::Swapped, &[replaced(), lost("x")]);
    assert_eq!((swapped.class, swapped.severity), (Class::SourceSwapped, Severity::Destructive));
    let moved = Change::TableRenamed { before: "r_v1".into(), after: "r_v2".into() };
    let version = judged(&before, &after, Link::Another, &[replaced(), moved]);
    assert_eq!(version.class, Class::Recreated, "what another table is called is no difference of shape");
}

#[test]
fn capture_triggers_that_come_and_go_with_stream_tables_are_no_drift() {
    let capture = |turn| Change::CaptureChanged {
        member: 1,
        relation: "shop.t".into(),
        trigger: "pgtrickle_capture_1".into(),
        turn,
        before: Some('A'),
        after: Some('D'),
    };
    let unseen = |turn| judged(&source(1, "t"), &baseline(1, "t"), Link::Same, &[capture(turn)]).class;
    assert_eq!(unseen(Turn::Added), Class::Unchanged);
    assert_eq!(unseen(Turn::Removed), Class::Unchanged);
    assert_eq!(unseen(Turn::Changed), Class::Destructive, "switched off, whoever did it");
    assert_eq!(commanded(&[capture(Turn::Removed)]).class, Class::Destructive, "somebody's DROP TRIGGER");
}

// Gates.

const COMMAND_GATES: [Gate; 3] = [Gate::OwnDdl, Gate::HeapSwap, Gate::ExtensionScript];

#[test]
fn the_gates_of_a_command_abstain_where_no_command_is_known() {
    let [before, after] = change(1, "t", "t");
    let known = judged(&before, &after, Link::Same, &[lost("x")]);
    assert_eq!((known.gate, known.abstained), (None, vec![]));
    for (earlier, later, link) in [
        (source(1, "t"), before.clone(), Link::Same),
        (source(1, "t"), dropped(1, "t"), Link::Same),
        (source(1, "t"), baseline(1, "t"), Link::Same),
        (dropped(1, "t"), source(2, "t"), Link::Recreated),
        (source(1, "t"), source(2, "t"), Link::Another),
        (source(1, "t"), after.clone(), Link::Swapped),
    ] {
        // What the later row says of its own command is not about this difference.
        let later = Entry { own: true, in_extension: true, command_tag: Some("CLUSTER".into()), ..later };
        let judgement = judged(&earlier, &later, link, &[lost("x")]);
        assert_eq!(judgement.abstained, COMMAND_GATES, "{earlier:?} to {later:?}");
        assert_eq!(judgement.gate, None);
    }
}

#[test]
fn without_a_difference_there_is_nothing_to_exonerate() {
    let judgement = judged(&source(1, "t"), &baseline(1, "t"), Link::Same, &[]);
    assert_eq!((judgement.class, judgement.abstained, judgement.gate), (Class::Unchanged, vec![], None));
}

#[test]
fn each_gate_exonerates_its_own() {
    let [before, after] = change(1, "t", "t");
    let gates = |after: &Entry, changes: &[Change]| judged(&before, after, Link::Same, changes).exonerated_by;
    assert_eq!(gates(&Entry { own: true, ..after.clone() }, &[lost("x")]), [Gate::OwnDdl]);
    assert_eq!(gates(&Entry { in_extension: true, ..after.clone() }, &[lost("x")]), [Gate::ExtensionScript]);
    let collected = [added("_ingested_at"), lost("_source_url")];
    assert_eq!(gates(&after, &collected), [Gate::CollectorMetadata]);
    let all = Entry { own: true, in_extension: true, ..after.clone() };
    let judgement = judged(&before, &all, Link::Same, &collected);
    assert_eq!(judgement.gate, Some(Gate::OwnDdl), "the first");
    assert_eq!(judgement.exonerated_by, [Gate::OwnDdl, Gate::ExtensionScript, Gate::CollectorMetadata]);
}

#[test]
fn temporary_needs_both_and_never_abstains() {
    let temporary = |e: Entry| Entry { persistence: 't', ..e };
    let (a, b) = (source(1, "pg_temp_3.t"), baseline(1, "pg_temp_3.t"));
    let both = judged(&temporary(a.clone()), &temporary(b.clone()), Link::Same, &[lost("x")]);
    assert_eq!(both.gate, Some(Gate::Temporary));
    for one in [
        judged(&temporary(a.clone()), &b, Link::Same, &[lost("x")]),
        judged(&a, &temporary(b.clone()), Link::Same, &[lost("x")]),
    ] {
        assert_eq!(one.gate, None, "a permanent table was lost, or came");
        assert!(!one.abstained.contains(&Gate::Temporary));
    }
}

#[test]
fn a_heap_swap_explains_what_storage_shows_and_nothing_else() {
    let [before, after] = change(1, "t", "t");
    let tagged = |tag: Option<&str>| Entry { command_tag: tag.map(String::from), ..after.clone() };
    let rewritten = Change::ColumnRewritten { column: column("x") };
    let by = |tag, changes: &[Change]| judged(&before, &tagged(tag), Link::Same, changes);
    for tag in ["CLUSTER", "VACUUM", "REINDEX", "REFRESH MATERIALIZED VIEW"] {
        assert_eq!(by(Some(tag), std::slice::from_ref(&rewritten)).gate, Some(Gate::HeapSwap), "{tag}");
        assert_eq!(by(Some(tag), &[rewritten.clone(), lost("y")]).gate, None, "{tag}");
    }
    assert_eq!(by(Some("ALTER TABLE"), std::slice::from_ref(&rewritten)).gate, None);
    assert_eq!(by(None, &[rewritten]).abstained, [Gate::HeapSwap], "which command it was is not known");
}

#[test]
fn collector_columns_exonerate_only_themselves() {
    let ingested = || added("_ingested_at");
    let renamed = |before: &str, after: &str| Change::ColumnRenamed {
        attnum: 3,
        before: before.into(),
        after: after.into(),
    };
    let key = Change::PrimaryKeyAdded { columns: vec!["_ingested_at".into()] };
    for (changes, gate) in [
        (vec![ingested()], Some(Gate::CollectorMetadata)),
        (vec![renamed("_source_url", "_ingested_at")], Some(Gate::CollectorMetadata)),
        (vec![renamed("_source_url", "url")], None),
        (vec![renamed("url", "_source_url")], None),
        (vec![ingested(), added("x")], None),
        (vec![ingested(), key], None),
    ] {
        assert_eq!(commanded(&changes).gate, gate, "{changes:?}");
    }
    let (before, after) = (dropped(1, "t"), source(2, "t"));
    let by = |link, changes: &[Change]| judged(&before, &after, link, changes);
    let reshaped = by(Link::Recreated, &[replaced(), ingested()]);
    assert_eq!((reshaped.class, reshaped.gate), (Class::Reshaped, Some(Gate::CollectorMetadata)));
    assert_eq!(by(Link::Recreated, &[replaced()]).gate, None, "it is about no column");
    assert_eq!(by(Link::Swapped, &[replaced(), ingested()]).gate, None, "a swap is a swap");
}

#[test]
fn words_are_stable() {
    use Class::*;
    let classes = [Unchanged, Additive, Compatible, Destructive, Recreated, Reshaped, SourceSwapped];
    assert_eq!(
        classes.map(Class::word),
        ["unchanged", "additive", "compatible", "destructive", "recreated", "reshaped", "source_swapped"]
    );
    assert_eq!(
        Gate::ALL.map(Gate::word),
        ["own_ddl", "temporary", "heap_swap", "extension_script", "collector_metadata"]
    );
    let links = [Link::Same, Link::Recreated, Link::Swapped, Link::Restored, Link::Another];
    assert_eq!(links.map(Link::word), ["same", "recreated", "swapped", "restored", "another"]);
    assert_eq!([Pairing::Relation, Pairing::Identity].map(Pairing::word), ["relation", "identity"]);
}

// The difference by link.

#[test]
fn the_link_chooses_what_is_compared() {
    let before = src();
    let mut after = before.clone();
    assert_eq!(Link::Same.diff(&before, &after, None), []);
    // The oid of a dropped table, given out again.
    assert_eq!(
        Link::Recreated.diff(&before, &after, None),
        [Change::RelationReplaced { before: before.oid, after: after.oid }]
    );
    // Another database numbers its types and collations anew; so does a schema that is made again with its types.
    for column in &mut after.columns {
        column.type_oid += 1_000_000;
        column.collation_oid += 1_000_000;
    }
    assert_eq!(
        Link::Restored.diff(&before, &after, None).len(),
        1,
        "{:?}",
        Link::Restored.diff(&before, &after, None)
    );
    assert_eq!(Link::Recreated.diff(&before, &after, None).len(), 1);
    assert!(Link::Same.diff(&before, &after, None).len() > 1, "of one table another oid is another type");
    after.columns[1].type_name = "shop.other".into();
    after.columns[2].collation_name = Some("pg_catalog.C".into());
    let changes = Link::Restored.diff(&before, &after, None);
    let words: Vec<&str> = changes.iter().map(Change::word).collect();
    assert_eq!(words, ["relation_replaced", "type_changed", "collation_changed"]);
}

// The sums.

fn account(entries: &[Entry], changes: impl Fn(&Pair) -> Vec<Change>) -> Vec<Tally> {
    let mut account = Account::default();
    for pair in pairs(entries) {
        let changes = changes(&pair);
        let (before, after) = (&entries[pair.before], &entries[pair.after]);
        let judgement = judged(before, after, pair.link, &changes);
        account.add(entries, &pair, &changes, &judgement);
    }
    account.tallies()
}

#[test]
fn pairs_are_summed_up_by_how_they_were_judged() {
    let changes = (0..50).flat_map(|i| {
        let name = format!("t{}", i % 2);
        change(100 + i % 2, &name, &name)
    });
    let entries = numbered(changes.chain([source(7, "u"), dropped(7, "u"), source(8, "u")]));
    let tallies = account(&entries, |pair| {
        let after = &entries[pair.after];
        match (after.moment, pair.link) {
            (Moment::After, _) => vec![added("y"), lost("x"), added("z")],
            (_, Link::Recreated) => vec![replaced()],
            _ => vec![],
        }
    });
    let rows: Vec<_> = tallies.iter().map(|t| (t.class, t.gate, t.pairs, t.relations)).collect();
    assert_eq!(
        rows,
        [(Class::Unchanged, None, 49, 3), (Class::Destructive, None, 50, 2), (Class::Recreated, None, 1, 1),]
    );
    assert!(tallies[0].examples.is_empty(), "nothing happened there");
    assert_eq!(tallies[1].examples.len(), MAX_EXAMPLES);
    assert_eq!(tallies[1].examples[0], "shop.t0: snapshot 1 to 2: column \"x\" was dropped; 2 more");
    assert_eq!(tallies[1].abstained, BTreeSet::new());
    assert_eq!(
        tallies[2].examples,
        ["shop.u: snapshot 102 to 103: made again as another table: no change of shape"]
    );
    assert_eq!(tallies[2].abstained, BTreeSet::from(COMMAND_GATES));
}

#[test]
fn one_gate_more_is_another_row() {
    let [b1, a1] = change(1, "t", "t");
    let [b2, a2] = change(2, "u", "u");
    let entries = numbered([b1, Entry { own: true, ..a1 }, b2, a2]);
    let tallies = account(&entries, |_| vec![lost("x")]);
    let gates: Vec<_> = tallies.iter().map(|t| (t.gate, t.pairs)).collect();
    assert_eq!(gates, [(None, 1), (Some(Gate::OwnDdl), 1)]);
}
