"""Pins: the small files that a fork leaves in its source, so that nobody there unlinks the files that it reads.

A pin lies in the source's ``state/_merged/``, with the ending ``.fork``, and names the fork and the files. An empty pin
belongs to a fork that is just being made, and pins every file. So does a pin that cannot be understood (rule 8).

A checkpoint whose partitions were split has pins of its own, with the ending ``.own``: segments of these files have
second paths, which no count of what lives in the files knows. Such a pin names no fork, so it stays true when the
checkpoint is moved or copied. It goes once no second path needs its files (:mod:`~pyspark_statestore.maintenance`).

Why a cleaner that lists the pins last is safe: a fork makes its empty pin before it looks at the source, and replaces
it by the one that names files before it deletes it. If no pin keeps a file in a listing that begins after the cleaner's
snapshot, a later fork looks later than that, and sees that nothing in the file lives. docs/format.md says what is in a
pin.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.format import name_ending, parse_file_name
from pyspark_statestore.format.checksum import crc32c
from pyspark_statestore.log import pinned
from pyspark_statestore.log.scan import ATTEMPTS, MERGED, Scan, always_gone, merged_files
from pyspark_statestore.parsing import LONGEST, parse_object, whole_number
from pyspark_statestore.storage import Directory, FileInfo
from pyspark_statestore.storage.changes import delete, write
from pyspark_statestore.storage.directory import in_parallel

PIN_SUFFIX, OWN_SUFFIX = ".fork", ".own"

NO_CLAIM, CLAIM, OWN = "no_claim", "claim", "own"

_MODES = {PIN_SUFFIX: (NO_CLAIM, CLAIM), OWN_SUFFIX: (OWN,)}

ORIGIN_SUFFIX = ".origin"

AWAY_SUFFIX = ".away"
"""After a pin's name: a file that says since when the pin's fork has been looked for in vain."""


@dataclass(frozen=True)
class Pin:
    """What a pin says.

    Attributes:
        name: The name of the pin's file.
        fork: The path of the fork's checkpoint in its file system; empty where the pin does not say, or is no fork's.
        mode: ``no_claim`` or ``claim``; ``own`` where the checkpoint itself needs the files.
        files: Names of the merged files that are pinned; None for all of them.
        created_ms: When the pin was made, in Unix milliseconds.
        damage: Why the pin cannot be understood; empty where it can, or where the pin is empty.
        fork_id: What the fork's origin calls it, too, wherever it is; empty in pins of early builds.
        relative: The fork's path from the checkpoint with the pin: both may be mounted elsewhere. Empty likewise.
    """

    name: str
    fork: str = ""
    mode: str = NO_CLAIM
    files: frozenset[str] | None = field(default=None, repr=False)
    created_ms: int = 0
    damage: str = ""
    fork_id: str = ""
    relative: str = ""

    @property
    def is_begun(self) -> bool:
        """Whether the pin is empty: a fork is being made, or partitions are being split."""
        return self.files is None and not self.damage

    def encode(self) -> bytes:
        """Returns the bytes of the pin's file."""
        if self.files is None:
            return b""
        found = {"fork": self.fork, "mode": self.mode, "files": sorted(self.files), "created_ms": self.created_ms}
        found["crc32c"] = _checksum(self.fork, self.mode, sorted(self.files))
        found |= {key: said for key in ("fork_id", "relative") if (said := getattr(self, key))}
        return json.dumps(found, ensure_ascii=False, indent=0).encode()

    @classmethod
    def decode(cls, name: str, data: bytes) -> Pin:
        """Reads a pin's bytes; what cannot be understood is a pin with :attr:`damage`."""
        if not data:
            return cls(name)
        try:
            found = parse_object(data)
            fork, mode, files, created_ms = (found[key] for key in ("fork", "mode", "files", "created_ms"))
        except (ValueError, KeyError) as error:
            return cls(name, damage=f"it is not what a fork writes ({type(error).__name__}: {error})")
        suffix = OWN_SUFFIX if is_own_pin(name) else PIN_SUFFIX
        if not isinstance(fork, str) or not (fork.startswith("/") if suffix == PIN_SUFFIX else not fork):
            return cls(name, damage="it names a fork" if suffix == OWN_SUFFIX else "it does not name a fork")
        if mode not in _MODES[suffix]:
            return cls(name, damage=f"its mode is {mode!r}, which this release does not know")
        if not isinstance(files, list) or not all(isinstance(each, str) and parse_file_name(each) for each in files):
            return cls(name, damage="what it names are not all merged files")
        if not isinstance(created_ms, int) or isinstance(created_ms, bool):
            return cls(name, damage="it does not say when it was made")
        if "crc32c" in found and found["crc32c"] != _checksum(fork, mode, files):
            return cls(name, damage="its checksum does not match")
        # Where these were damaged, the fork is looked for in vain: that alone lets nothing go for long.
        fork_id, relative = (str(found.get(key) or "") for key in ("fork_id", "relative"))
        return cls(name, fork, mode, frozenset(files), created_ms, fork_id=fork_id, relative=relative)


def is_pin(name: str) -> bool:
    """Whether a file with this name is a pin."""
    return name_ending(name) in _MODES


def is_own_pin(name: str) -> bool:
    """Whether a file with this name is a pin of the checkpoint that it lies in."""
    return is_pin(name) and name.endswith(OWN_SUFFIX)


def write_pin(directory: Directory, pin: Pin) -> None:
    """Makes a pin.

    Raises:
        StateStoreFilesError: PSS_NO_PERMISSION or PSS_WRITE_FAILED.
    """
    write(directory, f"{MERGED}/{pin.name}", pin.encode())


def drop_pin(directory: Directory, name: str) -> bool:
    """Deletes a pin.

    Returns:
        Whether it was there.

    Raises:
        StateStoreFilesError: PSS_NO_PERMISSION or PSS_WRITE_FAILED.
    """
    return delete(directory, f"{MERGED}/{name}")


def pins_among(directory: Directory, others: Mapping[str, FileInfo]) -> tuple[Pin, ...]:
    """Reads the pins of a listing that are still there.

    A fork that lets go of files writes a pin anew under another name. Whoever has to know of all pins lists again.

    Args:
        directory: The source's directory.
        others: What lies beside its merged files, by name.

    Raises:
        StateStoreFilesError: One cannot be read.
    """

    def read(info: FileInfo) -> Pin | None:
        try:
            return _read(directory, info)
        except FileNotFoundError:
            return None

    found = in_parallel(read, _infos(others))
    return tuple(pin for pin in found if pin is not None)


def _all_among(directory: Directory, others: Mapping[str, FileInfo]) -> tuple[Pin, ...]:
    """Reads all pins of a listing; a FileNotFoundError says that one was deleted meanwhile."""
    return tuple(in_parallel(lambda info: _read(directory, info), _infos(others)))


def _infos(others: Mapping[str, FileInfo]) -> list[FileInfo]:
    return [others[name] for name in sorted(others) if is_pin(name)]


def read_pins(directory: Directory) -> tuple[Pin, ...]:
    """Lists and reads the pins of a checkpoint as they are at a moment after the call began.

    Raises:
        StateStoreFilesError: They cannot be listed or read.
    """
    for _ in range(ATTEMPTS):
        try:
            return _all_among(directory, merged_files(directory, all_pins=True)[1])
        except FileNotFoundError:
            continue
    raise always_gone(directory)


def unpinned(
    directory: Directory, names: Iterable[str], expired: Collection[str] = (), released: Collection[str] = ()
) -> tuple[set[str], dict[str, str]]:
    """Lists the pins and tells which files they do not keep: rule 6, see :func:`~pyspark_statestore.log.pinned`.

    To be called after the snapshot on which the unlinking rests.

    Args:
        directory: The checkpoint's directory.
        names: Merged files in which nothing lives.
        expired: Names of empty pins that stand for nothing any more: their forks were never made.
        released: Names of pins that would be dropped before.

    Returns:
        The files that no pin keeps, and why each of the others has to stay.

    Raises:
        StateStoreFilesError: The pins cannot be listed or read.
    """
    free = set(names)
    if not free:
        return free, {}
    pins = {pin.name: pin for pin in read_pins(directory) if pin.name not in released}
    kept = {name: _reason(pin) for name, pin in pinned(free, pins, expired).items()}
    return free.difference(kept), kept


def check_unclaimed(directory: Directory, others: Mapping[str, FileInfo] | None = None) -> None:
    """Refuses to write to a checkpoint whose files belong to a fork.

    Args:
        directory: The checkpoint's directory.
        others: What lies beside its merged files, by name; None to list it.

    Raises:
        StateStoreFilesError: PSS_CLAIMED, or the pins cannot be listed or read.
    """
    try:
        pins = read_pins(directory) if others is None else _all_among(directory, others)
    except FileNotFoundError:  # what takes its place may be a claim
        pins = read_pins(directory)
    for pin in pins:
        if pin.mode == CLAIM:
            raise claimed(directory, pin)


def claimed(directory: Directory, pin: Pin) -> StateStoreFilesError:
    """Makes the error that a checkpoint's files belong to a fork.

    Args:
        directory: The checkpoint's directory.
        pin: The fork's pin there.
    """
    parameters = {"path": directory.location.url, "fork": directory.location.display(pin.fork)}
    parameters["pin"] = directory.location.display(f"{MERGED}/{pin.name}")
    return StateStoreFilesError("PSS_CLAIMED", parameters)


def away_note(pin: str) -> str:
    """The name of the file that says since when the fork of a pin has been away."""
    return pin + AWAY_SUFFIX


def pins_of(pins: Collection[Pin], fork: Directory, origin: Origin | None = None) -> list[Pin]:
    """Returns the pins of the fork that is in a directory.

    Args:
        pins: All pins in its source.
        fork: The fork's checkpoint, whatever path leads to it.
        origin: What it says of itself; None where it says nothing, or is not there. Pins of an earlier fork, which was
            in the same place, are not among its pins.
    """
    theirs = [pin for pin in pins if pin.fork and (origin is None or pin.fork_id == origin.fork_id)]
    return [pin for pin in theirs if fork.location.is_at(pin.fork)]


@dataclass(frozen=True)
class Origin:
    """Where a fork came from.

    Attributes:
        source: The path of the checkpoint that was forked, in its file system.
        url: The same as people wrote it.
        version: The version of the state that the fork began with.
        mode: ``no_claim``, ``claim`` or ``copy``.
        created_ms: When the fork was made, in Unix milliseconds.
        fork_id: What the fork's pins call it, too; empty in forks of early builds.
    """

    source: str
    url: str
    version: int
    mode: str
    created_ms: int
    fork_id: str = ""


def write_origin(directory: Directory, name: str, origin: Origin) -> None:
    """Writes the file that says where a fork came from.

    Raises:
        StateStoreFilesError: PSS_NO_PERMISSION or PSS_WRITE_FAILED.
    """
    write(directory, f"{MERGED}/{name}", json.dumps(asdict(origin), ensure_ascii=False).encode())


def read_origin(directory: Directory, scan: Scan) -> Origin | None:
    """Reads where a fork came from; None where the checkpoint is no fork, or the file is not understood.

    Raises:
        FileNotFoundError: The file is gone.
        StateStoreFilesError: It cannot be read.
    """
    for name, info in scan.others.items():
        if name_ending(name) == ORIGIN_SUFFIX:
            try:
                found = parse_object(directory.read(f"{MERGED}/{name}", info.size))
                source, url, mode = (str(found[key]) for key in ("source", "url", "mode"))
                version, created_ms = (whole_number(found[key], key) for key in ("version", "created_ms"))
                return Origin(source, url, version, mode, created_ms, str(found.get("fork_id") or ""))
            except (ValueError, KeyError):
                return None
    return None


@dataclass(frozen=True)
class ForkInfo:
    """Which checkpoint a checkpoint is a fork of, and how many forks it has.

    Attributes:
        forked_from: The URL of the checkpoint that was forked; None where this one is no fork.
        fork_count: The number of forks that have pinned files here.
    """

    forked_from: str | None
    fork_count: int

    @classmethod
    def of(cls, directory: Directory, scan: Scan) -> ForkInfo:
        """Reads the origin and the pins that a scan has listed.

        Raises:
            FileNotFoundError: The file that names the origin was deleted meanwhile: scan again.
            StateStoreFilesError: One cannot be read.
        """
        origin = read_origin(directory, scan)
        forks = {pin.fork for pin in pins_among(directory, scan.others) if pin.fork}
        return cls(None if origin is None else origin.url, len(forks))


def _checksum(fork: str, mode: str, files: Sequence[str]) -> int:
    """The checksum of what a pin says has to stay; pins of release 0.1 have none."""
    return crc32c("\n".join([fork, mode, *files]).encode("utf-8", "surrogatepass"))


def _read(directory: Directory, info: FileInfo) -> Pin:
    if not info.size:
        return Pin(info.name)
    if info.size > LONGEST:
        return Pin(info.name, damage=f"it has {info.size} bytes")
    return Pin.decode(info.name, directory.read(f"{MERGED}/{info.name}", info.size))


def _reason(pin: Pin) -> str:
    if pin.is_begun:
        return "partitions are being split" if is_own_pin(pin.name) else "a fork is being made"
    if pin.damage:
        return f"the pin {pin.name} cannot be understood: {pin.damage}"
    return f"the fork {pin.fork} needs it" if pin.fork else "partitions that were split need it"
