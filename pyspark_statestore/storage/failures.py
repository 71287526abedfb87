"""What a failure of a file system is called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark_statestore.errors import StateStoreFilesError


@contextmanager
def errors_of(action: str, path: str, error_class: str = "PSS_READ_FAILED") -> Iterator[None]:
    """Turns what a file system raises into this package's errors; a file that is gone stays FileNotFoundError.

    Args:
        action: What is done.
        path: To what.
        error_class: What it is called where permission is not the reason.
    """
    try:
        yield
    except (StateStoreFilesError, FileNotFoundError):
        raise
    except PermissionError as error:
        parameters = {"action": action, "path": path, "user": f"this process's user ({error})"}
        raise StateStoreFilesError("PSS_NO_PERMISSION", parameters) from error
    except Exception as error:  # file systems raise their libraries' own, such as botocore's NoCredentialsError
        parameters = {"action": action, "path": path, "reason": f"{type(error).__name__}: {error}"}
        raise StateStoreFilesError(error_class, parameters) from error
