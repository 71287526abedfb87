"""What docs/sql.md shows works, and what it says does not work does not."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests import class_data
from tests.streaming.runs import Run, Setting
from tests.streaming.workloads import write_batches

pytestmark = [pytest.mark.spark, pytest.mark.sweep(1, files="queries of pages")]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "sql.md"
_IS_UNLIMITED = class_data.MINOR in ("4.0", "4.1")
"""Whether a stream has no ``maxSegmentsPerTrigger``, as the page says of older versions."""
BLOCKS = re.findall(r"^```(\w+)( fails)?\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def statements(block: str) -> list[str]:
    return [statement for statement in block.split(";") if statement.strip()]


def test_every_example_of_the_page_does_what_it_says(spark: SparkSession, tmp_path: Path) -> None:
    run = Run(spark, "aggregation", Setting("provider", "rocksdb"), tmp_path)
    write_batches(run.input, range(2))
    run.run()
    checkpoint = {"s3a://bucket/checkpoints/q1": str(run.checkpoint), "s3a://bucket/checkpoints": str(tmp_path)}
    names = {"spark": spark}
    shown = 0
    try:
        for language, fails, block in BLOCKS:
            for before, after in checkpoint.items():
                block = block.replace(before, after)
            if language == "python":
                refused = _IS_UNLIMITED and "maxSegmentsPerTrigger" in block
                with pytest.raises(PySparkException, match="nothing before Spark 4.2") if refused else nullcontext():
                    exec(block, names)
            elif fails:
                *before_it, wrong = statements(block)
                for statement in before_it:
                    spark.sql(statement)
                with pytest.raises(PySparkException):
                    spark.sql(wrong).collect()
            else:
                rows = [spark.sql(statement).collect() for statement in statements(block)][-1]
                assert rows or "INSERT" in block
            shown += 1
    finally:
        for table in ("any_versions", "with_options"):
            spark.sql(f"DROP TABLE IF EXISTS {table}")
        for view in ("q1_segments", "q1_files"):
            spark.catalog.dropTempView(view)

    assert shown == PAGE.read_text().count("\n```") / 2 == 8
    assert spark.table("bytes_written").count() == (0 if _IS_UNLIMITED else 3)
