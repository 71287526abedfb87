"""Rule 10: merged and real files side by side, in listings, reads and deletes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.jvm.harness import Checkpoint, java_error

pytestmark = pytest.mark.spark


def put_plain(checkpoint: Checkpoint, relative: str, data: bytes) -> None:
    path = checkpoint.state / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


@pytest.fixture
def mixed(checkpoint: Checkpoint) -> Checkpoint:
    """A checkpoint that stock Spark began and that goes on merged."""
    put_plain(checkpoint, "0/0/1.changelog", b"plain 1")
    put_plain(checkpoint, "0/0/2.changelog", b"plain 2")
    put_plain(checkpoint, "0/0/_metadata/schema", b"a schema")
    checkpoint.write("0/0/2.changelog", b"merged 2")
    checkpoint.write("0/0/3.changelog", b"merged 3")
    return checkpoint


def test_listings_show_both(mixed: Checkpoint) -> None:
    assert mixed.names("0/0") == ["1.changelog", "2.changelog", "3.changelog", "_metadata"]
    statuses = {status.getPath().getName(): status for status in mixed.fs.listStatus(mixed.path("0/0"))}
    assert [statuses[f"{n}.changelog"].getLen() for n in (1, 2, 3)] == [7, 8, 8]
    assert statuses["_metadata"].isDirectory()
    assert {status.getPath().toUri().getScheme() for status in statuses.values()} == {"merged+file"}
    assert mixed.names("0") == ["0"]
    assert not [path for path in mixed.state.rglob("*.crc") if "_merged" in path.parts]


def test_what_the_index_does_not_know_is_read_where_it_is(mixed: Checkpoint) -> None:
    assert [mixed.read(f"0/0/{n}.changelog") for n in (1, 2, 3)] == [b"plain 1", b"merged 2", b"merged 3"]
    assert mixed.read("0/0/_metadata/schema") == b"a schema"
    mixed.forget()
    assert [mixed.read(f"0/0/{n}.changelog") for n in (1, 2, 3)] == [b"plain 1", b"merged 2", b"merged 3"]
    with java_error("FileNotFound", "4.changelog"):
        mixed.read("0/0/4.changelog")


def test_deletes_reach_real_files(mixed: Checkpoint) -> None:
    for number in (1, 2, 3):
        assert mixed.delete(f"0/0/{number}.changelog")
        assert not mixed.exists(f"0/0/{number}.changelog")
    assert not mixed.delete("0/0/1.changelog")

    assert not (mixed.state / "0/0/1.changelog").exists()
    assert not (mixed.state / "0/0/2.changelog").exists()
    assert mixed.names("0/0") == ["_metadata"]
    mixed.log.seal()
    mixed.forget()
    assert mixed.names("0/0") == ["_metadata"]


def test_what_is_not_state_goes_to_the_file_system_below(checkpoint: Checkpoint, jvm: Any) -> None:
    for relative in ("../offsets/0", "../commits/0", "../metadata", "0/_metadata/metadata", "0/0/_metadata/schema"):
        checkpoint.write(relative, b"real")
        assert (checkpoint.state / relative).resolve().read_bytes() == b"real"
        assert checkpoint.read(relative) == b"real"
    old, new = (jvm.org.apache.hadoop.fs.Path(f"merged+file:{checkpoint.directory}/offsets/{n}") for n in (0, 1))
    assert checkpoint.fs.rename(old, new)
    assert (checkpoint.directory / "offsets/1").read_bytes() == b"real"
    assert not checkpoint.merged.exists()


def test_directories_of_merged_files_are_seen(checkpoint: Checkpoint) -> None:
    checkpoint.write("0/3/left-keyToNumValues/1.changelog")
    checkpoint.write("0/12/1.changelog")
    checkpoint.write("1/0/1.changelog")

    assert checkpoint.names("0") == ["12", "3"]
    assert checkpoint.names("0/3") == ["left-keyToNumValues"]
    assert checkpoint.exists("0/3")
    assert checkpoint.fs.getFileStatus(checkpoint.path("0/3/left-keyToNumValues")).isDirectory()
    assert not checkpoint.exists("0/3/left")
    assert not checkpoint.exists("0/1")


@pytest.mark.parametrize("directory", ["0/3", "0"])
def test_a_directory_is_deleted_with_all_below(checkpoint: Checkpoint, directory: str) -> None:
    checkpoint.write("0/3/left/1.changelog")
    checkpoint.write("0/3/2.changelog")
    checkpoint.write("0/33/1.changelog")
    checkpoint.write("1/0/1.changelog")
    with java_error("not empty"):
        checkpoint.fs.delete(checkpoint.path("0/3"), False)

    assert checkpoint.fs.delete(checkpoint.path(directory), True)

    assert not checkpoint.exists("0/3/left/1.changelog")
    assert not checkpoint.exists("0/3/2.changelog")
    checkpoint.log.seal()
    left = {"0/33/1.changelog", "1/0/1.changelog"} if directory == "0/3" else {"1/0/1.changelog"}
    assert checkpoint.view().live.keys() == left


def test_a_state_file_can_be_renamed_and_not_appended_to(checkpoint: Checkpoint) -> None:
    checkpoint.write("0/0/1.delta", b"one")
    assert checkpoint.fs.rename(checkpoint.path("0/0/1.delta"), checkpoint.path("0/0/2.delta"))
    assert checkpoint.read("0/0/2.delta") == b"one"
    assert not checkpoint.exists("0/0/1.delta")
    checkpoint.write("0/0/3.delta", b"three")
    assert not checkpoint.fs.rename(checkpoint.path("0/0/3.delta"), checkpoint.path("0/0/2.delta"))
    with java_error("cannot be appended to"):
        checkpoint.fs.append(checkpoint.path("0/0/2.delta"))


def test_a_checkpoint_below_a_directory_called_state(new_checkpoint: Callable[..., Checkpoint]) -> None:
    checkpoint = new_checkpoint(name="state/0/0/checkpoint")
    checkpoint.write("2/5/1.delta", b"x")

    assert checkpoint.view().live.keys() == {"2/5/1.delta"}
    assert checkpoint.read("2/5/1.delta") == b"x"


def test_another_file_manager_renames_its_temporary_files(checkpoint: Checkpoint) -> None:
    """Where Spark's own is set: it writes under another name. The checkpoint was merged from its first batch on."""
    checkpoint.write("0/0/1.changelog", b"merged 1")
    checkpoint.forget()
    put_plain(checkpoint, "0/0/.2.changelog.8f3a.tmp", b"merged 2")
    assert checkpoint.fs.rename(checkpoint.path("0/0/.2.changelog.8f3a.tmp"), checkpoint.path("0/0/2.changelog"))
    assert checkpoint.contents()["0/0/2.changelog"] == b"merged 2"
    assert not (checkpoint.state / "0/0/.2.changelog.8f3a.tmp").exists()
