"""Does a query that runs for a long time stay small? Files, bytes and space amplification over 300 batches.

python benchmarks/steady_state.py                  # both kinds of checkpointing, then 500,000 keys
python benchmarks/steady_state.py --quick          # 60 batches of each
"""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.figures import STATE_CATEGORIES  # noqa: E402
from benchmarks.filesystems import METADATA_CALLS, calls  # noqa: E402
from benchmarks.report import COLOURS  # noqa: E402
from benchmarks.scenario import PRESETS, Scenario  # noqa: E402
from benchmarks.shim import build_shim  # noqa: E402
from benchmarks.small_files import run_in_child  # noqa: E402

MOST_ON_AVERAGE = 1.5
MOST_EVER = 2.0
MOST_RELOCATED = 0.5


@dataclass(frozen=True)
class Steadiness:
    """The figures of a run after its warm-up.

    Attributes:
        files: The median number of files under `state/` in the first and in the last quarter, by side.
        megabytes: The median size of these files, likewise.
        mean: The mean space amplification.
        worst: The highest space amplification.
        last: The space amplification after the last batch.
        relocated: The bytes that were moved for each byte that Spark wrote.
        calls: The metadata calls for state per partition and batch, by side.
        batch_seconds: The median time of a batch, by side.
    """

    files: dict[str, tuple[float, float]]
    megabytes: dict[str, tuple[float, float]]
    mean: float
    worst: float
    last: float
    relocated: float
    calls: dict[str, float]
    batch_seconds: dict[str, float]


def steadiness(result: dict[str, Any], warm_up: int) -> Steadiness:
    """Computes the figures of one run.

    Args:
        result: The run's raw numbers.
        warm_up: Batches that do not count.

    Returns:
        The figures.
    """
    sides = {name: side["batches"][warm_up:] for name, side in result["sides"].items()}
    space = [batch["space"] for batch in sides["merged"]]
    first, last = space[0], space[-1]
    amplification = [each["amplification"] for each in space]
    partitions = result["scenario"]["partitions"]

    def ends(batches: list[dict[str, Any]], what: str, scale: float) -> tuple[float, float]:
        values = [batch["disk"][what] / scale for batch in batches]
        quarter = max(1, len(values) // 4)
        return statistics.median(values[:quarter]), statistics.median(values[-quarter:])

    def metadata_calls(batches: list[dict[str, Any]]) -> float:
        counted = [calls(batch["counts"], STATE_CATEGORIES) for batch in batches]
        total = sum(each.get(kind, 0) for each in counted for kind in METADATA_CALLS)
        return float(total / len(batches) / partitions)

    return Steadiness(
        files={name: ends(batches, "files", 1) for name, batches in sides.items()},
        megabytes={name: ends(batches, "bytes", 1e6) for name, batches in sides.items()},
        mean=statistics.mean(amplification),
        worst=max(amplification),
        last=amplification[-1],
        relocated=(last["relocated_bytes"] - first["relocated_bytes"])
        / max(1, last["written_bytes"] - first["written_bytes"]),
        calls={name: metadata_calls(batches) for name, batches in sides.items()},
        batch_seconds={
            name: statistics.median(batch["trigger_ms"] for batch in batches) / 1000 for name, batches in sides.items()
        },
    )


def print_table(scenario: Scenario, found: Steadiness, warm_up: int) -> None:
    """Prints the figures of a run.

    Args:
        scenario: What was run.
        found: The run's figures.
        warm_up: Batches that did not count.
    """
    table = Table(title=f"{scenario.title()}, after {warm_up} for warm-up", title_justify="left", title_style="bold")
    table.add_column("", no_wrap=True)
    for name in found.files:
        table.add_column(name, justify="right")
    table.add_column("merged / stock", justify="right")

    def row(label: str, values: dict[str, float], digits: int) -> None:
        ratio = values["merged"] / values["stock"] if values.get("stock") else None
        table.add_row(
            label, *[f"{values[name]:,.{digits}f}" for name in found.files], "-" if ratio is None else f"{ratio:.3g}"
        )

    for when, quarter in enumerate(("first", "last")):
        row(f"files under state/, {quarter} quarter", {name: ends[when] for name, ends in found.files.items()}, 0)
    for when, quarter in enumerate(("first", "last")):
        row(f"MB under state/, {quarter} quarter", {name: ends[when] for name, ends in found.megabytes.items()}, 1)
    row("calls for state per partition and batch", found.calls, 4)
    row("median batch, seconds", found.batch_seconds, 2)
    blank = [""] * (len(found.files) - 1)
    for label, value, limit in (
        ("space amplification, mean", found.mean, MOST_ON_AVERAGE),
        ("  highest after any batch", found.worst, MOST_EVER),
        ("  after the last batch", found.last, None),
        ("relocated bytes / written bytes", found.relocated, MOST_RELOCATED),
    ):
        table.add_row(label, *blank, f"{value:.2f}", "" if limit is None else f"at most {limit}: {value <= limit}")
    Console(width=max(100, Console().width)).print(table)


def draw(results: list[dict[str, Any]], warm_up: int, target: Path) -> None:
    """Draws files, bytes and space amplification over time, a row for each run.

    Args:
        results: The runs' raw numbers.
        warm_up: Batches that do not count.
        target: The PNG file.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(len(results), 3, figsize=(15, 3.6 * len(results)), squeeze=False, layout="constrained")
    for (files, size, space), result in zip(axes, results, strict=True):
        for name, side in result["sides"].items():
            number = [batch["batch"] + 1 for batch in side["batches"]]
            style = {"color": COLOURS[name], "label": name, "linewidth": 1.4}
            files.plot(number, [batch["disk"]["files"] for batch in side["batches"]], **style)
            size.plot(number, [batch["disk"]["bytes"] / 1e6 for batch in side["batches"]], **style)
        merged = result["sides"]["merged"]["batches"]
        number = [batch["batch"] + 1 for batch in merged]
        size.plot(
            number, [batch["space"]["live_bytes"] / 1e6 for batch in merged], "--", color="#555555", label="live bytes"
        )
        space.plot(number, [batch["space"]["amplification"] for batch in merged], color=COLOURS["merged"])
        for limit, what in ((MOST_ON_AVERAGE, "allowed on average"), (MOST_EVER, "allowed at most")):
            space.axhline(limit, color="#b0483a", linestyle=":", linewidth=1)
            space.annotate(what, (number[-1], limit), ha="right", va="bottom", fontsize=8)
        files.set(yscale="log")
        files.set_ylim(bottom=0.8)
        size.set(title="MB under state/")
        size.set_ylim(bottom=0)
        space.set(title="space amplification of merged files", ylim=(0.9, max(2.3, space.get_ylim()[1])))
        for axis in (files, size, space):
            axis.set_xlabel("batch")
            axis.grid(alpha=0.3)
            axis.axvspan(0, warm_up, color="#000000", alpha=0.05)
        files.legend(fontsize=8)
        size.legend(fontsize=8)
        title = Scenario.from_json(result["scenario"]).title()
        files.set_title(title, loc="left", fontsize=10, fontweight="bold", pad=22)
        files.text(0, 1.02, "files under state/ (log scale)", transform=files.transAxes)
    figure.savefig(target, dpi=110)
    plt.close(figure)


def planned(batches: int, partitions: int, rows: int, options: dict[str, str], quick: bool) -> list[Scenario]:
    """Returns the runs: churn with and without changelogs, and the 500,000 keys of the first benchmark."""
    churn = Scenario(
        workload="windowed_aggregation",
        partitions=partitions,
        batches=batches,
        rows_per_batch=rows,
        keys=20 * rows,
        retain=5,
        maintenance_interval="2s",
        options=options,
        trace_space=True,
    )
    keys = {
        **PRESETS["amplification"],
        "workload": "aggregation",
        "partitions": PRESETS["amplification"]["partitions"][0],
    }
    if quick:
        keys["batches"] = batches
    return [churn, replace(churn, changelog=False), Scenario(**keys, options=options, trace_space=True)]


@click.command(context_settings={"show_default": True})
@click.option("--batches", type=click.IntRange(8), default=300)
@click.option("--partitions", type=click.IntRange(1), default=10)
@click.option("--rows-per-batch", type=click.IntRange(1), default=5_000)
@click.option("--warm-up", type=click.IntRange(1), default=30, help="Batches that do not count.")
@click.option(
    "--only", type=click.Choice(["changelog", "snapshots", "keys"]), multiple=True, help="Leave the others out."
)
@click.option("--sides", type=click.Choice(["both", "merged"]), default="both")
@click.option("--quick", is_flag=True, help="60 batches of each.")
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="Of merged state, as for configure().")
@click.option("--build/--no-build", default=True, help="Compile the shim first if its sources changed.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("build/benchmarks"))
def main(
    batches: int,
    partitions: int,
    rows_per_batch: int,
    warm_up: int,
    only: tuple[str, ...],
    sides: str,
    quick: bool,
    options: tuple[str, ...],
    build: bool,
    out: Path,
) -> None:
    """Run queries for many batches on stock Spark and on merged state, in turn, and watch files and bytes."""
    if build:
        build_shim()
    batches = min(batches, 60) if quick else batches
    values = dict(pair.partition("=")[::2] for pair in options)
    runs = dict(
        zip(
            ("changelog", "snapshots", "keys"), planned(batches, partitions, rows_per_batch, values, quick), strict=True
        )
    )
    results = []
    for name, scenario in runs.items():
        if not only or name in only:
            if sides == "merged":
                scenario = Scenario.from_json({**scenario.to_json(), "sides": ["merged"]})
            print(scenario.title(), file=sys.stderr)
            results.append(run_in_child(scenario))
            print_table(scenario, steadiness(results[-1], warm_up), warm_up)
    out.mkdir(parents=True, exist_ok=True)
    (out / "steady_state.json").write_text(json.dumps(results, indent=1) + "\n")
    draw(results, warm_up, out / "steady_state.png")
    print(f"raw numbers: {out}/steady_state.json, picture: {out}/steady_state.png", file=sys.stderr)


if __name__ == "__main__":
    main()
