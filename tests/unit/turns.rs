//! Who gets a place, and who gives way.

use pgtrickle::scheduler::turns::{Database, Limits, Order, Place, Presence, orders};

const LIMITS: Limits = Limits { places: 3, per_database: 2, patience: 1_000, quantum: 1_000 };
const NOW: i64 = 1_000_000;

fn installed(oid: u32, due: i64, left: i64) -> Database {
    Database { presence: Presence::Installed, due, left, ..Database::new(oid) }
}

fn worker(database: u32, started: i64) -> Place {
    Place { database, pid: 1, started, since: started, rounds: 1, ..Place::FREE }
}

#[test]
fn probes_come_first_then_whoever_waits_longest() {
    let databases =
        [installed(5, 10, 0), installed(6, 5, 0), installed(7, 0, 20), Database::new(9), Database::new(8)];
    let (found, waiting) = orders(NOW, LIMITS, &[Place::FREE; 4], &databases);
    assert_eq!(found, [Order::Probe(8), Order::Probe(9), Order::Start(6)]);
    assert_eq!(waiting, 2);
}

#[test]
fn nobody_connects_where_it_is_held_absent_or_not_due() {
    let held = Database { held_until: NOW + 1, ..installed(1, 0, 0) };
    let absent = Database { presence: Presence::Absent, ..Database::new(2) };
    let later = installed(3, NOW + 1, 0);
    assert_eq!(orders(NOW, LIMITS, &[Place::FREE; 4], &[held, absent, later]), (vec![], 0));
    assert_eq!(orders(NOW + 1, LIMITS, &[], &[held, absent, later]).0, [Order::Start(1), Order::Start(3)]);
}

#[test]
fn a_database_that_is_held_up_gets_a_second_worker_and_no_third() {
    let busy = Place { relid: 77, since: NOW - 2_000, ..worker(1, 0) };
    let due = [installed(1, NOW - 2_000, 0)];
    assert_eq!(orders(NOW, LIMITS, &[busy], &due).0, [Order::Start(1)]);
    assert_eq!(orders(NOW, LIMITS, &[busy, busy], &due).0, []);
    let idle = Place { relid: 0, ..busy };
    assert_eq!(orders(NOW, LIMITS, &[idle], &due).0, []);
    assert_eq!(orders(NOW, LIMITS, &[busy], &[installed(1, NOW, 0)]).0, [], "nothing waits there");
}

#[test]
fn with_more_databases_than_places_workers_give_way_the_longest_served_first() {
    let places = [worker(1, NOW - 5_000), worker(2, NOW - 9_000), worker(3, NOW - 10)];
    let databases = [installed(1, 0, 0), installed(2, 0, 0), installed(3, 0, 0), installed(4, 0, 0)];
    let (found, waiting) = orders(NOW, LIMITS, &places, &databases);
    assert_eq!((found, waiting), (vec![Order::Leave(1)], 1));
    // Already asked: nobody else has to go.
    let asked = [places[0], Place { leaving: true, ..places[1] }, places[2]];
    assert_eq!(orders(NOW, LIMITS, &asked, &databases).0, []);
    // Who has not served its time stays.
    let fresh = [worker(1, NOW - 10), worker(2, NOW - 10), worker(3, NOW - 10)];
    assert_eq!(orders(NOW, LIMITS, &fresh, &databases).0, []);
    // Unless it has nothing to do.
    let idle = [installed(1, 0, 0), installed(2, NOW + 9, 0), installed(3, 0, 0), installed(4, 0, 0)];
    assert_eq!(orders(NOW, LIMITS, &fresh, &idle).0, [Order::Leave(1)]);
    // A second worker goes before an only one, an idle one before a busy one.
    let second = [worker(1, NOW - 5_000), worker(2, NOW - 10), worker(2, NOW - 20)];
    assert_eq!(orders(NOW, LIMITS, &second, &databases).0[0], Order::Leave(2));
}

#[test]
fn everybody_gets_a_turn() {
    let mut databases: Vec<Database> = (1..=14).map(|oid| installed(oid, 0, 0)).collect();
    let mut places = vec![Place::FREE; 3];
    let mut served = std::collections::BTreeMap::new();
    let mut turns = 0;
    for step in 0..400 {
        let now = NOW + step * 300;
        let (found, _) = orders(now, LIMITS, &places, &databases);
        for order in found {
            match order {
                Order::Start(oid) => {
                    let free = places.iter().position(|p| p.database == 0).expect("a free place");
                    places[free] = worker(oid, now);
                    turns += 1;
                    databases.iter_mut().filter(|d| d.oid == oid).for_each(|d| d.turn = turns);
                    *served.entry(oid).or_insert(0) += 1;
                }
                Order::Leave(index) => {
                    let oid = places[index].database;
                    databases.iter_mut().filter(|d| d.oid == oid).for_each(|d| d.left = now);
                    places[index] = Place::FREE;
                }
                Order::Probe(oid) => panic!("{oid} is known"),
            }
        }
    }
    assert_eq!(served.len(), 14);
    let (least, most) = (served.values().min().copied(), served.values().max().copied());
    assert!(most.unwrap_or(0) - least.unwrap_or(0) <= 1, "{served:?}");
}
