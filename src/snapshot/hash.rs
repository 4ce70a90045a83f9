//! `schema_hash`: one text for a set of column names, whatever their order, without the columns that a collector adds.
#![forbid(unsafe_code)]

use sha2::{Digest, Sha256};
use std::collections::BTreeSet;

/// Version tag in front of a hash; another way of hashing gets another.
const VERSION: &str = "v1";

/// `v1:` and SHA-256 in hex over the names, each preceded by its length in bytes: joined names would let the columns
/// `a|b` and the two columns `a`, `b` collide.
pub fn schema_hash<'a>(names: impl IntoIterator<Item = &'a str>, excluded: &BTreeSet<String>) -> String {
    let names: BTreeSet<&str> = names.into_iter().filter(|name| !excluded.contains(*name)).collect();
    let mut hash = Sha256::new();
    hash.update(b"pgtrickle schema 1\n");
    for name in names {
        hash.update((name.len() as u64).to_be_bytes());
        hash.update(name.as_bytes());
    }
    let hex: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
    format!("{VERSION}:{hex}")
}

/// A digest of what defines an index or a constraint, part by part; stored expressions without the places in their
/// statements where they stood.
pub fn definition(parts: &[Option<String>]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        let part = part.as_deref().map(without_locations);
        hash.update(part.as_ref().map_or(u64::MAX, |p| p.len() as u64).to_be_bytes());
        hash.update(part.unwrap_or_default().as_bytes());
    }
    hash.finalize().iter().take(8).map(|b| format!("{b:02x}")).collect()
}

/// A stored expression in PostgreSQL's node text, without `:location` and the like.
pub fn without_locations(nodes: &str) -> String {
    // A space in a value is written with a backslash before it, so these are field names.
    const MARKS: [&str; 3] = [" :location ", " :stmt_location ", " :stmt_len "];
    let mut shown = String::with_capacity(nodes.len());
    let mut rest = nodes;
    while let Some(at) = rest.find(" :") {
        let Some(mark) = MARKS.iter().find(|mark| rest[at..].starts_with(**mark)) else {
            shown.push_str(&rest[..at + 2]);
            rest = &rest[at + 2..];
            continue;
        };
        shown.push_str(&rest[..at]);
        rest = rest[at + mark.len()..].trim_start_matches(|c: char| c == '-' || c.is_ascii_digit());
    }
    shown + rest
}

/// Reads a list of identifiers as PostgreSQL reads `search_path`: commas between, quoted names as they are, others in
/// lower case. None when it is no such list.
pub fn identifiers(list: &str) -> Option<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let mut rest = list.trim_start();
    if rest.is_empty() {
        return Some(names);
    }
    loop {
        let (name, after) =
            if let Some(quoted) = rest.strip_prefix('"') { quoted_name(quoted)? } else { plain_name(rest) };
        if name.is_empty() {
            return None;
        }
        names.insert(name);
        rest = after.trim_start();
        match rest.strip_prefix(',') {
            Some(more) => rest = more.trim_start(),
            None if rest.is_empty() => return Some(names),
            None => return None,
        }
    }
}

/// A name up to its closing quote, and what follows; a doubled quote is one.
fn quoted_name(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let end = rest.find('"')?;
        name.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(more) => {
                name.push('"');
                rest = more;
            }
            None => return Some((name, rest)),
        }
    }
}

fn plain_name(text: &str) -> (String, &str) {
    let end = text.find(|c: char| c == ',' || c == '"' || c.is_whitespace()).unwrap_or(text.len());
    (text[..end].to_ascii_lowercase(), &text[end..])
}
