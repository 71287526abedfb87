"""Queries of one session that are not merged are as they would be in a session that knows nothing of merging."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.conftest import MakeSpark
from tests.streaming.runs import Run, Setting, assert_state_is_merged, merged_files, unload_stores
from tests.streaming.workloads import BATCHES, write_batches

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(1, files="sessions and processes of their own")]

STORES = ("rocksdb", "heap")


def files_below(folder: Path) -> set[str]:
    """All files. Of RocksDB's own, whose names are random and whose number depends on its timing, only their kinds."""
    names = (str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    return {re.sub(r"(SSTs|logs)/(\.?)\d{6}-[0-9a-f-]{36}", r"\1/\2<name>", name) for name in names}


def run_side_by_side(runs: Iterable[Run]) -> None:
    for half in (range(BATCHES // 2), range(BATCHES // 2, BATCHES)):
        queries = []
        for run in runs:
            write_batches(run.input, half)
            queries.append((run, run.start()))
        for run, query in queries:
            run.finish(query)


@pytest.fixture(scope="module")
def pure_stock(make_spark: MakeSpark, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """By store: a run in a session without any of our settings."""
    spark = make_spark()
    unload_stores(spark)
    folder = tmp_path_factory.mktemp("pure")
    runs = {s: Run(spark, "aggregation", Setting("stock", s, changelog=False), folder / s) for s in STORES}
    run_side_by_side(runs.values())
    return runs


@pytest.mark.sweep(2)
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("door", ["path", "provider"])
def test_stock_beside_merged(
    make_spark: MakeSpark, pure_stock: dict[str, Run], tmp_path: Path, door: str, store: str
) -> None:
    """A plain path beside the path door; Spark's own provider class beside the provider door."""
    spark = make_spark(mode=door, store=store)
    unload_stores(spark)
    merged = Run(spark, "aggregation", Setting(door, store, changelog=False), tmp_path / "merged")
    stock = Run(spark, "aggregation", Setting("stock", store, changelog=False), tmp_path / "stock")
    run_side_by_side([merged, stock])
    assert_state_is_merged(merged)
    assert merged_files(stock.checkpoint) == []
    assert files_below(stock.checkpoint) == files_below(pure_stock[store].checkpoint)
    assert stock.rows == merged.rows == pure_stock[store].rows


@pytest.mark.sweep(2)
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("door", ["path", "provider"])
def test_what_is_not_state_is_where_it_would_be(
    make_spark: MakeSpark, pure_stock: dict[str, Run], tmp_path: Path, door: str, store: str
) -> None:
    """Offsets, commits, sources, metadata and schemas of a merged checkpoint are those of a stock one, as files."""

    def not_state(run: Run) -> set[str]:
        return {f for f in files_below(run.checkpoint) if not re.match(r"state/(\d+/\d+/(?!_metadata)|_merged/)", f)}

    spark = make_spark(mode=door, store=store)
    unload_stores(spark)
    merged = Run(spark, "aggregation", Setting(door, store, changelog=False), tmp_path)
    run_side_by_side([merged])
    expected = not_state(pure_stock[store])
    assert {name.split("/")[0] for name in expected} >= {"offsets", "commits", "metadata", "sources", "state"}
    assert not_state(merged) == expected
