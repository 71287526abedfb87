"""The settings that lead a session's state through one of the two doors, ``provider`` or ``path``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark_statestore._version import __version__
from pyspark_statestore.conf import OPTIONS, check_settings, is_removed, settings_of, what_is_removed
from pyspark_statestore.errors import StateStoreFilesError, not_allowed
from pyspark_statestore.paths import MERGED_PREFIX, SCHEMES

SUPPORTED_SPARK = ("3.5", "4.0", "4.1", "4.2", "4.3")
"""The minor versions of Spark, oldest first. Each has a jar of its own."""

_FIRST_WITH_OWN_ROCKSDB = "4.1"
"""The first minor version of Spark whose provider lets a subclass make the database."""

PROVIDER_KEY = "spark.sql.streaming.stateStore.providerClass"
FILE_MANAGER_KEY = "spark.sql.streaming.checkpointFileManagerClass"
EXTENSIONS_KEY = "spark.sql.extensions"
PLUGINS_KEY = "spark.plugins"
COMMIT_PROTOCOL_KEY = "spark.sql.streaming.commitProtocolClass"
OWN_FILE_MANAGER_KEY = OPTIONS["fileManagerClass"].key
SHIM_VERSION_KEY = OPTIONS["shimVersion"].key

MERGED_FILE_SYSTEM = "io.pyspark.statestore.fs.MergedFileSystem"
MERGED_FILE_MANAGER = "io.pyspark.statestore.fs.MergedCheckpointFileManager"
MERGED_EXTENSIONS = "io.pyspark.statestore.spark.MergedStateExtensions"
COMPACTING_PROTOCOL = "io.pyspark.statestore.sink.CompactingCommitProtocol"
METRICS_PLUGIN = "io.pyspark.statestore.spark.FileMergingPlugin"

STOCK_PROTOCOL = "org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol"
STOCK_PROVIDERS = {
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "heap": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
MERGED_PROVIDERS = {
    "rocksdb": "io.pyspark.statestore.spark.MergedRocksDBStateStoreProvider",
    "heap": "io.pyspark.statestore.spark.MergedHDFSBackedStateStoreProvider",
}
_STORES = {provider: store for names in (STOCK_PROVIDERS, MERGED_PROVIDERS) for store, provider in names.items()}
MODES = ("provider", "path")
STORES = tuple(STOCK_PROVIDERS)


def store_of(provider: str) -> str:
    """Returns which store a class keeps: ``rocksdb`` or ``heap``.

    Raises:
        KeyError: It is no class of Spark's or of this package.
    """
    return _STORES[provider]


def known_store(provider: str | None) -> str | None:
    """Returns what :func:`store_of` does, and None for any other class."""
    return _STORES.get(provider or "")


def door_of(provider: str | None, *, has_merged: bool) -> str | None:
    """Returns through which door a query goes on; None where it has no merged files, or where nothing tells.

    A heap store on the path door may have the class of the provider door, for its maps.

    Args:
        provider: The class that the newest entry of the offset log names.
        has_merged: Whether the checkpoint has merged files that count.
    """
    if provider == MERGED_PROVIDERS["rocksdb"]:
        return "provider"
    return "path" if has_merged and provider in STOCK_PROVIDERS.values() else None


@dataclass(frozen=True)
class DoorSettings:
    """A change of a session's configuration.

    Attributes:
        set: New values by key.
        remove: Keys to unset.
    """

    set: Mapping[str, str]
    remove: frozenset[str] = frozenset()


def door_settings(
    existing: Mapping[str, str], *, mode: str, store: str, sink: bool, options: Mapping[str, object]
) -> DoorSettings:
    """Works out the settings of a door, and of file sinks, that can also be changed while a session runs.

    Args:
        existing: The session's settings so far; the user's own are kept.
        mode: The door, ``provider`` or ``path``.
        store: ``rocksdb`` or ``heap``.
        sink: Whether file sinks compact what a batch writes.
        options: The options by their Python names, as in ``max_file_size="128m"``.

    Raises:
        StateStoreFilesError: PSS_INVALID_OPTION, PSS_UNKNOWN_OPTION or PSS_CONFLICTING_SETTING.
    """
    _check_word("mode", mode, MODES)
    _check_word("store", store, STORES)
    if not isinstance(sink, bool):
        raise not_allowed("sink", sink, "True or False")
    changed = settings_of(options)
    check_settings({**existing, **changed})
    _check_provider(existing, store)
    changed[PROVIDER_KEY] = (STOCK_PROVIDERS if mode == "path" else MERGED_PROVIDERS)[store]
    # Both doors need it: it serves merged paths, and checks each checkpoint before its query starts.
    changed[FILE_MANAGER_KEY] = MERGED_FILE_MANAGER
    manager = existing.get(FILE_MANAGER_KEY)
    if manager and manager != MERGED_FILE_MANAGER:
        changed[OWN_FILE_MANAGER_KEY] = manager
    changed[SHIM_VERSION_KEY] = __version__
    if sink:
        _check_protocol(existing)
        changed[COMMIT_PROTOCOL_KEY] = COMPACTING_PROTOCOL
    return DoorSettings(changed)


def without_effect(
    existing: Mapping[str, str], spark: str, *, mode: str, sink: bool, options: Mapping[str, object]
) -> Iterator[tuple[str, str]]:
    """Yields which options say nothing to this session, in a sentence, and what to do about each.

    Args:
        existing: The session's settings so far.
        spark: The version of Spark.
        mode: The door.
        sink: Whether file sinks compact.
        options: The options by their Python names, all of which are allowed.
    """
    yield from what_is_removed([*existing, *options])
    of_sinks = [name for name in options if name.startswith("sink_") and not is_removed(name)]
    if of_sinks and not sink and existing.get(COMMIT_PROTOCOL_KEY) != COMPACTING_PROTOCOL:
        are = "has" if len(of_sinks) == 1 else "have"
        yield f"{' and '.join(of_sinks)} {are} no effect without sink=True", "pass sink=True, or leave it out"
    is_old = SUPPORTED_SPARK.index(spark_minor(spark)) < SUPPORTED_SPARK.index(_FIRST_WITH_OWN_ROCKSDB)
    if mode != "path" and not is_old:
        return
    for name in ("restore", "upload"):
        given = [each for each in options if each == name or each.startswith(f"{name}_")]
        if set(given) > {name} or str(options.get(name, OPTIONS[name].default)) != OPTIONS[name].default:
            they = f"{' and '.join(given)} {'has' if len(given) == 1 else 'have'} no effect"
            if mode == "path":
                yield f"{they} with mode='path'", "use mode='provider', or leave it out"
            else:
                yield f"{they} on Spark {spark}: it takes {_FIRST_WITH_OWN_ROCKSDB}", "leave it out"


def file_system_settings() -> dict[str, str]:
    """Returns the Hadoop settings that give every ``merged+<scheme>`` its file system."""
    return {f"fs.{MERGED_PREFIX}{scheme}.impl": MERGED_FILE_SYSTEM for scheme in SCHEMES}


def spark_minor(found: str) -> str:
    """Returns the minor version of a Spark, such as ``4.3`` of ``4.3.0``.

    Raises:
        StateStoreFilesError: PSS_UNSUPPORTED_SPARK. The shim implements interfaces that Spark changes between minor
            versions, so it is no use to try.
    """
    minor = ".".join(str(found).split(".")[:2])
    if minor not in SUPPORTED_SPARK:
        raise StateStoreFilesError("PSS_UNSUPPORTED_SPARK", {"found": found, "supported": ", ".join(SUPPORTED_SPARK)})
    return minor


def _check_word(key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        words = " or ".join(map(repr, allowed))
        raise not_allowed(key, value, words)


def _check_protocol(existing: Mapping[str, str]) -> None:
    protocol = existing.get(COMMIT_PROTOCOL_KEY, COMPACTING_PROTOCOL)
    if protocol not in (COMPACTING_PROTOCOL, STOCK_PROTOCOL):
        parameters = {
            "key": COMMIT_PROTOCOL_KEY,
            "value": protocol,
            "reason": "file sinks that compact build on Spark's own protocol and would replace this one",
            "action": "Remove the setting, or leave out sink=True",
        }
        raise StateStoreFilesError("PSS_CONFLICTING_SETTING", parameters)


def _check_provider(existing: Mapping[str, str], store: str) -> None:
    provider = existing.get(PROVIDER_KEY)
    if not provider or existing.get(SHIM_VERSION_KEY) or provider in MERGED_PROVIDERS.values():
        return  # there is none, or an earlier call has set it
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
