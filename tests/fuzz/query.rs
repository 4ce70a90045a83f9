//! Random queries over the constructs that are maintained differentially.

use crate::schema::{Column, Ty, ident, literal, value};
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

/// Something that FROM can name: a table, a view or a stream table.
#[derive(Clone, Debug)]
pub struct Relation {
    pub name: String,
    pub cols: Vec<Column>,
    pub rows: f64,
    pub exact: bool,
    /// Indexes of the stream tables that it reads, itself included.
    pub streams: Vec<usize>,
}

/// A query with what is known of its result.
#[derive(Clone, Debug)]
pub struct Query {
    pub sql: String,
    pub cols: Vec<Column>,
    pub rows: f64,
    /// The printed form of every value is determined, not only its equality class: 1.5 and 1.50 are one group, and
    /// which of them represents it is nobody's promise.
    pub exact: bool,
    /// Rows of a free numeric are matched by equality when they are stored, so that 1.5 may stand for 1.50.
    pub loose: bool,
    pub streams: Vec<usize>,
}

/// A column in scope: how to write it, and its type.
type Scope = Vec<(String, Ty)>;

const GROUPABLE: &[Ty] =
    &[Ty::Int, Ty::Int, Ty::Int, Ty::Text, Ty::Text, Ty::Big, Ty::Date, Ty::Stamp, Ty::Fixed, Ty::Bool];
const ANY: &[Ty] = &[
    Ty::Int,
    Ty::Int,
    Ty::Text,
    Ty::Text,
    Ty::Big,
    Ty::Fixed,
    Ty::Free,
    Ty::Float,
    Ty::Date,
    Ty::Stamp,
    Ty::Bool,
];
/// Above this many estimated rows no further input is joined.
const MAX_ROWS: f64 = 1500.0;

pub struct Maker<'a> {
    pub rng: &'a mut ChaCha8Rng,
    pub pool: &'a [Relation],
    alias: usize,
}

struct From {
    sql: String,
    scope: Scope,
    conds: Vec<String>,
    rows: f64,
    exact: bool,
    streams: Vec<usize>,
}

impl<'a> Maker<'a> {
    pub fn new(rng: &'a mut ChaCha8Rng, pool: &'a [Relation]) -> Self {
        Maker { rng, pool, alias: 0 }
    }

    fn chance(&mut self, p: f64) -> bool {
        self.rng.random_bool(p)
    }

    fn pick<'b, T>(&mut self, list: &'b [T]) -> &'b T {
        list.choose(self.rng).expect("not empty")
    }

    /// A query of at most `depth` nested levels.
    pub fn query(&mut self, depth: usize) -> Query {
        match self.rng.random_range(0..100) {
            0..38 => self.select(depth, false),
            38..50 => self.select(depth, true),
            50..86 => self.aggregate(depth),
            _ => self.union(depth),
        }
    }

    fn output_names(&mut self, n: usize) -> Vec<String> {
        let mut taken = Vec::new();
        (0..n).map(|_| crate::schema::fresh_name(self.rng, &mut taken)).collect()
    }

    fn finish(
        &mut self,
        head: &str,
        exprs: &[(String, Ty)],
        tail: &str,
        rows: f64,
        exact: bool,
        streams: Vec<usize>,
    ) -> Query {
        let names = self.output_names(exprs.len());
        let list: Vec<String> =
            exprs.iter().zip(&names).map(|((e, _), n)| format!("{e} AS {}", ident(n))).collect();
        let cols = exprs.iter().zip(names).map(|((_, ty), name)| Column { name, ty: *ty }).collect();
        let loose = exprs.iter().any(|(_, ty)| *ty == Ty::Free);
        Query { sql: format!("{head} {}{tail}", list.join(", ")), cols, rows, exact, loose, streams }
    }

    fn select(&mut self, depth: usize, distinct: bool) -> Query {
        let from = self.from(depth);
        let n = self.rng.random_range(1..5);
        let mut exprs = Vec::new();
        let mut exact = from.exact;
        for _ in 0..n {
            let ty = if distinct { *self.pick(GROUPABLE) } else { self.some_type(&from.scope) };
            if distinct && ty == Ty::Free {
                exact = false;
            }
            let e = self.expr(&from.scope, ty, 2);
            exprs.push((e, ty));
        }
        let head = if distinct { "SELECT DISTINCT" } else { "SELECT" };
        let tail = format!(" FROM {}{}", from.sql, self.filter(&from));
        let rows = if distinct { from.rows.min(80.0) } else { from.rows };
        self.finish(head, &exprs, &tail, rows, exact, from.streams)
    }

    fn aggregate(&mut self, depth: usize) -> Query {
        let from = self.from(depth);
        let mut exact = from.exact;
        let mut groups = Vec::new();
        for _ in 0..*self.pick(&[0, 1, 1, 1, 2, 2]) {
            let ty = if self.chance(0.03) { Ty::Free } else { *self.pick(GROUPABLE) };
            exact &= ty != Ty::Free;
            let d = usize::from(self.chance(0.4));
            let e = self.expr(&from.scope, ty, d);
            groups.push((e, ty));
        }
        let mut exprs = Vec::new();
        for g in &groups {
            if self.chance(0.85) {
                exprs.push(g.clone());
            }
        }
        // With a key that is not shown, two rows may differ in nothing but their print.
        let hidden = exprs.len() < groups.len();
        for _ in 0..self.rng.random_range(1..4) {
            let (a, e) = self.agg(&from.scope);
            exact &= e;
            exprs.push(a);
        }
        if self.chance(0.15) {
            let e = self.expr(&from.scope, Ty::Int, 0);
            exprs.push((format!("(coalesce(sum({e}), 0) * 2 + count(*))"), Ty::Big));
        }
        let at = self.rng.random_range(0..exprs.len());
        exprs.rotate_left(at);
        let mut tail = format!(" FROM {}{}", from.sql, self.filter(&from));
        if !groups.is_empty() {
            let list: Vec<&str> = groups.iter().map(|g| g.0.as_str()).collect();
            tail.push_str(&format!(" GROUP BY {}", list.join(", ")));
        }
        if self.chance(0.3) {
            let having = match self.rng.random_range(0..5) {
                0 => "count(*) > 1".into(),
                1 => format!("sum({}) > 3", self.expr(&from.scope, Ty::Int, 1)),
                2 => format!("min({}) IS NOT NULL", self.expr(&from.scope, Ty::Text, 0)),
                3 => format!("count({}) < count(*)", self.expr(&from.scope, Ty::Int, 0)),
                _ => format!("max({}) >= 3 OR count(*) = 1", self.expr(&from.scope, Ty::Int, 0)),
            };
            tail.push_str(&format!(" HAVING {having}"));
        }
        let rows = if groups.is_empty() { 1.0 } else { from.rows.min(12_f64.powi(groups.len() as i32)) };
        let mut q = self.finish("SELECT", &exprs, &tail, rows, exact, from.streams);
        q.loose &= hidden;
        q
    }

    /// One aggregate call, its type, and whether its printed form is determined.
    fn agg(&mut self, scope: &Scope) -> ((String, Ty), bool) {
        let d = usize::from(self.chance(0.3));
        match self.rng.random_range(0..10) {
            0 | 1 => (("count(*)".into(), Ty::Big), true),
            2 => {
                let ty = *self.pick(ANY);
                ((format!("count({})", self.expr(scope, ty, d)), Ty::Big), true)
            }
            3..=5 => {
                let (arg, out) = *self.pick(&[
                    (Ty::Int, Ty::Big),
                    (Ty::Int, Ty::Big),
                    (Ty::Big, Ty::Free),
                    (Ty::Fixed, Ty::Fixed),
                    (Ty::Free, Ty::Free),
                    (Ty::Float, Ty::Float),
                ]);
                ((format!("sum({})", self.expr(scope, arg, d)), out), true)
            }
            6 | 7 => {
                let (arg, out) = *self.pick(&[
                    (Ty::Int, Ty::Free),
                    (Ty::Big, Ty::Free),
                    (Ty::Fixed, Ty::Free),
                    (Ty::Free, Ty::Free),
                    (Ty::Float, Ty::Free),
                ]);
                // Sums of quarters are exact in any order, sums of their averages are not: those go on as numeric.
                let cast = if arg == Ty::Float { "::numeric" } else { "" };
                ((format!("avg({}){cast}", self.expr(scope, arg, d)), out), true)
            }
            _ => {
                let ty = *self.pick(&[
                    Ty::Int,
                    Ty::Int,
                    Ty::Big,
                    Ty::Fixed,
                    Ty::Free,
                    Ty::Date,
                    Ty::Stamp,
                    Ty::Text,
                    Ty::Float,
                ]);
                let f = *self.pick(&["min", "max"]);
                ((format!("{f}({})", self.expr(scope, ty, d)), ty), ty != Ty::Free)
            }
        }
    }

    fn union(&mut self, depth: usize) -> Query {
        let n = self.rng.random_range(1..4);
        let types: Vec<Ty> = (0..n).map(|_| *self.pick(ANY)).collect();
        let names = self.output_names(n);
        let mut parts = Vec::new();
        let mut rows = 0.0;
        let mut exact = true;
        let mut streams = Vec::new();
        for _ in 0..self.rng.random_range(2..4) {
            let from = self.from(depth.saturating_sub(1));
            let list: Vec<String> = types
                .iter()
                .zip(&names)
                .map(|(ty, n)| {
                    let e = self.expr(&from.scope, *ty, 1);
                    format!("CAST({e} AS {}) AS {}", ty.cast(), ident(n))
                })
                .collect();
            parts.push(format!("SELECT {} FROM {}{}", list.join(", "), from.sql, self.filter(&from)));
            rows += from.rows;
            exact &= from.exact;
            streams.extend(from.streams);
        }
        let loose = types.iter().any(|ty| matches!(ty, Ty::Free | Ty::Fixed));
        let cols = names.into_iter().zip(&types).map(|(name, ty)| Column { name, ty: *ty }).collect();
        Query { sql: parts.join(" UNION ALL "), cols, rows, exact, loose, streams }
    }

    fn from(&mut self, depth: usize) -> From {
        let wanted = *self.pick(&[1, 1, 1, 2, 2, 2, 3]);
        let mut from = From {
            sql: String::new(),
            scope: Vec::new(),
            conds: Vec::new(),
            rows: 1.0,
            exact: true,
            streams: Vec::new(),
        };
        let mut last: Option<Relation> = None;
        for i in 0..wanted {
            let mut nested = None;
            if depth > 0 && self.chance(0.4) {
                nested = Some(self.query(depth - 1));
            }
            let (text, cols, rows, exact, streams) = match nested {
                Some(q) => (format!("({})", q.sql), q.cols, q.rows, q.exact, q.streams),
                None => {
                    // One join in four is of a relation with itself.
                    let r = match &last {
                        Some(l) if self.chance(0.25) => l.clone(),
                        _ => self.pick(self.pool).clone(),
                    };
                    last = Some(r.clone());
                    (r.name, r.cols, r.rows, r.exact, r.streams)
                }
            };
            let alias = format!("q{}", self.alias);
            self.alias += 1;
            let scope: Scope = cols.iter().map(|c| (format!("{alias}.{}", ident(&c.name)), c.ty)).collect();
            let item = format!("{text} AS {alias}");
            if i == 0 {
                from.sql = item;
                from.rows = rows;
            } else {
                let equi = self.equi(&from.scope, &scope);
                let (cond, out_rows) = match equi {
                    Some(c) if self.chance(0.75) => (c, from.rows * rows / 8.0),
                    _ => (self.theta(&from.scope, &scope), from.rows * rows / 2.0),
                };
                if out_rows > MAX_ROWS {
                    break;
                }
                match self.rng.random_range(0..4) {
                    0 => {
                        from.sql = format!("{}, {item}", from.sql);
                        from.conds.push(cond);
                    }
                    1 => {
                        from.sql = format!("{} CROSS JOIN {item}", from.sql);
                        from.conds.push(cond);
                    }
                    _ => from.sql = format!("{} JOIN {item} ON {cond}", from.sql),
                }
                from.rows = out_rows;
            }
            from.scope.extend(scope);
            from.exact &= exact;
            from.streams.extend(streams);
        }
        // `a, b JOIN c ON a.x = c.x` can't see `a`: put comma items behind.
        if from.sql.contains(", ") && from.sql.contains(" JOIN ") {
            from.sql = comma_to_cross(&from.sql);
        }
        from
    }

    /// An equality between the two sides, when they have a pair of columns of one type.
    fn equi(&mut self, left: &Scope, right: &Scope) -> Option<String> {
        let mut pairs = Vec::new();
        for (l, lt) in left {
            for (r, rt) in right {
                let numbers = matches!((lt, rt), (Ty::Int | Ty::Big, Ty::Int | Ty::Big));
                if (lt == rt && *lt != Ty::Bool) || numbers {
                    pairs.push((l, r));
                }
            }
        }
        let (l, r) = *pairs.choose(self.rng)?;
        Some(match self.rng.random_range(0..6) {
            0 => format!("{r} = {l}"),
            1 => format!("{l} = {r} AND {}", self.pred(right, 1)),
            _ => format!("{l} = {r}"),
        })
    }

    /// Any other condition over both sides.
    fn theta(&mut self, left: &Scope, right: &Scope) -> String {
        let ty = *self.pick(&[Ty::Int, Ty::Int, Ty::Date, Ty::Text, Ty::Fixed]);
        let l = self.expr(left, ty, 0);
        let r = self.expr(right, ty, 0);
        match self.rng.random_range(0..6) {
            0 => format!("{l} < {r}"),
            1 => format!("{l} <> {r}"),
            2 => format!("{l} >= {r}"),
            3 => format!("({l} = {r} OR {})", self.pred(left, 0)),
            4 => format!("{l} IS NOT DISTINCT FROM {r}"),
            _ => {
                let a = self.expr(left, Ty::Int, 0);
                let b = self.expr(right, Ty::Int, 0);
                format!("{a} + 1 = {b}")
            }
        }
    }

    fn filter(&mut self, from: &From) -> String {
        let mut conds = from.conds.clone();
        if self.chance(0.5) {
            conds.push(self.pred(&from.scope, 2));
        }
        if conds.is_empty() { String::new() } else { format!(" WHERE {}", conds.join(" AND ")) }
    }

    fn some_type(&mut self, scope: &Scope) -> Ty {
        if self.chance(0.7) { self.pick(scope).1 } else { *self.pick(ANY) }
    }

    pub fn pred(&mut self, scope: &Scope, d: usize) -> String {
        if d > 0 && self.chance(0.25) {
            let (a, b) = (self.pred(scope, d - 1), self.pred(scope, d - 1));
            return match self.rng.random_range(0..4) {
                0 => format!("({a} AND {b})"),
                1 => format!("NOT ({a})"),
                _ => format!("({a} OR {b})"),
            };
        }
        let ty = self.some_type(scope);
        let e = self.expr(scope, ty, usize::from(d > 1));
        let lit = cast(&value(self.rng, ty, 0.0), ty);
        match (ty, self.rng.random_range(0..9)) {
            (_, 0) => format!("{e} IS NOT NULL"),
            (_, 1) => format!("{e} IS NULL"),
            (Ty::Text, 2) => format!("{e} LIKE 'a%'"),
            (_, 2) => format!("{e} IN ({lit}, {})", cast(&value(self.rng, ty, 0.0), ty)),
            (_, 3) => format!("{e} <> {lit}"),
            (_, 4) => format!("{e} IS DISTINCT FROM {lit}"),
            (Ty::Int, 5) => format!("{e} % 3 <> 1"),
            (Ty::Bool, _) => format!("({e})"),
            (_, 6) => format!("{e} BETWEEN {} AND {lit}", cast(&value(self.rng, ty, 0.0), ty)),
            (_, 7) => {
                let other = self.expr(scope, ty, 0);
                format!("{e} <= {other}")
            }
            _ => format!("{e} >= {lit}"),
        }
    }

    /// An immutable expression of type `ty`, at most `d` levels deep.
    pub fn expr(&mut self, scope: &Scope, ty: Ty, d: usize) -> String {
        let direct: Vec<String> = scope.iter().filter(|(_, t)| *t == ty).map(|(e, _)| e.clone()).collect();
        if !direct.is_empty() && (d == 0 || self.chance(0.6)) {
            return self.pick(&direct).clone();
        }
        if d == 0 {
            return self.convert(scope, ty);
        }
        let k = self.rng.random_range(0..6);
        if k == 0 && ty != Ty::Free {
            let (p, a, b) = (self.pred(scope, 0), self.expr(scope, ty, d - 1), self.expr(scope, ty, d - 1));
            return format!("CASE WHEN {p} THEN {a} ELSE {b} END");
        }
        if k == 1 && ty != Ty::Free {
            let lit = cast(&value(self.rng, ty, 0.0), ty);
            return format!("coalesce({}, {lit})", self.expr(scope, ty, d - 1));
        }
        let a = self.expr(scope, ty, d - 1);
        match ty {
            Ty::Int => match k {
                2 => format!("({a} + 1)"),
                3 => format!("abs({a})"),
                4 => format!("length({})", self.expr(scope, Ty::Text, 0)),
                _ => format!("({a} % 4)"),
            },
            Ty::Big => match k {
                2 | 3 => format!("({} * 3)", self.expr(scope, Ty::Int, 0)).replace(" * 3)", "::bigint * 3)"),
                _ => format!("nullif({a}, 3)"),
            },
            Ty::Fixed => match k {
                2 => format!("({a} + 1.25)"),
                3 => format!("({a} - 0.50)"),
                _ => format!("abs({a})"),
            },
            Ty::Free => match k {
                0..3 => format!("({a} * 1.5)"),
                3 => format!("(coalesce({}, 0)::numeric + 0.125)", self.expr(scope, Ty::Int, 0)),
                _ => format!("round({a}, 1)"),
            },
            Ty::Float => a,
            Ty::Date => match k {
                2 | 3 => format!("({a} + 1)"),
                _ => format!("greatest({a}, '2024-01-12'::date)"),
            },
            Ty::Stamp => match k {
                2 => format!("({a} + interval '1 day')"),
                _ => format!("date_trunc('day', {a})"),
            },
            Ty::Text => match k {
                2 => format!("({a} || 'z')"),
                3 => format!("lower({a})"),
                4 => format!("substr({a}, 1, 1)"),
                _ => format!("({}::text || '/')", self.expr(scope, Ty::Int, 0)),
            },
            Ty::Bool => format!("({})", self.pred(scope, 0)),
        }
    }

    /// From a column of another type, else a constant.
    fn convert(&mut self, scope: &Scope, ty: Ty) -> String {
        let (from, how) = match ty {
            Ty::Big => (Ty::Int, "::bigint"),
            Ty::Free => (Ty::Fixed, "::numeric"),
            Ty::Date => (Ty::Stamp, "::date"),
            Ty::Stamp => (Ty::Date, "::timestamp"),
            Ty::Text => (Ty::Int, "::text"),
            other => (other, ""),
        };
        let found: Vec<String> = scope.iter().filter(|(_, t)| *t == from).map(|(e, _)| e.clone()).collect();
        match found.choose(self.rng) {
            Some(e) if from != ty => format!("{e}{how}"),
            _ => cast(&value(self.rng, ty, 0.0), ty),
        }
    }
}

/// A typed constant.
fn cast(text: &str, ty: Ty) -> String {
    if text == "NULL" {
        return format!("NULL::{}", ty.cast());
    }
    match ty {
        // A bare number in GROUP BY would be a position.
        Ty::Int => format!("({text})::integer"),
        Ty::Text => format!("{}::text", if text.starts_with('\'') { text.into() } else { literal(text) }),
        Ty::Bool => format!("({text})::boolean"),
        _ => format!("({text})::{}", if ty == Ty::Fixed { "numeric(12,2)" } else { ty.cast() }),
    }
}

/// `a, b JOIN c` binds the other way round than `a CROSS JOIN b JOIN c`.
fn comma_to_cross(sql: &str) -> String {
    // Only commas at depth 0 and outside quotes separate FROM items.
    let (mut out, mut depth, mut single, mut double) = (String::new(), 0, false, false);
    let chars: Vec<char> = sql.chars().collect();
    let mut i = 0;
    while i < chars.len() {
        let c = chars[i];
        match c {
            '\'' if !double => single = !single,
            '"' if !single => double = !double,
            '(' if !single && !double => depth += 1,
            ')' if !single && !double => depth -= 1,
            ',' if depth == 0 && !single && !double => {
                out.push_str(" CROSS JOIN");
                i += 1;
                continue;
            }
            _ => {}
        }
        out.push(c);
        i += 1;
    }
    out
}
