# The entry points of this repository. Every target sets up what it needs first:
# a fresh clone wants Python 3.11 or newer and make, nothing else.

.DEFAULT_GOAL := setup
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
# Touched once everything is installed, so that an interrupted install is done again.
READY := $(VENV)/.ready
MEMBERS := $(wildcard libs/*/pyproject.toml services/*/pyproject.toml)
INSTALL := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check \
	--root-user-action ignore --constraint constraints.txt
TYPED := $(wildcard libs services tests examples bench)
MARKUP := buf.yaml docker-compose.yml $(wildcard deploy)

# The first interpreter on PATH that is new enough. Where that one was compiled without optimisations
# (by pyenv, for instance), another of the same version that was compiled with them, as systems' own
# are, is taken instead: services do a tenth more with it. PYTHON=... overrides the search.
OPTIMISED := import ensurepip, sys, sysconfig; \
	sys.exit(sys.base_prefix != "/usr" and \
	"--enable-optimizations" not in (sysconfig.get_config_var("CONFIG_ARGS") or ""))
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	then first=$$name; break; fi; done; \
	test -n "$$first" || exit; \
	same=$$("$$first" -c 'import sys; print("python%d.%d" % sys.version_info[:2])'); \
	IFS=:; for each in "$$first" $$(for folder in $$PATH; do printf %s: "$$folder/$$same"; done); do \
	if "$$each" -c '$(OPTIMISED)' 2>/dev/null; then echo "$$each"; exit; fi; done; echo "$$first")

.PHONY: help setup demo up test crash check protos format clean \
	check-style check-types check-layers check-protos check-conformance check-deploy

help: ## list the targets
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 22

setup: $(READY) ## create the virtual environment and install the pinned packages (the default)

# Build tools come first: with them in place the members need no isolated build each.
$(READY): requirements.txt constraints.txt $(MEMBERS)
	@python='$(PYTHON)'; "$${python:-false}" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo 'Reveille needs Python 3.11 or newer, and found none on PATH.' >&2; \
		echo 'Name one with: make PYTHON=/path/to/python3' >&2; exit 1; }
	@echo 'Setting up $(VENV) with $(PYTHON) (about a minute)'
	@test -x $(BIN)/pip || '$(PYTHON)' -m venv --clear $(VENV)
	@$(INSTALL) hatchling editables
	@$(INSTALL) --no-build-isolation --requirement requirements.txt
	@touch $@

demo: $(READY) ## run the main job on real parts: a webhook and a cron schedule each wake an agent
	@$(BIN)/reveille demo

up: $(READY) ## start the whole stack from docker-compose.yml, without Docker
	@$(BIN)/reveille up

test: $(READY) ## run every test (PYTEST_ARGS=... narrows it)
	@$(BIN)/pytest --numprocesses 2 --dist loadgroup -p no:cacheprovider $(PYTEST_ARGS)

crash: $(READY) ## kill, suspend and starve real processes at random (some minutes; prints its seed)
	@REVEILLE_TEST_CRASH=1 $(BIN)/pytest --numprocesses 2 --dist loadgroup -p no:cacheprovider \
		$(PYTEST_ARGS) tests/e2e -k a_death_of
	@REVEILLE_TEST_CRASH=1 $(BIN)/pytest -p no:cacheprovider -p no:randomly -s $(PYTEST_ARGS) tests/crash

check: check-style check-types check-layers check-protos check-conformance check-deploy ## run every static gate

check-style: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

check-types: $(READY)
	$(BIN)/mypy $(TYPED)

check-layers: $(READY)
	$(BIN)/lint-imports

check-protos: $(READY)
	$(BIN)/buf lint
	$(BIN)/buf format --diff --exit-code
	$(BIN)/python libs/contracts/generate.py --check

check-conformance: $(READY)
	$(BIN)/python -m reveille_testkit.conformance tests/conformance.toml

check-deploy: $(READY)
	$(BIN)/yamllint --strict $(MARKUP)
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml
	$(BIN)/hadolint Dockerfile

protos: $(READY) ## format the protos and generate libs/contracts from them
	@$(BIN)/buf format --write
	@$(BIN)/python libs/contracts/generate.py

format: $(READY) ## let ruff sort imports and format
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

clean: ## remove the virtual environment and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
