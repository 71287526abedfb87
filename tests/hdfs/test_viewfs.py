"""HDFS that is mounted into a viewfs, whose class does not say that it is HDFS; its streams do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.local_hdfs import LocalHdfs
from tests.hdfs.harness import Place, SharedCheckpoint

pytestmark = pytest.mark.spark


class Mounted(Place):
    """A test's own directory on HDFS, as a viewfs shows it."""

    def __init__(self, jvm: Any, local: Path, hdfs: str) -> None:
        self._hdfs = hdfs
        super().__init__(jvm, local, "viewfs://mounts", f"/mounted/{local.name}")

    def settings(self, options: Mapping[str, str]) -> dict[str, str]:
        """Hadoop settings of a process that works here, with options of merged state."""
        return {**super().settings(options), "fs.viewfs.mounttable.mounts.link./mounted": self._hdfs}


@pytest.fixture
def mounted(hdfs: LocalHdfs, jvm: Any, tmp_path: Path) -> Iterator[Mounted]:
    place = Mounted(jvm, tmp_path, f"{hdfs.url}/")
    yield place
    place.forget()


def test_groups_of_a_mounted_hdfs_are_flushed(mounted: Mounted, here: Callable[..., SharedCheckpoint]) -> None:
    checkpoint = here(mounted)
    files = {f"0/0/{version}.changelog": b"version %d" % version for version in range(1, 4)}
    for path, data in files.items():
        checkpoint.write(path, data)
    assert len(mounted.merged_files()) == 1
    assert {path: checkpoint.read(path) for path in files} == files
