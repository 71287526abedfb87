"""Nexmark's queries in SQL on Flink, over the same events: how many files does a checkpoint make, and how many bytes?

python benchmarks/nexmark_flink.py                    # all queries, RocksDB and ForSt, file merging on and off
python benchmarks/nexmark_flink.py --query q4 --batches 4

Flink comes from PyPI, once, into an environment of its own. A file of events appears; when it is processed, a
checkpoint is triggered; then comes the next file. After the last one, SIGKILL ends the process, and another one starts
from the last checkpoint with one more file.

What this does not compare: Flink corrects results with each event and keeps state on local disks until a checkpoint,
Spark makes a commit of each batch. So a time of one is no time of the other. Files and bytes of a checkpoint are what a
file system has to take in both.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import venv
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.nexmark_events import Shape, write_files  # noqa: E402
from benchmarks.nexmark_queries import QUERIES  # noqa: E402

VERSION = "2.3.0"
BACKENDS = ("rocksdb", "forst")
WAIT_SECONDS = 300
QUIET_SECONDS = 1.0
"""A file is processed when no counter of the job has moved for so long."""


class FlinkUnavailable(Exception):
    """Flink cannot be had here; the message says why."""


def environment() -> Path:
    """The environment with Flink, made if it is not in the user's cache.

    Returns:
        Its Python.

    Raises:
        FlinkUnavailable: pip cannot install it.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "pyspark-statestore" / f"flink-{VERSION}"
    python = home / "bin" / "python"
    if not (home / "installed").exists():
        print(f"Installing Flink {VERSION} into {home}, once ...", file=sys.stderr, flush=True)
        shutil.rmtree(home, ignore_errors=True)
        venv.create(home, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "setuptools<81", "wheel", f"apache-flink=={VERSION}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise FlinkUnavailable(f"pip could not install apache-flink=={VERSION}: {done.stderr[-3000:]}")
        (home / "installed").touch()
    return python


def write_json(source: Path, target: Path) -> None:
    """Writes the events of a file as lines of JSON, as Flink reads them without more jars."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(each) for name, each in value.items()}
        if isinstance(value, datetime):
            return value.strftime("%Y-%m-%d %H:%M:%S.") + f"{value.microsecond // 1000:03}"
        return value

    rows = pq.read_table(source).drop_columns(["arrival"]).to_pylist()
    target.write_text("".join(f"{json.dumps(plain(row))}\n" for row in rows))


class Job:
    """A job of Flink's, in a process of its own.

    Args:
        python: The environment's.
        work: A directory for everything of this job.
        query: The query's name.
        backend: One of BACKENDS.
        merging: Whether checkpoints merge files.
        parallelism: Subtasks of each operator.
        restore: The checkpoint to begin with.
    """

    def __init__(
        self, python: Path, work: Path, query: str, backend: str, merging: bool, parallelism: int, restore: str = ""
    ) -> None:
        self.checkpoints = work / "checkpoints"
        self._counted = 0
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._url = f"http://127.0.0.1:{port}"
        settings = {
            "rest.address": "127.0.0.1",
            "rest.bind-port": str(port),
            "parallelism.default": str(parallelism),
            "table.local-time-zone": "UTC",
            "state.backend.type": backend,
            "execution.checkpointing.incremental": "true",
            "execution.checkpointing.dir": f"file://{self.checkpoints}",
            # They are triggered here; without an interval none can be.
            "execution.checkpointing.interval": "1 h",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "execution.checkpointing.file-merging.enabled": str(merging).lower(),
            "io.tmp.dirs": str(work / "local"),
            "restart-strategy.type": "none",
            # How old the counters may be that say whether events are processed; ten seconds by default.
            "metrics.fetcher.update-interval": "100",
            "web.refresh-interval": "100",
        }
        if backend == "forst":
            settings["table.exec.async-state.enabled"] = "true"
        if restore:
            settings["execution.state-recovery.path"] = restore
        order = work / "order.json"
        (work / "events").mkdir(parents=True, exist_ok=True)
        (work / "local").mkdir(exist_ok=True)
        order.write_text(json.dumps({"settings": settings, "folder": f"file://{work / 'events'}", "query": query}))
        self._log = work / "flink.log"
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [str(python), str(ROOT / "benchmarks" / "nexmark_flink_job.py"), str(order)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        self.id = self._process.stdout.readline().strip()
        self.begun = time.monotonic()
        if len(self.id) != 32:
            self.kill()
            raise click.ClickException(f"Flink did not start {query} on {backend}: {self._log.read_text()[-2000:]}")

    def _ask(self, path: str, data: dict[str, Any] | None = None) -> dict[str, Any]:
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(f"{self._url}{path}", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found

    def wait_until_processed(self) -> float:
        """Waits until nothing moves; returns the time at which something moved last."""
        moved, seen = time.monotonic(), self._counted
        deadline = moved + WAIT_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise click.ClickException(f"Flink has ended: {self._log.read_text()[-2000:]}")
            try:
                job = self._ask(f"/jobs/{self.id}")
            except (OSError, urllib.error.URLError):
                job = {"vertices": []}
            if job.get("state") == "FAILED":
                raise click.ClickException(f"the job has failed: {self._ask(f'/jobs/{self.id}/exceptions')}"[:3000])
            counted = sum(v["metrics"]["read-records"] + v["metrics"]["write-records"] for v in job["vertices"])
            if counted != seen:
                moved, seen = time.monotonic(), counted
            elif counted > self._counted and time.monotonic() - moved > QUIET_SECONDS:
                self._counted = counted
                return moved
            time.sleep(0.1)
        raise click.ClickException(f"the events were not processed within {WAIT_SECONDS} s")

    def checkpoint(self) -> dict[str, Any]:
        """Makes a checkpoint; returns what Flink says of it, and what it has left in the directory."""
        before = {file: file.stat().st_size for file in self.checkpoints.rglob("*") if file.is_file()}
        trigger = self._ask(f"/jobs/{self.id}/checkpoints", {"checkpointType": "CONFIGURED"})["request-id"]
        while True:
            status = self._ask(f"/jobs/{self.id}/checkpoints/{trigger}")
            if status["status"]["id"] == "COMPLETED":
                break
            time.sleep(0.02)
        if "failureCause" in status.get("operation", {}):
            raise click.ClickException(f"a checkpoint failed: {status['operation']['failureCause']}"[:2000])
        while True:
            # What is told of checkpoints may be older than this one.
            latest = self._ask(f"/jobs/{self.id}/checkpoints")["latest"]["completed"]
            if latest and latest["id"] >= status["operation"]["checkpointId"]:
                break
            time.sleep(0.05)
        after = {file: file.stat().st_size for file in self.checkpoints.rglob("*") if file.is_file()}
        return {
            "path": latest["external_path"],
            "milliseconds": latest["end_to_end_duration"],
            "new_files": len(after.keys() - before.keys()),
            "new_bytes": sum(size - before.get(file, 0) for file, size in after.items() if size > before.get(file, 0)),
            "files": len(after),
            "bytes": sum(after.values()),
            "state_size": latest["state_size"],
        }

    def kill(self) -> None:
        """Ends the process and its JVM."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def run(python: Path, query: str, backend: str, merging: bool, parallelism: int, files: list[Path]) -> dict[str, Any]:
    """Runs a query: a checkpoint after each file but the last one, which follows a restart.

    Args:
        python: Of the environment with Flink.
        query: The query's name.
        backend: One of BACKENDS.
        merging: Whether checkpoints merge files.
        parallelism: Subtasks of each operator.
        files: The events as lines of JSON.

    Returns:
        What was measured.
    """
    work = Path(tempfile.mkdtemp(prefix="nexmark-flink-"))
    try:
        job = Job(python, work, query, backend, merging, parallelism)
        checkpoints = []
        try:
            for file in files[:-1]:
                _appear(file, work / "events")
                job.wait_until_processed()
                checkpoints.append(job.checkpoint())
        finally:
            job.kill()
        _appear(files[-1], work / "events")
        again = Job(python, work, query, backend, merging, parallelism, checkpoints[-1]["path"])
        try:
            processed = again.wait_until_processed() - again.begun
            last = again.checkpoint()
        finally:
            again.kill()
        return {"checkpoints": checkpoints, "restart_seconds": processed + last["milliseconds"] / 1000}
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _appear(file: Path, folder: Path) -> None:
    hidden = folder / f".{file.name}"
    hidden.hardlink_to(file)
    hidden.rename(folder / file.name)


def table(found: dict[str, dict[str, Any]]) -> list[str]:
    """What was measured as a table in Markdown: medians over the second half of the checkpoints."""
    lines = [
        "| query | backend | file merging | new files a checkpoint | MB a checkpoint | files left | MB left "
        "| restart to first events and a checkpoint, s |",
        "|---|---|---|" + "---:|" * 5,
    ]
    for name, each in found.items():
        query, backend, merging = name.split(" ")
        if "failed" in each:
            lines.append(f"| {query} | {backend} | {merging} | failed: {each['failed'][:80]} | | | | |")
            continue
        steady = each["checkpoints"][len(each["checkpoints"]) // 2 :]
        cells = [
            f"{statistics.median(point['new_files'] for point in steady):,.0f}",
            f"{statistics.median(point['new_bytes'] for point in steady) / 1e6:,.2f}",
            f"{steady[-1]['files']:,}",
            f"{steady[-1]['bytes'] / 1e6:,.1f}",
            f"{each['restart_seconds']:.1f}",
        ]
        lines.append(f"| {query} | {backend} | {merging} | {' | '.join(cells)} |")
    return lines


@click.command(context_settings={"show_default": True})
@click.option("--query", "queries", type=click.Choice(list(QUERIES)), multiple=True, help="All without it.")
@click.option("--backend", "backends", type=click.Choice(BACKENDS), multiple=True, default=BACKENDS)
@click.option("--merging", type=click.Choice(["both", "on", "off"]), default="both")
@click.option("--parallelism", type=click.IntRange(1), default=2)
@click.option("--batches", type=click.IntRange(2), default=8)
@click.option("--events", type=click.IntRange(50), default=10_000)
@click.option("--seconds", type=click.IntRange(1), default=10)
@click.option("--seed", default=20130101)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("build/benchmarks"))
def main(
    queries: tuple[str, ...],
    backends: tuple[str, ...],
    merging: str,
    parallelism: int,
    batches: int,
    events: int,
    seconds: int,
    seed: int,
    out: Path,
) -> None:
    """Count the files of Flink's checkpoints, over the events that Spark gets."""
    try:
        python = environment()
    except FlinkUnavailable as error:
        raise click.ClickException(str(error)) from error
    shape = Shape(batches + 1, events, seconds, seed)
    work = Path(tempfile.mkdtemp(prefix="nexmark-events-"))
    found: dict[str, dict[str, Any]] = {}
    out.mkdir(parents=True, exist_ok=True)
    try:
        files = []
        for file in write_files(shape, work / "parquet"):
            files.append(work / f"{file.stem}.json")
            write_json(file, files[-1])
        for query in (name for name in QUERIES if not queries or name in queries):
            for backend in backends:
                for merged in {"both": (False, True), "on": (True,), "off": (False,)}[merging]:
                    name = f"{query} {backend} {'on' if merged else 'off'}"
                    try:
                        found[name] = run(python, query, backend, merged, parallelism, files)
                    except click.ClickException as error:
                        found[name] = {"failed": error.message}
                    print(table({name: found[name]})[-1], file=sys.stderr, flush=True)
                    kept = {"flink": VERSION, "shape": asdict(shape), "parallelism": parallelism, "runs": found}
                    (out / "nexmark-flink.json").write_text(json.dumps(kept, indent=1) + "\n")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print("\n".join(table(found)))
    print(f"raw numbers: {out}/nexmark-flink.json", file=sys.stderr)


if __name__ == "__main__":
    main()
