"""Each minor version of Spark is known in all places that have to know it, and gets the sources that are for it."""

from __future__ import annotations

import configparser
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from pyspark_statestore.session.doors import SUPPORTED_SPARK

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "jvm-shim" / "src"


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "jvm-shim" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, loaded)
    spec.loader.exec_module(loaded)
    return loaded


releases = module("spark_releases")


def test_all_know_the_same_versions() -> None:
    assert tuple(releases.RELEASES) == SUPPORTED_SPARK
    assert all(releases.minor_of(release) == minor for minor, release in releases.RELEASES.items())
    (major, minor) = SUPPORTED_SPARK[-1].split(".")
    bounds = f">={SUPPORTED_SPARK[0]},<{major}.{int(minor) + 1}"
    declared = configparser.ConfigParser()
    declared.read(ROOT / "setup.cfg", encoding="utf-8")
    assert f"pyspark{bounds}" in declared["options"]["install_requires"].split()
    assert f'"pyspark{bounds}"' in (ROOT / "pyproject.toml").read_text()
    assert f"SPARK_RELEASES ?= {bounds}\n" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize(
    ("minor", "expected"),
    [
        ("3.5", {"spark-3.5", "spark-3.5-to-4.0", "spark-3.5-on"}),
        ("4.0", {"spark-4.0", "spark-3.5-to-4.0", "spark-3.5-on", "spark-4.0-on", "spark-4.0-to-4.1"}),
        ("4.2", {"spark-4.2", "spark-3.5-on", "spark-4.0-on", "spark-4.1-on", "spark-4.2-on"}),
        ("4.4", {"spark-4.3", "spark-3.5-on", "spark-4.0-on", "spark-4.1-on", "spark-4.2-on"}),
    ],
)
def test_folders_say_for_which_versions_they_are(minor: str, expected: set[str]) -> None:
    assert {folder.name for folder in releases.folders(SOURCES, minor)} == expected


def test_a_class_is_in_one_of_the_folders_of_a_version() -> None:
    for minor in releases.RELEASES:
        roots = [SOURCES / "main", *releases.folders(SOURCES, minor)]
        names = [path.relative_to(root).as_posix() for root in roots for path in root.glob("java/**/*.java")]
        assert sorted(set(names)) == sorted(names), minor


def test_each_version_has_the_same_classes_for_users() -> None:
    named = ("fs/MergedCheckpointFileManager", "spark/MergedRocksDBStateStoreProvider")
    for minor in releases.RELEASES:
        for name in (*named, "spark/MergedHDFSBackedStateStoreProvider"):
            found = [root for root in releases.folders(SOURCES, minor) if list(root.glob(f"java/**/{name}.java"))]
            assert len(found) == 1, (minor, name)


def test_minor_versions_are_ordered_as_numbers(tmp_path: Path) -> None:
    for name in ("main", "spark-4.2-on", "spark-4.0-to-4.1", "spark-3.5", "spark-4.1", "notes"):
        (tmp_path / name).mkdir()
    assert [folder.name for folder in releases.folders(tmp_path, "4.1")] == ["spark-4.0-to-4.1", "spark-4.1"]
    assert [folder.name for folder in releases.folders(tmp_path, "4.10")] == ["spark-4.2-on"]


def test_a_class_that_depends_on_the_version_may_not_be_common(tmp_path: Path) -> None:
    """Such as one that has a constant of a folder's in it."""
    import zipfile

    build = module("build")
    common = tmp_path / "main" / "java" / "x"
    common.mkdir(parents=True)
    (common / "P.java").write_text("package x; class P {}")
    targets = []
    for minor, content in (("3.5", b"same"), ("4.0", b"other")):
        target = build.shim(tmp_path, tmp_path / "jars", tmp_path / "build", minor)
        target.jar.parent.mkdir(exist_ok=True)
        with zipfile.ZipFile(target.jar, "w") as jar:
            jar.writestr("x/P.class", b"same")
            jar.writestr("x/P$Inner.class", content)
            jar.writestr("x/Q.class", content)  # of a folder
        targets.append(target)
    assert build.differing_classes(targets) == {"x/P$Inner.class": ["4.0"]}
    assert build.differing_classes(targets[:1]) == {}


def test_a_release_that_cannot_be_had_says_so(tmp_path: Path) -> None:
    script = "import sys; sys.path.insert(0, 'jvm-shim'); import spark_releases as r; print(r.environment('4.0.99'))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        env={"PATH": "/usr/bin:/bin", "PYSPARK_STATESTORE_SPARK_CACHE": str(tmp_path), "PIP_NO_INDEX": "1"},
    )
    assert done.returncode != 0
    assert re.search(r"ReleaseError: pip install .* failed: \S", done.stderr), done.stderr[-500:]


def test_a_wheel_without_all_jars_cannot_be_released(tmp_path: Path) -> None:
    import zipfile

    module("build")
    check = module("check_wheel")
    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("pyspark_statestore/jars/pyspark-statestore-shim-spark-2.4-0.1.jar", b"")
    problems = check.missing(wheel, tmp_path / "jars", SOURCES, tmp_path / "build")
    assert len([each for each in problems if each.startswith("it has no ")]) == len(releases.RELEASES)
    assert [each for each in problems if "2.4" in each] == [
        "it has pyspark_statestore/jars/pyspark-statestore-shim-spark-2.4-0.1.jar"
    ]
