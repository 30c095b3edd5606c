# Everything a developer types. Each target makes the environment first if it is not there.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
TORCHREC := .venv-torchrec
RAY := .venv-ray
S3 := .venv-s3
MOVIELENS := data/movielens_100k/ratings.parquet

# The matrices here are small: a second thread in them waits more than it works. Set it to use more.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: demo test test-torchrec test-ray test-s3 fuzz check bench docs clean help

$(STAMP): pyproject.toml constraints.txt
	@echo "Making $(VENV), once: PyTorch and the library. It takes a minute or more, without a word."
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

# No extra can declare TorchRec: its own requirements name the CUDA build of FBGEMM, which would replace this one.
$(TORCHREC)/installed: pyproject.toml constraints.txt
	@echo "Making $(TORCHREC), once: PyTorch, TorchRec and the library. It takes a minute or more, without a word."
	$(PYTHON) -m venv $(TORCHREC)
	$(TORCHREC)/bin/pip install --quiet --constraint constraints.txt torch
	$(TORCHREC)/bin/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(TORCHREC)/bin/pip install --quiet --constraint constraints.txt tensordict pyre-extensions torchmetrics==1.0.3 tqdm iopath
	$(TORCHREC)/bin/pip install --quiet --no-deps fbgemm-gpu-cpu==1.8.0 torchrec==1.8.0
	touch $@

test-torchrec: $(TORCHREC)/installed  ## Run the tests of sharded tables, in an environment of their own
	tests/loopback.sh $(TORCHREC)/bin/python -m pytest tests/integrations -k torchrec

$(RAY)/installed: pyproject.toml constraints.txt
	@echo "Making $(RAY), once: PyTorch, Ray and the library. It takes a minute or more, without a word."
	$(PYTHON) -m venv $(RAY)
	$(RAY)/bin/pip install --quiet --constraint constraints.txt torch
	$(RAY)/bin/pip install --quiet --constraint constraints.txt --editable '.[dev,ray]'
	touch $@

test-ray: $(RAY)/installed  ## Run the tests of the Ray engine, as root: in a network that is the loopback alone
	tests/loopback.sh $(RAY)/bin/python -m pytest tests/integrations/test_ray*.py

# The server that stands for S3 brings boto, which the library itself does not need.
$(S3)/installed: pyproject.toml constraints.txt
	@echo "Making $(S3), once: PyTorch, the library and a server that stands for S3. It takes a minute or more, without a word."
	$(PYTHON) -m venv $(S3)
	$(S3)/bin/pip install --quiet --constraint constraints.txt torch
	$(S3)/bin/pip install --quiet --constraint constraints.txt --editable '.[dev]' 'moto[s3]' flask flask-cors
	touch $@

test-s3: $(S3)/installed  ## Run the tests of object stores against a server on this machine
	$(S3)/bin/python -m pytest tests/artifact/test_s3.py

fuzz: $(STAMP)  ## Give damaged files to the readers, for FUZZ_SECONDS (60) of each kind, from a new seed
	FUZZ_SECONDS=$${FUZZ_SECONDS:-60} FUZZ_SEED=$${FUZZ_SEED:-$$(date +%s)} $(BIN)/python -m pytest tests/fuzz

check: $(STAMP)  ## Lint, formatting and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: $(STAMP) $(MOVIELENS)  ## Run the benchmarks, one after another
	@set -e; for name in encode load one_hot step factorize rank serve_row importing memory report; do \
		echo "== $$name"; $(BIN)/python benchmarks/$$name.py; done

docs: $(STAMP)  ## Redraw the pictures in docs/
	@set -e; for file in docs/draw_*.py; do $(BIN)/python $$file; done

clean:  ## Remove the environment and everything that was built
	rm -rf $(VENV) $(RAY) $(TORCHREC) $(S3) build dist out *.egg-info .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
