"""Entries of a sink's list on an object store: they are made whole, and take no other's place."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_statestore import Sink
from pyspark_statestore.storage import Directory, Location
from pyspark_statestore.storage.changes import create_new
from tests.migration.builders import make
from tests.migration.test_unfinished_repartition import BATCH
from tests.reshape.builders import repartition_by_hand
from tests.reshape.test_holes import goes_on, with_hole
from tests.s3.local_s3 import BUCKET, LocalS3

pytest.importorskip("moto.server", reason="moto[server] is not installed", exc_type=ImportError)
pytest.importorskip("s3fs", reason="s3fs is not installed", exc_type=ImportError)


@pytest.mark.parametrize("interval", [10, BATCH + 1])
def test_mended(s3: LocalS3, tmp_path: Path, interval: int) -> None:
    goes_on(repartition_by_hand(make(tmp_path / "q1")))
    with_hole(tmp_path / "sink")
    there = f"{BUCKET}/{tmp_path.name}"
    s3.direct().put(f"{tmp_path}/", f"{there}/", recursive=True)
    before = s3.keys(f"{tmp_path.name}/sink")
    sink = Sink(f"s3a://{there}/sink", s3.options())

    done = sink.verify(repair=True, checkpoint=f"s3a://{there}/q1", compact_interval=interval)

    name = f"{BATCH}.compact" if interval == BATCH + 1 else f"{BATCH}"
    assert done.repaired == (f"s3a://{there}/sink/_spark_metadata/{name}",)
    assert sorted({*s3.keys(f"{tmp_path.name}/sink")} - {*before}) == [f"{tmp_path.name}/sink/_spark_metadata/{name}"]
    assert sink.log().num_rows == BATCH + 2
    assert sink.verify().is_clean


def test_a_new_file_takes_no_others_place(s3: LocalS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where the other one comes between the look and the writing."""
    directory = Directory(Location.of(f"s3a://{BUCKET}/{tmp_path.name}", s3.options()))
    names: list[list[str]] = [[], []]
    monkeypatch.setattr(Directory, "names", lambda self, relative="": names.pop())
    assert create_new(directory, "list/4", b"first")
    assert not create_new(directory, "list/4", b"second")
    assert s3.direct().cat_file(f"{BUCKET}/{tmp_path.name}/list/4") == b"first"
