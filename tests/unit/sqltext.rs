//! Quoting: what is quoted must come back as it was, read by the rules of PostgreSQL's lexer.

use pgtrickle::sqltext::without_literals;
use pgtrickle::sqltext::{
    display, display_ident, dollar_quoted, ident, is_hidden, literal, qualified, regclass_literal,
    visible_ident,
};
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

/// PostgreSQL's reading of the escapes in `U&"..."` and `U&'...'`.
fn read_unicode(text: &str, quote: char) -> Option<String> {
    let inner = text.strip_prefix("U&")?.strip_prefix(quote)?.strip_suffix(quote)?;
    let doubled = read_doubled(inner, quote, false)?;
    let (mut out, mut rest) = (String::new(), doubled.as_str());
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        if c != '\\' {
            out.push(c);
        } else if let Some(after) = rest.strip_prefix('\\') {
            out.push('\\');
            rest = after;
        } else {
            let (skip, digits) = if rest.starts_with('+') { (1, 6) } else { (0, 4) };
            let code = u32::from_str_radix(rest.get(skip..skip + digits)?, 16).ok()?;
            out.push(char::from_u32(code)?);
            rest = &rest[skip + digits..];
        }
    }
    Some(out)
}

/// Characters that can't be seen, or pass for another.
const HIDDEN: &[char] = &[
    '\u{feff}',
    '\u{200b}',
    '\u{200c}',
    '\u{200d}',
    '\u{2060}',
    '\u{200e}',
    '\u{200f}',
    '\u{202a}',
    '\u{202e}',
    '\u{2066}',
    '\u{2069}',
    '\u{61c}',
    '\u{a0}',
    '\u{202f}',
    '\u{3000}',
    '\u{2028}',
    '\u{ad}',
    '\u{1}',
    '\u{7f}',
    '\u{85}',
    '\t',
    '\n',
    '\r',
    '\u{fe0f}',
    '\u{e0041}',
    '\u{3164}',
    '\u{2800}',
];

#[test]
fn what_hides_in_a_name_can_be_seen_and_typed() {
    assert_eq!(display_ident("\u{feff}id"), "U&\"\\FEFFid\"");
    assert_eq!(visible_ident("id"), "\"id\"");
    assert_eq!(visible_ident("a\"\\\u{200b}"), "U&\"a\"\"\\\\\\200B\"");
    assert_eq!(visible_ident("x\u{e0041}"), "U&\"x\\+0E0041\"");
    for hidden in HIDDEN {
        for name in
            [format!("{hidden}"), format!("a{hidden}\"b\\"), format!("größe{hidden}"), format!("U&{hidden}")]
        {
            let shown = visible_ident(&name);
            assert!(!shown.contains(is_hidden), "{shown:?}");
            assert_eq!(read_unicode(&shown, '"').as_deref(), Some(name.as_str()), "{shown}");
            assert_eq!(display_ident(&name), shown);
            // SQL that runs is as it was.
            assert_eq!(read_ident(&ident(&name)).as_deref(), Some(name.as_str()));
        }
    }
    for plain in ["größe", "日本語", "a b", "naïve", "таблица", "a\\b", "😀"] {
        assert_eq!(visible_ident(plain), ident(plain));
    }
}

/// What `::regclass` reads: names in double quotes, no `U&`.
fn read_regclass(mut text: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    loop {
        let end = match text.strip_prefix('"') {
            None => text.find('.').unwrap_or(text.len()),
            Some(inner) => {
                let mut end = 1;
                let mut chars = inner.char_indices().peekable();
                loop {
                    let (at, c) = chars.next()?;
                    if c == '"' && chars.next_if(|(_, next)| *next == '"').is_none() {
                        end += at + 1;
                        break end;
                    }
                }
            }
        };
        let part = &text[..end];
        parts.push(if part.starts_with('"') { read_ident(part)? } else { part.to_string() });
        match text[end..].strip_prefix('.') {
            Some(rest) => text = rest,
            None => return text[end..].is_empty().then_some(parts),
        }
    }
}

#[test]
fn a_name_in_a_literal_is_what_regclass_reads() {
    assert_eq!(regclass_literal("shop.orders"), "'shop.orders'");
    assert_eq!(regclass_literal(&display("shop", "\u{feff}id")), "U&'shop.\"\\FEFFid\"'");
    let parts = ["shop", "\u{feff}id", "it's", "a\\b", "a.b", "\"", "U&\"x\"", ".\u{a0}'\"\\", "A"];
    for schema in parts {
        for name in parts {
            let written = regclass_literal(&display(schema, name));
            assert!(!written.contains(is_hidden), "{written:?}");
            let text =
                if written.starts_with("U&") { read_unicode(&written, '\'') } else { read_literal(&written) };
            let read = text.as_deref().and_then(read_regclass);
            assert_eq!(read, Some(vec![schema.to_string(), name.to_string()]), "{written}");
        }
    }
}

#[test]
fn statements_without_their_data() {
    for (statement, expected) in [
        ("DROP TABLE t", "DROP TABLE t"),
        (
            "INSERT INTO t2 VALUES ('it''s', 1.5e3, -7, 0x1F, E'a\\'b', $$x$$); DROP TABLE t",
            "INSERT INTO t2 VALUES (?, ?, -?, ?, E?, ?); DROP TABLE t",
        ),
        ("SELECT \"a'1\"\"b\", c1, $1 FROM t_2", "SELECT \"a'1\"\"b\", c1, $? FROM t_2"),
        ("x = $tag$ secret $$ 'q' $tag$ y", "x = ? y"),
        ("a -- secret 'x\nb /* s /* t */ u */ c", "a  \nb   c"),
        ("name'secret", "name?"),
        ("'unclosed secret", "?"),
        ("E'\\", "E?"),
        ("$not", "$not"),
        ("/* unclosed secret", " "),
        ("B'101' X'1F' U&'d\\0061t' größe 'ß' 12ß", "B? X? U&? größe ? ?"),
        ("\"unclosed name", "\"unclosed name"),
        ("", ""),
    ] {
        assert_eq!(without_literals(statement, false), expected, "{statement}");
    }
    assert_eq!(without_literals(r"SELECT 'it\'s secret', 1", true), "SELECT ?, ?");
}
