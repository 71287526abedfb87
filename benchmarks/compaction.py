"""What does compaction cost, beside a plain copy, in memory and in calls? And what does a consolidated index save?

python benchmarks/compaction.py                      # checkpoints of 1 GB of live bytes, 2 GB, 10,000 files
python benchmarks/compaction.py --quick              # a sixteenth of that, once
python benchmarks/compaction.py --cold               # nothing in the operating system's cache when a copy begins
"""

from __future__ import annotations

import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.cold_start import jvm_opens, python_opens  # noqa: E402
from benchmarks.compaction_checkpoints import MB, HalfDead, hard_links, write_group_files, write_one_file  # noqa: E402
from benchmarks.shim import build_shim  # noqa: E402
from benchmarks.targets import Figure, child, draw_bars, publish  # noqa: E402
from pyspark_statestore.checkpoint import Checkpoint  # noqa: E402

TARGET_FILE_SIZE = 128 * MB
LEAST_OF_A_COPY = 0.5
MOST_MB = 256.0
STATES = {"large": "SSTs of 4 MB", "small": "changelogs of 2 KB"}
FILES = {"one_segment": "of one segment of {:.3g} GB", "many_segments": "of segments of 64 KB"}
LOOKS = {"summary": "summary()", "segments": "segments()", "jvm": "an executor"}
PEAKS = (*STATES.values(), "one segment in a file", "many segments in a file", "many files")


@dataclass(frozen=True)
class Shape:
    """The size of what is compacted.

    Attributes:
        live_mb: The live MB of the state of SSTs. That of changelogs has a quarter.
        file_mb: The size of the one large file in MB.
        group_files: The number of files with one group each.
        cold_files: The number of files for the count of a first read.
        repeat: How often each copy is measured.
    """

    live_mb: int = 1024
    file_mb: int = 2048
    group_files: int = 10_000
    cold_files: int = 200
    repeat: int = 5


QUICK = Shape(64, 128, 625, 20, 1)


class Work:
    """A directory for checkpoints, each of which is compacted more than once.

    Args:
        directory: The directory.
        cold: Whether the operating system's cache must hold nothing of a checkpoint when it is read.
    """

    def __init__(self, directory: Path, cold: bool) -> None:
        self._directory = directory
        self._cold = cold
        self._runs = directory / "run"

    def made(self, name: str, write: Callable[[Path], None]) -> Path:
        """Writes a checkpoint."""
        write(self._directory / name)
        return self._directory / name

    def compact(self, checkpoint: Path, how: str = "timed", max_space_amplification: float = 1.2) -> dict[str, Any]:
        """Compacts a copy of a checkpoint in a process of its own."""
        hard_links(checkpoint, self._runs)
        self._prepare(self._runs)
        try:
            answer = child("compaction_child", how, str(self._runs), str(max_space_amplification))
            (row,) = Checkpoint(self._runs).inspect.summary().to_pylist()
            return {**answer, "summary": row}
        finally:
            shutil.rmtree(self._runs)

    def copy(self, source: Path) -> float:
        """Copies a directory with ``cp`` and returns the seconds that it takes."""
        self._prepare(source)
        begin = time.perf_counter()
        subprocess.run(["cp", "-r", str(source), str(self._runs)], check=True)
        seconds = time.perf_counter() - begin
        shutil.rmtree(self._runs)
        return seconds

    def _prepare(self, source: Path) -> None:
        """Writes all dirty pages to the disk, and brings what is read into the cache or out of it."""
        os.sync()
        for file in source.rglob("*"):
            if file.is_file() and self._cold:
                with file.open("rb") as opened:
                    os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            elif file.is_file():
                with file.open("rb") as opened:
                    while opened.read(8 * MB):
                        pass


def throughput(work: Work, shape: Shape) -> dict[str, Any]:
    """Measures compaction and copies in turn, of both states."""
    states = {
        "large": HalfDead(shape.live_mb * MB, 4 * MB, TARGET_FILE_SIZE, is_sst=True),
        "small": HalfDead(shape.live_mb * MB // 4, 2048, TARGET_FILE_SIZE, is_sst=False),
    }
    found: dict[str, Any] = {}
    for name, state in states.items():
        checkpoint = work.made(name, state.write)
        live = Checkpoint(checkpoint).inspect.summary()["live_bytes"][0].as_py()
        plain = work.made(f"plain-{name}", lambda path, size=live: write_plain(path, size))  # type: ignore[misc]
        runs, copies = [], []
        for _ in range(shape.repeat):
            runs.append(work.compact(checkpoint))
            copies.append(work.copy(plain))
        if any(run["rewritten_bytes_count"] != live or run["summary"]["live_bytes"] != live for run in runs):
            raise click.ClickException(f"not all of the {live:,} live bytes of {name} were rewritten: {runs}")
        found[name] = {"live_bytes": live, "compactions": runs, "copies": copies}
        shutil.rmtree(checkpoint)
        shutil.rmtree(plain)
    return found


def write_plain(directory: Path, size: int) -> None:
    """Writes so many bytes in files as large as those that compaction writes."""
    directory.mkdir()
    data = os.urandom(MB)
    for number, start in enumerate(range(0, size, TARGET_FILE_SIZE)):
        with (directory / f"{number}.bin").open("wb") as out:
            for at in range(start, min(size, start + TARGET_FILE_SIZE), MB):
                out.write(data[: min(MB, size - at)])


def memory(work: Work, shape: Shape) -> dict[str, Any]:
    """Measures the compaction of one large file, of which a quarter is dead."""
    size = shape.file_mb * MB
    found = {}
    for name, segment in {"one_segment": size // 4 * 3, "many_segments": 64 << 10}.items():
        checkpoint = work.made(name, lambda path, length=segment: write_one_file(path, size, length))  # type: ignore[misc]
        found[name] = work.compact(checkpoint)
        if not found[name]["rewritten_files_count"]:
            raise click.ClickException(f"the file of {name} was not rewritten: {found[name]}")
        shutil.rmtree(checkpoint)
    return found


def group_files(work: Work, shape: Shape) -> dict[str, Any]:
    """Measures the compaction of many files with one group each: time and calls."""
    checkpoint = work.made("groups", lambda path: write_group_files(path, shape.group_files, 8, 5000))
    found = {how: work.compact(checkpoint, how) for how in ("timed", "counted")}
    shutil.rmtree(checkpoint)
    return found


def cold_start(work: Work, shape: Shape) -> dict[str, Any]:
    """Counts the files that a first read opens, before and after the index is consolidated."""
    checkpoint = work.made("cold", lambda path: write_group_files(path, shape.cold_files, 200, 100))
    found: dict[str, Any] = {"files": shape.cold_files}
    found["before"] = {**python_opens(checkpoint), "jvm": jvm_opens(checkpoint)}
    begin = time.perf_counter()
    done = Checkpoint(checkpoint).maintenance.consolidate_index()
    found["seconds"] = time.perf_counter() - begin
    if done.covered_files_count != shape.cold_files:
        raise click.ClickException(f"{done.covered_files_count} of {shape.cold_files} files were covered")
    found["after"] = {**python_opens(checkpoint), "jvm": jvm_opens(checkpoint)}
    return found


def figures_of(raw: dict[str, Any]) -> list[Figure]:
    """Turns raw numbers into figures, with medians over runs."""
    found = []
    for name, what in STATES.items():
        state = raw["throughput"][name]
        compaction = statistics.median(run["seconds"] for run in state["compactions"])
        copy = statistics.median(state["copies"])
        peak = statistics.median(run["peak_mb"] for run in state["compactions"])
        live_mb = state["live_bytes"] / 1e6
        found.append(Figure(f"compaction of {what}, {live_mb:,.0f} MB that live", live_mb / compaction, "MB/s"))
        found.append(Figure("  cp of as many bytes", live_mb / copy, "MB/s"))
        found.append(Figure("  compaction ÷ cp", copy / compaction, least=LEAST_OF_A_COPY))
        found.append(Figure("  peak memory of the process", peak, "MB"))
    for name, what in FILES.items():
        run, shape = raw["memory"][name], raw["shape"]
        size = shape["file_mb"] * MB / 1e9
        label = f"peak memory, a file of {size:.3g} GB {what.format(0.75 * size)}"
        found.append(Figure(label, run["peak_mb"], "MB", MOST_MB))
        found.append(Figure("  of which before it begins", run["before_mb"], "MB"))
    return found + group_figures(raw["group_files"], raw["shape"]["group_files"]) + cold_figures(raw["cold_start"])


def group_figures(raw: dict[str, Any], files: int) -> list[Figure]:
    """Returns the figures of a checkpoint with many small files, as on an object store."""
    summary, calls = raw["timed"]["summary"], raw["counted"]["calls"]
    most = math.ceil(summary["file_size_in_bytes"] / TARGET_FILE_SIZE)
    rows = [
        Figure(f"{files:,} files of one group: merged files after compaction", summary["file_count"], "", most),
        Figure("  bytes kept for each live one", summary["space_amplification"]),
        Figure("  time", raw["timed"]["seconds"], "s"),
        Figure("  peak memory of the process", raw["timed"]["peak_mb"], "MB"),
    ]
    names = {"opens": "files opened", "reads": "reads", "creates": "files created", "deletes": "files deleted"}
    rows += [Figure(f"  {name}", calls[kind]) for kind, name in {**names, "listings": "listings"}.items()]
    return rows


def cold_figures(raw: dict[str, Any]) -> list[Figure]:
    """Returns the figures of a first read."""
    rows = []
    for who, what in LOOKS.items():
        rows.append(Figure(f"first read of {what} at {raw['files']} files: files opened", raw["before"][who]))
        rows.append(Figure("  after consolidate_index()", raw["after"][who], "", 1))
    return rows


def draw(figures: list[Figure], target: Path) -> None:
    """Draws throughput, memory and opens.

    Args:
        figures: The results.
        target: The PNG file.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    picture, axes = plt.subplots(1, 3, figsize=(19, 3.6), layout="constrained")
    speeds = [figure for figure in figures if figure.unit == "MB/s"]
    names = [f"{who}, {what}" for what in STATES.values() for who in ("compaction", "cp")]
    draw_bars(axes[0], "MB/s", "MB of live bytes a second", list(zip(names, speeds, strict=True)))
    peaks = [figure for figure in figures if figure.name.strip().startswith("peak")]
    draw_bars(axes[1], "MB", "MB at the peak", list(zip(PEAKS, peaks, strict=True)))
    opens = [figure for figure in figures if figure.name.startswith(("first read", "  after"))]
    names = [f"{who}, {when}" for who in LOOKS.values() for when in ("before", "consolidated")]
    draw_bars(axes[2], "", "files opened", list(zip(names, opens, strict=True)))
    picture.savefig(target, dpi=110)
    plt.close(picture)


@click.command(context_settings={"show_default": True})
@click.option("--live-mb", type=click.IntRange(1), default=Shape.live_mb, help="Live bytes of the state of SSTs.")
@click.option("--repeat", type=click.IntRange(1), default=Shape.repeat, help="Of each copy; the median counts.")
@click.option("--quick", is_flag=True, help="A sixteenth of everything, once.")
@click.option("--cold", is_flag=True, help="Drop what is read from the operating system's cache before (Linux).")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("build/benchmarks"))
def main(live_mb: int, repeat: int, quick: bool, cold: bool, out: Path) -> None:
    """Compact checkpoints, and measure what that costs."""
    shape = QUICK if quick else Shape(live_mb=live_mb, repeat=repeat)
    build_shim()
    directory = Path(tempfile.mkdtemp(prefix="compaction-"))
    raw: dict[str, Any] = {"shape": asdict(shape), "cold": cold, "python": platform.python_version()}
    try:
        work = Work(directory, cold)
        raw["throughput"] = throughput(work, shape)
        raw["memory"] = memory(work, shape)
        raw["group_files"] = group_files(work, shape)
        raw["cold_start"] = cold_start(work, shape)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    figures = figures_of(raw)
    title = f"compaction, {'nothing' if cold else 'everything'} cached"
    publish("compaction", title, raw, figures, partial(draw, figures), out)


if __name__ == "__main__":
    main()
