"""A wheel built from the checkout has everything in it, and its import needs nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from pyspark_statestore import __version__

ROOT = Path(__file__).resolve().parents[2]
IN_A_CHECKOUT = (
    *("setup.cfg", "setup.py", "pyproject.toml", "MANIFEST.in", "LICENSE", "README.md"),
    *("jvm-shim", "pyspark_statestore", "Makefile"),
)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh copy without anything built, so that neither the test nor the working tree is misled by leftovers."""
    copy = tmp_path_factory.mktemp("checkout") / "copy"
    copy.mkdir()
    for name in IN_A_CHECKOUT:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__", "jars"))
        elif source.exists():
            shutil.copy(source, copy / name)
    return copy


@pytest.mark.slow
def test_a_wheel_holds_the_jar_and_installs_into_an_empty_environment(checkout: Path, tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(checkout)]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    jar = f"pyspark_statestore/jars/pyspark-statestore-shim-{__version__}.jar"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert jar in names
        assert "pyspark_statestore/py.typed" in names
        assert "pyspark_statestore/format/reader.py" in names
        assert not [name for name in names if name.startswith(("tests", "examples", "benchmarks", "jvm-shim"))]
        with zipfile.ZipFile(archive.open(jar)) as classes:
            assert f"Implementation-Version: {__version__}" in classes.read("META-INF/MANIFEST.MF").decode()
            assert "io/pyspark/statestore/ShimInfo.class" in classes.namelist()
        (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
        assert "pyspark-statestore = pyspark_statestore.cli.main:main" in archive.read(entry_points).decode()

    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    subprocess.run([*pip, "--python", str(python), "install", "--quiet", "--no-deps", str(wheel)], check=True)
    code = "import pyspark_statestore as p; print(p.__version__, p.jar_path(), p.merged_path('hdfs://nn/q'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    version, found, merged = done.stdout.split()
    assert (version, merged) == (__version__, "merged+hdfs://nn/q")
    assert Path(found).is_relative_to(environment)
    assert Path(found).name == Path(jar).name


def test_the_source_distribution_holds_the_shims_sources_and_no_jar(checkout: Path, tmp_path: Path) -> None:
    command = [sys.executable, "setup.py", "-q", "sdist", "--dist-dir", str(tmp_path)]
    subprocess.run(command, check=True, cwd=checkout, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    listed = subprocess.run(["tar", "tzf", str(archive)], capture_output=True, text=True, check=True).stdout
    assert "/jvm-shim/build.py\n" in listed
    assert "/ShimInfo.java\n" in listed
    assert ".jar\n" not in listed
    assert ".class\n" not in listed
