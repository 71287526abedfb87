"""What does a heap store cost that has more rows than memory? Stock Spark, and merged state that spills, beside it.

python benchmarks/heap_spill.py               # 10 million keys and 1 GB of heap; ten minutes
python benchmarks/heap_spill.py --quick       # 1 million keys and 128 MB

Each side is a store in a JVM of its own. It gets its keys in ten batches, and then batches of 1,000 updates, of which
nine in ten are of one key in ten. "in memory" has as much heap as it wants, so its batches are what others are compared
with. Stock Spark also runs with the largest number of keys with which it lives, of those that are tried, for pauses.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.heap_measures import OURS, STOCK, STREAMING, Side, opened, start_jvm  # noqa: E402
from benchmarks.shim import build_shim  # noqa: E402

FILLS = 10
MOST_TIME = 3.0
SPILLS = {f"{STREAMING}stateStore.fileMerging.heap.spill": "auto"}


def run(order: dict[str, Any]) -> dict[str, Any]:
    """Runs one side, in this process.

    Args:
        order: ``provider``, ``spills``, ``memory``, ``keys``, ``updates``, ``batches``, ``work``.

    Returns:
        Seconds to fill the store; milliseconds of each batch; bytes on the disk, and reads there in the batches.
    """
    work, keys = Path(order["work"]), order["keys"]
    jvm = start_jvm(order["memory"], work, f"-Xlog:gc:file={work / 'gc.log'} -XX:+ExitOnOutOfMemoryError")
    side = Side("side", order["provider"], SPILLS if order["spills"] else {})
    with opened(jvm, side, work, 2) as store:
        began = time.monotonic()
        for number in range(FILLS):
            store.load(number)
            store.fill(number * keys // FILLS, (number + 1) * keys // FILLS)
            store.commit()
            store.memoryUsed()
        filled = time.monotonic() - began
        store.skewedBatches(FILLS, keys, order["updates"], order["batches"])
        spilled, _, before = store.spilled()
        pauses_before = len(pauses(work / "gc.log"))
        times = store.skewedBatches(FILLS + order["batches"], keys, order["updates"], order["batches"])
        _, files, reads = store.spilled()
        last = pauses(work / "gc.log")
    return {
        "fill_s": filled,
        "batch_ms": [each / 1e6 for each in times],
        "spilled": spilled,
        "files": files,
        "reads": reads - before,
        "pauses_ms": last[pauses_before:],
        "all_pauses_ms": last,
    }


def paired(order: dict[str, Any]) -> dict[str, Any]:
    """Batches and reads in memory, without spilling and with it, in one process and in turn.

    Args:
        order: ``memory``, ``keys``, ``updates``, ``batches``, ``work``.

    Returns:
        By side (``off``, ``auto``): milliseconds of batches, and of 20,000 reads.
    """
    work, keys = Path(order["work"]), order["keys"]
    jvm = start_jvm(order["memory"], work)
    found: dict[str, dict[str, list[float]]] = {}
    with opened(jvm, Side("off", OURS), work, 2) as off, opened(jvm, Side("auto", OURS, SPILLS), work, 2) as auto:
        stores = {"off": off, "auto": auto}
        for name, store in stores.items():
            store.load(0)
            store.fill(keys)
            store.commit()
            found[name] = {"batch_ms": [], "gets_ms": []}
        warm = order["batches"] // 2
        for version in range(1, order["batches"] + warm + 1):
            for name, store in stores.items():
                batch = store.skewedBatches(version, keys, order["updates"], 1)[0]
                gets = store.gets(version, keys, 20_000, 1)[0]
                if version > warm:
                    found[name]["batch_ms"].append(batch / 1e6)
                    found[name]["gets_ms"].append(gets / 1e6)
        if auto.spilled()[0]:
            raise click.ClickException("something was spilled, so this is not in memory")
    return found


def pauses(log: Path) -> list[float]:
    """The pauses of a JVM so far, in milliseconds."""
    return [float(found) for found in re.findall(r"Pause .* ([\d.]+)ms$", log.read_text(), re.MULTILINE)]


def try_side(name: str, order: dict[str, Any], seconds: int) -> dict[str, Any] | None:
    """Runs one side in a process of its own; None if that dies, or takes longer than it may."""
    work = Path(tempfile.mkdtemp(prefix="heap-spill-"))
    answer = work / "answer.json"
    text = json.dumps({**order, "work": str(work), "answer": str(answer)})
    command = [sys.executable, "-m", "benchmarks.heap_spill", "--order", text]
    with (work / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
        try:
            if process.wait(seconds) == 0:
                print(f"{name} is done", file=sys.stderr)
                found: dict[str, Any] = json.loads(answer.read_text())
                return found
            said = (work / "log").read_text()
            print(f"{name} died: {'OutOfMemoryError' if 'OutOfMemoryError' in said else said}", file=sys.stderr)
        except subprocess.TimeoutExpired:
            print(f"{name} did not end within {seconds} s", file=sys.stderr)
        finally:
            # The JVM is in its group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            shutil.rmtree(work, ignore_errors=True)
    return None


def line_of(name: str, keys: int, memory: str, found: dict[str, Any] | None, base: float | None) -> list[str]:
    """A row of the table."""
    if found is None:
        return [name, f"{keys:,}", memory, "dies", "", "", "", "", "", ""]
    median = statistics.median(found["batch_ms"])
    ordered = sorted(found["all_pauses_ms"]) or [0.0]
    return [
        name,
        f"{keys:,}",
        memory,
        f"{found['fill_s']:.0f}",
        f"{median:.2f}",
        "" if base is None else f"{median / base:.2f}",
        f"{found['spilled'] / 1e6:,.0f}",
        f"{found['files'] / 1e6:,.0f}",
        f"{found['reads'] / len(found['batch_ms']):,.0f}",
        f"{ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]:.0f}",
    ]


@click.command(context_settings={"show_default": True})
@click.option("--keys", type=click.IntRange(1000), default=10_000_000)
@click.option("--memory", default="1g", help="The heap of a JVM.")
@click.option("--plenty", default="6g", help="The heap of the side that has all rows in memory.")
@click.option("--stock-keys", type=click.IntRange(100), multiple=True, default=(3_000_000, 2_000_000, 1_000_000))
@click.option("--updates", type=click.IntRange(1), default=1_000, help="Keys that a batch changes.")
@click.option("--batches", type=click.IntRange(1), default=1_000, help="Measured, after as many that are not.")
@click.option("--seconds", type=click.IntRange(1), default=900, help="Which a side may take.")
@click.option("--quick", is_flag=True, help="A tenth of the keys, and 128 MB.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("build/benchmarks"))
def main(
    keys: int,
    memory: str,
    plenty: str,
    stock_keys: tuple[int, ...],
    updates: int,
    batches: int,
    seconds: int,
    quick: bool,
    out: Path,
) -> None:
    """Run a heap store with more rows than memory."""
    if quick:
        keys, memory, plenty, stock_keys, batches = keys // 10, "128m", "1g", (300_000, 200_000), 20
    build_shim()
    order = {"updates": updates, "batches": batches}
    raw: dict[str, Any] = {}
    rows = []

    def side(
        name: str, provider: str, its_memory: str, its_keys: int, *, spills: bool = False
    ) -> dict[str, Any] | None:
        more = {"provider": provider, "spills": spills, "memory": its_memory, "keys": its_keys}
        if provider == STOCK:
            more["batches"] = max(1, batches // 100)  # each copies all rows
        raw[f"{name}, {its_keys} keys, {its_memory}"] = found = try_side(name, {**order, **more}, seconds)
        base = raw.get(f"in memory, {its_keys} keys, {plenty}")
        rows.append(line_of(name, its_keys, its_memory, found, statistics.median(base["batch_ms"]) if base else None))
        return found

    side("in memory", OURS, plenty, keys)
    side("heap.spill=auto", OURS, memory, keys, spills=True)
    side("heap.spill=off", OURS, memory, keys)
    side("stock", STOCK, memory, keys)
    for fewer in stock_keys:
        if side("stock", STOCK, memory, fewer):
            side("heap.spill=off", OURS, memory, fewer)
            side("heap.spill=auto", OURS, memory, fewer, spills=True)
            break
    both = {**order, "paired": True, "memory": plenty, "keys": keys // 10, "batches": min(300, 3 * batches)}
    raw["paired"] = together = try_side("in memory, with and without", both, seconds)
    out.mkdir(parents=True, exist_ok=True)
    (out / "heap_spill.json").write_text(json.dumps(raw, indent=1) + "\n")
    table = Table(title="A heap store with more rows than memory", title_justify="left", title_style="bold")
    columns = (
        "",
        "keys",
        "heap",
        "fill, s",
        "batch, ms",
        "÷ in memory",
        "MB spilled",
        "MB of files",
        "reads a batch",
        "pause p99, ms",
    )
    for column in columns:
        table.add_column(column, justify="left" if column == "" else "right")
    for row in rows:
        table.add_row(*row)
    table.caption = f"Asked of heap.spill=auto: at most {MOST_TIME:g} times the batch in memory."
    console = Console(width=max(130, Console().width))
    console.print(table)
    for what in ("batch_ms", "gets_ms"):
        if together:
            off, auto = (statistics.median(together[name][what]) for name in ("off", "auto"))
            words = f"{off:.3f} without, {auto:.3f} with it, {auto / off:.3f}"
            console.print(f"{what} in memory, {keys // 10:,} keys: {words}")
    print(f"raw numbers: {out}/heap_spill.json", file=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--order"]:
        given = json.loads(sys.argv[2])
        answer_file = Path(given.pop("answer"))
        answer_file.write_text(json.dumps(paired(given) if given.pop("paired", False) else run(given)))
    else:
        main()
