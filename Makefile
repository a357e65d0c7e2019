# What a person types; everything works from nothing but Python >= 3.11, make and pip. Later runs use .venv as it is.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
# The stamps say what .venv holds: what runs the product, and what tests it besides.
RUN := $(VENV)/.run
DEV := $(VENV)/.dev
# `make test ARGS="tests/crypto -x"` tests less.
ARGS ?=

.PHONY: help demo test check bench run-environment dev-environment docker

help:
	@echo "make demo    three parties on this machine train one model over encrypted columns"
	@echo "make test    the whole test suite"
	@echo "make check   the gate before every commit: formatting, types, floors, fast tests"
	@echo "make bench   micro benchmarks and whole jobs"
	@echo "make docker  the same demo in three containers, on Debian without any image registry (as root)"

demo: run-environment
	@$(BIN)/vfl demo

test: dev-environment
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

check: dev-environment
	@./check

bench: dev-environment
	$(BIN)/python -m benchmarks.libraries
	$(BIN)/python -m benchmarks.literal_phe
	$(BIN)/python -m benchmarks.jobs
	$(BIN)/python -m pytest benchmarks/micro --benchmark-only $(ARGS)

docker:
	scripts/docker_without_registry.sh

run-environment: $(RUN)
	@:

dev-environment: $(DEV)
	@:

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "error: no Python >= 3.11 found; name one with make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "making $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(RUN): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into $(VENV)"
	@$(PIP) --editable .
	@touch $@

# What tests the product includes what runs it, so both stamps are set.
$(DEV): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into $(VENV), with what the tests need"
	@$(PIP) --editable '.[dev]'
	@touch $(RUN) $@
