"""The options of merged state: declared once here, once in the JVM shim, and held to each other by a test.

All of them live under ``spark.sql.streaming.stateStore.fileMerging.``, because Spark hands every key below
``spark.sql.streaming.stateStore.`` to the state store provider.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import NoReturn

from pyspark_statestore.errors import StateStoreFilesError

PREFIX = "spark.sql.streaming.stateStore.fileMerging."

_UNITS = {
    "bytes": {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30},
    # A bare number is milliseconds in one of Spark's settings and seconds in the next, so here it is neither.
    "duration": {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000},
    "integer": {"": 1},
}
_MAX_SIGNED = (1 << 63) - 1

IDLE_SEAL_FACTOR = 5
"""closedAfter is at least this many times idleSeal (rule 7): a file that a slow writer may still append to must not
count as closed."""


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        name: Below :data:`PREFIX`, as in ``groupCommit.maxWait``.
        default: As it would be written in a configuration.
        type: ``bytes``, ``duration``, ``integer``, ``number``, ``boolean``, ``choice`` or ``string``.
        doc: What it does, in a sentence.
        minimum: The lowest value that is allowed, written like the default; empty for 0.
        maximum: The highest; empty where only 63 bits bound it.
        choices: The allowed words of a ``choice``; of other types, words allowed beside their values.
        internal: Set by the package itself and not by people.
    """

    name: str
    default: str
    type: str
    doc: str
    minimum: str = ""
    maximum: str = ""
    choices: tuple[str, ...] = ()
    internal: bool = False

    @property
    def key(self) -> str:
        """The whole configuration key."""
        return PREFIX + self.name

    @property
    def python_name(self) -> str:
        """The keyword argument of :func:`configure`: ``group_commit_max_wait``."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.name.replace(".", "_")).lower()

    @property
    def allowed(self) -> str:
        """What is allowed, for messages and documentation."""
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
        """Reads a value, whoever wrote it.

        Args:
            value: Text as in a configuration; or a bool, a number (bytes, or a plain number) or a ``timedelta``.

        Returns:
            Bytes and milliseconds as int; otherwise what the type's name says.

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
        highest = self._number(self.maximum) or _MAX_SIGNED
        if number is None or not lowest <= number <= highest:
            self.refuse(value)
        return number

    def render(self, value: object) -> str:
        """Returns a value as it is written in a configuration, after checking it."""
        self.parse(value)
        return self._text(value)

    def refuse(self, value: object, allowed: str | None = None) -> NoReturn:
        """Raises PSS_INVALID_OPTION for this option."""
        parameters = {"key": self.key, "value": value, "allowed": allowed or self.allowed}
        raise StateStoreFilesError("PSS_INVALID_OPTION", parameters)

    def _text(self, value: object) -> str:
        if isinstance(value, bool):
            # True is an int to Python; to a size or a count it is a mistake.
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
        "A merged file that has grown beyond this is sealed, and another one begun.",
        minimum="64k",
    ),
    Option(
        "maxOpenFiles",
        "4",
        "integer",
        "How many merged files a process appends to at a time, per checkpoint.",
        minimum="1",
        maximum="64",
    ),
    Option(
        "maxSpaceAmplification",
        "2.0",
        "number",
        "How many bytes may lie on disk per live byte of a checkpoint before files are sealed early and rewritten.",
        minimum="1.05",
        maximum="1000",
    ),
    Option(
        "compaction.enabled",
        "true",
        "boolean",
        "Whether executors move live segments out of files above maxSpaceAmplification, while Spark does maintenance.",
    ),
    Option(
        "flush",
        "hflush",
        "choice",
        "What makes a group durable where the file system can do both: hflush (in the memory of the replicas) or hsync "
        "(on their disks).",
        choices=("hflush", "hsync"),
    ),
    Option(
        "groupCommit.maxWait",
        "auto",
        "duration",
        "How long a commit waits for others to share its flush; auto is 0 where hflush works and 10ms elsewhere.",
        choices=("auto",),
    ),
    Option(
        "idleSeal",
        "60s",
        "duration",
        "A merged file that nothing was appended to for this long is sealed.",
        minimum="1s",
    ),
    Option(
        "closedAfter",
        "10m",
        "duration",
        "An unsealed merged file that has not changed for this long is taken for closed: its writer is dead. At least "
        "five times idleSeal.",
        minimum="1s",
    ),
    Option(
        "bufferMemory",
        "8m",
        "bytes",
        "How much of a file that is being written is kept in memory before the rest goes to a local spill file.",
    ),
    Option(
        "readParallelism",
        "8",
        "integer",
        "How many ranges are read at a time when a state store is loaded.",
        minimum="1",
        maximum="256",
    ),
    Option(
        "verifyChecksums",
        "true",
        "boolean",
        "Whether segments that are read whole are checked against their crc32c.",
    ),
    Option(
        "heap.copyOnWrite",
        "true",
        "boolean",
        "Whether versions of a heap store share the rows that did not change between them, instead of being copies.",
    ),
    Option(
        "fileManagerClass",
        "",
        "string",
        "The user's own checkpointFileManagerClass, used for everything that is not state.",
        internal=True,
    ),
    Option(
        "shimVersion",
        "",
        "string",
        "The Python package's version, which the jar refuses if it is not its own.",
        internal=True,
    ),
)

OPTIONS: Mapping[str, Option] = MappingProxyType({option.name: option for option in _DECLARED})
"""Every option by its name below :data:`PREFIX`."""

_BY_PYTHON_NAME = {option.python_name: option for option in _DECLARED if not option.internal}


def settings_of(options: Mapping[str, object]) -> dict[str, str]:
    """Turns keyword arguments into Spark settings.

    Args:
        options: As given to ``configure``: ``max_file_size="128m"``.

    Returns:
        Values by whole configuration key.

    Raises:
        StateStoreFilesError: PSS_UNKNOWN_OPTION or PSS_INVALID_OPTION.
    """
    settings = {}
    for name, value in options.items():
        option = _BY_PYTHON_NAME.get(name)
        if option is None:
            raise _unknown(name, _BY_PYTHON_NAME)
        settings[option.key] = option.render(value)
    return settings


def check_settings(settings: Mapping[str, object]) -> None:
    """Checks every setting below :data:`PREFIX`, each for itself and those that depend on each other.

    Args:
        settings: Any Spark settings by whole key; what is not below the prefix is left alone.

    Raises:
        StateStoreFilesError: PSS_UNKNOWN_OPTION or PSS_INVALID_OPTION.
    """
    given = {key.removeprefix(PREFIX): value for key, value in settings.items() if key.startswith(PREFIX)}
    for name, value in given.items():
        if name not in OPTIONS:
            raise _unknown(name, OPTIONS)
        OPTIONS[name].parse(value)
    idle, closed = (OPTIONS[name].parse(given.get(name, OPTIONS[name].default)) for name in ("idleSeal", "closedAfter"))
    assert isinstance(idle, int)
    assert isinstance(closed, int)
    if closed < IDLE_SEAL_FACTOR * idle:
        option = OPTIONS["closedAfter"]
        lowest = f"at least {IDLE_SEAL_FACTOR} times {OPTIONS['idleSeal'].key}, here {IDLE_SEAL_FACTOR * idle}ms"
        option.refuse(given.get("closedAfter", option.default), lowest)


def _unknown(name: str, known: Mapping[str, Option]) -> StateStoreFilesError:
    import difflib

    public = [candidate for candidate, option in known.items() if not option.internal]
    close = difflib.get_close_matches(name, public, n=1)
    hint = f"Did you mean {close[0]}?" if close else f"There are: {', '.join(public)}."
    return StateStoreFilesError("PSS_UNKNOWN_OPTION", {"key": name, "hint": hint})


CLOSED_AFTER = timedelta(milliseconds=int(OPTIONS["closedAfter"].parse(OPTIONS["closedAfter"].default)))
"""Default of the option ``closedAfter``."""
