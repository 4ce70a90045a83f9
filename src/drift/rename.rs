//! Which columns of a table that was dropped and created again are probably the same under another name.
//!
//! Only candidates: the relation is a new one, and nothing but values speaks for them.
#![forbid(unsafe_code)]

use crate::drift::similarity::{Features, Sample, likeness};
use std::collections::{BTreeMap, BTreeSet};

/// Likeness from which a column may be another one renamed.
///
/// Chosen by recorded cases (`tests/unit/data/renames.jsonl`, made by `cargo bench --bench renames -- record`): tables
/// of TPC-H and generated ones, each loaded twice in another order and analysed on its own, with columns renamed,
/// retyped, swapped, removed and added, some with 5 % more rows or a day later. The factors of the likeness and this
/// threshold were fitted to the tables of the half `train` (people, products, census, orders, part). There, renamed
/// columns have 0.74 or more and others 0.54 or less; this is the middle. The half `test` shares no table with it
/// (events, tickets, lineitem, customer, supplier, partsupp, shipments, hotels). Its errors led to a few general rules
/// (quantiles in another order are examples; a moment cut to its day), which flatters it a little: shipments and
/// hotels, written last, had one wrong pair and one missed one of 42 at first sight.
///
/// It is not a fine choice: from 0.55 to 0.75 the same pairs are wrong (none in `train`, one in `test`) and 98 % or
/// more of the renamed columns are found in either half. At 0.85 it is 90 %; at 0.45 net prices begin to pass for
/// gross ones.
pub const DEFAULT_THRESHOLD: f64 = 0.65;

/// Pairs whose likeness differs by no more fit equally well: chance moves a likeness by some hundredths from one
/// ANALYZE to the next. In the half `train` no renamed column has a rival within 0.4, so that this costs nothing.
pub const MARGIN: f64 = 0.1;

/// How much better than with its own successor a column must fit with another's to count as exchanged.
pub const EXCHANGE_GAP: f64 = 0.2;

/// Two columns, by number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Match {
    /// Column that disappeared, or whose values now go by another name.
    pub before: i16,
    /// Column that holds its values now.
    pub after: i16,
    /// Their likeness.
    pub similarity: f64,
}

/// What is probably renamed. Both lists are in the order of `before`, then `after`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Renames {
    /// Each is the best match of the other, and no pair fits about as well.
    pub candidates: Vec<Match>,
    /// Pairs that fit, one of whose columns fits about as well with another one.
    pub ambiguous: Vec<Match>,
}

/// Which of the columns that disappeared are which of those that appeared, as far as values show it.
pub fn renames(before: &[Sample], after: &[Sample], threshold: f64) -> Renames {
    let (before, after): (Vec<_>, Vec<_>) = (features(before), features(after));
    settle(fitting(&before, &after, threshold))
}

/// Columns that kept their names and exchanged their values: two, or more in a circle. Each is unlike what had its name
/// before, and like what had another's.
pub fn exchanged(common: &[(Sample, Sample)], threshold: f64) -> Vec<Match> {
    let strangers = common.iter().filter_map(|(before, after)| {
        let (before, after) = (Features::of(before), Features::of(after));
        let own = likeness(&before, &after, 0.0);
        (own < threshold).then_some((own, (before, after)))
    });
    let strangers: Vec<(f64, (Features, Features))> = strangers.collect();
    let number = |column: &Features| column.sample.shape.attnum;
    let worse: BTreeMap<i16, f64> =
        strangers.iter().map(|(own, (before, _))| (number(before), *own)).collect();
    // What goes by the name of a column before, by its number afterwards.
    let name: BTreeMap<i16, i16> = strangers.iter().map(|(_, (b, a))| (number(a), number(b))).collect();
    let (before, after): (Vec<_>, Vec<_>) = strangers.into_iter().map(|(_, pair)| pair).unzip();
    let found = settle(fitting(&before, &after, threshold)).candidates;
    let clear = |m: &&Match| worse.get(&m.before).is_some_and(|own| m.similarity >= own + EXCHANGE_GAP);
    circles(found.iter().filter(clear).copied().collect(), &name)
}

fn features<'a>(samples: &[Sample<'a>]) -> Vec<Features<'a>> {
    samples.iter().map(Features::of).collect()
}

/// All pairs that are alike enough.
fn fitting(before: &[Features], after: &[Features], threshold: f64) -> Vec<Match> {
    let briefs: Vec<_> = after.iter().map(Features::brief).collect();
    let mut found = Vec::new();
    for b in before {
        let brief = b.brief();
        for (_, a) in briefs.iter().zip(after).filter(|(a, _)| !brief.far(a, threshold)) {
            let similarity = likeness(b, a, threshold);
            // Nothing in common is no match at any threshold.
            if similarity >= threshold && similarity > 0.0 {
                let (before, after) = (b.sample.shape.attnum, a.sample.shape.attnum);
                found.push(Match { before, after, similarity });
            }
        }
    }
    found.sort_by_key(|m| (m.before, m.after));
    found
}

/// Parts pairs that are each other's only good match from those that have a rival. A pair that is clearly worse than
/// another one of either of its columns is dropped.
fn settle(fitting: Vec<Match>) -> Renames {
    let (of_before, of_after) = (best(&fitting, |m| m.before), best(&fitting, |m| m.after));
    let below_best = |m: &Match| {
        let best = |of: &BTreeMap<i16, f64>, column| of.get(&column).copied().unwrap_or(m.similarity);
        best(&of_before, m.before).max(best(&of_after, m.after)) - m.similarity
    };
    let near: Vec<Match> = fitting.into_iter().filter(|m| below_best(m) <= MARGIN).collect();
    let (with_before, with_after) = (counts(&near, |m| m.before), counts(&near, |m| m.after));
    let (candidates, ambiguous) = near.into_iter().partition(|m| {
        below_best(m) <= 0.0 && with_before.get(&m.before) == Some(&1) && with_after.get(&m.after) == Some(&1)
    });
    Renames { candidates, ambiguous }
}

fn best(matches: &[Match], column: impl Fn(&Match) -> i16) -> BTreeMap<i16, f64> {
    let mut best = BTreeMap::new();
    for m in matches {
        let of = best.entry(column(m)).or_insert(m.similarity);
        *of = f64::max(*of, m.similarity);
    }
    best
}

fn counts(matches: &[Match], column: impl Fn(&Match) -> i16) -> BTreeMap<i16, usize> {
    let mut counts = BTreeMap::new();
    for m in matches {
        *counts.entry(column(m)).or_insert(0) += 1;
    }
    counts
}

/// Those matches that lead back to where they began; `name` gives the column before that a column after is named like.
fn circles(matches: Vec<Match>, name: &BTreeMap<i16, i16>) -> Vec<Match> {
    let next: BTreeMap<i16, i16> =
        matches.iter().filter_map(|m| Some((m.before, *name.get(&m.after)?))).collect();
    let returns = |start: i16| {
        let mut seen = BTreeSet::new();
        let mut at = start;
        while seen.insert(at) {
            match next.get(&at) {
                Some(there) if *there == start => return at != start,
                Some(there) => at = *there,
                None => return false,
            }
        }
        false
    };
    matches.into_iter().filter(|m| returns(m.before)).collect()
}
