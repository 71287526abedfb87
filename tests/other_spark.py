"""Runs tests on another minor version of Spark, in an environment of its own.

    python -m tests.other_spark 4.1                    # all that is not tied to a newer Spark
    python -m tests.other_spark 4.1 --short            # the short set
    python -m tests.other_spark 4.1 -- tests/cli -x    # what pytest is told
    python -m tests.other_spark --short --each         # the short set on each but the installed one

The environment is made once, outside of the checkout (jvm-shim/spark_releases.py). Where its packages cannot be
downloaded, this says so in capital letters and ends with 0: what cannot be had here fails no build.
"""

from __future__ import annotations

import argparse
import configparser
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "jvm-shim"))

import spark_releases as releases  # noqa: E402

CONSTRAINTS: Mapping[str, tuple[str, ...]] = {
    "3.5": ("numpy<2", "pandas<2.3", "pyarrow<20"),
    "4.0": ("protobuf<7",),
}
"""By minor version, packages that Spark does not work with in their newest versions, and does not refuse itself."""

# The site is built with the newest Spark only.
_NOT_FOR_TESTS = ("mkdocs", "mkdocs-material", "mkdocstrings", "mypy", "promql-parser", "ruff", "pytest-spark")
# Spark asks for its own versions of these, by its extras.
_OF_SPARK = ("googleapis-common-protos", "grpcio", "grpcio-status", "protobuf", "zstandard")
_EXTRAS = {"3.5": "sql"}


def requirements(minor: str) -> list[str]:
    """What an environment for tests on a minor version has, by setup.cfg."""
    declared = configparser.ConfigParser()
    declared.read(ROOT / "setup.cfg", encoding="utf-8")
    extras = declared["options.extras_require"]
    lines = [declared["options"]["install_requires"], extras["test"], extras["examples"]]
    each = dict.fromkeys(line for text in lines for line in _lines(text))  # two extras may ask for the same
    ours = [line for line in each if _name(line) not in ("pyspark", *_NOT_FOR_TESTS, *_OF_SPARK)]
    release = releases.RELEASES[minor]
    more = [] if minor in _EXTRAS else ["protobuf"]  # transformWithState talks to its workers in protobuf
    return [f"pyspark[{_EXTRAS.get(minor, 'connect')}]=={release}", *ours, *more, *CONSTRAINTS.get(minor, ())]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _name(requirement: str) -> str:
    return requirement.split("[")[0].split(">")[0].split("=")[0].split("<")[0].strip()


def environment(minor: str) -> Path:
    """The environment for tests on a minor version, made if it is not in the cache.

    Returns:
        Its directory.

    Raises:
        spark_releases.ReleaseError: A package cannot be had.
    """
    home = releases.environment(releases.RELEASES[minor])
    wanted = requirements(minor)
    done = home / f"requirements-{hashlib.sha256(' '.join(wanted).encode()).hexdigest()[:16]}"
    if not done.exists():
        print(f"Installing what tests on Spark {minor} need into {home}, once ...", file=sys.stderr, flush=True)
        releases.pip(home, "--no-build-isolation", *wanted)
        done.touch()
    return home


def environ(home: Path) -> dict[str, str]:
    """The environment variables of a process that uses an environment and this checkout."""
    kept = {key: value for key, value in os.environ.items() if key not in ("PYSPARK_SUBMIT_ARGS", "SPARK_HOME")}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "datasource")]),
        "PYSPARK_PYTHON": str(releases.python_of(home)),
        "PATH": os.pathsep.join([str(home / "bin"), os.environ.get("PATH", "")]),
        "VIRTUAL_ENV": str(home),
    }


def run(minor: str, pytest_arguments: Sequence[str], *, short: bool) -> int:
    """Builds the jars for a minor version and runs tests on it; returns pytest's exit status."""
    try:
        home = environment(minor)
    except releases.ReleaseError as error:
        print(f"\nNOT TESTED: SPARK {minor} CANNOT BE HAD HERE. {error}\n", file=sys.stderr, flush=True)
        return 0
    python = str(releases.python_of(home))
    began = time.monotonic()
    commands = [[python, "jvm-shim/build.py", "--tests"], [python, "-m", "tests.class_data"]]
    if short:
        del commands[1]  # it takes longer than the few JVMs of the short set gain by it
    for command in (*commands, [python, "-m", "pytest", *pytest_arguments]):
        done = subprocess.run(command, cwd=ROOT, env=environ(home), check=False)
        if done.returncode != 0:
            break
    said = "passed" if done.returncode == 0 else "FAILED"
    print(f"Tests on Spark {releases.RELEASES[minor]} {said} in {time.monotonic() - began:.0f} s", flush=True)
    return done.returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        description="Runs tests on another minor version of Spark.", epilog="What follows -- is for pytest."
    )
    parser.add_argument("version", nargs="?", choices=releases.RELEASES, help="the minor version")
    parser.add_argument("--short", action="store_true", help="the short set only")
    parser.add_argument("--each", action="store_true", help="on each minor version but the installed one")
    words = list(sys.argv[1:] if arguments is None else arguments)
    own, rest = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    options = parser.parse_args(own)
    if (options.version is None) != options.each:
        parser.error("give a version, or --each")
    installed = releases.minor_of(releases.installed_release() or "")
    minors = [minor for minor in releases.RELEASES if minor != installed] if options.each else [options.version]
    chosen = ["-m", "each_spark", "tests/each_spark"] if options.short else []
    statuses = [run(minor, [*chosen, *rest], short=options.short) for minor in minors]
    return max(statuses)


if __name__ == "__main__":
    sys.exit(main())
