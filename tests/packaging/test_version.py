"""The version has one home, and all that names it says the same."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from pathlib import Path

from pyspark_statestore import __version__
from tests.conftest import ROOT
from tests.packaging.test_spark_releases import SOURCES, module


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_home() -> None:
    declared = configparser.ConfigParser()
    declared.read(ROOT / "setup.cfg", encoding="utf-8")
    assert declared["metadata"]["version"] == "attr: pyspark_statestore._version.__version__"
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
    for name in ("setup.py", "pyproject.toml", "Makefile", "jvm-shim/build.py", "jvm-shim/check_wheel.py"):
        assert __version__ not in text(name), name


def test_jars_have_it_in_their_names(tmp_path: Path) -> None:
    build = module("build")
    assert build.project_version() == __version__
    jar = build.shim(SOURCES, tmp_path, tmp_path, "4.3").jar
    assert jar.name == f"pyspark-statestore-shim-spark-4.3-{__version__}.jar"


def test_the_changelog_begins_with_it() -> None:
    assert re.findall(r"^## \[(.+?)\]", text("CHANGELOG.md"), re.MULTILINE)[0] == __version__


def test_pages_say_which_one_this_is() -> None:
    (minor, _, _) = __version__.rpartition(".")
    for name in ("README.md", "docs/index.md"):
        assert re.findall(r"^Version (\d+\.\d+)", text(name), re.MULTILINE) == [minor], name


def test_the_command_line_tells() -> None:
    command = [sys.executable, "-m", "pyspark_statestore.cli", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == f"pyspark-statestore, version {__version__}\n"
