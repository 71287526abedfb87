"""Where S3A comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.s3.jars import CACHE_VARIABLE, S3AUnavailable, s3a_jars


def test_without_a_package_index_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    for name, value in {CACHE_VARIABLE: str(cache), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(S3AUnavailable, match="pip could not download sagemaker_pyspark==1.4.5: .*No matching dist"):
        s3a_jars()
    assert list(cache.iterdir()) == []


def test_jars_are_downloaded_once(jars: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert s3a_jars() == jars
    assert all(jar.stat().st_size > 100_000 for jar in jars)
