//! The one place that quotes identifiers and literals. Always quotes, so no PostgreSQL function is needed.
#![forbid(unsafe_code)]

mod literals;
mod names;
pub mod rows;

pub use literals::without_literals;
pub use names::{name_digest, names_in};

/// `name` as a quoted identifier: `"a""b"`.
pub fn ident(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `schema.name`, both quoted.
pub fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", ident(schema), ident(name))
}

/// `text` as a string literal that means the same whatever `standard_conforming_strings` is.
pub fn literal(text: &str) -> String {
    let doubled = text.replace('\'', "''");
    if doubled.contains('\\') {
        format!("E'{}'", doubled.replace('\\', "\\\\"))
    } else {
        format!("'{doubled}'")
    }
}

/// `text` in dollar quotes whose tag does not occur in it; for queries shown in hints.
pub fn dollar_quoted(text: &str) -> String {
    let mut tag = String::new();
    while format!("{text}${tag}$").find(&format!("${tag}$")) != Some(text.len()) {
        tag.push('q');
    }
    format!("${tag}${text}${tag}$")
}

/// An identifier as people read it: quoted only where PostgreSQL would need it for case or characters.
pub fn display_ident(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain { name.to_string() } else { visible_ident(name) }
}

/// `schema.name` as people read it, which is also how it can be typed. Inside a literal: [`regclass_literal`].
pub fn display(schema: &str, name: &str) -> String {
    format!("{}.{}", display_ident(schema), display_ident(name))
}

/// A quoted identifier in which every character can be seen: [`ident`], or `U&"\FEFFid"` where `name` has hidden ones.
/// For people: they can read it and type it. SQL that we run has [`ident`].
pub fn visible_ident(name: &str) -> String {
    if !name.contains(is_hidden) {
        return ident(name);
    }
    let escaped = name.chars().fold(String::new(), |mut text, c| {
        match c {
            '"' => text.push_str("\"\""),
            '\\' => text.push_str("\\\\"),
            c if !is_hidden(c) => text.push(c),
            c if u32::from(c) <= 0xFFFF => text.push_str(&format!("\\{:04X}", u32::from(c))),
            c => text.push_str(&format!("\\+{:06X}", u32::from(c))),
        }
        text
    });
    format!("U&\"{escaped}\"")
}

/// A name from [`display`] as a literal that `::regclass` takes. What reads the text there knows no `U&""`, so the
/// escapes move from the identifier to the literal: `U&'shop."\FEFFid"'`.
pub fn regclass_literal(display: &str) -> String {
    let (mut text, mut escaped, mut rest) = (String::new(), false, display);
    while !rest.is_empty() {
        let unicode = rest.starts_with("U&\"");
        escaped |= unicode;
        let part = &rest[if unicode { 2 } else { 0 }..];
        let end = part_end(part);
        text.push_str(&if unicode { part[..end].to_string() } else { part[..end].replace('\\', "\\\\") });
        rest = &part[end..];
    }
    if escaped { format!("U&'{}'", text.replace('\'', "''")) } else { literal(display) }
}

/// Where the first part of a dotted name ends, its dot included.
fn part_end(name: &str) -> usize {
    let mut quoted = false;
    for (at, c) in name.char_indices() {
        quoted ^= c == '"';
        if c == '.' && !quoted {
            return at + 1;
        }
    }
    name.len()
}

/// Whether a character can't be seen or passes for another one: controls, blanks other than the space, zero-width and
/// bidirectional marks, byte order mark, fillers, variation selectors, tags. Letters of other scripts that look like Latin
/// ones are not among them: names of people who write those scripts must stay readable.
pub fn is_hidden(c: char) -> bool {
    c.is_control() || (c.is_whitespace() && c != ' ') || FORMAT.iter().any(|range| range.contains(&c))
}

/// Unicode's format and default ignorable characters, and the blank Braille pattern.
const FORMAT: &[std::ops::RangeInclusive<char>] = &[
    '\u{ad}'..='\u{ad}',
    '\u{34f}'..='\u{34f}',
    '\u{600}'..='\u{605}',
    '\u{61c}'..='\u{61c}',
    '\u{6dd}'..='\u{6dd}',
    '\u{70f}'..='\u{70f}',
    '\u{890}'..='\u{891}',
    '\u{8e2}'..='\u{8e2}',
    '\u{115f}'..='\u{1160}',
    '\u{17b4}'..='\u{17b5}',
    '\u{180b}'..='\u{180f}',
    '\u{200b}'..='\u{200f}',
    '\u{202a}'..='\u{202e}',
    '\u{2060}'..='\u{206f}',
    '\u{2800}'..='\u{2800}',
    '\u{3164}'..='\u{3164}',
    '\u{fe00}'..='\u{fe0f}',
    '\u{feff}'..='\u{feff}',
    '\u{ffa0}'..='\u{ffa0}',
    '\u{fff0}'..='\u{fffb}',
    '\u{110bd}'..='\u{110bd}',
    '\u{110cd}'..='\u{110cd}',
    '\u{13430}'..='\u{1343f}',
    '\u{1bca0}'..='\u{1bca3}',
    '\u{1d173}'..='\u{1d17a}',
    '\u{e0000}'..='\u{e0fff}',
];
