//! The share of values up to each place on a line, and how far two such curves are apart (Kolmogorov-Smirnov).
#![forbid(unsafe_code)]

/// Where a value lies on its line.
pub trait Place: Copy + PartialOrd {
    /// Least and greatest share of values up to a place between two neighbouring knots.
    fn between(left: &Knot<Self>, right: &Knot<Self>, place: Self) -> (f32, f32)
    where
        Self: Sized;
    /// The place as a number, in the same order; different places may get the same number.
    fn rough(self) -> f64;
}

impl Place for f64 {
    /// Distances mean something: between two quantiles values are spread evenly.
    fn between(left: &Knot<f64>, right: &Knot<f64>, place: f64) -> (f32, f32) {
        let width = right.place - left.place;
        let part = if width > 0.0 { ((place - left.place) / width) as f32 } else { 0.5 };
        let share = left.upto + (right.below - left.upto) * part;
        (share, share)
    }

    fn rough(self) -> f64 {
        self
    }
}

/// The first 32 bytes of a folded text.
pub type Letters = (u128, u128);

impl Place for Letters {
    /// Only the order means something: any share that the neighbours allow.
    fn between(left: &Knot<Letters>, right: &Knot<Letters>, _: Letters) -> (f32, f32) {
        (left.upto, right.below)
    }

    fn rough(self) -> f64 {
        self.0 as f64
    }
}

/// A place where the curve is known: the shares of values before it, and up to and with it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Knot<P> {
    /// The place.
    pub place: P,
    /// Share of values before it.
    pub below: f32,
    /// Share of values up to and with it.
    pub upto: f32,
}

/// Curve of values of which each of `atoms` holds the share that goes with it, and `quantiles` part the share `spread`
/// evenly. Neither needs to be in order. Shares are made to add up to 1.
pub fn curve<P: Place>(atoms: &mut [(P, f32)], quantiles: &mut [P], spread: f32) -> Vec<Knot<P>> {
    let order = |a: &P, b: &P| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal);
    atoms.sort_unstable_by(|a, b| order(&a.0, &b.0));
    quantiles.sort_unstable_by(order);
    let spread = if quantiles.is_empty() { 0.0 } else { spread };
    let total = spread + atoms.iter().map(|a| a.1).sum::<f32>();
    if total.is_nan() || total <= 0.0 {
        return Vec::new();
    }
    let quantile_knots = steps(quantiles, spread / total);
    let mut knots = Vec::with_capacity(quantile_knots.len() + atoms.len());
    let (mut q, mut sum) = (0, 0.0);
    for &(place, share) in atoms.iter() {
        while q < quantile_knots.len() && quantile_knots[q].place < place {
            knots.push(raised(quantile_knots[q], sum));
            q += 1;
        }
        let share = share / total;
        let mut knot = match quantile_knots.get(q) {
            Some(same) if same.place == place => {
                q += 1;
                *same
            }
            _ => at(&quantile_knots, q, place, spread / total),
        };
        knot = raised(knot, sum);
        knot.upto += share;
        sum += share;
        push(&mut knots, knot);
    }
    knots.extend(quantile_knots[q..].iter().map(|knot| raised(*knot, sum)));
    knots
}

/// Knots of sorted quantiles alone. A place that comes twice holds what lies between.
fn steps<P: Place>(quantiles: &[P], spread: f32) -> Vec<Knot<P>> {
    let last = quantiles.len().saturating_sub(1);
    let mut knots: Vec<Knot<P>> = Vec::with_capacity(quantiles.len());
    for (i, &place) in quantiles.iter().enumerate() {
        // One quantile alone is a value that all have.
        let (below, upto) = match last {
            0 => (0.0, spread),
            _ => (spread * i as f32 / last as f32, spread * i as f32 / last as f32),
        };
        push(&mut knots, Knot { place, below, upto });
    }
    knots
}

fn push<P: Place>(knots: &mut Vec<Knot<P>>, knot: Knot<P>) {
    match knots.last_mut() {
        Some(last) if last.place == knot.place => last.upto = knot.upto,
        _ => knots.push(knot),
    }
}

fn raised<P>(knot: Knot<P>, by: f32) -> Knot<P> {
    Knot { place: knot.place, below: knot.below + by, upto: knot.upto + by }
}

/// A knot between quantile `next` and the one before it.
fn at<P: Place>(quantiles: &[Knot<P>], next: usize, place: P, spread: f32) -> Knot<P> {
    let share = match (next.checked_sub(1).and_then(|left| quantiles.get(left)), quantiles.get(next)) {
        (Some(left), Some(right)) => {
            let (least, greatest) = P::between(left, right, place);
            (least + greatest) / 2.0
        }
        (None, _) => 0.0,
        (Some(_), None) => spread,
    };
    Knot { place, below: share, upto: share }
}

/// The greatest difference of two curves, 0 to 1; where a curve is only known within limits, the least that it can be.
/// Beyond `enough` it is not looked for further.
pub fn distance<P: Place>(a: &[Knot<P>], b: &[Knot<P>], enough: f32) -> f32 {
    if a.is_empty() || b.is_empty() {
        return if a.is_empty() && b.is_empty() { 0.0 } else { 1.0 };
    }
    let (mut i, mut j, mut most) = (0, 0, 0.0f32);
    while (i < a.len() || j < b.len()) && most <= enough {
        let place = match (a.get(i), b.get(j)) {
            (Some(x), Some(y)) => {
                if x.place <= y.place {
                    x.place
                } else {
                    y.place
                }
            }
            (Some(x), None) => x.place,
            (None, Some(y)) => y.place,
            (None, None) => break,
        };
        let (below_a, upto_a) = values(a, &mut i, place);
        let (below_b, upto_b) = values(b, &mut j, place);
        most = most.max(gap(below_a, below_b)).max(gap(upto_a, upto_b));
    }
    most
}

/// Limits of the shares before `place` and up to it; moves on when `next` is at that place.
fn values<P: Place>(knots: &[Knot<P>], next: &mut usize, place: P) -> ((f32, f32), (f32, f32)) {
    match knots.get(*next) {
        Some(knot) if knot.place <= place => {
            *next += 1;
            ((knot.below, knot.below), (knot.upto, knot.upto))
        }
        Some(right) => {
            let both = match next.checked_sub(1).map(|left| &knots[left]) {
                // The ends are the least and the greatest of a sample, where chance is greatest.
                Some(left) if *next == 1 || *next + 1 == knots.len() => (left.upto, right.below),
                Some(left) => P::between(left, right, place),
                None => (0.0, 0.0),
            };
            (both, both)
        }
        None => ((1.0, 1.0), (1.0, 1.0)),
    }
}

fn gap(a: (f32, f32), b: (f32, f32)) -> f32 {
    (a.0 - b.1).max(b.0 - a.1).max(0.0)
}

/// Places that show cheaply that two curves are far apart.
#[derive(Debug, Clone, Copy)]
pub struct Marks {
    /// First places up to which one, two, three and four quarters of the values lie, at least.
    reached: [f64; 4],
    /// Last places up to which none, one, two and three quarters of the values lie, at most.
    left: [f64; 4],
}

impl Marks {
    /// Marks that show nothing.
    pub const NONE: Marks = Marks { reached: [f64::INFINITY; 4], left: [f64::NEG_INFINITY; 4] };

    /// Marks of a curve.
    pub fn of<P: Place>(knots: &[Knot<P>]) -> Marks {
        let mut marks = Marks::NONE;
        let mut quarters = 0;
        for knot in knots {
            while quarters < 4 && knot.upto >= 0.25 * (quarters + 1) as f32 - ROUNDING {
                marks.reached[quarters] = knot.place.rough();
                quarters += 1;
            }
            for (quarters, left) in marks.left.iter_mut().enumerate() {
                if knot.upto <= 0.25 * quarters as f32 + ROUNDING {
                    *left = knot.place.rough();
                }
            }
        }
        marks
    }

    /// At some place the curves are a quarter apart, but for rounding.
    pub fn far(&self, other: &Marks) -> bool {
        let before = |a: &[f64; 4], b: &[f64; 4]| a.iter().zip(b).fold(false, |any, (a, b)| any | (a < b));
        before(&self.reached, &other.left) | before(&other.reached, &self.left)
    }
}

/// Sums of shares differ by this when they should not.
const ROUNDING: f32 = 1e-4;
