"""Nothing that was joined is listed before each of its sources is accounted for."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

WRONG = {
    "a bin is missing": "1 bins were planned and 0 came back",
    "a source is missing": "nobody says what became of file:/sink/two",
    "another source": "file:/sink/three was not planned",
    "a source of another size": "file:/sink/two was not planned",
    "a source came twice": "file:/sink/one was not planned, or came twice",
    "nothing was made": "or nothing of files",
    "a row is missing": "had 3 rows, and what was made of them has 2",
    "another row": "or other ones",
    "it is not there": "is not there",
    "it is cut": "was made with 25 bytes, and has 24",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_does_not_add_up_is_refused(spark: SparkSession, wrong: str) -> None:
    jvm: Any = spark._jvm
    said = jvm.io.pyspark.statestore.sink.Accounts.of(wrong)
    assert "PSS_SINK_COMPACTION_FAILED" in said
    assert WRONG[wrong] in said


def test_what_adds_up_is_not(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    assert jvm.io.pyspark.statestore.sink.Accounts.of("") == ""
