-- Where every case of ddl_cases.txt begins.
DROP SCHEMA IF EXISTS t CASCADE;
DROP SCHEMA IF EXISTS t2 CASCADE;
DROP SCHEMA IF EXISTS t3 CASCADE;
CREATE SCHEMA t;
CREATE SCHEMA t2;
CREATE TYPE t.mood AS ENUM ('sad', 'ok');
CREATE TABLE t.src (
  id int PRIMARY KEY,
  used int NOT NULL,
  free varchar(20),
  late int);
CREATE TABLE t.types (price numeric(10,2), tags int[], feeling t.mood);
ALTER TABLE t.src ADD COLUMN gen int GENERATED ALWAYS AS (id + 1) STORED;
INSERT INTO t.src (id, used, free, late) SELECT g, g, 'f', g FROM generate_series(1, 10) g;
ALTER TABLE t.src ADD COLUMN fast int DEFAULT 5;
CREATE UNIQUE INDEX src_used ON t.src (used, id);
CREATE TABLE t.plain (a int, b int NOT NULL);
CREATE TABLE t.part (id int, at int, v int, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE t.p1 PARTITION OF t.part FOR VALUES FROM (0) TO (10);
CREATE TABLE t.p2 PARTITION OF t.part FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (at);
CREATE TABLE t.p2a PARTITION OF t.p2 FOR VALUES FROM (10) TO (15);
INSERT INTO t.part SELECT g, g, 1 FROM generate_series(10, 14) g;
CREATE TABLE t.inh (a int);
CREATE TABLE t.kid () INHERITS (t.inh);
CREATE FUNCTION t.capture() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER pgtrickle_capture AFTER INSERT OR UPDATE OR DELETE ON t.src FOR EACH ROW EXECUTE FUNCTION t.capture();
ALTER TABLE t.src ENABLE ALWAYS TRIGGER pgtrickle_capture;
CREATE TRIGGER pgtrickle_capture AFTER INSERT OR UPDATE OR DELETE ON t.part FOR EACH ROW EXECUTE FUNCTION t.capture();
ALTER TABLE t.part ENABLE ALWAYS TRIGGER pgtrickle_capture;
