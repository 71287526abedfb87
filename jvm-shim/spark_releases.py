"""Which minor versions of Spark the shim is built for, which sources each takes, and where their jars come from.

The sources of a jar are those in src/main, and of each folder of src whose name covers the minor version:

    spark-4.2           4.2 alone
    spark-4.0-to-4.1    from 4.0 to 4.1
    spark-4.1-on        4.1 and all that follow

Spark's jars come with pyspark. The release that is installed is used where it is of the right minor version; others are
installed by pip, each into an environment of its own in the user's cache directory, once.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

RELEASES: Mapping[str, str] = {"3.5": "3.5.9", "4.0": "4.0.5", "4.1": "4.1.4", "4.2": "4.2.1", "4.3": "4.3.0"}
"""By minor version, oldest first, the release that is compiled against and tested."""

CACHE_VARIABLE = "PYSPARK_STATESTORE_SPARK_CACHE"
"""The environment variable that says where to keep other releases of pyspark instead of the user's cache directory."""

_FOLDER = re.compile(r"spark-(\d+\.\d+)(?:(-on)|-to-(\d+\.\d+))?")


class ReleaseError(Exception):
    """A release of Spark cannot be had, or is none that the shim knows; the message says why."""


def number(minor: str) -> tuple[int, ...]:
    """What orders versions: 4.10 comes after 4.9."""
    return tuple(int(part) for part in minor.split("."))


def minor_of(version: str) -> str:
    """The minor version of a release, such as 4.3 of 4.3.0 or of 4.3.1.dev1."""
    return ".".join(version.split(".")[:2])


def folders(source: Path, minor: str) -> list[Path]:
    """The folders of ``source`` that belong to a minor version.

    For a version that is newer than all known ones these are the folders of the newest.

    Args:
        source: jvm-shim/src, or a directory like it.
        minor: The minor version.
    """
    wanted = min(number(minor), number(max(RELEASES, key=number)))
    found = []
    for folder in sorted(source.iterdir()):
        named = _FOLDER.fullmatch(folder.name)
        if named and number(named[1]) <= wanted and (named[2] or wanted <= number(named[3] or named[1])):
            found.append(folder)
    return found


def installed_release() -> str | None:
    """The version of pyspark in this Python; None if there is none."""
    try:
        return importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return None


def installed_jars() -> Path:
    """The directory of the installed pyspark's jars, without importing pyspark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        lowest, highest = (sorted(RELEASES, key=number)[at] for at in (0, -1))
        raise ReleaseError(
            "pyspark is not installed in this Python, and the shim is compiled against its jars. "
            f"Install a release from {lowest} to {highest}: pip install pyspark"
        )
    return checked_jars(Path(next(iter(spec.submodule_search_locations))) / "jars")


def checked_jars(jars: Path) -> Path:
    """Returns the directory, or raises ReleaseError if there is no Spark in it."""
    if not any(jars.glob("spark-sql_*.jar")):
        raise ReleaseError(
            f"No Spark jars in {jars}. Is this the pyspark-client package? The shim needs the full pyspark."
        )
    return jars


def cache_directory() -> Path:
    """Where other releases are kept: what the environment says, else a place in the user's cache directory."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen)
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "pyspark-statestore" / "spark"


def environment(release: str) -> Path:
    """An environment with one release of pyspark and nothing else that it needs; made if it is not in the cache.

    Args:
        release: The version of pyspark, such as 4.1.4.

    Returns:
        The environment's directory, which depends on this Python's version.

    Raises:
        ReleaseError: If pip could not install the release; the message has what pip said.
    """
    home = cache_directory() / f"{release}-python{sys.version_info.major}.{sys.version_info.minor}"
    complete = home / "pyspark-is-installed"
    if complete.exists():
        return home
    print(f"Installing pyspark {release} into {home}, once ...", file=sys.stderr, flush=True)
    try:
        shutil.rmtree(home, ignore_errors=True)
        venv.create(home, with_pip=True, symlinks=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise ReleaseError(f"{home} cannot be made: {error}") from error
    # pyspark is a source package; its set-up needs nothing but setuptools.
    pip(home, "--upgrade", "pip>=23.1", "setuptools>=68,<85", "wheel")
    pip(home, "--no-build-isolation", "--no-deps", "--no-compile", "--no-cache-dir", f"pyspark=={release}")
    complete.touch()
    return home


def python_of(home: Path) -> Path:
    """The interpreter of an environment."""
    return home / "bin" / "python"


def pip(home: Path, *arguments: str) -> None:
    """Installs into an environment.

    Raises:
        ReleaseError: With the end of what pip said, if it fails or takes more than ten minutes.
    """
    command = [*(str(python_of(home)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"), *arguments]
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHONPATH", "PYTHONHOME"))}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=600, check=False)
    except subprocess.TimeoutExpired as error:
        raise ReleaseError(f"pip install {' '.join(arguments)} took more than {error.timeout:.0f} s") from error
    if done.returncode != 0:
        said = [line for line in (done.stderr or done.stdout).strip().splitlines() if line.strip()]
        raise ReleaseError(f"pip install {' '.join(arguments)} failed: {' '.join(said[-4:]) or 'it said nothing'}")


def jars_of(release: str) -> Path:
    """The jars of a release, which is installed into the cache unless it is installed here.

    Raises:
        ReleaseError: If it cannot be had.
    """
    if installed_release() == release:
        return installed_jars()
    home = environment(release)
    found = next(iter(home.glob("lib/python*/site-packages/pyspark/jars")), None)
    if found is None:
        raise ReleaseError(f"There is no pyspark in {home}. Delete that directory and try again.")
    return checked_jars(found)
