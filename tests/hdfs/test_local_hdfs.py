"""The HDFS itself: where it comes from, that it counts as the NameNode does, and that nothing of it is left behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.local_hdfs import HdfsUnavailable, LocalHdfs
from benchmarks.local_hdfs.archive import CACHE_VARIABLE, server_jars
from tests.hdfs.harness import Hdfs
from tests.jvm.harness import until

ROOT = Path(__file__).resolve().parents[2]


def test_without_a_package_index_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    for name, value in {CACHE_VARIABLE: str(cache), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(HdfsUnavailable, match="pip could not download pyspark==2.4.8: .*No matching distribution"):
        server_jars()
    assert list(cache.iterdir()) == []


@pytest.mark.spark
@pytest.mark.slow
def test_counts_are_those_of_the_name_node(hdfs: LocalHdfs, on_hdfs: Hdfs) -> None:
    before = hdfs.calls()
    on_hdfs.fs.mkdirs(on_hdfs.path("somewhere"))
    on_hdfs.fs.exists(on_hdfs.path("elsewhere"))
    asked = {(call.kind, call.path): count for call, count in (hdfs.calls() - before).items() if call.path}
    assert asked == {
        ("Mkdirs", f"{on_hdfs.checkpoint}/somewhere"): 1,
        ("GetFileInfo", f"{on_hdfs.checkpoint}/elsewhere"): 1,
    }
    # A client that other tests have left may renew its leases meanwhile.
    until(lambda: sum(hdfs.calls().values()) == sum(hdfs.rpc_counts().values()), "the counts to agree")


@pytest.mark.slow
def test_servers_end_with_whoever_started_them(hdfs: LocalHdfs, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.local_hdfs"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
    assert owner.stdout is not None
    port = int(owner.stdout.readline().rsplit(":", 1)[1])
    socket.create_connection(("127.0.0.1", port)).close()
    owner.kill()
    owner.wait()
    owner.stdout.close()

    def closed() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) != 0

    until(closed, "the servers to end", seconds=60)
