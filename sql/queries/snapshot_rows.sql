-- What the account needs of each snapshot; the reader is src/catalog/snapshots.rs.
SELECT s.snapshot_id, s.origin, s.relation, s.schema_name, s.table_name, s.relkind, s.relpersistence, s.column_count,
       s.row_estimate, s.reason, s.moment, s.digest, s.resource_identity, s.command_tag, s.own, s.in_extension,
       -- From 2000 on, as PostgreSQL itself counts.
       (pg_catalog.date_part('epoch', s.captured_at) * 1000000)::bigint - 946684800000000, s.actor, s.retyped, s.made_from, s.fingerprint, s.times
FROM pgtrickle.pgt_schema_snapshots s
