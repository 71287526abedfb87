"""jvm-shim/build.py, on a shim of one class."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

MINOR = ".".join(pyspark.__version__.split(".")[:2])
ROOT = Path(__file__).resolve().parents[2]
CLASS = """\
package x;

import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;

public class P extends RocksDBStateStoreProvider {}
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for part, name, text in (("main", "P", CLASS), ("test", "T", "package x; public class T extends P {}")):
        path = tmp_path / "src" / part / "java" / "x" / f"{name}.java"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    services = tmp_path / "src" / "main" / "resources" / "META-INF" / "services"
    services.mkdir(parents=True)
    (services / "some.Service").write_text("x.P\n")
    return tmp_path / "src"


def build(source: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    where = ["--source", str(source), "--jars", str(source / "jars"), "--build", str(source / "build")]
    command = [sys.executable, str(ROOT / "jvm-shim" / "build.py"), *where, *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


@pytest.mark.sweep(1, files="packages in environments")
@pytest.mark.slow
def test_jars_are_complete_and_rebuilt_only_when_something_changed(source: Path) -> None:
    assert "up to date" not in build(source, "--tests").stdout
    (jar,) = (source / "jars").iterdir()
    before = jar.read_bytes()
    with zipfile.ZipFile(jar) as archive:
        assert archive.namelist() == ["META-INF/MANIFEST.MF", "x/P.class", "META-INF/services/some.Service"]
        assert "Implementation-Version: " in archive.read("META-INF/MANIFEST.MF").decode()
    with zipfile.ZipFile(source / "build" / f"pyspark-statestore-test-shim-spark-{MINOR}.jar") as archive:
        assert "x/T.class" in archive.namelist()

    # Without any JDK: nothing is to be done.
    again = build(source, "--tests", PATH="/nonexistent", JAVA_HOME="")
    assert again.stdout.count("up to date") == 2, again.stderr

    (source / "build" / f"shim-spark-{MINOR}.stamp").unlink()
    build(source)
    assert jar.read_bytes() == before

    (source / "main" / "java" / "x" / "P.java").write_text(CLASS + "// changed\n")
    assert "up to date" not in build(source).stdout


def test_without_a_jdk_it_says_how_to_get_one(source: Path) -> None:
    done = build(source, PATH="/nonexistent", JAVA_HOME="/nonexistent")

    assert done.returncode == 1
    assert "[PSS_JDK_MISSING]" in done.stderr
    assert "openjdk-17-jdk-headless" in done.stderr
    assert "/nonexistent/bin/javac (not there)" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_old_jdk_is_passed_over(source: Path, tmp_path: Path) -> None:
    javac = tmp_path / "bin" / "javac"
    javac.parent.mkdir()
    javac.write_text("#!/bin/sh\necho 'javac 1.8.0_402' >&2\n")
    javac.chmod(0o755)

    done = build(source, "--check", PATH="/nonexistent", JAVA_HOME=str(tmp_path))

    assert done.returncode == 1
    assert f"{javac} (Java 1)" in done.stderr


def test_what_javac_says_is_passed_on(source: Path) -> None:
    (source / "main" / "java" / "x" / "P.java").write_text("package x; public class P { int x = ; }")

    done = build(source)

    assert done.returncode == 1
    assert "P.java:1: error: illegal start of expression" in done.stderr
    assert not list(source.glob("jars/*"))
