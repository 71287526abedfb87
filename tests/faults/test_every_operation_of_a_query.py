"""Every call for merged files in a short query fails once: it fails or goes on, and a restart gives the right state."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.faults.queries import CONF, MASTER, Query, said_by
from tests.jvm.harness import TESTING, View, in_time
from tests.sampling import note, numbers

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="calls that fail")]

DOORS = [("path", "rocksdb"), ("provider", "heap")]
FAULTS = [
    ("create", "success_but_error"),
    ("hflush", "torn"),
    ("hsync", "ioexception"),
    ("close", "ioexception"),
    ("delete", "success_but_error"),
    ("listStatus", "ioexception"),
]
KEYS = 200
BATCHES = (0, 1, 2)
SHARE = 16
"""Of the calls, one in so many fails in a sample."""


@pytest.fixture(scope="module")
def session(make_spark: Any) -> SparkSession:
    conf = {
        "spark.sql.streaming.minBatchesToRetain": "1",
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1",
    }
    spark: SparkSession = make_spark(
        {**CONF, **conf}, mode="path", master=MASTER, max_file_size="64k", max_space_amplification=1.1
    )
    return spark


class Maintained(Query):
    """A query whose state is large enough to fill files, and that is maintained and cleaned after each batch."""

    def feed(self, *batches: int) -> None:
        for batch in batches:
            rows = [(key, batch * 10 + key) for key in range(batch * 50, batch * 50 + KEYS)]
            self.rows += rows
            path = self.source / f"{batch:04d}.json"
            lines = [json.dumps({"k": k, "v": v, "text": _text(k, v)}) for k, v in rows]
            path.write_text("\n".join(lines), encoding="utf-8")
            os.utime(path, (1_700_000_000 + batch,) * 2)

    def start(self) -> Any:
        self.set_up()
        schema = "k long, v long, text string"
        stream = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(self.source))
        result = stream.groupBy("k").agg(F.sum("v"), F.count("*"), F.max("text"))
        writer = result.writeStream.outputMode("update").option("checkpointLocation", self.location)
        upkeep = getattr(self.spark._jvm, f"{TESTING}.MaintainAfterBatch")
        writer._jwrite.foreachBatch(upkeep(str(self.checkpoint)))
        return writer.trigger(availableNow=True).start()

    def assert_right(self) -> None:
        self.set_up()
        state = self.spark.read.format("statestore").load(self.location)
        found = {tuple(row) for row in state.selectExpr("key.k", "value.*").collect()}
        values: dict[int, list[int]] = {}
        for key, value in self.rows:
            values.setdefault(key, []).append(value)
        assert found == {(k, sum(v), len(v), max(_text(k, each) for each in v)) for k, v in values.items()}


def _text(key: int, value: int) -> str:
    """Something that cannot be compressed."""
    return hashlib.sha512(f"{key} {value}".encode()).hexdigest()


@dataclass(frozen=True)
class Undisturbed:
    """A query where nothing fails: it relocates and unlinks.

    Attributes:
        door: The door.
        store: The store.
        calls: By operation, how many the query made for merged files.
    """

    door: str
    store: str
    calls: dict[str, int]


@pytest.fixture(scope="module", params=DOORS, ids=["-".join(door) for door in DOORS])
def undisturbed(request: pytest.FixtureRequest, session: SparkSession, jvm: Any, tmp_path_factory: Any) -> Undisturbed:
    door, store = request.param
    faulty = getattr(jvm, f"{TESTING}.FaultyFileSystem")
    query = Maintained(session, tmp_path_factory.mktemp(store) / "undisturbed", door, store)
    query.feed(*BATCHES)
    faulty.registerRoot(store, str(query.checkpoint))
    query.run()
    calls: Counter[str] = Counter()
    for thread in json.loads(faulty.snapshotJson())[store].values():
        calls.update(thread.get("merged", {}))
    faulty.clearRoots()
    query.assert_right()
    metrics = dict(jvm.io.pyspark.statestore.log.MergedLogs.all())[f"faulty:{query.state}"].metrics().snapshot()
    assert metrics["relocatedSegments"] > 0 < metrics["unlinkedFiles"]
    return Undisturbed(door, store, calls)


@pytest.mark.sweep
@pytest.mark.parametrize(("operation", "kind"), FAULTS)
@pytest.mark.usefixtures("by_hand")
def test_a_query(
    session: SparkSession, tmp_path: Path, faulty: Any, undisturbed: Undisturbed, operation: str, kind: str
) -> None:
    for n in numbers(SHARE, (undisturbed.door, operation)):
        query = Maintained(session, tmp_path / str(n), undisturbed.door, undisturbed.store)
        query.feed(*BATCHES)
        faulty.addRule(operation, f"{query.state}/_merged", n, kind)
        try:
            in_time(query.run, seconds=130)
        except (PySparkException, Py4JJavaError) as error:
            said = said_by(error)
            assert "PSS_" in said or "injected fault" in said, f"n = {n}: {said}"
        reached = faulty.fired() > 0
        faulty.clear()

        query.feed(len(BATCHES))
        query.run()

        query.assert_right()
        View.of(query.state).contents()
        if not reached:
            break
    note(1 + n // SHARE, n)
    # What the threads of a query do is the same each time but for a call or two.
    assert n > undisturbed.calls[operation] / 2 > 0
