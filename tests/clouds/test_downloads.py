"""Where clients and servers come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clouds.downloads import CACHE_VARIABLE, CONNECTOR, CloudUnavailable, azurite, from_wheel


def test_without_a_package_index_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    for name, value in {CACHE_VARIABLE: str(cache), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(CloudUnavailable, match=r"pyspark-gcs==2\.2\.6\.1 could not be downloaded: .*No matching dist"):
        from_wheel(CONNECTOR)
    assert list(cache.iterdir()) == []


def test_without_node_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CloudUnavailable, match=r"no Node\.js"):
        azurite()


def test_a_wheel_is_downloaded_once(connector: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert from_wheel(CONNECTOR) == connector
    assert connector.stat().st_size > 10_000_000
