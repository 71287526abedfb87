"""State moves to executors that come, and away from those that go: ``rebalance=auto``."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery

from tests.cluster.sums import OPTIONS, Hold, Sums, expected, held_key, settings, write_input
from tests.cluster.sums import query as count
from tests.jvm.harness import TESTING, gauge, until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(0, files="clusters")]

PARTITIONS = 12
EXECUTORS = 4
STOCK_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
NEVER_ELSEWHERE = {"spark__locality__wait": "60s"}
"""A task waits for the executor that it prefers, so that it is known who has moved it."""


@pytest.fixture(scope="module")
def cluster(make_spark: Callable[..., Any], main_jar: Path, test_jar: Path) -> SparkSession:
    more = {"spark__sql__shuffle__partitions": str(PARTITIONS), "spark__decommission__enabled": "true"}
    conf = settings((main_jar, test_jar), **NEVER_ELSEWHERE, **more)
    session: SparkSession = make_spark(
        conf, mode="provider", master=f"local-cluster[{EXECUTORS},1,1024]", rebalance="auto", **OPTIONS
    )
    await_takers(session, EXECUTORS)
    return session


@pytest.fixture
def spark(cluster: SparkSession) -> SparkSession:
    """With all executors."""
    resize(cluster, EXECUTORS)
    return cluster


def takers(spark: SparkSession) -> list[str]:
    """The executors that take tasks."""
    assert spark._jvm is not None
    balances = spark._jvm.io.pyspark.statestore.balance.Balances
    return sorted(str(balances.takers(spark.sparkContext._jsc.sc())).split(), key=int)


def await_takers(spark: SparkSession, number: int) -> list[str]:
    """Waits until there are so many."""
    found: list[str] = until(lambda: (now := takers(spark)) and len(now) == number and now, f"{number} executors", 60)
    return found


def resize(spark: SparkSession, to: int) -> list[str]:
    """Has so many executors; those that came last go."""
    context, jvm = spark.sparkContext._jsc.sc(), spark._jvm
    assert jvm is not None
    utils = jvm.org.apache.spark.api.python.PythonUtils
    before = takers(spark)
    context.requestTotalExecutors(max(to, len(before)), 0, utils.toScalaMap({}))
    if to < len(before):
        context.killExecutors(utils.toSeq(before[to:]))
    return await_takers(spark, to)


def pid_of(spark: SparkSession, executor: str) -> int:
    """The process of an executor."""
    words = f"--executor-id {executor} ", f"--app-id {spark.sparkContext.applicationId} "
    children = spark.sparkContext._jvm.java.lang.ProcessHandle.current().children().toList()
    for child in children:
        line = Path(f"/proc/{child.pid()}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        if all(word in line for word in words):
            return int(child.pid())
    raise AssertionError(f"no process of executor {executor} among {len(children)}")


def start(sums: Sums) -> StreamingQuery:
    """Starts a query that waits for input."""
    sums.feed([])
    return sums.start(available_now=False)


def batch(sums: Sums, query: StreamingQuery, number: int) -> Counter[str]:
    """Runs a batch, and returns how many partitions each executor has committed in it."""
    sums.feed([number])
    query.processAllAvailable()
    sums.look()
    return Counter(sums.owners[partition, number + 1] for partition in range(PARTITIONS))


def is_even(counts: Counter[str], executors: list[str]) -> bool:
    # Partitions differ a little in their weights, so one more or less may be within a fifth.
    return counts.keys() == set(executors) and all(
        abs(count - PARTITIONS / len(executors)) <= 1 for count in counts.values()
    )


@pytest.fixture
def equal_times(spark: SparkSession) -> Iterator[None]:
    """On a loaded machine two slow runs of a task make a partition heavy, and another one moves."""
    assert spark._jvm is not None
    balances = spark._jvm.io.pyspark.statestore.balance.Balances
    balances.leastMillis(60_000)
    yield
    balances.leastMillis(200)


@pytest.mark.usefixtures("equal_times")
def test_executors_that_come_and_go(spark: SparkSession, tmp_path: Path) -> None:
    two = resize(spark, 2)
    sums = Sums(spark, tmp_path)
    query = start(sums)
    counts = [batch(sums, query, number) for number in range(3)]
    assert is_even(counts[-1], two), counts

    four = resize(spark, 4)
    counts = [batch(sums, query, number) for number in range(3, 6)]
    assert is_even(counts[-1], four), counts
    moved = sum(sums.owners[i, 4 + n] != sums.owners[i, 3 + n] for i in range(PARTITIONS) for n in range(3))
    assert 0 < moved <= PARTITIONS / 2, "no more than have to"
    assert batch(sums, query, 6) == counts[-1], "what is even stays"

    three = resize(spark, 3)
    assert is_even(batch(sums, query, 7), three), "who has lost its executor gets another one at once"

    os.kill(pid_of(spark, three[0]), signal.SIGKILL)
    batch(sums, query, 8)
    now = until(
        lambda: (found := takers(spark)) != three and len(found) == 3 and found, "another one in its place", 120
    )
    counts = [batch(sums, query, number) for number in range(9, 12)]
    assert is_even(counts[-1], now), counts
    assert sums.latest() == expected(12)
    query.stop()


def test_an_executor_that_is_to_go_loses_its_state_and_gets_none(spark: SparkSession, tmp_path: Path) -> None:
    sums = Sums(spark, tmp_path)
    query = start(sums)
    batch(sums, query, 0)
    batch(sums, query, 1)
    four = takers(spark)
    jvm, context = spark._jvm, spark.sparkContext._jsc.sc()
    assert jvm is not None
    info = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("a test", jvm.scala.Option.empty())
    assert context.schedulerBackend().decommissionExecutor(four[0], info, False, False)
    assert four[0] not in takers(spark), "as soon as Spark knows that it is to go"
    counts = [batch(sums, query, number) for number in range(2, 5)]
    assert all(four[0] not in each for each in counts), counts
    assert sums.latest() == expected(5)
    query.stop()


def test_all_stores_of_a_partition_move_together(spark: SparkSession, tmp_path: Path) -> None:
    """A join has four, and what comes after it in the same tasks has one more."""
    resize(spark, 2)
    sums = Sums(spark, tmp_path)
    sums.feed([])
    rows = spark.readStream.schema("k long, v long").option("maxFilesPerTrigger", 1).json(str(tmp_path / "input"))
    gate = f"reflect('{TESTING}.FileGate', 'pass', cast(k AS string), '{tmp_path / 'hold'}') IS NOT NULL"
    # Of both sides: one source may see a file a batch before the other does.
    rows = rows.where(gate)
    joined = rows.join(rows.select("k", sf.col("v").alias("w")), "k").dropDuplicates(["k"])
    query = joined.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "q")).start()

    def places(operator: int) -> list[dict[str, str]]:
        balances = spark.sparkContext._jvm.io.pyspark.statestore.balance.Balances
        state = f"file:{tmp_path}/q/state"
        found: list[dict[str, str]] = json.loads(balances.places(state, str(query.runId), operator, PARTITIONS))
        return found

    hold = Hold(tmp_path / "hold", str(held_key(3)))
    try:
        for number in range(3):
            sums.feed([number])
            query.processAllAvailable()
        four = resize(spark, 4)
        before = [places(operator) for operator in (0, 1)]
        sums.feed([3])
        hold.wait()
        # The batch is planned, and no task has come to the state that could have reported a store itself.
        said = [places(operator) for operator in (0, 1)]
        assert sorted(len(each[0]) for each in said) == [1, 4]
        moved = [partition for partition in range(PARTITIONS) if said[0][partition] != before[0][partition]]
        assert len(moved) == 2, "one for each slot that has joined"
        for first, second in zip(*said, strict=True):
            assert len({*first.values(), *second.values()}) == 1, "a task finds all of its stores"
        hold.release()
        query.processAllAvailable()
        for number in range(4, 6):
            sums.feed([number])
            query.processAllAvailable()
        assert is_even(Counter(next(iter(each.values())) for each in places(0)), four)
    finally:
        hold.release()
        query.stop()


def test_a_busy_executor_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    """Another job has it, so what is wished there runs elsewhere after a wait: once, and not in each batch."""
    assert spark._jvm is not None
    balances, conf = spark._jvm.io.pyspark.statestore.balance.Balances, spark.sparkContext._jsc.sc().conf()
    resize(spark, 2)
    moved_before, shown_before = balances.moved(), gauge(spark._jvm, "rebalancedPartitions")
    hold = Hold(tmp_path / "hold", "busy")
    busy = f"reflect('{TESTING}.FileGate', 'pass', 'busy', '{tmp_path / 'hold'}')"
    job = threading.Thread(target=lambda: spark.range(0, 1, 1, 1).selectExpr(busy).collect())
    sums = Sums(spark, tmp_path)
    query = start(sums)
    conf.set("spark.locality.wait", "500ms")
    try:
        for number in range(3):
            batch(sums, query, number)
        job.start()
        hold.wait()
        moved = []
        for number in range(3, 10):
            assert len(batch(sums, query, number)) == 1, "all of it runs where there is a slot"
            moved.append(balances.moved())
        assert moved[-1] - moved[0] <= PARTITIONS / 4, f"it is tried once: {moved}"
        assert gauge(spark._jvm, "rebalancedPartitions") - shown_before == moved[-1] - moved_before
    finally:
        conf.set("spark.locality.wait", NEVER_ELSEWHERE["spark__locality__wait"])
        hold.release()
        job.join(60)
    assert sums.latest() == expected(10)
    query.stop()


def test_only_runs_are_remembered(spark: SparkSession, tmp_path: Path) -> None:
    """Not plans that are only explained, whose state has a run of its own; nor runs that have ended."""
    assert spark._jvm is not None
    balances = spark._jvm.io.pyspark.statestore.balance.Balances
    sums = Sums(spark, tmp_path)
    query = start(sums)
    batch(sums, query, 0)
    before = balances.knownRuns()
    assert before > 0
    for _ in range(3):
        count(spark, tmp_path / "input").explain()
    assert balances.knownRuns() == before
    query.stop()
    until(lambda: balances.knownRuns() == before - 1, "the end of the run")


def test_two_queries_share_the_executors(spark: SparkSession, tmp_path: Path) -> None:
    """Each of them has two partitions for each executor, and together they are as even as alone."""
    resize(spark, 2)
    both = [Sums(spark, tmp_path / name) for name in ("a", "b")]
    queries = [start(each) for each in both]
    for number in range(3):
        for sums, query in zip(both, queries, strict=True):
            batch(sums, query, number)
    four = resize(spark, 4)
    for number in range(3, 7):
        counts = [batch(sums, query, number) for sums, query in zip(both, queries, strict=True)]
    assert all(is_even(each, four) for each in counts), counts
    for sums, query in zip(both, queries, strict=True):
        assert sums.latest() == expected(7)
        query.stop()


@pytest.mark.since("4.0", "transformWithState came with Spark 4.0")
def test_dynamic_allocation_and_transform_with_state(
    make_spark: Callable[..., Any], main_jar: Path, test_jar: Path, tmp_path: Path
) -> None:
    """Spark itself starts executors for tasks that wait, and ends them when they have nothing to do."""
    more = {
        "spark__sql__shuffle__partitions": str(PARTITIONS),
        "spark__dynamicAllocation__enabled": "true",
        "spark__dynamicAllocation__shuffleTracking__enabled": "true",
        "spark__dynamicAllocation__shuffleTracking__timeout": "5s",
        "spark__dynamicAllocation__minExecutors": "2",
        "spark__dynamicAllocation__maxExecutors": str(EXECUTORS),
        "spark__dynamicAllocation__schedulerBacklogTimeout": "1s",
        "spark__dynamicAllocation__executorIdleTimeout": "10s",
        "spark__sql__streaming__stateStore__providerClass": STOCK_PROVIDER,
    }
    conf = settings((main_jar, test_jar), **NEVER_ELSEWHERE, **more)
    # Of all stores transformWithState takes Spark's own RocksDB only, so this is the other door, too.
    spark: SparkSession = make_spark(
        conf, mode="path", master=f"local-cluster[{EXECUTORS},1,1024]", rebalance="auto", **OPTIONS
    )
    assert spark._jvm is not None
    balances = spark._jvm.io.pyspark.statestore.balance.Balances
    given: dict[int, tuple[int, int]] = {}
    location = f"merged+file:{tmp_path}/q"
    write_input(tmp_path / "input", [])
    rows = spark.readStream.schema("k long, v long").option("maxFilesPerTrigger", 1).json(str(tmp_path / "input"))
    sums = rows.groupBy("k").transformWithStateInPandas(totals(), "k long, total long, rows long", "Update", "None")

    def take(batch: DataFrame, _number: int) -> None:
        given.update({row.k: (row.total, row.rows) for row in batch.collect()})

    query = sums.writeStream.outputMode("update").foreachBatch(take).option("checkpointLocation", location).start()

    def run(number: int) -> Counter[str]:
        write_input(tmp_path / "input", [number])
        query.processAllAvailable()
        places = json.loads(balances.places(f"{location}/state", str(query.runId), 0, PARTITIONS))
        return Counter(next(iter(each.values())) for each in places)

    batches = 0

    def step() -> tuple[Counter[str], list[str], list[str]]:
        """Runs a batch. Returns where its tasks ran, and the executors that there were before, and are then."""
        nonlocal batches
        batches += 1
        before = takers(spark)
        return run(batches - 1), before, takers(spark)

    def settle() -> None:
        """Runs batches until all is even. Spark may start or end executors meanwhile."""
        seen = []
        for _ in range(10):
            counts, before, now = step()
            seen.append((counts, before, now))
            if is_even(counts, before) or is_even(counts, now):
                return
        raise AssertionError(seen)

    settle()

    def ask_for_all(time: int) -> None:
        """Has so many tasks wait for each other that each takes an executor of its own."""
        holds = [Hold(tmp_path / "hold", f"busy{time}-{number}") for number in range(EXECUTORS)]
        busy = f"reflect('{TESTING}.FileGate', 'pass', concat('busy{time}-', id), '{tmp_path / 'hold'}')"
        job = threading.Thread(target=lambda: spark.range(0, EXECUTORS, 1, EXECUTORS).selectExpr(busy).collect())
        job.start()
        try:
            for hold in holds:
                hold.wait()
        finally:
            for hold in holds:
                hold.release()
            job.join(60)

    # On a slow machine Python takes longer to start in those that join than Spark lets the others be idle, so these go
    # while the batch runs, and others come: who was there before the batch has got state.
    seen = []
    for time in range(10):
        ask_for_all(time)
        counts, before, now = step()
        seen.append((counts, before, now))
        if len(before) == EXECUTORS and is_even(counts, before):
            break
    else:
        raise AssertionError(f"executors that join get no state: {seen}")
    two = await_takers(spark, 2)  # without input
    counts, before, now = step()
    assert counts.keys() <= {*now} >= {*two}, "state is where there are executors"
    settle()
    query.stop()
    assert given == expected(batches)


def totals() -> Any:
    """Sums and counts by key. It is made here, so that Python workers get the class itself."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Totals(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.total = handle.getValueState("total", "total long, rows long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            import pandas as pd

            total, count = self.total.get() if self.total.exists() else (0, 0)
            for frame in rows:
                total, count = total + int(frame["v"].sum()), count + len(frame)
            self.total.update((total, count))
            yield pd.DataFrame({"k": [key[0]], "total": [total], "rows": [count]})

        def close(self) -> None:
            pass

    return Totals()


def test_off_is_the_default_and_moves_nothing(
    make_spark: Callable[..., Any], main_jar: Path, test_jar: Path, tmp_path: Path
) -> None:
    more = {"spark__sql__shuffle__partitions": str(PARTITIONS)}
    conf = settings((main_jar, test_jar), **NEVER_ELSEWHERE, **more)
    spark: SparkSession = make_spark(conf, mode="provider", master=f"local-cluster[{EXECUTORS},1,1024]", **OPTIONS)
    await_takers(spark, EXECUTORS)
    two = resize(spark, 2)
    sums = Sums(spark, tmp_path)
    query = start(sums)
    for number in range(2):
        batch(sums, query, number)
    resize(spark, 4)
    for number in range(2, 6):
        counts = batch(sums, query, number)
    assert counts.keys() == set(two), "as stock Spark"
    assert gauge(spark._jvm, "rebalancedPartitions") == 0, "whatever was moved before in this process"
    query.stop()
