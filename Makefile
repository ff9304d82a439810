# make run: set up, take the tour, run every study small, check every claim.  make test: set up and run the tests.  Nothing else is needed.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
WORKERS ?= 2

.PHONY: setup run test lint bench figures clean

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
	$(BIN)/python -m pytest -n $(WORKERS) --doctest-modules

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

bench: setup
	$(BIN)/heedful bench --json runs/bench.json

clean:
	rm -rf .venv runs build dist src/*.egg-info
