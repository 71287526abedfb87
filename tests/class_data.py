"""JVMs that start faster: what most of them load is loaded once, and mapped by all (class data sharing, JEP 350).

    python -m tests.class_data

writes an archive for the class path of Spark's jars, and one for that with the test jar before it, which executors of
tests have. The tests start some hundreds of JVMs; each spends nearly half of its time with loading classes otherwise.
An archive fits one JDK and one class path as it was; where it does not fit, a JVM ignores it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pyspark

ROOT = Path(__file__).resolve().parents[1]
ARCHIVES = ROOT / "build" / "class-data"
MINOR = ".".join(pyspark.__version__.split(".")[:2])
"""The minor version of Spark that the tests run on."""

TEST_JAR = ROOT / "build" / f"pyspark-statestore-test-shim-spark-{MINOR}.jar"
OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -Xmn200m -Xlog:gc+ergo=off"
"""Each test has plans and generated classes of its own: compiling them well costs a quarter more than it brings. The
code cache that goes with C1 alone (48 MiB) is too small: code is dropped and compiled again all the time, which costs
12 % of a test's CPU. Little lives for long, so a larger young generation saves another 5 %. A JVM whose whole heap is
smaller, such as Spark's launcher, would say so on its standard output."""

SETTINGS = "-Dspark.sql.codegen.wholeStage=false"
"""Of each session that says nothing else. Code that is generated for a stage saves nothing where there are a few
hundred rows, and takes a sixth of a query's time. Operators with state are no part of it. Sessions in
tests/streaming/test_fresh_sessions.py have it, as users do. Spark refuses this as an option of executors."""

VARIABLE = "JDK_JAVA_OPTIONS"
"""Every ``java`` takes options from there, Spark's executors and those of examples included."""

_SESSION = Path(__file__).with_name("class_data_session.py")


def archive(*before: Path) -> Path:
    """Where the archive is, which may not be there.

    Args:
        before: Jars before Spark's on the class path.
    """
    parts = [_jdk(), pyspark.__file__.encode(), pyspark.__version__.encode(), _SESSION.read_bytes()]
    parts += [f"{jar} {jar.stat().st_mtime_ns}".encode() for jar in before if jar.exists()]
    return ARCHIVES / f"{hashlib.sha256(b'|'.join(parts)).hexdigest()[:16]}.jsa"


def use(*before: Path) -> str:
    """Options of a JVM with a certain class path, as :func:`archive` has it."""
    path = archive(*before)
    return f"{OPTIONS} -XX:SharedArchiveFile={path} -Xlog:cds=off -Xlog:cds+dynamic=off" if path.exists() else OPTIONS


def write(target: Path, *before: Path) -> None:
    """Writes an archive."""
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        written = Path(work) / "new.jsa"
        environment = {**os.environ, VARIABLE: f"{OPTIONS} -XX:ArchiveClassesAtExit={written}"}
        command = [sys.executable, str(_SESSION), work, os.pathsep.join(map(str, before))]
        done = subprocess.run(command, env=environment, cwd=work, capture_output=True, text=True, check=False)
        if done.returncode or not written.exists():
            print(f"JVMs start slowly: no archive of classes was written.\n{done.stderr[-2000:]}", file=sys.stderr)
            return
        written.rename(target)


@cache
def _jdk() -> bytes:
    """Which JDK it is; nothing where there is none, which those find out who need one."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
    try:
        return subprocess.run([java, "-version"], capture_output=True, check=True, env=environment).stderr
    except (OSError, subprocess.CalledProcessError):
        return b""


def main() -> None:
    """Writes those that are missing, and deletes those that do not fit any more."""
    ARCHIVES.mkdir(parents=True, exist_ok=True)
    wanted = {archive(*before): before for before in ((), (TEST_JAR,))}
    for old in set(ARCHIVES.glob("*.jsa")) - wanted.keys():
        old.unlink()
    missing = [(target, *before) for target, before in wanted.items() if not target.exists()]
    with ThreadPoolExecutor(len(wanted)) as threads:
        list(threads.map(lambda arguments: write(*arguments), missing))


if __name__ == "__main__":
    main()
