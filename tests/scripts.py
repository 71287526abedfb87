"""Scripts that start a session in a JVM of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_script(script: str, *arguments: Path, cwd: Path, **environment: str) -> str:
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
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=variables, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout
