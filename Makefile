# The verbs of the project. `make demo` and `make test` work on a fresh clone: each sets up what it needs and says so.

PYTHON ?= $(shell tools/python)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CLIENTS := .tools/.ready
NETWORK := .tools/.network
PACKAGING := .tools/packaging/.ready
SCHEMATHESIS := .tools/schemathesis/.ready
COMPILED := .tools/.compiled
DOCS := .tools/docs/.ready
SEED ?= 1

.PHONY: help demo quick test check long fuzz chaos chaos-seeds abuse package docs bench bench-peers bench-tabs bench-tails bench-transactions bench-security bench-cluster bench-pipeline compare clean

help:
	@echo "make demo    three nodes, a stream, a crash; then a table, SQL, and an audit"
	@echo "make quick   the tests that start no processes, but the pipeline's, in under a minute; fetches nothing but Python packages"
	@echo "make test    every test (installs the clients it needs: PyPI, npm, Debian, Maven Central); retries up to $(FEW) failed tests alone, once"
	@echo "make check   ruff, mypy --strict, and imports that run downwards"
	@echo "make bench   throughput, latency, start time and memory, beside a bare server"
	@echo "make bench-peers     Chronik beside Apache Kafka (Maven Central), one node and three: ratios, JSON and plots into docs/"
	@echo "make bench-tabs      what a browser with ten tabs of the console costs a node (MINUTES=$(MINUTES))"
	@echo "make bench-tails     20,000 single records on a busy machine, and the longest, beside Apache Kafka (Maven Central)"
	@echo "make bench-transactions  transactions of 10 and of 10,000 records, beside Apache Kafka (Maven Central)"
	@echo "make bench-security  what TLS, a login and 10,000 ACLs cost, and TLS beside Apache Kafka's (Maven Central)"
	@echo "make bench-pipeline  topics into tables, beside Spark's own connector; growth; SQL"
	@echo "make bench-cluster   what three nodes do: start, failover, metadata, commits, snapshots, idle; what growth costs up to fifteen"
	@echo "make compare BASE=…  this source beside a commit, and that commit beside itself, in turn (ROUNDS=$(ROUNDS))"
	@echo "make long    the tests with their full counts (SEED=$(SEED))"
	@echo "make chaos   three nodes under kills, pauses, cuts, resets, slow lines and full disks (SECONDS=$(SECONDS) STEPS= SEED=$(SEED) FAULTS=$(FAULTS) WORKLOAD=$(WORKLOAD))"
	@echo "make chaos-seeds     the same for each of five seeds, 40 faults each (SEEDS=$(SEEDS) STEPS=40), and a summary"
	@echo "make abuse   hostile clients beside an honest one, with budgets (SEED=$(SEED) ATTACKS=$(ATTACKS)); docs/abuse.md"
	@echo "make package  a wheel and a source distribution into dist/, checked, installed and tried (PyPI)"
	@echo "make docs    the pages of docs/ as a site, into build/site (PyPI); a warning is an error"
	@echo "make fuzz    malformed frames into the decoder and over a socket (SEED=$(SEED))"

$(READY): pyproject.toml
	@echo "== setting up $(VENV) (Python packages from PyPI)"
	@$(or $(PYTHON),false) -m venv $(VENV)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Chronik needs Python 3.11 or newer")'
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

$(CLIENTS): $(READY) $(shell find tools/clients -type f -not -path "*/node_modules/*" -not -path "*/target/*")
	@echo "== setting up the clients that the tests use (npm, Debian, Maven Central)"
	@tools/clients/setup
	@$(BIN)/python -m tests.archives || echo "archives of classes could not be made: tests of JVMs take longer"
	@touch $@

$(NETWORK): tools/clients/setup
	@echo "== setting up what networks of namespaces are made with (Debian)"
	@tools/clients/setup network
	@touch $@

# An environment of their own: the tests' need not know what packages are built with.
$(PACKAGING):
	@echo "== setting up what packages are built and checked with (PyPI)"
	@mkdir -p .tools
	@$(or $(PYTHON),false) -m venv .tools/packaging
	@.tools/packaging/bin/pip install --quiet --disable-pip-version-check 'build>=1.2' 'twine>=6.1' 'setuptools>=77' \
		&& touch $@ || echo "build and twine could not be fetched: tests of packages are skipped"

# As with packages. Where PyPI is not reached there is no site, and nothing else is amiss.
$(DOCS):
	@echo "== setting up what the site of the docs is built with (PyPI)"
	@mkdir -p .tools
	@$(or $(PYTHON),false) -m venv .tools/docs
	@.tools/docs/bin/pip install --quiet --disable-pip-version-check 'mkdocs>=1.6,<2' 'mkdocs-material>=9.6,<10' \
		&& touch $@ || echo "mkdocs-material could not be fetched: the site is not built"

# Of its own: its plugin would be loaded by every run of pytest.
$(SCHEMATHESIS):
	@echo "== setting up what the admin API's document is tried with (PyPI)"
	@mkdir -p .tools
	@$(or $(PYTHON),false) -m venv .tools/schemathesis
	@.tools/schemathesis/bin/pip install --quiet --disable-pip-version-check 'schemathesis>=4,<5' \
		&& touch $@ || echo "schemathesis could not be fetched: its tests are skipped"

demo: $(READY)
	@$(BIN)/chronik demo

check: $(READY)
	@echo "== ruff"
	@$(BIN)/ruff check src tests bench tools
	@$(BIN)/ruff format --check --quiet src tests bench tools || { echo "run $(BIN)/ruff format"; exit 1; }
	@echo "== mypy --strict"
	@$(BIN)/mypy
	@echo "== imports run downwards"
	@$(BIN)/pytest -q -p no:cacheprovider tests/test_imports_run_downwards.py

# Which they are, and how that is kept so: tests/tiers.py
quick: $(READY) $(COMPILED)
	@echo "== tests that start no processes"
	@$(BIN)/pytest -q -n 5 --dist worksteal --quick

# A run of all tests starts a thousand Python processes: what one of them has compiled the others need not compile again,
# whatever the environment says of bytecode.
quick test long $(COMPILED): export PYTHONDONTWRITEBYTECODE =

# Once, in two halves: in a fresh clone every worker would compile every test.
$(COMPILED): | $(READY)
	@mkdir -p .tools
	@$(BIN)/pytest -q --collect-only tests/[a-c]* >/dev/null & $(BIN)/pytest -q --collect-only tests/[d-z]* >/dev/null; wait
	@touch $@

# More workers than processors, since tests of clusters wait for most of their time, and as many as all lanes have room for:
# so each of them begins at once. Who runs beside whom: tests/lanes.py
WORKERS ?= 5
# On a shared machine a test may fail because something stalled. Up to FEW failed tests are run again, each alone, and
# reported by name; what fails twice, or fails with many others, fails the run: tests/retries.py
FEW ?= 8
test: $(READY) $(CLIENTS) $(PACKAGING) $(SCHEMATHESIS) $(COMPILED)
	@echo "== tests"
	@$(BIN)/pytest -q -n $(WORKERS) --dist loadgroup --retry-failed $(FEW)

# The tests that have a full count are those that ask tests/long.py for it, by themselves or through the browser of the console. ROOM narrows them: make long ROOM=tests/log
ROOM ?= tests
long: $(READY) fuzz
	@echo "== tests with their full counts, seed $(SEED)"
	@CHRONIK_LONG=1 CHRONIK_SEED=$(SEED) $(BIN)/pytest -q -n 2 $$(grep -rlE "^from tests(.long import| import long|.console.web.browser import)" $(ROOM) --include='test_*.py')

fuzz: $(READY)
	@$(BIN)/python -m tests.fuzz --seed $(SEED)

# What a workload writes a second, and how many copies there are of it: docs/chaos.md
SECONDS ?= 60
FAULTS ?= all
WORKLOAD ?= all
RATE ?= 120
REPLICATION ?= 3
STEPS ?=
# Whoever watches looks as often as they can.
chaos chaos-seeds: export CHRONIK_LONG = 1
chaos: $(READY) $(NETWORK)
	@$(BIN)/python -m tests.chaos.run --seconds $(SECONDS) --seed $(SEED) --faults $(FAULTS) --workload $(WORKLOAD) \
		--rate $(RATE) --replication $(REPLICATION) $(if $(STEPS),--steps $(STEPS))

SEEDS ?= 1,2,3,4,5
chaos-seeds: $(READY) $(NETWORK)
	@$(BIN)/python -m tests.chaos.seeds --seeds $(SEEDS) --steps $(or $(STEPS),40) --faults $(FAULTS) \
		--workload $(WORKLOAD) --rate $(RATE)

ATTACKS ?= all
abuse: $(READY)
	@$(BIN)/python -m tests.abuse.run --seed $(SEED) --attacks $(ATTACKS) --report docs/abuse.md

package: $(PACKAGING)
	@.tools/packaging/bin/python -m tests.packaging.run

# Pages that are made of something else first: which they are, tools/docs/__main__.py says.
docs: $(READY) $(DOCS)
	@$(BIN)/python -m tools.docs
	@test ! -e $(DOCS) || NO_MKDOCS_2_WARNING=1 .tools/docs/bin/mkdocs build --strict --quiet
	@test ! -e $(DOCS) || echo "build/site/index.html"

bench: $(READY)
	@$(BIN)/python -m bench
	@$(BIN)/python -m bench.pipeline

bench-peers: $(READY)
	@tools/clients/setup apache-kafka
	@$(BIN)/python -m bench.peers --keep

MINUTES ?= 60
bench-tabs: $(READY)
	@tools/clients/setup browser
	@$(BIN)/python -m bench.tabs --minutes $(MINUTES)

bench-tails: $(READY)
	@tools/clients/setup apache-kafka
	@$(BIN)/python -m bench.tails

bench-transactions: $(READY)
	@tools/clients/setup apache-kafka
	@$(BIN)/python -m bench.transactions

bench-security: $(READY)
	@tools/clients/setup apache-kafka kafka-tools
	@$(BIN)/python -m bench.security

.PHONY: bench-fairness
bench-fairness: $(READY)
	@tools/clients/setup apache-kafka
	@$(BIN)/python -m bench.fairness

BASE ?= HEAD
ROUNDS ?= 15
compare: $(READY)
	@$(BIN)/python -m bench.compare --base $(BASE) --rounds $(ROUNDS)

bench-cluster: $(READY)
	@$(BIN)/python -m bench.cluster

bench-pipeline: $(READY)
	@$(BIN)/python -m bench.pipeline --long

clean:
	rm -rf $(VENV) .tools .mypy_cache .ruff_cache .pytest_cache build dist
