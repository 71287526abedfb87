"""Compiles the JVM shim with javac against the jars of the installed pyspark.

There is no Maven or Gradle: the shim needs no other library than those that Spark ships. Both jars are
deterministic (same inputs, same bytes) and are built only when an input changed.

    python jvm-shim/build.py            # pyspark_statestore/jars/pyspark-statestore-shim-<version>.jar
    python jvm-shim/build.py --tests    # also build/pyspark-statestore-test-shim.jar
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RELEASE = 17

# Four warnings are off. Spark's jars cause two: annotations whose classes are missing (classfile), and manifests that
# name jars which pyspark does not ship (path). Two do not matter: annotation processing is off (processing), and no
# class of the shim is ever serialized (serial).
LINT = "-Xlint:all,-classfile,-path,-processing,-serial"

NO_JDK = f"""\
[PSS_JDK_MISSING] No javac of Java {RELEASE} or newer was found, and pyspark-statestore's JVM part has to be compiled.
Looked at: {{looked}}.
Install a JDK and try again:
  Debian, Ubuntu   apt-get install openjdk-{RELEASE}-jdk-headless
  macOS            brew install openjdk@{RELEASE}
                   export JAVA_HOME="$(brew --prefix openjdk@{RELEASE})"
  Linux, no root   python3 -m pip install install-jdk
                   export JAVA_HOME="$(python3 -c 'import jdk; print(jdk.install("{RELEASE}"))')"
A JDK that is elsewhere is found through JAVA_HOME. A JRE is not enough: it has no javac."""


class BuildError(Exception):
    """An error that whoever builds can fix; the message says how."""


def find_javac(release: int = RELEASE) -> Path:
    """Finds a javac that is new enough: JAVA_HOME's first, then the one on PATH.

    Args:
        release: The oldest Java version that will do.

    Returns:
        The path of the compiler.

    Raises:
        BuildError: If there is none; the message says how to get one.
    """
    candidates: list[str] = []
    if java_home := os.environ.get("JAVA_HOME"):
        candidates.append(str(Path(java_home) / "bin" / "javac"))
    if on_path := shutil.which("javac"):
        candidates.append(on_path)
    looked = [] if java_home else ["JAVA_HOME (not set)"]
    for candidate in candidates:
        version = _javac_version(candidate)
        if version is not None and version >= release:
            return Path(candidate)
        looked.append(f"{candidate} ({'not there' if version is None else f'Java {version}'})")
    if not on_path:
        looked.append("PATH (no javac)")
    raise BuildError(NO_JDK.format(looked=", ".join(looked)))


def _javac_version(javac: str) -> int | None:
    try:
        done = subprocess.run([javac, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    # "javac 17.0.15"; Java 8 says "javac 1.8.0_402" (and on stderr).
    found = re.search(r"javac (\d+)", done.stdout + done.stderr)
    return int(found[1]) if found else None


def pyspark_jars() -> Path:
    """Returns the directory of the installed pyspark's jars, without importing pyspark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise BuildError(
            "pyspark is not installed in this Python, and the shim is compiled against its jars. "
            'Run: pip install "pyspark>=4.3,<4.4"'
        )
    jars = Path(next(iter(spec.submodule_search_locations))) / "jars"
    if not any(jars.glob("spark-sql_*.jar")):
        raise BuildError(
            f"No Spark jars in {jars}. Is this the pyspark-client package? The shim needs the full pyspark."
        )
    return jars


def project_version() -> str:
    """Reads the package's version without importing the package."""
    text = (ROOT / "pyspark_statestore" / "_version.py").read_text(encoding="utf-8")
    found = re.search(r'__version__ = "([^"]+)"', text)
    if not found:
        raise BuildError("pyspark_statestore/_version.py holds no __version__")
    return found[1]


def build_jar(source: Path, jar: Path, *, version: str, stamp: Path, class_path: Iterable[Path] = ()) -> bool:
    """Compiles ``<source>/java`` and packs it with ``<source>/resources``.

    Args:
        source: A directory such as jvm-shim/src/main.
        jar: The jar to write. It is replaced in one step, so a reader never sees half of it.
        version: The manifest's Implementation-Version.
        stamp: The file that notes what the jar was built from.
        class_path: The jars to compile against, besides pyspark's.

    Returns:
        Whether anything had to be built.
    """
    class_path = list(class_path)
    inputs = _input_hash(source, version, class_path)
    if jar.is_file() and stamp.is_file() and stamp.read_text(encoding="utf-8") == f"{inputs} {_sha256(jar)}":
        return False
    sources = sorted(source.glob("java/**/*.java"))
    if not sources:
        raise BuildError(f"There are no Java sources under {source / 'java'}")
    javac = find_javac()
    with tempfile.TemporaryDirectory(prefix="pyspark-statestore-") as temporary:
        classes = Path(temporary) / "classes"
        classes.mkdir()
        _compile(javac, sources, classes, [*class_path, *sorted(pyspark_jars().glob("*.jar"))])
        jar.parent.mkdir(parents=True, exist_ok=True)
        unfinished = jar.with_name(f".{jar.name}.{os.getpid()}")
        try:
            _pack(unfinished, version, [classes, source / "resources"])
            os.replace(unfinished, jar)
        finally:
            unfinished.unlink(missing_ok=True)
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(f"{inputs} {_sha256(jar)}", encoding="utf-8")
    return True


def _input_hash(source: Path, version: str, class_path: Iterable[Path]) -> str:
    digest = hashlib.sha256(f"{version} {RELEASE} {LINT} {importlib.metadata.version('pyspark')}".encode())
    digest.update(Path(__file__).read_bytes())
    for path in sorted(p for p in source.rglob("*") if p.is_file()):
        digest.update(f"{path.relative_to(source)} {_sha256(path)}".encode())
    for path in class_path:
        digest.update(_sha256(path).encode())
    return digest.hexdigest()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _compile(javac: Path, sources: Sequence[Path], classes: Path, class_path: Sequence[Path]) -> None:
    # The arguments go to a file, since a command line may be too short. javac wants backslashes doubled in quotes.
    arguments = [
        *("--release", str(RELEASE), "-encoding", "UTF-8", "-g", "-proc:none", LINT, "-Werror"),
        *("-d", str(classes), "-cp", os.pathsep.join(map(str, class_path))),
        *map(str, sources),
    ]
    argument_file = classes.parent / "javac.args"
    quoted = ('"' + argument.replace("\\", "\\\\").replace('"', '\\"') + '"' for argument in arguments)
    argument_file.write_text("\n".join(quoted), encoding="utf-8")
    done = subprocess.run([str(javac), f"@{argument_file}"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"javac failed:\n{done.stdout}{done.stderr}")


def _pack(jar: Path, version: str, roots: Sequence[Path]) -> None:
    manifest = (
        "Manifest-Version: 1.0\r\n"
        "Implementation-Title: pyspark-statestore-shim\r\n"
        f"Implementation-Version: {version}\r\n\r\n"
    )
    entries = {"META-INF/MANIFEST.MF": manifest.encode()}
    for root in roots:
        for path in sorted(p for p in root.rglob("*") if p.is_file()):
            entries.setdefault(path.relative_to(root).as_posix(), path.read_bytes())
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():  # the manifest stays first, as java.util.jar expects
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, data)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; prints the path of each jar and returns the exit status."""
    parser = argparse.ArgumentParser(description="Builds the JVM shim of pyspark-statestore.")
    parser.add_argument("--tests", action="store_true", help="also build the jar that tests and benchmarks use")
    parser.add_argument("--check", action="store_true", help="only check that a JDK is there")
    parser.add_argument("--source", type=Path, default=ROOT / "jvm-shim" / "src", help="holds main/ and test/")
    parser.add_argument("--jars", type=Path, default=ROOT / "pyspark_statestore" / "jars", help="where the jar goes")
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="stamps and the test jar")
    options = parser.parse_args(arguments)
    try:
        if options.check:
            print(find_javac())
            return 0
        version = project_version()
        jar = options.jars / f"pyspark-statestore-shim-{version}.jar"
        built = build_jar(options.source / "main", jar, version=version, stamp=options.build / "shim.stamp")
        for other in options.jars.glob("pyspark-statestore-shim-*.jar"):
            if other != jar:  # an older version's; it would only confuse
                other.unlink()
        print(f"{jar}{'' if built else ' (up to date)'}")
        if options.tests:
            test_jar = options.build / "pyspark-statestore-test-shim.jar"
            stamp = options.build / "test-shim.stamp"
            built = build_jar(options.source / "test", test_jar, version=version, stamp=stamp, class_path=[jar])
            print(f"{test_jar}{'' if built else ' (up to date)'}")
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
