"""Faults of HTTP between Python and the server: s3fs tries again, and what Python does is done once."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_statestore import Checkpoint
from tests.s3.local_s3 import BUCKET, LocalS3
from tests.s3.proxy import Fault, Rule

pytest.importorskip("moto.server", reason="moto[server] is not installed", exc_type=ImportError)
pytest.importorskip("s3fs", reason="s3fs is not installed", exc_type=ImportError)

from tests.maintenance.harness import live_files
from tests.maintenance.test_compaction_s3 import folder

__all__ = ["folder"]


@pytest.mark.parametrize(("kind", "suffix"), [("PUT", ".relocating"), ("PUT", ".merged"), ("GET", ".merged")])
@pytest.mark.parametrize("fault", [Fault.SLOW_DOWN, Fault.LOSE_ANSWER, Fault.CUT_BODY], ids=lambda fault: fault.name)
def test_compaction(s3: LocalS3, folder: Path, tmp_path: Path, fault: Fault, kind: str, suffix: str) -> None:
    there = f"{BUCKET}/{tmp_path.name}"
    s3.direct().put(f"{folder}/", f"{there}/", recursive=True)
    checkpoint = Checkpoint(f"s3a://{there}", s3.options())

    with s3.proxy.fault(fault, Rule({kind}, key=suffix)) as injected:
        done = checkpoint.maintenance.compact()

    assert len(injected.hits) == 1
    assert (done.rewritten_files_count, done.added_files_count, done.removed_files_count) == (15, 1, 30)
    assert s3.uploads() == []
    assert [key for key in s3.keys(tmp_path.name) if key.endswith(".relocating")] == []
    after = tmp_path / "after"
    s3.direct().get(f"{there}/", f"{after}/", recursive=True)
    assert live_files(after) == live_files(folder)
    assert checkpoint.inspect.summary().to_pylist()[0]["file_count"] == 1
