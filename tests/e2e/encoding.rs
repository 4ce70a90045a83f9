//! A database that is not UTF8 is refused at CREATE EXTENSION, and nowhere later.

use crate::common::*;
use crate::support::{Cluster, Options, expect_error};

#[test]
fn a_database_that_is_not_utf8_is_refused() {
    let cluster = Cluster::start(&Options::preloaded());
    for encoding in ["LATIN1", "SQL_ASCII", "EUC_JP", "WIN1252"] {
        let db = format!("d_{}", encoding.to_lowercase());
        exec(
            &mut cluster.connect("postgres"),
            &format!("CREATE DATABASE {db} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'"),
        );
        let mut c = cluster.connect(&db);
        // Not even PL/pgSQL is needed to be told so.
        exec(&mut c, "DROP EXTENSION plpgsql");
        let e = expect_error(&mut c, "CREATE EXTENSION pgtrickle");
        assert_eq!(e.sqlstate, "0A000", "{e:?}");
        assert_eq!(
            e.message,
            format!("pgtrickle needs a database with encoding UTF8, this one has {encoding}")
        );
        assert!(e.detail.starts_with("reason=ENCODING"), "{e:?}");
        assert!(e.hint.contains("ENCODING 'UTF8'"), "{e:?}");
        assert_eq!(
            one::<i64>(&mut c, "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'pgtrickle%'"),
            0
        );
        // Others go on as on any server.
        exec(&mut c, "CREATE TABLE t (id int, v text); INSERT INTO t VALUES (1, 'x'); DROP TABLE t");
        assert_eq!(expect_error(&mut c, "DROP TABLE t").sqlstate, "42P01");
    }
}
