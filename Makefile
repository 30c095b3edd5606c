# Everything a developer types. Each target makes the environment first if it is not there.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
MOVIELENS := data/movielens_100k/ratings.parquet

# The matrices here are small: a second thread in them waits more than it works. Set it to use more.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: demo test check bench docs clean help

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

$(MOVIELENS): | $(STAMP)
	$(BIN)/python data/movielens_100k/prepare.py

demo: $(STAMP)  ## Train, judge and explain on MovieLens 100K; pictures go to out/
	$(BIN)/python examples/movielens.py

test: $(STAMP)  ## Run all tests, the doctests and the examples
	@test -f $(MOVIELENS) || $(BIN)/python data/movielens_100k/prepare.py || echo "No MovieLens 100K: its tests are skipped."
	$(BIN)/python -m pytest

check: $(STAMP)  ## Lint, formatting and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: $(STAMP) $(MOVIELENS)  ## Run the benchmarks, one after another
	@set -e; for name in encode load one_hot step factorize rank serve_row report; do \
		echo "== $$name"; $(BIN)/python benchmarks/$$name.py; done

docs: $(STAMP)  ## Redraw the pictures in docs/
	@set -e; for file in docs/draw_*.py; do $(BIN)/python $$file; done

clean:  ## Remove the environment and everything that was built
	rm -rf $(VENV) build dist out *.egg-info .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
