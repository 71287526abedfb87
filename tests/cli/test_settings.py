"""``settings`` prints what ``configure`` sets, and a Spark that only has it keeps its state in merged files."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pyspark_statestore import configure
from pyspark_statestore.session import configure as configuring
from pyspark_statestore.session import jvm
from tests.cli.conftest import Invoke
from tests.scripts import run_script

ROOT = Path(__file__).resolve().parents[2]
CASES: list[tuple[list[str], dict[str, Any]]] = [
    ([], {}),
    (["--mode", "path", "--store", "heap"], {"mode": "path", "store": "heap"}),
    (["--sink", "--option", "sink_target_file_size=64m"], {"sink": True, "sink_target_file_size": "64m"}),
    (["--option", "max_file_size=64m", "--option", "closed_after=1h"], {"max_file_size": "64m", "closed_after": "1h"}),
]


@pytest.fixture
def own_jar(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """No JVM, no settings from elsewhere, and a jar that need not be built."""
    for module in (configuring, jvm):
        monkeypatch.setattr(module, "running_jvm", lambda: None)
        monkeypatch.setattr(module, "jar_path", lambda spark=None: f"/lib/it{spark or ''}.jar")
    for name in ("PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return "/lib/it.jar"


@pytest.mark.parametrize(("options", "arguments"), CASES)
def test_they_are_what_configure_sets(
    invoke: Invoke, own_jar: str, options: list[str], arguments: dict[str, Any]
) -> None:
    expected = dict(configure(SparkSession.builder, **arguments)._options)
    printed = json.loads(invoke("settings", *options, "--as", "json").stdout)
    assert printed == expected
    parts = [
        json.loads(invoke("settings", *options, "--as", "json", "--part", part).stdout) for part in ("start", "session")
    ]
    assert {**parts[0], **parts[1]} == expected
    assert not parts[0].keys() & parts[1].keys()
    assert set(parts[0]) >= {"spark.jars", "spark.plugins", "spark.sql.extensions"}

    properties = dict(line.split(None, 1) for line in invoke("settings", *options).stdout.splitlines())
    assert properties == expected
    words = shlex.split(invoke("settings", *options, "--as", "submit").stdout.replace("\\\n", " "))
    assert words[::2] == ["--conf"] * len(expected)
    assert dict(word.split("=", 1) for word in words[1::2]) == expected
    calls = invoke("settings", *options, "--as", "builder").stdout
    assert dict(re.findall(r'^  \.config\("(.*)", "(.*)"\)$', calls, re.MULTILINE)) == expected


def test_another_jar(invoke: Invoke, own_jar: str) -> None:
    assert json.loads(invoke("settings", "--as", "json", "--spark", "4.2").stdout)["spark.jars"] == "/lib/it4.2.jar"
    assert (
        json.loads(invoke("settings", "--as", "json", "--jar", "hdfs://nn/x.jar").stdout)["spark.jars"]
        == "hdfs://nn/x.jar"
    )


def test_wrong_options_are_refused_as_by_configure(invoke: Invoke, own_jar: str) -> None:
    wrong = {
        "max_file=1m": "[PSS_UNKNOWN_OPTION] max_file is not an option of pyspark-statestore. Did you mean ",
        "max_file_size=1": "[PSS_INVALID_OPTION]",
        "max_file_size": "KEY=VALUE",
    }
    for given, said in wrong.items():
        error = invoke("settings", "--option", given, status=2).stderr
        assert "Invalid value for" in error
        assert "--option" in error
        assert said in error


def test_options_without_effect_are_told(invoke: Invoke, own_jar: str) -> None:
    done = invoke("settings", "--option", "sink_target_file_size=64m", "--as", "json")
    assert done.stderr == (
        "sink_target_file_size has no effect without --sink. What to do: pass --sink, or leave it out.\n"
    )
    assert "--mode path" in invoke("settings", "--mode", "path", "--option", "restore=lazy").stderr
    removed = invoke("settings", "--option", "verify_checksums=false")
    assert removed.stderr == (
        "verify_checksums is not an option any more and has no effect: what is read whole is always checked. What to "
        "do: remove it.\n"
    )
    assert "hecksum" not in removed.stdout
    assert invoke("settings", "--sink", "--option", "sink_target_file_size=64m").stderr == ""


SCRIPT = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

spark = SparkSession.builder.master("local[2]").getOrCreate()
spark.range(10).write.parquet(sys.argv[1] + "/source")
stream = spark.readStream.schema("id long").parquet(sys.argv[1] + "/source").groupBy(sf.col("id") % 3).count()
query = stream.writeStream.format("noop").outputMode("update").option("checkpointLocation", sys.argv[1] + "/q1")
query.trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""


@pytest.mark.sweep(0, files="sessions in processes")
@pytest.mark.spark
@pytest.mark.slow
def test_a_spark_that_only_has_these_settings_merges(main_jar: Path, tmp_path: Path, invoke: Invoke) -> None:
    defaults = tmp_path / "spark-defaults.conf"
    more = "spark.ui.enabled false\nspark.sql.shuffle.partitions 2\nspark.log.level ERROR\n"
    defaults.write_text(invoke("settings", "--jar", main_jar).stdout + more)
    run_script(SCRIPT, tmp_path, cwd=tmp_path, SPARK_CONF_DIR=str(tmp_path))
    assert list((tmp_path / "q1" / "state" / "_merged").glob("*.merged"))
