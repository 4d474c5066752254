# `make` alone lists the targets. Everything that CI does is one of them.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes
SIZE = $(if $(CLIENTS),--set sweep=null $(foreach name,mobile device,\
	--set populations.$(name).clients=$$(( $(CLIENTS) / 2 ))) $(RAMP))
# A short ramp needs frequent readings for a line of memory over connections.
RAMP = $(shell test $(CLIENTS) -gt 100000 || \
	echo --set monitors.interval=100ms --set snapshot_interval=200ms)
# Test processes side by side: most of a test is waiting.
WORKERS ?= 3
SIDE_BY_SIDE = --numprocesses=$(WORKERS) --dist=loadgroup --max-worker-restart=0
# With pubstorm-zmq, libraries have the features that they have in `programs`: none is built again.
BROKER := -p pubstorm-broker -p pubstorm-zmq
FUZZ := --manifest-path fuzz/Cargo.toml
PROGRAMS := -p pubstorm-engine -p pubstorm-broker -p pubstorm-proxy -p pubstorm-zmq

.PHONY: help build demo test test-rust test-python test-tools simulate lint lint-rust lint-python \
	format bench scale docs docs-site pictures requirements wheel clean programs demo-programs

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

build: .venv/ready programs ## Build the programs and install Pubstorm into .venv

demo: ## Run scenarios/quickstart.yaml on the embedded broker
	$(MAKE) --jobs=2 .venv/ready demo-programs
	$(BIN)/pubstorm run scenarios/quickstart.yaml

# What the demo needs. libzmq and the two other programs take a sixth of the time of all four.
demo-programs:
	cargo build --locked --release -p pubstorm-engine -p pubstorm-broker

test: test-rust test-python ## Run every test; installs the brokers and Chromium when root

test-rust: programs test-tools
	cargo test --locked --workspace --exclude pubstorm-broker
	cargo test --locked --release $(BROKER) --bin pubstorm-broker --test broker

test-python: .venv/ready-dev programs test-tools
	$(BIN)/pytest $(SIDE_BY_SIDE) --durations=30

test-tools:
	scripts/install-test-tools

simulate: ## Play the engine in virtual time; SEEDS=200000 plays as many plans, FROM=17 begins there
	SIMULATE_SEEDS=$(or $(SEEDS),20000) SIMULATE_FROM=$(or $(FROM),0) cargo test --locked --release \
		$(PROGRAMS) --bin pubstorm-engine -- --nocapture simulation::whole_plans

lint: lint-rust lint-python ## Check format, style and types

lint-rust:
	cargo fmt --check
	cargo clippy --locked --release --workspace --all-targets -- -D warnings
	CUSTOM_LIBFUZZER_PATH=/unused.a cargo check --release --locked --target-dir target $(FUZZ)

lint-python: .venv/ready-dev
	$(BIN)/ruff format --check . && $(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: .venv/ready-dev ## Format the code
	cargo fmt
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/ready ## Measure what the engine costs, as ratios against plain sockets
	cargo build --locked --release $(PROGRAMS) -p pubstorm-baseline
	@status=0; for part in bench publisher report seeding; do \
		$(BIN)/python -m benches.$$part || status=1; done; exit $$status

scale: build ## Hold a million connections, then 1.5 and 2.4 million; CLIENTS=20000 holds so many
	$(BIN)/pubstorm run scenarios/million.yaml $(SIZE)

docs-site: .venv/ready-dev ## Build the documentation as a site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

docs: .venv/ready ## Generate docs/reference and the JSON Schemas
	$(BIN)/python docs/generate.py .

pictures: build test-tools ## Make the pictures of README and guides from real runs
	scripts/pictures

requirements: .venv/ready-dev ## Lock the Python dependencies again
	scripts/lock-requirements

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
