"""The queries that are run while processes die, their input, and what a batch computation gives for it.

Each file of input becomes one batch: no query here has a watermark, so there are no batches without data.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.inputs import appear

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "k long, side int, v long, pad string"
Rows = list[tuple[Any, ...]]

_HOT_KEYS = 40
_KEYS = 400


def rows_of(batch: int) -> Rows:
    """The rows of one batch's input; the same every time."""
    generator = random.Random(batch)
    rows: Rows = []
    for number in range(120):
        hot = number < _HOT_KEYS
        key = number if hot else 1000 + generator.randrange(_KEYS)
        # In the join, a key has company in its own batch and in the next one.
        moving = 1_000_000 + 20 * batch + generator.randrange(40)
        pad = hashlib.sha256(f"{batch}/{number}".encode()).hexdigest()
        rows.append((key, 0, generator.randrange(1000), pad))
        if number % 3 == 0:
            rows.append((moving, 1 + number % 2, generator.randrange(1000), pad[:8]))
    return rows


def write_input(directory: Path, batches: Iterable[int]) -> None:
    """Writes the input of batches."""
    directory.mkdir(parents=True, exist_ok=True)
    names = ("k", "side", "v", "pad")
    for batch in batches:
        lines = "\n".join(json.dumps(dict(zip(names, row, strict=True))) for row in rows_of(batch))
        appear(directory / f"{batch:06}.json", lines, batch)


@dataclass(frozen=True)
class Workload:
    """A stateful query, and the same in plain Python.

    Attributes:
        build: Makes its result out of rows, streaming or not.
        output_mode: Of the query.
        state_parts: Options of the ``statestore`` reader for each part of its state.
        state_columns: What to select of what the reader gives.
        state: The state after some input, by the part's number.
        result: What it has given out after some input: the last row of each key in update mode, else all rows.
    """

    build: Callable[[DataFrame], DataFrame]
    output_mode: str
    state_parts: tuple[dict[str, str], ...]
    state_columns: tuple[str, ...]
    state: Callable[[Rows], list[Rows]]
    result: Callable[[Rows], Rows]

    def given_out(self, batches: Mapping[int, Rows]) -> Rows:
        """What the query has given out in all, by what it gave out in each batch."""
        if self.output_mode == "append":
            return sorted(row for rows in batches.values() for row in rows)
        latest = {row[0]: row for batch in sorted(batches) for row in batches[batch]}
        return sorted(latest.values())


def _sum(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as sf

    groups = rows.where("side = 0").groupBy("k")
    return groups.agg(sf.sum("v").alias("total"), sf.count("*").alias("rows"), sf.max("pad").alias("pad"))


def _summed(rows: Rows) -> Rows:
    by_key: dict[int, Rows] = {}
    for row in rows:
        if row[1] == 0:
            by_key.setdefault(row[0], []).append(row)
    return sorted(
        (key, sum(row[2] for row in rows), len(rows), max(row[3] for row in rows)) for key, rows in by_key.items()
    )


def _join(rows: DataFrame) -> DataFrame:
    # All columns of one side have names of their own, so that Spark takes both from one source. With two, a file may
    # come between their looks at the directory, and is in two batches then.
    left = rows.where("side = 1").selectExpr("k", "v AS lv", "pad AS lp")
    right = rows.where("side = 2").selectExpr("k AS rk", "v AS rv", "pad AS rp")
    return left.join(right, left["k"] == right["rk"]).select("k", "lv", "lp", "rv", "rp")


def _joined(rows: Rows) -> Rows:
    left, right = _sides(rows)
    by_key: dict[int, Rows] = {}
    for row in right:
        by_key.setdefault(row[0], []).append(row)
    return sorted((k, v, pad, other[1], other[2]) for k, v, pad in left for other in by_key.get(k, []))


def _sides(rows: Rows) -> list[Rows]:
    return [sorted((k, v, pad) for k, side, v, pad in rows if side == number) for number in (1, 2)]


WORKLOADS = {
    "aggregation": Workload(
        _sum, "update", ({},), ("key.k", "value.*"), lambda rows: [_summed(rows)], lambda rows: _summed(rows)
    ),
    "join": Workload(_join, "append", ({"joinSide": "left"}, {"joinSide": "right"}), ("value.*",), _sides, _joined),
}
