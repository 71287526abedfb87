"""What does a fork cost, and does the size of the state matter? Calls and time of forks of a small and a large state.

python benchmarks/fork.py                      # 80 MiB and 10 GiB, 10,000 segments each
python benchmarks/fork.py --large-mb 102400    # 100 GiB; the payload is holes, which take no space on most disks

The same checkpoint twice, but for the length of its segments: a heap store of 200 partitions, each with a snapshot and
49 deltas after it, in 80 sealed merged files with a consolidated index; 50 batches in Spark's logs. Each fork is made
in a process of its own.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.compaction_checkpoints import CREATED_MS, MB, PARTITIONS  # noqa: E402
from benchmarks.file_calls import counted  # noqa: E402
from benchmarks.targets import Figure, child, draw_bars, publish  # noqa: E402
from pyspark_statestore import Checkpoint  # noqa: E402
from pyspark_statestore.format import Kind, MergedFileWriter, SegmentType, file_name  # noqa: E402
from pyspark_statestore.format.index_block import ENTRY_TYPE  # noqa: E402

BATCHES = 50
FILES = 80
_HOLE = bytes(MB)


class _Holes:
    """A file that leaves holes for zeros."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: bytes) -> None:
        if data is _HOLE:
            self._file.seek(len(data), 1)
        else:
            self._file.write(data)


def write_checkpoint(checkpoint: Path, size: int) -> None:
    """Writes the checkpoint.

    Args:
        checkpoint: The checkpoint's directory.
        size: The bytes of all segments, rounded up to 1 MiB in each merged file.
    """
    (checkpoint / "state" / "_merged").mkdir(parents=True)
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir()
    for batch in range(BATCHES):
        logged = ['{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}', json.dumps({"logOffset": batch})]
        (checkpoint / "offsets" / str(batch)).write_text("\n".join(["v1", *logged]))
        (checkpoint / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    (checkpoint / "metadata").write_text('{"id":"0f2b9c64-4d0e-4b0c-9d52-0c6a4f0b8a11"}')
    for partition in range(PARTITIONS):
        (checkpoint / "state" / "0" / str(partition)).mkdir(parents=True)
    paths = [
        f"0/{partition}/{version}.{'snapshot' if version == 1 else 'delta'}"
        for version in range(1, BATCHES + 1)
        for partition in range(PARTITIONS)
    ]
    for number, some in enumerate(np.array_split(np.array(paths), FILES)):
        _write_file(checkpoint, number, some.tolist(), max(1, size // FILES // MB))
    Checkpoint(checkpoint).maintenance.consolidate_index()


def _write_file(checkpoint: Path, number: int, paths: list[str], megabytes: int) -> None:
    created = CREATED_MS + number
    with (checkpoint / "state" / "_merged" / file_name(created, 1, number)).open("wb") as out:
        file = MergedFileWriter(_Holes(out), writer=1, created_ms=created, meta={"shim": "benchmark", "plain": False})
        length = megabytes * MB // len(paths)
        records: np.ndarray = np.zeros(len(paths), ENTRY_TYPE)
        records["kind"] = Kind.PUT
        records["type"] = [SegmentType.of(path) for path in paths]
        records["length"] = length
        records["offset"] = file.position + length * np.arange(len(paths))
        records["stamp"] = (created << 16) + np.arange(len(paths))
        records["writer"] = 1
        for _ in range(megabytes):
            file.append(_HOLE)
        file.add_columns(records, pa.array(paths, pa.string()))
        file.seal()


def fork(checkpoint: str, target: str) -> dict[str, Any]:
    """Forks a checkpoint, with the file system's calls counted.

    Returns:
        seconds, calls by kind, and the figures of the fork.
    """
    import pyspark_statestore.forks.fork  # noqa: F401

    pa.array([0])  # the first array brings in pandas, where that is installed
    with counted() as calls:
        begin = time.perf_counter()
        made = Checkpoint(checkpoint).fork(target)
        seconds = time.perf_counter() - begin
    totals = calls.totals()
    own = sum(count for path, count in calls.creates.items() if "/_merged/" in path)
    return {"seconds": seconds, "calls": totals, "own_creates": own, **vars(made)}


def figures_of(raw: dict[str, Any]) -> list[Figure]:
    """Turns raw numbers into figures, with the median time over runs."""
    small, large = raw["small"][0], raw["large"][0]
    found = []
    for name, runs in (("small", raw["small"]), ("large", raw["large"])):
        size = runs[0]["referenced_bytes_count"]
        found.append(Figure(f"fork of {size / MB:,.0f} MiB", statistics.median(run["seconds"] for run in runs), "s"))
        calls = {kind: count for kind, count in runs[0]["calls"].items() if kind != "bytes_read"}
        found.append(Figure("  opens, reads, creates, deletes and listings", sum(calls.values())))
        found.append(Figure("  of which creates of files in _merged, here and there", runs[0]["own_creates"]))
        found.append(Figure(f"  bytes copied of the {name} state", runs[0]["copied_bytes_count"], "bytes", 0))
    same = max(large["calls"][kind] / max(1, small["calls"][kind]) for kind in small["calls"] if kind != "bytes_read")
    found.append(Figure("calls of the large one ÷ of the small one, of any kind", same, "", 1.0))
    return found


def draw(figures: list[Figure], target: Path) -> None:
    """Draws time and calls, side by side."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    picture, axes = plt.subplots(1, 2, figsize=(14, 2.4), layout="constrained")
    times = [figure for figure in figures if figure.unit == "s"]
    draw_bars(axes[0], "s", "seconds", [(figure.name, figure) for figure in times])
    calls = [figure for figure in figures if figure.name.startswith("  opens")]
    draw_bars(axes[1], "", "calls", [(each.name, figure) for each, figure in zip(times, calls, strict=True)])
    picture.savefig(target, dpi=110)
    plt.close(picture)


@click.command(context_settings={"show_default": True})
@click.option("--small-mb", type=click.IntRange(80), default=80, help="MiB of the small state.")
@click.option("--large-mb", type=click.IntRange(80), default=10_240, help="MiB of the large one.")
@click.option("--repeat", type=click.IntRange(1), default=5, help="The median counts.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("build/benchmarks"))
def main(small_mb: int, large_mb: int, repeat: int, out: Path) -> None:
    """Fork a small and a large state, and measure what that costs."""
    directory = Path(tempfile.mkdtemp(prefix="fork-"))
    raw: dict[str, Any] = {"small": [], "large": []}
    try:
        for name, megabytes in (("small", small_mb), ("large", large_mb)):
            write_checkpoint(directory / name, megabytes * MB)
        for run in range(repeat):
            for name, runs in raw.items():
                runs.append(child("fork", "--child", str(directory / name), str(directory / f"{name}-{run}")))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    figures = figures_of(raw)
    publish("fork", "forks by reference", raw, figures, partial(draw, figures), out)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(fork(*sys.argv[2:]), default=str))
    else:
        main()
