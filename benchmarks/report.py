"""The table and the picture, and pages that have some."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.figures import Figures
from benchmarks.filesystems import METADATA_CALLS

COLOURS = {"stock": "#b0483a", "merged": "#2f6db3"}
KIND_COLOURS = (
    "#4c78a8",
    "#83bcb6",
    "#9ecae9",
    "#f58518",
    "#54a24b",
    "#e45756",
    "#72b7b2",
    "#b279a2",
    "#ff9da6",
    "#9d755d",
    "#bab0ac",
)


def put_into_page(page: Path, mark: str, lines: list[str]) -> None:
    """Replaces what a page has between two comments.

    Args:
        page: A page in Markdown.
        mark: The comments are ``<!-- mark:begin -->`` and ``<!-- mark:end -->``, each on a line of its own.
        lines: What comes between them.

    Raises:
        click.ClickException: The page does not have them. It stays as it is.
    """
    first, last = f"<!-- {mark}:begin -->", f"<!-- {mark}:end -->"
    before, begin, rest = page.read_text(encoding="utf-8").partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise click.ClickException(f"{page} has no {first} and {last}")
    page.write_text("\n".join([before + begin, *lines, end + after]), encoding="utf-8")


def _number(value: float | None, digits: int = 1) -> str:
    if value is None:
        return "-"
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.{digits}f}"


def _rows(found: Figures) -> list[tuple[str, dict[str, str], str]]:
    """Label, the sides' values, ratio."""

    def row(label: str, figure: str, digits: int = 1, scale: float = 1) -> tuple[str, dict[str, str], str]:
        values = {name: _number(getattr(side, figure) / scale, digits) for name, side in found.sides.items()}
        ratio = found.ratio(figure)
        return label, values, "-" if ratio is None else f"{ratio:.3g}"

    rows = [row("files created under state/", "created")]
    for kind in METADATA_CALLS:
        values = {name: _number(side.calls_per_batch[kind]) for name, side in found.sides.items()}
        if any(value != "0" for value in values.values()):
            rows.append((f"  {kind} per steady batch", values, ""))
    rows += [
        row("file-system calls for state per steady batch", "calls_total"),
        row("  mean, maintenance included", "calls_mean"),
        row("  of which maintenance threads", "calls_maintenance"),
        row("hflush and hsync per steady batch", "flushes"),
        row("files left under state/", "files_left"),
        row("MB left under state/", "bytes_left", 2, 1e6),
        ("space amplification", {"merged": _number(found.amplification, 2)}, ""),
        row("median batch, seconds", "batch_seconds", 2),
    ]
    if found.memory:
        values = {name: _number(size / 1e6, 0) for name, size in found.memory.items()}
        both = len(found.memory) == 2
        rows.append(
            (
                "peak memory of the JVM, MB",
                values,
                f"{found.memory['merged'] / found.memory['stock']:.3g}" if both else "",
            )
        )
    return rows


def print_tables(results: list[Figures]) -> None:
    """Prints one table for each scenario, and a summary when there are several.

    Args:
        results: What the scenarios showed.
    """
    console = Console(width=max(100, Console().width))
    for found in results:
        table = Table(title=found.scenario.title(), title_justify="left", title_style="bold")
        table.add_column("", no_wrap=True)
        for name in found.sides:
            table.add_column(name, justify="right")
        table.add_column("merged / stock", justify="right")
        for label, values, ratio in _rows(found):
            table.add_row(label, *[values.get(name, "") for name in found.sides], ratio)
        console.print(table)
    if len(results) > 1:
        _print_summary(console, results)


def _print_summary(console: Console, results: list[Figures]) -> None:
    def pair(found: Figures, figure: str, digits: int = 1) -> str:
        return " / ".join(_number(getattr(side, figure), digits) for side in found.sides.values())

    table = Table(title="all runs, " + " / ".join(results[0].sides), title_justify="left", title_style="bold")
    for column in ("", "created", "calls\nper batch", "files\nleft", "space\nampl.", "batch, s", "time\nratio"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=bool(column))
    for found in results:
        table.add_row(
            found.scenario.title(),
            pair(found, "created"),
            pair(found, "calls_total"),
            pair(found, "files_left"),
            _number(found.amplification, 2),
            pair(found, "batch_seconds", 2),
            _number(found.ratio("batch_seconds"), 2),
        )
    console.print(table)


def draw(results: list[Figures], raw: list[dict[str, Any]], target: Path) -> None:
    """Draws one row of pictures for each scenario.

    Args:
        results: What the scenarios showed.
        raw: Their raw numbers, in the same order.
        target: The PNG file.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(len(results), 3, figsize=(15, 3.6 * len(results)), squeeze=False, layout="constrained")
    for (calls_axis, time_axis, files_axis), found, result in zip(axes, results, raw, strict=True):
        _draw_calls(calls_axis, found)
        for name, side in result["sides"].items():
            number = [batch["batch"] + 1 for batch in side["batches"]]
            style = {"color": COLOURS[name], "label": name, "marker": ".", "linewidth": 1.4}
            time_axis.plot(number, [batch["trigger_ms"] / 1000 for batch in side["batches"]], **style)
            files = [batch["disk"]["files"] for batch in side["batches"]]
            files_axis.plot(number, files, **style)
            files_axis.annotate(
                f"{files[-1]:,}", (number[-1], files[-1]), textcoords="offset points", xytext=(0, 6), ha="right"
            )
        steady = len(result["sides"][next(iter(result["sides"]))]["batches"]) // 2 + 0.5
        time_axis.axvspan(steady, time_axis.get_xlim()[1], color="#000000", alpha=0.05, label="steady (medians)")
        time_axis.set(title="seconds per batch (the first, warm-up, may be cut off)", xlabel="batch")
        # The first batch warms the JVM up, mostly at the expense of the side that runs first.
        usual = [batch["trigger_ms"] / 1000 for side in result["sides"].values() for batch in side["batches"][1:]]
        time_axis.set_ylim(0, 1.25 * max(usual))
        files_axis.set(title="files under state/ (log scale)", xlabel="batch", yscale="log")
        files_axis.set_ylim(bottom=0.8, top=max(20.0, files_axis.get_ylim()[1] * 2))
        for axis in (time_axis, files_axis):
            axis.grid(alpha=0.3)
            axis.legend(fontsize=8)
        calls_axis.set_title(found.scenario.title(), loc="left", fontsize=10, fontweight="bold", pad=22)
    figure.savefig(target, dpi=110)
    plt.close(figure)


def _draw_calls(axis: Any, found: Figures) -> None:
    names = list(found.sides)
    left = dict.fromkeys(names, 0.0)
    axis.barh(names, [0] * len(names))  # so that the sides are there even when neither made a call
    for kind, colour in zip(METADATA_CALLS, KIND_COLOURS, strict=True):
        widths = [found.sides[name].calls_per_batch[kind] for name in names]
        if any(widths):
            axis.barh(names, widths, left=[left[name] for name in names], color=colour, label=kind, height=0.6)
            for name, width in zip(names, widths, strict=True):
                left[name] += width
    widest = max(left.values()) or 1
    for name in names:
        total = found.sides[name].calls_total
        axis.text(left[name] + widest * 0.015, name, _number(total), va="center", fontweight="bold")
    axis.set_xlim(0, widest * 1.15)
    axis.invert_yaxis()
    axis.set_xlabel("file-system calls for state in a steady batch (median)")
    axis.grid(axis="x", alpha=0.3)
    axis.legend(fontsize=8, ncols=4, loc="lower right")
