# Everything is installed once: each stamp in .venv means that a lock file has been installed.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install install-dev format lint typecheck check test schema soak test-supabase demo up bench-queue bench-local bench-worker bench-crawl bench-extract lock clean

PYTHON ?= python3
BIN := .venv/bin
# Tests of one file share their servers, so they run in one process.
PARALLEL := --numprocesses 2 --dist loadfile
CODE := worker local tests benchmarks examples

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: .venv/.runtime ## Install silkline and the local stack into .venv

install-dev: .venv/.dev .venv/.servers ## Install what the tests and checks need

format: .venv/.dev ## Format the Python code
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

lint: .venv/.dev ## Lint the Python code
	$(BIN)/ruff check $(CODE)

# With ./, because basedpyright takes `worker` for a subcommand, checks nothing and succeeds.
typecheck: .venv/.dev ## Type-check the Python code
	$(BIN)/basedpyright $(addprefix ./,$(CODE))

check: lint typecheck ## Lint, type-check and check the formatting
	$(BIN)/ruff format --check $(CODE)

# Without the URL of a project: only test-supabase may reach a real one.
test: .venv/.dev .venv/.servers ## Run all tests (PYTEST='-k claim --postgres 18' to select)
	env -u SUPABASE_URL $(BIN)/python -m pytest $(PARALLEL) $(PYTEST)

schema: .venv/.dev ## Write docs/reference/schema.sql again
	WRITE_SCHEMA=1 $(BIN)/python -m pytest -q tests/repository/test_schema.py

soak: .venv/.dev .venv/.servers ## Run the property tests on many new random examples
	env -u SUPABASE_URL $(BIN)/python -m pytest -m hypothesis --hypothesis-profile soak $(PYTEST)

test-supabase: .venv/.dev .venv/.servers ## Run the fidelity tests against the project SUPABASE_URL
	@: "$${SUPABASE_URL:?set it to the URL of the project}"
	@: "$${SUPABASE_SECRET_KEY:-$${SUPABASE_SERVICE_ROLE_KEY:?or SUPABASE_SECRET_KEY}}"
	@: "$${SUPABASE_PUBLISHABLE_KEY:-$${SUPABASE_ANON_KEY:?or SUPABASE_PUBLISHABLE_KEY}}"
	$(BIN)/python -m pytest tests/fidelity $(PYTEST)

demo: .venv/.runtime ## Crawl a small site on this machine and show its pages as Markdown
	$(BIN)/python examples/demo/demo.py

up: .venv/.runtime ## Run the local stack, a stand-in for Supabase; Ctrl-C stops it
	$(BIN)/silkline up

bench-queue: .venv/.dev ## Measure the queue next to its peers (ARGS=--quick for less)
	PYTHON=$(PYTHON) benchmarks/queue/run.sh $(ARGS)

bench-local: .venv/.dev ## Measure the local stack (ARGS=--quick for less)
	$(BIN)/python -m benchmarks.local $(ARGS)

bench-worker: .venv/.dev ## Measure the worker (ARGS=--quick for less)
	$(BIN)/python -m benchmarks.worker $(ARGS)

bench-crawl: .venv/.dev ## Measure the crawler next to its peers (ARGS=--quick for less)
	PYTHON=$(PYTHON) benchmarks/crawl/run.sh $(ARGS)

bench-extract: .venv/.dev ## Measure the extractor next to trafilatura (ARGS=--quick for less)
	PYTHON=$(PYTHON) benchmarks/extract/run.sh $(ARGS)

lock: ## Update the lock files (needs uv)
	uv pip compile $(LOCK) --output-file requirements.lock
	uv pip compile $(LOCK) --extra browser --group dev --constraint requirements.lock \
		--output-file requirements-dev.lock
	uv pip compile benchmarks/queue/requirements.in $(LOCK_OPTIONS) \
		--output-file benchmarks/queue/requirements.lock
	uv pip compile benchmarks/crawl/requirements.in $(LOCK_OPTIONS) \
		--output-file benchmarks/crawl/requirements.lock
	uv pip compile benchmarks/extract/requirements.in $(LOCK_OPTIONS) \
		--output-file benchmarks/extract/requirements.lock

clean: ## Remove the installed environments and all caches
	rm -rf .venv .venv-bench .venv-bench-crawl .venv-bench-extract
	rm -rf .pytest_cache .ruff_cache .hypothesis dist
	rm -rf tests/tools/node_modules benchmarks/queue/peers/node_modules
	find $(CODE) -name __pycache__ -prune -exec rm -rf {} +

LOCK_OPTIONS := --universal --python-version 3.11 --upgrade --quiet \
	--generate-hashes --no-emit-index-url --no-annotate --no-header
LOCK := pyproject.toml --extra local $(LOCK_OPTIONS)

# The package itself is installed, too: `silkline` is one of its entry points.
.venv/.runtime: requirements.lock pyproject.toml
	scripts/install-python.sh $(PYTHON) requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

.venv/.dev: requirements-dev.lock pyproject.toml
	scripts/install-python.sh $(PYTHON) requirements-dev.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

.venv/.servers: tests/tools/package-lock.json scripts/install-servers.sh | .venv/.dev
	scripts/install-servers.sh
	touch $@
