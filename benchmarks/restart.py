"""How long is a query away when everything is killed? Stock Spark and merged state, side by side.

python benchmarks/restart.py                  # 200 partitions, 5 ms for each metadata call
python benchmarks/restart.py --quick          # 20 partitions
python benchmarks/restart.py --partitions 8 --batches 8 --rows-per-batch 300000 --keys 100000000 --no-changelog \
    --mb-per-second 100 --lazy                # 2.4 million groups
python benchmarks/restart.py --partitions 8 --batches 8 --rows-per-batch 300000 --keys 100000000 --no-changelog \
    --mb-per-second 100 --lazy --value-bytes 1700 --probe 1 --probe 10 --probe 100 --following 20    # 4 GB of state
With --workload open_join or groups_in_python it is a stream-stream join, or applyInPandasWithState.

Merged state comes back twice from the same checkpoint: on another host, which has none of its SSTs, and on the same.
With --lazy also on another host with restore=lazy and restore=ondemand, and lazily with no look-ahead ("row by row").
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.figures import STATE_CATEGORIES  # noqa: E402
from benchmarks.filesystems import METADATA_CALLS, calls  # noqa: E402
from benchmarks.report import COLOURS, KIND_COLOURS  # noqa: E402
from benchmarks.scenario import SIDES, WORKLOADS, Scenario  # noqa: E402
from benchmarks.shim import build_shim  # noqa: E402
from benchmarks.workloads import write_batch, write_input  # noqa: E402

MOST_TIME = 0.6
MOST_CALLS = 0.1
# Of Spark's own doing, on both sides: its logs, the source's, the metadata of operators and state.
OWN_CATEGORIES = ("state_meta", "offsets", "commits", "sources", "metadata", "other")


ANOTHER_HOST = {"cache_size_limit": "0"}
OTHERS = ("same host", "lazy", "on demand", "row by row")


def _start(
    scenario: Scenario,
    work: Path,
    files: list[Path],
    name: str,
    megabytes_per_second: int = 0,
    following: list[Path] | None = None,
) -> tuple[subprocess.Popen[bytes], Path]:
    order, answer = work / f"{name}-in.json", work / f"{name}-out.json"
    answer.unlink(missing_ok=True)
    order.write_text(
        json.dumps(
            {
                "scenario": scenario.to_json(),
                "work": str(work),
                "files": [str(file) for file in files],
                "following": [str(file) for file in following or []],
                "megabytes_per_second": megabytes_per_second,
            }
        )
    )
    command = [sys.executable, "-W", "ignore::FutureWarning", "-m", "benchmarks.restart_process"]
    return subprocess.Popen([*command, str(order), str(answer)], cwd=ROOT), answer


def live_and_die(scenario: Scenario, work: Path, files: list[Path]) -> dict[str, Any]:
    """Runs both sides' first life and kills it, JVM and all.

    Args:
        scenario: What to run.
        work: The directory of everything that is written. It stays.
        files: The batches before the end.

    Returns:
        The environment.
    """
    process, answer = _start(scenario, work, files, "first")
    while not answer.exists():
        if process.poll() is not None:
            raise click.ClickException(f"the first life failed: {scenario.title()}")
        time.sleep(0.1)
    said: dict[str, Any] = json.loads(answer.read_text())
    # The JVM first: it would notice that Python is gone, and stop cleanly.
    for pid in reversed(said["pids"]):
        os.kill(pid, signal.SIGKILL)
    process.wait()
    _remove_local(work)
    found: dict[str, Any] = said["environment"]
    return found


def come_back(
    scenario: Scenario, work: Path, side: str, files: list[Path], megabytes_per_second: int, **options: str
) -> dict[str, Any]:
    """Starts one side again, waits for its first batch, and runs some more.

    Args:
        scenario: What is run.
        work: The directory of everything that was written.
        side: The side to start.
        files: The input of its first batch, and of each following one.
        megabytes_per_second: What each stream reads; 0 is as fast as it goes.
        options: More options of merged state.

    Returns:
        What was measured.
    """
    first, *following = files
    (work / side / "input" / first.name).hardlink_to(first)
    begin = time.monotonic()
    alone = dataclasses.replace(scenario, sides=(side,), options={**scenario.options, **options})
    process, answer = _start(alone, work, [], f"{side}-again", megabytes_per_second, following)
    if process.wait() or not answer.exists():
        raise click.ClickException(f"{side} did not come back: {scenario.title()}")
    for file in files:
        (work / side / "input" / file.name).unlink()
    result: dict[str, Any] = json.loads(answer.read_text())
    seconds = time.monotonic() - begin
    end(result.pop("jvm"))
    _remove_local(work)
    return {**result, "process_seconds": seconds}


def end(pid: int) -> None:
    """Ends a JVM that Python has left. One that goes on for a while, or for ever, would be in the next one's way."""
    with contextlib.suppress(ProcessLookupError):
        for _ in range(100):
            os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)


def _remove_local(work: Path) -> None:
    """Deletes the local copies of a process that was killed, as a host would; each is as large as the state."""
    shutil.rmtree(work / "local", ignore_errors=True)


def write_probes(scenario: Scenario, staged: list[Path], percent: float, following: int) -> list[Path]:
    """Writes batches of keys that have state: one of this share of them, and more of at most a hundredth each."""
    groups = np.unique(np.concatenate([pq.read_table(file, columns=["key"])["key"].to_numpy() for file in staged]))
    random = np.random.default_rng(scenario.seed + 1)
    files = []
    for batch, share in enumerate([percent] + [min(percent, 1.0)] * following, len(staged)):
        keys = random.choice(groups, max(1, round(len(groups) * share / 100)), replace=False)
        files.append(staged[0].with_name(f"{batch:05}-probe-{percent:g}.parquet"))
        write_batch(files[-1], random, batch, keys, None if scenario.value_bytes else 0)
    return files


def metadata_calls(counts: dict[str, Any], categories: tuple[str, ...]) -> dict[str, int]:
    """Metadata calls by kind, none left out."""
    found = calls(counts, categories)
    return {kind: found.get(kind, 0) for kind in METADATA_CALLS}


def print_table(scenario: Scenario, sides: dict[str, dict[str, Any]]) -> None:
    """Prints what the restarts cost."""
    table = Table(title=f"restart of {scenario.title()}", title_justify="left", title_style="bold")
    others = [name for name in sides if name != "stock"]
    table.caption = "In parentheses: of stock's."
    for column in ("", *sides, "allowed"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)

    def row(label: str, values: dict[str, float], digits: int = 0, limit: float | None = None) -> None:
        ratios = {name: values[name] / values["stock"] if values["stock"] else None for name in others}
        cells = [f"{values['stock']:,.{digits}f}"]
        for name, ratio in ratios.items():
            cells.append(f"{values[name]:,.{digits}f}" + ("" if ratio is None else f" ({ratio:.3g})"))
        merged = ratios["merged"]
        table.add_row(label, *cells, "" if limit is None or merged is None else f"{limit}: {merged <= limit}")

    row(
        "seconds from the query's start to its first batch's end",
        {n: s["seconds"] for n, s in sides.items()},
        2,
        MOST_TIME,
    )
    durations = {name: side["durations_ms"] for name, side in sides.items()}
    row("  of which the batch's tasks", {name: each["addBatch"] / 1000 for name, each in durations.items()}, 2)
    row("  of which loads, summed over all tasks", {name: sum(side["load_seconds"]) for name, side in sides.items()}, 2)
    by_kind = {name: metadata_calls(side["counts"], STATE_CATEGORIES) for name, side in sides.items()}
    row("file-system calls for state", {name: sum(each.values()) for name, each in by_kind.items()}, 0, MOST_CALLS)
    for kind in METADATA_CALLS:
        if any(each[kind] for each in by_kind.values()):
            row(f"  {kind}", {name: each[kind] for name, each in by_kind.items()})
    read = {name: calls(side["counts"], STATE_CATEGORIES).get("read_bytes", 0) for name, side in sides.items()}
    row("megabytes read for state", {name: count / 1e6 for name, count in read.items()}, 2)
    fetched = {name: side["ssts"].get("fetchedBytes", read[name]) for name, side in sides.items()}
    row("  of which SSTs, by the loads (stock: all)", {name: count / 1e6 for name, count in fetched.items()}, 2)
    demanded = {name: side["ssts"].get("demandedBytes", 0) for name, side in sides.items()}
    if any("lookAheadBytes" in side["ssts"] for side in sides.values()):
        row("  of which SSTs, because they were read", {name: count / 1e6 for name, count in demanded.items()}, 2)
        ahead = {name: side["ssts"].get("lookAheadBytes", 0) for name, side in sides.items()}
        row("  of which SSTs, ahead of reads", {name: count / 1e6 for name, count in ahead.items()}, 2)
    if all(side["following_ms"] for side in sides.values()):
        following = {name: [ms / 1000 for ms in side["following_ms"]] for name, side in sides.items()}
        row(
            f"of the next {len(following['stock'])} batches the 99th percentile, seconds",
            {name: float(np.percentile(each, 99)) for name, each in following.items()},
            2,
        )
        row("  the median", {name: float(np.median(each)) for name, each in following.items()}, 2)
    row(
        "file-system calls of Spark's own",
        {name: sum(metadata_calls(side["counts"], OWN_CATEGORIES).values()) for name, side in sides.items()},
    )
    Console(width=max(120, Console().width)).print(table)


def draw(scenario: Scenario, sides: dict[str, dict[str, Any]], target: Path) -> None:
    """Draws calls by kind and the time, stock beside merged."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (calls_axis, time_axis) = plt.subplots(1, 2, figsize=(13, 3.4), layout="constrained")
    names = list(sides)
    left = dict.fromkeys(names, 0)
    for kind, colour in zip(METADATA_CALLS, KIND_COLOURS, strict=True):
        widths = [metadata_calls(sides[name]["counts"], STATE_CATEGORIES)[kind] for name in names]
        if any(widths):
            calls_axis.barh(names, widths, left=[left[name] for name in names], color=colour, label=kind, height=0.6)
            for name, width in zip(names, widths, strict=True):
                left[name] += width
    for name in names:
        calls_axis.text(left[name], name, f" {left[name]:,}", va="center", fontweight="bold")
        seconds = sides[name]["seconds"]
        time_axis.barh([name], [seconds], color=COLOURS["stock" if name == "stock" else "merged"], height=0.6)
        time_axis.text(seconds, name, f" {seconds:.1f} s", va="center", fontweight="bold")
    calls_axis.set_xlim(0, max(left.values()) * 1.15)
    time_axis.set_xlim(0, max(side["seconds"] for side in sides.values()) * 1.15)
    calls_axis.set_xlabel("file-system calls for state until the first batch after a restart")
    time_axis.set_xlabel("seconds from the query's start to its first batch's end")
    calls_axis.legend(fontsize=8, ncols=4, loc="lower right")
    calls_axis.set_title(scenario.title(), loc="left", fontsize=10, fontweight="bold")
    for axis in (calls_axis, time_axis):
        axis.invert_yaxis()
        axis.grid(axis="x", alpha=0.3)
    figure.savefig(target, dpi=110)
    plt.close(figure)


@click.command(context_settings={"show_default": True})
@click.option("--workload", type=click.Choice(WORKLOADS), default="aggregation")
@click.option("--partitions", type=click.IntRange(1), default=200)
@click.option("--batches", type=click.IntRange(2), default=24, help="Before everything is killed.")
@click.option("--delay-ms", type=click.IntRange(0), default=5, help="Sleep in each metadata call after the restart.")
@click.option("--mb-per-second", type=click.IntRange(0), default=0, help="What a stream reads after the restart.")
@click.option("--rows-per-batch", type=click.IntRange(1), default=5_000)
@click.option("--keys", type=click.IntRange(1), default=50_000, help="Drawn uniformly.")
@click.option("--value-bytes", type=click.IntRange(0), default=0, help="Random bytes in each group's state.")
@click.option(
    "--probe",
    type=click.FloatRange(0, 100, min_open=True),
    multiple=True,
    help="The batch after the restart has keys of so many percent of the groups, and no new ones; more than once.",
)
@click.option("--following", type=click.IntRange(0), default=0, help="Batches after it, of at most 1 % of the groups.")
@click.option("--changelog/--no-changelog", default=True, help="RocksDB changelog checkpointing.")
@click.option("--door", type=click.Choice(["provider", "path"]), default="provider")
@click.option("--lazy", is_flag=True, help="Also with restore=lazy and restore=ondemand (provider door).")
@click.option("--again", "chosen", type=click.Choice(OTHERS), multiple=True, help="Only these beside stock and merged.")
@click.option("--quick", is_flag=True, help="20 partitions, 8 batches.")
@click.option("--build/--no-build", default=True, help="Compile the shim first if its sources changed.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("build/benchmarks"))
def main(
    workload: str,
    partitions: int,
    batches: int,
    delay_ms: int,
    mb_per_second: int,
    rows_per_batch: int,
    keys: int,
    value_bytes: int,
    probe: tuple[float, ...],
    following: int,
    changelog: bool,
    door: str,
    lazy: bool,
    chosen: tuple[str, ...],
    quick: bool,
    build: bool,
    out: Path,
) -> None:
    """Kill a driver with all of its threads by SIGKILL, start it again, and see what its first batch costs."""
    if following and not probe:
        raise click.UsageError("--following needs --probe: without it there is one more batch and no other.")
    scenario = Scenario(
        workload=workload,
        partitions=min(partitions, 20) if quick else partitions,
        batches=(min(batches, 8) if quick else batches) + (0 if probe else 1),
        delay_ms=delay_ms,
        rows_per_batch=rows_per_batch,
        keys=keys,
        value_bytes=value_bytes,
        changelog=changelog,
        door=door,
        maintenance_interval="2s",
    )
    if not scenario.possible():
        raise click.ClickException("Spark refuses this combination of workload, door and store")
    if build:
        build_shim()
    work = Path(tempfile.mkdtemp(prefix="restart-"))
    scenario = dataclasses.replace(scenario, options={"cache_dir": str(work / "cache")})
    again: dict[str, dict[str, str]] = {"stock": {}, "merged": ANOTHER_HOST, "same host": {}}
    if lazy:
        again |= {"lazy": {**ANOTHER_HOST, "restore": "lazy"}, "on demand": {**ANOTHER_HOST, "restore": "ondemand"}}
        again["row by row"] = {**again["lazy"], "look_ahead_rows": "0"}
    if chosen:
        again = {name: options for name, options in again.items() if name not in OTHERS or name in chosen}
    out.mkdir(parents=True, exist_ok=True)
    raw: dict[str, Any] = {"scenario": scenario.to_json()}
    try:
        files = write_input(scenario, work / "staging")
        before = files if probe else files[:-1]
        raw["environment"] = live_and_die(scenario, work, before)
        for side in SIDES:
            (work / "as-it-was").mkdir(exist_ok=True)
            (work / side / "checkpoint").rename(work / "as-it-was" / side)
        probes = {f"{percent:g} %": write_probes(scenario, before, percent, following) for percent in probe}
        for file in before:
            # The query has read it. It is as large as the state, and the host's cache wants a part of the disk free.
            for copy in (file, *(work / side / "input" / file.name for side in SIDES)):
                copy.unlink()
        for share, batch in (probes or {"": files[-1:]}).items():
            sides = {}
            for name, options in again.items():
                side = "stock" if name == "stock" else "merged"
                restore_checkpoint(work, side)
                sides[name] = come_back(scenario, work, side, batch, mb_per_second, **options)
            check_same(sides, len(before))
            raw[f"sides {share}".strip()] = sides
            (out / "restart.json").write_text(json.dumps(raw, indent=1) + "\n")
            if share:
                click.echo(f"Keys of {share} of the groups:")
            print_table(scenario, sides)
            draw(scenario, sides, out / f"restart{share.replace(' %', 'pc')}.png")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"raw numbers: {out}/restart.json, pictures: {out}/restart*.png", file=sys.stderr)


def restore_checkpoint(work: Path, side: str) -> None:
    """Makes a side's checkpoint what it was when everything was killed. No file of it is written to any more."""
    shutil.rmtree(work / side / "checkpoint", ignore_errors=True)
    shutil.copytree(work / "as-it-was" / side, work / side / "checkpoint", copy_function=os.link)


def check_same(sides: dict[str, dict[str, Any]], batch: int) -> None:
    """Fails where sides wrote different rows."""
    for name in ("output", "following_output"):
        if any(side[name] != sides["stock"][name] or side["batch"] != batch for side in sides.values()):
            raise click.ClickException(f"the sides did not do the same: {[side[name] for side in sides.values()]}")


if __name__ == "__main__":
    main()
