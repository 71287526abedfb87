"""What can happen to the bytes of merged files, by seed; and what of it looks like a crash."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark_statestore.format import BytesSource, parse_file_name
from pyspark_statestore.format.layout import HEADER_MAGIC, TRAILER_SIZE
from pyspark_statestore.format.reader import read_groups

Change = Callable[[random.Random, str, bytes], tuple[bytes, str]]
"""From a file's name and bytes to other bytes, and what was done."""


@dataclass(frozen=True)
class Attack:
    """One change.

    Attributes:
        kind: What it is counted as.
        what: What was done, for people.
        damaged: The files that have other bytes now; of those that were not there before, too.
        originals: Of the files that were there, their bytes.
    """

    kind: str
    what: str
    damaged: Mapping[str, bytes]
    originals: Mapping[str, bytes] = field(repr=False)

    def carry_out(self, root: Path, write: Callable[[Path, bytes], None]) -> None:
        """Damages the files below a directory."""
        for name, data in self.damaged.items():
            write(root / name, data)

    def undo(self, root: Path, write: Callable[[Path, bytes], None]) -> None:
        """Puts the originals back, as our messages advise."""
        for name, data in self.originals.items():
            write(root / name, data)

    def looks_like_a_crash(self, flushed: frozenset[str]) -> bool:
        """Whether a killed writer or machine could have left the same bytes, so that nobody can tell.

        Args:
            flushed: Files that were written flush by flush.
        """
        return all(
            name in self.originals and torn(self.originals[name], data, name in flushed)
            for name, data in self.damaged.items()
        )


def torn(original: bytes, data: bytes, flushed: bool) -> bool:
    """Whether bytes are a beginning of a file, and perhaps zeros up to where it ended.

    What appears only whole says so in its header: it is told from a torn file while that is there.
    """
    start = data.rstrip(b"\0")
    if len(data) > len(original) or not original.startswith(start):
        return _unfinished(original, data, flushed)
    return flushed or len(start) < header_length(original)


def _unfinished(original: bytes, data: bytes, flushed: bool) -> bool:
    """Whether a header, or what is the last group now, is too short and has no end: so has the beginning of one.

    Bytes that were cut out of the middle leave such ones; where the trailer is whole, it is in a wrong place.
    """
    if data.startswith(HEADER_MAGIC) and len(data) < header_length(original):
        return True
    if not flushed or len(data) >= len(original) or data.endswith(original[-TRAILER_SIZE:]):
        return False
    start = header_length(original)
    for group in reversed(list(read_groups(BytesSource(original))[1])):
        if data[: group.end] != original[: group.end]:
            return data[:start] == original[:start] and len(data) < group.end
        start = group.end
    return False


def header_length(data: bytes) -> int:
    """Of an intact merged file; 0 for another file."""
    return int.from_bytes(data[8:12], "little") if data.startswith(b"PSSMERG") else 0


def regions(name: str, data: bytes) -> dict[str, list[range]]:
    """Where the parts of an intact file are."""
    if not name.endswith(".merged"):
        return {"pin": [range(len(data))]}
    header, groups = read_groups(BytesSource(data), name)
    assert header is not None
    found: dict[str, list[range]] = {"header": [range(header.length)]}
    ends = [header.length]
    for group in groups:
        index, trailer = group.trailer.index_offset, group.trailer_offset
        kind = "seal" if group.trailer.sealed else "trailer"
        found.setdefault("index", []).append(range(index, trailer))
        found.setdefault(kind, []).append(range(trailer, trailer + TRAILER_SIZE))
        ends.extend((index, trailer + TRAILER_SIZE))
    ends.sort()
    found["payload"] = [range(ends[at], ends[at + 1]) for at in range(0, len(ends) - 1, 2)]
    return {kind: some for kind, all_of in found.items() if (some := [each for each in all_of if each])}


def flip(random: random.Random, name: str, data: bytes) -> tuple[bytes, str]:
    """One bit, in each part of a file as often."""
    parts = regions(name, data)
    part = random.choice(sorted(parts))
    at = random.choice(random.choice(parts[part]))
    bit = random.randrange(8)
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return bytes(changed), f"bit {bit} of byte {at}, in the {part}"


def truncate(random: random.Random, name: str, data: bytes) -> tuple[bytes, str]:
    """Anywhere; as often near the end, where the last trailer is."""
    least = random.choice([0, max(0, len(data) - 200)])
    length = random.randrange(least, len(data))
    return data[:length], f"cut off at byte {length} of {len(data)}"


def zero_block(random: random.Random, name: str, data: bytes) -> tuple[bytes, str]:
    """A sector, or a page."""
    block = random.choice([512, 4096])
    start = random.randrange(0, len(data), block)
    end = min(len(data), start + block)
    return data[:start] + bytes(end - start) + data[end:], f"zeros from byte {start} to {end} of {len(data)}"


def zero_tail(random: random.Random, name: str, data: bytes) -> tuple[bytes, str]:
    """What a power cut leaves."""
    start = random.randrange(len(data))
    return data[:start] + bytes(len(data) - start), f"zeros from byte {start} of {len(data)} to the end"


def cut_out(random: random.Random, name: str, data: bytes) -> tuple[bytes, str]:
    """Bytes that are missing in the middle."""
    start = random.randrange(len(data) - 1)
    length = min(random.choice([1, 8, 64, 512, 1000]), len(data) - start - 1)
    return data[:start] + data[start + length :], f"bytes {start} to {start + length} of {len(data)} cut out"


def twice(random: random.Random, name: str, data: bytes) -> tuple[bytes, str]:
    """A copy that was appended."""
    return data + data, "its bytes twice"


CHANGES: Mapping[str, Change] = {
    "bit flip": flip,
    "truncation": truncate,
    "zeroed block": zero_block,
    "zeroed tail": zero_tail,
    "cut": cut_out,
    "doubled bytes": twice,
}
KINDS = (*CHANGES, "swapped", "doubled")
# A bit has more places to flip than a file has to be doubled.
_WEIGHTS = (8, 4, 4, 2, 4, 1, 1, 1)


def choose(random: random.Random, files: Mapping[str, bytes], targets: list[str]) -> Attack:
    """An attack that changes something.

    Args:
        random: Decides.
        files: All that there are.
        targets: Names of those that can be attacked.
    """
    while True:
        [kind] = random.choices(KINDS, _WEIGHTS)
        name = random.choice(targets)
        if kind == "swapped":
            damaged, what = _swapped(random, files, name, targets)
        elif kind == "doubled":
            damaged, what = _doubled(random, files, name)
        else:
            data, done = CHANGES[kind](random, name, files[name])
            damaged, what = {name: data}, f"{name}: {done}"
        if any(files.get(each) != data for each, data in damaged.items()):
            return Attack(kind, what, damaged, {each: files[each] for each in damaged if each in files})


def _swapped(
    random: random.Random, files: Mapping[str, bytes], name: str, targets: list[str]
) -> tuple[dict[str, bytes], str]:
    # Of one checkpoint: nobody can tell whose a whole file is.
    folder, ending = name.rpartition("/")[0], name.rpartition(".")[2]
    other = random.choice([each for each in targets if each.startswith(f"{folder}/") and each.endswith(ending)])
    return {name: files[other], other: files[name]}, f"{name} and {other} exchanged"


def _doubled(random: random.Random, files: Mapping[str, bytes], name: str) -> tuple[dict[str, bytes], str]:
    """Another valid name, which sorts before the file's own or after it, of its writer or of another one."""
    folder, _, base = name.rpartition("/")
    created, writer, rest = base.split("-")
    created = f"{int(created) + random.choice([-5, 0, 5]):013}"
    writer = random.choice([writer, f"{random.getrandbits(63):016x}"])
    copy = f"{folder}/{created}-{writer}-{int(rest.partition('.')[0]) + 500}.{rest.partition('.')[2]}"
    assert not copy.endswith(".merged") or parse_file_name(copy.rpartition("/")[2])
    return {copy: files[name]}, f"{name} copied to {copy}"
