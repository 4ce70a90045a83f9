//! Which names a printed query can possibly use.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

const OPERATOR: &str = "+-*/<>=~!@#%^&|`?";

/// All names that occur in a query as PostgreSQL prints it, keywords among them: of schemas, relations, columns, functions,
/// types and operators, each by itself, as the catalogs have it.
pub fn names_in(query: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut rest = query;
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '\'' => quoted_end(rest, '\''),
            '"' => {
                let end = quoted_end(rest, '"');
                let inner = rest[1..end].strip_suffix('"').unwrap_or(&rest[1..end]);
                names.insert(inner.replace("\"\"", "\""));
                end
            }
            c if is_word(c) => insert_run(&mut names, rest, is_word),
            c if OPERATOR.contains(c) => insert_run(&mut names, rest, |c| OPERATOR.contains(c)),
            c => c.len_utf8(),
        };
        rest = &rest[end..];
    }
    names
}

fn insert_run(names: &mut BTreeSet<String>, text: &str, belongs: impl Fn(char) -> bool) -> usize {
    let end = text.find(|c| !belongs(c)).unwrap_or(text.len());
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        names.insert(text[..end].to_string());
    }
    end
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$' || !c.is_ascii()
}

/// Where a quoted part ends that `text` begins with; doubled quotes stand for one.
fn quoted_end(text: &str, quote: char) -> usize {
    let mut at = 1;
    while let Some(found) = text[at..].find(quote) {
        at += found + 1;
        if !text[at..].starts_with(quote) {
            return at;
        }
        at += 1;
    }
    text.len()
}

/// A number for a name, to look it up by. Two names may share one.
pub fn name_digest(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
