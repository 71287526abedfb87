"""Two attempts of one task, on two executors, that both commit the same version.

Spark never starts a speculative attempt on the host of the first one, and all executors of a local cluster are on one
host, so that there is no speculation in it: here are two hosts. What it comes down to for the state is here, too,
without Spark's scheduler: two executors that load the same version and commit the next one, at the same time or one
after the other, neither of which is stopped in time.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming import StreamingQuery

from pyspark_statestore.format import Kind
from tests.cluster.checks import stable_view
from tests.cluster.processes import Jvm, second_jvm
from tests.cluster.stores import STORE, open_store
from tests.cluster.sums import OPTIONS, RETAINED, Hold, Sums, await_gone, held_key, settings
from tests.cluster.two_hosts import HOSTS, SPECULATION, is_alive, require_hosts, two_hosts
from tests.jvm.harness import TESTING, Checkpoint, until
from tests.sampling import sample, sampled

pytestmark = [pytest.mark.spark, pytest.mark.sweep(0, files="clusters")]

VERSIONS = 10


@pytest.mark.parametrize("changelog", sampled([True, False], 1), ids=["changelog", "snapshots"])
def test_two_attempts_that_commit_the_same_version(
    main_jar: Path, test_jar: Path, checkpoint_dir: Path, changelog: bool
) -> None:
    options = {"closedAfter": "20s", "maxSpaceAmplification": "1.2"}
    both_wrote = 0
    with (
        second_jvm(main_jar, test_jar) as one,
        second_jvm(main_jar, test_jar) as other,
        ThreadPoolExecutor(2) as threads,
    ):

        def opened(jvm: Jvm) -> Any:
            return open_store(
                jvm.view, checkpoint_dir, changelog=changelog, compact=False, retain=RETAINED, options=options
            )

        stores = [opened(jvm) for jvm in (one, other)]
        logs = [Checkpoint(jvm.view, checkpoint_dir, **options) for jvm in (one, other)]
        for version in range(1, VERSIONS + 1):
            for store in stores:
                # An attempt is a task of its own: it begins with what is committed.
                store.rollback()
                store.load(version - 1)
                store.put("x", str(version))
                store.put(f"k{version}", "here")
            if version % 3:
                list(threads.map(lambda store: store.commit(), stores))
            else:
                # The one that lost goes on after the batch: commits, uploads.
                stores[version % 2].commit()
                stores[1 - version % 2].commit()
            if changelog:
                list(threads.map(lambda store: store.upload(), stores))
            list(threads.map(lambda store: store.cleanUp(), stores))
            for number, log in enumerate(logs):
                log.write(f"0/9/{number}.changelog")  # deletions ride in its group
            name = f"{STORE}/{version}.{'changelog' if changelog else 'zip'}"
            files = stable_view(checkpoint_dir / "state").files.values()
            both_wrote += len({entry.writer for file in files for entry in file if entry.path == name}) == 2

        assert both_wrote >= VERSIONS / 2
        with second_jvm(main_jar, test_jar) as third:
            reader = opened(third)
            for version in range(VERSIONS - RETAINED + 1, VERSIONS + 1):
                reader.load(version)
                assert reader.get("x") == str(version)
                assert all(reader.get(f"k{number}") == "here" for number in range(1, version + 1))
                assert reader.get(f"k{version + 1}") is None
        for log in (*logs, *logs):
            log.log.seal()
            log.clean()
        view = stable_view(checkpoint_dir / "state")
        # All that is left holds something, but for the file with the highest stamp.
        assert len(view.files.keys() - {file for file, _ in view.live.values()}) <= 1


@dataclass
class Attempts:
    """A query some of whose tasks are stopped, so that Spark starts a copy of them on the other host.

    Attributes:
        sums: The query.
        running: Its run.
        batches: How many it has had.
        processes: Of the tasks that were stopped.
        both: The changelogs of which two executors have each written one, by partition and version.
    """

    sums: Sums
    running: StreamingQuery
    batches: int = 0
    processes: set[int] = field(default_factory=set)
    both: set[str] = field(default_factory=set)

    def rows(self) -> str:
        """Where tasks of the next batch stop before they commit."""
        return f"out-{held_key(self.batches)}"

    def flush(self, partition: int = 1) -> str:
        """Where they stop in the middle of it: what is committed is written and not yet durable."""
        return f"flush-{self.batches}-{partition}"

    def flushed(self, partition: int = 1) -> str:
        """Where it is durable, and nobody knows."""
        return f"flushed-{self.batches}-{partition}"

    @contextmanager
    def batch(self, place: str, *, deaf: bool = False) -> Iterator[tuple[Hold, Hold]]:
        """Begins a batch; two attempts of one of its tasks have come to that place and wait there, the slow one first.

        When it has ended, however, they go on. Both wait: else a copy might commit before the slow one has come.

        Args:
            place: Its name.
            deaf: Whether the slow one takes no notice of being killed.
        """
        assert self.sums.hold is not None
        holds = Hold(self.sums.hold, f"{place}-0", deaf=deaf), Hold(self.sums.hold, f"{place}-1")
        try:
            self.sums.feed([self.batches])
            self.batches += 1
            processes = {hold.wait() for hold in holds}
            assert len(processes) == 2, "both attempts are in one process"
            self.processes |= processes
            yield holds
            self.finish()
        finally:
            for hold in holds:
                hold.release()

    def finish(self) -> None:
        """Waits for the end of the batch."""
        self.running.processAllAvailable()
        assert max(self.sums.given) == self.batches - 1
        self.look()

    def plain(self) -> None:
        """A batch that nobody stops."""
        self.sums.feed([self.batches])
        self.batches += 1
        self.finish()

    def look(self) -> None:
        """Notes of which changelogs there are two, by now."""
        writers: dict[str, set[str]] = {}
        for file in stable_view(self.sums.checkpoint / "state").files.values():
            for entry in file:
                # Not relocated ones, which are in another process's file as they were.
                if file.header is None or entry.writer != file.header.writer or entry.kind is not Kind.PUT:
                    continue
                if entry.path.endswith(".changelog"):
                    writers.setdefault(entry.path, set()).add(str(file.header.meta["executor_id"]))
        self.both |= {path for path, executors in writers.items() if len(executors) == 2}

    def await_both(self, what: str, changelog: str) -> None:
        """Waits until both attempts' changelogs of a version are there."""

        def there() -> bool:
            self.look()
            return any(path.endswith(f"/{changelog}") for path in self.both)

        until(there, what, 60)

    def old_versions(self) -> list[str]:
        """What lives of versions older than the last ones to keep and what they are restored from."""
        oldest = self.batches - RETAINED + 1
        names: dict[str, list[tuple[int, str, str]]] = {}
        for path in stable_view(self.sums.checkpoint / "state").live:
            directory, name = path.rsplit("/", 1)
            version, _, kind = name.partition(".")
            if kind in ("zip", "changelog"):
                names.setdefault(directory, []).append((int(version), kind, path))
        old = []
        for files in names.values():
            base = max((version for version, kind, _ in files if kind == "zip" and version <= oldest), default=0)
            # Spark may leave some for a later deletion.
            old += [path for version, _, path in files if version < base - RETAINED]
        return old


RACES = [
    *(("copy", place) for place in ("flushed", "flush", "rows")),
    *(("slow", place) for place in ("flushed", "flush", "rows")),
    *(("both", place) for place in ("flush", "rows", "rows")),
]
"""Who commits, and where both attempts of a task have come to: before the commit, in the middle of it, or to where it
is durable. The other one is killed. Of both at once it is Spark's to kill the one that comes second."""


def speculate(attempts: Attempts, races: list[tuple[str, str]]) -> None:
    """Batches in which two attempts of a task come to commit, one way after another."""
    attempts.plain()
    places = {"rows": attempts.rows, "flush": attempts.flush, "flushed": attempts.flushed}
    for winner, place in races:
        with attempts.batch(places[place]()) as (slow, copy):
            if winner != "copy":
                slow.release()
            if winner != "slow":
                copy.release()
    # The copy commits, and the slow one cannot be killed: it commits the same version in the next but one batch,
    # and the second time when the version has long been deleted.
    for later in (1, 2 * RETAINED):
        version = attempts.batches + 1
        with attempts.batch(attempts.rows(), deaf=True) as (_, copy):
            copy.release()
            attempts.finish()
            for _ in range(later):
                attempts.plain()
        if later == 1:
            attempts.await_both("the slow attempt's commit", f"{version}.changelog")
        attempts.plain()
    # It is in its flush when the copy has committed: whether that counts is the flush's duration's to say.
    with attempts.batch(attempts.flush(), deaf=True) as (_, copy):
        copy.release()
        attempts.finish()
    attempts.plain()


@dataclass(frozen=True)
class Ended:
    """A task that has ended, by Spark's event log."""

    stage: int
    index: int
    attempt: int
    host: str
    speculative: bool
    killed: bool
    succeeded: bool

    @classmethod
    def all_in(cls, log: Path) -> list[Ended]:
        """Those of an application."""
        found = []
        for line in log.read_text().splitlines():
            event = json.loads(line)
            if event["Event"] == "SparkListenerTaskEnd" and event.get("Task Info"):
                info = event["Task Info"]
                found.append(
                    cls(
                        stage=event["Stage ID"],
                        index=info["Index"],
                        attempt=info["Attempt"],
                        host=info["Host"],
                        speculative=info["Speculative"],
                        killed=info["Killed"],
                        succeeded=event["Task End Reason"]["Reason"] == "Success",
                    )
                )
        return found


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("rebalance", sampled(["auto", "off"], 1))
def test_tasks_with_speculative_copies(
    make_spark: Callable[..., Any], main_jar: Path, test_jar: Path, tmp_path: Path, rebalance: str
) -> None:
    """With ``rebalance=auto`` the driver also wishes partitions back that a copy has taken to the other host."""
    require_hosts()
    holds, events = tmp_path / "holds", tmp_path / "events"
    events.mkdir()
    conf = {
        **settings((main_jar, test_jar)),
        **SPECULATION,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{events}",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.hadoop.fs.filegate.impl": f"{TESTING}.FileGateFileSystem",
        "spark.hadoop.fs.filegate.directory": str(holds),
    }
    with two_hosts(tmp_path / "work") as master:
        spark = make_spark(conf, mode="provider", master=master, rebalance=rebalance, **OPTIONS)
        try:
            sums = Sums(spark, tmp_path, scheme="filegate", hold=holds)
            sums.feed([])
            attempts = Attempts(sums, sums.start(available_now=False))
            races = sample(RACES, 5, kind=itemgetter(0))
            speculate(attempts, races)
            sums.assert_right(attempts.batches)
            await_gone(sums, attempts.running, attempts.batches)
            attempts.batches = max(sums.given) + 1
            end = time.monotonic() + 60
            while old := attempts.old_versions():
                assert time.monotonic() < end, f"nobody deletes {old}"
                attempts.plain()
            merged = sums.checkpoint / "state" / "_merged"
            until(lambda: not list(merged.glob("*.relocating")), "the end of relocations", 60)
            attempts.running.stop()
        finally:
            spark.stop()

    (log,) = events.iterdir()
    ended = Ended.all_in(log)
    copies = [task for task in ended if task.speculative]
    firsts = {(task.stage, task.index): task for task in ended if task.attempt == 0}
    raced = [(firsts[copy.stage, copy.index], copy) for copy in copies]
    print(
        f"{len(copies)} copies, {sum(copy.succeeded for copy in copies)} of them succeeded, "
        f"{sum(first.killed for first, _ in raced)} first attempts and {sum(copy.killed for copy in copies)} copies "
        f"killed, {len(attempts.both)} versions of a partition written twice"
    )
    assert all({first.host, copy.host} == set(HOSTS) for first, copy in raced)
    # Of each kind at least as many as were stopped for it; three that cannot be killed are in each run.
    winners, places = (Counter(column) for column in zip(*races, strict=True))
    assert sum(copy.succeeded and not first.succeeded for first, copy in raced) >= winners["copy"] + 3
    assert sum(first.succeeded and not copy.succeeded for first, copy in raced) >= winners["slow"]
    assert len(attempts.both) >= places["flushed"] + 1
    until(lambda: not any(map(is_alive, attempts.processes)), "the end of the executors", 60)
