"""A RocksDB snapshot as key-value pairs: its files in a temporary directory, opened read-only with ``rocksdict``."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark_statestore.errors import StateStoreFilesError
from pyspark_statestore.sparkfiles.snapshot import Snapshot

_MERGE_OPERATOR = re.compile(r"^(\s*merge_operator)=.*$", re.MULTILINE)


def import_rocksdict() -> Any:
    """Returns the module.

    Raises:
        StateStoreFilesError: PSS_MISSING_DEPENDENCY where it is not installed.
    """
    try:
        import rocksdict
    except ImportError as error:
        parameters = {
            "what": "Reading RocksDB state",
            "reason": error,
            "install": 'pip install "pyspark-statestore[state]"',
        }
        raise StateStoreFilesError("PSS_MISSING_DEPENDENCY", parameters) from error
    return rocksdict


def read_pairs(
    snapshot: Snapshot, tables: Iterable[tuple[str, bytes]], prefix: bytes, delimiter: bytes
) -> dict[bytes, bytes]:
    """Reads all keys that begin with a prefix.

    Args:
        snapshot: Its zip.
        tables: Local name and bytes of each file that the zip names.
        prefix: Of a column family; empty for all.
        delimiter: Between values that were merged.

    Raises:
        ValueError: RocksDB cannot open or read it.
        StateStoreFilesError: PSS_MISSING_DEPENDENCY.
    """
    rocksdict = import_rocksdict()
    with tempfile.TemporaryDirectory(prefix="pyspark-statestore-") as folder:
        for name, data in snapshot.files.items():
            (Path(folder) / name).write_bytes(_with_delimiter(data, delimiter) if name.startswith("OPTIONS-") else data)
        for name, data in tables:
            (Path(folder) / name).write_bytes(data)
        try:
            options = rocksdict.Options(raw_mode=True)
            database = rocksdict.Rdict(folder, options=options, access_type=rocksdict.AccessType.read_only())
        except Exception as error:  # RocksDB's, which have no type of their own
            raise ValueError(f"RocksDB cannot open it ({error})") from error
        try:
            return _pairs(database, prefix)
        except Exception as error:
            raise ValueError(f"RocksDB cannot read it ({error})") from error
        finally:
            database.close()


def _pairs(database: Any, prefix: bytes) -> dict[bytes, bytes]:
    if not prefix:
        return dict(database.items())
    found: dict[bytes, bytes] = {}
    for key, value in database.items(from_key=prefix):
        if not key.startswith(prefix):
            break
        found[key] = value
    return found


def _with_delimiter(options: bytes, delimiter: bytes) -> bytes:
    """RocksDB reads its merge operator from this file; it keeps the operator's name there and forgets its delimiter."""
    operator = f"{{id=StringAppendOperator;delimiter={{{delimiter.decode()}}};}}"
    return _MERGE_OPERATOR.sub(rf"\1={operator}", options.decode("utf-8", "replace")).encode()
