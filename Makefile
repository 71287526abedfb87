# Needs Python 3.10+ and a JDK 17+; everything else is installed into .venv. `make` alone lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTEST_ARGS ?=
# Which releases of Spark `make install` chooses from: SPARK_RELEASES="==4.1.*" develops on another one.
SPARK_RELEASES ?= >=3.5,<4.4
# One more than two cores have: tests wait, too, for processes to start and to die, and for time to pass.
TEST_PROCESSES ?= 3
BENCH_ARGS ?=
SOAK_MINUTES ?= 240
# What signs the checksums of a release: gpg:<id of a key> or ssh:<file of a key>.
SIGN_WITH ?=
# A soak's tests take as long as they are told to.
SOAK := -m pytest --timeout=0
# What exists of these is checked.
PYTHON_CODE := $(wildcard pyspark_statestore datasource jvm-shim benchmarks examples release tests website setup.py)

.DEFAULT_GOAL := help
.PHONY: help install hooks register jar jars demo docs docs-serve check check-tests test test-spark test-sparks test-rest test-hdfs test-s3 test-clouds test-jars format lint typecheck unit soak bench bench-publish bench-check matrix wheel full-wheel sdist release clean check-python check-jdk check-version

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

check-python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 10) or sys.exit("Python 3.10 or newer is needed; this is " + sys.version.split()[0] + ". Say which one to use: make PYTHON=/path/to/python3.11")'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo 'This Python cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv' >&2; exit 1; }

check-jdk:
	@$(PYTHON) jvm-shim/build.py --check >/dev/null

# pyspark comes first: the shim is compiled against its jars, and without build isolation it is downloaded once only.
# Spark's search for Python data sources follows a .pth, and not the import hook that an editable install of two folders is.
$(INSTALLED): setup.cfg setup.py pyproject.toml | check-python check-jdk
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=23.1" "setuptools>=68,<85" wheel
	$(BIN)/python -m pip install "pyspark$(SPARK_RELEASES)"
	$(BIN)/python -m pip install --no-build-isolation --config-settings editable_mode=compat \
		--editable ".[test,examples,benchmarks]"
	$(MAKE) --no-print-directory register
	@# Not needed to build or to run anything; whoever needs it says again how to get it.
	touch $@

register:
	printf '%s\n' "$(CURDIR)" "$(CURDIR)/datasource" \
		> "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/pyspark-statestore-checkout.pth"

install: $(INSTALLED) ## a virtual environment in .venv with the package, its jar and all tools

hooks: $(INSTALLED) ## have git run, before each commit, what lint runs on the files of the commit
	$(BIN)/pre-commit install

jar: $(INSTALLED) ## compile the JVM shim where it has changed
	$(BIN)/python jvm-shim/build.py

jars: $(INSTALLED) ## compile it for all versions of Spark; their pysparks are downloaded once, 1.8 GB
	$(BIN)/python jvm-shim/build.py --all

demo: jar ## the same stream on stock Spark and on merged state, side by side
	$(BIN)/python jvm-shim/build.py --tests
	$(BIN)/python -m examples.demo

check: ## in two minutes, before you push: lint, types, floors, and the tests that need no Spark
	@# One core is busy with types, the other with tests.
	$(MAKE) --no-print-directory --jobs 2 --output-sync=target lint typecheck check-tests

check-tests: $(INSTALLED)
	$(BIN)/python -m pytest --quiet -m "not slow and not spark" tests/unit tests/docs $(PYTEST_ARGS)

test: lint ## everything that continuous integration runs on the newest Spark
	@# One core is busy with types, the other with Java.
	$(MAKE) --no-print-directory --jobs 2 typecheck test-jars
	$(MAKE) --no-print-directory unit

test-jars: jar
	$(BIN)/python jvm-shim/build.py --tests
	$(BIN)/python -m tests.class_data

# The short set is for older versions of Spark: on the newest one the other tests say all that it says, and more.
unit: test-jars
	$(BIN)/python -m pytest --ignore tests/each_spark/test_short.py --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

check-version:
	@test -n "$(VERSION)" || { echo 'Say which version of Spark: make test-spark VERSION=4.1' >&2; exit 1; }

test-spark: $(INSTALLED) | check-version ## all tests that are not tied to a newer one on another version of Spark: VERSION=4.1
	$(BIN)/python -m tests.other_spark $(VERSION) -- --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

test-sparks: $(INSTALLED) ## a short set on each other version of Spark, and checkpoints that travel between them
	$(BIN)/python jvm-shim/build.py --all || echo 'NOT ALL JARS COULD BE BUILT; WHAT NEEDS THE OTHERS IS NOT TESTED' >&2
	$(BIN)/python -m tests.other_spark --each --short -- --numprocesses 2 --dist loadfile $(PYTEST_ARGS)
	$(BIN)/python jvm-shim/build.py --tests
	$(BIN)/python -m pytest -rs --numprocesses 2 --dist loadfile -m "travel or each_spark" \
		tests/each_spark/test_travel.py tests/each_spark/test_wrong_jar.py tests/each_spark/test_scala.py $(PYTEST_ARGS)

test-rest: test-jars ## the files of long tests that `make test` leaves out; CI runs both
	PSS_REST=1 $(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

test-hdfs: jar ## the tests on a real HDFS, which is downloaded once; they are part of `make test`, too
	$(BIN)/python -m pytest -rs tests/hdfs $(PYTEST_ARGS)

test-s3: jar ## the tests on a real S3A, which is downloaded once; they are part of `make test`, too
	$(BIN)/python -m pytest -rs -s tests/s3 $(PYTEST_ARGS)

test-clouds: jar ## the tests on Google's connector and on servers of Google's and Azure's APIs, which are downloaded once; most are part of `make test`, too
	PSS_EXHAUSTIVE=1 $(BIN)/python -m pytest -rs -s tests/clouds $(PYTEST_ARGS)

soak: jar ## every case of every sweep, which it lists; kills at random, twice for SOAK_MINUTES=240; SOAK_SEED=... repeats a run's choices
	SOAK_MINUTES=$(SOAK_MINUTES) $(if $(SOAK_SEED),SOAK_SEED=$(SOAK_SEED)) \
		$(BIN)/python $(SOAK) -s tests/cluster/test_soak.py tests/cluster/test_maintenance.py $(PYTEST_ARGS)
	HYPOTHESIS_PROFILE=soak $(BIN)/python $(SOAK) tests/model -k loses_nothing $(PYTEST_ARGS)
	PSS_STORM_SECONDS=60 $(BIN)/python $(SOAK) tests/jvm/test_storm.py $(PYTEST_ARGS)
	PSS_DAMAGE_MUTATIONS=10000 PSS_DAMAGE_JVM_MUTATIONS=500 PSS_DAMAGE_RESTARTS=20 $(if $(SOAK_SEED),PSS_DAMAGE_SEED=$(SOAK_SEED)) \
		$(BIN)/python $(SOAK) -s tests/damage $(PYTEST_ARGS)
	PSS_LARGE_GROUPS=1 $(BIN)/python $(SOAK) tests/hdfs/test_large_groups.py $(PYTEST_ARGS)
	PSS_HOSTILE_MUTATIONS=2000 $(BIN)/python $(SOAK) tests/hostile $(PYTEST_ARGS)
	PSS_EXHAUSTIVE=1 $(BIN)/python $(SOAK) -m sweep --numprocesses $(TEST_PROCESSES) --dist loadfile $(PYTEST_ARGS)

format: $(INSTALLED) ## lay out all code: ruff for Python, google-java-format for Java
	$(BIN)/ruff check --quiet --select I --fix $(PYTHON_CODE)
	$(BIN)/ruff format $(PYTHON_CODE)
	$(BIN)/python jvm-shim/java_format.py

lint: $(INSTALLED) ## ruff, and the layout of Java
	$(BIN)/ruff check $(PYTHON_CODE)
	$(BIN)/ruff format --check $(PYTHON_CODE)
	@# A machine that only runs the tests needs no npm.
	$(BIN)/python jvm-shim/java_format.py --check --if-possible

typecheck: $(INSTALLED) ## mypy
	$(BIN)/mypy $(PYTHON_CODE)

docs: $(INSTALLED) ## the documentation site in build/site, or an error if a link leads nowhere
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --clean

docs-serve: $(INSTALLED) ## the documentation site on http://127.0.0.1:8000, as it is while you write
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve

bench: jar ## benchmarks/small_files.py; its options in BENCH_ARGS="..."
	$(BIN)/python jvm-shim/build.py --tests
	$(BIN)/python -m benchmarks.small_files $(BENCH_ARGS)

bench-publish: jar ## Nexmark on all file systems, into docs/nexmark.md; takes hours on a quiet machine
	$(BIN)/python benchmarks/nexmark.py --publish $(BENCH_ARGS)

bench-check: jar ## has something become a tenth slower since Nexmark was published? Its options in BENCH_ARGS="..."
	$(BIN)/python benchmarks/nexmark.py --check $(BENCH_ARGS)

matrix: $(INSTALLED) ## what works on which version of Spark, and what it costs: the table in docs/versions.md
	$(BIN)/python benchmarks/matrix.py --write

# From one commit, with the same tools, come the same bytes.
wheel full-wheel sdist release: export SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),$(shell date +%s))

release: $(INSTALLED) ## what is published, in dist/: wheel, source distribution, checksums; SIGN_WITH=gpg:KEY or ssh:FILE signs them
	$(BIN)/python -m release.ready
	rm -rf dist
	$(MAKE) --no-print-directory full-wheel
	$(MAKE) --no-print-directory sdist
	$(BIN)/python -m release.checksums dist $(if $(SIGN_WITH),--sign-with "$(SIGN_WITH)")

full-wheel: jars ## dist/*.whl with the jars of all versions of Spark, or an error
	$(MAKE) --no-print-directory wheel
	$(BIN)/python jvm-shim/check_wheel.py dist/*.whl

# A module that is gone from the sources would be taken out of build/lib.
wheel: $(INSTALLED) ## dist/*.whl, with the jars that are built inside
	rm -rf build/lib build/bdist.*
	$(BIN)/python -m pip wheel --no-deps --no-build-isolation --wheel-dir dist .

sdist: $(INSTALLED) ## dist/*.tar.gz, the sources from which pip makes a jar for the PySpark that is there
	$(BIN)/python -c 'from setuptools import build_meta; build_meta.build_sdist("dist")' >/dev/null

clean: ## remove what was built, but not .venv
	rm -rf build dist pyspark_statestore/jars *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
