# Each target installs what is missing first (Debian packages, servers, test data), and says so.
# Where they are put and how a step is shown: .ci/lib.sh.
.PHONY: demo demo-stop test install installcheck-postgres bench lint package soak fuzz

# TPC-H in a private server: six stream tables, changes, and a bad day. Stays for you to look at.
demo:
	@.ci/setup tpch
	@.ci/install 15 release
	@.ci/tpch demo

demo-stop:
	@.ci/tpch stop

# Lint, unit tests, end-to-end tests on PostgreSQL 15, 16 and 18, the random tester for two minutes, the
# soak for half a minute.
test:
	@.ci/setup servers
	@.ci/check

# PostgreSQL 18's own regression suite: what differs on a server with pgtrickle.
installcheck-postgres:
	@.ci/setup servers
	@.ci/install 18 release
	@.ci/installcheck

# Into the PostgreSQL 15 of this machine.
install:
	@.ci/setup
	@.ci/install 15 release

# Ratios against doing without, all from one run.
bench:
	@.ci/setup tpch
	@.ci/install 15 release
	@.ci/tpch bench

lint:
	@.ci/setup
	@.ci/check lint

# The files to install, as a tree under target/release/pgtrickle-pg15.
package:
	@.ci/setup
	@.ci/install 15 release package

# Everything at once for five minutes: writers, schema changes, refreshes, cancels, prepared transactions.
soak:
	@.ci/setup
	@.ci/install 15 release
	@.ci/soak

# The random tester until it finds something or is interrupted.
fuzz:
	@.ci/setup
	@.ci/install 15 release
	@.ci/fuzz
