"""On a server that speaks S3: the same damages as on the disk, few requests, and repair."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from pyspark_statestore import Checkpoint
from pyspark_statestore.format import file_name
from tests.inspect.builders import CREATED_MS, add_index, merged_paths
from tests.inspect.test_s3 import BUCKET, Server, server, upload  # noqa: F401
from tests.maintenance.builders import KINDS, copy_as, entry_of, flip, make, verify
from tests.maintenance.test_repair import add_copy


def seen(checkpoint: str | Path, **how: object) -> list[tuple[str, str, int | None, str | None, bool]]:
    """All damages, without where the checkpoint is."""
    found = verify(checkpoint, **how)
    url = Checkpoint(checkpoint, how.get("storage_options")).url  # type: ignore[arg-type]
    return [
        (each.kind, each.path.removeprefix(url), each.offset, each.logical_path, each.is_repairable)
        for each in found.damages
    ]


def damaged(checkpoint: Path, how: str) -> Path:
    """A checkpoint with one damage."""
    make(checkpoint)
    path, entry = entry_of(checkpoint, "0/1/4.changelog")
    if how == "segment":
        flip(path, entry.offset)
    elif how == "index":
        flip(path, path.stat().st_size - 100)
    elif how == "header":
        flip(path, 13)
    elif how == "short":
        os.truncate(path, path.stat().st_size - 80)
    elif how == "empty":
        os.truncate(path, 0)
    elif how == "gone":
        path.unlink()
    else:
        copy_as(path, file_name(CREATED_MS + 99, 7, 4))
    return checkpoint


@pytest.mark.parametrize("how", ["segment", "index", "header", "short", "empty", "gone", "copy"])
def test_same_damages_as_on_the_disk(server: Server, tmp_path: Path, how: str) -> None:  # noqa: F811
    url = upload(server, damaged(tmp_path, how), f"damaged-{how}")
    found = seen(url, storage_options=server.options)
    assert found == seen(tmp_path) != []


@pytest.mark.parametrize("kind", KINDS)
def test_clean(server: Server, tmp_path: Path, kind: str) -> None:  # noqa: F811
    url = upload(server, make(tmp_path, kind), f"clean-{kind}")
    found = verify(url, storage_options=server.options)
    assert found.is_clean
    asked = Counter(name for method, name in server.requests if method == "GET" and name.endswith(".merged"))
    # The index; the bytes, neighbours with one request; the snapshots that versions need.
    assert max(asked.values(), default=0) <= 5
    assert not any(method in ("PUT", "POST", "DELETE") for method, _ in server.requests)


def test_repair(server: Server, tmp_path: Path) -> None:  # noqa: F811
    make(tmp_path)
    flip(add_index(tmp_path), 500)
    add_copy(tmp_path, 50, "0/1/SSTs/000004-1.sst")
    copy = merged_paths(tmp_path)[-2]
    flip(copy, 150)
    copy_as(merged_paths(tmp_path)[1], file_name(CREATED_MS + 99, 7, 7))
    url = upload(server, tmp_path, "repair")
    found = verify(url, storage_options=server.options, repair=True)
    assert sorted(each.kind for each in found.damages) == ["corrupt_index", "corrupt_segment", "duplicated_file"]
    assert found.is_clean
    again = verify(url, storage_options=server.options)
    assert (again.damages, again.notes) == ((), ())
