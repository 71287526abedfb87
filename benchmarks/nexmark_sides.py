"""The sides of a run of Nexmark: stock and merged state in both stores, each with its own query and checkpoint."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.nexmark_events import SCHEMA, Shape
from benchmarks.nexmark_places import Place
from benchmarks.nexmark_queries import Query
from benchmarks.scenario import Scenario
from benchmarks.sides import STOCK_PROVIDERS, Side, cpu_seconds, merged_settings, start_session
from benchmarks.workloads import fingerprint

_FILE_MERGING = "spark.sql.streaming.stateStore.fileMerging."
SCOPE = f"{_FILE_MERGING}groupCommit.scope"
REMOTE = {f"{_FILE_MERGING}restore": "remote", f"{_FILE_MERGING}local.sizeLimit": "16m"}
"""The smallest limit that there is: all stores of the process together keep so much of their SSTs on the local disk."""
_OF_QUERIES = "spark.sql.streaming."


@dataclass(frozen=True)
class Kind:
    """What a side is.

    Attributes:
        store: "rocksdb" or "heap".
        merged: Whether its state is merged.
        settings: More settings of its query.
        stock: The side that it is compared with; its own name for a stock side.
        title: What it is called in tables.
    """

    store: str
    merged: bool
    stock: str
    title: str
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_remote(self) -> bool:
        """Whether the checkpoint holds its state, and the local disk what was read of it."""
        return self.settings.get(f"{_FILE_MERGING}restore") == "remote"


KINDS = {
    "stock": Kind("rocksdb", False, "stock", "RocksDB, stock"),
    "merged": Kind("rocksdb", True, "stock", "RocksDB, merged"),
    "batch-scope": Kind("rocksdb", True, "stock", "RocksDB, merged, scope=batch", {SCOPE: "batch"}),
    "remote": Kind("rocksdb", True, "stock", "RocksDB, merged, remote-first", REMOTE),
    "heap-stock": Kind("heap", False, "heap-stock", "heap, stock"),
    "heap-merged": Kind("heap", True, "heap-stock", "heap, merged"),
}
"""All sides, by the names that they have in results."""

USUAL = tuple(name for name in KINDS if name not in ("batch-scope", "remote"))
_AWAY = tuple(name for name in KINDS if name != "batch-scope")

OF_PLACE = {"local5": _AWAY, "hdfs": _AWAY, "s3": tuple(KINDS)}
"""The sides that a place has by default, where these are not those of `USUAL`."""


@dataclass(kw_only=True)
class NexmarkSide(Side):
    """A side that runs a query of Nexmark.

    Attributes:
        kind: What it is.
        place: Where its checkpoint is.
        query: What it computes.
        shape: Of the events.
        keep: Whether to keep all rows that it gives out, instead of the sums of their hashes only.
        merged: What `configure` sets for it.
        polling: How often its query asks for input; None for what the session says.
        rows: What it has given out, by batch.
        columns: Their names.
    """

    kind: Kind
    place: Place
    query: Query
    shape: Shape
    keep: bool = False
    merged: dict[str, str] = field(default_factory=dict)
    polling: str | None = None
    rows: dict[int, list[Any]] = field(default_factory=dict)
    columns: list[str] = field(default_factory=list)

    @property
    def location(self) -> str:
        """The checkpoint's location."""
        return self.place.location(self.name, self.directory)

    @property
    def checkpoint(self) -> str:
        """The checkpoint's location as its query gets it."""
        return f"merged+{self.location}" if self.is_merged and self.scenario.door == "path" else self.location

    @property
    def is_merged(self) -> bool:
        """Whether its state is merged."""
        return self.kind.merged

    def start(self, merged: dict[str, str]) -> None:
        """Starts the query, and returns when it waits for input."""
        (self.root / "input").mkdir(parents=True, exist_ok=True)
        conf = {f"{_OF_QUERIES}stateStore.providerClass": STOCK_PROVIDERS[self.kind.store]}
        if self.polling:
            conf[f"{_OF_QUERIES}pollingDelay"] = self.polling
        if self.keep:
            # A check of rows, which is short, is to see snapshots.
            conf[f"{_OF_QUERIES}stateStore.minDeltasForSnapshot"] = "1"
        if self.is_merged:
            conf |= {key: value for key, value in merged.items() if key.startswith(_OF_QUERIES)}
        for key, value in (conf | dict(self.kind.settings)).items():
            self.session.conf.set(key, value)
        self.counters.register(self.name, str(self.directory))
        reader = self.session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        result = self.query.build(reader.parquet(f"file:{self.root / 'input'}"), self.shape)
        self.columns = list(result.columns)
        writer = result.observe("check", *fingerprint(result.columns)).writeStream
        writer = writer.foreachBatch(self._keep) if self.keep else writer.format("noop")
        self._query = (
            writer.outputMode(self.query.output_mode)
            .option("checkpointLocation", self.checkpoint)
            .queryName(self.name)
            .start()
        )
        self._query.processAllAvailable()

    def _keep(self, frame: DataFrame, batch: int) -> None:
        self.rows[batch] = [tuple(row) for row in frame.collect()]

    def run_batch(self, source: Path) -> dict[str, Any]:
        """Feeds one file and waits until it is processed.

        Args:
            source: The input file.

        Returns:
            What was measured, with the processor time of this JVM and its Python workers meanwhile.
        """
        before = cpu_seconds(self.session)
        record = super().run_batch(source)
        record["cpu_seconds"] = cpu_seconds(self.session) - before
        record |= self.place.tally(record.pop("counts"))
        # Where a batch spends its time: sums over all tasks, which run side by side.
        operators = self.progress()["stateOperators"]
        for name in ("allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs", "memoryUsedBytes"):
            record[name] = sum(operator[name] for operator in operators)
        record["state_rows"] = state_rows(self.progress())
        return record


def state_rows(progress: dict[str, Any]) -> list[int]:
    """The rows that the state of each operator has after a batch."""
    return [operator["numRowsTotal"] for operator in progress["stateOperators"]]


def settings_of(scenario: Scenario, names: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """What `configure` sets for each store that merged sides among these have."""
    stores = {KINDS[name].store for name in names if KINDS[name].merged}
    return {store: merged_settings(dataclasses.replace(scenario, store=store)) for store in sorted(stores)}


@dataclass(frozen=True)
class Stage:
    """What all sides of a process share.

    Attributes:
        spark: The session whose children the sides have.
        place: Where checkpoints are.
        shape: Of the events.
        scenario: Partitions and so on.
        merged: What `settings_of` returned.
        work: The directory of everything else.
    """

    spark: SparkSession
    place: Place
    shape: Shape
    scenario: Scenario
    merged: dict[str, dict[str, str]]
    work: Path

    @staticmethod
    def open(place: Place, names: tuple[str, ...], shape: Shape, scenario: Scenario, work: Path) -> Stage:
        """Starts a session for sides of these names."""
        merged = settings_of(scenario, names)
        together = {key: value for settings in merged.values() for key, value in settings.items()}
        return Stage(start_session(scenario, work, together, more=place.settings), place, shape, scenario, merged, work)

    def sides(self, query: Query, names: tuple[str, ...], keep: bool = False) -> list[NexmarkSide]:
        """Makes the sides of a query. They do not run yet.

        Args:
            query: What they compute.
            names: Of KINDS.
            keep: Whether they keep all rows.
        """
        counters = self.place.counters(self.spark)
        return [
            NexmarkSide(
                name=f"{query.name}-{name}",
                session=self.spark.newSession(),
                scenario=self.scenario,
                root=self.work / query.name / name,
                counters=counters,
                kind=KINDS[name],
                place=self.place,
                query=query,
                shape=self.shape,
                keep=keep,
                merged=self.merged.get(KINDS[name].store, {}),
            )
            for name in names
        ]


def orders(count: int, rounds: int) -> list[tuple[int, ...]]:
    """Orders for rounds of so many sides, in which each one follows each one, itself too, about equally often.

    What a side does in the background after its batch takes time from the batch that follows, and in a query that runs
    alone that is its own. Where several orders do for that, a round has the one with which sides have places that they
    had least.
    """
    followed: Counter[tuple[int, int]] = Counter()
    placed: Counter[tuple[int, int]] = Counter()
    found: list[tuple[int, ...]] = []

    def pairs(order: tuple[int, ...]) -> list[tuple[int, int]]:
        return [*itertools.pairwise((*found[-1][-1:], *order) if found else order)]

    def cost(order: tuple[int, ...]) -> tuple[int, int]:
        return sum(followed[pair] for pair in pairs(order)), sum(placed[place] for place in enumerate(order))

    for _ in range(rounds):
        best = min(itertools.permutations(range(count)), key=cost)
        followed.update(pairs(best))
        placed.update(enumerate(best))
        found.append(best)
    return found


def polling_at(place: str) -> str | None:
    """How often sides that wait their turn ask for input at a place; None for what the session says.

    Asking is charged to the side whose batch runs meanwhile: the slower it is, the more. So where calls wait they ask
    once a second. On the local disk all sides are about as fast, and a run is over sooner with the session's setting.
    """
    return None if place == "local" else "1s"


def run_in_turn(sides: list[NexmarkSide], files: list[Path]) -> None:
    """Starts all sides, and runs their batches in turn."""
    for side in sides:
        side.start(side.merged)
    counters, place = sides[0].counters, sides[0].place
    place.slow(counters)
    try:
        # The first side reads its input from a cold cache, too.
        for number, (file, order) in enumerate(zip(files, orders(len(sides), len(files)), strict=True)):
            for each in order:
                sides[each].run_batch(file)
            times = ", ".join(f"{side.batches[-1]['trigger_ms'] / 1000:.2f}" for side in sides)
            print(f"  {sides[0].query.name} batch {number + 1:3}/{len(files)}: {times} s", file=sys.stderr, flush=True)
    finally:
        place.fast(counters)
