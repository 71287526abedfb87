"""The data source through Spark Connect; in a process of its own, because a classic session excludes a remote one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyspark_statestore.format import MergedFileWriter, file_name
from tests.scripts import run_script

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sweep(0, files="sessions in processes")]

SCRIPT = """
import json, sys
from pyspark.sql import SparkSession
from pyspark_statestore import Checkpoint, StateStoreFilesError, maintain

path, followed = sys.argv[1:]
spark = (
    SparkSession.builder.remote("local[2]")
    .config("spark.ui.enabled", "false").config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.shuffle.partitions", "2").getOrCreate()
)
assert "connect" in type(spark).__module__
found = {"files": spark.read.format("checkpoint_files").load(path).count()}
spark.sql(f"CREATE TEMPORARY VIEW v USING checkpoint_files OPTIONS (path '{path}', table 'segments')")
found["view"] = [row.logical_path for row in spark.sql("SELECT * FROM v WHERE partition_id = 1").collect()]
try:
    spark.read.format("checkpoint_files").option("table", "nonsense").load(path).collect()
except Exception as error:
    found["error"] = str(error)
try:
    maintain(spark)
except StateStoreFilesError as error:
    found["maintain"] = str(error)
found["compacted"] = Checkpoint(path).maintenance.compact(spark=spark, where="segment_count < 9").rewritten_files_count
found["clean"] = Checkpoint(path).maintenance.verify(spark=spark).is_clean
spark.sql(f"CREATE TEMPORARY VIEW f USING checkpoint_files OPTIONS (path '{path}')")
spark.sql("INSERT INTO f SELECT * FROM f")
found["generations"] = [row.generation for row in spark.sql("SELECT generation FROM f").collect()]
stream = spark.readStream.format("checkpoint_files").option("table", "segments").load(path)
query = stream.writeStream.format("memory").queryName("q").option("checkpointLocation", followed)
query.trigger(availableNow=True).start().awaitTermination()
found["stream"] = [row.logical_path for row in spark.table("q").orderBy("logical_path").collect()]
print(json.dumps(found))
spark.stop()
"""


def test_everything_works_through_connect(main_jar: Path, tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    merged = tmp_path / "checkpoint" / "state" / "_merged"
    merged.mkdir(parents=True)
    paths = [f"0/{partition}/{version}.changelog" for partition in range(2) for version in (1, 2)]
    with (merged / file_name(1_700_000_000_000, 7, 0)).open("wb") as out:
        log = MergedFileWriter(out, writer=7, created_ms=1_700_000_000_000)
        for stamp, path in enumerate(paths, start=1):
            log.put(path, b"abc", stamp=stamp)
        log.seal()
    folders = (tmp_path / "checkpoint", tmp_path / "followed")
    said = run_script(SCRIPT, *folders, cwd=tmp_path, SPARK_LOCAL_DIRS=str(tmp_path))

    found = json.loads(said.splitlines()[-1])
    assert found["files"] == 1
    assert found["view"] == paths[2:]
    assert found["generations"] == [2], "compaction in Python, then in SQL"
    assert found["stream"] == paths
    assert "PSS_INVALID_OPTION" in found["error"]
    assert "files, segments, versions, summary" in found["error"]
    assert found["maintain"].startswith("[PSS_SPARK_NOT_RUNNING] This is a Spark Connect session")
    assert (found["compacted"], found["clean"]) == (1, True)
