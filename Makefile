# `make` alone lists the targets. Everything that CI does is one of them.

PYTHON ?= python3
BIN := .venv/bin
LOCKED := bin/pip install --quiet --disable-pip-version-check --require-hashes
PIP := .venv/$(LOCKED)
SIZE = $(if $(CLIENTS),--set sweep=null $(foreach name,mobile device,\
	--set populations.$(name).clients=$$(( $(CLIENTS) / 2 ))) $(RAMP))
# A short ramp needs frequent readings for a line of memory over connections.
RAMP = $(shell test $(CLIENTS) -gt 100000 || \
	echo --set monitors.interval=100ms --set snapshot_interval=200ms)
# The gate compiles once: programs and tests share a profile and a folder, and the compiler of
# our own crates is clippy, which stops at its first warning. Without clippy, it is rustc.
CLIPPY := $(shell rustup which clippy-driver 2>/dev/null || command -v clippy-driver)
COMPILER = $(if $(CLIPPY),RUSTC_WORKSPACE_WRAPPER=$(CLIPPY) \
	CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__)
CI_CARGO = $(COMPILER) cargo $(1) --locked --profile ci --workspace
# Test processes side by side: most of a test is waiting.
WORKERS ?= 4
PYTEST = $(BIN)/pytest --dist=loadgroup --no-loadscope-reorder --spent target/tests/$@.jsonl
TESTED = .venv/ready-dev test-programs test-tools
SPENT = $(BIN)/python -m tests.kit.spent
FUZZ := --manifest-path fuzz/Cargo.toml
PROGRAMS := -p pubstorm-engine -p pubstorm-broker -p pubstorm-proxy -p pubstorm-zmq

# `make test` has two lanes of targets. CHECKS=yes adds what CI checks besides tests, WORLD=4 adds
# 4 minutes of the world that concern what has changed since it passed whole.
RUST_LANE = test-programs +test-tools test-rust $(if $(CHECKS),lint-fuzz)
PYTHON_LANE = test-tools .venv/ready-dev $(if $(CHECKS),lint-format lint-python) \
	+test-programs test-pure-python test-system $(if $(WORLD),test-world-changes) test-budget

.PHONY: help build demo test test-pure test-pure-python test-rust test-programs test- system \
	test-world test-world-changes test-lowest test-budget test-tools steady truth verdicts golden \
	same simulate lint lint-rust lint-fuzz lint-format lint-python format house bench scale docs \
	docs-site brokers results pictures requirements advisories wheel clean programs demo-programs

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

build: .venv/ready programs ## Build the programs and install Pubstorm into .venv

demo: ## Run scenarios/quickstart.yaml on the embedded broker
	$(MAKE) --jobs=2 .venv/ready demo-programs
	$(BIN)/pubstorm run scenarios/quickstart.yaml

# What the demo needs. libzmq and the two other programs take a sixth of the time of all four.
demo-programs:
	cargo build --locked --release -p pubstorm-engine -p pubstorm-broker

test: ## Run pure and system tests; installs the brokers and Chromium when root
	$(PYTHON) scripts/lanes.py "$(strip $(RUST_LANE))" "$(strip $(PYTHON_LANE))"

test-pure: test-rust test-pure-python ## Run tests that need no program but cargo's

test-system: $(TESTED) ## Run tests on real brokers, processes and a browser
	$(PYTEST) --numprocesses=$(WORKERS) tests/system

test-world: $(TESTED) ## Play every ready scenario, cluster fault and page
	$(PYTEST) --numprocesses=4 tests/world

test-world-changes: $(TESTED)
	$(PYTEST) --numprocesses=4 --world-of-changes=$(WORLD) tests/world || test $$? = 5

test-programs:
	$(call CI_CARGO,build) --lib --bins --tests

test-rust: test-programs test-tools
	$(call CI_CARGO,test) -- --test-threads=8

test-pure-python: .venv/ready-dev test-programs
	$(PYTEST) --numprocesses=2 tests/pure

# Texts that libraries write are compared with the newest ones only.
test-lowest: .venv-lowest/ready test-programs ## Run pure tests with the oldest allowed libraries
	.venv-lowest/bin/pytest --numprocesses=2 tests/pure \
		--ignore=tests/pure/house --ignore=tests/pure/same

.venv-lowest/ready: requirements-dev.txt requirements-lowest.txt
	$(PYTHON) -m venv .venv-lowest && .venv-lowest/$(LOCKED) -r requirements-dev.txt
	.venv-lowest/$(LOCKED) --no-deps -r requirements-lowest.txt
	.venv-lowest/bin/pip install --quiet --no-deps --no-build-isolation -e . && touch $@

test-budget: .venv/ready-dev
	$(SPENT) check target/tests/test-pure-python.jsonl target/tests/test-system.jsonl

GOLDEN := cli experiment host play report result same scenario

golden: .venv/ready-dev ## Write the golden files of messages and pages again; read the difference
	UPDATE_GOLDEN=1 $(BIN)/pytest --quiet $(addprefix tests/pure/,$(GOLDEN))

.PHONY: same
same: .venv/ready-dev ## Render ten recorded runs; all that users see has to be as it was
	$(BIN)/pytest --quiet --numprocesses=2 tests/pure/same

steady: $(TESTED) ## Repeat tests beside a busy machine; TIMES=30 STALLS=yes TESTS=tests/system
	$(BIN)/python scripts/steady.py --times $(or $(TIMES),30) $(if $(STALLS),--stalls) $(TESTS)

truth: .venv/ready-dev ## Play 1,000 searches and comparisons of models whose answers are known
	$(BIN)/python -m tests.kit.known_truth $(or $(TIMES),1000)

# One after the other: what beside them runs would be a part of the situation.
verdicts: $(TESTED) ## Provoke what can limit a run, quiet and beside loops; store the verdicts
	mkdir -p target/tests && : > target/tests/verdicts.jsonl
	$(BIN)/pytest tests/verdicts
	$(BIN)/python -m tests.kit.verdict_table

test-tools:
	scripts/install-test-tools

simulate: ## Play the engine in virtual time; SEEDS=200000 plays as many plans, FROM=17 begins there
	SIMULATE_SEEDS=$(or $(SEEDS),20000) SIMULATE_FROM=$(or $(FROM),0) cargo test --locked --release \
		$(PROGRAMS) -p pubstorm-simulator --test simulator -- --nocapture whole_plans

lint: lint-format lint-rust lint-python ## Check format, style and types

lint-rust: test-programs lint-fuzz

lint-fuzz:
	CUSTOM_LIBFUZZER_PATH=/unused.a cargo check --locked --target-dir target $(FUZZ)

# The lock file of the fuzz targets is read first: their own check comes last in its lane.
lint-format: .venv/ready-dev
	cargo metadata --locked --format-version 1 $(FUZZ) >target/fuzz-crates.json
	cargo fmt --check
	$(BIN)/ruff format --check .

lint-python: .venv/ready-dev
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: .venv/ready-dev ## Format the code
	cargo fmt
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

house: .venv/ready-dev ## Count and draw the structure; OF="a counter" lists, STORE=yes stores
	$(if $(STORE),UPDATE_GOLDEN=1 $(BIN)/pytest --quiet tests/pure/house/test_walks.py)
	@$(BIN)/python -m scripts.house $(if $(STORE),--store,$(if $(OF),"$(OF)"))

bench: .venv/ready ## Measure what the engine costs, as ratios against plain sockets
	cargo build --locked --release $(PROGRAMS) -p pubstorm-baseline
	@status=0; for part in bench publisher ways report seeding; do \
		$(BIN)/python -m benches.$$part || status=1; done; exit $$status

scale: build ## Hold a million connections, then 1.5 and 2.4 million; CLIENTS=20000 holds so many
	$(BIN)/pubstorm run scenarios/million.yaml $(SIZE)

docs-site: .venv/ready-dev ## Build the documentation as a site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

docs: .venv/ready ## Generate docs/reference and the JSON Schemas
	$(BIN)/python -m docs.generate .

brokers: build ## Measure docs/brokers.md; NAMES="mosquitto nats" FOR=8min OF=protocols; continues
	$(BIN)/python scripts/measure_brokers.py --of $(or $(OF),brokers) --for $(or $(FOR),8min) $(NAMES)

results: build ## Play rows of docs/results.md again; NAMES="connection-ladder" SINCE=2026-11-28
	$(BIN)/python scripts/measure_results.py $(if $(SINCE),--since $(SINCE)) $(NAMES)

pictures: build test-tools ## Make the pictures of README and guides from real runs
	scripts/pictures

requirements: .venv/ready-dev ## Lock the Python dependencies again
	scripts/lock-requirements

# `instant`, a crate of the embedded broker, has no maintainer.
RUSTSEC := cargo audit --deny warnings --ignore RUSTSEC-2024-0384 --file
PYPA := pip-audit --strict --require-hashes --disable-pip $(addprefix --requirement=,\
	requirements.txt requirements-dev.txt requirements-wheel.txt)

advisories: ## Compare the locks with advisories; needs cargo-audit, pip-audit and the network
	$(RUSTSEC) Cargo.lock
	$(RUSTSEC) fuzz/Cargo.lock
	$(PYPA)

wheel: .venv/ready-wheel ## Build an sdist, and wheels for x86_64 and aarch64, into dist/
	scripts/build-wheels

clean: ## Remove everything that was built
	rm -rf .venv dist target

programs:
	cargo build --locked --release $(PROGRAMS)

.venv/ready: requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv && $(PIP) -r requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.venv/ready-%: .venv/ready requirements-%.txt
	$(PIP) -r requirements-$*.txt
	@touch $@
