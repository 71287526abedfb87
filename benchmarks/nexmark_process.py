"""One part of a run of Nexmark, in a process of its own.

Usage: `python -m benchmarks.nexmark_process IN.json OUT.json`. IN.json names the part:

* `equal`: queries one after the other. All sides have to give out the same rows in each batch, and what a batch
  computation says, and their checkpoints have to have the same state.
* `measure`: one query at one place, all sides batch by batch in turn. Then the JVM is killed, and each side starts
  again in a process of its own, which is the part `return`.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from subprocess import SubprocessError
from time import monotonic, sleep
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from benchmarks.figures import STATE_CATEGORIES
from benchmarks.filesystems import calls, minus
from benchmarks.nexmark_events import SCHEMA, Shape, write_files
from benchmarks.nexmark_places import PlaceUnavailable, client_of, open_place
from benchmarks.nexmark_queries import QUERIES, Query
from benchmarks.nexmark_sides import KINDS, NexmarkSide, Stage, polling_at, run_in_turn, state_rows
from benchmarks.restart import ANOTHER_HOST, end
from benchmarks.scenario import Scenario
from benchmarks.sides import BenchmarkError, environment, jvm_memory, jvm_pid

ROOT = Path(__file__).resolve().parent.parent
WARM_UP_EVENTS = 4
"""A batch of the warm-up has so small a part of a batch's events: how often code runs is what has it compiled."""
RETURN_SECONDS = 1800
MESSAGE = 3000
"""Characters of an error that are shown: some of Spark's have a whole plan."""
WAIT_SECONDS = 60
UNAVAILABLE = 3
"""The code that the process ends with where a place cannot be had."""
FAILURES = (BenchmarkError, PlaceUnavailable, PySparkException, Py4JError, OSError, RuntimeError, SubprocessError)
"""What ends a part with a message."""
FIRST_BATCH = "return-first-batch"
"""A file that is there from the end of the first batch after a restart until its calls are counted."""


def equal(
    names: Sequence[str], sides: tuple[str, ...], shape: Shape, all_states: bool, scenario: Scenario, work: Path
) -> dict[str, Any]:
    """Checks that queries give out the same on all sides, and what a batch computation says.

    In the middle all state is forgotten; then the checkpoints have to have the same, and queries read theirs back. At
    the end, the checkpoints have to have the same again.

    Args:
        names: The queries.
        sides: The sides; the first one is what the others are compared with.
        shape: Of the events.
        all_states: Whether to compare the state of queries that append, too, which takes a minute or two for all.
        scenario: Partitions and so on.
        work: An empty directory for everything that is written.

    Returns:
        What was measured by the way, by query: the number of rows, and each side's batches.

    Raises:
        BenchmarkError: Something differs. The message says what.
    """
    files = write_files(shape, work / "events", closing=True)
    # What comes back finds a snapshot, and has to fetch it.
    options = {**scenario.options, "cache_size_limit": "0"}
    scenario = dataclasses.replace(scenario, maintenance_interval="100ms", options=options)
    found: dict[str, Any] = {}
    with open_place("local") as place:
        stage = Stage.open(place, sides, shape, scenario, work)
        if any(KINDS[name].is_remote for name in sides):
            leave_small_parts(stage.spark)
        try:
            for name in names:
                found[name] = compare(QUERIES[name], stage, sides, files, all_states or bool(QUERIES[name].key))
                print(f"  {name}: {found[name]['rows']:,} rows, the same on all sides and by SQL", file=sys.stderr)
            return {"queries": found, "environment": environment(stage.spark)}
        finally:
            stage.spark.stop()


def compare(
    query: Query, stage: Stage, names: tuple[str, ...], files: list[Path], is_state_compared: bool
) -> dict[str, Any]:
    """Checks one query.

    Args:
        query: The query.
        stage: Where it runs.
        names: The sides; the first one is what the others are compared with.
        files: The events, with those that close them.
        is_state_compared: Whether checkpoints have to have the same state, too.

    Returns:
        The number of rows, and what was measured.

    Raises:
        BenchmarkError: Something differs. The message says what.
    """
    sides = stage.sides(query, names, keep=True)
    half = len(files) // 2
    try:
        run_in_turn(sides, files[:half])
        forget_state(stage.spark, sides)
        if is_state_compared:
            same_state(query, sides)
            forget_state(stage.spark, sides)
        before = {side.name: _read(side) for side in sides}
        run_in_turn(sides, files[half:])
        for side in sides:
            if _read(side) == before[side.name]:
                raise BenchmarkError(
                    f"{query.name}: {side.kind.title} has not read its state back: this proves nothing"
                )
            if side.kind.is_remote and not bytes_left_out(side):
                raise BenchmarkError(
                    f"{query.name}: {side.kind.title} has fetched all of its state: nothing was remote"
                )
            if side.is_merged != any((side.directory / "state" / "_merged").glob("*.merged")):
                raise BenchmarkError(f"{query.name}: {side.kind.title} has not the state files that it should have")
        given = sides[0].rows
        for side in sides[1:]:
            same(f"{query.name}, the batches of {side.kind.title}", [*given], [*side.rows])
            for batch, rows in given.items():
                same(f"{query.name}, batch {batch}: {side.kind.title}", rows, side.rows[batch])
        expected = by_sql(stage.spark.newSession(), query, files[: None if query.key else stage.shape.batches])
        final = last_of_each_key(query, sides[0].columns, given) if query.key else _all(given)
        same(f"{query.name}, the whole stream beside SQL", expected, final)
        if not expected:
            raise BenchmarkError(f"{query.name} gave nothing out: this proves nothing")
        measured = {name: _measured(side, stage.shape.batches) for name, side in zip(names, sides, strict=True)}
        # Most queries that append have forgotten all of their state by now, and their rows have shown what it was.
        if is_state_compared and any(state_rows(sides[0].progress())):
            forget_state(stage.spark, sides)
            same_state(query, sides)
        return {"rows": len(_all(given)), "sides": measured}
    finally:
        for side in sides:
            side.stop()


def leave_small_parts(spark: SparkSession) -> None:
    """Lets remote-first state be remote where there are few rows: as a rule, SSTs below 1 MB are fetched whole."""
    tables: Any = spark._jvm.io.pyspark.statestore.tables
    tables.Lazily.everywhere()
    tables.HoleySst.pages(64, 600)


def bytes_left_out(side: NexmarkSide) -> int:
    """Bytes of SSTs that loads of a side's stores left in the checkpoint, until a read would need them."""
    logs: Any = side.session._jvm.io.pyspark.statestore.log.MergedLogs.all()
    found: int = logs[f"{side.location}/state"].metrics().snapshot()["leftOutBytes"]
    return found


def forget_state(spark: SparkSession, sides: Sequence[NexmarkSide]) -> None:
    """Stops queries, and forgets all of their state that is in this process, so that the checkpoint has to have it."""
    from tests.streaming.runs import unload_stores

    for side in sides:
        side.stop()
    unload_stores(spark)
    jvm: Any = spark._jvm
    for side in sides:
        location = jvm.org.apache.hadoop.fs.Path(side.location)
        jvm.io.pyspark.statestore.log.MergedLogs.forgetBelow(location)


def same_state(query: Query, sides: Sequence[NexmarkSide]) -> None:
    """Checks that the checkpoints of stopped sides have the same state, row by row, as Spark's own reader finds it.

    Args:
        query: Their query.
        sides: The sides; the first one is what the others are compared with.

    Raises:
        BenchmarkError: Something differs, or there is no state. The message says what.
    """
    expected, *others = [state_of(side) for side in sides]
    if not expected:
        raise BenchmarkError(f"{query.name} has no state: this proves nothing")
    for side, found in zip(sides[1:], others, strict=True):
        same(f"{query.name}, the state of {side.kind.title}", expected, found)


def state_of(side: NexmarkSide) -> list[tuple[Any, ...]]:
    """All rows of a stopped side's state: operator, store, partition, key, value.

    A join numbers the rows that have the same key, in the order in which they came. That number is left out.
    """
    stores = side.session.read.format("state-metadata").load(side.checkpoint)
    frame = None
    for operator, store in sorted(stores.select("operatorId", "stateStoreName").collect()):
        options = {"operatorId": str(operator), "storeName": store}
        rows = side.session.read.format("statestore").options(**options).load(side.checkpoint)
        key = sf.col("key").dropFields("index") if "index" in rows.select("key.*").columns else sf.col("key")
        texts = (each.cast("string") for each in (key, sf.col("value")))
        part = rows.select(sf.lit(operator), sf.lit(store), "partition_id", *texts)
        frame = frame.union(part) if frame else part
    return [tuple(row) for row in frame.collect()] if frame else []


def _read(side: NexmarkSide) -> int:
    """Bytes of state that a side has read so far."""
    return calls(side.counters.snapshot(side.name), STATE_CATEGORIES).get("read_bytes", 0)


def _measured(side: NexmarkSide, batches: int) -> dict[str, Any]:
    place = side.place
    return {
        "batches": side.batches[:batches],
        "left": place.left(side.name, side.directory),
        "amplification": place.amplification(side.directory) if side.is_merged else None,
    }


def by_sql(spark: SparkSession, query: Query, files: list[Path]) -> list[Any]:
    """What a batch computation over the events of these files says."""
    events = spark.read.schema(SCHEMA).parquet(*map(str, files))
    for number, name in enumerate(("person", "auction", "bid")):
        events.where(f"event_type = {number}").select(f"{name}.*").createOrReplaceTempView(name)
    events.where("event_type = 2").select("arrival", "bid.bidder").createOrReplaceTempView("arrivals")
    return [tuple(row) for row in spark.sql(query.expected).collect()]


def last_of_each_key(query: Query, columns: list[str], rows: dict[int, list[Any]]) -> list[Any]:
    """What is left of a stream of updates: of each key the row of the last batch that has one."""
    at = [columns.index(name) for name in query.key]
    last: dict[Any, Any] = {}
    for batch in sorted(rows):
        last |= {tuple(row[i] for i in at): row for row in rows[batch]}
    return list(last.values())


def _all(rows: dict[int, list[Any]]) -> list[Any]:
    return [row for batch in sorted(rows) for row in rows[batch]]


def same(what: str, expected: list[Any], found: list[Any]) -> None:
    """Fails unless these are the same rows in any order."""
    missing, more = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    if missing or more:
        examples = f"missing such as {[*missing][:2]}, too many such as {[*more][:2]}"
        raise BenchmarkError(
            f"{what} differs: {missing.total()} of {len(expected)} rows are missing, {more.total()} are too many; "
            f"{examples}"
        )


def measure(
    name: str, sides: tuple[str, ...], where: str, shape: Shape, following: int, scenario: Scenario, work: Path
) -> dict[str, Any]:
    """Measures a query at a place.

    Args:
        name: The query.
        sides: The sides.
        where: The place.
        shape: Of the events before the kill.
        following: Batches after the first one that follows it; -1 for no restart at all.
        scenario: Partitions and so on.
        work: An empty directory for everything that is written.

    Returns:
        All raw numbers.

    Raises:
        BenchmarkError: The sides gave out different rows.
    """
    files = write_files(dataclasses.replace(shape, batches=shape.batches + 1 + following), work / "events")
    scenario = dataclasses.replace(scenario, options={**scenario.options, "cache_dir": str(work / "cache")})
    with open_place(where) as place:
        stage = Stage.open(place, sides, shape, scenario, work)
        if shape.warm_up:
            warm_up(QUERIES[name], sides, stage)
        running = stage.sides(QUERIES[name], sides)
        for side in running:
            side.polling = polling_at(where)
        run_in_turn(running, files[: shape.batches])
        found = {each: _measured(side, len(side.batches)) for each, side in zip(sides, running, strict=True)}
        same_measured(name, found, shape.batches)
        about = {"query": name, "place": where, "environment": environment(stage.spark)}
        os.kill(jvm_pid(stage.spark), signal.SIGKILL)
        # What is left of the session in this process says that it misses the JVM.
        logging.disable()
        if following >= 0:
            for number in order_of_restarts(name, len(sides)):
                found[sides[number]]["restart"] = _return(sides[number], running[number], files[shape.batches :])
            same_measured(name, found, shape.batches)
            if not any(rows for rows, _ in found[sides[0]]["restart"]["output"]):
                print(f"  {name} gave nothing out after the restart, so no row was compared there", file=sys.stderr)
        return {**about, "sides": found}


def order_of_restarts(query: str, sides: int) -> list[int]:
    """The numbers of so many sides; with each query another one is the first, for which no server is warm."""
    first = [*QUERIES].index(query) % sides
    return [*range(first, sides), *range(first)]


def warm_up(query: Query, names: tuple[str, ...], stage: Stage) -> None:
    """Runs a query on all sides on the local disk, so that the JVM has compiled what is measured then.

    A query runs for days. In the first batches of a JVM, half of the processor time and more is the compiler's and the
    interpreter's, which says as little of stock state as of merged state.
    """
    work = stage.work / "warm-up"
    shape = dataclasses.replace(
        stage.shape, batches=stage.shape.warm_up, events=-(-stage.shape.events // WARM_UP_EVENTS)
    )
    files = write_files(shape, work / "events")
    print(f"warming up with {len(files)} batches of {shape.events:,} events on a local disk", file=sys.stderr)
    with open_place("local") as place:
        sides = dataclasses.replace(stage, place=place, shape=shape, work=work).sides(query, names)
        run_in_turn(sides, files)
        forget_state(stage.spark, sides)
    shutil.rmtree(work, ignore_errors=True)


def same_measured(query: str, sides: dict[str, dict[str, Any]], batches: int) -> None:
    """Checks the rows of a measured query by its raw numbers. None are published without.

    Args:
        query: Its name.
        sides: The raw numbers of each side; the first one is what the others are compared with.
        batches: Before the restart, if there was one.

    Raises:
        BenchmarkError: A side ran more or fewer batches, or a batch gave out other rows or left others in state.
    """
    first = next(iter(sides.values()))
    for name, side in sides.items():
        title = KINDS[name].title
        if len(side["batches"]) != batches:
            raise BenchmarkError(f"{query}: {title} ran {len(side['batches'])} batches of {batches}")
        for number, (one, other) in enumerate(zip(first["batches"], side["batches"], strict=True)):
            same_sums(f"{query}, batch {number}: {title}", one, other)
        if "restart" in first:
            same_sums(f"{query} after the restart: {title}", first["restart"], side["restart"])
    if not sum(batch["output"][0] for batch in first["batches"]):
        raise BenchmarkError(f"{query} gave nothing out: this proves nothing")


def same_sums(what: str, stock: dict[str, Any], other: dict[str, Any]) -> None:
    """Fails unless a batch of a side, or its batches after a restart, gave out and left in state as much as stock's."""
    for name, means in (("output", "rows, sum of their hashes"), ("state_rows", "rows of state of each operator")):
        if stock[name] != other[name]:
            raise BenchmarkError(f"{what} differs: {other[name]}, stock {stock[name]} ({means})")


def _return(name: str, side: NexmarkSide, files: list[Path]) -> dict[str, Any]:
    """Starts a killed side again in a process of its own, on another host: without what this one has kept."""
    scenario, work = side.scenario, side.root.parent.parent
    shutil.rmtree(work / "local", ignore_errors=True)
    options = {**scenario.options, **ANOTHER_HOST}
    order, answer = work / "return-in.json", work / "return-out.json"
    answer.unlink(missing_ok=True)
    values = {
        "part": "return",
        "query": side.query.name,
        "side": name,
        "place": side.place.for_client(),
        "shape": dataclasses.asdict(side.shape),
        "scenario": dataclasses.replace(scenario, options=options).to_json(),
        "files": [str(file) for file in files],
        "work": str(work),
        "first_batch": len(side.batches),
    }
    order.write_text(json.dumps(values))
    command = [sys.executable, "-W", "ignore::FutureWarning", "-m", "benchmarks.nexmark_process"]
    is_served = side.place.url != "counting:"
    before = side.counters.snapshot(side.name) if is_served else {}
    if is_served:
        side.place.slow(side.counters)
    waits = work / FIRST_BATCH
    waits.unlink(missing_ok=True)
    process = subprocess.Popen([*command, str(order), str(answer)], cwd=ROOT)
    until = monotonic() + RETURN_SECONDS
    while process.poll() is None and not waits.exists() and monotonic() < until:
        sleep(0.05)
    counted = side.place.tally(minus(side.counters.snapshot(side.name), before)) if is_served else {}
    waits.unlink(missing_ok=True)
    try:
        process.wait(timeout=RETURN_SECONDS)
    finally:
        process.kill()
    if is_served:
        side.place.fast(side.counters)
    if process.returncode or not answer.exists():
        raise BenchmarkError(f"{side.name} did not come back")
    found: dict[str, Any] = {**json.loads(answer.read_text()), **counted}
    end(found.pop("jvm"))
    print(f"  {side.name} is back after {found['seconds']:.1f} s", file=sys.stderr, flush=True)
    return found


def come_back(order: dict[str, Any], scenario: Scenario, shape: Shape) -> dict[str, Any]:
    """Starts a killed side again, with a file that waits, and runs more batches.

    Args:
        order: What `measure` says.
        scenario: Partitions and so on.
        shape: Of the events.

    Returns:
        Seconds from the start of the query to the end of its first batch, what the following ones took, what all of
        them gave out, the rows of state after each, and the JVM's peak memory. On the local disk also calls.
    """
    name, work, place = order["side"], Path(order["work"]), client_of(order["place"])
    stage = Stage.open(place, (name,), shape, scenario, work)
    (side,) = stage.sides(QUERIES[order["query"]], (name,))
    first, *following = map(Path, order["files"])
    (side.root / "input" / first.name).hardlink_to(first)
    place.slow(side.counters)
    before = side.counters.snapshot(side.name)
    begin = monotonic()
    side.start(side.merged)
    seconds = monotonic() - begin
    counts = minus(side.counters.snapshot(side.name), before)
    # Where a server counts, the process that has it looks now.
    waits = work / FIRST_BATCH
    waits.touch()
    until = monotonic() + WAIT_SECONDS
    while waits.exists() and monotonic() < until:
        sleep(0.05)
    progress = side.progress()
    if progress["batchId"] != order["first_batch"]:
        raise BenchmarkError(f"{side.name} came back with batch {progress['batchId']}, not {order['first_batch']}")
    if counts and not calls(counts, STATE_CATEGORIES).get("read_bytes"):
        raise BenchmarkError(f"{side.name} came back and has read no state of its checkpoint: this proves nothing")
    side.first_batch = progress["batchId"] + 1
    for file in following:
        side.run_batch(file)
    place.fast(side.counters)
    peak, pid = jvm_memory(stage.spark), jvm_pid(stage.spark)
    side.stop()
    stage.spark.stop()
    return {
        "seconds": seconds,
        "output": [list(progress["observedMetrics"]["check"]), *(batch["output"] for batch in side.batches)],
        "state_rows": [state_rows(progress), *(batch["state_rows"] for batch in side.batches)],
        "durations_ms": dict(progress["durationMs"]),
        "following_ms": [batch["trigger_ms"] for batch in side.batches],
        "memory": peak,
        "jvm": pid,
        **(place.tally(counts) if counts else {}),
    }


def main() -> int:
    """Does what the order says."""
    order = json.loads(Path(sys.argv[1]).read_text())
    scenario, shape = Scenario.from_json(order["scenario"]), Shape(**order["shape"])
    answer = Path(sys.argv[2])
    work = Path(tempfile.mkdtemp(prefix="nexmark-")) if order["part"] != "return" else Path(order["work"])
    begin = monotonic()
    code = 0
    try:
        if order["part"] == "equal":
            result = equal(order["queries"], tuple(order["sides"]), shape, order["all_states"], scenario, work)
        elif order["part"] == "measure":
            result = measure(
                order["query"], tuple(order["sides"]), order["place"], shape, order["following"], scenario, work
            )
        else:
            result = come_back(order, scenario, shape)
        answer.write_text(json.dumps({**result, "process_seconds": round(monotonic() - begin, 1)}))
    except FAILURES as error:
        reason, *_ = str(error).split("\n\tat ")
        print(f"FAILED: {reason[:MESSAGE]}", file=sys.stderr)
        code = UNAVAILABLE if isinstance(error, PlaceUnavailable) else 1
    finally:
        if order["part"] != "return":
            shutil.rmtree(work, ignore_errors=True)
    sys.stderr.flush()
    if order["part"] == "measure":
        # What is left of a session whose JVM was killed is not ended in order.
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
