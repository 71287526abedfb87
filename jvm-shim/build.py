"""Compiles the JVM shim with javac: one jar for each minor version of Spark, against the jars of pyspark.

There is no Maven or Gradle: the shim needs no other library than those that Spark ships. The jars are deterministic
(same inputs, same bytes) and are built only when an input changed. Without an option the jar for the installed pyspark
is built, pyspark_statestore/jars/pyspark-statestore-shim-spark-<minor>-<version>.jar.

    python jvm-shim/build.py --tests            # also build/pyspark-statestore-test-shim-spark-<minor>.jar
    python jvm-shim/build.py --all              # the jars of all minor versions; pip downloads their pysparks once
    python jvm-shim/build.py --against 4.4.0    # builds nothing: says what that release changed for the shim

Most classes are the same for all minor versions, byte by byte: --all makes sure of that. What differs is in folders
whose names say which versions they are for (spark_releases.py).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import spark_releases as releases

ROOT = Path(__file__).resolve().parent.parent
RELEASE = 17

# Two warnings are off, which are about Spark's jars: annotations whose classes are missing (classfile), and manifests
# that name jars which pyspark does not ship (path). In comments all that is there has to be right, above all the names
# of classes; what a comment leaves out is for people to judge.
LINT = ("-Xlint:all,-classfile,-path", "-Xdoclint:all,-missing")

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


def project_version() -> str:
    """Reads the package's version without importing the package."""
    text = (ROOT / "pyspark_statestore" / "_version.py").read_text(encoding="utf-8")
    found = re.search(r'__version__ = "([^"]+)"', text)
    if not found:
        raise BuildError("pyspark_statestore/_version.py holds no __version__")
    return found[1]


@dataclass(frozen=True)
class Target:
    """A jar that is to be built.

    Attributes:
        jar: Where it goes. It is replaced in one step, so a reader never sees half of it.
        stamp: The file that notes what the jar was built from.
        minor: The minor version of Spark that it is for.
        sources: Folders with Java sources.
        resources: Folders whose files go into the jar as they are.
        version: The manifest's Implementation-Version.
        class_path: The jars to compile against, besides Spark's.
        common: The folder whose classes are the same for all minor versions.
    """

    jar: Path
    stamp: Path
    minor: str
    sources: tuple[Path, ...]
    resources: tuple[Path, ...]
    version: str
    class_path: tuple[Path, ...] = ()
    common: Path | None = None

    def inputs(self, release: str) -> str:
        """A hash of all that the jar is made of, with one release of Spark."""
        digest = hashlib.sha256(f"{self.version} {RELEASE} {LINT} {self.minor} {release}".encode())
        for script in (Path(__file__), Path(releases.__file__)):
            digest.update(script.read_bytes())
        for root in (*self.sources, *self.resources):
            for path in sorted(p for p in root.rglob("*") if p.is_file()):
                digest.update(f"{root.parent.name} {path.relative_to(root)} {_sha256(path)}".encode())
        for path in self.class_path:
            digest.update(_sha256(path).encode())
        return digest.hexdigest()

    def is_built(self, release: str | None = None) -> bool:
        """Whether the jar is there and what it would be now; without a release, with the one it was built with."""
        try:
            built_with, inputs, jar = self.stamp.read_text(encoding="utf-8").split()
            return (
                built_with == (release or built_with) and inputs == self.inputs(built_with) and jar == _sha256(self.jar)
            )
        except (OSError, ValueError):
            return False

    def build(self, release: str) -> bool:
        """Compiles and packs the jar, unless it is built already; returns whether it was not."""
        if self.is_built(release):
            return False
        with tempfile.TemporaryDirectory(prefix="pyspark-statestore-") as temporary:
            classes = self.compile(Path(temporary), releases.jars_of(release))
            self.jar.parent.mkdir(parents=True, exist_ok=True)
            unfinished = self.jar.with_name(f".{self.jar.name}.{os.getpid()}")
            try:
                _pack(unfinished, self.version, self.minor, [classes, *self.resources])
                os.replace(unfinished, self.jar)
            finally:
                unfinished.unlink(missing_ok=True)
        self.stamp.parent.mkdir(parents=True, exist_ok=True)
        self.stamp.write_text(f"{release} {self.inputs(release)} {_sha256(self.jar)}", encoding="utf-8")
        return True

    def compile(self, temporary: Path, spark_jars: Path) -> Path:
        """Compiles into a new directory below ``temporary``, which is returned."""
        sources = sorted(path for folder in self.sources for path in folder.rglob("*.java"))
        if not sources:
            raise BuildError(f"There are no Java sources under {', '.join(map(str, self.sources))}")
        if any(source.name == "ShimInfo.java" for source in sources):
            sources.append(_built_for(temporary, self.minor))
        classes = temporary / "classes"
        classes.mkdir()
        _compile(find_javac(), sources, classes, [*self.class_path, *sorted(spark_jars.glob("*.jar"))])
        return classes


def shim(source: Path, jars: Path, build: Path, minor: str) -> Target:
    """The shim's jar for a minor version of Spark.

    Args:
        source: Holds main/ and the folders of minor versions.
        jars: Where the jars go.
        build: Where the stamps go.
        minor: The minor version.
    """
    version = project_version()
    roots = [source / "main", *releases.folders(source, minor)]
    return Target(
        jar=jars / f"pyspark-statestore-shim-spark-{minor}-{version}.jar",
        stamp=build / f"shim-spark-{minor}.stamp",
        minor=minor,
        sources=tuple(root / "java" for root in roots if (root / "java").is_dir()),
        resources=tuple(root / "resources" for root in roots if (root / "resources").is_dir()),
        version=version,
        common=source / "main" / "java",
    )


def test_shim(source: Path, build: Path, main: Target) -> Target:
    """The jar that tests and benchmarks use beside the shim's jar ``main``."""
    roots = [source / "test" / "java"]
    roots += [folder / "test-java" for folder in releases.folders(source, main.minor)]
    return Target(
        jar=build / f"pyspark-statestore-test-shim-spark-{main.minor}.jar",
        stamp=build / f"test-shim-spark-{main.minor}.stamp",
        minor=main.minor,
        sources=tuple(root for root in roots if root.is_dir()),
        resources=tuple(root for root in [source / "test" / "resources"] if root.is_dir()),
        version=main.version,
        class_path=(main.jar,),
    )


def _built_for(temporary: Path, minor: str) -> Path:
    """Writes the one class that says which Spark a jar is for: a manifest is lost where jars are packed into one."""
    source = temporary / "generated" / "io" / "pyspark" / "statestore" / "BuiltFor.java"
    source.parent.mkdir(parents=True)
    source.write_text(
        "package io.pyspark.statestore;\n\n"
        "/** Written by build.py. */\n"
        "final class BuiltFor {\n"
        "  private BuiltFor() {}\n\n"
        f'  static String spark() {{\n    return "{minor}";\n  }}\n}}\n',
        encoding="utf-8",
    )
    return source


def differing_classes(targets: Sequence[Target]) -> dict[str, list[str]]:
    """The classes of common sources that are not the same in all jars.

    Such a class was compiled to something that depends on the minor version, so it does not belong into src/main.

    Args:
        targets: Jars of the shim that are built.

    Returns:
        The minor versions whose class differs from that in the first jar, by the class's name in the jars.
    """
    differing: dict[str, list[str]] = {}
    first: dict[str, bytes] = {}
    for target in targets:
        assert target.common is not None
        common = {path.relative_to(target.common).with_suffix("").as_posix() for path in target.common.rglob("*.java")}
        with zipfile.ZipFile(target.jar) as archive:
            for name in archive.namelist():
                if re.sub(r"(\$.*)?\.class$", "", name) in common:
                    data = archive.read(name)
                    if first.setdefault(name, data) != data:
                        differing.setdefault(name, []).append(target.minor)
    return differing


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _compile(javac: Path, sources: Sequence[Path], classes: Path, class_path: Sequence[Path]) -> None:
    # The arguments go to a file, since a command line may be too short. javac wants backslashes doubled in quotes.
    arguments = [
        *("--release", str(RELEASE), "-encoding", "UTF-8", "-g", "-proc:none", *LINT, "-Werror"),
        *("-d", str(classes), "-cp", os.pathsep.join(map(str, class_path))),
        *map(str, sources),
    ]
    argument_file = classes.parent / "javac.args"
    quoted = ('"' + argument.replace("\\", "\\\\").replace('"', '\\"') + '"' for argument in arguments)
    argument_file.write_text("\n".join(quoted), encoding="utf-8")
    done = subprocess.run([str(javac), f"@{argument_file}"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"javac failed:\n{done.stdout}{done.stderr}")


def _pack(jar: Path, version: str, minor: str, roots: Sequence[Path]) -> None:
    manifest = (
        "Manifest-Version: 1.0\r\n"
        "Implementation-Title: pyspark-statestore-shim\r\n"
        f"Implementation-Version: {version}\r\n"
        f"Spark-Version: {minor}\r\n\r\n"
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


def _build(target: Target, release: str) -> None:
    built = target.build(release)
    print(f"{target.jar}{'' if built else ' (up to date)'}", flush=True)


def _release_for(minor: str) -> str:
    """The installed pyspark if it is of the minor version, else the release that is known."""
    installed = releases.installed_release()
    if installed is not None and releases.minor_of(installed) == minor:
        return installed
    return releases.RELEASES[minor]


def _installed_minor() -> str:
    releases.installed_jars()
    minor = releases.minor_of(releases.installed_release() or "")
    if minor not in releases.RELEASES:
        known, installed = ", ".join(releases.RELEASES), releases.installed_release()
        raise BuildError(
            f"pyspark {installed} is installed, and the shim knows {known} only. Install one of these, or see what "
            f"has changed: python jvm-shim/build.py --against {installed}"
        )
    return minor


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; prints the path of each jar and returns the exit status."""
    parser = argparse.ArgumentParser(description="Builds the JVM shim of pyspark-statestore.")
    parser.add_argument("--tests", action="store_true", help="also build the jar that tests and benchmarks use")
    parser.add_argument("--all", action="store_true", help="the jars of all minor versions of Spark")
    parser.add_argument("--spark", choices=releases.RELEASES, help="the jar of this minor version")
    parser.add_argument("--against", metavar="RELEASE", help="only say what a release of Spark changed for the shim")
    parser.add_argument("--check", action="store_true", help="only check that a JDK is there")
    parser.add_argument("--source", type=Path, default=ROOT / "jvm-shim" / "src", help="holds main/ and test/")
    parser.add_argument("--jars", type=Path, default=ROOT / "pyspark_statestore" / "jars", help="where the jars go")
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="stamps and the test jars")
    options = parser.parse_args(arguments)
    try:
        if options.check:
            print(find_javac())
            return 0
        if options.against:
            import spark_changes

            return spark_changes.report(options.source, options.against, find_javac())
        known = {minor: shim(options.source, options.jars, options.build, minor) for minor in releases.RELEASES}
        wanted = list(known) if options.all else [options.spark or _installed_minor()]
        for minor in wanted:
            release = _release_for(minor)
            _build(known[minor], release)
            if options.tests:
                _build(test_shim(options.source, options.build, known[minor]), release)
        # An older version's, and those of other sources, would only confuse: a wheel takes all jars that are there.
        current = {target.jar for target in known.values() if target.is_built()}
        for jar in options.jars.glob("pyspark-statestore-shim-*.jar"):
            if jar not in current:
                jar.unlink()
        differing = differing_classes([known[minor] for minor in wanted])
        if differing:
            raise BuildError(
                "These classes of src/main differ between minor versions of Spark, and must be in folders of theirs:\n"
                + "\n".join(f"  {name} for {', '.join(minors)}" for name, minors in sorted(differing.items()))
            )
    except (BuildError, releases.ReleaseError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
