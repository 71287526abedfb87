"""docs/versions.md names the versions that the code and setup.cfg do."""

from __future__ import annotations

import configparser
import runpy

from pyspark_statestore._version import __version__
from pyspark_statestore.session.doors import SUPPORTED_SPARK
from tests.conftest import ROOT


def test_what_is_supported() -> None:
    page = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    first = page.partition("\n## ")[0]
    rows = {row.split("|")[1].strip(): row for row in first.splitlines() if row.startswith("| ")}
    declared = configparser.ConfigParser()
    declared.read(ROOT / "setup.cfg", encoding="utf-8")

    assert f"| {', '.join(SUPPORTED_SPARK)}, from" in rows["Spark"]
    assert f"all tests on {SUPPORTED_SPARK[-1]};" in rows["Spark"]
    assert f"| {declared['options']['python_requires'].removeprefix('>=')} or newer" in rows["Python"]
    assert f"| {runpy.run_path(str(ROOT / 'jvm-shim' / 'build.py'))['RELEASE']} or newer" in rows["Java"]


def test_the_wheel_that_is_named_is_of_this_version() -> None:
    for page in ("README.md", "docs/turn-it-on.md", "docs/tutorial.md"):
        assert f"pyspark_statestore-{__version__}-py3-none-any.whl" in (ROOT / page).read_text(encoding="utf-8"), page
