"""Random chains of reshapes: the rows of a query's state, keys and values, are the same before and after each of them.

A history is a real query's checkpoint, made once for many chains: an operator, a door, a store, a checkpoint format,
with or without changelogs and checksums of rows; some were repartitioned, and some went back to an earlier batch and
took other input. A chain works on a copy of it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pyspark_statestore import Checkpoint, StateStoreFilesError
from pyspark_statestore.log.restorability import stores_of_operator
from pyspark_statestore.migration import split
from pyspark_statestore.migration.spark_side import SparkSide
from pyspark_statestore.session.doors import MERGED_PROVIDERS, STOCK_PROVIDERS, store_of
from pyspark_statestore.storage import Directory, Location
from tests.conftest import MakeSpark
from tests.copies import copy_stopped
from tests.reshape.harness import at, go_on, partitions, since, went_back
from tests.sampling import sampled
from tests.streaming.runs import PROVIDER, STATE_STORE, Run, Setting, session_conf, unload_stores
from tests.streaming.workloads import WORKLOADS

pytestmark = [pytest.mark.spark, pytest.mark.slow, since, pytest.mark.sweep(1, files="reshape")]

CHAINS = 400
"""With five reshapes each."""

RESHAPES = 5
ONLY_DATA = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
CHECKSUMS = {f"{STATE_STORE}rowChecksum.enabled": "true", f"{STATE_STORE}rowChecksum.readVerificationRatio": "1"}
VARIABLES = {"transform_with_state": ("total", "latest", "kinds", "$eventTimers_keyToTimestamp")}


@dataclass(frozen=True)
class History:
    """What a chain begins with.

    Attributes:
        workload: The operator.
        setting: How its state is kept.
        has_row_checksums: Whether Spark puts one before each value.
        went_back: Whether the query went back to an earlier batch.
    """

    workload: str
    setting: Setting
    has_row_checksums: bool
    went_back: bool

    @classmethod
    def drawn(cls, draw: random.Random) -> History:
        """One at random; few enough that many chains share one."""
        workload = draw.choice(sorted(WORKLOADS))
        only_stock = WORKLOADS[workload].only_stock_class
        door, store = draw.choice(
            [("provider", "rocksdb"), ("path", "rocksdb"), ("stock", "rocksdb"), ("path", "heap")]
        )
        if only_stock:
            door, store = "path", "rocksdb"
        version = draw.choice([1, 2]) if store == "rocksdb" else 1
        setting = Setting(door, store, version, draw.random() < 0.5, version == 2 and draw.random() < 0.5)
        return cls(workload, setting, draw.random() < 0.3, draw.random() < 0.6)

    @property
    def conf(self) -> dict[str, str]:
        """The session's settings for it: all doors go through one session."""
        provider = MERGED_PROVIDERS if self.setting.door == "provider" else STOCK_PROVIDERS
        conf = {**self.setting.conf, PROVIDER: provider[self.setting.store], **ONLY_DATA}
        return {**conf, **(CHECKSUMS if self.has_row_checksums else {})}

    def lived(self, spark: SparkSession, folder: Path) -> Run:
        """Runs its query."""
        draw = random.Random(str(self))
        run = Run(spark, self.workload, self.setting, folder)
        run = go_on(run, [0, 1], {**self.conf, **partitions(draw.choice([1, 2, 3]))})
        if not self.went_back:
            return run
        # The version after the one that it goes back to is no repartitioning's: Spark itself reads such a snapshot, and
        # not the changelog that the query writes beside it later, whoever reshapes it.
        go_on(run, [2], self.conf)
        for batch, n in ((3, draw.choice([4, 6])), (4, draw.choice([1, 3])), (5, draw.choice([2, 8]))):
            with session_conf(spark, self.conf):
                at(run).repartition(n, spark=spark)
            go_on(run, [batch], self.conf)
        went_back(run, 1)
        return go_on(run, [7], self.conf)


@dataclass
class Chain:
    """A copy of a history's checkpoint, and what becomes of it."""

    history: History
    run: Run
    folder: Path
    draw: random.Random
    done: list[str] = field(default_factory=list)

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self.run.checkpoint)

    def rows(self) -> Counter[str]:
        """All rows of the state, wherever they are, by this package's own reader, without a JVM."""
        found: Counter[str] = Counter()
        directory = Directory(Location.of(self.run.checkpoint))
        stores = sorted({(each[0], each[2]) for each in stores_of_operator(directory, 0, 1) or ()})
        for operator, store in stores:
            for variable in VARIABLES.get(self.history.workload, (None,)):
                table = self.checkpoint.state(operator, store_name=store, state_variable=variable)
                keys, values = (table[name].to_pylist() for name in ("key", "value"))
                found.update(repr((store, variable, *row)) for row in zip(keys, values, strict=True))
        return found

    def rows_by_spark(self) -> Counter[str]:
        """The same by Spark's reader, which looks for each in the right partition only where it is asked to."""
        found: Counter[str] = Counter()
        for part in WORKLOADS[self.history.workload].state_parts:
            rows = self.run.spark.read.format("statestore").options(**part).load(self.run.location)
            found.update(repr((str(part), *tuple(row)[:-1])) for row in rows.collect())
        return found

    def versions(self) -> set[tuple[object, ...]]:
        """All versions of all partitions that can be restored: a query may go back to them."""
        table = self.checkpoint.inspect.versions()
        names = ("operator_id", "partition_id", "store_name", "version", "state_store_checkpoint_id")
        rows = zip(*(table[name].to_pylist() for name in (*names, "is_restorable")), strict=True)
        return {row[:-1] for row in rows if row[-1]}

    def step(self) -> None:
        """One reshape."""
        steps: list[Callable[[], str]] = [self.repartition, self.repartition, self.fork, self.there_and_back]
        steps += [self.break_off, self.convert]
        self.done.append(self.draw.choice(steps)())

    def number(self) -> int:
        return self.draw.choice([1, 2, 3, 4, 6, 8, 12])

    def repartition(self) -> str:
        n = self.number()
        done = self.checkpoint.repartition(n, spark=self.run.spark, force=True)
        return f"repartition({n}) in batch {done.batch}"

    def there_and_back(self) -> str:
        n = self.number()
        if self.checkpoint.repartition(n, spark=self.run.spark, force=True).batch is None:
            return f"repartition({n}) of as many"
        self.checkpoint.undo_repartition(force=True)
        return f"repartition({n}), and back"

    def break_off(self) -> str:
        """A repartitioning that ends after one of its steps; then the same again, or back."""
        n, step = self.number(), self.draw.choice(["enter", "write"])
        original = getattr(SparkSide, step)

        def ends(*arguments: object) -> object:
            original(*arguments)
            raise KeyboardInterrupt

        setattr(SparkSide, step, ends)
        try:
            self.checkpoint.repartition(n, spark=self.run.spark, force=True)
            return f"repartition({n}) of as many"
        except KeyboardInterrupt:
            pass
        finally:
            setattr(SparkSide, step, original)
        if self.draw.random() < 0.5:
            self.checkpoint.undo_repartition(force=True)
            return f"repartition({n}) up to {step}, and back"
        self.checkpoint.repartition(n, spark=self.run.spark, force=True)
        return f"repartition({n}) up to {step}, and again"

    def fork(self) -> str:
        n, mode = self.number(), self.draw.choice(["no_claim", "copy"])
        fork = replace(self.run, folder=self.folder / f"fork{len(self.done)}")
        self.checkpoint.fork(fork.checkpoint, mode, partitions=n, spark=self.run.spark)
        self.run = fork
        return f"fork({mode}, {n})"

    def convert(self) -> str:
        newest = max((self.run.checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        stores = [
            name for name in (*STOCK_PROVIDERS.values(), *MERGED_PROVIDERS.values()) if name in newest.read_text()
        ]
        other = {"rocksdb": "heap", "heap": "rocksdb"}[store_of(stores[0])]
        try:
            self.checkpoint.convert(store=other, spark=self.run.spark, force=True)
        except StateStoreFilesError as error:
            if error.getErrorClass() != "PSS_CANNOT_CONVERT_STORE":
                raise
            return f"no convert({other})"
        return f"convert({other})"


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> dict[History, Run]:
    """Histories that were lived already, by what they are."""
    return {}


@contextmanager
def split_from(size: int) -> Iterator[None]:
    before = split.SMALLEST_ROW
    split.SMALLEST_ROW = size
    try:
        yield
    finally:
        split.SMALLEST_ROW = before


@pytest.mark.parametrize("chain", sampled(range(CHAINS), 3))
def test_no_row_is_lost_doubled_or_changed(
    make_spark: MakeSpark,
    lived: dict[History, Run],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    chain: int,
) -> None:
    draw = random.Random(chain)
    spark = make_spark(mode="provider")
    history = History.drawn(draw)
    if history not in lived:
        lived[history] = history.lived(spark, tmp_path_factory.mktemp("history"))
        unload_stores(spark)
    original = lived[history]
    run = replace(original, folder=tmp_path / "copy")
    copy_stopped(original.checkpoint, run.checkpoint)
    it = Chain(history, run, tmp_path, draw)
    with session_conf(spark, history.conf):
        before, by_spark = it.rows(), it.rows_by_spark()
        assert before
        for _ in range(RESHAPES):
            versions, place = it.versions(), it.run.checkpoint
            with split_from(draw.choice([0, 0, 1 << 40])):
                it.step()
            assert it.rows() == before, it.done
            # What is left of batches that the query went back before is cleared, and a fork has no later versions.
            if not history.went_back and it.run.checkpoint == place:
                assert versions <= it.versions(), it.done
        assert it.rows_by_spark() == by_spark, it.done
    if history.setting.door != "stock":
        damages = it.checkpoint.maintenance.verify().damages
        assert not damages, (it.done, damages)
