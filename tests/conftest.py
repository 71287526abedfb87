"""What all tests share: the jars, Spark sessions on one JVM, checkpoint directories.

A test that needs Spark takes the ``spark`` fixture (provider door, RocksDB) or, for other settings, ``make_spark``::

    def test_something(make_spark, checkpoint_dir):
        spark = make_spark(mode="path", store="heap", max_file_size="1m")
        stock = make_spark()  # the first session is stopped

Both reuse the running session where its settings are the ones asked for, so tests of a module that agree on them pay
for one session. There is one JVM per pytest process, launched with both jars on the driver's class path: ``spark.jars``
would reach the driver only while the JVM starts. Its local disk forks no processes (``ForklessRawLocalFileSystem``
in the test jar); all JVMs of the tests share class data (class_data.py); temporary directories are in memory where it
has room. All that only saves time.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from hypothesis import settings

from tests import class_data, sampling

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent

_BASE_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "3",
    "spark.default.parallelism": "2",
    "spark.sql.session.timeZone": "UTC",
    # StateStore.stop() waits for maintenance with a lock that maintenance needs, twice so long; else that is 300 s.
    "spark.sql.streaming.stateStore.maintenanceShutdownTimeout": "5s",
    "spark.log.level": "ERROR",
}


# Other tests run beside, on machines that are slow at times: how long an example takes says nothing.
settings.register_profile("on any machine", deadline=None)
settings.load_profile("on any machine")

_FIND = "import importlib.util as u; spec = u.find_spec('pyspark_checkpoint_files'); print(spec.origin if spec else '')"


def _data_source_is_registered() -> bool:
    done = subprocess.run([sys.executable, "-c", _FIND], capture_output=True, text=True, check=True, cwd=ROOT.anchor)
    return Path(done.stdout.strip()).is_relative_to(ROOT)


# Before a JVM starts, which hands it on to Spark's Python workers: the environment may not be the one that make builds.
if not _data_source_is_registered():
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(ROOT), str(ROOT / "datasource"), os.environ.get("PYTHONPATH")])
    )

_MEMORY = Path("/dev/shm")
_TEMPORARY = "PYTEST_DEBUG_TEMPROOT"


def _memory_has_room() -> bool:
    """All tests together write 2 GiB, and pytest keeps what the last three runs wrote."""
    try:
        found = re.search(r"MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text())
        return found is not None and int(found[1]) >> 20 >= 12 and shutil.disk_usage(_MEMORY).free >> 30 >= 8
    except OSError:
        return False


# Checkpoints are in memory then: waiting for a disk (fsync) takes longer than all else where many small files are
# written, and that it outlives a loss of power no test can see. A directory of one's own choice stays.
# xdist tells its workers how wide its terminal is. The command line heeds that, also where its output is piped.
os.environ.pop("COLUMNS", None)

if _TEMPORARY not in os.environ and _memory_has_room():
    os.environ[_TEMPORARY] = str(_MEMORY)

if class_data.OPTIONS not in os.environ.get(class_data.VARIABLE, ""):  # xdist's workers have it from its controller
    before = os.environ.get(class_data.VARIABLE, "")
    os.environ[class_data.VARIABLE] = f"{before} {class_data.use()} {class_data.SETTINGS}".strip()


# ---- sweeps, of which only a sample runs unless all of it is asked for


_COUNTS: dict[str, dict[str, tuple[int, int]]] = {"parameters": {}, "loops": {}, "tied": {}}
"""Of the sweeps of all processes, by test or file: how many cases are in the sample, and how many there are.

``tied`` has the tests that are not for this Spark, with their reasons: none of their cases runs.
"""


_READER = "Spark's reader of state, with which these tests compare, came with Spark 4.0"
_EACH_KIND = (
    "transformWithState, which is among their queries, came with Spark 4.0; the short set has the other queries"
)
_TIED_FILES: Mapping[str, tuple[str, str]] = {
    "cluster": ("4.0", _READER),
    "cluster/test_moves.py": ("4.1", "they speak to the coordinator of stores as Spark 4.1 does"),
    "cluster/test_spark_bugs.py": ("4.3", "they drive the RocksDB class of Spark 4.3 step by step"),
    "cluster/test_speculation.py": ("4.3", "they drive the RocksDB class of Spark 4.3 step by step"),
    "cluster/test_zombies.py": ("4.3", "they drive the RocksDB class of Spark 4.3 step by step"),
    "docs/test_monitoring.py": ("4.3", "these files do not depend on Spark, and are parsed beside the newest"),
    "docs/test_queries.py": ("4.0", "Python data sources came with Spark 4.0"),
    "docs/test_site.py": ("4.3", "the site does not depend on Spark, and is built with the newest"),
    "examples": ("4.0", "transformWithState, which an example has, came with Spark 4.0"),
    "faults/test_every_operation_of_a_query.py": ("4.0", _READER),
    "faults/test_query_faults.py": ("4.0", _READER),
    "forks/test_queries.py": ("4.0", _EACH_KIND),
    "hdfs/test_queries.py": ("4.0", _READER),
    "inspect/test_against_spark.py": ("4.0", _READER),
    "jvm/test_locks.py": ("4.1", "their lock is one of Spark 4.1's file managers"),
    "jvm/test_staged.py": ("4.3", "they drive the RocksDB class of Spark 4.3 step by step"),
    "maintenance/test_restores.py": ("4.0", _READER),
    "migration/test_round_trips.py": ("4.0", _EACH_KIND),
    "s3/test_queries.py": ("4.0", _READER),
    "sql": ("4.0", "Python data sources came with Spark 4.0"),
    "sql/test_stream.py": ("4.2", "Spark says where a batch of a Python stream begins from 4.2 on"),
    "sql/test_stream_histories.py": ("4.2", "Spark says where a batch of a Python stream begins from 4.2 on"),
    "state/test_equal_to_spark.py": ("4.0", _READER),
    "state/test_spark_encodings.py": ("4.0", _READER),
    "streaming/test_equal_to_stock.py": ("4.0", _EACH_KIND),
    "streaming/test_from_stock.py": ("4.0", _EACH_KIND),
    "streaming/test_state_readers.py": ("4.0", _READER),
    "streaming/test_transform_with_state.py": ("4.0", "transformWithState came with Spark 4.0"),
}
"""Files and folders that older versions of Spark cannot import, or have no test for. Elsewhere, tests are marked."""

_LEFT_OUT: dict[str, tuple[int, int]] = {}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out whole files that are tied to a newer Spark, and remembers why, for the end of the output."""
    name = (
        collection_path.relative_to(ROOT / "tests").as_posix() if collection_path.is_relative_to(ROOT / "tests") else ""
    )
    minor, reason = _TIED_FILES.get(name, (class_data.MINOR, ""))
    if _number(minor) <= _number(class_data.MINOR):
        return None
    _LEFT_OUT[f"tests/{name}: {reason}"] = (0, 0)
    return True


def _leave_out_others(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests that this run cannot be for, and remembers why, for the end of the output.

    Those are tests that are tied to a newer Spark; and those that need several, unless they are asked for by their
    marker, since they download them.
    """
    newer: list[pytest.Item] = []
    counts: dict[str, int] = {}
    travels = "travel" in config.option.markexpr and "not travel" not in config.option.markexpr
    for item in items:
        reasons = [
            reason
            for minor, reason in (mark.args for mark in item.iter_markers("since"))
            if _number(minor) > _number(class_data.MINOR)
        ]
        if item.get_closest_marker("travel") and not travels:
            reasons.append("needs several versions of Spark; `make test-sparks` runs it")
        if reasons:
            newer.append(item)
            key = f"{item.nodeid.partition('[')[0]}: {reasons[0]}"
            counts[key] = counts.get(key, 0) + 1
    _COUNTS["tied"] = {**_LEFT_OUT, **{key: (0, count) for key, count in counts.items()}}
    if newer:
        config.hook.pytest_deselected(items=newer)
        items[:] = [item for item in items if item not in set(newer)]


def _number(minor: str) -> tuple[int, ...]:
    return tuple(int(part) for part in minor.split("."))


_LONGEST = tuple(
    f"tests/{file}.py"
    for file in (
        "cluster/test_executor_kills",
        "faults/test_every_operation_of_a_query",
        "streaming/test_equal_to_stock",
        "cluster/test_index_service",
        "faults/test_every_operation",
        "cluster/test_soak",
        "inspect/test_against_spark",
        "migration/test_round_trips",
        "streaming/test_heap_store",
        "streaming/test_metrics",
        "streaming/test_fresh_sessions",
        "sql/test_connect",
    )
)
"""A file of tests is run by one process: that one of these is the last thing under way would leave the others idle."""


def _place(item: pytest.Item) -> int:
    file = sampling.file_of(item)
    return _LONGEST.index(file) if file in _LONGEST else len(_LONGEST)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is not in a sample, unless it was asked for by its name, and puts the longest files first."""
    _leave_out_others(config, items)
    # A run that is given files or folders has all of them.
    everywhere = sampling.REST or config.args == config.getini("testpaths")
    in_other_files = set(sampling.files_left_out(items)) if everywhere else set()
    left_out = set(sampling.left_out(items))
    if sampling.REST:
        left_out |= set(items) - in_other_files
    else:
        left_out |= in_other_files
    tests: dict[str, list[bool]] = {}
    for item in items:
        if item.get_closest_marker("sweep"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item not in left_out)
    _COUNTS["parameters"] = {test: (sum(taken), len(taken)) for test, taken in tests.items() if not all(taken)}
    left = [item for item in items if item in left_out and item.nodeid not in config.args]
    if left and not sampling.EXHAUSTIVE:
        config.hook.pytest_deselected(items=left)
        kept = set(items) - set(left)
        items[:] = [item for item in items if item in kept]
    if sampling.REST_SECONDS is not None:
        places = sampling.order_of_rest(sampling.file_of(item) for item in items)
        items.sort(key=lambda item: places[sampling.file_of(item)])
    else:
        items.sort(key=_place)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begins no test, and makes nothing for it, where the time of the run is over."""
    if sampling.time_is_up():
        pytest.skip(sampling.NOT_BEGUN)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of xdist says what it has counted."""
    _COUNTS["loops"].update(sampling.LOOPS)
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["sweeps"] = json.dumps(_COUNTS)


class _Workers:
    """Hooks that exist only where xdist is in use."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        for name, counts in json.loads(getattr(node, "workeroutput", {}).get("sweeps", "{}")).items():
            _COUNTS[name].update({key: tuple(value) for key, value in counts.items()})


def pytest_configure(config: pytest.Config) -> None:
    """Listens to xdist, where it is used."""
    config.pluginmanager.register(_Workers())


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failure of a sweep says which sample it was."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed and item.get_closest_marker("sweep"):
        report.sections.append(("sample", f"PSS_SAMPLE_SEED={sampling.SEED}; PSS_EXHAUSTIVE=1 runs all cases"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Says what this version of Spark, the time and the samples left out, or would without PSS_EXHAUSTIVE=1."""
    tied = _COUNTS["tied"]
    if tied:
        terminalreporter.section(f"not in this run, on Spark {class_data.MINOR}")
        for key, (_, count) in sorted(tied.items()):
            terminalreporter.write_line(f"{count or 'all':>6} of {key}")
    skipped = [
        report for report in terminalreporter.stats.get("skipped", []) if sampling.NOT_BEGUN in str(report.longrepr)
    ]
    if skipped:
        terminalreporter.section("not begun")
        terminalreporter.write_line(sampling.NOT_BEGUN)
        for file, count in sorted(Counter(map(sampling.file_of, skipped)).items()):
            terminalreporter.write_line(f"{count:>6} of {file}")
    kinds = (_COUNTS["parameters"], _COUNTS["loops"])
    counts = {key: count for kind in kinds for key, count in kind.items() if count[0] < count[1]}
    if not counts:
        return
    taken, of = (sum(count[at] for count in counts.values()) for at in (0, 1))
    terminalreporter.section("sweeps")
    if sampling.EXHAUSTIVE:
        for key, (some, all_of) in sorted(counts.items()):
            terminalreporter.write_line(f"{some:6} of {all_of:6} in `make test`: {key}")
    terminalreporter.write_line(
        f"{taken} of {of} cases of sweeps are in `make test` (PSS_SAMPLE_SEED={sampling.SEED}); `make soak` runs all"
    )


class MakeSpark(Protocol):
    """The type of the ``make_spark`` fixture, for annotations in tests."""

    def __call__(
        self,
        conf: Mapping[str, str] | None = None,
        *,
        mode: str | None = None,
        store: str = "rocksdb",
        master: str = "local[2]",
        **options: Any,
    ) -> SparkSession:
        """See :func:`make_spark`."""


def _build(*arguments: str) -> None:
    main = runpy.run_path(str(ROOT / "jvm-shim" / "build.py"))["main"]
    if main(list(arguments)) != 0:
        pytest.exit("the JVM shim could not be built; the reason is above", returncode=1)


@pytest.fixture(scope="session")
def main_jar() -> Path:
    """The shim's jar, compiled if its sources have changed."""
    _build()
    from pyspark_statestore import jar_path

    return Path(jar_path())


@pytest.fixture(scope="session")
def test_jar(main_jar: Path) -> Path:
    """The jar with the counting, faulty and object-store-like file systems, compiled if its sources have changed."""
    _build("--tests")
    return class_data.TEST_JAR


class _Sessions:
    """The one session of this process, and what it was made with."""

    def __init__(self) -> None:
        self._session: SparkSession | None = None
        self._made_with = ""

    def make(self, settings: Mapping[str, str], mode: str | None, store: str, options: Mapping[str, Any]) -> Any:
        made_with = json.dumps([dict(settings), mode, store, dict(options)], sort_keys=True, default=str)
        if self._session is not None and self._made_with == made_with and self._running():
            return self._session
        self.stop()
        from pyspark.sql import SparkSession

        from pyspark_statestore import configure

        builder = SparkSession.builder.config(map=dict(settings))
        if mode is not None:
            configure(builder, mode=mode, store=store, **options)
        self._session = builder.getOrCreate()
        self._made_with = made_with
        return self._session

    def stop(self) -> None:
        if self._session is not None and self._running():
            for query in self._session.streams.active:
                query.stop()
            self._session.stop()
        self._session = None

    def _running(self) -> bool:
        # A test may have stopped it itself.
        context = getattr(self._session, "_sc", None)
        return context is not None and context._jsc is not None


@pytest.fixture(scope="session")
def _sessions(main_jar: Path, test_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Sessions]:
    from pyspark import SparkContext

    from tests.jvm.harness import FORKLESS

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    temporary = tmp_path_factory.mktemp("spark")
    # Of executors, too, which keep SSTs there.
    os.environ[class_data.VARIABLE] += f" -Djava.io.tmpdir={temporary}"
    arguments = [
        *("--driver-class-path", f"{main_jar}{os.pathsep}{test_jar}"),
        *("--driver-memory", "1g"),
        *("--driver-java-options", f"-Djava.io.tmpdir={temporary} -Dderby.system.home={temporary}"),
        *("--conf", f"spark.sql.warehouse.dir={temporary / 'warehouse'}"),
        *("--conf", f"spark.local.dir={temporary}"),
    ]
    for key, value in FORKLESS.items():
        arguments += ["--conf", f"{key}={value}"]
    before = os.environ.get("PYSPARK_SUBMIT_ARGS")
    os.environ["PYSPARK_SUBMIT_ARGS"] = " ".join(f"'{argument}'" for argument in [*arguments, "pyspark-shell"])
    try:
        # Without a configuration: Spark would make its settings system properties of the JVM, and thereby those of
        # every later session.
        SparkContext._ensure_initialized()
    finally:
        if before is None:
            del os.environ["PYSPARK_SUBMIT_ARGS"]
        else:
            os.environ["PYSPARK_SUBMIT_ARGS"] = before
    sessions = _Sessions()
    yield sessions
    sessions.stop()


@pytest.fixture(scope="module")
def make_spark(_sessions: _Sessions) -> Iterator[MakeSpark]:
    """A function that returns a Spark session with the settings that a test wants.

    ``make_spark(conf, mode=, store=, master=, **options)``: ``conf`` are Spark settings by key; with ``mode``
    ``configure`` sets the door up, with ``store`` and ``options`` handed to it, without ``mode`` it is stock Spark.
    The session that was running is stopped, unless it has just these settings. The last one stops with the module.
    """

    def make(
        conf: Mapping[str, str] | None = None,
        *,
        mode: str | None = None,
        store: str = "rocksdb",
        master: str = "local[2]",
        **options: object,
    ) -> SparkSession:
        settings = {**_BASE_SETTINGS, "spark.master": master, **(conf or {})}
        session: SparkSession = _sessions.make(settings, mode, store, options)
        return session

    yield make
    _sessions.stop()


@pytest.fixture
def spark(make_spark: MakeSpark) -> SparkSession:
    """A session with the provider door and RocksDB; the tests of a module share it."""
    return make_spark(mode="provider")


@pytest.fixture
def checkpoint_dir(tmp_path: Path) -> Path:
    """A place for one query's checkpoint; ``checkpoint_dir.parent`` has room for a second one."""
    return tmp_path / "checkpoint"
