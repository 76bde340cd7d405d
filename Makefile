# The commands of the project. `make demo` and `make test` work on a fresh clone: each installs what it needs.

PYTHON ?= $(shell tools/python)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CLIENTS := .tools/.ready
NETWORK := .tools/.network
PACKAGING := .tools/packaging/.ready
SCHEMATHESIS := .tools/schemathesis/.ready
RECIPES := .tools/recipes.ready
COMPILED := .tools/.compiled
DOCS := .tools/docs/.ready
NPM_BIN := .tools/javascript/node_modules/.bin
SEED ?= 1

.PHONY: help demo quick test check generate long long-stores long-landing fuzz chaos chaos-seeds abuse package docs recipes bench bench-peers bench-tabs bench-tails bench-transactions bench-security bench-fairness bench-cluster bench-pipeline compare clean

help:
	@echo "make demo    three nodes, a stream and a crash; then a table, SQL and an audit (S3=1: the table is on S3, in SeaweedFS)"
	@echo "make quick   tests that start no processes, in under a minute; installs only Python packages"
	@echo "make test    all tests (installs Kafka clients from PyPI, npm, Debian, Maven Central); retries up to $(FEW) failed tests once"
	@echo "make check   ruff, mypy --strict, the import rules between packages, Prettier and tsc for JavaScript (npm)"
	@echo "make bench   throughput, latency, start time and memory, compared with a minimal server"
	@echo "make bench-peers     Chronik compared with Apache Kafka (Maven Central), one node and three"
	@echo "make bench-tabs      the cost of ten browser tabs of the console for a node (MINUTES=$(MINUTES))"
	@echo "make bench-tails     the longest of 20,000 round trips on a busy machine, compared with Apache Kafka (Maven Central)"
	@echo "make bench-transactions  transactions of 10 and of 10,000 records, compared with Apache Kafka (Maven Central)"
	@echo "make bench-security  the cost of TLS, SASL and 10,000 ACLs, and TLS compared with Apache Kafka (Maven Central)"
	@echo "make bench-fairness  throughput of other clients while 1,000 connections attack, compared with Apache Kafka (Maven Central)"
	@echo "make bench-pipeline  landing compared with Spark's Kafka connector; scaling; SQL"
	@echo "make bench-cluster   three nodes: start, failover, metadata, commits, snapshots, idle; scaling up to fifteen nodes"
	@echo "                     all of these store their results in docs/internals/benchmarks and update the pages there"
	@echo "make compare BASE=…  this source compared with a commit, in interleaved rounds (ROUNDS=$(ROUNDS))"
	@echo "make long    tests with their full iteration counts (SEED=$(SEED))"
	@echo "make long-stores  tests of tables on S3 in Versity's gateway, with full counts; builds it with Go (part of make long)"
	@echo "make long-landing  two drivers land 1,000,000 records on S3 (SeaweedFS) during 50 kills, lost responses and 100 queries, in each format with each seed (FORMATS=\"$(FORMATS)\" LANDING_SEEDS=\"$(LANDING_SEEDS)\" RECORDS=$(RECORDS) KILLS=$(KILLS) QUERIES=$(QUERIES) SPARK_WORKERS=$(SPARK_WORKERS))"
	@echo "make chaos   three nodes with kills, pauses, network partitions, resets, slow links and full disks (SECONDS=$(SECONDS) STEPS= SEED=$(SEED) FAULTS=$(FAULTS) WORKLOAD=$(WORKLOAD))"
	@echo "make chaos-seeds     make chaos with each of five seeds, 40 faults each (SEEDS=$(SEEDS) STEPS=40), and a summary"
	@echo "make abuse   hostile clients next to an honest one, with limits (SEED=$(SEED) ATTACKS=$(ATTACKS)); writes docs/internals/abuse.md"
	@echo "make package  build a wheel and a source distribution into dist/, check, install and test them (PyPI)"
	@echo "make generate  regenerate the generated docs, tables and golden names from the source"
	@echo "make docs    build the docs site into build/site (PyPI); warnings are errors"
	@echo "make recipes  run the commands of docs/guides/orchestration.md with Airflow and dbt (PyPI, 700 MB)"
	@echo "make fuzz    send malformed frames to the decoder and to a broker (SEED=$(SEED))"

$(READY): pyproject.toml
	@echo "== setting up $(VENV) (Python packages from PyPI)"
	@$(or $(PYTHON),false) -m venv $(VENV)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Chronik requires Python 3.11 or newer")'
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

$(CLIENTS): $(READY) $(shell find tools/clients -type f -not -path "*/node_modules/*" -not -path "*/target/*")
	@echo "== installing the Kafka clients of the tests (npm, Debian, Maven Central)"
	@tools/clients/setup
	@$(BIN)/python -m tests.archives || echo "class data archives could not be created: tests with JVMs take longer"
	@touch $@

$(NETWORK): tools/clients/setup
	@echo "== installing tools for network namespaces (Debian)"
	@tools/clients/setup network
	@touch $@

# A separate environment, to keep the build tools out of the tests' environment.
$(PACKAGING):
	@echo "== installing build and twine (PyPI)"
	@mkdir -p .tools
	@$(or $(PYTHON),false) -m venv .tools/packaging
	@.tools/packaging/bin/pip install --quiet --disable-pip-version-check 'build>=1.2' 'twine>=6.1' 'setuptools>=77' \
		&& touch $@ || echo "build and twine could not be installed: packaging tests are skipped"

# A separate environment. Without PyPI, only the site is not built.
$(DOCS):
	@echo "== installing mkdocs (PyPI)"
	@mkdir -p .tools
	@$(or $(PYTHON),false) -m venv .tools/docs
	@.tools/docs/bin/pip install --quiet --disable-pip-version-check 'mkdocs>=1.6,<2' 'mkdocs-material>=9.6,<10' \
		&& touch $@ || echo "mkdocs-material could not be installed: the site is not built"

# A separate environment, because every pytest run would load its plugin.
$(SCHEMATHESIS):
	@echo "== installing schemathesis for the admin API tests (PyPI)"
	@mkdir -p .tools
	@$(or $(PYTHON),false) -m venv .tools/schemathesis
	@.tools/schemathesis/bin/pip install --quiet --disable-pip-version-check 'schemathesis>=4,<5' \
		&& touch $@ || echo "schemathesis could not be installed: its tests are skipped"

# Two environments, because Airflow and dbt need different versions of the same packages. Not part of `make test`, which runs
# the commands without them: the installation takes minutes.
$(RECIPES):
	@echo "== installing Airflow and dbt (PyPI)"
	@mkdir -p .tools
	@$(or $(PYTHON),false) -m venv .tools/airflow
	@.tools/airflow/bin/pip install --quiet --disable-pip-version-check 'apache-airflow>=3,<4'
	@$(or $(PYTHON),false) -m venv .tools/dbt
	@.tools/dbt/bin/pip install --quiet --disable-pip-version-check 'dbt-core>=1.11,<1.12' 'dbt-duckdb' 'deltalake' 'pyarrow'
	@touch $@

demo: $(READY)
	@$(BIN)/chronik demo $(if $(S3),--s3)

check: $(READY)
	@echo "== ruff"
	@$(BIN)/ruff check src tests bench tools
	@$(BIN)/ruff format --check --quiet src tests bench tools || { echo "run $(BIN)/ruff format"; exit 1; }
	@echo "== mypy --strict"
	@$(BIN)/mypy
	@echo "== prettier (npm)"
	@tools/clients/setup javascript
	@test -e .tools/missing/javascript || $(NPM_BIN)/prettier --check --log-level warn . || { echo "run $(NPM_BIN)/prettier --write ."; exit 1; }
	@echo "== tsc (npm)"
	@test -e .tools/missing/javascript || $(NPM_BIN)/tsc -p .
	@echo "== import rules"
	@$(BIN)/pytest -q -p no:cacheprovider tests/test_import_layers.py

# tests/quick.py defines which tests are quick.
quick: $(READY) $(COMPILED)
	@echo "== tests that start no processes"
	@$(BIN)/pytest -q -n 5 --dist worksteal --quick

# A full run starts a thousand Python processes, so bytecode is cached regardless of the environment.
quick test long $(COMPILED): export PYTHONDONTWRITEBYTECODE =

# Compile the tests once, in two processes; otherwise every worker would compile every test in a fresh clone.
$(COMPILED): | $(READY)
	@mkdir -p .tools
	@$(BIN)/pytest -q --collect-only tests/[a-c]* >/dev/null & $(BIN)/pytest -q --collect-only tests/[d-z]* >/dev/null; wait
	@touch $@

# More workers than cores, because cluster tests mostly wait; as many as the groups in tests/xdist_groups.py allow concurrently.
WORKERS ?= 5
# On a shared machine a test may fail because of a stall. Up to FEW failed tests are run again, one at a time, and reported
# by name. A test that fails twice, or more than FEW failures, fail the run: tests/retries.py
FEW ?= 8
test: $(READY) $(CLIENTS) $(PACKAGING) $(SCHEMATHESIS) $(COMPILED)
	@echo "== tests"
	@$(BIN)/pytest -q -n $(WORKERS) --dist loadgroup --retry-failed $(FEW)

# Tests with a full iteration count are those that import tests/run_size.py or the console's browser module. TESTS selects a
# directory: make long TESTS=tests/log
TESTS ?= tests
long: $(READY) fuzz
	@echo "== tests with full iteration counts, seed $(SEED)"
	@CHRONIK_LONG=1 CHRONIK_SEED=$(SEED) $(BIN)/pytest -q -n 2 $$(grep -rlE "^from tests(.run_size import| import run_size|.console.web.browser import)" $(TESTS) --include='test_*.py')
	@test "$(TESTS)" != tests || $(MAKE) --no-print-directory long-stores SEED=$(SEED)

# Tests of tables on S3 that do not depend on the server, with another implementation of S3.
S3_TESTS := $(addprefix tests/pipeline/object_store/,test_tables_on_s3.py test_landing_under_s3_faults.py test_unfinished_uploads.py)
long-stores: $(READY)
	@tools/clients/setup versitygw
	@echo "== tests of tables on S3 in Versity's gateway, seed $(SEED)"
	@test ! -x .tools/go/versitygw || CHRONIK_S3_SERVER=versitygw CHRONIK_LONG=1 CHRONIK_SEED=$(SEED) $(BIN)/pytest -q $(S3_TESTS)

RECORDS ?= 1000000
KILLS ?= 50
QUERIES ?= 100
# 0 lands without Spark, in the drivers' own processes.
SPARK_WORKERS ?= 2
FORMATS ?= delta iceberg
LANDING_SEEDS ?= 1 2
long-landing: $(READY)
	@for format in $(FORMATS); do for seed in $(LANDING_SEEDS); do \
		echo "== $$format tables, seed $$seed"; \
		$(BIN)/python -m tests.pipeline.landing_stress --s3 --drivers 2 --records $(RECORDS) --kills $(KILLS) \
			--queries $(QUERIES) --workers $(SPARK_WORKERS) --table-format $$format --seed $$seed || exit 1; \
	done; done

fuzz: $(READY)
	@$(BIN)/python -m tests.fuzz --seed $(SEED)

# RATE: records per second of a workload; REPLICATION: replicas of its topics. See docs/internals/chaos.md.
SECONDS ?= 60
FAULTS ?= all
WORKLOAD ?= all
RATE ?= 120
REPLICATION ?= 3
STEPS ?=
# Monitors check as often as possible.
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
	@$(BIN)/python -m tests.abuse.run --seed $(SEED) --attacks $(ATTACKS) --report docs/internals/abuse.md

package: $(PACKAGING)
	@.tools/packaging/bin/python -m tests.packaging.run

generate: $(READY)
	@$(BIN)/python -m chronik.configs.listing
	@$(BIN)/python -m chronik.console.rest.listing
	@$(BIN)/python -m chronik.console.registry.listing
	@$(BIN)/python -m chronik.console.metrics.listing
	@$(BIN)/python -m chronik.security.permission_table
	@$(BIN)/python -m tools.docs
	@$(BIN)/python -m tests.test_public_names

# Generate pages and images first; tools/docs/__main__.py lists them.
docs: $(READY) $(DOCS)
	@$(BIN)/python -m tools.docs
	@test ! -e $(DOCS) || NO_MKDOCS_2_WARNING=1 .tools/docs/bin/mkdocs build --strict --quiet
	@test ! -e $(DOCS) || echo "build/site/index.html"

recipes: $(READY) $(RECIPES)
	@$(BIN)/pytest -q tests/pipeline/landing/test_docs_orchestration.py

bench: $(READY)
	@$(BIN)/python -m bench --keep

bench-peers: $(READY)
	@tools/clients/setup apache-kafka
	@$(BIN)/python -m bench.peers --keep

MINUTES ?= 60
bench-tabs: $(READY)
	@tools/clients/setup browser
	@$(BIN)/python -m bench.tabs --minutes $(MINUTES) --keep

bench-tails: $(READY)
	@tools/clients/setup apache-kafka
	@$(BIN)/python -m bench.tails --keep

bench-transactions: $(READY)
	@tools/clients/setup apache-kafka
	@$(BIN)/python -m bench.transactions --keep

bench-security: $(READY)
	@tools/clients/setup apache-kafka kafka-tools
	@$(BIN)/python -m bench.security --keep

bench-fairness: $(READY)
	@tools/clients/setup apache-kafka
	@$(BIN)/python -m bench.fairness --keep

BASE ?= HEAD
ROUNDS ?= 15
compare: $(READY)
	@$(BIN)/python -m bench.compare --base $(BASE) --rounds $(ROUNDS)

bench-cluster: $(READY)
	@$(BIN)/python -m bench.cluster --keep

bench-pipeline: $(READY)
	@$(BIN)/python -m bench.pipeline --long --keep

clean:
	rm -rf $(VENV) .tools .mypy_cache .ruff_cache .pytest_cache build dist
