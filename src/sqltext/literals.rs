//! Statements without the data in them.
#![forbid(unsafe_code)]

/// The statement with `?` in the place of each string and number, and without comments. Names and words stay. What is not
/// closed is taken to be data up to the end. `backslash_quotes`: `standard_conforming_strings` is off.
pub fn without_literals(statement: &str, backslash_quotes: bool) -> String {
    let mut shown = String::with_capacity(statement.len());
    let mut rest = statement;
    while let Some(first) = rest.chars().next() {
        let in_word = shown.chars().next_back().is_some_and(is_word);
        let (text, length) = match first {
            '\'' => ("?", quoted(rest, '\'', backslash_quotes || escapes(&shown))),
            '"' => {
                let length = quoted(rest, '"', false);
                (&rest[..length], length)
            }
            '$' if !in_word => match dollar_quoted(rest) {
                Some(length) => ("?", length),
                None => ("$", 1),
            },
            '-' if rest.starts_with("--") => (" ", rest.find('\n').unwrap_or(rest.len())),
            '/' if rest.starts_with("/*") => (" ", comment(rest)),
            '0'..='9' if !in_word => ("?", number(rest)),
            other => (&rest[..other.len_utf8()], other.len_utf8()),
        };
        shown.push_str(text);
        rest = &rest[length..];
    }
    shown
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The string that follows has an E before it: a backslash takes the next character along.
fn escapes(before: &str) -> bool {
    let mut last = before.chars().rev();
    matches!(last.next(), Some('e' | 'E')) && !last.next().is_some_and(is_word)
}

/// Length of a quoted part with both quotes; a doubled quote does not end it.
fn quoted(text: &str, quote: char, escapes: bool) -> usize {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if escapes && c == '\\' {
            chars.next();
        } else if c == quote && chars.next_if(|(_, next)| *next == quote).is_none() {
            return at + c.len_utf8();
        }
    }
    text.len()
}

/// Length of a dollar-quoted string; none when the dollar begins something else.
fn dollar_quoted(text: &str) -> Option<usize> {
    let end = text[1..].find('$')? + 2;
    let tag = &text[..end];
    let name = &tag[1..end - 1];
    let is_tag = name.chars().all(is_word) && !name.starts_with(|c: char| c.is_ascii_digit());
    is_tag.then(|| text[end..].find(tag).map_or(text.len(), |at| end + at + tag.len()))
}

/// Length of a comment, with the comments in it.
fn comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        if text[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if text[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// Length of what begins as a number: with fraction, exponent, and whatever else hangs on to it.
fn number(text: &str) -> usize {
    text.find(|c: char| !(is_word(c) || c == '.')).unwrap_or(text.len())
}
