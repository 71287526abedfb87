"""attach() on a session that was started without the jar, each time in a Python process (and JVM) of its own.

tests/streaming/test_fresh_sessions.py does it on executors.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sampling import sampled
from tests.scripts import run_script

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession, functions as F
from pyspark_statestore import Checkpoint, StateStoreFilesError, attach, configure, merged_path

mode, directory = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
refused = []
for call in (
    lambda: configure(SparkSession.builder, mode=mode),
    lambda: attach(spark, mode="both"),
    lambda: attach(spark, max_file_size="huge"),
):
    try:
        call()
    except StateStoreFilesError as error:
        refused.append(error.getErrorClass())
untouched = not [row for row in spark.sql("SET").collect() if "fileMerging" in row.key or "merged+" in row.key]

spark.range(10).groupBy("id").count().collect()  # executors have started without the jar
assert attach(attach(spark, mode=mode), mode=mode) is spark

source, checkpoint = f"{directory}/source", f"{directory}/checkpoint"
location = merged_path(checkpoint) if mode == "path" else checkpoint
for part in range(2):
    spark.range(part * 10, part * 10 + 10).write.mode("append").parquet(source)
    stream = spark.readStream.schema("id long").parquet(source).groupBy((F.col("id") % 5).alias("k")).count()
    query = stream.writeStream.format("noop").outputMode("update").option("checkpointLocation", location)
    query = query.trigger(availableNow=True).start()
    query.awaitTermination()
    metrics = query.recentProgress[0]["stateOperators"][0]["customMetrics"]
wrong_door = ""
if mode == "path":
    try:
        stream.writeStream.format("noop").outputMode("update").option("checkpointLocation", checkpoint).start()
    except Exception as error:
        wrong_door = str(error)
if spark.version.startswith("3.5"):
    state = Checkpoint(checkpoint).state().to_pylist()
    rows = [[*row["key"].values(), *row["value"].values()] for row in state]
else:
    rows = spark.read.format("statestore").load(location).select("key.*", "value.*").collect()
files = [path.relative_to(checkpoint).as_posix() for path in Path(checkpoint, "state").rglob("*") if path.is_file()]

spark.stop()
try:
    attach(spark)
except StateStoreFilesError as error:
    refused.append(error.getErrorClass())
result = {"refused": refused, "untouched": untouched, "rows": sorted(rows), "files": files, "wrong": wrong_door}
result["segments"] = metrics.get("fileMergingWrittenSegments")
print(json.dumps(result))
"""


@pytest.mark.sweep(1, files="packages in environments")
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("mode", sampled(["path", "provider"], 1))
def test_a_session_without_the_jar_goes_on_with_merged_state(mode: str, main_jar: Path, tmp_path: Path) -> None:
    printed = run_script(SCRIPT, mode, tmp_path, cwd=tmp_path, PYTHONPATH=str(ROOT), SPARK_LOCAL_DIRS=str(tmp_path))
    result = json.loads(printed.splitlines()[-1])

    assert result["refused"] == ["PSS_JAR_MISSING", "PSS_INVALID_OPTION", "PSS_INVALID_OPTION", "PSS_SPARK_NOT_RUNNING"]
    assert result["untouched"]
    assert result["wrong"].startswith("[PSS_WRONG_DOOR] ") == (mode == "path"), result["wrong"]
    assert bool(result["segments"]) == (mode == "provider")
    assert result["rows"] == [[k, 4] for k in range(5)]
    assert [name for name in result["files"] if name.endswith(".merged")]
    assert not [name for name in result["files"] if name.endswith((".changelog", ".zip", ".sst"))]
