"""The options of merged state and of file sinks.

The JVM shim declares them too (``Options.java``, ``SinkOptions.java``); a test compares the two. The keys of merged
state begin with ``spark.sql.streaming.stateStore.fileMerging.``, because Spark gives every key below
``spark.sql.streaming.stateStore.`` to the state store provider. Those of sinks begin with
``spark.sql.streaming.fileSink.fileMerging.``, beside Spark's own of its file sink.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import NoReturn

from pyspark_statestore.errors import StateStoreFilesError, did_you_mean, not_allowed

PREFIX = "spark.sql.streaming.stateStore.fileMerging."
SINK_PREFIX = "spark.sql.streaming.fileSink.fileMerging."

_UNITS = {
    "bytes": {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30},
    # Spark reads a number without a unit as milliseconds in some settings and as seconds in others, so it is refused.
    "duration": {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000},
    "integer": {"": 1},
}
_MAX_SIGNED = (1 << 63) - 1
_LONGEST_DURATION = 36_500 * 86_400_000
"""Milliseconds: twice as much still has room in a number. The same as the jar's ``OptionTexts``."""


def _python_name(prefix: str, name: str) -> str:
    sink = "sink_" if prefix == SINK_PREFIX else ""
    return sink + re.sub(r"(?<!^)(?=[A-Z])", "_", name.replace(".", "_")).lower()


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        name: The key below the prefix, such as ``groupCommit.maxWait``.
        default: The default value, as text in a configuration.
        type: ``bytes``, ``duration``, ``integer``, ``number``, ``boolean``, ``choice`` or ``string``.
        doc: What the option does, in a sentence.
        minimum: The lowest allowed value, as text; empty for 0.
        maximum: The highest allowed value, as text; empty for 2**63 - 1.
        choices: The allowed words of a ``choice``. For other types, words that are allowed besides their values.
        internal: Whether the package sets the option itself.
        prefix: :data:`PREFIX` or :data:`SINK_PREFIX`.
    """

    name: str
    default: str
    type: str
    doc: str
    minimum: str = ""
    maximum: str = ""
    choices: tuple[str, ...] = ()
    internal: bool = False
    prefix: str = PREFIX

    @property
    def key(self) -> str:
        """The whole configuration key."""
        return self.prefix + self.name

    @property
    def python_name(self) -> str:
        """The keyword argument of :func:`configure`, such as ``group_commit_max_wait`` or ``sink_target_file_size``."""
        return _python_name(self.prefix, self.name)

    @property
    def allowed(self) -> str:
        """The allowed values in words, for messages."""
        words = [repr(choice) for choice in self.choices]
        bounds = f" from {self.minimum}" if self.minimum else ""
        bounds += f" to {self.maximum}" if self.maximum else ""
        match self.type:
            case "bytes":
                words.append(f"a size{bounds} in bytes or with its unit (k, m, g), such as '128m'")
            case "duration":
                words.append(f"a duration{bounds} with its unit (ms, s, m, h, d), such as '60s'")
            case "integer":
                words.append(f"a whole number{bounds}")
            case "number":
                words.append(f"a number{bounds}")
            case "boolean":
                words.append("'true' or 'false'")
            case "string":
                words.append("any text")
        return " or ".join(words)

    def parse(self, value: object) -> str | int | float | bool:
        """Reads a value from a configuration or from a keyword argument.

        Args:
            value: Text as in a configuration, or a bool, a number (for sizes: bytes) or a ``timedelta``.

        Returns:
            An int for bytes and for durations, in milliseconds; otherwise a value of the option's type.

        Raises:
            StateStoreFilesError: PSS_INVALID_OPTION, which names the key, the value and what is allowed.
        """
        text = self._text(value)
        if text in self.choices or self.type == "string":
            return text
        if self.type == "boolean":
            if text not in ("true", "false"):
                self.refuse(value)
            return text == "true"
        number = self._number(text)
        lowest = self._number(self.minimum) or 0
        highest = self._number(self.maximum) or (_LONGEST_DURATION if self.type == "duration" else _MAX_SIGNED)
        if number is None or not lowest <= number <= highest:
            self.refuse(value)
        return number

    def render(self, value: object) -> str:
        """Checks a value and returns it as text for a configuration."""
        self.parse(value)
        return self._text(value)

    def refuse(self, value: object) -> NoReturn:
        """Raises PSS_INVALID_OPTION for this option."""
        raise not_allowed(self.key, value, self.allowed)

    def _text(self, value: object) -> str:
        if isinstance(value, bool):
            # True is an int in Python; given for a size or a count it is a mistake.
            return str(value).lower() if self.type == "boolean" else self.refuse(value)
        if isinstance(value, timedelta) and self.type == "duration":
            return f"{value // timedelta(milliseconds=1)}ms"
        if isinstance(value, int | float) and self.type in ("bytes", "integer", "number"):
            return str(value)
        if isinstance(value, str):
            # Spark reads sizes, durations and booleans in either case.
            return value.strip() if self.type == "string" else value.strip().lower()
        self.refuse(value)

    def _number(self, text: str) -> int | float | None:
        if self.type == "number":
            return float(text) if re.fullmatch(r"\d{1,15}(\.\d{1,15})?", text, re.ASCII) else None
        found = re.fullmatch(r"(\d{1,15})\s*([a-z]*)", text, re.ASCII)
        if not found or found[2] not in _UNITS.get(self.type, {}):
            return None
        return int(found[1]) * _UNITS[self.type][found[2]]


_DECLARED = (
    Option(
        "maxFileSize",
        "128m",
        "bytes",
        "A merged file is sealed when it reaches this size, and a new one is begun.",
        minimum="64k",
    ),
    Option(
        "maxOpenFiles",
        "4",
        "integer",
        "How many merged files of a checkpoint a process appends to at the same time, at most.",
        minimum="1",
        maximum="64",
    ),
    Option(
        "maxSpaceAmplification",
        "2.0",
        "number",
        "How many bytes a checkpoint may take on disk for each live byte. Files are sealed early and rewritten to stay "
        "below.",
        minimum="1.05",
        maximum="1000",
    ),
    Option(
        "compaction.enabled",
        "true",
        "boolean",
        "Whether executors move live segments out of mostly dead files to stay below maxSpaceAmplification.",
    ),
    Option(
        "flush",
        "hflush",
        "choice",
        "What makes a group durable where the file system offers both: hflush (it is in the memory of all replicas) or "
        "hsync (it is on their disks).",
        choices=("hflush", "hsync"),
    ),
    Option(
        "groupCommit.maxWait",
        "auto",
        "duration",
        "How long a group waits for more commits before it is written. auto: not at all where flushing works, and as "
        "long as writing a file takes (50 to 200 ms) elsewhere.",
        choices=("auto",),
    ),
    Option(
        "groupCommit.scope",
        "task",
        "choice",
        "When what a task commits becomes durable: before the task ends, or when its batch ends, in one group with all "
        "that the process's other tasks have committed in the batch.",
        choices=("task", "batch"),
    ),
    Option(
        "closedAfter",
        "10m",
        "duration",
        "An unsealed merged file of another process counts as closed when it has not changed for this long: its writer "
        "is dead. After a tenth of it without a commit, or a minute, a writer seals its file.",
        minimum="5s",
    ),
    Option(
        "cache.sizeLimit",
        "10g",
        "bytes",
        "How many bytes of SSTs stay on a host's disk, so that a restart or a move on the same host fetches none of "
        "them. 0 keeps none. A tenth of the disk stays free in any case.",
    ),
    Option(
        "cache.dir",
        "",
        "string",
        "Where a host keeps them: a directory that outlives executors, on the disk that spark.local.dir is on. Empty: "
        "a directory of the user's where Java keeps temporary files.",
    ),
    Option(
        "restore",
        "eager",
        "choice",
        "Whether the load of a RocksDB store waits for all of its SSTs (eager), or needs only their ends. Then the "
        "rest is fetched when it is read, and in the background (lazy) or not at all but for compactions (ondemand). "
        "With remote it also goes again where there is no room for it.",
        choices=("eager", "lazy", "ondemand", "remote"),
    ),
    Option(
        "restore.maxBytesPerSecond",
        "64m",
        "bytes",
        "How fast a process fetches in the background what lazy loads have left out. 0: as fast as it can.",
    ),
    Option(
        "local.sizeLimit",
        "10g",
        "bytes",
        "How many bytes of SSTs the stores of a process have on its disk, where restore is remote.",
        minimum="16m",
    ),
    Option(
        "lookAhead.rows",
        "8192",
        "integer",
        "How many rows of a stateful operator's input are copied ahead of it at a time, at most, so that the state for "
        "them is fetched together, where stores have holes or their disk is slow. 0: none.",
        minimum="0",
        maximum="1000000",
    ),
    Option(
        "lookAhead.bytes",
        "16m",
        "bytes",
        "How many bytes of such rows are in memory, for each task, and again of their keys.",
        minimum="64k",
    ),
    Option(
        "lookAhead.parallelism",
        "16",
        "integer",
        "How many requests, or reads of a disk, are under way at the same time for such a window of rows.",
        minimum="1",
        maximum="256",
    ),
    Option(
        "upload",
        "commit",
        "choice",
        "When the SSTs of a RocksDB store are uploaded: with the snapshot that names them (commit), or as soon as "
        "RocksDB has made them (created), so that publishing a snapshot writes little more than its zip.",
        choices=("commit", "created"),
    ),
    Option(
        "upload.maxBytesPerSecond",
        "64m",
        "bytes",
        "How fast a process uploads the SSTs of a checkpoint that no snapshot names yet. 0: as fast as it can.",
    ),
    Option(
        "heap.copyOnWrite",
        "true",
        "boolean",
        "Whether the versions of a heap store share the rows that did not change, instead of being copies.",
    ),
    Option(
        "heap.spill",
        "off",
        "choice",
        "Whether a heap store moves rows that were not used for long to the local disk, where the heap is nearly full "
        "(auto).",
        choices=("off", "auto"),
    ),
    Option(
        "heap.spill.highWaterMark",
        "0.6",
        "number",
        "Rows are moved to the disk when more than this part of the heap is in use.",
        minimum="0.05",
        maximum="0.95",
    ),
    Option(
        "heap.spill.lowWaterMark",
        "0.5",
        "number",
        "They are moved until no more than this part of the heap is in use.",
        minimum="0.05",
        maximum="0.95",
    ),
    Option(
        "indexService.enabled",
        "true",
        "boolean",
        "Whether executors ask the driver what others have written, instead of reading each other's files.",
    ),
    Option(
        "rebalance",
        "off",
        "choice",
        "Whether stores move to executors that have less to do, when executors come or go, or some have more to do "
        "than others (auto).",
        choices=("off", "auto"),
    ),
    Option(
        "fileManagerClass",
        "",
        "string",
        "The user's own checkpointFileManagerClass, which handles every file that is not state.",
        internal=True,
    ),
    Option(
        "shimVersion",
        "",
        "string",
        "The version of the Python package. A jar of another version refuses to run.",
        internal=True,
    ),
)

_DECLARED_OF_SINKS = (
    Option(
        "targetFileSize",
        "128m",
        "bytes",
        "How many bytes a file of a sink is to have. Smaller files of a batch and partition value are joined. Also an "
        "option of one query's writeStream.",
        minimum="1k",
        prefix=SINK_PREFIX,
    ),
    Option(
        "maxDelay",
        "0s",
        "duration",
        "How long rows may wait for more of their partition value, until they fill a file. With 0 they do not wait. "
        "Also an option of one query's writeStream.",
        minimum="0s",
        prefix=SINK_PREFIX,
    ),
)

OPTIONS: Mapping[str, Option] = MappingProxyType({option.name: option for option in _DECLARED})
"""Every option of merged state by its name below :data:`PREFIX`."""

SINK_OPTIONS: Mapping[str, Option] = MappingProxyType({option.name: option for option in _DECLARED_OF_SINKS})
"""Every option of file sinks by its name below :data:`SINK_PREFIX`."""

REMOVED: Mapping[str, str] = MappingProxyType(
    {
        "bufferMemory": "8 MiB are kept in memory, and more goes to the local disk",
        "idleSeal": "a file is sealed after a minute without a commit, or a tenth of a shorter closedAfter",
        "readParallelism": "a load reads eight ranges at the same time",
        "verifyChecksums": "what is read whole is always checked",
    }
)
"""The options of merged state that there are no more, and what the package does by itself instead. Whoever still sets
one is told so; nothing is refused, because what has worked has to go on."""

REMOVED_OF_SINKS: Mapping[str, str] = MappingProxyType(
    {"stagingRetention": "what an attempt that failed has staged stays for a day"}
)
"""The same of file sinks."""

_INSTEAD = {
    name: instead
    for prefix, removed in ((PREFIX, REMOVED), (SINK_PREFIX, REMOVED_OF_SINKS))
    for option, instead in removed.items()
    for name in (prefix + option, _python_name(prefix, option))
}
"""What the package does by itself, by the whole keys and the Python names of the options that it did away with."""

_OF_CONFIGURE = ("mode", "store", "sink")
"""The arguments of :func:`configure` that are no options, and that somebody may have misspelled."""

_BY_PYTHON_NAME = {option.python_name: option for option in (*_DECLARED, *_DECLARED_OF_SINKS) if not option.internal}


def settings_of(options: Mapping[str, object]) -> dict[str, str]:
    """Turns keyword arguments into Spark settings.

    Args:
        options: The options by their Python names, as in ``max_file_size="128m"``. Those that there are no more are
            left out: :func:`what_is_removed` has what to say of them.

    Returns:
        The settings' values by their whole keys.

    Raises:
        StateStoreFilesError: PSS_UNKNOWN_OPTION or PSS_INVALID_OPTION.
    """
    settings = {}
    for name, value in options.items():
        option = _BY_PYTHON_NAME.get(name)
        if option is not None:
            settings[option.key] = option.render(value)
        elif not is_removed(name):
            raise _unknown(name, _BY_PYTHON_NAME, _OF_CONFIGURE)
    return settings


def is_removed(name: str) -> bool:
    """Says whether a Python name, or a whole key, is that of an option that there is no more."""
    return name in _INSTEAD


def what_is_removed(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields of each option that there is no more, in a sentence, that it has no effect, and what to do.

    Args:
        names: Python names of options and whole keys of settings, of any kind.
    """
    for name in filter(is_removed, names):
        yield f"{name} is not an option any more and has no effect: {_INSTEAD[name]}", "remove it"


def check_settings(settings: Mapping[str, object]) -> None:
    """Checks every setting below both prefixes.

    Args:
        settings: Spark settings by their whole keys. Those not below a prefix are ignored, and so are options that
            there are no more.

    Raises:
        StateStoreFilesError: PSS_UNKNOWN_OPTION or PSS_INVALID_OPTION.
    """
    for prefix, known in ((SINK_PREFIX, SINK_OPTIONS), (PREFIX, OPTIONS)):
        for key, value in settings.items():
            if key.startswith(prefix) and not is_removed(key):
                name = key.removeprefix(prefix)
                if name not in known:
                    raise _unknown(name, known)
                known[name].parse(value)


def _unknown(name: str, known: Mapping[str, Option], others: Sequence[str] = ()) -> StateStoreFilesError:
    public = [*others, *(candidate for candidate, option in known.items() if not option.internal)]
    hint = did_you_mean(name, public) or f"The options are: {', '.join(public)}."
    return StateStoreFilesError("PSS_UNKNOWN_OPTION", {"key": name, "hint": hint})


CLOSED_AFTER = timedelta(milliseconds=int(OPTIONS["closedAfter"].parse(OPTIONS["closedAfter"].default)))
"""The default of the option ``closedAfter``."""
