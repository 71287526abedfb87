"""Copies of what a conversion has replaced: ``_replaced/<time>-<n>.zip`` in the checkpoint."""

from __future__ import annotations

import secrets
import zipfile
from collections.abc import Iterable, Mapping
from io import BytesIO

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.inspect.spark_logs import OFFSETS
from pyspark_statestore.maintenance.site import Site
from pyspark_statestore.migration.offset_log import OffsetEntry
from pyspark_statestore.parsing.zip_files import opened_zip
from pyspark_statestore.storage.directory import Directory
from pyspark_statestore.storage.whole_files import publish

REPLACED = "_replaced"
_UNDONE = "undone"
"""In such a zip, where files are that were taken away: nothing stands in their place."""

_LARGEST = 256 << 20
"""Bytes of the entries of an offset log that are replaced at once."""


def keep(site: Site, entries: Iterable[OffsetEntry], undone: Mapping[str, bytes]) -> str:
    """Keeps the entries of the offset log as they are.

    Args:
        site: Of the checkpoint.
        entries: Those that will be replaced.
        undone: Other files that will be taken away, with their contents, by their paths in the checkpoint.

    Returns:
        Where, as a URL.

    Raises:
        StateStoreFilesError: It cannot be written.
    """
    data = BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in entries:
            archive.writestr(f"{OFFSETS}/{entry.batch}", entry.data)
        for name, contents in undone.items():
            archive.writestr(f"{_UNDONE}/{name}", contents)
    created_ms = site.now_ms
    path = f"{REPLACED}/{created_ms:013}-{secrets.token_hex(4)}.zip"
    with publish(site.directory, path) as out:
        out.write(data.getvalue())
    return site.directory.location.display(path)


def kept(directory: Directory) -> list[dict[int, bytes]]:
    """Contents of offset log entries that were replaced, by batch, for each conversion; the latest last.

    Raises:
        StateStoreFilesError: One cannot be read.
    """
    infos = sorted((info for info in directory.files(REPLACED) if info.name.endswith(".zip")), key=lambda i: i.name)
    found: list[dict[int, bytes]] = []
    for info in infos:
        if info.name.startswith("."):
            continue
        try:
            with opened_zip(directory.read(f"{REPLACED}/{info.name}", info.size), _LARGEST) as archive:
                names = [name for name in archive.namelist() if name.startswith(f"{OFFSETS}/")]
                found.append({int(name.partition("/")[2]): archive.read(name) for name in names})
        except ValueError as error:
            where = directory.location.display(f"{REPLACED}/{info.name}")
            reason = f"it is no zip of replaced files ({error})"
            raise StateStoreFilesError(
                "PSS_READ_FAILED", {"action": "read", "path": where, "reason": reason}
            ) from error
    return found
