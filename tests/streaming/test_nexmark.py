"""Two of Nexmark's queries give out the same on stock Spark and merged, and what SQL says.

`python benchmarks/nexmark.py --quick` does so with all ten, and more events.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.filesystems import filesystem_settings
from benchmarks.nexmark_events import Shape, write_files
from benchmarks.nexmark_places import open_place
from benchmarks.nexmark_process import compare
from benchmarks.nexmark_queries import QUERIES
from benchmarks.nexmark_sides import USUAL, Stage, settings_of
from benchmarks.scenario import Scenario
from tests.conftest import MakeSpark

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SHAPE = Shape(batches=2, events=1_000)
SETTINGS = {
    **filesystem_settings(),
    "spark.sql.shuffle.partitions": "1",
    # One batch for each file, as the sides of the benchmark have it.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.noDataProgressEventInterval": "3600000",
}


@pytest.mark.since("4.0", "its queries chain operators whose watermarks Spark passes on since 4.0")
@pytest.mark.parametrize(
    ("name", "sides"),
    [("q8", ("stock", "merged")), ("q18", ("heap-stock", "heap-merged"))],
)
def test_a_query_gives_the_same_everywhere(
    make_spark: MakeSpark, tmp_path: Path, name: str, sides: tuple[str, str]
) -> None:
    """A deduplication and a join behind it, which append, and an aggregation that updates."""
    scenario = Scenario(workload="nexmark", partitions=1)
    files = write_files(SHAPE, tmp_path / "events", closing=True)
    merged = settings_of(scenario, USUAL)
    # What is not a setting of a query has to be there from the start.
    together = {key: value for of_store in merged.values() for key, value in of_store.items()}
    more = {key: value for key, value in together.items() if ".streaming." not in key and key != "spark.jars"}
    with open_place("local") as place:
        spark = make_spark({**SETTINGS, **more})
        stage = Stage(spark, place, SHAPE, scenario, merged, tmp_path)
        found = compare(QUERIES[name], stage, sides, files)

    assert found["rows"] >= SHAPE.batches
    stock, ours = (found["sides"][side]["batches"][-1] for side in sides)
    assert stock["state_files"] >= 1
    assert ours["state_files"] == 0
    assert ours["state_calls"] < stock["state_calls"] / 10
    assert ours["state_bytes"] > 0
    assert ours["cpu_seconds"] > 0
