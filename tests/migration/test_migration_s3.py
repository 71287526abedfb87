"""The ways in and out on a server that speaks S3, where nothing is renamed and a file appears when it is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyspark_statestore import Checkpoint, StateStoreFilesError

pytest.importorskip("moto.server", reason="moto[server] is not installed", exc_type=ImportError)
pytest.importorskip("s3fs", reason="s3fs is not installed", exc_type=ImportError)

from tests.inspect.test_s3 import BUCKET, Server, server, upload
from tests.migration.builders import MERGED, NOW, STOCK, make, markers, plain_state, providers, state_of_merged

__all__ = ["server"]


def downloaded(server: Server, name: str, to: Path) -> Path:
    """A copy of what is there on the local disk."""
    import fsspec

    fs = fsspec.filesystem("s3", **server.options)
    fs.invalidate_cache()
    top = f"{BUCKET}/{name}/"
    for path in fs.find(top):
        file = to / path.removeprefix(top)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(fs.cat_file(path))
    return to


def test_there_and_back(server: Server, tmp_path: Path) -> None:
    local = make(tmp_path / "local")
    before = state_of_merged(local)
    checkpoint = Checkpoint(upload(server, local, "migrated"), server.options, closed_after=NOW)

    checkpoint.export(f"s3://{BUCKET}/exported")
    new = downloaded(server, "exported", tmp_path / "new")
    assert plain_state(new) == before
    assert set(providers(new)) == {STOCK}
    assert (new / "metadata").read_bytes() == (local / "metadata").read_bytes()
    with pytest.raises(StateStoreFilesError, match="PSS_DESTINATION_EXISTS"):
        checkpoint.export(f"s3a://{BUCKET}/exported")

    checkpoint.export()
    exported = downloaded(server, "migrated", tmp_path / "exported")
    assert plain_state(exported) == before
    assert (markers(exported), set(providers(exported))) == ([".exported"], {STOCK})

    checkpoint.convert("merged")
    back = downloaded(server, "migrated", tmp_path / "back")
    assert (markers(back), set(providers(back)), plain_state(back)) == ([], {MERGED}, {})

    checkpoint.export()
    assert checkpoint.drop_merged(dry_run=False).removed_files_count == 4
    dropped = downloaded(server, "migrated", tmp_path / "dropped")
    assert plain_state(dropped) == before
    assert not (dropped / "state" / "_merged").exists()
