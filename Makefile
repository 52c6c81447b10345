.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# A kernel's compiled code is kept under a name that changes with the kernels' text.
export NUMBA_CACHE_DIR ?= $(CURDIR)/.cache/numba-$(shell cat src/unskew/kernels/*.py | cksum | cut -d' ' -f1)

.PHONY: help setup demo test test-full test-uncompiled check format bench fuzz soak clean

help:  ## Show this help
	@awk -F ':.*## ' '/^[a-z%-]+:.*## /{printf "  \033[1mmake %-16s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "unskew needs Python 3.10 or newer; try: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[report,spark,dev]'
	@touch $@

setup: $(READY)  ## Create .venv with everything in it

demo: $(READY)  ## Run a skewed stream on an embedded Spark, plain and balanced, with a picture
	@mkdir -p out
	$(BIN)/unskew demo --plot out/demo.png

test: $(READY)  ## Run the tests, also a part of them uncompiled
	$(BIN)/python -m pytest -n 2 --ignore tests/spark
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not full" tests/spark
	$(MAKE) --no-print-directory test-uncompiled

test-full: $(READY)  ## Run what make test leaves out: every scheme in every mode on Spark (ten minutes)
	$(BIN)/python -m pytest -m full tests/spark
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -n 2 -m "not jit" tests/planners

test-uncompiled: $(READY)  ## Run the core tests with the kernels as plain Python
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -n 2 -m "not jit" tests/kernels tests/sketches tests/routers

test-spark-%:  ## Run the Spark tests with another PySpark, as in make test-spark-4.1.4
	$(PYTHON) -m venv $(VENV)-spark-$*
	$(VENV)-spark-$*/bin/python -m pip install --quiet --editable '.[report,spark,dev]' 'pyspark[connect]==$*'
	$(VENV)-spark-$*/bin/python -m pytest -m "not full" -W default tests/spark

check: $(READY)  ## Lint, types, import order
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)  ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## Measure routing, planning and simulation speed (JSON in out/)
	@mkdir -p out
	$(BIN)/python benchmarks/routing.py > out/bench-routing.json
	$(BIN)/python benchmarks/simulation.py > out/bench-simulation.json
	$(BIN)/python benchmarks/planning.py > out/bench-planning.json
	@echo "out/bench-routing.json, out/bench-simulation.json and out/bench-planning.json"

MINUTES ?= 10
SEED ?= 1
KIND ?= all

fuzz: $(READY)  ## Compare random balanced queries with plain ones, as in make fuzz MINUTES=60 SEED=2
	PYTHONPATH=tests $(BIN)/python -m differential --kind $(KIND) --minutes $(MINUTES) --seed $(SEED)

QUERY ?= online
KILLS ?= 20
SECONDS ?= 200

soak: $(READY)  ## Kill parts of a running query on a cluster, as in make soak QUERY=state KILLS=8 SECONDS=70
	PYTHONPATH=tests $(BIN)/python -m soak --query $(QUERY) --kills $(KILLS) --seconds $(SECONDS) --seed $(SEED)

clean:  ## Remove what was made, but not .venv
	rm -rf .cache out build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
