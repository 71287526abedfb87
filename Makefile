# Needs Python 3.11+ and a JDK 17+; everything else is installed into .venv. `make` alone lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTEST_ARGS ?=
# One more than two cores have: tests wait, too, for processes to start and to die, and for time to pass.
TEST_PROCESSES ?= 3
BENCH_ARGS ?=
SOAK_MINUTES ?= 240
# What exists of these is checked.
PYTHON_CODE := $(wildcard pyspark_statestore datasource jvm-shim benchmarks examples tests setup.py)

.DEFAULT_GOAL := help
.PHONY: help install register jar demo test test-hdfs lint typecheck unit soak bench wheel clean check-python check-jdk

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

check-python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed, as by pyspark 4.3; this is " + sys.version.split()[0] + ". Say which one to use: make PYTHON=/path/to/python3.11")'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo 'This Python cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv' >&2; exit 1; }

check-jdk:
	@$(PYTHON) jvm-shim/build.py --check >/dev/null

# pyspark comes first: the shim is compiled against its jars, and without build isolation it is downloaded once only.
# Spark's search for Python data sources follows a .pth, and not the import hook that an editable install of two folders is.
$(INSTALLED): setup.cfg setup.py pyproject.toml | check-python check-jdk
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=23.1" "setuptools>=68,<85" wheel
	$(BIN)/python -m pip install "pyspark>=4.3,<4.4"
	$(BIN)/python -m pip install --no-build-isolation --config-settings editable_mode=compat \
		--editable ".[test,examples,benchmarks]"
	$(MAKE) --no-print-directory register
	touch $@

register:
	printf '%s\n' "$(CURDIR)" "$(CURDIR)/datasource" \
		> "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/pyspark-statestore-checkout.pth"

install: $(INSTALLED) ## a virtual environment in .venv with the package, its jar and all tools

jar: $(INSTALLED) ## compile the JVM shim where it has changed
	$(BIN)/python jvm-shim/build.py

demo: jar ## the same stream on stock Spark and on merged state, side by side
	$(BIN)/python jvm-shim/build.py --tests
	$(BIN)/python -m examples.demo

test: lint typecheck unit ## everything that continuous integration runs

unit: jar
	$(BIN)/python jvm-shim/build.py --tests
	$(BIN)/python -m tests.class_data
	$(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

test-hdfs: jar ## the tests on a real HDFS, which is downloaded once; they are part of `make test`, too
	$(BIN)/python -m pytest -rs tests/hdfs $(PYTEST_ARGS)

soak: jar ## every case of every sweep, which it lists; kills at random, twice for SOAK_MINUTES=240; SOAK_SEED=... repeats a run's choices
	SOAK_MINUTES=$(SOAK_MINUTES) $(if $(SOAK_SEED),SOAK_SEED=$(SOAK_SEED)) \
		$(BIN)/python -m pytest -s tests/cluster/test_soak.py tests/cluster/test_maintenance.py $(PYTEST_ARGS)
	HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest tests/model -k loses_nothing $(PYTEST_ARGS)
	PSS_STORM_SECONDS=60 $(BIN)/python -m pytest tests/jvm/test_storm.py $(PYTEST_ARGS)
	PSS_DAMAGE_MUTATIONS=10000 PSS_DAMAGE_JVM_MUTATIONS=500 PSS_DAMAGE_RESTARTS=20 $(if $(SOAK_SEED),PSS_DAMAGE_SEED=$(SOAK_SEED)) \
		$(BIN)/python -m pytest -s tests/damage $(PYTEST_ARGS)
	PSS_LARGE_GROUPS=1 $(BIN)/python -m pytest tests/hdfs/test_large_groups.py $(PYTEST_ARGS)
	PSS_HOSTILE_MUTATIONS=2000 $(BIN)/python -m pytest tests/hostile $(PYTEST_ARGS)
	PSS_EXHAUSTIVE=1 $(BIN)/python -m pytest -m sweep --numprocesses $(TEST_PROCESSES) --dist loadfile $(PYTEST_ARGS)

lint: $(INSTALLED) ## ruff
	$(BIN)/ruff check $(PYTHON_CODE)
	$(BIN)/ruff format --check $(PYTHON_CODE)

typecheck: $(INSTALLED) ## mypy
	$(BIN)/mypy $(PYTHON_CODE)

bench: jar ## benchmarks/small_files.py; its options in BENCH_ARGS="..."
	$(BIN)/python jvm-shim/build.py --tests
	$(BIN)/python -m benchmarks.small_files $(BENCH_ARGS)

wheel: $(INSTALLED) ## dist/*.whl, with the jar inside
	$(BIN)/python -m pip wheel --no-deps --no-build-isolation --wheel-dir dist .

clean: ## remove what was built, but not .venv
	rm -rf build dist pyspark_statestore/jars *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
