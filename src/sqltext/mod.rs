//! The one place that quotes identifiers and literals. Always quotes, so no PostgreSQL function is needed.
#![forbid(unsafe_code)]

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
    if plain { name.to_string() } else { ident(name) }
}

/// `schema.name` as people read it, which is also how it can be typed.
pub fn display(schema: &str, name: &str) -> String {
    format!("{}.{}", display_ident(schema), display_ident(name))
}
