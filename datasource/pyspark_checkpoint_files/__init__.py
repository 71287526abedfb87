"""The Spark data source ``checkpoint_files``: what is in a streaming checkpoint, as tables and as a stream.

Spark finds it without registration: it imports every top-level package whose name begins with ``pyspark_`` and takes
its ``DefaultSource``. If one of these imports raises, no Python data source works in that session. So this package
imports nothing before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_checkpoint_files.source import DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from pyspark_checkpoint_files.source import DefaultSource
    except ImportError as error:
        if error.name == "pyspark.sql.datasource":
            raise _needs_data_sources() from error
        # Spark asks with hasattr, which catches only this error.
        raise AttributeError(f"{name} cannot be imported: {error}") from error
    globals()[name] = DefaultSource
    return DefaultSource


def _needs_data_sources() -> Exception:
    """The error for who asks in a Spark that has no Python data sources, and so does not ask itself."""
    import pyspark

    from pyspark_statestore.errors import StateStoreFilesError

    supported = "4.0 or newer for checkpoint_files (Checkpoint(path) and the command line need no Spark)"
    return StateStoreFilesError("PSS_UNSUPPORTED_SPARK", {"found": pyspark.__version__, "supported": supported})


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
