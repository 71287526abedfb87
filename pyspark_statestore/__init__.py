"""Spark Structured Streaming state in a few merged files instead of thousands of small ones.

Importing this package is cheap and never fails: nothing else is imported before one of its names is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pyspark_statestore._version import __version__

if TYPE_CHECKING:
    from pyspark_statestore.attach import attach
    from pyspark_statestore.checkpoint import Checkpoint
    from pyspark_statestore.conf import OPTIONS
    from pyspark_statestore.errors import StateStoreFilesError
    from pyspark_statestore.forks.fork import fork
    from pyspark_statestore.jars import jar_path
    from pyspark_statestore.maintenance.background import maintain
    from pyspark_statestore.migration.verbs import convert, export
    from pyspark_statestore.paths import merged_path
    from pyspark_statestore.session import configure

__all__ = [
    "OPTIONS",
    "Checkpoint",
    "StateStoreFilesError",
    "__version__",
    "attach",
    "configure",
    "convert",
    "export",
    "fork",
    "jar_path",
    "maintain",
    "merged_path",
]

_HOMES = {
    "Checkpoint": "checkpoint",
    "OPTIONS": "conf",
    "StateStoreFilesError": "errors",
    "attach": "attach",
    "configure": "session",
    "convert": "migration.verbs",
    "export": "migration.verbs",
    "fork": "forks.fork",
    "jar_path": "jars",
    "maintain": "maintenance.background",
    "merged_path": "paths",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value  # `attach` is also a submodule, which the import has just bound to this name
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
