"""Flink from PyPI, and jobs of it: Nexmark's queries over events in files, with checkpoints when they are asked for.

Flink needs other versions of packages than Spark, so it has an environment of its own, in the user's cache. A job is a
process of that environment (`nexmark_flink_job.py`), which is spoken to by Flink's REST API.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import venv
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

VERSION = "2.3.0"
WAIT_SECONDS = 300
QUIET_SECONDS = 1.0
"""A file is processed when no counter of the job has moved for so long."""
IDLE_MILLIS = 300
"""A reader without events counts as idle after that time, which is well before a file counts as processed."""


class FlinkError(Exception):
    """Flink cannot be had here, or a job of it failed; the message says why."""


def environment() -> Path:
    """The environment with Flink, made if it is not in the user's cache.

    Returns:
        Its Python.

    Raises:
        FlinkError: pip cannot install it.
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
            raise FlinkError(f"pip could not install apache-flink=={VERSION}: {done.stderr[-3000:]}")
        (home / "installed").touch()
    return python


class Job:
    """A job of Flink's, in a process of its own.

    Args:
        python: The environment's.
        work: A directory for everything of this job.
        query: The query's name.
        backend: "rocksdb" or "forst".
        merging: Whether checkpoints merge files.
        parallelism: Subtasks of each operator.
        restore: The checkpoint to begin with.
    """

    def __init__(
        self, python: Path, work: Path, query: str, backend: str, merging: bool, parallelism: int, restore: str = ""
    ) -> None:
        self.checkpoints = work / "checkpoints"
        self._left = self._files()
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
            # There is one file for all readers: one that has nothing to read must not hold back the watermark.
            "table.exec.source.idle-timeout": f"{IDLE_MILLIS} ms",
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
        watchdog = threading.Timer(WAIT_SECONDS, self.kill)
        watchdog.start()
        self.id = self._process.stdout.readline().strip()
        watchdog.cancel()
        self.begun = time.monotonic()
        if len(self.id) != 32:
            self.kill()
            raise FlinkError(f"Flink did not start {query} on {backend}: {self._log.read_text()[-2000:]}")

    def _ask(self, path: str, data: dict[str, Any] | None = None) -> dict[str, Any]:
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(f"{self._url}{path}", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                found: dict[str, Any] = json.loads(answer.read())
                return found
        except (OSError, http.client.HTTPException) as error:
            raise FlinkError(f"Flink does not answer {path}: {error}") from error

    def wait_until_processed(self) -> tuple[float, float]:
        """Waits until no counter of the job moves any more.

        Returns:
            The times, of a monotonic clock, before which nothing had moved yet, and at which something moved last. They
            are known to a tenth of a second or two.

        Raises:
            FlinkError: The job fails, or is not done in time.
        """
        begun = moved = time.monotonic()
        seen = self._counted
        deadline = begun + WAIT_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise FlinkError(f"Flink has ended: {self._log.read_text()[-2000:]}")
            try:
                job = self._ask(f"/jobs/{self.id}")
            except FlinkError:
                job = {"vertices": []}
            if job.get("state") == "FAILED":
                raise FlinkError(f"the job has failed: {self._ask(f'/jobs/{self.id}/exceptions')}"[:3000])
            counted = sum(v["metrics"]["read-records"] + v["metrics"]["write-records"] for v in job["vertices"])
            if counted != seen:
                moved, seen = time.monotonic(), counted
            elif counted == self._counted:
                begun = time.monotonic()
            elif time.monotonic() - moved > QUIET_SECONDS:
                self._counted = counted
                return begun, moved
            time.sleep(0.1)
        raise FlinkError(f"the events were not processed within {WAIT_SECONDS} s")

    def checkpoint(self) -> dict[str, Any]:
        """Makes a checkpoint; returns what Flink says of it, and what is new in the directory since the last one."""
        deadline = time.monotonic() + WAIT_SECONDS
        trigger = self._ask(f"/jobs/{self.id}/checkpoints", {"checkpointType": "CONFIGURED"})["request-id"]
        while (status := self._ask(f"/jobs/{self.id}/checkpoints/{trigger}"))["status"]["id"] != "COMPLETED":
            self._wait(deadline)
        if "failureCause" in status.get("operation", {}):
            raise FlinkError(f"a checkpoint failed: {status['operation']['failureCause']}"[:2000])
        # What is told of checkpoints may be older than this one.
        while not (latest := self._ask(f"/jobs/{self.id}/checkpoints")["latest"]["completed"]) or (
            latest["id"] < status["operation"]["checkpointId"]
        ):
            self._wait(deadline)
        before, after = self._left, self._files()
        self._left = after
        return {
            "path": latest["external_path"],
            "milliseconds": latest["end_to_end_duration"],
            "new_files": len(after.keys() - before.keys()),
            "new_bytes": sum(size - before.get(file, 0) for file, size in after.items() if size > before.get(file, 0)),
            "files": len(after),
            "bytes": sum(after.values()),
            "state_size": latest["state_size"],
        }

    def _files(self) -> dict[Path, int]:
        """The sizes of the files of all checkpoints."""
        found = {}
        for folder, _, names in os.walk(self.checkpoints):
            for name in names:
                # Flink deletes files meanwhile.
                with suppress(FileNotFoundError):
                    file = Path(folder) / name
                    found[file] = file.stat().st_size
        return found

    @staticmethod
    def _wait(deadline: float) -> None:
        if time.monotonic() > deadline:
            raise FlinkError(f"a checkpoint was not complete within {WAIT_SECONDS} s")
        time.sleep(0.02)

    def kill(self) -> None:
        """Ends the process and its JVM."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
