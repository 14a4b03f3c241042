# Understudy. `make help` lists the commands. Everything runs in its own virtual environment, .venv.
VENV    := .venv
BIN     := $(VENV)/bin
RUNS    := $(VENV)/.installed-to-run
STAMP   := $(VENV)/.installed
WHEEL   := $(VENV)/.installed-wheel
SOURCES := understudy broker ha spark resource_agent
MESSAGES ?= 60000
AUTHORITY ?= manual
SEEDS    ?= 1000
FIRST    ?= 1
SOAK_SEEDS ?= 20000
NETS     ?= 20
SOAK_NETS ?= 300
FUZZ_SECONDS ?= 600
HISTORIES ?= 200
ROUNDS   ?= 100
SEED     ?=
COMPILED ?=
COMPILED_TESTS := tests/broker tests/ha tests/hostile tests/bad_inputs tests/compatibility tests/understudy/client tests/understudy/quarantine tests/understudy/server tests/understudy/shared
WORKERS  ?= 3
ARGS     ?=
SYSTEM   := system or tools
SOAKED   := tests/ha tests/simulation/faults tests/spark/insight tests/spark/reconcile tests/spark/watch tests/spark/test_histories.py
MEASURED := $(BIN)/python scripts/measure.py
PYTEST   := $(BIN)/python -m pytest -n $(WORKERS) --durations=10 --durations-min=0.5

# Installs of this checkout run its source, and wheels of tests are plain: nothing is compiled but by the targets for it.
export UNDERSTUDY_COMPILE := 0

# Hundreds of the processes that the tests start would compile all of the source each time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup develop java demo demo-federation test compiled test-compiled wheel test-system test-longer test-cluster test-cluster-smoke test-deploy test-spark-cluster check lint types bench bench-compare bench-durable bench-federation bench-gate bench-hostile bench-management bench-numbers bench-steady sim soak soak-exactly-once soak-simulation soak-sweeps soak-ledgers soak-fuzz docs reference format clean

help: ## List the commands
	@echo "make demo                     a pair under load, kill -9 of the primary, promotion, Spark's verdict, a report"
	@echo "make demo MESSAGES=200000     the same with more messages; AUTHORITY=pair or etcd: nobody promotes"
	@echo "make demo-federation          a pair and three brokers over long lines: one is cut and mended, the primary killed; each message counted"
	@echo "make test                     the tests, at most 8 minutes (ARGS='-k link -x' goes to pytest; WORKERS=0: in one process)"
	@echo "make test-compiled            the tests of brokers, nodes and clients with compiled modules (it needs gcc)"
	@echo "make wheel                    a wheel with compiled modules for this Python and machine, in dist, checked away from the tree (it needs gcc)"
	@echo "make test-system              the longer tests: more failovers of real processes, Spark jobs, seeds of the simulation; as root deploy/ and test-cluster-smoke"
	@echo "make test-cluster             Pacemaker, corosync, fencing and a virtual IP on machines in containers, and all that may go wrong (root, Debian; it installs what it needs)"
	@echo "make test-cluster-smoke       five cases of these, and partitions of real nodes in network namespaces (root)"
	@echo "make test-deploy              what is in deploy/, held against the tools that it is for (as root: all, and it installs them)"
	@echo "make test-spark-cluster       the reconciling job on a standalone Spark cluster and on Spark Connect, with 20,000,000 messages and a worker killed in the middle (minutes)"
	@echo "make check                    format, lint, strict types, import direction, then the tests"
	@echo "make bench                    rates, CPU per message and confirm latency (writes bench/README.md); space on disk over 10,000,000 messages"
	@echo "make bench-gate               fails if a message costs clearly more CPU time than its baseline says (ARGS=--store: a new baseline)"
	@echo "make bench-steady ARGS='--seconds 60'   pauses of the event loop at half of the maximum load, with 1,000,000 messages queued (ten minutes for each of two systems)"
	@echo "make bench-durable ARGS=--quick   what durability costs: confirms, stalls, starts, returns, space (whole: ten minutes)"
	@echo "make bench-compare            RabbitMQ (apt install rabbitmq-server) and Understudy under the same loads, and what ledger and metrics cost (writes bench/README.md; most of an hour; ARGS=--main: the first seven loads, some ten minutes; ARGS='--only mix': one load; neither writes)"
	@echo "make bench-federation ARGS=--quick   rates, octets and lines of federation between two nodes, and RabbitMQ's federation and shovel beside it (writes bench/README.md if it is a whole run)"
	@echo "make bench-hostile ARGS=logins    what an honest client notices of an attack: waits, stops, memory, link"
	@echo "make bench-numbers            what numbers of messages cost a producer that has them (writes bench/README.md; four minutes)"
	@echo "make bench-management         what sampling, lists of RabbitMQ's API and scrapes cost the event loop (a minute)"
	@echo "make sim SEEDS=1000 FIRST=1   the seeded simulation of pairs under faults (COMPILED=1: for long runs; it needs gcc), after NETS=20 nets of several clusters"
	@echo "make soak ROUNDS=100 SEED=1   rounds of faults on real nodes under load: kill, freeze, cut, partition, reconcile"
	@echo "make soak-exactly-once ROUNDS=100 SEED=1   rounds of kill, resend, restart: each message once in each queue"
	@echo "make soak-simulation SOAK_SEEDS=20000   every hand-made bug hunted by the simulation, then a long run"
	@echo "make soak-sweeps              each test that tries a sample of bytes, ticks or faults, with all of them; the longest Spark jobs"
	@echo "make soak-ledgers HISTORIES=200 SEED=1   histories with faults planted in them: Spark and DuckDB find these, and no others; NETS=10 of federated pairs"
	@echo "make soak-fuzz FUZZ_SECONDS=600   conversations of AMQP 0-9-1 and 1.0 that nobody should hold, drawn from seeds"
	@echo "make docs                     the documents as a site, in build/site; fails for a link that leads nowhere"
	@echo "make reference                the pages of commands and of settings anew, from the program"
	@echo "make setup                    only the set-up of the demo, which it does by itself"
	@echo "make develop                  the set-up of all others, which they do by themselves"
	@echo "make format                   format the source and sort its imports"
	@echo "make clean                    remove the virtual environment, caches and builds"

# What the demo needs; and what tests, checks and benchmarks need besides.
$(RUNS): pyproject.toml scripts/find_python.sh
	@python=$$(sh scripts/find_python.sh) && \
	  { test -x $(BIN)/python || "$$python" -m venv $(VENV); } && \
	  echo "installing into $(VENV)" && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517 --editable '.[spark]' && \
	  touch $(RUNS)

$(STAMP): $(RUNS)
	@echo "installing the tools for development into $(VENV)" && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[spark,dev,deploy,docs]' && \
	  { $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[amqp10]' || \
	    echo "python-qpid-proton could not be built (it needs a C compiler and OpenSSL's headers): AMQP 1.0 is left out, and its tests are skipped" >&2; } && \
	  touch $(STAMP)

$(WHEEL): $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[wheel]' && touch $(WHEEL)

java:
	@sh scripts/ensure_java.sh >/dev/null

setup: $(RUNS) java ## A virtual environment with what the demo needs, and a Java for Spark

develop: $(STAMP) java ## The same, with what tests, checks and benchmarks need

demo: setup
	@JAVA_HOME=$$(sh scripts/ensure_java.sh) $(BIN)/understudy demo --messages $(MESSAGES) --authority $(AUTHORITY) $(ARGS)

demo-federation: setup
	@JAVA_HOME=$$(sh scripts/ensure_java.sh) $(BIN)/understudy demo --federation --messages $(MESSAGES) $(ARGS)

test: develop
	@JAVA_HOME=$$(sh scripts/ensure_java.sh) $(MEASURED) "make test" $(PYTEST) $(ARGS)

# As root also what is in deploy/ (in the same processes), and then `make test-cluster-smoke`.
test-system:
	@$(MAKE) --no-print-directory test-longer; longer=$$?; \
	  if [ "$$(id -u)" = 0 ]; then $(MAKE) --no-print-directory test-cluster-smoke; fi; smoke=$$?; \
	  exit $$((longer | smoke))

# COMPILED=1: with nodes of compiled modules.
test-longer: develop $(if $(COMPILED),compiled)
	@JAVA_HOME=$$(sh scripts/ensure_java.sh); export JAVA_HOME; \
	  export UNDERSTUDY_TEST_NODES=$(if $(COMPILED),$(CURDIR)/build/compiled); \
	  if [ "$$(id -u)" != 0 ]; then exec $(MEASURED) "make test-longer" $(PYTEST) -m system $(ARGS); fi; \
	  sh scripts/ensure_cluster_tools.sh; \
	  UNDERSTUDY_TEST_TOOLS=required $(MEASURED) "make test-longer" $(PYTEST) -m '$(SYSTEM)' $(ARGS)

test-cluster: develop
	@sh scripts/ensure_namespaces.sh
	@JAVA_HOME=$$(sh scripts/ensure_java.sh) $(BIN)/python -m pytest -m cluster tests/cluster tests/failover $(ARGS)
	@JAVA_HOME=$$(sh scripts/ensure_java.sh) $(BIN)/python -m pytest -m cluster tests/deploy/test_operations_site.py

test-cluster-smoke: develop
	@sh scripts/ensure_namespaces.sh
	@JAVA_HOME=$$(sh scripts/ensure_java.sh) $(MEASURED) "make test-cluster-smoke" \
	  $(BIN)/python -m pytest --durations=10 -m smoke tests/cluster tests/failover $(ARGS)

test-deploy: develop
	@sh scripts/ensure_cluster_tools.sh
	@[ "$$(id -u)" != 0 ] || export UNDERSTUDY_TEST_TOOLS=required; \
	  $(MEASURED) "make test-deploy" \
	  $(BIN)/python -m pytest -m 'tools or machine or not tools' tests/deploy --ignore tests/deploy/test_operations_site.py $(ARGS)

test-spark-cluster: develop
	@JAVA_HOME=$$(sh scripts/ensure_java.sh) $(BIN)/python -m pytest -m soak tests/spark/engine $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: $(STAMP)
	$(BIN)/mypy

check: lint types test

bench: $(STAMP)
	@$(BIN)/python -m bench.run $(ARGS)
	@$(if $(ARGS),:,$(BIN)/python -m bench.durable space)

bench-compare: $(STAMP)
	@$(BIN)/python -m bench.compare $(ARGS)
	@$(if $(ARGS),:,$(BIN)/python -m bench.compare.overhead)

bench-hostile: $(STAMP)
	@$(BIN)/python -m bench.hostile $(ARGS)

bench-durable: $(STAMP)
	@$(BIN)/python -m bench.durable $(ARGS)

bench-federation: $(STAMP)
	@$(BIN)/python -m bench.federation $(ARGS)

bench-gate: $(STAMP)
	@$(BIN)/python -m bench.gate $(ARGS)

bench-numbers: $(STAMP)
	@$(BIN)/python -m bench.compare.numbers $(ARGS)

bench-management: $(STAMP)
	@$(BIN)/python -m bench.management $(ARGS)

bench-steady: $(STAMP)
	@$(BIN)/python -m bench.steady $(ARGS)

# What is compiled already is used again.
compiled: $(STAMP)
	@$(BIN)/python -m scripts.compiled $(CURDIR)/build/compiled

test-compiled: compiled
	@UNDERSTUDY_COMPILED=$(CURDIR)/build/compiled $(MEASURED) "make test-compiled" $(PYTEST) $(COMPILED_TESTS) $(ARGS)

wheel: $(WHEEL)
	@$(BIN)/python -m scripts.compiled.wheel $(ARGS)

sim: $(STAMP)
ifneq ($(NETS),0)
	@$(BIN)/python -m tests.simulation.nets --seeds $(NETS) --first $(FIRST)
endif
ifneq ($(COMPILED),)
	@$(BIN)/python -m tests.simulation.compiled build/simulation
endif
	@$(if $(COMPILED),PYTHONPATH=$(CURDIR)/build/simulation) $(BIN)/python $(if $(COMPILED),-P) -m tests.simulation --seeds $(SEEDS) --first $(FIRST) $(ARGS)

soak: develop
	@JAVA_HOME=$$(sh scripts/ensure_java.sh) \
	  $(BIN)/python -m tests.failover.soak.rounds --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

soak-simulation: $(STAMP)
	@$(BIN)/python -m pytest -m soak tests/simulation/compiled; compiled=$$?; \
	  $(BIN)/python -m tests.simulation.mutants; mutants=$$?; \
	  $(BIN)/python -m tests.simulation.nets --seeds $(SOAK_NETS) --first $(FIRST); nets=$$?; \
	  $(BIN)/python -m tests.simulation --seeds $(SOAK_SEEDS) --first $(FIRST) --check-coverage $(ARGS) && \
	  exit $$((compiled | mutants | nets))

soak-exactly-once: develop
	@JAVA_HOME=$$(sh scripts/ensure_java.sh) \
	  $(BIN)/python -m tests.failover.soak.exactly_once --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

soak-sweeps: develop
	@JAVA_HOME=$$(sh scripts/ensure_java.sh) $(MEASURED) "make soak-sweeps" $(PYTEST) -m soak $(SOAKED) $(ARGS)

soak-ledgers: NETS = 10
soak-ledgers: develop
	@JAVA_HOME=$$(sh scripts/ensure_java.sh) \
	  $(BIN)/python -m tests.spark.histories --histories $(HISTORIES) $(if $(SEED),--first $(SEED)) $(ARGS)
	@JAVA_HOME=$$(sh scripts/ensure_java.sh) \
	  $(BIN)/python -m tests.spark.histories.nets --histories $(NETS) $(if $(SEED),--first $(SEED))

soak-fuzz: $(STAMP)
	@$(BIN)/python -m tests.hostile.fuzz --seconds $(FUZZ_SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

docs: $(STAMP)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

reference: $(STAMP)
	@$(BIN)/python scripts/reference.py

format: $(STAMP)
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist bench/.build bench/durable/.build bench/store/.build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -rf .import_linter_cache spark-warehouse metastore_db
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
