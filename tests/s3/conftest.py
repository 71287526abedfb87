"""A real S3A and a server for the tests in this directory. Without them they are skipped, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeSpark
from tests.s3.harness import CONF, PROVIDER, Query, S3Place
from tests.s3.jars import S3AUnavailable, s3a_jars
from tests.s3.local_s3 import BUCKET, LocalS3, add_to_class_path
from tests.streaming.runs import STOCK_CLASSES


@pytest.fixture(scope="package")
def s3() -> Iterator[LocalS3]:
    """One server behind one proxy; they stop with the tests."""
    pytest.importorskip("moto.server", reason="moto[server] is not installed", exc_type=ImportError)
    pytest.importorskip("s3fs", reason="s3fs is not installed", exc_type=ImportError)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        with LocalS3() as servers:
            yield servers


@pytest.fixture(scope="package")
def jars() -> list[Path]:
    """S3A and Amazon's SDK."""
    try:
        return s3a_jars()
    except S3AUnavailable as error:
        pytest.skip(f"no S3A to test with: {error}")


@pytest.fixture(scope="session")
def jvm(_sessions: Any) -> Any:
    """py4j's view of the JVM that all sessions of this process share."""
    from pyspark import SparkContext

    return SparkContext._jvm


MakeQuery = Callable[..., Query]


@pytest.fixture
def make_query(make_spark: MakeSpark, s3: LocalS3, jars: list[Path], jvm: Any, tmp_path: Path) -> Iterator[MakeQuery]:
    """Makes a query of this test: ``make_query(mode="path", store="heap")``; ``mode="stock"`` needs no shim."""
    made: list[Query] = []
    add_to_class_path(jvm, jars)

    def make(mode: str = "provider", store: str = "rocksdb", bucket: str = BUCKET, **conf: str) -> Query:
        settings = {**s3.spark_settings(), **CONF, **conf}
        if mode == "stock":
            spark = make_spark({**settings, PROVIDER: STOCK_CLASSES[store]})
        else:
            spark = make_spark(settings, mode=mode, store=store)
        number = len(made)
        query = Query(spark, s3, mode, tmp_path / f"input{number}", f"{tmp_path.name}/q{number}", bucket)
        made.append(query)
        return query

    yield make
    for query in made:
        query.forget()


@pytest.fixture
def place(s3: LocalS3, jars: list[Path], jvm: Any, tmp_path: Path) -> Iterator[S3Place]:
    """A test's own directory on S3, for checkpoints without a query."""
    add_to_class_path(jvm, jars)
    made = S3Place(jvm, tmp_path, s3)
    yield made
    made.forget()
