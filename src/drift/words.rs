//! What the history of a relation tells people, sentence by sentence, and one line of it as an example.
#![forbid(unsafe_code)]

use crate::drift::account::{Entry, Link, Moment, Pair, Why};
use crate::drift::change::Change;
use crate::sqltext::{display, visible_ident};

/// Most characters of an example.
pub const MAX_EXAMPLE_CHARS: usize = 300;

/// What led from an earlier snapshot to one.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    /// The earlier one.
    pub before: &'a Entry,
    /// How the relations stand to each other.
    pub link: Link,
    /// What the later relation was seen as before, where it took over a name.
    pub came_from: Option<&'a Entry>,
    /// What the earlier relation was seen as after it had lost the name.
    pub went_to: Option<&'a Entry>,
    /// What differs.
    pub changes: &'a [Change],
}

impl<'a> Step<'a> {
    /// The step of a pair of `entries`.
    pub fn of(entries: &'a [Entry], pair: &Pair, changes: &'a [Change]) -> Step<'a> {
        let entry = |at: usize| &entries[at];
        Step {
            before: entry(pair.before),
            link: pair.link,
            came_from: pair.came_from.map(entry),
            went_to: pair.went_to.map(entry),
            changes,
        }
    }

    fn shape(&self, entry: &'a Entry) -> impl Iterator<Item = &'a Change> {
        let link = self.link;
        self.changes.iter().filter(move |c| entry.tells(link, c))
    }
}

/// The sentences of one snapshot, without full stops: what it was taken for, and one for each change. It has one step to
/// it for each pair that it is the later one of: most have one, the first one of all has none, and one that took over a
/// name may have two.
pub fn sentences(entry: &Entry, steps: &[Step]) -> Vec<String> {
    let mut told: Vec<String> = occasion(entry).into_iter().collect();
    for step in steps {
        told.extend(relations(entry, step));
        told.extend(step.shape(entry).map(|change| told_of(entry, step, change)));
    }
    if told.is_empty() {
        told.push(format!("no change of shape by {}", command(entry)));
    }
    told
}

/// `shop.orders: snapshot 12 to 15: column "x" was dropped; 2 more`, the worst change first.
pub fn example(entry: &Entry, step: &Step) -> String {
    let mut told = relations(entry, step);
    let mut changes: Vec<&Change> = step.shape(entry).collect();
    // Stable: of equally bad ones the first.
    changes.sort_by_key(|c| std::cmp::Reverse(c.severity()));
    told.extend(changes.first().map(|c| in_words(entry, step.link, c, step.changes)));
    if changes.len() > 1 {
        told.push(format!("{} more", grouped(changes.len() as i64 - 1)));
    }
    let name = display(&entry.schema, &entry.table);
    let text = format!("{name}: snapshot {} to {}: {}", step.before.id, entry.id, told.join("; "));
    match text.char_indices().nth(MAX_EXAMPLE_CHARS - 1) {
        Some((end, _)) if text.chars().count() > MAX_EXAMPLE_CHARS => format!("{}…", &text[..end]),
        _ => text,
    }
}

/// What the snapshot was taken for; nothing for one that a command left behind, whose changes say it.
fn occasion(entry: &Entry) -> Option<String> {
    let size = size(entry);
    Some(match (entry.why, entry.moment) {
        (Why::Source, _) => format!("became a source {size}"),
        (Why::Drop, _) => format!("dropped {size}"),
        (Why::Baseline, _) => format!("seen by the baseline pass {size}"),
        (Why::Change, Moment::After) => return None,
        (Why::Change, Moment::Before) => format!("stood before {} {size}", command(entry)),
        (Why::Change, Moment::Standing) => format!("found {size}"),
    })
}

/// How another relation came to be here; nothing for the same one.
fn relations(entry: &Entry, step: &Step) -> Vec<String> {
    let earlier = renamed(step.before, entry);
    let text = match step.link {
        Link::Same => return Vec::new(),
        Link::Swapped => return swapped(entry, step),
        Link::Recreated => "made again as another table".to_string(),
        Link::Restored => "restored or copied from another database".to_string(),
        Link::Another if earlier.is_some() => "another table".to_string(),
        Link::Another => {
            "another table of that name; how the earlier one lost it was not recorded".to_string()
        }
    };
    let text = text + &earlier.map_or(String::new(), |name| format!(" after {name}"));
    let same = step.shape(entry).next().is_none();
    vec![if same { format!("{text}: no change of shape") } else { text }]
}

fn swapped(entry: &Entry, step: &Step) -> Vec<String> {
    let came = step.came_from.and_then(|e| renamed(e, entry));
    let went = step.went_to.and_then(|e| renamed(e, step.before));
    let which = came.map_or(String::new(), |name| format!(", which was {name} before"));
    let first = format!("the name went to another table{which} (source_swapped)");
    let second = went.map(|name| format!("the table that had the name was {name} after that"));
    std::iter::once(first).chain(second).collect()
}

/// The name of one snapshot, where another one has another.
fn renamed(this: &Entry, other: &Entry) -> Option<String> {
    let differs = (&this.schema, &this.table) != (&other.schema, &other.table);
    differs.then(|| display(&this.schema, &this.table))
}

fn told_of(entry: &Entry, step: &Step, change: &Change) -> String {
    let text = in_words(entry, step.link, change, step.changes);
    match step.link {
        Link::Same if entry.made_by_command() => text,
        // It is the first snapshot that shows it, so no event told of it.
        Link::Same => format!("{text}, by a command that was not recorded"),
        Link::Recreated | Link::Restored | Link::Another => text,
        Link::Swapped => format!("compared with the table that had the name: {text}"),
    }
}

/// One of the changes that led to a snapshot, in words.
pub fn in_words(entry: &Entry, link: Link, change: &Change, among: &[Change]) -> String {
    if link == Link::Same && !entry.made_by_command() {
        unwitnessed(change, among)
    } else {
        change.describe()
    }
}

/// One of several changes in words, where no command is known to have made them. ALTER TYPE leaves the same traces on the
/// columns that follow the altered one (in PostgreSQL 15) as on that one itself.
pub fn unwitnessed(change: &Change, among: &[Change]) -> String {
    let Change::ColumnRewritten { column } = change else { return change.describe() };
    let altered = |other: &Change| match other {
        Change::ColumnTypeChanged { column: earlier, .. }
        | Change::ColumnTypmodChanged { column: earlier, .. }
        | Change::ColumnDimensionsChanged { column: earlier, .. }
        | Change::ColumnTypeKindChanged { column: earlier, .. }
        | Change::ColumnCollationChanged { column: earlier, .. }
        | Change::ColumnRewritten { column: earlier } => earlier.attnum < column.attnum,
        _ => false,
    };
    if among.iter().any(altered) {
        format!("the values of column {} may have been computed anew as well", visible_ident(&column.name))
    } else {
        change.describe()
    }
}

fn command(entry: &Entry) -> &str {
    entry.command_tag.as_deref().unwrap_or("an unknown command")
}

/// `with 5 columns, about 1,000 rows`. A view has none of its own.
fn size(entry: &Entry) -> String {
    let columns = match entry.columns {
        1 => "1 column".to_string(),
        n => format!("{} columns", grouped(n as i64)),
    };
    let rows = match (entry.kind, entry.rows) {
        ('v', _) => return format!("with {columns}"),
        (_, None) => "never analysed".to_string(),
        (_, Some(1)) => "about 1 row".to_string(),
        (_, Some(n)) => format!("about {} rows", grouped(n)),
    };
    format!("with {columns}, {rows}")
}

/// Digits in groups of three: `1,000`.
fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::from(if number < 0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
