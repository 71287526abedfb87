"""The tables and the picture of `hdfs.py`."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.report import COLOURS, KIND_COLOURS
from benchmarks.scenario import SIDES, Scenario

FOR_STATE = ("state", "merged", "leases")
# "client": what a new client of HDFS asks once. Spark makes one for each state store.
SPARKS_OWN = ("logs", "state_meta", "client")


def _first_mkdirs(request: dict[str, Any]) -> bool:
    return bool(request["kind"] == "Mkdirs" and request["part"] in ("start", "0"))


def by_kind(result: dict[str, Any], side: str, categories: tuple[str, ...]) -> Counter[str]:
    """Returns the requests of a side by kind, without the first batch's mkdirs for state."""
    kinds: Counter[str] = Counter()
    for request in result["requests"]:
        left_out = categories == FOR_STATE and _first_mkdirs(request)
        if request["side"] == side and request["category"] in categories and not left_out:
            kinds[request["kind"]] += request["count"]
    return kinds


def first_mkdirs(result: dict[str, Any], side: str) -> int:
    """Returns the number of mkdirs for state in the first batch."""
    return sum(
        request["count"]
        for request in result["requests"]
        if request["side"] == side and request["category"] in FOR_STATE and _first_mkdirs(request)
    )


def per_partition_and_batch(result: dict[str, Any], side: str) -> float:
    """Returns the requests for state per partition and batch, without the first batch's mkdirs."""
    scenario = Scenario.from_json(result["scenario"])
    return sum(by_kind(result, side, FOR_STATE).values()) / (scenario.partitions * scenario.batches)


def title(result: dict[str, Any]) -> str:
    """Returns what was run, in words."""
    return f"{Scenario.from_json(result['scenario']).title().replace(', counting', '')}, {result['master']}"


def print_tables(result: dict[str, Any]) -> None:
    """Prints requests by kind, and each remaining request of merged state."""
    console = Console(width=max(110, Console().width))
    table = Table(title=f"requests to the NameNode: {title(result)}", title_justify="left", title_style="bold")
    columns = [(side, categories) for categories in (FOR_STATE, SPARKS_OWN) for side in SIDES]
    counts = [by_kind(result, side, categories) for side, categories in columns]
    table.add_column("")
    for side, categories in columns:
        table.add_column(f"{side}\n{'state' if categories == FOR_STATE else 'Spark itself'}", justify="right")
    for kind in sorted({kind for each in counts for kind in each}):
        table.add_row(kind, *[f"{each[kind]:,}" for each in counts])
    table.add_row("all", *[f"{sum(each.values()):,}" for each in counts], style="bold")
    figures = [f"{per_partition_and_batch(result, side):.3f}" for side in SIDES]
    table.add_row("per partition and batch", *figures, style="bold")
    scenario = Scenario.from_json(result["scenario"])
    leases = [by_kind(result, side, ("leases",)).total() / (scenario.partitions * scenario.batches) for side in SIDES]
    table.add_row("  of it renewals of leases (by time)", *[f"{each:.3f}" for each in leases])
    table.add_row("left out: mkdirs of state in batch 0", *[str(first_mkdirs(result, side)) for side in SIDES])
    console.print(table)
    console.print(f"The NameNode's own count of all requests: {result['name_node_total']:,} (the same as here).")
    _print_rest(console, result)


def _print_rest(console: Console, result: dict[str, Any]) -> None:
    rest: dict[tuple[str, str], Counter[str]] = {}
    for request in result["requests"]:
        if request["side"] == "merged" and request["category"] in FOR_STATE and not _first_mkdirs(request):
            path = re.sub(r"^/merged/checkpoint/", "", request["path"])
            path = re.sub(r"\d{13}-[0-9a-f]{16}-", "…-", path)
            path = re.sub(r"^state/(\d+)/\d+", r"state/\1/<partition>", path)
            rest.setdefault((request["kind"], path), Counter())[request["part"]] += request["count"]
    table = Table(title="what remains of merged state's", title_justify="left", title_style="bold")
    for column in ("request", "path", "number", "in batch (times)"):
        table.add_column(column, overflow="fold")
    for (kind, path), parts in sorted(rest.items()):
        where = " ".join(part if count == 1 else f"{part}({count})" for part, count in parts.items())
        table.add_row(kind, path or "(none)", str(sum(parts.values())), where)
    console.print(table)


def draw(result: dict[str, Any], target: Path) -> None:
    """Draws requests by kind, and over the batches.

    Args:
        result: The raw numbers.
        target: The PNG file.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    scenario = Scenario.from_json(result["scenario"])
    figure, (kinds_axis, batches_axis) = plt.subplots(1, 2, figsize=(13, 3.8), layout="constrained")
    counts = {side: by_kind(result, side, FOR_STATE) for side in SIDES}
    left = dict.fromkeys(SIDES, 0)
    kinds = [kind for kind, _ in sum(counts.values(), Counter()).most_common()]
    for number, kind in enumerate(kinds):
        widths = [counts[side][kind] for side in SIDES]
        colour = KIND_COLOURS[number % len(KIND_COLOURS)]
        kinds_axis.barh(SIDES, widths, left=[left[side] for side in SIDES], color=colour, label=kind, height=0.6)
        for side, width in zip(SIDES, widths, strict=True):
            left[side] += width
    for side in SIDES:
        text = f" {left[side]:,}  ({per_partition_and_batch(result, side):.3g} per partition and batch)"
        kinds_axis.text(left[side], side, text, va="center", fontweight="bold")
    kinds_axis.set_xlim(0, max(left.values()) * 2.2)
    kinds_axis.invert_yaxis()
    kinds_axis.set_xlabel("requests for state in the whole run, without the first batch's mkdirs")
    kinds_axis.set_title("NameNode requests by kind", fontsize=10)
    kinds_axis.legend(fontsize=8, ncols=2, loc="lower right")
    for side in SIDES:
        parts: Counter[str] = Counter()
        for request in result["requests"]:
            if request["side"] == side and request["category"] in FOR_STATE and not _first_mkdirs(request):
                parts[request["part"]] += request["count"]
        batches = range(scenario.batches)
        heights = [parts[str(batch)] for batch in batches]
        batches_axis.plot([b + 1 for b in batches], heights, color=COLOURS[side], marker=".", label=side)
    batches_axis.set_yscale("symlog", linthresh=1)
    batches_axis.set_ylim(bottom=-0.2)
    batches_axis.set(title="requests for state in each batch", xlabel="batch")
    batches_axis.title.set_fontsize(10)
    batches_axis.legend(fontsize=8)
    for axis in (kinds_axis, batches_axis):
        axis.grid(alpha=0.3)
    figure.suptitle(title(result), fontsize=11, fontweight="bold")
    figure.savefig(target, dpi=110)
    plt.close(figure)
