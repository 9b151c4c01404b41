# Two commands do everything: `make run` and `make test`. Both set up .venv first, once.
.PHONY: run explore setup test suite lint types style bench docs site release format clean
.DEFAULT_GOAL := run

PYTHON ?= python3
EXTRAS ?= explore,rigorous
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

# The one set-up target: installs the package with its tools, again only when pyproject.toml changes.
$(READY): pyproject.toml tools/install.py
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("thalweg needs Python >= 3.11; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python tools/install.py
	@touch $@

setup: $(READY)

run: $(READY)
	$(BIN)/thalweg run

explore: $(READY)
	$(BIN)/thalweg explore

# The tests start as soon as style is right, beside the type checker, which takes longest of the rest, and one core.
test: $(READY)
	@$(MAKE) --no-print-directory -j2 types style suite

# One thread of linear algebra per worker: the workers share the cores already. A file is one worker's,
# because tests share what a file computes; tests/conftest.py puts the longest files first.
suite: $(READY)
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder

lint: $(READY)
	@$(MAKE) --no-print-directory -j2 types style

types: $(READY)
	$(BIN)/basedpyright

style: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev,bench]"
	$(BIN)/thalweg bench

# What is written by the code: the pages of statements, settings, quantities and examples, the table of studies.
docs: $(READY)
	$(BIN)/python docs/write_theorems.py
	$(BIN)/python docs/write_experiments.py
	$(BIN)/python docs/write_quantities.py
	$(BIN)/python docs/write_studies.py
	$(BIN)/python docs/write_extending.py

# The pages of docs/ and all that is generated, into build/site/html; without a network once the extra is installed.
site: $(READY)
	$(BIN)/python -c 'import furo, myst_parser, quickjs, sphinx_copybutton, sphinx_design, torch' 2> /dev/null || \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[site]"
	$(BIN)/python docs/site/build.py

# Builds wheel and source archive, looks into them, and tries the wheel in an empty environment.
release: $(READY)
	$(BIN)/python tools/check_release.py --extras $(EXTRAS)

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build thalweg-run* thalweg-sweep* thalweg-studies
