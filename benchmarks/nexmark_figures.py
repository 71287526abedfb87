"""The figures of Nexmark: from raw numbers to tables, a picture, and what is worse than the published run."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.nexmark_places import PLACES
from benchmarks.nexmark_queries import QUERIES
from benchmarks.nexmark_sides import KINDS
from benchmarks.report import COLOURS

MOST_TIME = {"local": 1.05, "local5": 0.6}
"""The target for the median batch, as a part of stock's, by place."""
MOST_CALLS = 0.02
"""The target for calls for state, as a part of stock's."""

WORSE = 1.1
"""From here on, a figure is a regression."""
CHECKED = ("mean_seconds", "batch_seconds", "cpu_seconds", "state_bytes")
"""The figures that are compared with those of the published run, each as a part of stock's; of the first two the first
that both runs have. Where pairs of forty batches are drawn again, ratios of means differ by 3 %, of medians by 4."""
COUNTED = {"state_calls": 1.0, "state_files": 0.5, "all_calls": 2.0}
"""Those that are compared as they are, since no machine makes more of them than another, and by how much they may be
more besides: a file more in ten batches takes some calls, and a lease is renewed by time."""

FIRST, PERIOD = 6, 10
"""Spark takes a snapshot of each store with each tenth version, and uploads it within seconds: figures are of tens of
batches after the first six, and so of one snapshot with its upload in each ten."""

# place -> query -> side -> figure -> value
Figures = dict[str, dict[str, dict[str, dict[str, float]]]]


def steady_batches(batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The batches that figures are of: all tens after the first six, or the second half of fewer than sixteen."""
    periods = (len(batches) - FIRST) // PERIOD
    return batches[FIRST : FIRST + periods * PERIOD] if periods > 0 else batches[len(batches) // 2 :]


def side_figures(side: dict[str, Any], events: int) -> dict[str, float]:
    """Computes the figures of one side.

    Args:
        side: Its raw numbers.
        events: In a batch.

    Returns:
        By name: ``batch_seconds`` (median), ``mean_seconds``, ``p99_seconds``, ``events_per_second``, and the means of
        ``cpu_seconds``, ``state_calls``, ``all_calls``, ``state_files``, ``all_files`` and ``state_bytes``, all over
        `steady_batches`; ``files_left``, ``bytes_left``, ``amplification``, ``restart_seconds``,
        ``restart_calls`` and ``peak_bytes`` where they were measured.
    """
    steady = steady_batches(side["batches"])
    seconds = [batch["trigger_ms"] / 1000 for batch in steady]
    found = {
        "batch_seconds": statistics.median(seconds),
        "mean_seconds": statistics.mean(seconds),
        "p99_seconds": float(np.percentile(seconds, 99)),
    }
    found["events_per_second"] = events / found["batch_seconds"]
    for name in ("cpu_seconds", "state_calls", "all_calls", "state_files", "all_files", "state_bytes"):
        if name in steady[0]:
            found[name] = statistics.mean(batch[name] for batch in steady)
    found |= {f"{name}_left": count for name, count in side["left"].items()}
    if side["amplification"] is not None:
        found["amplification"] = side["amplification"]
    if "restart" in side:
        again = side["restart"]
        found["restart_seconds"] = again["seconds"]
        if "state_calls" in again:
            found["restart_calls"] = again["state_calls"]
        found["peak_bytes"] = again["memory"]["peak_resident"]
    return found


def ratio(sides: dict[str, dict[str, float]], side: str, figure: str) -> float | None:
    """A figure of a side as a part of stock's; None where there is none or stock's is nothing."""
    stock, own = sides.get(KINDS[side].stock, {}).get(figure), sides.get(side, {}).get(figure)
    return own / stock if own is not None and stock else None


def _checked(sides: dict[str, dict[str, float]], side: str, figure: str) -> float | None:
    """A figure of a side as runs are compared by it; None where it is not known."""
    return ratio(sides, side, figure) if figure in CHECKED else sides[side].get(figure)


@dataclass(frozen=True)
class Regression:
    """A figure that is more than a tenth worse than in the published run.

    Attributes:
        place: Where.
        query: Of which query.
        side: Of which side.
        figure: One of CHECKED or of COUNTED.
        before: The published figure, as a part of stock's if it is one of CHECKED.
        now: The same of this run.
    """

    place: str
    query: str
    side: str
    figure: str
    before: float
    now: float

    @property
    def what(self) -> tuple[str, str, str, str]:
        """What it is about."""
        return (self.place, self.query, self.side, self.figure)

    def __str__(self) -> str:
        where = f"{self.place}, {self.query}, {KINDS[self.side].title}"
        of = " of stock's" if self.figure in CHECKED else " a batch"
        return f"{where}: {self.figure} is {self.now:.3g}{of}, and {self.before:.3g} was published"


def regressions(published: Figures, found: Figures) -> list[Regression]:
    """Compares this run's figures with those of the published run.

    Args:
        published: The figures of the published run.
        found: Those of this one. What only one of them has is not compared.

    Returns:
        What is worse.
    """
    return [
        Regression(*what, old, new)
        for what, (old, new) in compared(published, found).items()
        if new > old * WORSE + COUNTED.get(what[-1], 0)
    ]


def _comparable(before: dict[str, float], now: dict[str, float]) -> list[str]:
    """The figures of a side by which runs are compared: of the times one."""
    mean, median, *others = CHECKED
    return [mean if mean in before and mean in now else median, *others, *COUNTED]


def compared(published: Figures, found: Figures) -> dict[tuple[str, str, str, str], tuple[float, float]]:
    """What both runs have: by place, query, side and figure, the published one and that of this run."""
    pairs = {}
    for place, queries in found.items():
        for query, sides in queries.items():
            before = published.get(place, {}).get(query, {})
            for side in (name for name in sides if KINDS[name].merged and name in before):
                for figure in _comparable(before[side], sides[side]):
                    old, new = _checked(before, side, figure), _checked(sides, side, figure)
                    if old is not None and new is not None:
                        pairs[place, query, side, figure] = (old, new)
    return pairs


def not_compared(published: Figures, found: Figures) -> list[str]:
    """What only the published run has, or only this one, of the queries of this one: a sentence for each."""
    done = compared(published, found)
    sentences = []
    for place, queries in found.items():
        for query, sides in queries.items():
            before = published.get(place, {}).get(query, {})
            for side in (name for name in KINDS if KINDS[name].merged and (name in sides or name in before)):
                title = f"{place} {query} {KINDS[side].title}"
                if side not in before:
                    sentences.append(f"{title} was not published")
                elif side not in sides:
                    sentences.append(f"{title} was not run")
                else:
                    known = {*sides[side], *before[side]}
                    figures = _comparable(before[side], sides[side])
                    missing = [each for each in figures if (place, query, side, each) not in done]
                    sentences += [f"{title}: {each} of only one run is known" for each in missing if each in known]
    return sentences


def missed(found: Figures) -> list[str]:
    """Which targets are missed: a sentence for each."""
    sentences = []
    for place, queries in found.items():
        for query, sides in queries.items():
            for side in (name for name in sides if KINDS[name].merged):
                for figure, most in (("batch_seconds", MOST_TIME.get(place)), ("state_calls", MOST_CALLS)):
                    value = ratio(sides, side, figure)
                    if most is not None and value is not None and value > most:
                        what = "the median batch takes" if figure == "batch_seconds" else "calls for state are"
                        title = KINDS[side].title
                        sentences.append(f"{place} {query} {title}: {what} {value:.3g} of stock's, target {most}")
    return sentences


def _is_beside_stock(sides: dict[str, dict[str, float]], side: str) -> bool:
    """Whether a side of merged state was measured, and stock with the same store too."""
    return KINDS[side].merged and side in sides and KINDS[side].stock in sides


def _pair(sides: dict[str, dict[str, float]], side: str, figure: str, scale: float = 1, digits: int = 2) -> str:
    """Stock's value, this side's, and their ratio."""
    stock, own = sides.get(KINDS[side].stock, {}).get(figure), sides.get(side, {}).get(figure)
    if stock is None or own is None:
        return ""
    part = ratio(sides, side, figure)
    shown = f"{stock / scale:,.{digits}f} → {own / scale:,.{digits}f}"
    return shown if part is None else f"{shown} ({part:.2f})"


def tables(found: Figures) -> list[str]:
    """All figures as tables in Markdown, one for each place and side; each cell is stock → merged (their ratio)."""
    lines: list[str] = []
    for place, queries in found.items():
        names = [name for name in KINDS if any(_is_beside_stock(sides, name) for sides in queries.values())]
        for side in names:
            title = f"{KINDS[side].title.replace(', merged', '')}, {PLACES[place]}"
            lines += ["", f"**{title[0].upper()}{title[1:]}**", ""]
            lines += [
                "| query | median batch, s | p99, s | events a second | CPU a batch, s | calls for state a batch | all "
                "calls | files for state a batch | MB for state a batch | restart to first batch, s | "
                "calls for state there | MB left | space amplification | peak memory, MB |",
                "|---|" + "---:|" * 13,
            ]
            for query, sides in queries.items():
                if not _is_beside_stock(sides, side):
                    continue
                cells = [
                    query,
                    _pair(sides, side, "batch_seconds"),
                    _pair(sides, side, "p99_seconds"),
                    _pair(sides, side, "events_per_second", digits=0),
                    _pair(sides, side, "cpu_seconds"),
                    _pair(sides, side, "state_calls", digits=0),
                    _pair(sides, side, "all_calls", digits=0),
                    _pair(sides, side, "state_files", digits=1),
                    _pair(sides, side, "state_bytes", 1e6),
                    _pair(sides, side, "restart_seconds"),
                    _pair(sides, side, "restart_calls", digits=0),
                    _pair(sides, side, "bytes_left", 1e6, 1),
                    f"{sides[side]['amplification']:.2f}" if "amplification" in sides[side] else "",
                    _pair(sides, side, "peak_bytes", 1e6, 0),
                ]
                lines.append(f"| {' | '.join(cells)} |")
    return lines[1:]


def summary(found: Figures) -> list[str]:
    """One table in Markdown: the median batch as a part of stock's, and calls for state, by query."""
    columns = [
        (place, side)
        for place, queries in found.items()
        for side in KINDS
        if any(_is_beside_stock(sides, side) for sides in queries.values())
    ]
    heads = [f"{place}, {KINDS[side].title.replace(', merged', '')}" for place, side in columns]
    lines = ["| query | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]
    for query in (name for name in QUERIES if any(name in queries for queries in found.values())):
        cells = []
        for place, side in columns:
            sides = found[place].get(query, {})
            time, calls = ratio(sides, side, "batch_seconds"), ratio(sides, side, "state_calls")
            cells.append("" if time is None else f"{time:.2f}; {'?' if calls is None else f'{calls:.3f}'}")
        lines.append(f"| {query}: {QUERIES[query].asks} ({QUERIES[query].operators}) | {' | '.join(cells)} |")
    return lines


def draw(found: Figures, target: Path) -> None:
    """Draws, for each place, the median batches beside stock's, and the calls for state.

    Args:
        found: The figures.
        target: The file, whose ending says what kind of picture it is.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams["svg.hashsalt"] = "nexmark"
    figure, axes = plt.subplots(len(found), 2, figsize=(12, 3.1 * len(found)), squeeze=False, layout="constrained")
    for (time_axis, calls_axis), (place, queries) in zip(axes, found.items(), strict=True):
        names = list(queries)
        merged = [side for side in KINDS if any(_is_beside_stock(queries[name], side) for name in names)]
        width = 0.8 / max(len(merged), 1)
        for number, side in enumerate(merged):
            at = np.arange(len(names)) + (number - (len(merged) - 1) / 2) * width
            shade = {"color": COLOURS["merged"], "alpha": 1 - 0.22 * number, "width": width}
            times = [ratio(queries[name], side, "batch_seconds") or 0 for name in names]
            time_axis.bar(at, times, label=KINDS[side].title, **shade)
        time_axis.axhline(1, color=COLOURS["stock"], linewidth=1.2, label="stock")
        if place in MOST_TIME:
            time_axis.axhline(MOST_TIME[place], color="#444444", linewidth=1, linestyle=":", label="target")
        at = np.arange(len(names))
        for number, side in enumerate(("stock", "merged")):
            counts = [queries[name].get(side, {}).get("state_calls", 0) for name in names]
            calls_axis.bar(at + (number - 0.5) * 0.4, counts, 0.4, color=COLOURS[side], label=KINDS[side].title)
            for where, count in zip(at + (number - 0.5) * 0.4, counts, strict=True):
                calls_axis.text(where, max(count, 0.5), f"{count:,.0f}", ha="center", va="bottom", fontsize=7)
        calls_axis.set_yscale("symlog", linthresh=1)
        calls_axis.set_ylim(0, calls_axis.get_ylim()[1] * 4)
        time_axis.set_title(f"{PLACES[place]}: median batch ÷ stock's", loc="left", fontsize=10)
        calls_axis.set_title("calls for state a batch, RocksDB", loc="left", fontsize=10)
        for axis in (time_axis, calls_axis):
            axis.set_xticks(at, names)
            axis.grid(axis="y", alpha=0.3)
            axis.legend(fontsize=7, ncols=2)
    figure.savefig(target, dpi=110, metadata={"Date": None} if target.suffix == ".svg" else None)
    plt.close(figure)
