"""The package that Spark imports in every session is light and never raises."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pyspark_checkpoint_files

HEAVY = ("pyspark", "pyarrow", "numpy", "pandas", "fsspec")


def _run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_nothing_heavy_is_imported() -> None:
    loaded = f"print([name for name in {HEAVY!r} if name in sys.modules])"

    assert _run(f"import sys, pyspark_checkpoint_files; {loaded}") == "[]"


def test_without_spark_there_is_no_source_and_no_error() -> None:
    code = f"""
import sys
for name in {HEAVY!r}:
    sys.modules[name] = None
import pyspark_checkpoint_files
print(hasattr(pyspark_checkpoint_files, "DefaultSource"))
"""

    assert _run(code) == "False"


def test_spark_finds_one_source_and_its_name() -> None:
    from pyspark.sql.datasource import DataSource

    source = pyspark_checkpoint_files.DefaultSource

    assert issubclass(source, DataSource)
    assert source.name() == "checkpoint_files"
    assert dir(pyspark_checkpoint_files).count("DefaultSource") == 1


def test_a_source_and_its_readers_travel_by_pickle(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    source = pyspark_checkpoint_files.DefaultSource({"PATH": str(tmp_path), "table": "segments", "operatorId": "3"})
    there = pickle.loads(pickle.dumps(source))
    schema = there.schema()

    assert pickle.loads(pickle.dumps(there.reader(schema))).partitions()
    assert pickle.loads(pickle.dumps(there.streamReader(schema))).initialOffset() == {"version": 1, "writers": {}}
