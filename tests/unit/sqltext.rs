//! Quoting: what is quoted must come back as it was, read by the rules of PostgreSQL's lexer.

use pgtrickle::sqltext::{display_ident, dollar_quoted, ident, literal, qualified};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Texts that break careless quoting.
const NASTY: &[&str] = &[
    "",
    "a",
    "Id",
    "select",
    "a b",
    "a.b",
    "a\"b",
    "\"",
    "\"\"",
    "'",
    "''",
    "it's",
    "\\",
    "\\'",
    "a\\",
    "\\\\",
    "$",
    "$$",
    "$q$",
    "a$q",
    "$$ and $q",
    "$$ $q$ $qq",
    "q$",
    "Größe",
    "\u{feff}bom",
    "日本語",
    "new\nline",
    "tab\t",
    "E'x'",
    "--",
    "/*",
];

/// PostgreSQL's reading of a quoted identifier.
fn read_ident(text: &str) -> Option<String> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    read_doubled(inner, '"', false)
}

/// PostgreSQL's reading of a string literal, whatever `standard_conforming_strings` is.
fn read_literal(text: &str) -> Option<String> {
    let (escapes, text) = match text.strip_prefix('E') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let inner = text.strip_prefix('\'')?.strip_suffix('\'')?;
    if !escapes && inner.contains('\\') {
        return None;
    }
    read_doubled(inner, '\'', escapes)
}

fn read_doubled(inner: &str, quote: char, escapes: bool) -> Option<String> {
    let mut out = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        let doubled = c == quote || (escapes && c == '\\');
        if doubled && chars.next() != Some(c) {
            return None;
        }
        out.push(c);
    }
    Some(out)
}

/// PostgreSQL's reading of a dollar-quoted string: it ends at the first occurrence of its tag.
fn read_dollar(text: &str) -> Option<String> {
    let end = text.strip_prefix('$')?.find('$')? + 2;
    let (tag, rest) = text.split_at(end);
    let close = rest.find(tag)?;
    (close + tag.len() == rest.len()).then(|| rest[..close].to_string())
}

#[test]
fn what_is_quoted_comes_back() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let random = (0..5_000).map(|_| {
        let len = rng.random_range(0..9);
        (0..len).map(|_| ['$', 'q', '\'', '"', '\\', 'a', 'ä'][rng.random_range(0..7)]).collect::<String>()
    });
    let texts: Vec<String> = NASTY.iter().map(|t| t.to_string()).chain(random).collect();
    for text in &texts {
        assert_eq!(read_ident(&ident(text)).as_ref(), Some(text), "{}", ident(text));
        assert_eq!(read_literal(&literal(text)).as_ref(), Some(text), "{}", literal(text));
        assert_eq!(read_dollar(&dollar_quoted(text)).as_ref(), Some(text), "{}", dollar_quoted(text));
    }
}

#[test]
fn forms() {
    assert_eq!(qualified("a.b", "c\"d"), "\"a.b\".\"c\"\"d\"");
    assert_eq!(literal("it's"), "'it''s'");
    assert_eq!(literal("a\\b"), "E'a\\\\b'");
    assert_eq!(dollar_quoted("SELECT 1"), "$$SELECT 1$$");
    assert_eq!(dollar_quoted("SELECT $$x$$"), "$q$SELECT $$x$$$q$");
}

#[test]
fn names_for_people() {
    for (name, shown) in [
        ("orders", "orders"),
        ("_x1", "_x1"),
        ("Orders", "\"Orders\""),
        ("1st", "\"1st\""),
        ("a b", "\"a b\""),
        ("größe", "\"größe\""),
        ("", "\"\""),
        ("a\"b", "\"a\"\"b\""),
    ] {
        assert_eq!(display_ident(name), shown);
    }
}
