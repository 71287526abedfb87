"""A script that an environment's Python runs, while the PATH has another Python: workers are the script's Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.since("4.0", "checkpoint_files came with Spark 4.0"),
    pytest.mark.sweep(0, files="sessions in processes"),
]

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import sys
from pyspark.sql import SparkSession
from pyspark_statestore import configure

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = configure(builder.config("spark.log.level", "ERROR")).getOrCreate()
files = spark.read.format("checkpoint_files").load(sys.argv[1])
print("rows", files.count(), spark.sparkContext.pythonExec)
spark.stop()
"""


def test_checkpoint_files_is_found_by_a_python_that_is_not_on_the_path(main_jar: Path, tmp_path: Path) -> None:
    (tmp_path / "q1" / "offsets").mkdir(parents=True)
    (tmp_path / "q1" / "offsets" / "0").write_text("v1\n{}\n{}")
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho 'a Python without pyspark_statestore' >&2\nexit 1\n")
    other.chmod(0o755)
    left_out = ("PYSPARK_SUBMIT_ARGS", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "MASTER")
    environment = {key: value for key, value in os.environ.items() if key not in left_out}
    environment |= {
        "PATH": f"{other.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "datasource")]),
        "SPARK_LOCAL_DIRS": str(tmp_path),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "q1")]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout.splitlines()[-1] == f"rows 0 {sys.executable}"
