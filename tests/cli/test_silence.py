"""Commands that start Spark are as silent as the others, and an error is one line with what helps first."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import fsspec
import pytest

from pyspark_statestore import Checkpoint, StateStoreFilesError
from tests.conftest import ROOT

LINES = """
import sys
from pyspark_statestore.cli.session import session
from pyspark_statestore.errors import StateStoreFilesError
print("before")
try:
    with session("local[1]", {conf}) as spark:
        spark.range(3).selectExpr("sum(id)").collect()
        print("within", file=sys.stderr)
        spark._jvm.java.lang.System.out.println("from the JVM")
except StateStoreFilesError as error:
    print(error, file=sys.stderr)
print("after")
"""


def run(conf: Mapping[str, str], **environment: str) -> subprocess.CompletedProcess[str]:
    code = LINES.replace("{conf}", repr({"spark.driver.host": "127.0.0.1", **conf}))
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
        timeout=300,
        check=True,
    )


@pytest.mark.sweep(0, files="sessions in processes")
@pytest.mark.spark
def test_nothing_of_spark_comes_to_the_terminal() -> None:
    done = run({})
    assert done.stdout.split() == ["before", "after"]
    assert done.stderr == "within\n"


@pytest.mark.sweep(0, files="sessions in processes")
@pytest.mark.spark
def test_who_asks_for_sparks_log_sees_it() -> None:
    done = run({"spark.log.level": "WARN"})
    assert "log4j" in done.stderr
    assert "from the JVM" in done.stdout


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"JAVA_HOME": "/no/such/java"}, "/no/such/java"),
        ({"PYSPARK_SUBMIT_ARGS": "--no-such-option pyspark-shell"}, "no-such-option"),
    ],
)
def test_why_spark_does_not_start_is_one_line(environment: dict[str, str], said: str) -> None:
    done = run({}, **environment)
    assert done.stdout.split() == ["before", "after"]
    [line] = done.stderr.splitlines()
    assert line.startswith("[PSS_SPARK_NOT_RUNNING] Spark did not start: ")
    assert said in line
    assert line.endswith("with --conf spark.log.level=WARN the command shows Spark's log.")


@pytest.mark.parametrize("error", [OSError, ImportError, ValueError])
def test_a_library_that_lists_all_that_it_tried(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error("Unable to load libjvm\n" + "\n".join(f"dlopen(/lib/{n}) failed: no such file" for n in range(77)))

    monkeypatch.setattr(fsspec, "filesystem", refuse)
    with pytest.raises(StateStoreFilesError) as refused:
        Checkpoint("hdfs://nn/q1")
    assert "\n" not in str(refused.value)
    assert "Unable to load libjvm" in str(refused.value)
    if error is not ValueError:
        assert "Install Hadoop's native client (libhdfs)" in str(refused.value)


def test_hdfs_without_its_library(tmp_path: Path) -> None:
    environment = {**os.environ, "JAVA_HOME": str(tmp_path), "HADOOP_HOME": str(tmp_path), "CLASSPATH": ""}
    command = [sys.executable, "-m", "pyspark_statestore.cli", "summary", "hdfs://nn/q1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("[PSS_")
    assert len(done.stderr.splitlines()) == 1
