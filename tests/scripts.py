"""Scripts that start a session in a JVM of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

LAST_WORDS_S = 60
"""How long a JVM may take to end after the Python process that started it."""


def run_to_the_end(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Runs a command and what it starts, as ``subprocess.run`` does that captures the output.

    A JVM that never ends does not count. RocksDB's timer writes to Spark's log now and then. If it does so while the
    JVM ends, each waits for the other: seen on Spark 3.5, and stock Spark's classes do the same.

    Args:
        command: The program and its arguments.
        cwd: Its working directory.
        env: Its variables; those of this process if not given.
        timeout: How many seconds it may take.

    Raises:
        subprocess.TimeoutExpired: If it takes longer.
    """
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=cwd, env=env, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    end = time.monotonic() + timeout
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                output = process.communicate(timeout=1)
                return subprocess.CompletedProcess(command, process.returncode, *output)
            if process.returncode is None and process.poll() is not None:
                end = min(end, time.monotonic() + LAST_WORDS_S)
            if time.monotonic() > end:
                break
        ended = process.poll() is not None
        os.killpg(process.pid, signal.SIGKILL)
        output = process.communicate()
        if not ended:
            raise subprocess.TimeoutExpired(command, timeout, *output)
        return subprocess.CompletedProcess(command, process.returncode, *output)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def run_script(script: str, *arguments: Path | str, cwd: Path, **environment: str) -> str:
    """Runs a script in a process of its own, whose JVM is not that of the tests.

    Args:
        script: Its text.
        arguments: What it gets.
        cwd: Its working directory.
        environment: More variables.

    Returns:
        What it printed; it has to end well.
    """
    variables = {key: value for key, value in os.environ.items() if key != "PYSPARK_SUBMIT_ARGS"}
    variables |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **environment}
    done = run_to_the_end([sys.executable, "-c", script, *map(str, arguments)], cwd=cwd, env=variables)
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout
