//! A case: schema, stream tables and script; how it is made, played and judged.

use crate::dml::{self, Action, Step};
use crate::query::{Maker, Relation};
use crate::schema::{self, Table, ident, literal};
use crate::support::{Cluster, db_error, describe};
use postgres::Client;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
pub struct Stream {
    /// Qualified and quoted.
    pub name: String,
    pub query: String,
    pub mode: &'static str,
    pub exact: bool,
    /// Itself and every stream table below it.
    pub reads: BTreeSet<usize>,
}

#[derive(Clone, Debug)]
pub struct Case {
    pub seed: u64,
    pub schema: String,
    /// Tables and first rows.
    pub setup: Vec<String>,
    /// Views and stream tables in the order in which they are made: views as SQL text, stream tables by index.
    pub objects: Vec<Object>,
    pub streams: Vec<Stream>,
    pub steps: Vec<Step>,
    /// Stream tables that a reduction leaves out.
    pub left_out: BTreeSet<usize>,
}

#[derive(Clone, Debug)]
pub enum Object {
    View(String),
    Stream(usize),
}

#[derive(Default, Clone, Debug)]
pub struct Stats {
    pub refreshes: u64,
    pub differential: u64,
    pub no_change: u64,
    pub full: u64,
    pub reinitialize: u64,
    /// Refreshes that had to wait for the other session's open refresh, or lost a serialization conflict.
    pub gave_way: u64,
}

impl Stats {
    pub fn add(&mut self, other: &Stats) {
        self.refreshes += other.refreshes;
        self.differential += other.differential;
        self.no_change += other.no_change;
        self.full += other.full;
        self.reinitialize += other.reinitialize;
        self.gave_way += other.gave_way;
    }
}

#[derive(Clone, Debug)]
pub struct Trouble {
    /// What kind of failure: a reduced case must fail in the same way.
    pub kind: String,
    pub text: String,
    /// The step that showed it; None while the stream tables were made.
    pub step: Option<usize>,
    /// The statements that had been committed by then, with the refreshes, in order of commit.
    pub committed: Vec<Action>,
}

/// A random case, the same for the same seed.
pub fn make(seed: u64) -> Case {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let rng = &mut rng;
    let schema = if rng.random_bool(0.3) { "\"Fuzz Schéma\"" } else { "fuzz" }.to_string();
    let mut setup = vec![format!("CREATE SCHEMA {schema}")];
    let mut taken = Vec::new();
    let mut tables: Vec<Table> = Vec::new();
    for _ in 0..rng.random_range(1..4) {
        tables.push(schema::table(rng, &schema, &mut taken, &mut setup));
    }
    let mut pool: Vec<Relation> = Vec::new();
    for t in &mut tables {
        if rng.random_bool(0.85) {
            let rows = rng.random_range(1..25);
            setup.push(schema::insert(rng, t, rows));
        }
        pool.push(Relation {
            name: t.name.clone(),
            cols: t.cols.clone(),
            rows: 30.0,
            exact: true,
            streams: vec![],
        });
    }
    if rng.random_bool(0.3) {
        setup.push("ANALYZE".into());
    }
    let mut objects = Vec::new();
    let mut streams: Vec<Stream> = Vec::new();
    let wanted = rng.random_range(1..5);
    while streams.len() < wanted {
        let name = format!("{schema}.{}", ident(&schema::fresh_name(rng, &mut taken)));
        let view = rng.random_bool(0.2);
        let depth = if view { 1 } else { rng.random_range(0..3) };
        let q = Maker::new(rng, &pool).query(depth);
        let mut reads: BTreeSet<usize> = q.streams.iter().copied().collect();
        let exact = q.exact && (view || !q.loose);
        if view {
            objects.push(Object::View(format!("CREATE VIEW {name} AS {}", q.sql)));
        } else {
            let me = streams.len();
            reads.insert(me);
            objects.push(Object::Stream(me));
            let mode = if rng.random_bool(0.4) { "differential" } else { "auto" };
            streams.push(Stream { name: name.clone(), query: q.sql, mode, exact, reads: reads.clone() });
        }
        pool.push(Relation { name, cols: q.cols, rows: q.rows, exact, streams: reads.into_iter().collect() });
    }
    let n = *[15, 30, 60, 90].choose(rng).expect("sizes");
    let steps = dml::script(rng, &mut tables, streams.len(), n);
    Case { seed, schema, setup, objects, streams, steps, left_out: BTreeSet::new() }
}

impl Case {
    /// Indexes of the stream tables that are made.
    pub fn kept(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        (0..self.streams.len()).filter(|st| !self.left_out.contains(st))
    }

    pub fn create_call(&self, st: usize) -> String {
        let s = &self.streams[st];
        format!(
            "SELECT pgtrickle.create_stream_table({}, {}, schedule => NULL, refresh_mode => {})",
            literal(&s.name),
            literal(&s.query),
            literal(s.mode)
        )
    }

    pub fn refresh_call(&self, st: usize) -> String {
        format!(
            "SELECT action FROM pgtrickle.refresh_stream_table({}::regclass)",
            literal(&self.streams[st].name)
        )
    }
}

/// The rows by which a stream table and its query differ; empty when they are equal.
fn difference(c: &mut Client, s: &Stream) -> Result<String, postgres::Error> {
    let (table, query) = (format!("TABLE {}", s.name), &s.query);
    let compare = |a: &str, b: &str, side: &str, form: &str| {
        format!(
            "SELECT '{side}' || coalesce(d::text, '') FROM (SELECT {form} FROM ({a}) r EXCEPT ALL SELECT {form} FROM ({b}) r) d"
        )
    };
    let mut forms = vec!["r.*"];
    // More than I1 asks: 1.5 and 1.50 are equal, and a stream table may show either.
    if s.exact && std::env::var_os("PGTRICKLE_FUZZ_PRINTED").is_some() {
        forms.push("r::text AS printed");
    }
    let mut out = String::new();
    for form in forms {
        let sql = format!(
            "({} LIMIT 5) UNION ALL ({} LIMIT 5)",
            compare(query, &table, "missing ", form),
            compare(&table, query, "surplus ", form)
        );
        for row in c.query(&sql, &[])? {
            out.push_str(&format!("  {}\n", row.get::<_, &str>(0)));
        }
        if !out.is_empty() {
            break;
        }
    }
    Ok(out)
}

#[derive(Default)]
struct Open {
    active: bool,
    relaxed: bool,
    /// Statements since BEGIN, and savepoints as positions in them.
    pending: Vec<Action>,
    savepoints: Vec<(String, usize)>,
    /// Stream tables refreshed in the open transaction.
    refreshed: BTreeSet<usize>,
}

/// Plays the case in a database that has the extension and nothing of this case.
pub fn play(case: &Case, cluster: &Cluster, db: &str, stats: &mut Stats) -> Result<(), Box<Trouble>> {
    let mut sessions = [cluster.connect(db), cluster.connect(db)];
    for c in &mut sessions {
        c.batch_execute("SET lock_timeout = '1s'; SET statement_timeout = '60s'").expect("settings");
    }
    let mut committed: Vec<Action> = Vec::new();
    let trouble = |kind: &str, text: String, step, committed: &[Action]| {
        Err(Box::new(Trouble { kind: kind.into(), text, step, committed: committed.to_vec() }))
    };
    for sql in &case.setup {
        if let Err(e) = sessions[0].batch_execute(sql) {
            return trouble("setup", format!("{}\n{sql}", describe(&e)), None, &committed);
        }
    }
    for object in &case.objects {
        match object {
            Object::View(sql) => {
                if let Err(e) = sessions[0].batch_execute(sql) {
                    return trouble("setup", format!("{}\n{sql}", describe(&e)), None, &committed);
                }
            }
            Object::Stream(st) if case.left_out.contains(st) => {}
            Object::Stream(st) => {
                let call = case.create_call(*st);
                if let Err(e) = sessions[0].batch_execute(&call) {
                    return trouble(
                        &format!("create refused: {}", db_error(&e).message),
                        format!("{}\n{call}", describe(&e)),
                        None,
                        &committed,
                    );
                }
                if let Some(text) = compare(&mut sessions[0], &case.streams[*st]) {
                    return trouble("wrong after creation", text, None, &committed);
                }
            }
        }
    }
    let mut history = match History::begin(&mut sessions[0]) {
        Ok(history) => history,
        Err(e) => return trouble("history", describe(&e), None, &committed),
    };
    let mut open = [Open::default(), Open::default()];
    // Stream tables that may have a TRUNCATE to digest: the one thing for which `full` is an answer.
    let mut truncated: BTreeSet<usize> = BTreeSet::new();
    for (i, step) in case.steps.iter().enumerate() {
        let s = step.session;
        match &step.action {
            Action::Sql(sql) => {
                if sql.starts_with("TRUNCATE") {
                    truncated.extend(case.kept());
                }
                if let Err((kind, text)) = write(&mut sessions[s], &mut open[s], sql, &mut committed) {
                    return trouble(&kind, text, Some(i), &committed);
                }
            }
            Action::Refresh(st) if case.left_out.contains(st) => {}
            Action::Refresh(st) => {
                // The other session's open transaction holds what this refresh needs.
                if open[1 - s].refreshed.intersection(&case.streams[*st].reads).next().is_some() {
                    stats.gave_way += 1;
                    continue;
                }
                let call = case.refresh_call(*st);
                match sessions[s].query_one(&call, &[]) {
                    Ok(row) => {
                        stats.refreshes += 1;
                        match row.get::<_, &str>(0) {
                            "differential" => stats.differential += 1,
                            "no_change" => stats.no_change += 1,
                            "full" => stats.full += 1,
                            "reinitialize" => stats.reinitialize += 1,
                            other => return trouble("unknown action", other.into(), Some(i), &committed),
                        }
                        if let Err((kind, text)) = history.judge(&mut sessions[s], case, &truncated) {
                            return trouble(&kind, text, Some(i), &committed);
                        }
                    }
                    Err(e) => {
                        let failure = db_error(&e);
                        let conflict = failure.sqlstate == "40001" && open[s].relaxed;
                        let waited = failure.sqlstate == "55P03" && !open[1 - s].refreshed.is_empty();
                        if !(conflict || waited) {
                            return trouble(
                                &format!("refresh failed: {}", failure.message),
                                format!("{}\n{call}", describe(&e)),
                                Some(i),
                                &committed,
                            );
                        }
                        stats.gave_way += 1;
                        abandon(&mut sessions[s], &mut open[s]);
                        continue;
                    }
                }
                if open[s].active {
                    open[s].pending.push(step.action.clone());
                    open[s].refreshed.extend(case.streams[*st].reads.iter().copied());
                } else {
                    committed.push(step.action.clone());
                    truncated.retain(|s| !case.streams[*st].reads.contains(s));
                }
                for below in &case.streams[*st].reads {
                    if let Some(text) = compare(&mut sessions[s], &case.streams[*below]) {
                        return trouble("difference", text, Some(i), &committed);
                    }
                }
            }
        }
    }
    Ok(())
}

/// What the refreshes say of themselves.
struct History {
    /// The newest row that has been judged.
    last: i64,
}

impl History {
    /// After the stream tables were made and filled.
    fn begin(c: &mut Client) -> Result<History, postgres::Error> {
        let row = c.query_one("SELECT coalesce(max(id), 0) FROM pgtrickle.refresh_history", &[])?;
        Ok(History { last: row.get(0) })
    }

    /// Judges what the refresh that this session has just run told: contents that had diverged are a failure though they
    /// have healed, and so is every computation of everything that nothing in the case explains.
    fn judge(
        &mut self,
        c: &mut Client,
        case: &Case,
        truncated: &BTreeSet<usize>,
    ) -> Result<(), (String, String)> {
        let sql = "SELECT id, coalesce(stream_table::text, stream_table_name), status, coalesce(action, ''), reason, coalesce(detail, '')
             FROM pgtrickle.refresh_history WHERE id > $1 ORDER BY id";
        let rows = c.query(sql, &[&self.last]).map_err(|e| ("history".to_string(), describe(&e)))?;
        for row in rows {
            self.last = row.get(0);
            let told =
                Told { status: row.get(2), action: row.get(3), reason: row.get(4), detail: row.get(5) };
            let name: String = row.get(1);
            let stream = case.streams.iter().find(|s| unquoted(&s.name) == unquoted(&name));
            let query = stream.map_or("", |s| s.query.as_str());
            let differential = stream.is_some_and(|s| s.mode == "differential");
            let truncate = stream.is_some_and(|s| !s.reads.is_disjoint(truncated));
            if let Some(kind) = told.complaint(differential, truncate) {
                let text = format!(
                    "{name}: {} {} {}\n  {}\n  {query}",
                    told.status,
                    told.action,
                    told.reason.unwrap_or_default(),
                    told.detail
                );
                return Err((kind, text));
            }
        }
        Ok(())
    }
}

fn unquoted(name: &str) -> String {
    name.replace('"', "")
}

/// One row of the history.
struct Told {
    status: String,
    action: String,
    reason: Option<String>,
    detail: String,
}

impl Told {
    /// What is wrong with it, if anything is. `truncate`: a source may have been truncated since the refresh before.
    fn complaint(&self, differential: bool, truncate: bool) -> Option<String> {
        if self.status != "completed" {
            return Some(self.status.clone());
        }
        let explained = match self.reason.as_deref() {
            None => match self.action.as_str() {
                "full" => !differential && self.detail == "the whole query is computed",
                "reinitialize" => self.detail == "it was computed in a transaction with a fixed snapshot",
                _ => true,
            },
            Some("TRUNCATED") => truncate,
            // A join of what never stood together, and more changed inputs than terms are written for: documented.
            Some("EVALUATION_ERROR" | "TOO_MANY_CHANGED_INPUTS") => true,
            Some(_) => false,
        };
        let word = self.reason.as_deref().unwrap_or(&self.action);
        (!explained).then(|| format!("unexplained {word}"))
    }
}

fn compare(c: &mut Client, s: &Stream) -> Option<String> {
    match difference(c, s) {
        Ok(text) if text.is_empty() => None,
        Ok(text) => Some(format!("{} differs from {}\n{text}", s.name, s.query)),
        Err(e) => Some(format!("{} can't be compared: {}\n  {}", s.name, describe(&e), s.query)),
    }
}

/// Ends a session's transaction after an error.
fn abandon(c: &mut Client, open: &mut Open) {
    if open.active {
        let _ = c.batch_execute("ROLLBACK");
        *open = Open::default();
    }
}

/// Runs one statement of a writer and keeps the book of what is committed.
fn write(
    c: &mut Client,
    open: &mut Open,
    sql: &str,
    committed: &mut Vec<Action>,
) -> Result<(), (String, String)> {
    let control = ["SAVEPOINT", "RELEASE", "ROLLBACK TO"].iter().any(|w| sql.starts_with(w));
    if !open.active && (control || sql == "COMMIT" || sql == "ROLLBACK") {
        // Its transaction is gone after a conflict, or was taken away by the reduction.
        return Ok(());
    }
    if open.active && sql.starts_with("BEGIN") {
        return Ok(());
    }
    let to = sql.strip_prefix("ROLLBACK TO SAVEPOINT ").or_else(|| sql.strip_prefix("RELEASE SAVEPOINT "));
    if to.is_some_and(|name| !open.savepoints.iter().any(|(n, _)| n == name)) {
        return Ok(());
    }
    if let Err(e) = c.batch_execute(sql) {
        let failure = db_error(&e);
        // A writer's own conflicts and constraint violations are life; anything else is ours.
        let own = failure.sqlstate.starts_with("23")
            || failure.sqlstate.starts_with("22")
            || failure.sqlstate == "21000"
            || failure.sqlstate == "40001";
        if open.active {
            abandon(c, open);
        }
        return if own {
            Ok(())
        } else {
            Err((format!("write failed: {}", failure.message), format!("{}\n{sql}", describe(&e))))
        };
    }
    match sql {
        "COMMIT" => {
            committed.append(&mut open.pending);
            *open = Open::default();
        }
        "ROLLBACK" => *open = Open::default(),
        _ if sql.starts_with("BEGIN") => {
            *open = Open { active: true, relaxed: !sql.ends_with("READ COMMITTED"), ..Open::default() };
        }
        _ if sql.starts_with("SAVEPOINT ") => {
            open.savepoints.push((sql["SAVEPOINT ".len()..].to_string(), open.pending.len()));
        }
        _ if control => {
            let name = sql.rsplit(' ').next().unwrap_or_default();
            if let Some(at) = open.savepoints.iter().rposition(|(n, _)| n == name) {
                if sql.starts_with("ROLLBACK") {
                    open.pending.truncate(open.savepoints[at].1);
                    open.savepoints.truncate(at + 1);
                } else {
                    open.savepoints.truncate(at);
                }
            }
        }
        _ if open.active => open.pending.push(Action::Sql(sql.to_string())),
        _ => committed.push(Action::Sql(sql.to_string())),
    }
    Ok(())
}

/// Takes everything of a case away again, in a way chosen by its seed; what stays behind is a failure.
pub fn clear(case: &Case, c: &mut Client) -> Result<(), Box<Trouble>> {
    let sql = match case.seed % 3 {
        0 => format!("DROP SCHEMA {} CASCADE", case.schema),
        1 => {
            let mut all = String::new();
            for s in case.kept().rev() {
                all.push_str(&format!("DROP TABLE {} CASCADE;", case.streams[s].name));
            }
            all + &format!("DROP SCHEMA {} CASCADE", case.schema)
        }
        _ => {
            let mut all = String::new();
            for s in case.kept().rev() {
                all.push_str(&format!(
                    "SELECT pgtrickle.drop_stream_table({}::regclass, true);",
                    literal(&case.streams[s].name)
                ));
            }
            all + &format!("DROP SCHEMA {} CASCADE", case.schema)
        }
    };
    let fail =
        |text: String| Box::new(Trouble { kind: "left behind".into(), text, step: None, committed: vec![] });
    c.batch_execute(&sql).map_err(|e| fail(format!("{}\n{sql}", describe(&e))))?;
    let left = c
        .query_one(
            "SELECT (SELECT count(*) FROM pgtrickle.stream_tables) + (SELECT count(*) FROM pgtrickle.change_buffers)",
            &[],
        )
        .map_err(|e| fail(describe(&e)))?
        .get::<_, i64>(0);
    if left == 0 {
        Ok(())
    } else {
        Err(fail(format!("{left} rows in stream_tables and change_buffers after\n{sql}")))
    }
}
