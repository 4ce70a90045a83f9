//! From a failed case to a small script.

use crate::dml::{Action, Step};
use crate::run::{Case, Object, Stats, Trouble, play};
use crate::schema::literal;
use crate::support::Cluster;
use std::time::{Duration, Instant};

/// A database that exists for one attempt.
fn attempt(case: &Case, cluster: &Cluster, db: &str) -> Option<Box<Trouble>> {
    let mut admin = cluster.connect("postgres");
    admin.batch_execute(&format!("DROP DATABASE IF EXISTS {db} WITH (FORCE)")).expect("drop database");
    cluster.create_db(db);
    cluster.connect(db).batch_execute("CREATE EXTENSION pgtrickle").expect("create extension");
    play(case, cluster, db, &mut Stats::default()).err()
}

/// Makes the case smaller while it fails in the same way, for at most `limit`. Gives back the smallest found, with
/// its own account of the failure; None when it does not fail again from an empty database.
pub fn reduce(
    case: &Case,
    trouble: &Trouble,
    cluster: &Cluster,
    db: &str,
    limit: Duration,
) -> Option<(Case, Box<Trouble>)> {
    let deadline = Instant::now() + limit;
    let fails = |c: &Case| attempt(c, cluster, db).filter(|t| t.kind == trouble.kind);

    let mut best = case.clone();
    if let Some(i) = trouble.step {
        best.steps.truncate(i + 1);
    }
    let mut best_trouble = fails(&best)?;

    // One session, in the order of the commits: if it still fails then concurrency has nothing to do with it.
    let mut serial = best.clone();
    serial.steps = trouble.committed.iter().map(|a| Step { session: 0, action: a.clone() }).collect();
    if let Some(Step { action: action @ Action::Refresh(_), .. }) = best.steps.last() {
        serial.steps.push(Step { session: 0, action: action.clone() });
    }
    if let Some(t) = fails(&serial) {
        (best, best_trouble) = (serial, t);
    }

    for st in (0..best.streams.len()).rev() {
        let mut smaller = best.clone();
        smaller.left_out.insert(st);
        if let Some(t) = fails(&smaller) {
            (best, best_trouble) = (smaller, t);
        }
    }
    let mut progress = true;
    while progress && Instant::now() < deadline {
        progress = false;
        let mut chunk = best.steps.len().div_ceil(2).max(1);
        loop {
            let mut at = 0;
            while at < best.steps.len() && Instant::now() < deadline {
                let mut smaller = best.clone();
                smaller.steps.drain(at..(at + chunk).min(best.steps.len()));
                match fails(&smaller) {
                    Some(t) => {
                        (best, best_trouble) = (smaller, t);
                        progress = true;
                    }
                    None => at += chunk,
                }
            }
            if chunk == 1 {
                break;
            }
            chunk = chunk.div_ceil(2);
        }
        for at in (0..best.setup.len()).rev() {
            if Instant::now() >= deadline {
                break;
            }
            let mut smaller = best.clone();
            smaller.setup.remove(at);
            if let Some(t) = fails(&smaller) {
                (best, best_trouble) = (smaller, t);
                progress = true;
            }
        }
    }
    Some((best, best_trouble))
}

/// The case as SQL for psql. Steps of two sessions are marked; with one session it runs as it stands.
pub fn script(case: &Case) -> String {
    let mut out = String::from("CREATE EXTENSION IF NOT EXISTS pgtrickle;\n");
    for sql in &case.setup {
        out.push_str(&format!("{sql};\n"));
    }
    for object in &case.objects {
        match object {
            Object::View(sql) => out.push_str(&format!("{sql};\n")),
            Object::Stream(st) if case.left_out.contains(st) => {}
            Object::Stream(st) => out.push_str(&format!("{};\n", case.create_call(*st))),
        }
    }
    let concurrent = case.steps.iter().any(|s| s.session == 1);
    for step in &case.steps {
        let who = match (concurrent, step.session) {
            (false, _) => "",
            (true, 0) => "/* session A */ ",
            (true, _) => "/* session B */ ",
        };
        match &step.action {
            Action::Sql(sql) => out.push_str(&format!("{who}{sql};\n")),
            Action::Refresh(st) if case.left_out.contains(st) => {}
            Action::Refresh(st) => out.push_str(&format!("{who}{};\n", case.refresh_call(*st))),
        }
    }
    let shown = case.steps.iter().rev().find_map(|s| match s.action {
        Action::Refresh(st) => Some(st),
        Action::Sql(_) => None,
    });
    if let Some(st) = shown {
        let mut below: Vec<usize> = case.streams[st].reads.iter().copied().collect();
        below.retain(|s| !case.left_out.contains(s));
        for st in below {
            let s = &case.streams[st];
            out.push_str(&format!(
                "SELECT {} AS stream_table, * FROM (TABLE {} EXCEPT ALL ({})) surplus;\n",
                literal(&s.name),
                s.name,
                s.query
            ));
            out.push_str(&format!(
                "SELECT {} AS stream_table, * FROM (({}) EXCEPT ALL TABLE {}) missing;\n",
                literal(&s.name),
                s.query,
                s.name
            ));
        }
    }
    out
}
