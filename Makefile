# Every way to run, test and change Tidings. `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# The newest Python that really starts: a name on PATH may be a version manager's stand-in for one that is not there.
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3.14 python3; do \
	"$$python" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; \
	done)

# Programs the tests drive, as command:package. Each is installed when missing, if this is Debian and we are root.
PROGRAMS := node:nodejs chromium:chromium nginx:nginx $(if $(wildcard web/package-lock.json),npm:npm)

JS_TESTS = $(shell find web tests -name '*.test.js' -not -path '*/node_modules/*' 2>/dev/null | sort)
JS_READY := $(if $(wildcard web/package-lock.json),web/node_modules/.ready)

# The source roots that have Python in them.
TYPED = $(foreach root,publisher gateway tests loadtest deploy,$(if $(shell find $(root) -name '*.py' -print -quit 2>/dev/null),$(root)))

NODE_TEST = $(if $(JS_TESTS),@if command -v node >/dev/null; then node --test $(JS_TESTS); \
	else echo "SKIPPED: the tests of the browser client need node"; fi)
PYTEST := $(BIN)/python -m pytest
# More than cores: a test waits, for a process or a deadline, about as long as it works.
WORKERS ?= 3
SECONDS_OF_CHAOS ?= 60
MINUTES_OF_FUZZ ?= 60
REDIS ?=
# For `make storm`: why these, and all the others, is in loadtest/README.md.
USERS ?= 500
STRIKE ?= cut
SECONDS ?= 10
RATE ?= 100
STORM_FLAGS ?=

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: programs $(READY) $(JS_READY) ## everything the other targets need (they call it themselves)

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Tidings needs Python 3.11 or newer with venv (on Debian: apt-get install python3-venv)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing Tidings and what its tests need into $(VENV): half a minute to two, the first time only."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' --group test
	@touch $@

web/node_modules/.ready: web/package-lock.json
	cd web && npm ci --no-audit --no-fund
	@touch $@

.PHONY: programs
programs:
	@missing=(); \
	for pair in $(PROGRAMS); do command -v "$${pair%%:*}" >/dev/null || missing+=("$${pair##*:}"); done; \
	if [ $${#missing[@]} -eq 0 ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$${missing[@]}"; \
	else \
		echo "MISSING: $${missing[*]}. Their tests are skipped; please install them to run everything."; \
	fi

.PHONY: check
check: $(READY) ## format, lint, types
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy $(TYPED)

.PHONY: format
format: $(READY) ## put the code in its format and mend what the linter can
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format --quiet

.PHONY: test
test: setup check ## check, then all tests but the long versions (about 8 minutes on 2 cores)
	@echo "All tests but the long ones: about 8 minutes on 2 cores."
	$(NODE_TEST)
	$(PYTEST) -n $(WORKERS) -m 'not full'

.PHONY: test-all
test-all: setup check ## everything, also the long versions
	$(NODE_TEST)
	HYPOTHESIS_PROFILE=full $(PYTEST) -n $(WORKERS)

.PHONY: fuzz
fuzz: $(READY) ## schedules for the feed's model for MINUTES_OF_FUZZ (60), stopping at the first that fails
	$(BIN)/python -m tests.fuzz_feed --minutes $(MINUTES_OF_FUZZ)

.PHONY: chaos
chaos: $(READY) ## cut, kill and drain, or strike Redis in the ways named by REDIS, for SECONDS_OF_CHAOS (60)
	$(BIN)/python -m tests.chaos --seconds $(SECONDS_OF_CHAOS) --redis '$(REDIS)'

.PHONY: storm
storm: $(READY) ## USERS (500) pages and a STRIKE (cut, drain, kill, both): all back, all caught up, nothing lost or twice?
	$(BIN)/python -m loadtest --users $(USERS) --strike $(STRIKE) --steady-s $(SECONDS) --rate $(RATE) $(STORM_FLAGS)

.PHONY: dev
dev: $(READY) ## a gateway with its own Valkey, a token and a line to try it with
	$(BIN)/tidings dev

.PHONY: demo
demo: $(READY) ## a page to start jobs in, and to break what it stands on: network, gateways, Redis
	$(BIN)/tidings demo

.PHONY: constraints
constraints: ## write constraints.txt anew from the newest versions that pyproject.toml allows
	.ci/constraints '$(PYTHON)'

.PHONY: clean
clean: ## remove everything that was made
	rm -rf $(VENV) web/node_modules .mypy_cache .pytest_cache .ruff_cache .hypothesis dist build
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
