//! Storage that was written anew by what is no schema change: nothing is suspended.

use crate::common::*;
use crate::support::{self, fresh_db, refresh};

#[test]
fn vacuum_full_and_cluster_of_a_whole_database_suspend_nothing() {
    let db = fresh_db();
    let mut c = db.connect();
    // No key, no index, no default: nothing that would show who rewrote it.
    exec(
        &mut c,
        &format!(
            "{T}; CREATE TABLE bare (a int, b text); INSERT INTO bare VALUES (1, 'x'); CREATE TABLE k (id int PRIMARY KEY, v int); CLUSTER k USING k_pkey"
        ),
    );
    create(&mut c, "s", "SELECT grp, count(*) AS n, sum(v) AS v FROM t GROUP BY grp");
    create(&mut c, "of_bare", "SELECT a, b FROM bare");
    create(&mut c, "of_k", "SELECT v FROM k");
    create(&mut c, "above", "SELECT n, count(*) AS c FROM s GROUP BY n");
    let all = ["s", "of_bare", "of_k", "above"];
    for command in ["VACUUM FULL", "CLUSTER", "VACUUM FULL ANALYZE"] {
        exec(&mut c, "INSERT INTO bare VALUES (2, 'y'); UPDATE t SET v = v + 1");
        exec(&mut c, command);
        let mut fresh = db.connect();
        exec(&mut fresh, "ALTER TABLE bare ADD COLUMN IF NOT EXISTS more int");
        for s in all {
            refresh(&mut fresh, s);
            assert_active(&mut c, s);
        }
        exec(&mut c, "INSERT INTO bare VALUES (3, 'z'); DELETE FROM t WHERE id = (SELECT min(id) FROM t)");
        differential(&mut c, "s");
        differential(&mut c, "of_bare");
    }
}

#[test]
fn i4_a_rewrite_that_no_event_told_of_is_computed_anew() {
    let db = fresh_db();
    let mut c = db.connect();
    exec(&mut c, "CREATE TABLE bare (a int, b int); INSERT INTO bare VALUES (1, 1)");
    create(&mut c, "s", "SELECT a, b FROM bare");
    exec(
        &mut c,
        "ALTER EVENT TRIGGER pgtrickle_ddl_end DISABLE; ALTER TABLE bare ALTER COLUMN b TYPE int USING b + 1000;
         ALTER EVENT TRIGGER pgtrickle_ddl_end ENABLE ALWAYS",
    );
    assert_eq!(right_or_suspended(&mut c, "s"), "right");
    support::assert_equal(&mut c, "s", "SELECT 1 AS a, 1001 AS b");
}
