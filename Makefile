# make run: set up, take the tour, run every study small, check every claim.  make test: set up and run the tests.  Nothing else is needed.
# make docs: build the documentation; heedful docs shows it.  make wheel: a wheel that has it.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
WORKERS ?= 2

.PHONY: setup run test lint bench docs wheel clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

run: setup
	$(BIN)/heedful tour
	$(BIN)/heedful run all --profile quick
	$(BIN)/heedful claims --seeds 1
	$(BIN)/heedful report

test: setup
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --doctest-modules

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

bench: setup
	$(BIN)/heedful bench --json runs/bench.json

docs: setup
	$(BIN)/python docs/site

wheel: docs
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	rm -rf .venv runs build dist src/*.egg-info src/heedful/site
