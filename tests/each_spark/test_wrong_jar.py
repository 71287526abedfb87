"""A jar for another minor version of Spark refuses to work with one clear error, whatever of it is used first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from pyspark_statestore._version import __version__
from pyspark_statestore.session.jvm import jar_in_name
from tests.class_data import MINOR
from tests.cluster.processes import second_jvm

ROOT = Path(__file__).resolve().parents[2]
JARS = ROOT / "pyspark_statestore" / "jars"
OTHERS = [jar for jar in sorted(JARS.glob("*.jar")) if (named := jar_in_name(jar.name)) and named.spark != MINOR]
NEEDS_JARS = "only the jar for the installed Spark is built; `make jars` builds the others"

pytestmark = [
    pytest.mark.spark,
    pytest.mark.each_spark,
    pytest.mark.skipif(not OTHERS, reason=NEEDS_JARS),
]

PACKAGE = "io.pyspark.statestore."
MANAGER = f"{PACKAGE}fs.MergedCheckpointFileManager"
HAND_WRITTEN = {
    "spark.sql.streaming.stateStore.providerClass": f"{PACKAGE}spark.MergedRocksDBStateStoreProvider",
    "spark.sql.streaming.checkpointFileManagerClass": MANAGER,
    "spark.hadoop.fs.merged+file.impl": f"{PACKAGE}fs.MergedFileSystem",
}
SESSION = """
import sys
from pyspark.sql import SparkSession
jar, how, folder, *settings = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.jars", jar)
for key, value in zip(settings[::2], settings[1::2]):
    builder = builder.config(key, value)
spark = builder.getOrCreate()
rows = spark.readStream.format("rate").load().groupBy("value").count()
writer = rows.writeStream.outputMode("update").format("noop").option("checkpointLocation", folder)
writer.trigger(availableNow=how == "available").start().awaitTermination()
"""


def spark_of(jar: Path) -> str:
    found = jar_in_name(jar.name)
    assert found is not None
    return found.spark


def needs_same_package(jar: Path) -> bool:
    """Spark 4.1 moved the interface of file managers, without which the class cannot even be loaded."""
    number = [tuple(map(int, minor.split("."))) for minor in (spark_of(jar), MINOR)]
    return (number[0] >= (4, 1)) == (number[1] >= (4, 1))


@pytest.mark.parametrize("jar", OTHERS, ids=spark_of)
def test_whatever_a_user_names(jar: Path) -> None:
    with second_jvm() as process:
        java = process.view
        urls = process.gateway.new_array(java.java.net.URL, 1)
        urls[0] = java.java.io.File(str(jar)).toURI().toURL()
        loader = java.java.net.URLClassLoader(urls)

        def refusal(action: Any) -> str:
            with pytest.raises(Py4JJavaError) as caught:
                action()
            error = caught.value.java_exception
            while error.getCause() is not None:
                error = error.getCause()
            return str(error)

        def made(name: str) -> Any:
            return loader.loadClass(PACKAGE + name).getConstructor(process.gateway.new_array(java.java.lang.Class, 0))

        nothing = process.gateway.new_array(java.java.lang.Object, 0)
        conf = java.org.apache.hadoop.conf.Configuration(False)
        uri = java.java.net.URI("merged+file:///")
        said = {
            "rocksdb": refusal(lambda: made("spark.MergedRocksDBStateStoreProvider").newInstance(nothing)),
            "heap": refusal(lambda: made("spark.MergedHDFSBackedStateStoreProvider").newInstance(nothing)),
            "extension": refusal(lambda: made("spark.MergedStateExtensions").newInstance(nothing).apply(None)),
            "plugin": refusal(lambda: made("spark.FileMergingPlugin").newInstance(nothing).driverPlugin()),
            "file system": refusal(lambda: made("fs.MergedFileSystem").newInstance(nothing).initialize(uri, conf)),
        }
        if needs_same_package(jar):
            types = process.gateway.new_array(java.java.lang.Class, 2)
            types[0] = loader.loadClass("org.apache.hadoop.fs.Path")
            types[1] = loader.loadClass("org.apache.hadoop.conf.Configuration")
            values = process.gateway.new_array(java.java.lang.Object, 2)
            values[0], values[1] = java.org.apache.hadoop.fs.Path("file:///x"), conf
            said["manager"] = refusal(lambda: loader.loadClass(MANAGER).getConstructor(types).newInstance(values))
        for name, words in said.items():
            assert "[PSS_WRONG_SPARK] This is Spark " + MINOR in words, (name, words)
            assert f"is for Spark {spark_of(jar)} (" in words, (name, words)
            assert str(jar) in words, (name, words)


@pytest.mark.slow
@pytest.mark.parametrize("by_extension", [True, False], ids=["with-extension", "without"])
def test_settings_by_hand(tmp_path: Path, by_extension: bool) -> None:
    """Nearest neighbours: those are what people mix up."""
    jar = min(OTHERS, key=lambda other: (not needs_same_package(other), abs(float(spark_of(other)) - float(MINOR))))
    if not needs_same_package(jar):
        pytest.skip("no jar of a neighbour is built whose classes this Spark can load; `make jars` builds them all")
    settings = {**HAND_WRITTEN, "spark.sql.extensions": f"{PACKAGE}spark.MergedStateExtensions"}
    if not by_extension:
        del settings["spark.sql.extensions"]
    arguments = [str(jar), "available", str(tmp_path / "checkpoint")]
    arguments += [word for pair in settings.items() for word in pair]
    environment = {key: value for key, value in os.environ.items() if key != "PYSPARK_SUBMIT_ARGS"}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", SESSION, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode != 0
    assert "[PSS_WRONG_SPARK] This is Spark" in done.stderr, done.stderr[-3000:]
    assert "NoSuchMethodError" not in done.stderr
    assert not (tmp_path / "checkpoint" / "state").exists()


def test_names_of_jars() -> None:
    assert {spark_of(jar) for jar in OTHERS} <= {"3.5", "4.0", "4.1", "4.2", "4.3"}
    assert all(jar.name.endswith(f"-{__version__}.jar") for jar in OTHERS)
