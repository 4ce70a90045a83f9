//! What a handful of texts is made of: lengths, kinds of characters, neighbours, patterns. Two samples of one column
//! that share no value still agree in these.
#![forbid(unsafe_code)]

/// Counters for pairs of neighbouring characters.
const BUCKETS: usize = 64;
/// Kinds of characters.
const KINDS: usize = 5;

/// Shares are of all characters, weighted by how often the values occur.
#[derive(Debug, Clone, PartialEq)]
pub struct Texture {
    /// Mean length in characters, as logarithm.
    length: f32,
    /// Share of each kind of character: ASCII letters, other letters, digits, spaces, the rest.
    kinds: [f32; KINDS],
    /// Share of letters that are capitals.
    capitals: f32,
    /// Shares of pairs of neighbours, folded; digits are all the same.
    pairs: [f32; BUCKETS],
    /// Shares of patterns such as `a 9-9`, sorted by digest of the pattern.
    patterns: Vec<(u64, f32)>,
    /// Share of the most frequent pattern: near 1 for codes, near 0 for prose.
    pub regular: f32,
    /// How many characters the shares rest on.
    pub characters: f32,
    /// How many values the shares rest on, if all weighed the same.
    pub values: f32,
}

/// How two textures differ; each 0 to 1 but `length`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Difference {
    /// Logarithm of the ratio of mean lengths.
    pub length: f32,
    /// Of the kinds of characters.
    pub kinds: f32,
    /// Of capitals.
    pub capitals: f32,
    /// Of neighbours.
    pub pairs: f32,
    /// Of patterns.
    pub patterns: f32,
}

impl Texture {
    /// Texture of values, each with its weight.
    pub fn of<'v>(values: impl Iterator<Item = (&'v str, f32)>) -> Texture {
        let mut sum = Sum::default();
        for (value, weight) in values {
            sum.add(value.trim_ascii(), weight);
        }
        sum.texture()
    }

    /// How far they are apart.
    pub fn difference(&self, other: &Texture) -> Difference {
        Difference {
            length: (self.length - other.length).abs(),
            kinds: apart(&self.kinds, &other.kinds),
            capitals: (self.capitals - other.capitals).abs(),
            pairs: apart(&self.pairs, &other.pairs),
            patterns: patterns_apart(&self.patterns, &other.patterns),
        }
    }
}

/// Half of the sum of differences: 0 for equal shares, 1 for shares that have nothing in common.
fn apart<const N: usize>(a: &[f32; N], b: &[f32; N]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f32>() / 2.0
}

fn patterns_apart(a: &[(u64, f32)], b: &[(u64, f32)]) -> f32 {
    let (mut i, mut j, mut sum) = (0, 0, 0.0);
    while i < a.len() || j < b.len() {
        let (x, y) = (a.get(i).map_or(u64::MAX, |p| p.0), b.get(j).map_or(u64::MAX, |p| p.0));
        let of_a = if x <= y { a.get(i).map_or(0.0, |p| p.1) } else { 0.0 };
        let of_b = if y <= x { b.get(j).map_or(0.0, |p| p.1) } else { 0.0 };
        sum += (of_a - of_b).abs();
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
    sum / 2.0
}

struct Sum {
    weight: f32,
    squares: f32,
    length: f32,
    kinds: [f32; KINDS],
    capitals: f32,
    pairs: [f32; BUCKETS],
    pair_weight: f32,
    patterns: Vec<(u64, f32)>,
    characters: u32,
}

impl Default for Sum {
    fn default() -> Sum {
        Sum {
            weight: 0.0,
            squares: 0.0,
            length: 0.0,
            kinds: [0.0; KINDS],
            capitals: 0.0,
            pairs: [0.0; BUCKETS],
            pair_weight: 0.0,
            patterns: Vec::new(),
            characters: 0,
        }
    }
}

impl Sum {
    fn add(&mut self, value: &str, weight: f32) {
        let (mut pattern, mut before, mut previous, mut count) =
            (0xcbf2_9ce4_8422_2325u64, KINDS + 1, 0u32, 0u32);
        for c in value.chars() {
            let (kind, capital, folded) = kind(c);
            self.kinds[kind] += weight;
            if capital {
                self.capitals += weight;
            }
            if kind != before {
                // Runs count once. What is neither letter, digit nor space stands for itself.
                let mark = if kind == KINDS - 1 { c as u64 } else { kind as u64 };
                pattern = (pattern ^ mark).wrapping_mul(0x0100_0000_01b3);
                before = kind;
            }
            let pair = (previous.wrapping_mul(0x9e37_79b1) ^ folded).wrapping_mul(0x85eb_ca6b);
            self.pairs[(pair >> 26) as usize % BUCKETS] += weight;
            self.pair_weight += weight;
            previous = folded;
            count += 1;
        }
        self.weight += weight;
        self.squares += weight * weight;
        self.length += weight * count as f32;
        self.characters += count;
        self.patterns.push((pattern, weight));
    }

    fn texture(mut self) -> Texture {
        let part = |of: f32, all: f32| if all > 0.0 { of / all } else { 0.0 };
        let letters = self.kinds[0] + self.kinds[1];
        self.patterns.sort_unstable_by_key(|p| p.0);
        self.patterns.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 += next.1;
            }
            same
        });
        let (weight, all) = (self.weight, self.kinds.iter().sum::<f32>());
        self.patterns.iter_mut().for_each(|p| p.1 = part(p.1, weight));
        Texture {
            length: (part(self.length, weight) + 1.0).ln(),
            kinds: self.kinds.map(|share| part(share, all)),
            capitals: part(self.capitals, letters),
            pairs: self.pairs.map(|share| part(share, self.pair_weight)),
            regular: self.patterns.iter().map(|p| p.1).fold(0.0, f32::max),
            patterns: self.patterns,
            characters: self.characters as f32,
            values: part(weight * weight, self.squares),
        }
    }
}

/// Kind of a character, whether it is a capital letter, and what it counts as among neighbours.
fn kind(c: char) -> (usize, bool, u32) {
    match c {
        'a'..='z' => (0, false, c as u32),
        'A'..='Z' => (0, true, c.to_ascii_lowercase() as u32),
        '0'..='9' => (2, false, '0' as u32),
        ' ' => (3, false, ' ' as u32),
        c if c.is_ascii() => (4, false, c as u32),
        c if c.is_alphabetic() => {
            let folded = c.to_lowercase().next().unwrap_or(c);
            (1, folded != c, folded as u32)
        }
        c if c.is_numeric() => (2, false, '0' as u32),
        c if c.is_whitespace() => (3, false, ' ' as u32),
        c => (4, false, c as u32),
    }
}
