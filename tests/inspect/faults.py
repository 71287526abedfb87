"""Takes one file away from a checkpoint's state, or a part of it, however the file is kept."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pyspark_statestore.format import Kind, MergedFileWriter
from tests.inspect.builders import merged_file
from tests.jvm.harness import View
from tests.streaming.runs import plain_state_files

_VERSION = re.compile(r"(?P<folder>.*)/(?P<version>\d+)(?:_(?P<id>[^./]+))?\.(?P<kind>changelog|delta|zip|snapshot)")


@dataclass(frozen=True)
class StateFile:
    """A file that a version consists of.

    Attributes:
        path: Relative to ``state/``.
        folder: Of its store.
        version: In its name.
        kind: Its extension.
        data: Its bytes.
    """

    path: str
    folder: str
    version: int
    kind: str
    data: bytes


def contents(checkpoint: Path) -> dict[str, bytes]:
    """All live state files, merged and plain, by path."""
    state = checkpoint / "state"
    found = {path: (state / path).read_bytes() for path in plain_state_files(checkpoint)}
    if (state / "_merged").exists():
        found |= View.of(state).contents()
    return found


def state_files(checkpoint: Path) -> list[StateFile]:
    """Those that versions consist of."""
    found = []
    for path, data in sorted(contents(checkpoint).items()):
        if name := _VERSION.fullmatch(path):
            found.append(StateFile(path, name["folder"], int(name["version"]), name["kind"], data))
    return found


def broken_copy(checkpoint: Path, paths: Iterable[str], how: str) -> Path:
    """A copy of a checkpoint without some files.

    Args:
        checkpoint: It stays as it is.
        paths: Of the files, relative to ``state/``.
        how: ``delete`` them (by a tombstone where they are merged), ``cut`` plain ones in half, or ``unlink`` the
            merged files that hold them, after all else in these was copied.
    """
    copy = checkpoint.parent / f"copy-{len(list(checkpoint.parent.glob('copy-*')))}"
    shutil.copytree(checkpoint, copy)
    for number, path in enumerate(paths):
        plain = copy / "state" / path
        if not plain.exists():
            _break_merged(copy, path, how, number)
        elif how == "cut":
            plain.write_bytes(plain.read_bytes()[: plain.stat().st_size // 2])
            plain.with_name(f".{plain.name}.crc").unlink(missing_ok=True)  # Hadoop's own, of the local file system
        else:
            plain.unlink()
    return copy


def _break_merged(copy: Path, path: str, how: str, number: int) -> None:
    assert how in ("delete", "unlink"), how
    view = View.of(copy / "state")
    name, entry = view.live[path]
    with merged_file(copy, 900 + number, writer=99) as file:
        if how == "delete":
            file.delete(path, stamp=entry.stamp, writer=entry.writer)
        else:
            _copy_all_but(path, name, view, view.contents(), file)
    if how == "unlink":
        (copy / "state" / "_merged" / name).unlink()


def _copy_all_but(path: str, name: str, view: View, data: dict[str, bytes], file: MergedFileWriter) -> None:
    for entry in view.files[name]:
        if entry.kind is Kind.DELETE:
            file.delete(entry.path, stamp=entry.stamp, writer=entry.writer)
        elif entry.path != path and view.live.get(entry.path) == (name, entry):
            copied = data[entry.path]
            file.put(entry.path, copied, stamp=entry.stamp, writer=entry.writer, generation=entry.generation + 1)
