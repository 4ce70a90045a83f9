//! What real DDL comes out as. Expectations hold on every server version alike.

use crate::shapes::{command, part, recorded, src};
use pgtrickle::drift::{
    Change, DRIFT_VERSION, Drift, Severity, Usage, diff, diff_retyped, judge, mark_created,
};
use pgtrickle::model::Verdict;
use pgtrickle::snapshot::shape::TableShape;
use std::collections::BTreeSet;

/// Command; changes in words; verdict for one that uses `id` and `used` (or all columns of another table); verdict for
/// one that uses only `fast` (or no column).
type Case = (&'static str, &'static [&'static str], &'static str, &'static str);

const CASES: &[Case] = &[
    ("retype to same type", &[], "nothing", "nothing"),
    (
        "retype using",
        &["the values of column \"used\" were computed anew by ALTER TYPE ... USING"],
        "COLUMN_TYPE_CHANGED",
        "nothing",
    ),
    (
        "retype used",
        &["column \"used\" changed its type from integer to bigint"],
        "COLUMN_TYPE_CHANGED",
        "nothing",
    ),
    ("retype free", &["column \"late\" changed its type from integer to bigint"], "nothing", "nothing"),
    (
        "retype early free",
        &["column \"free\" changed its type from varchar(20) to text"],
        "nothing",
        "nothing",
    ),
    (
        "typmod",
        &["column \"price\" changed its type from numeric(10,2) to numeric(12,4)"],
        "COLUMN_TYPE_CHANGED",
        "nothing",
    ),
    ("widen", &["column \"free\" changed its type from varchar(20) to varchar(40)"], "nothing", "nothing"),
    (
        "collation",
        &["column \"free\" changed its collation from pg_catalog.default to pg_catalog.C"],
        "nothing",
        "nothing",
    ),
    (
        "dimensions",
        &["column \"tags\" changed its array dimensions from 1 to 2"],
        "COLUMN_TYPE_CHANGED",
        "nothing",
    ),
    (
        "type renamed",
        &["the type or collation of column \"feeling\" was renamed from t.mood to t.temper"],
        "in place",
        "nothing",
    ),
    ("add column", &["column \"extra\" was added"], "nothing", "nothing"),
    ("add column rewriting", &["column \"extra\" was added"], "nothing", "nothing"),
    ("drop free", &["column \"free\" was dropped"], "nothing", "nothing"),
    (
        "drop used",
        &["column \"used\" was dropped", "index \"src_used\" was removed"],
        "COLUMN_DROPPED",
        "nothing",
    ),
    (
        "drop and re-add",
        &["column \"used\" was dropped", "column \"used\" was added", "index \"src_used\" was removed"],
        "COLUMN_DROPPED",
        "nothing",
    ),
    ("rename column", &["column \"used\" was renamed to \"utilized\""], "in place", "in place"),
    (
        "swap names",
        &["column \"used\" was renamed to \"late\"", "column \"late\" was renamed to \"used\""],
        "in place",
        "in place",
    ),
    ("rename table", &["the table was renamed from \"src\" to \"Source\""], "in place", "in place"),
    ("move schema", &["its schema changed from \"t\" to \"t2\""], "in place", "in place"),
    ("rename schema", &["its schema changed from \"t\" to \"t3\""], "in place", "in place"),
    ("owner", &["its owner changed from \"postgres\" to \"pg_monitor\""], "in place", "in place"),
    (
        "not null",
        &["column \"used\" now allows NULL", "column \"late\" no longer allows NULL"],
        "nothing",
        "nothing",
    ),
    (
        "default",
        &[
            "the default of column \"used\" changed from none to 7",
            "the default of column \"fast\" changed from 5 to none",
        ],
        "nothing",
        "nothing",
    ),
    ("statistics and storage", &[], "nothing", "nothing"),
    ("comment", &[], "nothing", "nothing"),
    ("check", &["constraint \"positive\" was added"], "nothing", "nothing"),
    ("foreign key", &["constraint \"self\" was added"], "nothing", "nothing"),
    ("create index", &["index \"src_late\" was added"], "nothing", "nothing"),
    ("drop index", &["index \"src_used\" was removed"], "nothing", "nothing"),
    ("rename index", &["index \"src_used\" was renamed to \"src_utilized\""], "nothing", "nothing"),
    ("reindex", &[], "nothing", "nothing"),
    (
        "drop key",
        &["the primary key (\"id\") was removed", "index \"src_pkey\" was removed"],
        "KEY_CHANGED",
        "KEY_CHANGED",
    ),
    (
        "change key",
        &["the primary key changed from (\"id\") to (\"id\", \"used\")", "index \"src_pkey\" was changed"],
        "KEY_CHANGED",
        "KEY_CHANGED",
    ),
    (
        "same key again",
        &[
            "constraint \"src_pkey\" was renamed to \"src_key\"",
            "index \"src_key\" was added",
            "index \"src_pkey\" was removed",
        ],
        "nothing",
        "nothing",
    ),
    (
        "add key",
        &["the primary key (\"b\") was added", "index \"plain_pkey\" was added"],
        "nothing",
        "nothing",
    ),
    (
        "identity nothing",
        &["the replica identity DEFAULT was taken away and is NOTHING"],
        "KEY_CHANGED",
        "KEY_CHANGED",
    ),
    ("identity full", &["the replica identity changed from DEFAULT to FULL"], "nothing", "nothing"),
    (
        "identity index",
        &["the replica identity changed from DEFAULT to INDEX \"src_used\""],
        "nothing",
        "nothing",
    ),
    ("drop expression", &["column \"gen\" is no longer generated"], "nothing", "nothing"),
    ("identity column", &["the identity of column \"id\" changed from none to ALWAYS"], "nothing", "nothing"),
    ("create partition", &["partition t.p3 was attached"], "reinitialize", "reinitialize"),
    ("attach partition", &["partition t.p3 was attached"], "reinitialize", "reinitialize"),
    (
        "detach partition",
        &["partition t.p2 was detached or dropped", "partition t.p2a was detached or dropped"],
        "reinitialize",
        "reinitialize",
    ),
    ("drop partition", &["partition t.p1 was detached or dropped"], "reinitialize", "reinitialize"),
    (
        "retype partitioned using",
        &["the values of column \"id\" were computed anew by ALTER TYPE ... USING"],
        "COLUMN_TYPE_CHANGED",
        "nothing",
    ),
    (
        "disable on partition",
        &["capture trigger \"pgtrickle_capture\" on t.p1 was set from always to disabled"],
        "reinitialize",
        "reinitialize",
    ),
    ("become partition", &["it became or ceased to be part of other tables"], "nothing", "nothing"),
    ("child added", &["t.kid2 inherits from it now"], "UNCLASSIFIED", "UNCLASSIFIED"),
    ("child removed", &["t.kid no longer inherits from it"], "UNCLASSIFIED", "UNCLASSIFIED"),
    ("row security", &["row security was off and is on"], "reinitialize", "reinitialize"),
    ("policy without row security", &["row security policy \"own\" was added"], "nothing", "nothing"),
    (
        "policy with row security",
        &["row security was off and is on", "row security policy \"own\" was added"],
        "reinitialize",
        "reinitialize",
    ),
    ("force without row security", &["row security was off and is off (to be forced)"], "nothing", "nothing"),
    ("unlogged", &["t.src became unlogged where it was permanent"], "reinitialize", "reinitialize"),
    ("vacuum full", &[], "nothing", "nothing"),
    ("truncate", &[], "nothing", "nothing"),
    ("analyze", &[], "nothing", "nothing"),
    (
        "disable trigger",
        &["capture trigger \"pgtrickle_capture\" on t.src was set from always to disabled"],
        "reinitialize",
        "reinitialize",
    ),
    (
        "enable trigger",
        &["capture trigger \"pgtrickle_capture\" on t.src was set from always to origin"],
        "reinitialize",
        "reinitialize",
    ),
    (
        "drop trigger",
        &["capture trigger \"pgtrickle_capture\" on t.src was removed"],
        "reinitialize",
        "reinitialize",
    ),
    (
        "several",
        &[
            "column \"used\" now allows NULL",
            "column \"free\" was dropped",
            "column \"late\" changed its type from integer to text",
            "column \"extra\" was added",
        ],
        "nothing",
        "nothing",
    ),
];

fn words(changes: &[Change]) -> Vec<String> {
    changes.iter().map(Change::describe).collect()
}

fn verdict_word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Nothing => "nothing",
        Verdict::InPlace => "in place",
        Verdict::Reinitialize { .. } => "reinitialize",
        Verdict::Suspend { reason, .. } => reason.word(),
    }
}

fn users(shape: &TableShape) -> (Usage, Usage) {
    let of = |names: &[&str]| -> BTreeSet<i16> {
        names.iter().filter_map(|n| shape.column_named(n)).map(|c| c.attnum).collect()
    };
    let columns = if shape.name == "src" {
        of(&["id", "used"])
    } else {
        shape.columns.iter().map(|c| c.attnum).collect()
    };
    let usage = |columns| Usage { source: "t.x".into(), columns, capture: true, ..Usage::default() };
    (usage(columns), usage(of(&["fast"])))
}

#[test]
fn every_recorded_command_comes_out_as_listed() {
    for major in [15, 18] {
        let recorded = recorded(major);
        let names: Vec<&str> = recorded.iter().map(|r| r.name.as_str()).collect();
        assert_eq!(names, CASES.iter().map(|c| c.0).collect::<Vec<_>>(), "the lists differ");
        for (r, (name, expected, used, unused)) in recorded.iter().zip(CASES) {
            let changes = diff_retyped(&r.before, &r.after, &r.retyped());
            assert_eq!(words(&changes), *expected, "{name} on PostgreSQL {major}: {}", r.sql);
            let (user, other) = users(&r.before);
            for (usage, expected) in [(user, used), (other, unused)] {
                let verdict = judge(&changes, &usage);
                assert_eq!(verdict_word(&verdict), *expected, "{name} on PostgreSQL {major}: {verdict:?}");
            }
        }
    }
}

#[test]
fn without_knowledge_of_the_command_a_rewrite_is_never_missed_and_evidence_exonerates() {
    let rewritten = |changes: &[Change]| -> Vec<String> {
        let one = |c: &Change| match c {
            Change::ColumnRewritten { column } => Some(column.name.clone()),
            _ => None,
        };
        changes.iter().filter_map(one).collect()
    };
    for major in [15, 18] {
        for r in recorded(major) {
            let (sure, evidence) =
                (diff_retyped(&r.before, &r.after, &r.retyped()), diff(&r.before, &r.after));
            for change in &sure {
                assert!(evidence.contains(change), "{} on {major} lost {change:?}", r.name);
            }
            // What evidence adds is only on PostgreSQL 15, only about rewrites, and never about columns that have a
            // default, an index or a constraint that stayed.
            for change in evidence.iter().filter(|c| !sure.contains(c)) {
                assert!(
                    matches!(change, Change::ColumnRewritten { .. }),
                    "{} on {major}: {change:?}",
                    r.name
                );
                assert_eq!(major, 15, "{}: {change:?}", r.name);
            }
            for name in rewritten(&evidence) {
                assert!(!["gen", "fast"].contains(&name.as_str()), "{} on {major}: {name}", r.name);
            }
        }
    }
}

#[test]
fn i3_identity_is_the_number() {
    let r = command("drop and re-add");
    let numbers: Vec<i16> =
        diff(&r.before, &r.after).iter().filter_map(|c| c.column()).map(|(n, _)| n).collect();
    assert_eq!(numbers, [2, 7], "the same name, another column");
}

#[test]
fn a_renamed_column_in_an_expression_is_no_other_expression() {
    let mut before = src();
    let mut after = before.clone();
    let generated = |s: &mut TableShape, text: Option<&str>| {
        if let Some(expression) = s.columns[4].expression.as_mut() {
            expression.text = text.map(String::from);
        }
    };
    generated(&mut after, Some("(key + 1)"));
    assert_eq!(diff(&before, &after), []);
    generated(&mut before, None);
    assert_eq!(diff(&before, &after), [], "a dropped expression can't be printed any more");
    if let Some(expression) = after.columns[4].expression.as_mut() {
        expression.digest = "1".into();
    }
    assert_eq!(
        words(&diff(&before, &after)),
        ["the generation of column \"gen\" changed from (not printable any more) stored to (key + 1) stored"]
    );
}

#[test]
fn a_partition_created_by_the_command_needs_no_new_contents() {
    let r = command("create partition");
    let (usage, _) = users(&r.before);
    let mut changes = diff(&r.before, &r.after);
    assert!(matches!(judge(&changes, &usage), Verdict::Reinitialize { .. }));
    let created = r.after.members.iter().find(|m| m.name == "p3").expect("p3").oid;
    mark_created(&mut changes, &BTreeSet::from([created]));
    assert_eq!(judge(&changes, &usage), Verdict::InPlace);
    assert_eq!(words(&changes), ["partition t.p3 was created"]);
    mark_created(&mut changes, &BTreeSet::from([created + 1]));
    assert!(matches!(judge(&changes, &usage), Verdict::Reinitialize { .. }), "another one was created");
}

#[test]
fn the_index_of_the_replica_identity_is_dropped() {
    let before = command("identity index").after.clone();
    let mut after = before.clone();
    after.indexes.retain(|i| !i.replica_identity);
    let changes = diff(&before, &after);
    assert_eq!(
        words(&changes),
        [
            "the replica identity INDEX \"src_used\" was taken away and is INDEX (dropped)",
            "index \"src_used\" was removed"
        ]
    );
    assert_eq!(verdict_word(&judge(&changes, &Usage::default())), "KEY_CHANGED");
}

#[test]
fn a_recreated_table_is_paired_by_name() {
    let before = src();
    let mut after = before.clone();
    after.oid += 1;
    after.filenode += 1;
    for (i, column) in after.columns.iter_mut().rev().enumerate() {
        column.attnum = i16::try_from(i).expect("few columns") + 1;
        column.stored.push('x');
    }
    // The same keys under the new numbers: id is column 6, used column 5.
    after.constraints[0].attnums = vec![6];
    after.constraints[0].oid += 100;
    after.indexes[0].attnums = vec![6];
    after.indexes[1].attnums = vec![5, 6];
    for index in &mut after.indexes {
        index.oid += 100;
    }
    let changes = diff(&before, &after);
    assert_eq!(
        words(&changes),
        ["it was replaced by another table of that name", "its columns are in another order"]
    );
    assert_eq!(verdict_word(&judge(&changes, &Usage::default())), "SOURCE_RECREATED");
    after.columns.retain(|c| c.name != "used");
    let rest: Vec<Change> =
        diff(&before, &after).into_iter().filter(|c| !matches!(c, Change::RelationReplaced { .. })).collect();
    let usage = Usage { columns: BTreeSet::from([2]), ..Usage::default() };
    assert_eq!(verdict_word(&judge(&rest, &usage)), "COLUMN_DROPPED", "does it fit? No: {rest:?}");
}

#[test]
fn a_policy_counts_while_row_security_was_or_is_on() {
    let policed = command("policy with row security").after.clone();
    let mut open = policed.clone();
    open.row_security = false;
    open.policies.clear();
    for (before, after) in [(&policed, &open), (&open, &policed)] {
        let changes = diff(before, after);
        let in_force = |c: &Change| matches!(c, Change::PolicyChanged { in_force: true, .. });
        assert!(changes.iter().any(in_force), "{changes:?}");
    }
}

#[test]
fn members_of_the_tree() {
    let before = part();
    let mut after = before.clone();
    after.members[0].name = "P one".into();
    after.members[0].persistence = 'u';
    after.members[1].capture.clear();
    after.members[2].kind = 'f';
    assert_eq!(
        words(&diff(&before, &after)),
        [
            "t.p1 was renamed to t.\"P one\"",
            "t.\"P one\" became unlogged where it was permanent",
            "t.p2a takes part in it in another way",
            "capture trigger \"pgtrickle_capture\" on t.p2 was removed",
        ]
    );
}

#[test]
fn the_severity_of_a_command_is_its_worst() {
    let worst = |name: &str| {
        let r = command(name);
        diff_retyped(&r.before, &r.after, &r.retyped()).iter().map(Change::severity).max()
    };
    for (name, severity) in [
        ("comment", None),
        ("rename index", Some(Severity::None)),
        ("policy without row security", Some(Severity::None)),
        ("add column", Some(Severity::Additive)),
        ("create index", Some(Severity::Additive)),
        ("rename column", Some(Severity::Compatible)),
        ("default", Some(Severity::Compatible)),
        ("drop free", Some(Severity::Destructive)),
        ("retype using", Some(Severity::Destructive)),
        ("drop key", Some(Severity::Destructive)),
        ("several", Some(Severity::Destructive)),
    ] {
        assert_eq!(worst(name), severity, "{name}");
    }
}

/// The same table with its tree, made again.
fn made_again(shape: &TableShape) -> TableShape {
    let mut again = shape.clone();
    again.oid += 1000;
    for member in &mut again.members {
        (member.oid, member.parent) = (member.oid + 1000, member.parent + 1000);
    }
    again
}

/// Without the change that says that it is another relation.
fn rest(before: &TableShape, after: &TableShape) -> Vec<String> {
    let changes = diff(before, after);
    assert!(matches!(changes[0], Change::RelationReplaced { .. }), "{changes:?}");
    words(&changes[1..])
}

#[test]
fn partitions_of_two_relations_are_paired_by_name() {
    let before = part();
    let after = made_again(&before);
    assert_eq!(rest(&before, &after), Vec::<String>::new());
    let mut other = after.clone();
    other.members[0].name = "first".into();
    other.members[1].persistence = 'u';
    assert_eq!(
        rest(&before, &other),
        [
            "partition t.first was attached",
            "partition t.p1 was detached or dropped",
            "t.p2 became unlogged where it was permanent",
        ]
    );
    // The same names in another tree: p2a moved from p2 to the top.
    let mut flat = after.clone();
    let (top, sub) = (flat.oid, flat.members.iter().position(|m| m.name == "p2a").expect("p2a"));
    flat.members[sub].parent = top;
    assert_eq!(
        rest(&before, &flat),
        ["partition t.p2a was attached", "partition t.p2a was detached or dropped"]
    );
}

#[test]
fn parents_of_two_relations_are_not_compared_by_oid() {
    let mut before = src();
    before.parents = vec![77];
    before.is_partition = true;
    let mut after = made_again(&before);
    after.parents = vec![88];
    assert_eq!(rest(&before, &after), Vec::<String>::new());
    let part_of = ["it became or ceased to be part of other tables"];
    after.parents.clear();
    after.is_partition = false;
    assert_eq!(rest(&before, &after), part_of);
    after.parents = vec![88, 99];
    after.is_partition = true;
    assert_eq!(rest(&before, &after), part_of);
}

#[test]
fn capture_triggers_are_no_difference_of_two_relations() {
    let before = part();
    let mut after = made_again(&before);
    after.capture.clear();
    after.members.iter_mut().for_each(|m| m.capture.clear());
    assert_eq!(rest(&before, &after), Vec::<String>::new());
}

#[test]
fn another_partition_key_or_kind() {
    let before = part();
    let mut after = before.clone();
    let key = after.partitioning.as_mut().expect("partitioned");
    key.strategy = 'l';
    key.attnums.push(0);
    key.expressions = true;
    let changes = diff(&before, &after);
    assert_eq!(words(&changes), ["its partition key changed from RANGE (at) to LIST (at, (expression))"]);
    assert_eq!(changes[0].word(), "partitioning_changed");
    assert_eq!(changes[0].before_value().as_deref(), Some("RANGE (at)"));
    assert_eq!(changes[0].after_value().as_deref(), Some("LIST (at, (expression))"));
    after.partitioning = None;
    after.kind = 'r';
    let changes = diff(&before, &after);
    assert_eq!(
        words(&changes),
        [
            "it became a table where it was a partitioned table",
            "its partition key changed from RANGE (at) to none",
        ]
    );
    assert_eq!(changes[0].word(), "kind_changed");
    for change in changes {
        assert_eq!(change.severity(), Severity::Destructive);
        assert_eq!(verdict_word(&judge(&[change], &Usage::default())), "UNCLASSIFIED");
    }
}

#[test]
fn another_order_is_seen_though_columns_came_and_went_between() {
    let before = src();
    let order = |names: &[&str]| {
        let mut after = made_again(&before);
        let column = |(name, attnum): (&&str, i16)| {
            let mut column = before.column_named(name).cloned().unwrap_or_else(|| before.columns[3].clone());
            (column.name, column.attnum) = ((*name).into(), attnum);
            column
        };
        after.columns = names.iter().zip(1..).map(column).collect();
        let changes = diff(&before, &after);
        let of_columns = |c: &&Change| ["added", "removed", "reordered"].contains(&c.word());
        changes.iter().filter(of_columns).map(Change::word).collect::<Vec<_>>()
    };
    assert_eq!(order(&["id", "used", "free", "late", "gen", "fast"]), Vec::<&str>::new());
    assert_eq!(order(&["new", "id", "free", "late", "gen", "fast"]), ["added", "removed"]);
    assert_eq!(order(&["new", "free", "id", "late", "gen", "fast"]), ["added", "removed", "reordered"]);
}

/// Each word that schema drift is to be told in, and a command or an edit that brings it about.
#[test]
fn every_word_of_drift_comes_about() {
    let by_command = |name: &str| {
        let r = command(name);
        diff_retyped(&r.before, &r.after, &r.retyped())
    };
    let mut other = made_again(&src());
    let last = other.columns.len() - 1;
    (other.columns[0].attnum, other.columns[last].attnum) = (6, 1);
    for (word, changes) in [
        ("added", by_command("add column")),
        ("removed", by_command("drop free")),
        ("type_changed", by_command("retype used")),
        ("renamed", by_command("rename column")),
        ("renamed", by_command("rename table")),
        ("nullability_changed", by_command("not null")),
        ("default_changed", by_command("default")),
        ("key_changed", by_command("drop key")),
        ("key_changed", by_command("change key")),
        ("generated_changed", by_command("drop expression")),
        ("identity_changed", by_command("identity column")),
        ("collation_changed", by_command("collation")),
        ("reordered", diff(&src(), &other)),
        ("partitioning_changed", by_command("attach partition")),
        ("owner_changed", by_command("owner")),
        ("row_security_changed", by_command("row security")),
    ] {
        assert!(changes.iter().any(|c| c.word() == word), "{word}: {changes:?}");
    }
}

#[test]
fn drift_is_read_as_it_was_written() {
    let r = command("several");
    let drift = Drift::new(diff(&r.before, &r.after));
    assert_eq!((drift.version, drift.severity()), (DRIFT_VERSION, Severity::Destructive));
    let json = drift.to_json().expect("JSON");
    assert!(json.starts_with("{\"version\":1,\"changes\":[{\"change\":\"nullability_changed\""), "{json}");
    assert_eq!(Drift::from_json(&json).expect("a drift"), drift);
    assert_eq!(Drift::new(Vec::new()).severity(), Severity::None);
    for wrong in [
        json.replace("\"version\":1", "\"version\":2"),
        json.replace("nullability_changed", "something_else"),
        "{}".into(),
    ] {
        assert!(Drift::from_json(&wrong).is_err(), "{wrong}");
    }
}
