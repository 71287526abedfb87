"""Merged state in sessions that start in a JVM of their own, with executors: with the jar, or attached without.

``local[2]`` with ``configure`` is what all other tests have; tests/packaging/test_attach.py attaches there.
"""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.sampling import marked
from tests.scripts import run_to_the_end
from tests.streaming.runs import merged_files, plain_state_files

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(0, files="sessions in processes")]

SCRIPT = Path(__file__).with_name("fresh_session.py")
ROOT = SCRIPT.parents[2]
CLUSTER = "local-cluster[2,1,1024]"


CASES = [
    ("attach", ["path"]),
    ("configure", ["provider"]),
    ("configure", ["path"]),
    ("configure", ["provider", "path"]),
]
"""The last one has both in one process, one after the other. All of tests/cluster starts with ``configure``."""


@pytest.mark.parametrize(("how", "modes"), marked(CASES, lambda case: case[0] == "attach"))
def test_fresh_session(main_jar: Path, tmp_path: Path, how: str, modes: list[str]) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PYSPARK_SUBMIT_ARGS"}
    environment |= {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_DIRS": str(tmp_path)}
    environment |= {"SPARK_WORKER_DIR": str(tmp_path / "work"), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, str(SCRIPT), how, CLUSTER, str(tmp_path), *modes]
    done = run_to_the_end(command, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr[-5000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found) == set(modes)
    for mode, result in found.items():
        checkpoint = tmp_path / mode / "checkpoint"
        assert len(result["expected"]) == 7
        assert result["given_out"] == result["expected"]
        assert result["state"] == result["expected"]
        assert merged_files(checkpoint)
        assert plain_state_files(checkpoint) == []
        # One process of the session's, or two executors and the driver: none of them makes many.
        assert len(merged_files(checkpoint)) <= 16
