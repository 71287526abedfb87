"""Where the JVM shim's jar is, and whether it is the one that belongs to this package."""

from __future__ import annotations

import zipfile
from pathlib import Path

from pyspark_statestore._version import __version__
from pyspark_statestore.errors import StateStoreFilesError

JAR_STEM = "pyspark-statestore-shim-"
_DIRECTORY = Path(__file__).parent / "jars"
_REINSTALL = "In a checkout run `make jar` (or `python jvm-shim/build.py`), otherwise reinstall the package"


def jar_path() -> str:
    """Returns the path of the JVM shim's jar, for ``spark-submit --jars`` and the like.

    Raises:
        StateStoreFilesError: PSS_JAR_MISSING if it was not built, PSS_VERSION_MISMATCH if it is another version's.
    """
    return str(checked_jar(_DIRECTORY, __version__))


def checked_jar(directory: Path, version: str) -> Path:
    """Finds the jar of a version and makes sure that its manifest agrees.

    Args:
        directory: That holds the jar.
        version: The Python package's.
    """
    jar = directory / f"{JAR_STEM}{version}.jar"
    if not jar.is_file():
        others = sorted(other.name for other in directory.glob(f"{JAR_STEM}*.jar"))
        if others:
            found = jar_version_in_name(others[-1]) or "?"
            raise version_mismatch(f"the jar {directory / others[-1]}", found, python_version=version)
        raise jar_missing(f"{jar} does not exist")
    try:
        with zipfile.ZipFile(jar) as archive:
            manifest = archive.read("META-INF/MANIFEST.MF").decode()
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise jar_missing(f"{jar} cannot be read: {error}") from error
    values = dict(line.split(": ", 1) for line in manifest.splitlines() if ": " in line)
    found = values.get("Implementation-Version", "without a version")
    if found != version:
        raise version_mismatch(f"the jar {jar}", found, python_version=version)
    return jar


def jar_version_in_name(path: str) -> str | None:
    """Returns the version in the name of a shim's jar, or None if the path names something else."""
    name = path.rstrip("/").rsplit("/", 1)[-1]
    if not name.startswith(JAR_STEM) or not name.endswith(".jar"):
        return None
    return name.removeprefix(JAR_STEM).removesuffix(".jar")


def jar_missing(reason: str, action: str = _REINSTALL) -> StateStoreFilesError:
    """Returns the error that says that the jar cannot be used."""
    return StateStoreFilesError("PSS_JAR_MISSING", {"reason": reason, "action": action})


def version_mismatch(
    what: str, jvm_version: str, action: str = _REINSTALL, python_version: str = __version__
) -> StateStoreFilesError:
    """Returns the error that says that Python's version and the jar's differ."""
    parameters = {"python_version": python_version, "what": what, "jvm_version": jvm_version, "action": action}
    return StateStoreFilesError("PSS_VERSION_MISMATCH", parameters)
