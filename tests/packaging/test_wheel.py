"""A wheel built from the checkout has everything in it, and its import needs nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pyspark
import pytest

from pyspark_statestore import __version__

MINOR = ".".join(pyspark.__version__.split(".")[:2])
ROOT = Path(__file__).resolve().parents[2]
IN_A_CHECKOUT = (
    *("setup.cfg", "setup.py", "pyproject.toml", "MANIFEST.in", "LICENSE", "README.md"),
    *("jvm-shim", "pyspark_statestore", "datasource", "Makefile"),
)

READ = """
import json, sys
import pyspark_checkpoint_files
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
summary = spark.read.format("checkpoint_files").option("table", "summary").load(sys.argv[1])
prefix = sys.prefix if pyspark_checkpoint_files.__file__.startswith(sys.prefix) else ""
print(json.dumps([prefix, summary.count()]))
spark.stop()
"""


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


def modules_of(checkout: Path) -> set[str]:
    """All files of Python code, as a wheel names them."""
    packages = ((checkout, "pyspark_statestore"), (checkout / "datasource", "pyspark_checkpoint_files"))
    return {str(file.relative_to(root)) for root, name in packages for file in (root / name).rglob("*.py")}


def environment_without(variables: tuple[str, ...] = ("PYTHONPATH", "PYSPARK_SUBMIT_ARGS")) -> dict[str, str]:
    """This process's environment, without what leads to the checkout."""
    return {key: value for key, value in os.environ.items() if key not in variables}


@pytest.mark.slow
def test_a_wheel_holds_the_jar_and_installs_into_an_empty_environment(checkout: Path, tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(checkout)]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    jar = f"pyspark_statestore/jars/pyspark-statestore-shim-spark-{MINOR}-{__version__}.jar"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert jar in names
        assert "pyspark_statestore/py.typed" in names
        assert modules_of(checkout) - set(names) == set()
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
    command = [str(python), "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment_without())
    version, found, merged = done.stdout.split()
    assert (version, merged) == (__version__, "merged+hdfs://nn/q")
    assert Path(found).is_relative_to(environment)
    assert Path(found).name == Path(jar).name

    # Its dependencies are borrowed from this environment; a directory named in a .pth has its own .pth files not read.
    (site_packages,) = (environment / "lib").glob("python*/site-packages")
    (site_packages / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    (tmp_path / "checkpoint" / "state").mkdir(parents=True)
    done = subprocess.run(
        [python, "-c", READ, str(tmp_path / "checkpoint")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**environment_without(), "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [str(environment), 1]


def test_make_registers_the_data_source_in_its_environment(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    make = ["make", "--silent", "-C", str(ROOT), f"VENV={environment}", "register"]
    subprocess.run(make, check=True, env=environment_without(("MAKEFLAGS", "MAKELEVEL")))
    code = "import pkgutil; print(sorted(i.name for i in pkgutil.iter_modules() if i.name.startswith('pyspark_')))"
    command = [str(environment / "bin" / "python"), "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment_without())

    assert done.stdout.strip() == "['pyspark_checkpoint_files', 'pyspark_statestore']"


def test_the_source_distribution_holds_the_shims_sources_and_no_jar(checkout: Path, tmp_path: Path) -> None:
    command = [sys.executable, "setup.py", "-q", "sdist", "--dist-dir", str(tmp_path)]
    subprocess.run(command, check=True, cwd=checkout, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    listed = subprocess.run(["tar", "tzf", str(archive)], capture_output=True, text=True, check=True).stdout
    assert "/jvm-shim/build.py\n" in listed
    assert "/ShimInfo.java\n" in listed
    assert ".jar\n" not in listed
    assert ".class\n" not in listed
