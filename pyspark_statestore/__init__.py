"""Spark Structured Streaming state in a few merged files instead of thousands of small ones.

Importing this package is cheap and never fails: nothing else is imported before one of its names is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pyspark_statestore._version import __version__

if TYPE_CHECKING:
    from pyspark_statestore.background import maintain
    from pyspark_statestore.checkpoint import Checkpoint, convert, export, fork
    from pyspark_statestore.conf import OPTIONS, SINK_OPTIONS
    from pyspark_statestore.errors import StateStoreFilesError
    from pyspark_statestore.paths import merged_path
    from pyspark_statestore.session.configure import attach, configure
    from pyspark_statestore.session.jvm import jar_path
    from pyspark_statestore.sink.sink import Sink

__all__ = [
    "OPTIONS",
    "SINK_OPTIONS",
    "Checkpoint",
    "Sink",
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
    "SINK_OPTIONS": "conf",
    "Sink": "sink.sink",
    "StateStoreFilesError": "errors",
    "attach": "session.configure",
    "configure": "session.configure",
    "convert": "checkpoint",
    "export": "checkpoint",
    "fork": "checkpoint",
    "jar_path": "session.jvm",
    "load_ipython_extension": "notebook",
    "maintain": "background",
    "merged_path": "paths",
    "unload_ipython_extension": "notebook",
}
"""Where each public name is, and each of the two that IPython asks for."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
