"""A short life of a checkpoint, and a plain dictionary of what has to be in it, whatever fails on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark_statestore.format import Kind
from tests.jvm.harness import View

Step = dict[str, Any]
KIB = 1024


def write(path: str, token: str, kib: int) -> Step:
    """A task commits a file."""
    return {"do": "write", "path": path, "token": token, "size": kib * KIB}


def stage(path: str, token: str, kib: int) -> Step:
    """An SST is uploaded; it is seen with the next zip of its store."""
    return {"do": "stage", "path": path, "token": token, "size": kib * KIB}


def changelog(partition: int, version: int, kib: int, token: str = "v") -> Step:
    """A partition commits a version."""
    return write(f"0/{partition}/{version}.changelog", f"{token}{partition}.{version}", kib)


def delete(*paths: str) -> list[Step]:
    """Spark deletes files."""
    return [{"do": "delete", "path": path} for path in paths]


def read(*paths: str) -> list[Step]:
    """A load."""
    return [{"do": "read", "path": path} for path in paths]


def listing(directory: str) -> Step:
    """The question for a store's versions."""
    return {"do": "list", "path": directory}


CLEAN: Step = {"do": "clean"}
SEAL: Step = {"do": "seal"}
HEAL: Step = {"do": "heal"}

LIFE: list[Step] = [
    # More than one file of 64 KiB, and a live segment in each that outlives its neighbours.
    changelog(0, 1, 30),
    changelog(1, 1, 24),
    changelog(0, 2, 20),
    *delete("0/0/1.changelog"),
    changelog(0, 3, 30),
    CLEAN,
    *delete("0/1/1.changelog"),
    changelog(1, 2, 30),
    # Relocation, and a deletion whose tombstone has to be written for it.
    *delete("0/0/3.changelog"),
    CLEAN,
    # A snapshot; its second one keeps an SST of the first.
    stage("0/0/SSTs/one.sst", "one", 8),
    stage("0/0/SSTs/two.sst", "two", 8),
    write("0/0/3.zip", "zip3", 2),
    *read("0/0/3.zip", "0/0/SSTs/one.sst", "0/0/2.changelog"),
    stage("0/0/SSTs/three.sst", "three", 40),
    write("0/0/4.zip", "zip4", 2),
    *delete("0/0/3.zip", "0/0/SSTs/one.sst", "0/0/2.changelog"),
    {"do": "together", "writes": [changelog(p, 3, 6, "t") for p in (0, 1, 2)]},
    CLEAN,
    # Written anew, as by a task that is tried again; the old one is in a file with live neighbours.
    changelog(1, 3, 12, "again"),
    changelog(1, 4, 40),
    *delete("0/1/2.changelog"),
    CLEAN,
    listing("0/1"),
    *read("0/0/4.zip", "0/0/SSTs/two.sst", "0/0/SSTs/three.sst", "0/1/3.changelog"),
    *delete("0/1/4.changelog"),
    SEAL,
    changelog(2, 4, 4),
    CLEAN,
    # What could not be deleted is deleted now.
    HEAL,
    CLEAN,
    CLEAN,
]
"""Small and large files, deletes, cleaning with relocation, snapshots, group commits, seals."""

OPTIONS = {
    "maxFileSize": "64k",
    "maxSpaceAmplification": "1.1",
    "groupCommit.maxWait": "0ms",
}


def leftovers(view: View) -> list[str]:
    """Sealed files that hold nothing that anybody needs: neither data, nor a tombstone, nor the highest stamp."""
    live = {name for name, _ in view.live.values()}
    puts = [(name, entry) for name, file in view.files.items() for entry in file if entry.kind is Kind.PUT]
    needed = {
        name
        for name, file in view.files.items()
        for tombstone in file
        if tombstone.kind is Kind.DELETE
        for other, entry in puts
        if other != name and entry.path == tombstone.path and entry.key <= tombstone.key
    }
    newest = max(view.files, key=lambda name: max((g.trailer.group_stamp for g in view.files[name].groups), default=0))
    return [name for name, file in view.files.items() if file.sealed and name not in live | needed | {newest}]


def paths_of(script: Iterable[Step]) -> list[str]:
    """All logical files that a script knows."""
    found = {}
    for step in script:
        for each in step.get("writes", [step]):
            if each["do"] in ("write", "stage", "delete"):
                found[each["path"]] = True
    return list(found)


def described(step: Step) -> str:
    """What reading the file says, as ``FaultScript`` puts it."""
    return f"{step['token']}:{step['size']}"


def describe(data: bytes) -> str:
    """The same of a file's bytes."""
    token = data.split(b" ", 1)[0]
    unit = token + b" "
    same = (unit * (len(data) // len(unit) + 1))[: len(data)] == data
    return f"{token.decode()}:{len(data)}" if same else f"garbage {data[:40]!r}"


@dataclass
class Model:
    """What may be in a checkpoint after the steps so far.

    Attributes:
        possible: By path the contents that it may have, None for no file. More than one after an error, which may hide
            a success, and after a deletion that is not yet known to be durable.
        blind: A listing lied: what a step saw in which that happened says nothing.
    """

    blind: bool = False
    possible: dict[str, set[str | None]] = field(default_factory=dict)
    _pending: set[str] = field(default_factory=set)
    _staged: dict[str, str] = field(default_factory=dict)
    _snapshots: dict[tuple[str, str], list[tuple[str, str]]] = field(default_factory=dict)

    def of(self, path: str) -> set[str | None]:
        """What a process that has lived through all may see."""
        return {None} if path in self._pending else self.possible.get(path, {None})

    def follow(self, script: Iterable[Step], results: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        """Takes in what was done, and says what is wrong with how it went."""
        for number, (step, result) in enumerate(zip(script, results, strict=True)):
            told = f"step {number} {step['do']} {step.get('path', '')}"
            for problem in self._step(step, result):
                yield f"{told}: {problem}"

    def _step(self, step: Step, result: Mapping[str, Any]) -> Iterator[str]:
        if "stuck" in result:
            yield f"hangs: {result['stuck']}"
            return
        if "the task's own" in result.get("outlived_kill", ""):
            yield f"outlives its kill: {result['outlived_kill']}"
        errors = [error for error in [result.get("error"), *result.get("errors", [])] if error]
        if errors and not result["fired"]:
            yield f"fails without a fault of its own: {errors}"
        for error in errors:
            if not any(word in error for word in ("PSS_", "injected fault", "Interrupt", "leaves out")):
                yield f"an unclear error: {error}"
        handle = getattr(self, f"_{step['do']}", None)
        if handle is not None:
            yield from handle(step, result) or ()

    def _write(self, step: Step, result: Mapping[str, Any]) -> Iterator[str]:
        path, error = step["path"], result.get("error")
        opens = error and any(f"in {call} of" in error for call in ("listStatus", "open", "read"))
        if error and not opens and "PSS_WRITE_FAILED" not in error and "Interrupt" not in error:
            yield f"no PSS_WRITE_FAILED: {error}"
        new = [(path, described(step))]
        if path.endswith(".zip"):
            store = path.rsplit("/", 1)[0]
            companions = [(p, v) for p, v in self._staged.items() if p.startswith(store)]
            new += companions
            self._snapshots[new[0]] = companions
            if not error:
                self._staged = {}
        for each, content in new:
            self.possible[each] = {content} if not error else self.possible.get(each, {None}) | {content}
            self._pending.discard(each)
        if not error:
            self._settle()

    def _settle(self) -> None:
        """A group has become durable, and what was deleted before it."""
        for path in self._pending:
            self.possible[path] = {None}
        self._pending.clear()

    def _together(self, step: Step, result: Mapping[str, Any]) -> Iterator[str]:
        failed = result.get("errors") or [result.get("error") or "never begun"] * len(step["writes"])
        for each, error in zip(step["writes"], failed, strict=True):
            yield from self._write(each, {"error": error})

    def _stage(self, step: Step, result: Mapping[str, Any]) -> None:
        self._staged[step["path"]] = described(step)

    def _delete(self, step: Step, result: Mapping[str, Any]) -> Iterator[str]:
        path = step["path"]
        was = self.of(path)
        if "error" in result or self._is_blind(result):
            self.possible[path] = was | {None}
            return
        if result["value"] not in {content is not None for content in was}:
            yield f"says {result['value']}, of {was}"
        self.possible[path] = self.possible.get(path, {None}) | {None}
        self._pending.add(path)

    def _is_blind(self, result: Mapping[str, Any]) -> bool:
        return self.blind and result["fired"] > 0

    def _read(self, step: Step, result: Mapping[str, Any]) -> Iterator[str]:
        if "error" in result or self._is_blind(result):
            return
        path, value = step["path"], result["value"]
        if value not in self.of(path):
            yield f"reads {value} instead of {self.of(path)}"
        elif path not in self._pending:
            # What was seen once stays.
            self.possible[path] = {value}

    def _list(self, step: Step, result: Mapping[str, Any]) -> Iterator[str]:
        if "error" in result or self._is_blind(result):
            return
        shown = set(result["value"].strip("[]").split(", ")) - {""}
        for path in self.possible:
            directory, name = path.rsplit("/", 1)
            if directory == step["path"] and (name in shown) not in {c is not None for c in self.of(path)}:
                yield f"shows {sorted(shown)}, while {path} is one of {self.of(path)}"

    def compare(self, found: Mapping[str, bytes]) -> Iterator[str]:
        """Compares with what was read afresh, which from now on is what there must be."""
        contents = {path: describe(data) for path, data in found.items()}
        for path in sorted({*contents, *self.possible}):
            if contents.get(path) not in self.possible.get(path, {None}):
                yield f"{path} is {contents.get(path)} instead of {self.possible.get(path)}"
        for (zip_path, content), companions in self._snapshots.items():
            if contents.get(zip_path) == content:
                for path, companion in companions:
                    if contents.get(path) != companion and None not in self.possible[path]:
                        yield f"{zip_path} is there, but {path} of its group is {contents.get(path)}"
        self.possible = {path: {contents.get(path)} for path in {*contents, *self.possible}}
        self._pending = set()
