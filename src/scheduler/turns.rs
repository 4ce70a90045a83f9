//! Who gets one of the places that pgtrickle's processes may take: databases that are not known yet are looked at first,
//! which takes milliseconds; then each database with something due gets one worker, longest waiting first; what is left is
//! for second workers of databases that are held up. With more databases than places, workers give way.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use crate::model::Oid;
use crate::scheduler::schedule::Micros;

/// A process, or the promise of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// 0: the place is free.
    pub database: Oid,
    /// 0 until the process has begun.
    pub pid: i32,
    /// It only looks whether the database has the extension.
    pub probe: bool,
    /// It was asked to leave.
    pub leaving: bool,
    /// Stream table that it refreshes now; 0: none.
    pub relid: Oid,
    /// When it began to refresh that, or to be idle.
    pub since: Micros,
    /// When the place was given to it.
    pub started: Micros,
    /// Completed looks at what is due.
    pub rounds: u32,
}

impl Place {
    /// Nobody's.
    pub const FREE: Place = Place {
        database: 0,
        pid: 0,
        probe: false,
        leaving: false,
        relid: 0,
        since: 0,
        started: 0,
        rounds: 0,
    };
}

/// Does a database have the extension?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    Unknown,
    Installed,
    Absent,
}

/// A database that allows connections and is no template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Database {
    /// 0: an unused entry.
    pub oid: Oid,
    pub presence: Presence,
    /// Changes with every word of a session that the extension is there.
    pub told: u32,
    /// No process of ours connects before.
    pub held_until: Micros,
    /// When something is due there next, as its last worker left it.
    pub due: Micros,
    /// When its last worker left.
    pub left: Micros,
    /// Number of the start of its last worker: of those that left together the one that began first comes first.
    pub turn: u64,
}

impl Database {
    /// Known by its oid alone.
    pub const fn new(oid: Oid) -> Database {
        Database { oid, presence: Presence::Unknown, told: 0, held_until: 0, due: 0, left: 0, turn: 0 }
    }
}

/// Limits and times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Places in all.
    pub places: usize,
    /// Workers of one database.
    pub per_database: usize,
    /// A database whose workers are all at one thing for so long gets another one.
    pub patience: Micros,
    /// A worker keeps its place for so long, whoever waits.
    pub quantum: Micros,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Look whether the database has the extension.
    Probe(Oid),
    /// Start a worker.
    Start(Oid),
    /// Ask the process in the place of this index to leave.
    Leave(usize),
}

/// What is to be done now, and how many databases wait for a place after that.
pub fn orders(now: Micros, limits: Limits, places: &[Place], databases: &[Database]) -> (Vec<Order>, usize) {
    let mut orders = Vec::new();
    let taken = places.iter().filter(|p| p.database != 0).count();
    let mut free = limits.places.saturating_sub(taken);
    let open = || databases.iter().filter(|d| d.oid != 0 && d.held_until <= now);
    let of = |database: Oid| places.iter().filter(move |p| p.database == database);

    let mut probes: Vec<Oid> = open()
        .filter(|d| d.presence == Presence::Unknown && of(d.oid).next().is_none())
        .map(|d| d.oid)
        .collect();
    probes.sort_unstable();
    let mut first: Vec<(Micros, u64, Oid)> = open()
        .filter(|d| d.presence == Presence::Installed && d.due <= now && of(d.oid).next().is_none())
        .map(|d| (d.due.max(d.left), d.turn, d.oid))
        .collect();
    first.sort_unstable();
    let wanted =
        probes.into_iter().map(Order::Probe).chain(first.into_iter().map(|(_, _, oid)| Order::Start(oid)));
    let mut waiting = 0;
    for order in wanted {
        if free > 0 {
            free -= 1;
            orders.push(order);
        } else {
            waiting += 1;
        }
    }
    if waiting > 0 {
        orders.extend(victims(now, limits, places, databases, waiting));
        return (orders, waiting);
    }
    let mut held_up: Vec<(Micros, Oid)> = open()
        .filter(|d| d.presence == Presence::Installed && d.due.saturating_add(limits.patience) <= now)
        .filter(|d| {
            let busy = |p: &Place| p.relid != 0 && p.since.saturating_add(limits.patience) <= now;
            let count = of(d.oid).count();
            count > 0 && count < limits.per_database && of(d.oid).all(busy)
        })
        .map(|d| (d.due, d.oid))
        .collect();
    held_up.sort_unstable();
    orders.extend(held_up.into_iter().take(free).map(|(_, oid)| Order::Start(oid)));
    (orders, 0)
}

/// Workers that give way to `waiting` databases: a second one of a database before an only one, an idle one before a busy
/// one, then whoever has had its place for longest.
fn victims(
    now: Micros,
    limits: Limits,
    places: &[Place],
    databases: &[Database],
    waiting: usize,
) -> Vec<Order> {
    let workers = || places.iter().filter(|p| p.database != 0);
    let going = workers().filter(|p| p.leaving || p.probe).count();
    let mut staying: BTreeMap<Oid, usize> = BTreeMap::new();
    for place in workers().filter(|p| !p.leaving && !p.probe) {
        *staying.entry(place.database).or_default() += 1;
    }
    let mut order: Vec<(bool, bool, Micros, usize)> = (0..places.len())
        .filter(|i| staying.contains_key(&places[*i].database) && places[*i].pid != 0 && !places[*i].leaving)
        .map(|i| (staying[&places[i].database] == 1, places[i].relid != 0, places[i].started, i))
        .collect();
    order.sort_unstable();
    let mut leave = Vec::new();
    for (_, busy, started, index) in order {
        let database = places[index].database;
        let looked = places[index].rounds > 0;
        let served = looked && started.saturating_add(limits.quantum) <= now;
        let due_later = databases.iter().any(|d| d.oid == database && d.due > now);
        let count = staying.entry(database).or_default();
        if *count > 1 || served || (looked && !busy && due_later) {
            *count -= 1;
            leave.push(Order::Leave(index));
        }
    }
    leave.truncate(waiting.saturating_sub(going));
    leave
}
