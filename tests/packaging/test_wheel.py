"""A wheel built from the checkout has everything in it, and what it asks for is all that a query needs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from email import message_from_string
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pyspark
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pyspark_statestore import __version__

MINOR = ".".join(pyspark.__version__.split(".")[:2])
JAR = f"pyspark_statestore/jars/pyspark-statestore-shim-spark-{MINOR}-{__version__}.jar"
ROOT = Path(__file__).resolve().parents[2]
LEFT = (
    f"pyspark_statestore/jars/pyspark-statestore-shim-spark-9.9-{__version__}.jar",
    "pyspark_statestore/log/gone.py",
    "pyspark_checkpoint_files/gone.py",
)
"""What an earlier build has left in build/lib: pip installs from a checkout in place."""

IN_A_CHECKOUT = (
    *("setup.cfg", "setup.py", "pyproject.toml", "MANIFEST.in", "LICENSE", "README.md"),
    *("jvm-shim", "pyspark_statestore", "datasource", "Makefile"),
)

QUERY = """
import json, sys
import pyspark_checkpoint_files
from pyspark.sql import SparkSession
from pyspark_statestore import Checkpoint, configure, jar_path

folder = sys.argv[1]
spark = configure(SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")).getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", "1")
numbers = f"{folder}/numbers"
spark.range(100).write.parquet(numbers)
counts = spark.readStream.schema("id long").parquet(numbers).selectExpr("id % 7 AS k").groupBy("k").count()
query = counts.writeStream.outputMode("update").format("noop").option("checkpointLocation", f"{folder}/checkpoint")
query.trigger(availableNow=True).start().awaitTermination()
if spark.version.startswith("3.5"):
    files = [row["file_path"] for row in Checkpoint(f"{folder}/checkpoint").inspect.files().to_pylist()]
else:
    read = spark.read.format("checkpoint_files").load(f"{folder}/checkpoint")
    files = [row.file_path for row in read.collect()]
result = {
    "merged": [file.rpartition("/")[2] for file in files],
    "states": Checkpoint(f"{folder}/checkpoint").state().num_rows,
    "from": [pyspark_checkpoint_files.__file__, jar_path()],
}
print(json.dumps(result))
spark.stop()
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy with what an earlier build has left, so that the test does not rest on what is in the working tree."""
    copy = tmp_path_factory.mktemp("checkout") / "copy"
    copy.mkdir()
    for name in IN_A_CHECKOUT:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__", "jars"))
        elif source.exists():
            shutil.copy(source, copy / name)
    for name in LEFT:
        (copy / "build/lib" / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / "build/lib" / name).touch()
    return copy


def modules_of(checkout: Path) -> set[str]:
    """All files of Python code, as a wheel names them."""
    packages = ((checkout, "pyspark_statestore"), (checkout / "datasource", "pyspark_checkpoint_files"))
    return {str(file.relative_to(root)) for root, name in packages for file in (root / name).rglob("*.py")}


def environment_without(
    variables: tuple[str, ...] = ("PYTHONPATH", "PYSPARK_SUBMIT_ARGS", "PYSPARK_PYTHON"),
) -> dict[str, str]:
    """This process's environment, without what leads to the checkout."""
    return {key: value for key, value in os.environ.items() if key not in variables}


PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


def build_wheel(checkout: Path, folder: Path) -> Path:
    """The wheel of a checkout, built as `make wheel` does."""
    build = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(checkout)]
    subprocess.run([*PIP, *build], check=True, env={**os.environ, "SOURCE_DATE_EPOCH": "1767225600"})
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, with the jar for this PySpark."""
    return build_wheel(checkout, tmp_path_factory.mktemp("wheel"))


def needed_by(wheel: Path) -> dict[str, Distribution]:
    """The distributions that pip installs with a wheel: those that its metadata asks for, and what these ask for."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        asked = message_from_string(archive.read(metadata).decode()).get_all("Requires-Dist", [])
    found: dict[str, Distribution] = {}
    left = [Requirement(each) for each in asked]
    while left:
        requirement = left.pop()
        marker = requirement.marker
        if canonicalize_name(requirement.name) in found or (marker and not marker.evaluate({"extra": ""})):
            continue
        found[canonicalize_name(requirement.name)] = one = distribution(requirement.name)
        left += [Requirement(each) for each in one.requires or []]
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, the distributions that it asks for, and nothing else.

    Pip installs the wheel. The others are those of this environment, by links: to fetch them takes a network, and half
    a gigabyte.
    """
    home = tmp_path_factory.mktemp("clean") / "environment"
    venv.create(home, with_pip=False)
    subprocess.run(
        [*PIP, "--python", str(home / "bin" / "python"), "install", "--quiet", "--no-deps", str(wheel)], check=True
    )
    link_needed(wheel, home)
    return home


def link_needed(wheel: Path, home: Path) -> None:
    """Links the distributions that a wheel asks for into an environment."""
    (site_packages,) = (home / "lib").glob("python*/site-packages")
    for needed in needed_by(wheel).values():
        for name in {file.parts[0] for file in needed.files or [] if file.parts[0] not in ("..", "__pycache__")}:
            (site_packages / name).symlink_to(str(needed.locate_file(name)))


def test_a_wheel_has_everything_in_it(wheel: Path, checkout: Path) -> None:
    assert wheel.name == f"pyspark_statestore-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert JAR in names
        assert "pyspark_statestore/py.typed" in names
        assert modules_of(checkout) - set(names) == set()
        assert not set(LEFT).intersection(names)
        others = ("tests", "examples", "benchmarks", "jvm-shim", "release", "website")
        assert not [name for name in names if name.startswith(others)]
        with zipfile.ZipFile(archive.open(JAR)) as classes:
            assert f"Implementation-Version: {__version__}" in classes.read("META-INF/MANIFEST.MF").decode()
            assert "io/pyspark/statestore/ShimInfo.class" in classes.namelist()
        (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
        assert "pyspark-statestore = pyspark_statestore.cli.main:main" in archive.read(entry_points).decode()


def test_the_same_sources_make_the_same_wheel(wheel: Path, checkout: Path, tmp_path: Path) -> None:
    """Elsewhere, and at another time. The jar, which tests/packaging/test_build.py looks at, is not compiled again."""
    copy = tmp_path / "elsewhere"
    shutil.copytree(checkout, copy, ignore=shutil.ignore_patterns("lib", "bdist.*", "*.egg-info"))
    for path in copy.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    (tmp_path / "out").mkdir()
    assert build_wheel(copy, tmp_path / "out").read_bytes() == wheel.read_bytes()


def test_its_import_needs_nothing_else(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
        "import pyspark_statestore as p; print(p.__version__, p.jar_path(), p.merged_path('hdfs://nn/q'))"
    )
    # Neither site-packages nor the directory of the tests.
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    version, found, merged = done.stdout.split()
    assert (version, found, merged) == (__version__, str(tmp_path / JAR), "merged+hdfs://nn/q")


@pytest.mark.sweep(1, files="packages in environments")
@pytest.mark.slow
def test_in_a_clean_environment_a_query_has_merged_state(environment: Path, tmp_path: Path) -> None:
    def run(*command: object) -> str:
        variables = {**environment_without(), "PATH": f"{environment / 'bin'}:{os.environ['PATH']}"}
        done = subprocess.run(
            [str(word) for word in command],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**variables, "SPARK_LOCAL_IP": "127.0.0.1"},
        )
        assert done.returncode == 0, done.stdout + done.stderr[:3000] + " ... " + done.stderr[-3000:]
        return done.stdout

    assert run(*PIP, "--python", environment / "bin" / "python", "check").strip() == "No broken requirements found."
    assert run("pyspark-statestore", "--version").strip() == f"pyspark-statestore, version {__version__}"

    result = json.loads(run("python", "-c", QUERY, tmp_path).splitlines()[-1])
    assert result["states"] == 7
    assert len(result["merged"]) == 1
    assert [path for path in result["from"] if not Path(path).is_relative_to(environment)] == []

    assert result["merged"][0] in run("pyspark-statestore", "files", tmp_path / "checkpoint")
    run("pyspark-statestore", "report", tmp_path / "checkpoint", "-o", tmp_path / "report.html")
    assert "<svg" in (tmp_path / "report.html").read_text(encoding="utf-8")


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
