//! What a value looks like, whatever the type of its column: a number, a moment, a length of time, an identifier, text.
//!
//! Types change when a table is created again (`integer` comes back as `text`); the digits do not. A value that has a
//! place on a line is given that place; all others are text.
#![forbid(unsafe_code)]

/// The line that values lie on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Numbers, money, booleans.
    Number,
    /// Dates and timestamps: seconds since year 0.
    Moment,
    /// Times of day and intervals: seconds.
    Span,
    /// 32 hexadecimal digits.
    Identifier,
    /// By the order of folded characters.
    Text,
}

/// How a boolean is written: SQL's words, and what else files use.
const FALSE_WORDS: [&str; 4] = ["f", "false", "no", "n"];
const TRUE_WORDS: [&str; 4] = ["t", "true", "yes", "y"];

/// Beyond this, places are the same: sums and differences of places stay finite.
const FAR: f64 = 1e300;

/// Scale and place of a value; none for text.
pub fn look(value: &str) -> Option<(Scale, f64)> {
    let value = value.trim_ascii();
    let first = *value.as_bytes().first()?;
    let (scale, place) = match first {
        b'0'..=b'9' | b'+' | b'-' | b'.' | b'$' => measured(value)?,
        _ => identifier(value).map(|place| (Scale::Identifier, place)).or_else(|| endless(value))?,
    };
    // What is not a number has no place; infinities have the last one.
    (!place.is_nan()).then(|| (scale, place.clamp(-FAR, FAR)))
}

/// A value that begins as a number does.
fn measured(value: &str) -> Option<(Scale, f64)> {
    let bytes = value.as_bytes();
    if let Some(place) = identifier(value) {
        return Some((Scale::Identifier, place));
    }
    if let Some(place) = plain(bytes) {
        return Some((Scale::Number, place));
    }
    if let Some(place) = moment(value) {
        return Some((Scale::Moment, place));
    }
    let numeric = bytes.iter().all(|b| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'));
    if numeric && let Ok(number) = value.parse() {
        return Some((Scale::Number, number));
    }
    slashed(value)
        .map(|place| (Scale::Moment, place))
        .or_else(|| money(value).map(|place| (Scale::Number, place)))
        .or_else(|| span(value).map(|place| (Scale::Span, place)))
}

/// Digits and maybe a fraction, fast: 15 digits are exact, and more are left to `str::parse`.
fn plain(bytes: &[u8]) -> Option<f64> {
    let (negative, digits) = match bytes.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, bytes),
    };
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    let (mut whole, mut scale, mut fraction, mut count) = (0u64, 1u64, false, 0);
    for byte in digits {
        match byte {
            b'0'..=b'9' => {
                whole = whole * 10 + u64::from(byte - b'0');
                scale *= if fraction { 10 } else { 1 };
                count += 1;
            }
            b'.' if !fraction => fraction = true,
            _ => return None,
        }
    }
    // Division of two exact numbers gives what `str::parse` gives.
    let place = whole as f64 / scale as f64;
    (1..=15).contains(&count).then_some(if negative { -place } else { place })
}

/// True and false as 1 and 0. Not part of [`look`]: `F` and `N` alone are codes as often as answers.
pub fn truth(value: &str) -> Option<f64> {
    let value = value.trim_ascii();
    if value.len() > 5 {
        return None;
    }
    let is = |words: &[&str]| words.iter().any(|word| value.eq_ignore_ascii_case(word));
    if is(&TRUE_WORDS) { Some(1.0) } else { is(&FALSE_WORDS).then_some(0.0) }
}

/// The ends of time. Numbers have such ends too, but `Infinity` alone does not make a column one of numbers.
fn endless(value: &str) -> Option<(Scale, f64)> {
    (value == "infinity").then_some((Scale::Moment, FAR))
}

/// 32 hexadecimal digits, with the dashes of a uuid or without any; its place is that of the first 13.
fn identifier(value: &str) -> Option<f64> {
    let dashed = match value.len() {
        36 => true,
        32 => false,
        _ => return None,
    };
    let mut place = 0u64;
    let mut digits = 0;
    for (at, byte) in value.bytes().enumerate() {
        if dashed && matches!(at, 8 | 13 | 18 | 23) {
            if byte != b'-' {
                return None;
            }
            continue;
        }
        let digit = char::from(byte).to_digit(16)?;
        if digits < 13 {
            place = place * 16 + u64::from(digit);
        }
        digits += 1;
    }
    // 52 bits: exact.
    (digits == 32).then_some(place as f64)
}

/// `-$1,234.50`, `1.234,50`, `12,5`, `7 %`: grouped digits, a decimal comma, a sign of what is counted.
fn money(value: &str) -> Option<f64> {
    let (sign, rest) = match value.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, value),
    };
    let digits = rest.strip_prefix('$').unwrap_or(rest);
    let digits = digits.strip_suffix('%').unwrap_or(digits).trim();
    if !digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b',' | b'.')) {
        return None;
    }
    let decimal = decimal_mark(digits);
    let plain = digits.char_indices().filter_map(|(at, c)| match c {
        ',' | '.' => (Some(at) == decimal).then_some('.'),
        digit => Some(digit),
    });
    plain.collect::<String>().parse::<f64>().ok().map(|number| sign * number)
}

/// Where whole digits end: at the last mark, unless that one parts groups of three.
fn decimal_mark(digits: &str) -> Option<usize> {
    let last = digits.rfind([',', '.'])?;
    let mark = &digits[last..=last];
    let groups = digits.matches(mark).count() > 1
        || (mark == "," && digits.len() - last == 4 && !digits.contains('.'));
    (!groups).then_some(last)
}

/// `29/02/2024`, `2/29/2024`: a date with slashes, day first where both orders are possible.
fn slashed(value: &str) -> Option<f64> {
    let (first, rest) = digits(value.as_bytes(), 1, 2)?;
    let (second, rest) = digits(rest.strip_prefix(b"/")?, 1, 2)?;
    let (year, rest) = digits(rest.strip_prefix(b"/")?, 4, 4)?;
    let (day, month) = if second > 12 { (second, first) } else { (first, second) };
    let seconds = match rest.first() {
        None => 0.0,
        Some(b' ') => clock(&value[value.len() - rest.len() + 1..])?,
        Some(_) => return None,
    };
    dated(month, day).then(|| days(year, month, day) as f64 * 86_400.0 + seconds)
}

fn dated(month: i64, day: i64) -> bool {
    (1..=12).contains(&month) && (1..=31).contains(&day)
}

/// `2024-02-29`, `2024-02-29 12:30:00.5+02`, `0044-03-15 BC`: seconds.
fn moment(value: &str) -> Option<f64> {
    let (year, rest) = digits(value.as_bytes(), 4, 6)?;
    let (month, rest) = digits(rest.strip_prefix(b"-")?, 2, 2)?;
    let (day, rest) = digits(rest.strip_prefix(b"-")?, 2, 2)?;
    if !dated(month, day) {
        return None;
    }
    let rest = &value[value.len() - rest.len()..];
    let (rest, year) = match rest.strip_suffix(" BC") {
        Some(rest) => (rest, 1 - year),
        None => (rest, year),
    };
    let seconds = match rest.as_bytes().first() {
        None => 0.0,
        Some(b' ' | b'T') => clock(&rest[1..])?,
        Some(_) => return None,
    };
    Some(days(year, month, day) as f64 * 86_400.0 + seconds)
}

/// The number that begins here, of so many digits, and what follows.
fn digits(bytes: &[u8], least: usize, most: usize) -> Option<(i64, &[u8])> {
    let count = bytes.iter().take_while(|b| b.is_ascii_digit()).count();
    if !(least..=most).contains(&count) {
        return None;
    }
    let (digits, rest) = bytes.split_at(count);
    Some((digits.iter().fold(0, |sum, b| sum * 10 + i64::from(b - b'0')), rest))
}

/// Days since year 0, as the calendar counts: leap days are where they are.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years that begin in March, so that the leap day is the last one.
    let (y, m) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    365 * y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + (m * 306 + 5) / 10 + day
}

/// `12:30`, `12:30:00.5`, with an offset in hours (`+02`, `-03:30`) or `Z`: seconds in UTC.
fn clock(value: &str) -> Option<f64> {
    let value = value.strip_suffix('Z').unwrap_or(value);
    match value.char_indices().skip(1).find(|(_, c)| matches!(c, '+' | '-')) {
        None => sexagesimal(value),
        Some((at, sign)) => {
            let offset = sexagesimal(&value[at + 1..])?;
            let local = sexagesimal(&value[..at])?;
            Some(if sign == '+' { local - offset } else { local + offset })
        }
    }
}

/// Hours, and maybe minutes and seconds, parted by colons: seconds.
fn sexagesimal(value: &str) -> Option<f64> {
    let (mut seconds, mut unit) = (0.0, 3600.0);
    for part in value.split(':') {
        seconds += number(part)? * unit;
        unit /= 60.0;
    }
    (unit >= 1.0 / 60.0).then_some(seconds)
}

/// A time of day, or an interval as PostgreSQL prints it: `1 year -2 mons +3 days 04:05:06`.
fn span(value: &str) -> Option<f64> {
    let mut words = value.split(' ').filter(|word| !word.is_empty());
    let mut seconds = 0.0;
    while let Some(word) = words.next() {
        if word.contains(':') {
            seconds += match word.strip_prefix('-') {
                Some(rest) => -clock(rest)?,
                None => clock(word.strip_prefix('+').unwrap_or(word))?,
            };
            continue;
        }
        let count: f64 = word.parse().ok()?;
        let days = match words.next()? {
            "year" | "years" => 365.25,
            "mon" | "mons" => 30.0,
            "day" | "days" => 1.0,
            _ => return None,
        };
        seconds += count * days * 86_400.0;
    }
    Some(seconds)
}

/// Digits, and maybe a fraction.
fn number(text: &str) -> Option<f64> {
    if text.starts_with('-') { None } else { plain(text.as_bytes()) }
}
