//! The SQL surface: arguments in, rows out. The SQL of each function is written out, so that signatures are what the
//! documentation says and each one's search_path is in sight.

mod evidence;
mod functions;
mod install;
mod side;
mod triggers;

use pgrx::extension_sql_file;

extension_sql_file!("../../sql/schemas.sql", name = "schemas", bootstrap);
extension_sql_file!(
    "../../sql/catalog.sql",
    name = "catalog",
    requires = ["schemas", side::own_rows, triggers::restore]
);
extension_sql_file!(
    "../../sql/views.sql",
    name = "views",
    requires = [
        "catalog",
        functions::pending,
        functions::change_buffers,
        evidence::verdicts,
        evidence::snapshot_columns,
        evidence::snapshot_details
    ]
);
extension_sql_file!(
    "../../sql/finish.sql",
    name = "finish",
    requires = ["views", triggers::on_drop_start, triggers::on_sql_drop, triggers::on_ddl_end],
    finalize
);
