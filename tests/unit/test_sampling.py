"""A run of the long tests that `make test` leaves out ends in time, and says what it did not begin."""

import os
import subprocess
import sys
from pathlib import Path

from tests import sampling

ROOT = Path(__file__).resolve().parent.parent.parent
GROUP = ["tests/sink/test_encryption.py", "tests/sink/test_formats.py", "tests/sink/test_root.py"]
"""Files of one group, which run on each version of Spark."""


def rest(*arguments: str, **environment: str) -> list[str]:
    """Lines that pytest writes about the rest of a group of files, of which `make test` runs one."""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments, *GROUP],
        cwd=ROOT,
        env={**os.environ, "PSS_REST": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout.splitlines()


def test_no_test_of_the_rest_begins_when_time_is_up() -> None:
    lines = rest(PSS_REST_SECONDS="0")

    assert sampling.NOT_BEGUN in lines
    begun_not = [line for line in lines if line.strip().partition(" of ")[2] in GROUP]
    assert len(begun_not) == len(GROUP) - 1
    tests = sum(int(line.split()[0]) for line in begun_not)
    assert f"{tests} skipped" in lines[-1]
    assert "passed" not in lines[-1]


def test_each_commit_leaves_other_files_to_the_end() -> None:
    def files(seed: str) -> list[str]:
        lines = rest("--collect-only", "--quiet", PSS_REST_SECONDS="900", PSS_REST_ORDER=seed)
        return list(dict.fromkeys(line.partition("::")[0] for line in lines if "::" in line))

    first, other = files("b"), files("c")
    assert len(first) == len(GROUP) - 1
    assert first == other[::-1]
