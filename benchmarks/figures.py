"""Turns raw numbers into the figures of the table, the picture and the README. Only this module computes them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from benchmarks.filesystems import METADATA_CALLS, calls
from benchmarks.scenario import Scenario

STATE_CATEGORIES = ("state", "merged")


@dataclass(frozen=True)
class SideFigures:
    """The costs of one side.

    Attributes:
        created: Files created under `state/` in the whole run, temporary ones included, Spark's metadata not.
        calls_per_batch: Metadata calls for state in a steady batch, by kind: medians over the second half of batches.
        calls_total: Metadata calls of all kinds: the median of the sums.
        calls_mean: The mean of the sums, which includes maintenance even if it runs in few batches.
        calls_maintenance: The share of maintenance threads in this mean.
        flushes: hflush and hsync calls in a steady batch, median.
        files_left: Files under `state/` after the last batch.
        bytes_left: The bytes of these files.
        batch_seconds: Time of a steady batch, median.
        state_metadata_calls: Calls in the whole run for `_metadata` and `_stateSchema`, which are Spark's own.
        after_stop: Metadata calls for state when the query was stopped.
    """

    created: int
    calls_per_batch: dict[str, float]
    calls_total: float
    calls_mean: float
    calls_maintenance: float
    flushes: float
    files_left: int
    bytes_left: int
    batch_seconds: float
    state_metadata_calls: int
    after_stop: int


def _metadata_sum(operations: dict[str, int]) -> int:
    return sum(operations.get(kind, 0) for kind in METADATA_CALLS)


def side_figures(side: dict[str, Any]) -> SideFigures:
    """Computes the figures of one side.

    Args:
        side: The side's part of a scenario's raw numbers.

    Returns:
        The figures.
    """
    batches = side["batches"]
    steady = batches[len(batches) // 2 :]
    per_batch = [calls(batch["counts"], STATE_CATEGORIES) for batch in steady]
    maintenance = [calls(batch["counts"], STATE_CATEGORIES, ("maintenance",)) for batch in steady]
    sums = [_metadata_sum(operations) for operations in per_batch]
    return SideFigures(
        created=calls(side["totals"], STATE_CATEGORIES).get("create", 0),
        calls_per_batch={
            kind: statistics.median(operations.get(kind, 0) for operations in per_batch) for kind in METADATA_CALLS
        },
        calls_total=statistics.median(sums),
        calls_mean=statistics.mean(sums),
        calls_maintenance=statistics.mean(_metadata_sum(operations) for operations in maintenance),
        flushes=statistics.median(operations.get("hflush", 0) + operations.get("hsync", 0) for operations in per_batch),
        files_left=batches[-1]["disk"]["files"],
        bytes_left=batches[-1]["disk"]["bytes"],
        batch_seconds=statistics.median(batch["trigger_ms"] for batch in steady) / 1000,
        state_metadata_calls=_metadata_sum(calls(side["totals"], ("state_meta",))),
        after_stop=_metadata_sum(calls(side["after_stop"], STATE_CATEGORIES)),
    )


@dataclass(frozen=True)
class Figures:
    """The figures of a scenario.

    Attributes:
        scenario: What was run.
        sides: The figures of "stock" and "merged", or of one of them, by these names.
        amplification: Physical bytes of merged files for each live byte; None where it was not measured.
        memory: Peak resident bytes of a JVM that ran one side only; empty without `--memory`.
    """

    scenario: Scenario
    sides: dict[str, SideFigures]
    amplification: float | None
    memory: dict[str, int]

    def ratio(self, figure: str) -> float | None:
        """A figure of merged state, divided by stock's; None unless both ran and stock's is not zero."""
        if len(self.sides) < 2:
            return None
        stock, merged = getattr(self.sides["stock"], figure), getattr(self.sides["merged"], figure)
        return merged / stock if stock else None


def figures(result: dict[str, Any]) -> Figures:
    """Computes the figures of a scenario's raw numbers."""
    sides = {name: side_figures(side) for name, side in result["sides"].items()}
    space = result["sides"].get("merged", {}).get("space")
    return Figures(
        scenario=Scenario.from_json(result["scenario"]),
        sides=sides,
        amplification=space["amplification"] if space else None,
        memory={name: memory["peak_resident"] for name, memory in result.get("memory", {}).items()},
    )
