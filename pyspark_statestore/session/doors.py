"""What a session has to be told so that its state goes through one of the two doors."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark_statestore._version import __version__
from pyspark_statestore.conf import OPTIONS, check_settings, settings_of
from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.paths import MERGED_PREFIX, SCHEMES

SUPPORTED_SPARK = "4.3"

PROVIDER_KEY = "spark.sql.streaming.stateStore.providerClass"
FILE_MANAGER_KEY = "spark.sql.streaming.checkpointFileManagerClass"
EXTENSIONS_KEY = "spark.sql.extensions"
PLUGINS_KEY = "spark.plugins"
OWN_FILE_MANAGER_KEY = OPTIONS["fileManagerClass"].key
SHIM_VERSION_KEY = OPTIONS["shimVersion"].key

MERGED_FILE_SYSTEM = "io.pyspark.statestore.fs.MergedFileSystem"
MERGED_FILE_MANAGER = "io.pyspark.statestore.fs.MergedCheckpointFileManager"
MERGED_EXTENSIONS = "io.pyspark.statestore.spark.MergedStateExtensions"
METRICS_PLUGIN = "io.pyspark.statestore.spark.FileMergingPlugin"

STOCK_PROVIDERS = {
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "heap": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
MERGED_PROVIDERS = {
    "rocksdb": "io.pyspark.statestore.spark.MergedRocksDBStateStoreProvider",
    "heap": "io.pyspark.statestore.spark.MergedHDFSBackedStateStoreProvider",
}
MODES = ("provider", "path")
STORES = tuple(STOCK_PROVIDERS)


@dataclass(frozen=True)
class DoorSettings:
    """What changes in a session's configuration.

    Attributes:
        set: New values by key.
        remove: Keys that are to be unset.
    """

    set: Mapping[str, str]
    remove: frozenset[str] = frozenset()


def door_settings(existing: Mapping[str, str], *, mode: str, store: str, options: Mapping[str, object]) -> DoorSettings:
    """Works out the settings that can also be changed while a session runs.

    Args:
        existing: The session's settings so far; none of the user's own is lost.
        mode: The door, ``provider`` or ``path``.
        store: ``rocksdb`` or ``heap``.
        options: As keyword arguments: ``max_file_size="128m"``.

    Raises:
        StateStoreFilesError: PSS_INVALID_OPTION, PSS_UNKNOWN_OPTION or PSS_CONFLICTING_SETTING.
    """
    _check_word("mode", mode, MODES)
    _check_word("store", store, STORES)
    changed = settings_of(options)
    check_settings({**existing, **changed})
    _check_provider(existing, store)
    changed[PROVIDER_KEY] = (STOCK_PROVIDERS if mode == "path" else MERGED_PROVIDERS)[store]
    # With both doors: it serves merged paths, and looks at each checkpoint before its query starts.
    changed[FILE_MANAGER_KEY] = MERGED_FILE_MANAGER
    manager = existing.get(FILE_MANAGER_KEY)
    if manager and manager != MERGED_FILE_MANAGER:
        changed[OWN_FILE_MANAGER_KEY] = manager
    changed[SHIM_VERSION_KEY] = __version__
    return DoorSettings(changed)


def file_system_settings() -> dict[str, str]:
    """Returns the Hadoop settings that give every ``merged+<scheme>`` its file system."""
    return {f"fs.{MERGED_PREFIX}{scheme}.impl": MERGED_FILE_SYSTEM for scheme in SCHEMES}


def check_spark_version(found: str) -> None:
    """Refuses a Spark of another minor version: the shim implements interfaces that are internal to Spark."""
    if found.split(".")[:2] != SUPPORTED_SPARK.split("."):
        raise StateStoreFilesError("PSS_UNSUPPORTED_SPARK", {"found": found, "supported": SUPPORTED_SPARK})


def _check_word(key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        words = " or ".join(map(repr, allowed))
        raise StateStoreFilesError("PSS_INVALID_OPTION", {"key": key, "value": value, "allowed": words})


def _check_provider(existing: Mapping[str, str], store: str) -> None:
    provider = existing.get(PROVIDER_KEY)
    if not provider or existing.get(SHIM_VERSION_KEY) or provider in MERGED_PROVIDERS.values():
        return  # nothing, or what an earlier call has set
    if provider == STOCK_PROVIDERS[store]:
        return
    matching = next((name for name, stock in STOCK_PROVIDERS.items() if stock == provider), None)
    if matching:
        reason, action = f"store={store!r} was asked for", f"Pass store={matching!r}, or remove the setting"
    else:
        reason = "merged state builds on Spark's own providers and would replace this one"
        action = "Remove the setting where merged state is wanted"
    parameters = {"key": PROVIDER_KEY, "value": provider, "reason": reason, "action": action}
    raise StateStoreFilesError("PSS_CONFLICTING_SETTING", parameters)


# Where the JVM shim's jar is, and whether it is the one that belongs to this package.

JAR_STEM = "pyspark-statestore-shim-"
_DIRECTORY = Path(__file__).parent.parent / "jars"
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
