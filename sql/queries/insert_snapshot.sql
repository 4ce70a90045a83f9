-- Adds a schema snapshot; src/catalog/snapshots.rs gives the values in this order.
INSERT INTO pgtrickle.pgt_schema_snapshots (
  origin, relation, schema_name, table_name, reason, moment, alive, schema_hash, digest, fingerprint, made_from, relkind,
  relpersistence, retyped, column_count, row_estimate, stats_available, shape, profile, actor, command_tag, statement,
  application, resource_identity, own, in_extension)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15::integer, $16::bigint, $17, $18, $19, $20, $21,
  $22, $23, $24, $25, $26)
